//! What a rollback brings back, judged by full listings of `ip`, `nft` and `/proc/sys/net` before and after.

use std::net::UdpSocket;
use std::process::Stdio;
use std::time::UNIX_EPOCH;

use serde_json::Value;

use crate::keeping::{comes, until};
use crate::network::cabled;
use crate::world::World;

const BEFORE: &str = "[links.va]\nup = true\n[links.vb]\nup = true\n";

/// Tries a document until it is applied, then rolls it back and compares.
#[track_caller]
fn round_trip(world: &World, before: &str, tried: &str) {
    round_trip_with(world, before, tried, "", || {});
}

/// The same, with options of the trial, and with what others do before it.
#[track_caller]
pub(crate) fn round_trip_with(
    world: &World,
    before: &str,
    tried: &str,
    options: &str,
    others: impl FnOnce(),
) {
    let _daemon = world.keep(before);
    world.converges();
    world.confirms(1);
    others();
    until("addresses are used", || world.uses_all_addresses());
    let then = world.dump();
    let mut client = begin(world, tried, options);
    world.converges();
    assert_ne!(world.dump(), then, "the trial changed nothing");
    world.run("rollback").exits(0);
    client.wait().unwrap();
    world.converges();
    world.is_again(&then);
}

#[test]
fn a_section_that_only_the_trial_had_goes_however_long_it_was() {
    let world = cabled();
    let route =
        |number: i32| format!("[[routes]]\nto = \"10.9.{number}.0/24\"\nvia = \"10.0.0.2\"\n");
    let routes: String = (0..40).map(route).collect();
    let tried = format!("{BEFORE}addresses = [\"10.0.0.1/24\"]\n{routes}");
    round_trip(&world, BEFORE, &tried);
}

#[test]
fn what_the_trial_adopted_returns_to_its_owner() {
    let world = cabled();
    world.ip("address add 10.0.0.1/24 dev va");
    world.ip("route add default via 10.0.0.2 proto dhcp metric 100 src 10.0.0.1 initcwnd 20");
    let tried = format!(
        "{BEFORE}[[routes]]\nto = \"default\"\nvia = \"10.0.0.9\"\nmetric = 100\nadopt = true\n"
    );
    round_trip(&world, BEFORE, &tried);
}

#[test]
fn values_that_the_trial_claimed_are_what_they_were() {
    let world = cabled();
    world.meddle("net/ipv4/tcp_retries1", "9");
    let tried = "[links.va]\nup = true\nmtu = 1400\n[links.vb]\nup = true\n\
        [sysctl]\n\"net.ipv4.tcp_retries1\" = 4\n";
    round_trip(&world, BEFORE, tried);
}

