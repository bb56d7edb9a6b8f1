//! What is there only while a check is good: an address that leaves when its service dies, and returns with it.

use std::net::TcpListener;

use serde_json::Value;

use crate::keeping::until;
use crate::world::World;

const SERVICE: &str = "127.0.0.1:5353";

/// Addresses of a service; there are so many that the guard against mass deletes would hold them.
const ANYCAST: usize = 12;

fn anycast(condition: &str) -> String {
    let address = |last| format!("{{ ip = \"192.0.2.{last}/32\", while = {condition} }}");
    let addresses: Vec<_> = (1..=ANYCAST).map(address).collect();
    format!("[links.lo]\nup = true\naddresses = [{}]\n", addresses.join(", "))
}

const SOON: &str = r#"{ check = "tcp:127.0.0.1:5353", every = "100ms", fall = 2, rise = 2 }"#;

fn serve() -> TcpListener {
    TcpListener::bind(SERVICE).unwrap()
}

impl World {
    fn announced(&self) -> usize {
        self.ip("-4 -o address show dev lo").matches(" 192.0.2.").count()
    }

    fn has_check(&self, state: &str) -> bool {
        let status: Value =
            serde_json::from_str(&self.run("status --json").stdout).unwrap_or_default();
        status["checks"][0]["state"] == state
    }
}

/// A namespace whose loopback is up, with an address of somebody else.
fn world() -> World {
    let world = World::new();
    world.ip("link set lo up");
    world.ip("address add 198.51.100.1/32 dev lo");
    world
}

#[test]
fn an_anycast_address_leaves_when_its_service_dies_and_returns_with_it() {
    let world = world();
    let service = serve();
    let _daemon = world.keep(&anycast(SOON));
    until("the addresses", || world.announced() == ANYCAST);
    world.converges();
    let mut events = world.follow();
    drop(service);
    events.until(|event| event["event"] == "health" && event["state"] == "failing");
    until("the withdrawal", || world.announced() == 0);
    world.converges();
    assert!(world.ip("address show dev lo").contains("198.51.100.1/32"), "it is not ours");
    let status = world.run("status --json").json(0);
    let check = &status["checks"][0];
    assert_eq!(check["check"], "tcp:127.0.0.1:5353");
    assert_eq!((&check["state"], &check["failures"]), (&"failing".into(), &1.into()));
    assert!(check["reason"].as_str().unwrap().contains("refused"), "{check}");
    assert_eq!(status["checks"].as_array().unwrap().len(), 1, "many keys, one check");
    let open = status["open_keys"].as_array().unwrap();
    assert_eq!(open.len(), ANYCAST);
    assert!(open.iter().all(|key| key["kind"] == "withdrawn"), "{open:?}");
    let text = world.run("status").exits(0).stdout;
    assert!(text.contains("check tcp:127.0.0.1:5353 in host: fails since "), "{text}");
    assert!(text.contains("12 withdrawn until a check is good"), "{text}");
    let verified = world.run("verify --json host.toml").json(0);
    assert_eq!(verified["withdrawn"].as_array().unwrap().len(), ANYCAST);
    // A full pass leaves it so, too.
    world.run("resync").exits(0);
    assert_eq!(world.announced(), 0);
    let service = serve();
    events.until(|event| event["event"] == "step-applied" && event["cause"] == "check");
    until("the return", || world.announced() == ANYCAST);
    world.converges();
    assert!(world.has_check("good"));
    // Health is no drift, and nobody is to blame.
    let status = world.run("status --json").json(0);
    let rtnl = status["loops"].as_array().unwrap().iter().find(|one| one["source"] == "rtnl");
    let counts = &rtnl.unwrap()["counts"];
    assert_eq!((&counts["drift_by_hint"], &counts["drift_by_resync"]), (&0.into(), &0.into()));
    // What somebody deletes while the check is good is drift as ever.
    world.ip("address delete 192.0.2.7/32 dev lo");
    events.until(|event| event["event"] == "step-applied" && event["cause"] == "drift");
    assert_eq!(world.announced(), ANYCAST);
    drop(service);
}

