//! What befalls a store while real members of etcd carry a rollout: partitions, a full disk, changed rights, new certificates,
//! and a backup that is older than the rollout.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use homeostat_etcd::{Config, EtcdStore, TlsFiles};
use homeostat_fleet::Name;
use homeostat_fleet::records::{Phase, Record as _, Status, Why};
use homeostat_store::{BootTime, Error, Store, Transaction};
use homeostat_testkit::etcd::{ClientFiles, Members};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::members::{LOOK, PATIENCE, Recorder};
use crate::simulated::{Dice, pass_time};
use crate::world::{NODES, World, Written};

const MEMBERS: usize = 3;

/// Members, and clients of them.
struct Ground {
    members: Members,
    addresses: Vec<String>,
}

impl Ground {
    fn new(members: Members) -> (Self, Runtime) {
        let addresses = (0..members.count()).map(|nth| members.address(nth)).collect();
        let ground = Ground { members, addresses };
        // Everything stays on this thread, which is in the namespace.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(ground.until_written());
        (ground, runtime)
    }

    fn client(&self, name: &str) -> Arc<EtcdStore> {
        let members = self.addresses.iter().map(|address| address.parse().unwrap());
        let mut config = Config::new(members, name).with_spread(Duration::from_millis(200));
        if let Some(ClientFiles { ca, certificate, key }) = self.members.tls() {
            config = config.with_tls(TlsFiles::new(ca).with_client(certificate, key));
        }
        Arc::new(EtcdStore::new(config))
    }

    async fn until_written(&self) {
        let store = self.client("probe");
        let written = async {
            while store.commit(Transaction::new().put("/probe", "")).await.is_err() {
                pass_time(LOOK).await;
            }
        };
        let waited = timeout(PATIENCE, written).await;
        waited.unwrap_or_else(|_| panic!("{}", self.members.log()));
    }

    fn etcdctl(&self, args: &str) -> String {
        let args: Vec<&str> = args.split(' ').collect();
        self.members.etcdctl(&args).unwrap()
    }
}

/// A rollout to 20 nodes that is under way.
struct Rollout {
    world: World,
    recorder: Recorder,
    tasks: Vec<JoinHandle<()>>,
}

impl Rollout {
    async fn begin(ground: &Ground, seed: u64, bad: &[u64]) -> Self {
        let fleet = format!("edge{seed}");
        let world = World::new(ground.client("operator"), Arc::new(BootTime), &fleet).hurried();
        let recorder = Recorder::start(ground.client("recorder"), world.keys.prefix().to_owned());
        let stores: Vec<_> = (0..4).map(|nth| ground.client(&format!("nodes{nth}"))).collect();
        let of =
            |nth: u64| Arc::clone(&stores[usize::try_from(nth % 4).unwrap()]) as Arc<dyn Store>;
        let mut tasks = world.live(of, bad, seed);
        world.until_alive(PATIENCE, LOOK).await;
        world.publish().await;
        for name in ["a", "b"] {
            tasks.push(world.coordinate(ground.client(name), name));
        }
        recorder.until_acts(1).await;
        Rollout { world, recorder, tasks }
    }

    async fn more_acts(&self, count: u64) {
        self.recorder.until_acts(self.recorder.acts().0 + count).await;
    }

    /// Nobody broke a rule, and it ended as its nodes let it.
    async fn ends(self, bad: &[u64]) {
        let state = self.world.ended(PATIENCE, LOOK).await;
        let expected = if bad.is_empty() { Phase::Done } else { Phase::Stopped };
        assert_eq!(state.phase, expected, "{state:?}");
        self.recorder.until_over().await;
        self.tasks.iter().for_each(JoinHandle::abort);
        let judged = self.world.judge(&self.recorder.history());
        assert!(!bad.is_empty() || judged.wants.len() as u64 == NODES);
    }
}

/// How many rollouts each kind of disturbance meets; the last one has a node that fails.
fn rounds() -> impl Iterator<Item = (u64, &'static [u64])> {
    let rounds = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 40 } else { 1 };
    (0..rounds).map(move |nth| (nth, if nth % 3 == 2 { &[12][..] } else { &[] }))
}