#[test]
fn knobs_that_go_with_a_claimed_one_are_what_they_were() {
    let world = cabled();
    world.meddle("net/ipv4/conf/va/forwarding", "1");
    let tried = format!("{BEFORE}[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    round_trip(&world, BEFORE, &tried);
    let world = cabled();
    world.meddle("net/ipv4/ip_forward", "1");
    world.meddle("net/ipv4/conf/va/forwarding", "0");
    let tried = format!("{BEFORE}[sysctl]\n\"net.ipv4.ip_forward\" = 0\n");
    round_trip(&world, BEFORE, &tried);
}

#[test]
fn a_table_that_the_trial_took_over_returns_with_its_counters() {
    let world = cabled();
    world.write(
        "theirs.nft",
        "table ip f {\n  counter c { packets 7 bytes 8; }\n  chain x { counter packets 3 bytes 4 drop; }\n}\n",
    );
    world.nft(&format!("-f {}", world.path().join("theirs.nft").display()));
    let before = format!("{BEFORE}[nftables]\nruleset = \"\"\n");
    let tried = format!(
        "{BEFORE}[nftables]\nadopt = true\nruleset = \"table ip f {{ chain x {{ accept; }}; }}\\n\"\n"
    );
    round_trip(&world, &before, &tried);
}

#[test]
fn a_daemon_that_was_killed_in_a_trial_undoes_it_at_its_next_start() {
    let world = cabled();
    world.ip("address add 10.0.0.1/24 dev va");
    world.ip("route add default via 10.0.0.2 proto dhcp metric 100");
    world.meddle("net/ipv4/tcp_retries1", "9");
    let daemon = world.keep(BEFORE);
    world.converges();
    world.confirms(1);
    let then = world.dump();
    let tried = format!(
        "{BEFORE}[sysctl]\n\"net.ipv4.tcp_retries1\" = 4\n\
        [[routes]]\nto = \"default\"\nvia = \"10.0.0.9\"\nmetric = 100\nadopt = true\n"
    );
    let mut client = begin(&world, &tried, "");
    until("the trial", || world.knob("net/ipv4/tcp_retries1") == "4");
    world.converges();
    daemon.kill();
    assert_ne!(world.dump(), then);
    let _daemon = world.keep(BEFORE);
    // It waits for the end of the trial.
    client.wait().unwrap();
    world.converges();
    world.is_again(&then);
}

const FIREWALL: &str = "[nftables]\nruleset = '''\ntable ip f {\n  set s { type ipv4_addr; flags dynamic,timeout; timeout 50m; }\n  \
    chain i { type filter hook input priority 0; policy accept; counter; }\n}\n'''\n";
const NO_FIREWALL: &str = "[nftables]\nruleset = \"\"\n";

fn handles(world: &World) -> Vec<String> {
    let listed = world.nft("-a list ruleset");
    listed.lines().filter(|line| line.contains("# handle")).map(str::to_owned).collect()
}

/// A client that asks for a trial.
pub(crate) fn trial(world: &World, tried: &str, options: &str) -> std::process::Command {
    world.write("new.toml", tried);
    world.homeostat(&format!("apply --yes --confirm-within 1h {options} new.toml"))
}

/// Starts it.
pub(crate) fn spawn(world: &World, tried: &str, options: &str) -> std::process::Child {
    let mut client = trial(world, tried, options);
    let errors = std::fs::File::create(world.path().join("client")).unwrap();
    client.stdout(Stdio::null()).stderr(errors).spawn().unwrap()
}

/// Begins a trial without waiting for its end.
#[track_caller]
pub(crate) fn begin(world: &World, tried: &str, options: &str) -> std::process::Child {
    let (client, said) = (spawn(world, tried, options), world.path().join("client"));
    let is_tried = comes(|| !world.status_if_any()["trial"].is_null());
    assert!(is_tried, "no trial: {}", std::fs::read_to_string(said).unwrap());
    client
}

/// How many packets the chain has counted, one more having come.
fn packets_after_one_more(world: &World) -> u64 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"one", socket.local_addr().unwrap()).unwrap();
    socket.recv(&mut [0; 8]).unwrap();
    let listed = world.nft("list chain ip f i");
    let count = listed.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
    count.unwrap().parse().unwrap()
}

/// For how many seconds the element of the set has still to live.
fn expires(world: &World) -> u64 {
    let listed: Value = serde_json::from_str(&world.nft("-j list set ip f s")).unwrap();
    let set = listed["nftables"].as_array().unwrap().iter().find_map(|one| one.get("set"));
    set.unwrap()["elem"][0]["elem"]["expires"].as_u64().unwrap()
}

#[test]
fn a_table_that_leaves_is_dormant_until_the_trial_is_confirmed() {
    let world = cabled();
    world.ip("link set lo up");
    let _daemon = world.keep(&format!("{BEFORE}{FIREWALL}"));
    world.converges();
    world.confirms(1);
    world.nft("add element ip f s { 10.0.0.1 }");
    let counted = packets_after_one_more(&world);
    let (then, left) = (handles(&world), expires(&world));
    let began = UNIX_EPOCH.elapsed().unwrap().as_secs();
    let mut client = begin(&world, &format!("{BEFORE}{NO_FIREWALL}"), "");
    world.converges();
    let during = world.nft("list ruleset");
    assert!(during.contains("flags dormant") && during.contains("10.0.0.1"), "{during}");
    assert_eq!(packets_after_one_more(&world), counted, "no hook of it acts");
    let status = world.run("status -v").stdout;
    assert!(!status.contains("not converged"), "{status}");
    world.run("rollback").exits(0);
    client.wait().unwrap();
    world.converges();
    assert_eq!(handles(&world), then, "nothing was made again");
    let (now, elapsed) =
        (expires(&world), UNIX_EPOCH.elapsed().unwrap().as_secs().saturating_sub(began));
    assert!(now <= left && now + elapsed + 2 >= left, "{left} s, and {now} s after {elapsed} s");
    assert!(packets_after_one_more(&world) > counted);
    assert!(!world.nft("list ruleset").contains("dormant"));
}

#[test]
fn a_dormant_table_goes_when_the_trial_is_confirmed() {
    let world = cabled();
    let _daemon = world.keep(&format!("{BEFORE}{FIREWALL}"));
    world.converges();
    world.confirms(1);
    let mut client = begin(&world, &format!("{BEFORE}{NO_FIREWALL}"), "");
    world.converges();
    assert!(world.nft("list ruleset").contains("flags dormant"));
    world.run("confirm --same-session").exits(0);
    client.wait().unwrap();
    world.converges();
    assert_eq!(world.nft("list ruleset"), "");
}

