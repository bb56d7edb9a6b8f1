//! Documents that were confirmed: a daemon that starts with a broken one uses the last of them, and `history` shows them.

use std::fs;

use serde_json::Value;

use crate::holder::Site;
use crate::keeping::until;
use crate::provider::metric;
use crate::world::World;

const KEY: &str = "net/ipv4/tcp_retries1";
const DOCUMENT: &str = "routes = [{ from-file = \"lists/all.routes\" }]\n\
    [sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n[nftables]\nfile = \"FIREWALL\"\n";

impl World {
    pub(crate) fn history(&self) -> Vec<Value> {
        let history: Value = self.run("history --json").json(0);
        history["history"].as_array().unwrap().clone()
    }

    pub(crate) fn confirms(&self, number: u64) {
        until("the confirmed document", || {
            self.history().last().is_some_and(|last| last["number"] == number)
        });
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.run("status --json").stdout).unwrap()
    }
}

/// A host that comes up with a broken document and without its firewall would be open.
#[test]
fn a_broken_document_at_the_start_yields_to_the_confirmed_one() {
    let world = World::new();
    let firewall = world.write("etc/fw.nft", "include \"./parts/*.nft\"\n");
    let part = world.write("etc/parts/a.nft", "table inet filter { chain in { drop; }; }\n");
    let list = world.write("lists/all.routes", "blackhole 10.1.0.0/16\n");
    let document = DOCUMENT.replace("FIREWALL", firewall.to_str().unwrap());
    let daemon = world.keep(&document);
    world.converges();
    world.confirms(1);
    drop(daemon);

    // As after a boot.
    world.nft("flush ruleset");
    world.ip("route flush table main proto 76");
    world.meddle(KEY, "9");
    world.write("host.toml", "[sysctl]\n\"net.ipv4.tcp_retries1\" = {}\n");
    fs::write(&firewall, "").unwrap();
    fs::remove_file(&part).unwrap();
    fs::remove_file(&list).unwrap();
    let daemon = world.keep_by(world.homeostat("run host.toml"));
    until("the firewall", || world.nft("list ruleset").contains("drop"));
    until("the knob", || world.knob(KEY) == "5");
    until("the route", || world.ip("route show").contains("blackhole 10.1.0.0/16"));
    let status = world.status();
    assert_eq!((&status["fallback"], &status["provider"]["ok"]), (&1.into(), &false.into()));
    let error = status["provider"]["last_error"]["error"].as_str().unwrap();
    assert!(error.contains("host.toml:2:27"), "{error}");
    let drawn = world.run("status").exits(2).stdout;
    assert!(drawn.contains("The confirmed document 1 is in force until"), "{drawn}");
    world.meddle(KEY, "9");
    until("it is kept", || world.knob(KEY) == "5");
    assert_eq!(world.history().len(), 1, "what is in force is confirmed already");

    world.write(
        "host.toml",
        "routes = []\n[sysctl]\n\"net.ipv4.tcp_retries1\" = 7\n[nftables]\nruleset = \"\"\n",
    );
    until("the next good document", || world.knob(KEY) == "7");
    until("the end of the trouble", || world.status()["fallback"].is_null());
    world.confirms(2);
    drop(daemon);
}

#[test]
fn a_broken_document_is_an_error_if_none_was_ever_confirmed() {
    let world = World::with("[sysctl]\n\"net.ipv4.tcp_retries1\" = {}\n");
    let ran = world.run("run host.toml").exits(1);
    assert!(ran.stderr.contains("host.toml:2:27"), "{}", ran.stderr);
}