#[test]
fn the_example_of_an_anycast_address_does_what_it_says() {
    let world = world();
    let service = TcpListener::bind("127.0.0.1:53").unwrap();
    let _daemon = world.keep(include_str!("../../../../examples/anycast.toml"));
    let has_both = || {
        let shown = world.ip("address show dev lo");
        (shown.contains("192.0.2.53/32"), shown.contains("2001:db8::53/128"))
    };
    until("the addresses", || has_both() == (true, true));
    drop(service);
    until("the withdrawal", || has_both() == (false, false));
    world.converges();
}

/// A full pass finds all that a loop owns to be withdrawn.
#[test]
fn the_guard_against_mass_deletes_does_not_count_what_a_check_withdraws() {
    let world = world();
    let service = serve();
    let document = format!("[settings.rtnl]\ndelete-budget = \"0%\"\n{}", anycast(SOON));
    let _daemon = world.keep(&document);
    until("the addresses", || world.announced() == ANYCAST);
    world.run("pause").exits(0);
    drop(service);
    until("the failure", || world.has_check("failing"));
    assert_eq!(world.announced(), ANYCAST, "a paused loop writes nothing");
    world.run("resume").exits(0);
    until("the withdrawal", || world.announced() == 0);
    world.converges();
}

#[test]
fn a_daemon_that_is_killed_leaves_what_is_there_and_the_next_one_waits_for_its_check() {
    let world = world();
    let service = serve();
    let rarely = SOON.replace("rise = 2", "rise = 3");
    let daemon = world.keep(&anycast(&rarely));
    until("the addresses", || world.announced() == ANYCAST);
    daemon.kill();
    assert_eq!(world.announced(), ANYCAST);
    // The next one keeps them before its check has answered often enough, and heals what drifts.
    let daemon = world.keep(&anycast(&SOON.replace("100ms", "1h")));
    world.converges();
    assert!(world.has_check("undecided"));
    assert_eq!(world.announced(), ANYCAST);
    daemon.kill();
    drop(service);
    let daemon = world.keep(&anycast(SOON));
    until("the withdrawal", || world.announced() == 0);
    daemon.kill();
    // Killed while they are withdrawn: nothing comes before the check is good.
    let service = serve();
    let daemon = world.keep(&anycast(&SOON.replace("100ms", "1h")));
    world.converges();
    assert!(world.has_check("undecided"));
    assert_eq!(world.announced(), 0);
    daemon.kill();
    let _daemon = world.keep(&anycast(SOON));
    until("the return", || world.announced() == ANYCAST);
    drop(service);
}

#[test]
fn without_a_daemon_nothing_is_announced_and_what_is_there_stays() {
    let world = World::with(&anycast(SOON));
    world.ip("link set lo up");
    let _service = serve();
    let report = world.run("apply --yes --json host.toml").json(0);
    assert_eq!(report["converged"], true);
    assert_eq!(world.announced(), 0);
    let withdrawn = report["withdrawn"].as_array().unwrap();
    assert_eq!(withdrawn.len(), ANYCAST);
    assert_eq!(withdrawn[0]["on"], "check tcp:127.0.0.1:5353: only a daemon runs it");
    let plan = world.run("plan host.toml").exits(0).stdout;
    assert!(
        plan.contains("withdrawn until a check is good:\n    . address 192.0.2.1/32"),
        "{plan}"
    );
    world.apply("[links.lo]\nup = true\naddresses = [\"192.0.2.1/32\"]\n");
    world.apply(&anycast(SOON));
    assert_eq!(world.announced(), 1, "it is as declared");
    world.run("verify host.toml").exits(0);
    // It is still ours: who takes it out of the document takes it away.
    world.apply("[links.lo]\nup = true\naddresses = []\n");
    assert_eq!(world.announced(), 0);
}