#[test]
fn what_cannot_be_undone_is_planned_by_name_and_needs_a_word() {
    let world = cabled();
    let before = format!("{BEFORE}[links.v5]\nkind = \"vxlan\"\nid = 5\n");
    let _daemon = world.keep(&before);
    world.converges();
    world.confirms(1);
    let tried = before.replace("links.v5", "links.v6");
    world.write("new.toml", &tried);
    let plan = world.run("plan --json new.toml").json(0);
    let lost = &plan["irreversible"][0];
    assert_eq!((&lost["source"], &lost["key"]), (&"rtnl".into(), &"link v5".into()), "{plan}");
    assert!(lost["reason"].as_str().unwrap().contains("its number"), "{lost}");
    let drawn = world.run("plan new.toml").exits(0).stdout;
    assert!(drawn.contains("cannot be undone:"), "{drawn}");
    // In a trial it is recorded, but what stands on it cannot be made again.
    world.ip("link add theirs link v5 type macvlan");
    let ran = world.run("apply --yes --allow-cascades --confirm-within 1s new.toml").exits(1);
    assert!(ran.stdout.contains("it could not be undone"), "{ran:?}");
    assert!(ran.stdout.contains("use --accept-loss"), "{ran:?}");
    world.converges();
    let mut client = begin(&world, &tried, "--allow-cascades --accept-loss");
    world.converges();
    let is_there =
        |name: &str| world.listed("link show").iter().any(|link| link["ifname"] == *name);
    assert!(is_there("v6") && !is_there("theirs"));
    world.run("rollback").exits(0);
    client.wait().unwrap();
    world.converges();
    assert!(is_there("v5") && !is_there("theirs"));
}

const ADDRESSED: &str =
    "[links.va]\nup = true\naddresses = [\"10.0.0.1/24\"]\n[links.vb]\nup = true\n";

const EMPTIED: &str = "[links.va]\nup = true\naddresses = []\n[links.vb]\nup = true\n";

#[test]
fn foreign_objects_that_went_with_the_trial_return() {
    let world = cabled();
    let _daemon = world.keep(ADDRESSED);
    world.converges();
    world.confirms(1);
    world.ip("route add 10.7.0.0/16 via 10.0.0.9 proto bird metric 20 initcwnd 7");
    world.ip("route add 10.8.0.0/16 via 10.7.0.9 proto bird onlink dev va");
    let then = world.dump();
    let mut client = begin(&world, EMPTIED, "--allow-cascades");
    world.converges();
    let during = world.ip("route show table all proto bird");
    assert!(!during.contains("10.7.0.0"), "{during}");
    world.run("rollback").exits(0);
    client.wait().unwrap();
    world.is_again(&then);
}

#[test]
fn an_object_that_its_owner_made_again_by_itself_stays_as_it_is() {
    let world = cabled();
    let _daemon = world.keep(ADDRESSED);
    world.converges();
    world.confirms(1);
    world.ip("route add 10.7.0.0/16 via 10.0.0.9 proto bird metric 20");
    let mut client = begin(&world, EMPTIED, "--allow-cascades");
    world.converges();
    world.ip("route add 10.7.0.0/16 dev vb proto bird metric 20");
    world.run("rollback").exits(0);
    client.wait().unwrap();
    world.converges();
    let routes = world.listed("route show 10.7.0.0/16");
    assert_eq!((routes.len(), &routes[0]["dev"]), (1, &"vb".into()), "{routes:?}");
    let left = &world.rolled_back()[0]["left"];
    assert_eq!(left.as_array().unwrap().len(), 1, "{left}");
    assert_eq!(left[0]["key"], "route 10.7.0.0/16 metric 20");
    let said = world.run("status").stdout;
    let line = "Left: route 10.7.0.0/16 metric 20 (rtnl in host) is there already.";
    assert!(said.contains(line), "{said}");
}

/// The link is put aside; what others had on it is theirs again.
#[test]
fn foreign_objects_on_a_link_that_the_trial_deleted_return_with_it() {
    let bridge = "[links.br7]\nkind = \"bridge\"\nup = true\nmac = \"02:00:00:00:00:07\"\n\
                  addresses = [\"10.7.0.1/24\"]\n";
    let world = cabled();
    round_trip_with(&world, &format!("{BEFORE}{bridge}"), BEFORE, "--allow-cascades", || {
        world.ip("address add 10.70.0.1/24 dev br7 label br7:theirs");
        world.ip("route add 10.71.0.0/16 via 10.7.0.9 proto bird metric 20 initcwnd 7");
    });
}
