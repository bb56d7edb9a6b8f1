//! From a directory of templates to a fleet that has them, and back.

use serde_json::json;

use crate::world::World;

const NODES: [&str; 6] = ["r1", "r2", "r3", "r4", "r5", "r6"];
const QUICK: &str = "--soak 100ms --settle 1s --confirm-within 1m --waves 1,50%,100%";

/// A directory with a template, an inventory, and a key that may sign.
fn prepared() -> World {
    let world = World::start();
    world.write(
        "documents/host.toml.node.j2",
        "{% include \"_settings\" %}\n[sysctl]\n\"net.ipv4.ip_forward\" = {{ values.forward }}\n\
         {% if \"edge\" in node.groups %}\n\"net.ipv4.ip_default_ttl\" = {{ values.ttl }}\n{% endif %}\n",
    );
    world.write(
        "documents/_settings",
        "# {{ fleet }}: {{ node.name }} in rack {{ node.labels.rack }}\n",
    );
    world.write("documents/lists/customers.txt", "198.51.100.0/24\n");
    world.write("inventory.toml", &inventory(64));
    let mut keygen = world.command("ssh-keygen", "-q -t ed25519 -f signer");
    World::finish({
        keygen.args(["-N", ""]);
        keygen
    })
    .exits(0);
    let public = std::fs::read_to_string(world.path("signer.pub")).unwrap();
    world.write(
        "allowed_signers",
        &format!("ann@example.net namespaces=\"homeostat-rollout\" {public}"),
    );
    world.write(
        "fleet.toml",
        "fleet = \"edge\"\nendpoints = [\"127.0.0.1:2379\"]\nsigning-key = \"signer\"\n\
         allowed-signers = \"allowed_signers\"\n",
    );
    world
}

fn inventory(ttl: u32) -> String {
    let values =
        format!("[values]\nforward = 1\n\n[groups.edge.values]\nttl = {ttl}\n\n[groups.core]\n");
    let node = |(nth, node): (usize, &&str)| {
        let group = if nth < 4 { "edge" } else { "core" };
        format!("\n[nodes.{node}]\ngroups = [\"{group}\"]\nlabels = {{ rack = \"a{nth}\" }}\n")
    };
    let nodes: Vec<String> = NODES.iter().enumerate().map(node).collect();
    values + &nodes.concat()
}

