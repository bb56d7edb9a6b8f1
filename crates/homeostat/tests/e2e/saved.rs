//! Saved plans: what was looked at is what is done, or nothing is.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use snapbox::str;

use crate::world::World;

const DESIRED: &str = "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.tcp_retries1\" = 5\n";

#[test]
fn a_saved_plan_is_applied_without_a_question_and_without_its_document() {
    let world = World::with(DESIRED);
    let shown = world.run("plan host.toml").exits(0).stdout;
    assert_eq!(world.run("plan --out saved.plan host.toml").exits(0).stdout, shown);
    let mode = fs::metadata(world.path().join("saved.plan")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::remove_file(world.path().join("host.toml")).unwrap();
    world.run("apply saved.plan").says(
        0,
        str![[r#"
knobs in host
  applied:
    ~ sysctl net.ipv4.ip_forward    0 -> 1
    ~ sysctl net.ipv4.tcp_retries1  3 -> 5
Applied: 0 created, 2 updated, 0 replaced, 0 deleted.

"#]],
    );
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "5");
}

#[test]
fn a_machine_that_moved_since_is_shown_and_left_alone() {
    let world = World::with(DESIRED);
    world.run("plan --out saved.plan host.toml").exits(0);
    world.meddle("net/ipv4/tcp_retries1", "4");
    world.run("apply saved.plan").fails(str![[r#"
error: the machine moved since the plan was made
  planned then: update sysctl net.ipv4.tcp_retries1, 3 -> 5
  planned now: update sysctl net.ipv4.tcp_retries1, 4 -> 5
help: nothing was changed; make a new plan: homeostat plan --out

"#]]);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
    world.meddle("net/ipv4/tcp_retries1", "3");
    world.run("apply saved.plan").exits(0);
    // Done once, it is no longer what would be done.
    assert!(world.run("apply saved.plan").exits(1).stderr.contains("planned then: update sysctl"));
}

#[test]
fn lists_that_a_saved_document_names_are_found_from_anywhere() {
    let world = World::with("[[routes]]\nfrom-file = \"some.routes\"\n");
    world.add_pair("va", "vb");
    for line in ["address add 10.0.0.1/24 dev va", "link set va up", "link set vb up"] {
        world.ip(line);
    }
    world.write("some.routes", "10.9.0.0/16 via 10.0.0.2\n");
    world.run("plan --out saved.plan host.toml").exits(0);
    fs::create_dir(world.path().join("elsewhere")).unwrap();
    let mut command = world.homeostat("apply ../saved.plan");
    command.current_dir(world.path().join("elsewhere"));
    assert_eq!(
        world.finish(command).exits(0).last_line(),
        "Applied: 1 created, 0 updated, 0 replaced, 0 deleted."
    );
    // Another list is another plan.
    world.ip("route del 10.9.0.0/16");
    world.write("some.routes", "10.8.0.0/16 via 10.0.0.2\n");
    let said = world.run("apply saved.plan").exits(1).stderr;
    assert!(said.contains("planned now: create route 10.8.0.0/16"), "{said}");
}

#[test]
fn what_is_no_plan_any_more_is_refused_with_the_way_out() {
    let world = World::with(DESIRED);
    world.write("cut.plan", "{\"homeostat_plan\":\"1.0\",");
    world.write("newer.plan", r#"{"homeostat_plan":"9.0","documents":[],"plan":{}}"#);
    world.run("plan --out good.plan host.toml").exits(0);
    for (args, words) in [
        ("apply cut.plan", "the plan cut.plan cannot be used: EOF"),
        ("apply newer.plan", "the plan newer.plan cannot be used: it has version 9.0"),
        ("apply good.plan host.toml", "good.plan is a saved plan, which is applied alone"),
        ("apply host.toml good.plan", "good.plan is a saved plan, which is applied alone"),
    ] {
        let said = world.run(args).exits(1).stderr;
        assert!(said.contains(words) && said.contains("\nhelp: "), "{args}: {said}");
    }
    let said = world.run("plan --out no/such/dir host.toml").exits(1).stderr;
    assert!(said.contains("cannot save the plan to no/such/dir"), "{said}");
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
}

#[test]
fn beside_a_daemon_a_saved_plan_is_checked_and_its_document_handed_over() {
    let world = World::new();
    let _daemon = world.keep("[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    world.converges();
    world.write("trial.toml", DESIRED);
    world.run("plan --out saved.plan trial.toml").exits(0);
    world.run("apply saved.plan").exits(0);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
    world.write("trial.toml", "[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    world.run("plan --out saved.plan trial.toml").exits(0);
    world.write("trial.toml", "[sysctl]\n");
    let said = world.run("apply saved.plan").exits(1).stderr;
    assert!(said.contains("trial.toml is gone or has changed since the plan was made"), "{said}");
}
