//! Documents that were confirmed: a daemon that starts with a broken one uses the last of them, and `history` shows them.

use std::fs;

use serde_json::Value;

use crate::keeping::until;
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
fn a_broken_document_that_was_never_confirmed_is_an_error() {
    let world = World::with("[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    world.run("apply --yes host.toml").exits(0);
    world.write("other.toml", "[sysctl]\n\"net.ipv4.tcp_retries1\" = {}\n");
    let ran = world.run("run other.toml").exits(1);
    assert!(ran.stderr.contains("other.toml:2:27"), "{}", ran.stderr);
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
