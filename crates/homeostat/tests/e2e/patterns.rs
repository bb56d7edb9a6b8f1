//! One section for every namespace whose name matches a pattern.

use serde_json::Value;
use snapbox::str;

use crate::keeping::until;
use crate::world::World;

const PATTERN: &str = "[namespaces.\"ct-*\"]\nlinks.lo.addresses = [\"10.7.0.1/32\"]\n";
const ADDRESS: &str = "10.7.0.1/32";

impl World {
    fn has_address_in(&self, name: &str) -> bool {
        self.ip(&format!("-n {name} address show lo")).contains(ADDRESS)
    }

    fn scopes(&self) -> Vec<String> {
        let status: Value = serde_json::from_str(&self.run("status --json").stdout).unwrap();
        let loops = status["loops"].as_array().unwrap();
        loops.iter().map(|one| one["scope"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn every_namespace_that_matches_is_kept_as_it_appears_and_ended_as_it_goes() {
    let world = World::new().with_own_names();
    world.ip("netns add ct-1");
    world.ip("netns add other");
    let _daemon = world.keep(PATTERN);
    until("the address in the first", || world.has_address_in("ct-1"));
    world.ip("netns add ct-2");
    until("the address in the second", || world.has_address_in("ct-2"));
    world.ip("-n ct-2 address del 10.7.0.1/32 dev lo");
    until("the heal", || world.has_address_in("ct-2"));
    assert!(!world.has_address_in("other"));
    world.converges();
    let status: Value = world.run("status --json").json(0);
    let loops = status["loops"].as_array().unwrap();
    let one = loops.iter().find(|one| one["scope"] == "ct-2").unwrap();
    assert_eq!(one["pattern"], "ct-*");
    let text = world.run("status").exits(0).stdout;
    assert!(text.contains("rtnl in ct-1, by `ct-*`: converged"), "{text}");
    world.ip("netns delete ct-1");
    until("the end of its loops", || !world.scopes().contains(&"ct-1".to_owned()));
    world.run("status").exits(0);
}

#[test]
fn a_plan_says_which_pattern_declares_a_namespace() {
    let world = World::with(PATTERN).with_own_names();
    world.run("apply --yes host.toml").exits(0);
    world.ip("netns add ct-1");
    world.run("plan host.toml").says(
        0,
        str![[r#"
rtnl in ct-1, by `ct-*`
  config changed:
    + address 10.7.0.1/32 dev lo
Plan: 1 to create, 0 to update, 0 to replace, 0 to delete.

"#]],
    );
    let plan = world.run("plan --json host.toml").json(0);
    assert_eq!(plan["patterns"]["ct-1"], "ct-*");
    world.run("apply --yes host.toml").exits(0);
    assert!(world.has_address_in("ct-1"));
    world.run("verify host.toml").exits(0);
}

#[test]
fn an_exact_name_wins_over_a_pattern() {
    let own = "[namespaces.ct-1]\nlinks.lo.addresses = [\"10.9.0.1/32\"]\n";
    let world = World::with(&format!("{PATTERN}{own}")).with_own_names();
    world.ip("netns add ct-1");
    world.ip("netns add ct-2");
    world.run("apply --yes host.toml").exits(0);
    assert!(world.has_address_in("ct-2") && !world.has_address_in("ct-1"));
    assert!(world.ip("-n ct-1 address show lo").contains("10.9.0.1/32"));
}

#[test]
fn two_patterns_that_match_one_name_are_an_error_and_the_daemon_keeps_the_others() {
    let more = "[namespaces.\"*-db\"]\nlinks.lo.addresses = [\"10.9.0.1/32\"]\n";
    let world = World::with(&format!("{PATTERN}{more}")).with_own_names();
    world.ip("netns add ct-1");
    world.run("apply --yes host.toml").exits(0);
    world.ip("netns add ct-db");
    world.run("plan host.toml").fails(str![[r#"
error: the namespace `ct-db` matches `ct-*` and `*-db`
 --> host.toml:3:13
  |
1 | [namespaces."ct-*"]
  |             ------ the other pattern is here
2 | links.lo.addresses = ["10.7.0.1/32"]
3 | [namespaces."*-db"]
  |             ^^^^^^
  |
  = help: write [namespaces.ct-db], or patterns that do not overlap

1 error in the document; nothing was changed

"#]]);
    let _daemon = world.keep_by(world.homeostat("run host.toml"));
    world.ip("netns add ct-3");
    until("the others", || world.has_address_in("ct-3"));
    let text = world.run("status").exits(2).stdout;
    assert!(text.contains("both match `ct-db`"), "{text}");
    assert!(!world.has_address_in("ct-db"));
}

#[test]
fn without_its_pattern_what_is_in_a_namespace_is_held_and_not_deleted() {
    let world = World::with(PATTERN).with_own_names();
    world.ip("netns add ct-1");
    world.run("apply --yes host.toml").exits(0);
    world.write("host.toml", "[namespaces.blue]\n");
    let plan = world.run("plan host.toml").exits(0).stdout;
    assert!(plan.contains("`[namespaces.ct-1]` is missing from the document"), "{plan}");
    world.run("apply --yes host.toml").exits(1);
    assert!(world.has_address_in("ct-1"));
    world.write("host.toml", PATTERN.replace("links.lo.addresses = [\"10.7.0.1/32\"]", ""));
    let plan = world.run("plan host.toml").exits(0).stdout;
    assert!(plan.contains("`[namespaces.\"ct-*\".links]` is missing"), "{plan}");
}
