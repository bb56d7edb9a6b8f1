//! Many namespaces in one daemon: what each of them costs, and what those of others cost. Counts, not times; the times
//! of a thousand are in the benchmarks.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::keeping::until;
use crate::world::World;

const COUNT: usize = 15;

/// So many namespaces, each with a link, two addresses and three routes. No timer starts a pass.
fn document(count: usize) -> String {
    let mut text = "[settings]\nrtnl.resync = \"1h\"\nnamespaces.resync = \"1h\"\n".to_owned();
    for nth in 0..count {
        write!(
            text,
            "[namespaces.n{nth}]\ncreate = true\n\
             routes = [\n\
             {{ to = \"192.0.2.0/24\", type = \"blackhole\" }},\n\
             {{ to = \"198.51.100.0/24\", type = \"blackhole\" }},\n\
             {{ to = \"2001:db8::/32\", type = \"blackhole\" }},\n]\n\
             [namespaces.n{nth}.links.e0]\nkind = \"veth\"\npeer = \"e1\"\nup = true\n\
             addresses = [\"10.0.0.1/24\", \"fd00::1/64\"]\n"
        )
        .unwrap();
    }
    text
}

impl World {
    /// The loops of the daemon.
    fn loops(&self) -> Vec<Value> {
        let status: Value = serde_json::from_str(&self.run("status --json").stdout).unwrap();
        status["loops"].as_array().unwrap().clone()
    }

    /// The passes that the loops in our namespaces have made.
    fn passes_inside(&self) -> BTreeMap<String, Value> {
        let inside = self.loops().into_iter().filter(|one| one["scope"] != "host");
        inside.map(|one| (one["scope"].to_string(), one["pass"].clone())).collect()
    }

    fn has_route_inside(&self, name: &str) -> bool {
        !self.listed(&format!("-n {name} route show 192.0.2.0/24")).is_empty()
    }
}

#[test]
fn a_namespace_costs_a_daemon_few_descriptors_and_one_full_pass() {
    let world = World::new().with_own_names();
    let daemon = world.keep(&document(COUNT));
    world.converges();
    for one in world.loops().iter().filter(|one| one["scope"] != "host") {
        assert_eq!(one["counts"]["full"], 1, "{one}");
    }
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    // Sockets, locks and the namespace itself; and each of these loops has a thread of its own, which takes some as
    // well. A look at what has come takes more for a moment.
    until("the end of all else", || descriptors() <= 40 + 13 * COUNT);
}

#[test]
fn namespaces_of_others_that_come_and_go_start_no_pass_in_ours() {
    let world = World::new().with_own_names();
    let _daemon = world.keep(&document(4));
    world.converges();
    // Events of our own writes may still be on their way: a route that is healed comes after all of them.
    for name in ["n0", "n1", "n2", "n3"] {
        world.ip(&format!("-n {name} route del blackhole 192.0.2.0/24"));
        until("the heal", || world.has_route_inside(name));
    }
    world.run("resync").exits(0);
    let mut before = world.passes_inside();
    for nth in 0..20 {
        world.ip(&format!("netns add foreign{nth}"));
        world.ip(&format!("netns delete foreign{nth}"));
    }
    // One of ours shows that all earlier events were looked at. It is made again.
    world.ip("netns delete n3");
    until("the namespace", || {
        world.ip("netns list").contains("n3") && world.has_route_inside("n3")
    });
    let mut after = world.passes_inside();
    for passes in [&mut before, &mut after] {
        passes.remove("\"n3\"");
    }
    assert_eq!(after, before);
}