#[test]
fn a_rollout_goes_on_through_partitions_of_its_members() {
    let (ground, runtime) = Ground::new(Members::start_apart(MEMBERS, &[], |_| None).unwrap());
    runtime.block_on(async {
        for (seed, bad) in rounds() {
            let mut dice = Dice(seed);
            let rollout = Rollout::begin(&ground, seed, bad).await;
            for _ in 0..MEMBERS {
                let nth = usize::try_from(dice.roll(3)).unwrap();
                ground.members.cut(nth).unwrap();
                // Two of three go on, whoever led before.
                rollout.more_acts(2).await;
                ground.members.rejoin(nth).unwrap();
                rollout.more_acts(1).await;
            }
            // Without a majority nothing is decided, and nothing is lost.
            ground.members.cut(0).unwrap();
            ground.members.cut(1).unwrap();
            let alone = ground.client("alone");
            let why = loop {
                if let Err(error) = alone.commit(Transaction::new().put("/probe", "")).await {
                    break error;
                }
            };
            assert_ne!(why, Error::NoSpace);
            ground.members.rejoin(0).unwrap();
            ground.members.rejoin(1).unwrap();
            rollout.ends(bad).await;
        }
    });
}

#[test]
fn a_rollout_waits_while_the_store_is_full_and_then_goes_on() {
    let quota = ["--quota-backend-bytes=16777216"];
    let (ground, runtime) = Ground::new(Members::start(MEMBERS, &quota, |_| None).unwrap());
    runtime.block_on(async {
        for (seed, bad) in rounds() {
            let rollout = Rollout::begin(&ground, seed, bad).await;
            let (filler, large) = (ground.client("filler"), vec![b'x'; 1 << 20]);
            let mut refused = None;
            while refused != Some(Error::NoSpace) {
                let put = Transaction::new().put("/large", &large[..]);
                refused = filler.commit(put).await.err();
            }
            let (acts, is_over) = rollout.recorder.acts();
            assert!(!is_over, "the store was full too late");
            // What operators do, as the page about fleets says.
            ground.etcdctl("del /large");
            let status = ground.etcdctl("endpoint status -w fields");
            let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" : "));
            ground.etcdctl(&format!("compact {}", revision.unwrap().trim()));
            for nth in 0..MEMBERS {
                let at = format!("--endpoints=http://{}", ground.members.address(nth));
                ground.members.etcdctl(&[&at, "defrag"]).unwrap();
            }
            assert!(rollout.recorder.acts().0 <= acts + 1, "nothing is decided without room");
            ground.etcdctl("alarm disarm");
            rollout.ends(bad).await;
        }
    });
}

/// An authority, whose certificate is in `ca.pem`.
fn authority(directory: &Path) -> Issuer<'static, KeyPair> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "fleet");
    fs::write(directory.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    Issuer::new(params, key)
}

/// New certificates of the members and of root, over those that are there. Each file is whole at every moment.
fn certify(directory: &Path, authority: &Issuer<'_, KeyPair>) {
    for name in ["server", "root"] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, authority).unwrap();
        let files = [("pem", certificate.pem()), ("key", key.serialize_pem())];
        for (kind, text) in files {
            let path = directory.join(format!("{name}.{kind}"));
            fs::write(path.with_extension("new"), text).unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        }
    }
}

#[test]
fn a_rollout_goes_on_while_rights_are_changed_and_certificates_replaced() {
    const SERVER: [&str; 4] = [
        "--cert-file=DIR/server.pem",
        "--key-file=DIR/server.key",
        "--trusted-ca-file=DIR/ca.pem",
        "--client-cert-auth",
    ];
    let mut issuer = None;
    let members = Members::start(MEMBERS, &SERVER, |directory| {
        let authority = authority(directory);
        certify(directory, &authority);
        issuer = Some(authority);
        let at = |name: &str| directory.join(name);
        Some(ClientFiles { ca: at("ca.pem"), certificate: at("root.pem"), key: at("root.key") })
    });
    let (mut ground, runtime) = Ground::new(members.unwrap());
    let issuer = issuer.unwrap();
    ground.etcdctl("user add root --no-password");
    ground.etcdctl("user grant-role root root");
    ground.etcdctl("auth enable");
    runtime.block_on(async {
        for (seed, bad) in rounds() {
            let rollout = Rollout::begin(&ground, seed, bad).await;
            for nth in 0..MEMBERS {
                // Each change makes requests that are under way "of an older revision".
                for number in 0..5 {
                    let node = format!("x{seed}-{nth}-{number}");
                    ground.etcdctl(&format!("user add {node} --no-password"));
                    ground.etcdctl(&format!("role add {node}"));
                    ground.etcdctl(&format!("role grant-permission {node} read /{node}"));
                    ground.etcdctl(&format!("user grant-role {node} {node}"));
                }
                certify(&ground.members.path(""), &issuer);
                // Its clients make new connections, by the new certificates of both sides.
                ground.members.kill(nth).unwrap();
                ground.members.run(nth).unwrap();
                rollout.more_acts(1).await;
            }
            rollout.ends(bad).await;
        }
    });
}