/// The keys of the fleet that begin with this, as etcd has them.
fn keys(world: &World, kind: &str) -> Vec<String> {
    let prefix = format!("/homeostat/v1/edge/{kind}/");
    let listed = world.members.etcdctl(&["get", "--prefix", "--keys-only", &prefix]).unwrap();
    listed.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn a_missing_value_or_a_bad_document_is_named_before_anything_is_signed() {
    let world = prepared();
    world.write("inventory.toml", &inventory(64).replace("ttl = 64", ""));
    let ran = world.fleet(&format!("sign documents -i inventory.toml -o bundle {QUICK}")).exits(1);
    assert!(
        ran.stderr.contains("node r1: documents/host.toml.node.j2:5:")
            && ran.stderr.contains("`values.ttl` is undefined")
            && ran.stderr.contains("help: write the value to the inventory: [nodes.r1.values]"),
        "{}",
        ran.stderr
    );
    world.write("inventory.toml", &inventory(64).replace("forward = 1", "forward = \"often\""));
    let ran = world.fleet("sign documents -i inventory.toml -o bundle").exits(1);
    assert!(ran.stderr.contains("the document of node r"), "{}", ran.stderr);
    assert!(!world.path("bundle").exists());
    world.write("inventory.toml", &inventory(64).replace("[\"core\"]", "[\"cores\"]"));
    let ran = world.fleet("sign documents -i inventory.toml -o bundle").exits(1);
    assert!(
        ran.stderr.contains("node r5 is in the group `cores`, which is not declared"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_document_for_each_node_is_signed_once_planned_and_rolled_out() {
    let mut world = prepared();
    let signed =
        world.fleet(&format!("sign documents -i inventory.toml -o one {QUICK} --json")).json(0);
    assert_eq!(signed["generation"], 1);
    assert_eq!(signed["waves"], json!([1, 3, 6]));
    assert_eq!((&signed["nodes"], &signed["documents"]), (&json!(6), &json!(6)));
    // OpenSSH judges the signature.
    for file in ["statement.json", "plan.json"] {
        let mut verify = world.command("sh", "");
        let script = format!(
            "ssh-keygen -Y verify -f allowed_signers -I ann@example.net -n homeostat-rollout -s one/{file}.sig < one/{file}"
        );
        verify.args(["-c", &script]);
        World::finish(verify).exits(0);
    }
    // What is signed can be read.
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(world.path("one/documents")).unwrap() {
        let directory = entry.unwrap().path();
        texts.push(std::fs::read_to_string(directory.join("host.toml")).unwrap());
        assert!(
            directory.join("lists/customers.txt").exists() && !directory.join("_settings").exists()
        );
    }
    texts.sort();
    let first = "# edge: r1 in rack a0\n[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.ip_default_ttl\" = 64\n";
    assert_eq!(texts[0].replace("\n\n", "\n"), first);
    assert!(!texts[5].contains("ttl"), "{}", texts[5]);

    // Nobody is alive yet.
    let plan = world.fleet("plan one --json").json(2);
    assert_eq!(plan["absent"].as_array().unwrap().len(), 6);
    World::live(&NODES[..5], &["r5"]);
    world.until("status --json", |ran| ran.stdout.matches("\"alive\":true").count() == 5);
    let plan = world.fleet("plan one --json --timeout 2m").json(2);
    let groups = plan["groups"].as_array().unwrap();
    assert_eq!(groups[0]["nodes"], json!(["r5"]));
    assert_eq!(groups[0]["result"]["refused"]["why"], "unknown section `later`");
    assert_eq!(groups[1]["nodes"], json!(["r1", "r2", "r3", "r4"]));
    let text = world.fleet("plan one --timeout 2m").exits(2).stdout;
    assert!(text.contains("1 node would refuse it: unknown section `later`\n  r5\n"), "{text}");
    assert!(
        text.contains("4 nodes: 1 to create, 0 to update, 0 to delete\n  r1, r2, r3, r4\n"),
        "{text}"
    );
    assert!(text.ends_with("Absent: r6\n"), "{text}");
    assert_eq!(keys(&world, "node").iter().filter(|key| key.ends_with("/want")).count(), 0);

    // Without a coordinator nothing begins; two of them lead one rollout.
    let text = world.fleet("start one").exits(0).stdout;
    assert!(text.contains("No coordinator leads now"), "{text}");
    let ran = world.fleet("start one").exits(1);
    assert!(ran.stderr.contains("already"), "{}", ran.stderr);
    world.coordinate("a");
    world.coordinate("b");
    // r5 rolls back, so every touched node goes to its fallback; r6 is absent.
    let waited = world.fleet("wait --timeout 4m --json").json(2);
    assert_eq!(waited["rollout"]["phase"], "stopped", "{waited}");
    assert_eq!(waited["rollout"]["why"]["nodes"], json!(["r5"]), "{waited}");
    let status = world.fleet("status").exits(2).stdout;
    assert!(status.contains("stopped") && status.contains("because 1 failed: r5"), "{status}");
    for key in keys(&world, "node").iter().filter(|key| key.ends_with("/want")) {
        let want = world.members.etcdctl(&["get", "--print-value-only", key]).unwrap();
        assert!(want.contains("\"take\":\"fallback\""), "{want}");
    }
}

#[test]
fn a_rollout_is_paused_resumed_aborted_and_listed() {
    let mut world = prepared();
    World::live(&NODES, &[]);
    world.until("status --json", |ran| ran.stdout.matches("\"alive\":true").count() == 6);
    let first = world.coordinate("a");
    world.coordinate("b");
    world.fleet(&format!("sign documents -i inventory.toml -o one {QUICK} --id first")).exits(0);
    let ran = world.fleet("start one --wait").exits(0);
    assert!(ran.stdout.contains("first  generation 1  done: 6 of 6 nodes good"), "{}", ran.stdout);
    let status = world.fleet("status --all").exits(0).stdout;
    assert!(status.contains("6 nodes: 6 good"), "{status}");

    // The second one waits in its first wave, so it can be paused there.
    world.write("inventory.toml", &inventory(63));
    let slow = "--soak 1h --settle 1s --waves 1,100%";
    world.fleet(&format!("sign documents -i inventory.toml -o two {slow} --id second")).exits(0);
    world.fleet("start two").exits(0);
    let is_soaking = |text: &str| text.contains("1 of 6 nodes good");
    world.until("history", |ran| {
        is_soaking(ran.stdout.lines().next().unwrap_or_default())
            || ran.stdout.contains("\"complete\"")
    });
    // The leader dies; the other one goes on where it was.
    world.kill(first);
    world.fleet("pause second").exits(0);
    let waited = world.fleet("wait second --timeout 4m").exits(2).stdout;
    assert!(waited.contains("paused") && waited.contains("an operator asked for it"), "{waited}");
    world.fleet("resume").exits(0);
    world.until("status --json", |ran| ran.stdout.contains("\"phase\":\"running\""));
    world.fleet("abort").exits(0);
    let waited = world.fleet("wait --timeout 4m --json").json(2);
    assert_eq!(waited["rollout"]["phase"], "stopped", "{waited}");
    let ran = world.fleet("resume").exits(1);
    assert!(ran.stderr.contains("rollout second is stopped"), "{}", ran.stderr);
    // What nodes fall back to next is what they have now.
    let history = world.fleet("history --json").json(0);
    let ids: Vec<_> = history["rollouts"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!(ids, ["second", "first"]);
    let third =
        world.fleet(&format!("sign documents -i inventory.toml -o three {QUICK} --json")).json(0);
    assert_eq!(third["generation"], 3);
    // The store is not trusted with what is signed: neither with documents that nobody signed, nor without a list of signers.
    let key = "/homeostat/v1/edge/status/r1";
    let status = world.members.etcdctl(&["get", "--print-value-only", key]).unwrap();
    let (_, digest) = status.split_once("\"document\":\"sha256:").unwrap();
    let forged = status.replace(&digest[..64], &"0".repeat(64));
    world.members.etcdctl(&["put", key, forged.trim()]).unwrap();
    let ran = world.fleet(&format!("sign documents -i inventory.toml -o four {QUICK}")).exits(1);
    assert!(ran.stderr.contains("r1 says that it has sha256:0000"), "{}", ran.stderr);
    // An old bundle is refused before anything is written.
    let ran = world.fleet("start two").exits(1);
    assert!(ran.stderr.contains("there is a rollout `second` already"), "{}", ran.stderr);
}

#[test]
fn old_rollouts_are_deleted_with_what_only_they_need() {
    let mut world = prepared();
    World::live(&NODES, &[]);
    world.until("status --json", |ran| ran.stdout.matches("\"alive\":true").count() == 6);
    world.coordinate("a");
    for (number, name) in ["one", "two", "three"].into_iter().enumerate() {
        world.write("inventory.toml", &inventory(60 + u32::try_from(number).unwrap()));
        world
            .fleet(&format!("sign documents -i inventory.toml -o {name} {QUICK} --id {name}"))
            .exits(0);
        world.fleet(&format!("start {name} --wait")).exits(0);
    }
    let (documents, chunks) = (keys(&world, "doc"), keys(&world, "blob"));
    let foreseen = world.fleet("prune --keep 1 --dry-run").exits(0).stdout;
    assert_eq!(keys(&world, "doc"), documents);
    let ran = world.fleet("prune --keep 1").exits(0);
    assert_eq!(ran.stdout, foreseen.replace("Would delete", "Deleted"));
    assert!(ran.stdout.starts_with("Deleted rollouts: 2, documents: "), "{}", ran.stdout);
    assert!(ran.stdout.ends_with(". Rollouts kept: 1.\n"), "{}", ran.stdout);
    assert!(
        keys(&world, "doc").len() < documents.len() && keys(&world, "blob").len() < chunks.len()
    );
    let rollouts = keys(&world, "rollout");
    assert!(
        !rollouts.is_empty() && rollouts.iter().all(|key| key.contains("/three")),
        "{rollouts:?}"
    );
    // What nodes have counts as signed for them still.
    world.write("inventory.toml", &inventory(70));
    world.fleet(&format!("sign documents -i inventory.toml -o four {QUICK}")).exits(0);
    world.fleet("start four --wait").exits(0);
}

#[test]
fn a_bundle_that_was_changed_or_is_signed_by_others_is_not_started() {
    let world = prepared();
    world.write("fleet.toml", "fleet = \"edge\"\nendpoints = [\"127.0.0.1:2379\"]\nallowed-signers = \"allowed_signers\"\n");
    let ran = world.fleet(&format!("sign documents -i inventory.toml -o one {QUICK}")).exits(0);
    assert!(
        ran.stdout.contains("ssh-keygen -Y sign -n homeostat-rollout -f KEY one/statement.json"),
        "{}",
        ran.stdout
    );
    let ran = world.fleet("start one").exits(1);
    assert!(ran.stderr.contains("one/statement.json is not signed"), "{}", ran.stderr);
    // A signature that was made elsewhere.
    world.run("ssh-keygen", "-q -Y sign -n homeostat-rollout -f signer one/plan.json").exits(0);
    world
        .run("ssh-keygen", "-q -Y sign -n homeostat-rollout -f signer one/statement.json")
        .exits(0);
    let mut keygen = world.command("ssh-keygen", "-q -t ed25519 -f stranger");
    keygen.args(["-N", ""]);
    World::finish(keygen).exits(0);
    world
        .fleet(&format!("sign documents -i inventory.toml -o two {QUICK} --signing-key stranger"))
        .exits(0);
    let ran = world.fleet("start two").exits(1);
    assert!(ran.stderr.contains("nodes would refuse two/statement.json"), "{}", ran.stderr);
    // A second signature makes it good.
    world.fleet("sign --add two --signing-key signer").exits(0);
    world.write("two/leaves.json", "[]");
    let ran = world.fleet("start two").exits(1);
    assert!(ran.stderr.contains("its leaves are not those of the signed root"), "{}", ran.stderr);
    let document = std::fs::read_dir(world.path("one/documents")).unwrap().next().unwrap().unwrap();
    std::fs::write(document.path().join("more.toml"), "").unwrap();
    let ran = world.fleet("start one").exits(1);
    assert!(ran.stderr.contains("was changed after it was signed"), "{}", ran.stderr);
    assert_eq!(keys(&world, "rollout"), [""; 0]);
}

#[test]
fn connections_come_from_options_environment_and_file_and_failures_say_what_to_do() {
    let world = World::start();
    let ran = world.fleet("status --endpoints 127.0.0.1:1").exits(1);
    assert!(
        ran.stderr.contains("127.0.0.1:1") && ran.stderr.contains("help: check --endpoints"),
        "{}",
        ran.stderr
    );
    world.fleet("status").exits(0);
    let homeostat = env!("CARGO_BIN_EXE_homeostat");
    let ran = world.run(homeostat, "fleet status").exits(1);
    assert!(ran.stderr.contains("no fleet is named"), "{}", ran.stderr);
    let mut by_environment = world.command(homeostat, "fleet status --json");
    by_environment
        .env("HOMEOSTAT_FLEET", "core")
        .env("HOMEOSTAT_FLEET_ENDPOINTS", "127.0.0.1:2379");
    assert_eq!(World::finish(by_environment).json(0)["fleet"], "core");
    world.write(
        "home/.config/homeostat/fleet.toml",
        "fleet = \"own\"\nendpoints = [\"127.0.0.1\"]\n",
    );
    assert_eq!(world.run(homeostat, "fleet status --json").json(0)["fleet"], "own");
    world.write("fleet.toml", "fleet = \"edge\"\nendpoint = [\"127.0.0.1:2379\"]\n");
    let ran = world.fleet("status").exits(1);
    assert!(ran.stderr.contains("fleet.toml") && ran.stderr.contains("line 2"), "{}", ran.stderr);
}

#[test]
fn leaves_of_a_rollout_that_was_started_are_never_replaced() {
    let world = prepared();
    let sign = |out: &str, more: &str| {
        world
            .fleet(&format!("sign documents -i inventory.toml -o {out} --id same {QUICK} {more}"))
            .exits(0);
    };
    sign("one", "");
    sign("other", "--node r1 --node r2");
    // What an interrupted upload of another rollout of this name has left.
    for part in ["0000", "0007"] {
        let key = format!("/homeostat/v1/edge/leaves/same/{part}");
        world.members.etcdctl(&["put", &key, "left"]).unwrap();
    }
    world.fleet("start one").exits(0);
    let leaves =
        || world.members.etcdctl(&["get", "--prefix", "/homeostat/v1/edge/leaves/same/"]).unwrap();
    let started = leaves();
    assert!(started.contains("/0000") && !started.contains("left"), "{started}");
    let ran = world.fleet("start other").exits(1);
    assert!(ran.stderr.contains("there is a rollout `same` already"), "{}", ran.stderr);
    assert_eq!(leaves(), started);
}

#[test]
fn a_coordinator_follows_only_what_allowed_keys_have_signed() {
    let mut world = prepared();
    World::finish({
        let mut keygen = world.command("ssh-keygen", "-q -t ed25519 -f stranger");
        keygen.args(["-N", ""]);
        keygen
    })
    .exits(0);
    world.fleet(&format!("sign documents -i inventory.toml -o one {QUICK}")).exits(0);
    let forged = format!(
        "sign documents -i inventory.toml -o forged --id forged --offline 18446744073709551615 \
                          --signing-key stranger {QUICK}"
    );
    world.fleet(&forged).exits(0);
    let with_signers = std::fs::read_to_string(world.path("fleet.toml")).unwrap();
    let without = with_signers.replace("allowed-signers", "# allowed-signers");
    world.fleet("start one").exits(0);
    world.write("fleet.toml", &without);
    world.fleet("start forged").exits(0);
    world.write("fleet.toml", &with_signers);
    World::live(&NODES, &[]);
    world.until("status --json", |ran| ran.stdout.matches("\"alive\":true").count() == 6);
    world.coordinate("a");
    let history = world.until("history --json", |ran| ran.stdout.contains("\"done\"")).json(0);
    let phases: Vec<_> =
        history["rollouts"].as_array().unwrap().iter().map(|it| &it["phase"]).collect();
    assert_eq!(phases, ["paused", "done"], "{history}");
    let why = history["rollouts"][0]["why"]["why"].as_str().unwrap();
    assert!(why.contains("not signed as it must be"), "{why}");
    let ran = world.fleet(&format!("sign documents -i inventory.toml -o two {QUICK}")).exits(1);
    assert!(ran.stderr.contains("the last generation that there can be"), "{}", ran.stderr);
}