/// As after the first boot of a machine that was set up by hand.
#[test]
fn a_broken_document_yields_to_the_one_that_another_command_applied() {
    let world = World::with("[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    world.run("apply --yes host.toml").exits(0);
    world.meddle(KEY, "9");
    world.write("other.toml", "[sysctl]\n\"net.ipv4.tcp_retries1\" = {}\n");
    let _daemon = world.keep_at("other.toml");
    until("the knob", || world.knob(KEY) == "5");
    assert_eq!(world.status()["fallback"], 1);
}

/// What was last taken from the daemon's own files comes first, whatever else was applied since.
#[test]
fn a_broken_document_yields_to_the_last_one_of_the_same_files_first() {
    let world = World::new();
    let daemon = world.keep("[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    world.converges();
    world.confirms(1);
    drop(daemon);
    world.write("other.toml", "[sysctl]\n\"net.ipv4.tcp_retries1\" = 6\n");
    world.run("apply --yes other.toml").exits(0);
    world.write("host.toml", "[sysctl]\n\"net.ipv4.tcp_retries1\" = {}\n");
    let _daemon = world.keep_at("host.toml");
    until("the knob", || world.knob(KEY) == "5");
    assert_eq!(world.status()["fallback"], 1);
}

/// An edit that was tried and confirmed is what the files last were, however the daemon was told where they are.
#[test]
fn a_broken_document_yields_to_the_edit_that_was_tried_and_confirmed() {
    let document = |value: u8| {
        format!(
            "[settings]\nconfirm-within = \"1h\"\n[sysctl]\n\"net.ipv4.tcp_retries1\" = {value}\n"
        )
    };
    let world = World::new();
    let daemon = world.keep(&document(5));
    world.converges();
    world.confirms(1);
    world.write("host.toml", document(6));
    until("the trial", || world.knob(KEY) == "6" && !world.status()["trial"].is_null());
    world.run("confirm").exits(0);
    drop(daemon);
    world.write("host.toml", "[sysctl]\n\"net.ipv4.tcp_retries1\" = {}\n");
    let _daemon = world.keep_at("host.toml");
    assert_eq!(world.stands()["fallback"], 2);
    assert_eq!(world.knob(KEY), "6");
}

/// A router must start with something.
#[test]
fn a_document_that_was_rolled_back_is_used_if_none_was_ever_confirmed() {
    let world = World::with("[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    let tried = world.run("apply --yes --confirm-within 1s host.toml").exits(1);
    assert!(tried.last_line().starts_with("Rolled back to nothing declared"), "{tried:?}");
    assert_ne!(world.knob(KEY), "5");
    world.ip("link set lo up");
    let daemon = world.keep_at("host.toml --listen 127.0.0.1:9876");
    until("the knob", || world.knob(KEY) == "5");
    let status = world.status();
    assert_eq!((&status["tried_before"], &status["fallback"]), (&true.into(), &Value::Null));
    let drawn = world.run("status").stdout;
    assert!(drawn.contains("This document was tried and rolled back."), "{drawn}");
    let log = fs::read_to_string(world.path().join("log")).unwrap();
    assert!(log.contains("document in force that was rolled back"), "{log}");
    assert_eq!(metric("homeostat_rolled_back_document"), "1");
    world.confirms(1);
    world.write("host.toml", "[sysctl]\n\"net.ipv4.tcp_retries1\" = 6\n");
    until("the next document", || world.knob(KEY) == "6");
    until("the end of it", || world.status()["tried_before"] == false);
    drop(daemon);
}

/// The holder and who watches it are killed: nobody has ended the trial when the daemon starts.
#[test]
fn a_document_whose_trial_was_left_open_is_used_if_none_was_ever_confirmed() {
    let site = Site { world: World::with("[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n") };
    let world = &site.world;
    let mut client = world.homeostat("apply --yes --confirm-within 1h host.toml");
    let mut client = client.stdout(std::process::Stdio::null()).spawn().unwrap();
    until("the trial", || !world.status_if_any()["trial"].is_null() && world.knob(KEY) == "5");
    client.kill().unwrap();
    client.wait().unwrap();
    site.kill_both();
    until("the end of the holder", || !site.has_processes());
    let _daemon = world.keep_at("host.toml");
    world.confirms(1);
    assert_eq!(world.knob(KEY), "5");
    assert_eq!(world.status()["tried_before"], true);
    assert_eq!(world.rolled_back()[0]["why"], "the process that held it ended");
}

#[test]
fn what_was_applied_is_in_the_history_with_what_it_changed() {
    let world = World::with("[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    world.run("history").says(0, "No document was confirmed yet.\n");
    world.run("apply --yes host.toml").exits(0);
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(world.history().len(), 1, "the same again");
    let none = world.run("history --diff 1").exits(1).stderr;
    assert!(none.contains("there is no document before 1 to compare it with"), "{none}");
    world.write("fw.nft", "table ip t {\n}\n");
    world.write(
        "host.toml",
        "[sysctl]\n\"net.ipv4.tcp_retries1\" = 6\n[nftables]\nfile = \"fw.nft\"\n",
    );
    world.run("apply --yes host.toml").exits(0);
    let history = world.history();
    let [first, second] = &history[..] else { panic!("{history:?}") };
    assert_eq!((&first["number"], &second["number"]), (&1.into(), &2.into()));
    assert_eq!(second["applied_by"]["uid"], rustix::process::getuid().as_raw());
    assert!(second["confirmed_by"].is_null(), "by its first pass");
    assert_eq!(second["from"][0], "@DIR/host.toml");
    let difference = world.run("history --diff 2").exits(0).stdout;
    for line in
        ["-\"net.ipv4.tcp_retries1\" = 5\n", "+\"net.ipv4.tcp_retries1\" = 6\n", "+table ip t {\n"]
    {
        assert!(difference.contains(line), "{line}{difference}");
    }
    let none = world.run("history --diff 9").exits(1).stderr;
    assert!(none.contains("there is no confirmed document 9"), "{none}");
    let listed = world.run("history").exits(0).stdout;
    assert!(
        listed.contains("   2  ") && listed.contains("confirmed by its first pass"),
        "{listed}"
    );
}

/// A document that `apply` hands to the daemon is in force until the files change.
#[test]
fn a_temporary_document_is_not_confirmed() {
    let world = World::new();
    let _daemon = world.keep("[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    world.converges();
    world.confirms(1);
    world.write("other.toml", "[sysctl]\n\"net.ipv4.tcp_retries1\" = 6\n");
    world.run("apply --yes other.toml").exits(0);
    assert_eq!(world.knob(KEY), "6");
    world.run("reload").exits(0);
    assert_eq!(world.knob(KEY), "5");
    assert_eq!(world.history().len(), 1);
}
