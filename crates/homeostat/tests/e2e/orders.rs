//! Signed orders, with keys and signatures by the real `ssh-keygen`: what needs one is done once, by a good one, and never
//! otherwise.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::guests::{GUEST, Ground};
use crate::keeping::until;
use crate::program::output;
use crate::world::{DOCUMENT, Ran, World};

/// What only an order may do, as a document says it.
fn settings(actions: &str) -> String {
    format!("[settings]\nrequire-order = [{actions}]\nallowed-signers = \"allowed_signers\"\n")
}

/// Keys of two who may sign, and of a stranger.
fn keys(world: &World) {
    let mut allowed = String::new();
    for signer in ["ann", "bob", "eve"] {
        let mut keygen = world.command("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", signer, "-f", signer]);
        output(keygen);
        let key = fs::read_to_string(world.path().join(format!("{signer}.pub"))).unwrap();
        if signer != "eve" {
            let line = format!("{signer}@example.net namespaces=\"homeostat-command\" {key}");
            allowed.push_str(&line);
        }
    }
    world.write("allowed_signers", allowed);
}

/// Signs an order as people do.
fn sign(world: &World, order: &str, signer: &str) {
    let mut keygen = world.command("ssh-keygen");
    keygen.args(["-q", "-Y", "sign", "-n", "homeostat-command", "-f", signer, order]);
    output(keygen);
    let signature = |name: String| world.path().join(name);
    fs::rename(signature(format!("{order}.sig")), signature(format!("{order}.{signer}.sig")))
        .unwrap();
}

/// Makes an order for a command, signed by ann.
fn ordered(world: &World, name: &str, command: &str) {
    world.run(&format!("order --out {name} {command}")).exits(0);
    sign(world, name, "ann");
}

#[track_caller]
fn refused(ran: Ran, why: &str) {
    let ran = ran.exits(1);
    assert!(ran.stderr.contains(why) && ran.stderr.contains("help: "), "{}", ran.stderr);
}