const ROUTED: &str = r#"
[links.lo]
up = true
addresses = [{ ip = "192.0.2.1/32", while = CHECK }]
[[routes]]
to = "10.1.0.0/16"
dev = "lo"
while = CHECK
[[routes]]
to = "10.2.0.0/16"
dev = "lo"
src = "192.0.2.1"
[[rules]]
from = "10.3.0.0/16"
table = 100
priority = 500
while = CHECK
"#;

/// A route with the address as its source goes with it, and waits for it.
#[test]
fn routes_and_rules_go_and_return_too_and_so_does_what_needs_a_withdrawn_address() {
    let world = world();
    let is_there = |world: &World, count: usize| {
        let (routes, rules) = (world.ip("route show dev lo"), world.ip("rule show"));
        let parts = [routes.contains("10.1.0.0/16"), routes.contains("10.2.0.0/16")];
        let parts = parts.into_iter().chain([rules.contains("from 10.3.0.0/16 lookup 100")]);
        parts.filter(|is_there| *is_there).count() == count && world.announced() == count.min(1)
    };
    let service = serve();
    let _daemon = world.keep(&ROUTED.replace("CHECK", SOON));
    until("all of it", || is_there(&world, 3));
    world.converges();
    drop(service);
    until("the withdrawal", || is_there(&world, 0));
    world.converges();
    let open = world.run("status --json").json(0)["open_keys"].clone();
    let kinds: Vec<_> = open.as_array().unwrap().iter().map(|key| &key["kind"]).collect();
    assert_eq!(kinds, ["withdrawn"; 4], "{open}");
    let service = serve();
    until("the return", || is_there(&world, 3));
    world.converges();
    drop(service);
}

/// Each namespace has its own loopback, and so its own service.
#[test]
fn a_check_runs_in_the_namespace_of_its_section() {
    let world = World::new().with_own_names();
    world.ip("link set lo up");
    world.ip("netns add blue");
    let _service = serve();
    let here = anycast(SOON);
    let there = here.replace("[links.lo]", "[namespaces.blue.links.lo]");
    let _daemon = world.keep(&format!("{here}{there}"));
    until("the addresses here", || world.announced() == ANYCAST);
    until("the failure there", || {
        let status = world.run("status --json").stdout;
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        let checks = status["checks"].as_array().cloned().unwrap_or_default();
        checks.iter().any(|check| check["scope"] == "blue" && check["state"] == "failing")
    });
    world.converges();
    assert_eq!(world.announced(), ANYCAST);
    assert!(!world.in_blue("ip address show dev lo").contains("192.0.2."));
}

#[test]
fn a_program_decides_as_well_and_another_condition_begins_anew() {
    let world = world();
    let flag = world.write("well", "");
    let check = format!(
        r#"{{ check = "cmd:/bin/cat {}", every = "100ms", fall = 1, rise = 1 }}"#,
        flag.display()
    );
    let _daemon = world.keep(&anycast(&check));
    until("the addresses", || world.announced() == ANYCAST);
    std::fs::remove_file(&flag).unwrap();
    until("the withdrawal", || world.announced() == 0);
    let status = world.run("status --json").json(0);
    let reason = status["checks"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("No such file or directory"), "{reason}");
    // Another condition begins anew: nothing is known, so nothing changes.
    world.write("host.toml", anycast(&check.replace("cat", "true")));
    until("the addresses", || world.announced() == ANYCAST);
    // Without the condition they are simply declared, and no check is left.
    let plain: Vec<_> = (1..=ANYCAST).map(|last| format!("\"192.0.2.{last}/32\"")).collect();
    let addresses = plain.join(", ");
    world.write("host.toml", format!("[links.lo]\nup = true\naddresses = [{addresses}]\n"));
    until("the end of the check", || {
        let status = world.run("status --json").stdout;
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        status["checks"] == Value::Array(Vec::new())
    });
    world.converges();
    assert_eq!(world.announced(), ANYCAST);
}
