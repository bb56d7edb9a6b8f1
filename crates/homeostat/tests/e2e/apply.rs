//! `apply`: what becomes of the kernel, what is said of it, who is asked before.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt as _;
use std::process::Stdio;

use snapbox::str;

use crate::terminal::Terminal;
use crate::world::{Ran, World};

const FORWARD: &str = "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n";

#[test]
fn what_was_applied_is_there_and_is_said() {
    let document = "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.tcp_rmem\" = \"4096 8192 \
                    65536\"\n\"net.ipv4.ip_local_reserved_ports\" = \"80,90-92\"\n";
    let world = World::with(document);
    world.run("apply --yes host.toml").says(
        0,
        str![[r#"
knobs in host
  applied:
    ~ sysctl net.ipv4.ip_forward               0 -> 1
    ~ sysctl net.ipv4.ip_local_reserved_ports  "" -> 80,90-92
    ~ sysctl net.ipv4.tcp_rmem  [..] -> 4096 8192 65536
Applied: 0 created, 3 updated, 0 replaced, 0 deleted.

"#]],
    );
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
    assert_eq!(world.knob("net/ipv4/tcp_rmem"), "4096 8192 65536");
    assert_eq!(world.knob("net/ipv4/ip_local_reserved_ports"), "80,90-92");
}

#[test]
fn a_second_apply_writes_neither_to_the_kernel_nor_to_the_disk() {
    let world = World::new();
    world.apply(FORWARD);
    let look = || {
        let meta = fs::metadata(world.ledger()).unwrap();
        (fs::read(world.ledger()).unwrap(), meta.mtime(), meta.mtime_nsec(), meta.ino())
    };
    let (before, knobs) = (look(), world.knobs());
    world.run("apply --yes host.toml").says(0, "No changes.\n");
    assert!(look() == before, "the ledger was touched");
    assert!(world.knobs() == knobs, "a knob was touched");
    world.run("apply host.toml").says(0, "No changes.\n");
}

#[test]
fn a_report_in_json_holds_every_list() {
    let world = World::with(
        "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.ip_default_ttl\" = 0\n\
         \"net.ipv4.neigh.lo.retrans_time_ms\" = 1234\n[links.eth9.sysctl]\n\"ipv4/rp_filter\" = 1\n",
    );
    world.run("apply --yes --json host.toml").says(1, str![[r#"
{"format_version":"1.0","converged":false,"applied":[
  {"source":"knobs","scope":"host","action":"update","key":"sysctl net.ipv4.ip_forward","cause":"config"},
  {"source":"knobs","scope":"host","action":"update","key":"sysctl net.ipv4.neigh.lo.retrans_time_ms","cause":"config"}],"failed":[
  {"source":"knobs","scope":"host","action":"update","key":"sysctl net.ipv4.ip_default_ttl","error":"the kernel refused the value `0`: Invalid argument (os error 22)","help":null}],"pending":[
  {"source":"knobs","scope":"host","key":"sysctl net.ipv4.conf.eth9.rp_filter","on":"link eth9"}],"conflicts":[],"settled":[
  {"source":"knobs","scope":"host","key":"sysctl net.ipv4.neigh.lo.retrans_time_ms","wanted":"1234","held":"[..]"}],"matched":[],"unknown":[],"held":[],"parked":[],"optional":[],"withdrawn":[],"summary":{"create":0,"update":2,"replace":0,"delete":0}}

"#]]);
}

#[test]
fn one_refused_value_does_not_keep_the_others_from_theirs() {
    let world = World::with(
        "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.ip_default_ttl\" = 0\n\
         \"net.ipv4.tcp_congestion_control\" = \"nosuch\"\n\"net.ipv4.tcp_retries1\" = 4\n",
    );
    world.run("apply --yes host.toml").says(1, str![[r#"
knobs in host
  applied:
    ~ sysctl net.ipv4.ip_forward    0 -> 1
    ~ sysctl net.ipv4.tcp_retries1  3 -> 4
  failed:
    ! sysctl net.ipv4.ip_default_ttl          the kernel refused the value `0`: Invalid argument (os error 22)
    ! sysctl net.ipv4.tcp_congestion_control  the kernel refused the value `nosuch`: No such file or directory (os error 2)
Not converged: 0 created, 2 updated, 0 replaced, 0 deleted.

"#]]);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "4");
    assert_eq!(world.knob("net/ipv4/ip_default_ttl"), "64");
}

#[test]
fn a_strict_apply_stops_at_the_first_failure_and_leaves_the_rest_waiting() {
    let world = World::with(
        "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.ip_default_ttl\" = 0\n\
         \"net.ipv4.tcp_retries1\" = 4\n",
    );
    let before = world.knob("net/ipv4/tcp_retries1");
    world.run("apply --yes --strict host.toml").says(1, str![[r#"
knobs in host
  applied:
    ~ sysctl net.ipv4.ip_forward  0 -> 1
  failed:
    ! sysctl net.ipv4.ip_default_ttl  the kernel refused the value `0`: Invalid argument (os error 22)
  waiting:
    . sysctl net.ipv4.tcp_retries1  waits on `sysctl net.ipv4.ip_default_ttl`, which failed in strict mode
Not converged: 0 created, 1 updated, 0 replaced, 0 deleted.

"#]]);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), before);
}

#[test]
fn a_knob_of_a_link_waits_for_the_link_and_follows_it() {
    let world = World::with("[links.\"lan.10\".sysctl]\n\"ipv4/rp_filter\" = 2\n");
    world.run("apply --yes host.toml").says(
        1,
        str![[r#"
knobs in host
  waiting:
    . sysctl net/ipv4/conf/lan.10/rp_filter  waits on link lan.10
Not converged: 0 created, 0 updated, 0 replaced, 0 deleted.

"#]],
    );
    world.add_pair("lan.10", "peer0");
    assert_eq!(world.knob("net/ipv4/conf/lan.10/rp_filter"), "0");
    world.run("apply --yes host.toml").says(
        0,
        str![[r#"
knobs in host
  applied:
    ~ sysctl net/ipv4/conf/lan.10/rp_filter  0 -> 2
Applied: 0 created, 1 updated, 0 replaced, 0 deleted.

"#]],
    );
    assert_eq!(world.knob("net/ipv4/conf/lan.10/rp_filter"), "2");
    world.run("verify host.toml").says(0, "");
}

#[test]
fn a_value_that_the_kernel_rounds_is_settled_and_a_third_value_is_drift() {
    let world = World::with("[sysctl]\n\"net.ipv4.neigh.lo.retrans_time_ms\" = 1234\n");
    world.run("apply --yes -v host.toml").says(
        0,
        str![[r#"
knobs in host
  applied:
    ~ sysctl net.ipv4.neigh.lo.retrans_time_ms  1000 -> 1234
  settled:
    = sysctl net.ipv4.neigh.lo.retrans_time_ms  1234 is kept as [..]
Applied: 0 created, 1 updated, 0 replaced, 0 deleted.

"#]],
    );
    let held = world.knob("net/ipv4/neigh/lo/retrans_time_ms");
    assert_ne!(held, "1234", "this kernel does not round: take another key for this test");
    world.run("apply --yes host.toml").says(0, "No changes.\n");
    world.meddle("net/ipv4/neigh/lo/retrans_time_ms", "2000");
    let plan = world.plan();
    assert_eq!(plan["changes"][0]["cause"], "drift");
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(world.knob("net/ipv4/neigh/lo/retrans_time_ms"), held);
}

#[test]
fn knobs_that_rewrite_each_other_converge_in_one_apply() {
    let world = World::new();
    world.add_pair("lan0", "peer0");
    world.write(
        "host.toml",
        "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.conf.all.accept_redirects\" = 1\n\
         [links.lan0.sysctl]\n\"ipv4/forwarding\" = 0\n",
    );
    world.run("apply --yes host.toml").says(0, str![[r#"
knobs in host
  applied:
    ~ sysctl net.ipv4.ip_forward                 0 -> 1
    ~ sysctl net.ipv4.conf.all.accept_redirects  1 -> 1  (written again, since `sysctl net.ipv4.ip_forward` rewrites it)
    ~ sysctl net.ipv4.conf.lan0.forwarding       0 -> 0  (written again, since `sysctl net.ipv4.ip_forward` rewrites it)
Applied: 0 created, 3 updated, 0 replaced, 0 deleted.

"#]]);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
    assert_eq!(world.knob("net/ipv4/conf/all/accept_redirects"), "1");
    assert_eq!(world.knob("net/ipv4/conf/lan0/forwarding"), "0");
    assert_eq!(world.knob("net/ipv4/conf/peer0/forwarding"), "1");
    world.run("apply --yes host.toml").says(0, "No changes.\n");
}

#[test]
fn knobs_that_fight_are_reported_and_neither_is_written() {
    let world = World::with(
        "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.conf.all.forwarding\" = 0\n\
         \"net.ipv4.tcp_retries1\" = 4\n",
    );
    world.run("apply --yes host.toml").says(
        1,
        str![[r#"
knobs in host
  applied:
    ~ sysctl net.ipv4.tcp_retries1  3 -> 4
  conflicts:
    ! sysctl net.ipv4.conf.all.forwarding  fights with `sysctl net.ipv4.ip_forward`, which undoes it
    ! sysctl net.ipv4.ip_forward           fights with `sysctl net.ipv4.conf.all.forwarding`, which undoes it
Not converged: 0 created, 1 updated, 0 replaced, 0 deleted.

"#]],
    );
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "4");
}

#[test]
fn without_a_terminal_nothing_is_applied_unless_yes_is_said() {
    let world = World::with(FORWARD);
    world.run("apply host.toml").fails(str![[r#"
error: there is no terminal to ask on
help: look at `homeostat plan`, then add --yes

"#]]);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
    world.run("apply -y host.toml").exits(0);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
}

fn answering(world: &World, args: &str, answer: &str) -> Ran {
    let terminal = Terminal::open();
    terminal.type_in(answer);
    let mut command = world.homeostat(args);
    command.stdin(terminal.end());
    world.finish(command)
}

#[test]
fn on_a_terminal_a_yes_applies() {
    let world = World::with(FORWARD);
    let ran = answering(&world, "apply host.toml", "yes\n").exits(0);
    snapbox::assert_data_eq!(
        ran.stderr,
        str![[r#"
knobs in host
  config changed:
    ~ sysctl net.ipv4.ip_forward  0 -> 1
Plan: 0 to create, 1 to update, 0 to replace, 0 to delete.
Apply? Only `yes` goes on: 
"#]]
    );
    snapbox::assert_data_eq!(
        ran.stdout,
        str![[r#"
knobs in host
  applied:
    ~ sysctl net.ipv4.ip_forward  0 -> 1
Applied: 0 created, 1 updated, 0 replaced, 0 deleted.

"#]]
    );
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
}

#[test]
fn on_a_terminal_anything_but_a_yes_changes_nothing() {
    for answer in ["no\n", "y\n", "\n", "yes please\n", "\x04"] {
        let world = World::with(FORWARD);
        let ran = answering(&world, "apply host.toml", answer).exits(1);
        let end = "Only `yes` goes on: error: not applied\nhelp: nothing was changed\n";
        assert!(ran.stderr.ends_with(end), "{answer:?}: {}", ran.stderr);
        assert_eq!(ran.stdout, "");
        assert_eq!(world.knob("net/ipv4/ip_forward"), "0", "{answer:?}");
    }
}

/// Reads a program's stderr up to its next question.
fn read_question(stderr: &mut impl Read) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"goes on: ") {
        let mut byte = [0];
        stderr.read_exact(&mut byte).unwrap();
        text.extend(byte);
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn a_yes_to_a_plan_that_is_no_longer_true_is_asked_for_again() {
    let world = World::with("[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    let terminal = Terminal::open();
    let mut command = world.homeostat("apply host.toml");
    command.stdin(terminal.end()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    assert!(read_question(&mut stderr).contains("tcp_retries1  3 -> 5\n"));
    world.meddle("net/ipv4/tcp_retries1", "4");
    terminal.type_in("yes\n");
    let again = read_question(&mut stderr);
    assert!(again.starts_with("The machine moved meanwhile.\n"), "{again}");
    assert!(again.contains("tcp_retries1  4 -> 5\n"), "{again}");
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "4");
    terminal.type_in("yes\n");
    assert!(child.wait().unwrap().success());
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "5");
}

#[test]
fn on_a_terminal_json_stays_clean_of_the_question() {
    let world = World::with(FORWARD);
    let report = answering(&world, "apply --json host.toml", "yes\n").json(0);
    assert_eq!(report["converged"], true);
}

#[test]
fn nothing_is_asked_where_nothing_changes() {
    let world = World::new();
    world.apply(FORWARD);
    let ran = answering(&world, "apply host.toml", "");
    ran.says(0, "No changes.\n");
}

fn many_routes(count: usize) -> World {
    let world = World::with(
        "[links.br0]\nkind = \"bridge\"\nup = true\naddresses = [\"10.0.0.1/24\"]\n\
         [[routes]]\nfrom-file = \"many.routes\"\nallow-empty = true\n",
    );
    let line = |at: usize| format!("11.{}.{}.0/24 via 10.0.0.2\n", at / 256, at % 256);
    world.write("many.routes", (0..count).map(line).collect::<String>());
    world
}

#[test]
fn a_long_apply_shows_on_a_terminal_how_far_it_has_come() {
    let world = many_routes(10_000);
    let terminal = Terminal::open();
    let mut command = world.homeostat("apply --yes host.toml");
    command.stdout(Stdio::null()).stderr(terminal.end());
    assert!(command.status().unwrap().success());
    drop(command);
    let screen = terminal.screen();
    assert!(screen.contains("rtnl "), "{screen:?}");
    assert!(screen.contains(" of 10,002, "), "{screen:?}");
    assert!(screen.ends_with("\x1b[2K"), "the bar is wiped away: {screen:?}");
}

#[test]
fn without_a_terminal_or_when_quiet_no_progress_is_shown() {
    let world = many_routes(10_000);
    assert_eq!(world.run("apply --yes host.toml").exits(0).stderr, "");
    world.write("many.routes", "");
    let terminal = Terminal::open();
    let mut command = world.homeostat("apply --yes --quiet --allow-mass-delete host.toml");
    command.stdout(Stdio::null()).stderr(terminal.end());
    assert!(command.status().unwrap().success());
    let mut short = world.homeostat("apply --yes host.toml");
    short.stdout(terminal.end()).stderr(terminal.end());
    assert!(short.status().unwrap().success());
    drop((command, short));
    assert_eq!(terminal.screen(), "No changes.\n");
}

#[test]
fn strict_mode_applies_nothing_if_something_cannot_be_resolved() {
    let world = World::new();
    let kept = "{ to = \"10.1.0.0/16\", type = \"blackhole\" }";
    world.apply(&format!("routes = [{kept}]\n"));
    let before = world.ip("route show");
    let more = "{ to = \"10.2.0.0/16\", type = \"blackhole\" }";
    world.write(
        "host.toml",
        format!("routes = [{more}, {{ to = \"10.3.0.0/16\", dev = \"nope\" }}]\n"),
    );
    let ran = world.run("apply --yes --strict host.toml").exits(1);
    let expected =
        "nothing was applied, since --strict is given: `route 10.3.0.0/16` waits on link nope";
    assert!(ran.stderr.contains(expected), "{ran:?}");
    assert_eq!(world.ip("route show"), before);
    // What the document itself makes is there in time, whichever source waits for it.
    world.write(
        "host.toml",
        "routes = [{ to = \"10.3.0.0/16\", dev = \"p0\" }]\n[links.o0]\nkind = \"veth\"\npeer = \"p0\"\n\
         up = true\nsysctl = { \"ipv4/rp_filter\" = 2 }\n[links.p0]\nup = true\n\
         sysctl = { \"ipv4/rp_filter\" = 2 }\n",
    );
    world.run("apply --yes --strict host.toml").exits(0);
}

#[test]
fn a_time_of_zero_needs_no_unit() {
    let world = World::new();
    world.apply("[links.br9]\nkind = \"bridge\"\nforward-delay = 0\n");
    assert!(world.ip("-d link show br9").contains("forward_delay 0 "));
    world.run("plan --detailed-exitcode host.toml").exits(0);
}
