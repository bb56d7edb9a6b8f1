//! `mode = "observe"`: drift is reported, and nothing is written, not even to the disk.

use snapbox::str;

use crate::world::World;

const OBSERVED: &str = "[settings.knobs]\nmode = \"observe\"\n\
                        [sysctl]\n\"net.ipv4.ip_forward\" = 1\n";

#[test]
fn a_source_that_only_observes_reports_its_drift_and_writes_nothing() {
    let world = World::with(OBSERVED);
    let before = world.knobs();
    world.run("plan host.toml").says(
        0,
        str![[r#"
knobs in host
  held back:
    ! update sysctl net.ipv4.ip_forward  0 -> 1 is only reported: `mode` is "observe" in [settings.knobs]
Not converged: no changes; 1 held back.

"#]],
    );
    world.run("apply --yes host.toml").says(
        1,
        str![[r#"
knobs in host
  held back:
    ! update sysctl net.ipv4.ip_forward  0 -> 1 is only reported: `mode` is "observe" in [settings.knobs]
Not converged: 0 created, 0 updated, 0 replaced, 0 deleted.

"#]],
    );
    assert!(world.knobs() == before, "a knob was turned");
    world.run("verify -q host.toml").exits(2);
    let report = world.run("apply --yes --json host.toml").json(1);
    assert_eq!(report["held"][0]["action"], "update");
    assert_eq!(report["applied"].as_array().unwrap().len(), 0);
    assert_eq!(report["summary"]["update"], 0);
}

#[test]
fn a_source_that_only_observes_keeps_what_it_owns() {
    let world = World::new();
    world.apply("[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    world.write("host.toml", "[settings.knobs]\nmode = \"observe\"\n[sysctl]\n");
    let ledger = std::fs::read(world.ledger()).unwrap();
    let ran = world.run("apply --yes --revert-on-release host.toml").exits(1);
    assert!(ran.stdout.contains("! delete sysctl net.ipv4.tcp_retries1  5 -> 3 "), "{ran:#?}");
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "5");
    assert!(std::fs::read(world.ledger()).unwrap() == ledger, "the ledger was touched");
}

#[test]
fn a_source_that_only_observes_is_converged_where_nothing_differs() {
    let world = World::with(OBSERVED);
    world.meddle("net/ipv4/ip_forward", "1");
    world.run("apply --yes host.toml").says(0, "No changes.\n");
    world.run("verify host.toml").says(0, "");
    world.meddle("net/ipv4/ip_forward", "0");
    world.write("host.toml", OBSERVED.replace("observe", "heal"));
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
}