/// What the journal says of orders, the oldest first.
fn journal(world: &World) -> Vec<Value> {
    let listed = world.run("journal --source orders --json").exits(0).stdout;
    listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ground() -> Ground {
    let ground = Ground::new("");
    keys(&ground.world);
    let document = ground.document(GUEST);
    ground.world.write(DOCUMENT, settings("\"guest-stop\"") + &document);
    ground
}

#[test]
fn a_guest_is_stopped_by_a_signed_order_once_also_after_a_restart_of_the_daemon() {
    let ground = ground();
    let world = &ground.world;
    let is_running = || ground.cluster.with(|cluster| cluster.guests[&102].running);
    let daemon = world.keep_at(DOCUMENT);
    world.converges();
    refused(world.run("guest stop 102"), "guest-stop of `guest 102` needs a signed order here");
    let made = world.run("order --out stop.json guest stop 102").exits(0).stdout;
    assert!(made.contains(": guest-stop of guest 102\n"), "{made}");
    assert!(made.contains("Sign it: ssh-keygen -Y sign -n homeostat-command -f KEY stop.json\n"));
    refused(world.run("guest stop 102 --order stop.json"), "0 valid signature(s)");
    sign(world, "stop.json", "eve");
    refused(world.run("guest stop 102 --order stop.json"), "not in the list of allowed signers");
    assert!(is_running(), "nothing was sent");
    sign(world, "stop.json", "ann");
    refused(world.run("guest stop 101 --order stop.json"), "it says `guest 102`");
    refused(world.run("guest stop 102 --idempotency-key x --order stop.json"), "another plan");
    world.run("guest stop 102 --order stop.json").exits(0);
    assert!(!is_running());
    ground.cluster.with(|cluster| cluster.guests.get_mut(&102).unwrap().running = true);
    refused(world.run("guest stop 102 --order stop.json"), "was used before");
    // Nothing that is not listed needs one.
    world.run("guest start 102").exits(0);
    daemon.kill();
    let daemon = world.keep_at(DOCUMENT);
    world.converges();
    refused(world.run("guest stop 102 --order stop.json"), "was used before");
    drop(daemon);
    let document = format!("guest stop 102 --document {DOCUMENT}");
    refused(world.run(&format!("{document} --order stop.json")), "was used before");
    refused(world.run(&document), "needs a signed order");
    assert!(is_running());
    ordered(world, "other.json", &document);
    world.run(&format!("{document} --order other.json")).exits(0);
    assert!(!is_running());
    let journal = journal(world);
    let ends = |is: &str| journal.iter().filter(|one| one["is"] == is).count();
    assert_eq!((ends("intent"), ends("succeeded"), ends("failed")), (11, 2, 9), "{journal:#?}");
    assert!(journal.iter().all(|one| one["kind"] == "guest-stop"), "{journal:#?}");
    let why = journal.iter().find(|one| one["is"] == "failed").unwrap()["why"].as_str().unwrap();
    assert!(why.contains("needs a signed order"), "{why}");
}

#[test]
fn altered_expired_and_foreign_orders_are_refused_and_seen_in_events() {
    let ground = ground();
    let world = &ground.world;
    let _daemon = world.keep_at(DOCUMENT);
    world.converges();
    let stop = "guest stop 102";
    let attempt = |name: &str, why: &str| {
        refused(world.run(&format!("{stop} --order {name}")), why);
        until("it is in the events", || {
            world.event("order-refused").is_some_and(|event| {
                event["error"].as_str().is_some_and(|error| error.contains(why))
            })
        });
    };
    let changed = |name: &str, change: &dyn Fn(&mut Value)| {
        world.run(&format!("order --out {name} {stop}")).exits(0);
        let path = world.path().join(name);
        let mut order: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut order);
        fs::write(&path, order.to_string()).unwrap();
    };
    // One byte more after the signature.
    ordered(world, "altered.json", stop);
    let text = fs::read_to_string(world.path().join("altered.json")).unwrap();
    world.write("altered.json", format!("{text} "));
    attempt("altered.json", "it is not of these bytes by this key");
    changed("expired.json", &|order| order["not_after"] = "2026-01-01T00:00:00Z".into());
    sign(world, "expired.json", "ann");
    attempt("expired.json", "the order was valid until 2026-01-01T00:00:00Z");
    changed("machine.json", &|order| order["machine"] = "r2 sha256:00".into());
    sign(world, "machine.json", "ann");
    attempt("machine.json", "another machine: it says `r2 sha256:00`");
    changed("owner.json", &|order| order["owner"] = "lab".into());
    sign(world, "owner.json", "ann");
    attempt("owner.json", "another owner: it says `lab`");
    changed("action.json", &|order| order["actions"] = serde_json::json!(["guest-start"]));
    sign(world, "action.json", "ann");
    attempt("action.json", "another command: it says `guest-start`");
    // A signature for rollouts is none for commands.
    world.run(&format!("order --out rollout.json {stop}")).exits(0);
    let mut keygen = world.command("ssh-keygen");
    keygen.args(["-q", "-Y", "sign", "-n", "homeostat-rollout", "-f", "ann", "rollout.json"]);
    output(keygen);
    attempt("rollout.json", "it is for another namespace");
    // Who may sign is read for each order.
    ordered(world, "revoked.json", stop);
    let bob = fs::read_to_string(world.path().join("bob.pub")).unwrap();
    world.write("allowed_signers", format!("bob@example.net {bob}"));
    attempt("revoked.json", "not in the list of allowed signers");
    world.write("allowed_signers", "nonsense\n");
    attempt("revoked.json", "line 1 of the allowed signers");
    assert!(ground.cluster.with(|cluster| cluster.guests[&102].running));
}

#[test]
fn two_of_two_signatures_are_needed_where_the_document_says_so() {
    let ground = ground();
    let world = &ground.world;
    let document = fs::read_to_string(world.path().join(DOCUMENT)).unwrap();
    world.write(DOCUMENT, document.replace("[settings]", "[settings]\nsignatures = 2"));
    let _daemon = world.keep_at(DOCUMENT);
    world.converges();
    world.run("order --out stop.json --signing-key ann guest stop 102").exits(0);
    refused(world.run("guest stop 102 --order stop.json"), "1 valid signature(s)");
    let path = |name: &str| world.path().join(name);
    fs::copy(path("stop.json.sig"), path("stop.json.again.sig")).unwrap();
    refused(world.run("guest stop 102 --order stop.json"), "1 valid signature(s)");
    fs::rename(path("stop.json.sig"), path("stop.json.ann.sig")).unwrap();
    sign(world, "stop.json", "bob");
    world.run("guest stop 102 --order stop.json").exits(0);
}

const KNOBS: [&str; 12] = [
    "tcp_fin_timeout",
    "tcp_keepalive_time",
    "tcp_keepalive_probes",
    "tcp_keepalive_intvl",
    "tcp_retries1",
    "tcp_retries2",
    "tcp_syn_retries",
    "tcp_synack_retries",
    "tcp_orphan_retries",
    "tcp_reordering",
    "tcp_max_reordering",
    "tcp_max_syn_backlog",
];

fn knobs(names: &[&str]) -> String {
    let lines: Vec<_> = names.iter().map(|name| format!("\"net.ipv4.{name}\" = 7\n")).collect();
    settings("\"mass-delete\", \"release\", \"uninstall\"") + "[sysctl]\n" + &lines.concat()
}

