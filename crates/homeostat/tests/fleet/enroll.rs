//! A node's key, certificate and rights: made by `enroll`, signed by `openssl`, granted by `etcdctl`, and taken by `retire`.

use std::path::Path;

use homeostat_etcd::{Config, EtcdStore, TlsFiles};
use homeostat_fleet::keys::Keys;
use homeostat_store::{Error, Keys as Range, Store as _, Transaction};
use homeostat_testkit::etcd::{ClientFiles, Members};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::world::World;

/// An authority in `ca.pem` and `ca.key`, and certificates of the member and of root.
fn certificates(directory: &Path) -> ClientFiles {
    let at = |name: &str| directory.join(name);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "fleet");
    std::fs::write(at("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(at("ca.key"), key.serialize_pem()).unwrap();
    let authority = Issuer::new(params, key);
    for name in ["server", "root"] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &authority).unwrap();
        std::fs::write(at(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(at(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }
    ClientFiles { ca: at("ca.pem"), certificate: at("root.pem"), key: at("root.key") }
}

const SERVER: &[&str] = &[
    "--cert-file=DIR/server.pem",
    "--key-file=DIR/server.key",
    "--trusted-ca-file=DIR/ca.pem",
    "--client-cert-auth",
];

#[test]
fn an_enrolled_node_has_its_rights_and_no_others_until_it_is_retired() {
    let members = Members::start(1, SERVER, |directory| Some(certificates(directory))).unwrap();
    let world = World::of(members);
    world.write(
        "fleet.toml",
        "fleet = \"edge\"\nendpoints = [\"127.0.0.1:2379\"]\nca = \"ca.pem\"\ncertificate = \"root.pem\"\nkey = \"root.key\"\n",
    );
    let made = world.fleet("enroll r1 --group fra --label rack=a7 --ring 2 --json").json(0);
    let request = world.run("openssl", "req -in r1.csr -noout -verify -subject").exits(0);
    assert!(format!("{}{}", request.stdout, request.stderr).contains("CN = r1"), "{request:?}");
    let run = |command: &str| {
        let (program, args) = command.split_once(' ').unwrap();
        match program {
            "etcdctl" => drop(world.members.etcdctl(&args.split(' ').collect::<Vec<_>>()).unwrap()),
            _ => drop(world.run(program, args).exits(0)),
        }
    };
    run(made["openssl"].as_str().unwrap());
    for args in ["user add root --no-password", "user grant-role root root"] {
        run(&format!("etcdctl {args}"));
    }
    made["etcdctl"].as_array().unwrap().iter().for_each(|it| run(it.as_str().unwrap()));
    run("etcdctl auth enable");

    let keys = Keys::new(&"edge".parse().unwrap());
    let (own, other) = ("r1".parse().unwrap(), "r2".parse().unwrap());
    let tls =
        TlsFiles::new(world.path("ca.pem")).with_client(world.path("r1.pem"), world.path("r1.key"));
    let config = Config::new([Members::endpoint(0).parse().unwrap()], "r1").with_tls(tls);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = EtcdStore::new(config);
        for key in [keys.status(&own), keys.alive(&own), keys.plan(&own)] {
            let _ = store.commit(Transaction::new().put(key, "{}")).await.unwrap();
        }
        for range in [keys.node(&own), keys.all("rollout"), keys.all("blob") + "all/"] {
            store.list(Range::Below(range)).await.unwrap();
        }
        for key in [keys.status(&other), keys.want(&own), keys.leader()] {
            let write = store.commit(Transaction::new().put(key.clone(), "{}")).await;
            assert!(matches!(write, Err(Error::Denied { .. })), "{key}: {write:?}");
        }
        let read = store.list(Range::Below(keys.node(&other))).await;
        assert!(matches!(read, Err(Error::Denied { .. })), "{read:?}");
    });

    // A second machine of this name is refused, and so is one that is alive.
    let ran = world.fleet("enroll r1 --out other").exits(1);
    assert!(ran.stderr.contains("has a node `r1` already"), "{}", ran.stderr);
    let listed = world.fleet("inventory").exits(0).stdout;
    assert_eq!(listed, "r1  ring 2  groups [fra]  labels [rack=a7]\n");
    let ran = world.fleet("retire r1").exits(1);
    assert!(ran.stderr.contains("r1 is alive"), "{}", ran.stderr);
    world.members.etcdctl(&["del", &keys.alive(&own)]).unwrap();
    let retired = world.fleet("retire r1 --json").json(0);
    retired["etcdctl"].as_array().unwrap().iter().for_each(|it| run(it.as_str().unwrap()));
    assert_eq!(
        world.members.etcdctl(&["get", "--prefix", "--keys-only", keys.prefix()]).unwrap(),
        ""
    );
    let ran = world.fleet("retire r1").exits(1);
    assert!(ran.stderr.contains("there is no node `r1`"), "{}", ran.stderr);
}

#[test]
fn an_inventory_is_compared_with_the_store_and_written() {
    let world = World::start();
    world.write(
        "inventory.toml",
        "[groups.fra]\n[nodes.r1]\ngroups = [\"fra\"]\n[nodes.r2]\nring = 1\n",
    );
    let text = world.fleet("inventory inventory.toml").exits(0).stdout;
    assert!(text.ends_with("2 nodes; 2 differ from the store. --write writes them.\n"), "{text}");
    world.fleet("inventory inventory.toml --write").exits(0);
    let listed = world.fleet("inventory --json").json(0);
    assert_eq!(listed["nodes"]["r2"]["ring"], 1);
    world.write("inventory.toml", "[nodes.r2]\nring = 1\n");
    let text = world.fleet("inventory inventory.toml").exits(0).stdout;
    assert_eq!(
        text,
        "? r1 is in the store only; `homeostat fleet retire r1` takes it out\n1 nodes; the store has the same.\n"
    );
}