/// The state of all members as it was saved.
fn restore(ground: &mut Ground, backup: &Path) {
    (0..MEMBERS).for_each(|nth| ground.members.kill(nth).unwrap());
    let peer = |nth: usize| format!("http://127.0.0.1:{}", 2380 + nth * 10);
    let cluster: Vec<_> = (0..MEMBERS).map(|nth| format!("m{nth}={}", peer(nth))).collect();
    for nth in 0..MEMBERS {
        let data = ground.members.data(nth);
        fs::remove_dir_all(&data).unwrap();
        let (name, cluster, peer) = (format!("m{nth}"), cluster.join(","), peer(nth));
        let options = [
            ("--data-dir", data.to_str().unwrap()),
            ("--name", &name),
            ("--initial-cluster", &cluster),
            ("--initial-cluster-token", "test"),
            ("--initial-advertise-peer-urls", &peer),
        ];
        let options = options.iter().flat_map(|(option, value)| [*option, *value]);
        let args: Vec<&str> =
            ["snapshot", "restore", backup.to_str().unwrap()].into_iter().chain(options).collect();
        ground.members.etcdctl(&args).unwrap();
    }
    (0..MEMBERS).for_each(|nth| ground.members.run(nth).unwrap());
}

#[test]
fn a_rollout_that_a_backup_brings_back_is_paused_and_no_node_goes_back_with_it() {
    let (mut ground, runtime) = Ground::new(Members::start(MEMBERS, &[], |_| None).unwrap());
    runtime.block_on(async {
        let Rollout { world, recorder, tasks } = Rollout::begin(&ground, 0, &[]).await;
        recorder.until_acts(3).await;
        // The backup has a rollout of generation 7 that is under way.
        let backup = ground.members.path("backup");
        ground.members.etcdctl(&["snapshot", "save", backup.to_str().unwrap()]).unwrap();
        assert!(!recorder.acts().1, "the backup was made too late");
        world.until("first", Phase::Done, PATIENCE, LOOK).await;
        world.publish_as("second", 8, Written::Leaves).await;
        world.until("second", Phase::Done, PATIENCE, LOOK).await;
        restore(&mut ground, &backup);
        ground.until_written().await;
        let state = world.until("first", Phase::Paused, PATIENCE, LOOK).await;
        let why = state.why.unwrap();
        assert!(matches!(why, Why::StoreBehind { accepted: 8, .. }), "{why:?}");
        world.publish_as("third", 9, Written::Leaves).await;
        world.until("third", Phase::Done, PATIENCE, LOOK).await;
        tasks.iter().for_each(JoinHandle::abort);
        // What the restored store has seen: each node says what it has accepted, which only grows.
        let after = Recorder::start(ground.client("after"), world.keys.prefix().to_owned());
        after.until_over().await;
        let mut accepted: BTreeMap<Name, u64> = BTreeMap::new();
        for (_, key, entry) in after.history() {
            let (Some(node), Some(entry)) = (world.keys.node_of(&key), entry) else { continue };
            if key != world.keys.status(&node) {
                continue;
            }
            let status = Status::read(&entry.value).unwrap();
            let known = accepted.insert(node.clone(), status.accepted).unwrap_or_default();
            assert!(status.accepted >= known, "{node} went from {known} to {}", status.accepted);
        }
        assert_eq!(accepted.len() as u64, NODES);
        assert!(accepted.values().all(|accepted| *accepted == 9), "{accepted:?}");
    });
}