/// A world that owns twelve knobs, with a document that keeps one of them.
fn shrinking() -> World {
    let world = World::new();
    keys(&world);
    world.apply(&knobs(&KNOBS));
    world.write(DOCUMENT, knobs(&KNOBS[..1]));
    world
}

const SHRINK: &str = "apply --yes --allow-mass-delete host.toml";

#[test]
fn a_mass_delete_is_done_only_by_an_order_for_this_very_plan() {
    let world = shrinking();
    refused(world.run(SHRINK), "needs a signed order here");
    ordered(&world, "order.json", SHRINK);
    let order = fs::read_to_string(world.path().join("order.json")).unwrap();
    assert!(order.contains("11 to delete"), "who signs sees what it is: {order}");
    // What would be done changes.
    world.write(DOCUMENT, knobs(&KNOBS[..1]) + "\"net.ipv4.ip_forward\" = 1\n");
    refused(world.run(&format!("{SHRINK} --order order.json")), "it says `0 to create");
    world.write(DOCUMENT, knobs(&KNOBS[1..2]));
    refused(world.run(&format!("{SHRINK} --order order.json")), "another plan");
    // A document that leaves the requirement out is not enough to be rid of it.
    let bare = "[sysctl]\n\"net.ipv4.tcp_fin_timeout\" = 7\n";
    world.write(DOCUMENT, bare);
    refused(world.run(SHRINK), "needs a signed order here");
    world.write(DOCUMENT, knobs(&KNOBS[..1]));
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "7");
    world.run(&format!("{SHRINK} --order order.json")).exits(0);
    world.run("plan host.toml").says(0, "No changes.\n");
    refused(world.run("uninstall --yes"), "needs a signed order here");
    ordered(&world, "uninstall.json", "uninstall");
    world.run("uninstall --yes --order uninstall.json").exits(0);
}

#[test]
fn a_trial_needs_the_order_that_the_last_confirmed_document_requires() {
    let world = shrinking();
    let bare = "[sysctl]\n\"net.ipv4.tcp_fin_timeout\" = 7\n";
    world.write(DOCUMENT, bare);
    let trial = "apply --yes --allow-mass-delete --confirm-within 1m host.toml";
    refused(world.run(trial), "needs a signed order here");
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "7");
}

#[test]
fn a_daemon_takes_a_mass_delete_and_a_release_only_with_their_orders() {
    let world = shrinking();
    world.write("all.toml", knobs(&KNOBS));
    let _daemon = world.keep_at("all.toml");
    world.converges();
    refused(world.run(SHRINK), "needs a signed order here");
    refused(world.run("resync --allow-mass-delete"), "needs a signed order here");
    ordered(&world, "order.json", SHRINK);
    refused(world.run("resync --allow-mass-delete --order order.json"), "something else");
    world.run(&format!("{SHRINK} --order order.json")).exits(0);
    world.converges();
    let key = |command: &str, more: &str| {
        let mut command = world.homeostat(command);
        command.arg("sysctl net.ipv4.tcp_retries1").args(more.split_whitespace());
        world.finish(command)
    };
    refused(key("release", ""), "release of `sysctl net.ipv4.tcp_retries1` needs a signed order");
    key("order --out release.json release", "").exits(0);
    sign(&world, "release.json", "bob");
    key("release", "--order release.json").exits(0);
    // What needs none is refused with one only if it is not good.
    key("forget", "").exits(0);
}

#[test]
fn without_signers_nothing_needs_an_order_and_one_that_is_given_is_not_believed() {
    let world = World::new();
    keys(&world);
    world.apply("[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    let _daemon = world.keep_at(DOCUMENT);
    world.converges();
    let mut release = world.homeostat("release");
    release.arg("sysctl net.ipv4.tcp_retries1");
    world.finish(release).exits(0);
    let mut order = world.homeostat("order --out order.json forget");
    order.arg("sysctl net.ipv4.tcp_retries1");
    world.finish(order).exits(0);
    sign(&world, "order.json", "ann");
    let mut forget = world.homeostat("forget --order order.json");
    forget.arg("sysctl net.ipv4.tcp_retries1");
    refused(world.finish(forget), "does not say who may sign orders");
    for (command, why) in [
        ("order --out x.json pause", "no order can be required"),
        ("order --out x.json apply --yes host.toml", "no order can be required"),
        ("order --out order.json resync --allow-cascades", "is there already"),
        ("order --out x.json guest jump 101", "no order can be made for this command"),
    ] {
        refused(world.run(command), why);
    }
    assert!(!world.path().join("x.json").exists());
    let mode = fs::metadata(world.path().join("order.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0);
}
