//! Links by number: those of the real namespace are known while a text is compiled.

use std::time::Duration;

use homeostat_engine::{Cause, Explain as _, Focus, Hint, Reader as _, Records, Source as _, View};

use crate::world::{World, by_hand, expected, expected_with, explained, listed, nft};

const TEXT: &str = "table inet a { chain i { type filter hook input priority 0; iif br7 accept; oif != { br7, lo } drop; }; }\n\
    table netdev b { chain i { type filter hook ingress device br7 priority 0; }; }";

fn make_links(world: &World) {
    // Something in between, so that numbers are not those of a fresh namespace by chance.
    for name in ["br5", "br6", "br7"] {
        world.namespace.ip(&["link", "add", name, "type", "bridge"]).unwrap();
    }
    world.namespace.ip(&["link", "del", "br5"]).unwrap();
}

const BY_NUMBER: &str = "table ip a { chain x { iif br8 accept; }; }\n\
    table ip b { chain x { accept; }; }";

#[test]
fn a_table_waits_for_a_link_that_is_not_there_and_others_do_not() {
    let mut world = World::new();
    let desired = world.desired(BY_NUMBER);
    let words = explained(&world.pass(&desired));
    assert!(words.contains("table ip a") && words.contains("Link { name: \"br8\""), "{words}");
    assert_eq!(listed(), expected("table ip b { chain x { accept; }; }"));
    world.namespace.ip(&["link", "add", "br8", "type", "bridge"]).unwrap();
    assert!(world.pass(&desired).is_converged());
    assert_eq!(listed(), expected_with(BY_NUMBER, make_br8));
    assert_eq!(explained(&world.plan(&desired)), "");
}

fn make_br8(world: &World) {
    world.namespace.ip(&["link", "add", "br8", "type", "bridge"]).unwrap();
}

#[test]
fn a_link_that_is_made_again_is_meant_by_its_new_number() {
    let mut world = World::new();
    make_br8(&world);
    let desired = world.desired(BY_NUMBER);
    assert!(world.pass(&desired).is_converged());
    let former = world.namespace.ip_json(&["link", "show", "dev", "br8"]).unwrap();
    let former = format!("iif {}", former[0]["ifindex"]);
    world.namespace.ip(&["link", "del", "br8"]).unwrap();
    let words = explained(&world.plan(&desired));
    assert!(words.contains("Link { name: \"br8\""), "{words}");
    // Another number than before, so that a rule for the former one means nothing.
    for name in ["br6", "br8"] {
        world.namespace.ip(&["link", "add", name, "type", "bridge"]).unwrap();
    }
    assert!(nft(&["list", "chain", "ip", "a", "x"], "").unwrap().contains(&former), "by number");
    assert!(world.pass(&desired).is_converged());
    let chain = nft(&["list", "chain", "ip", "a", "x"], "").unwrap();
    assert!(chain.contains("iif \"br8\" accept"), "{chain}");
}

#[test]
fn drift_is_still_called_drift_after_a_link_got_another_number() {
    let mut world = World::new();
    make_br8(&world);
    let desired = world.desired(BY_NUMBER);
    assert!(world.pass(&desired).is_converged());
    world.namespace.ip(&["link", "del", "br8"]).unwrap();
    for name in ["br6", "br8"] {
        world.namespace.ip(&["link", "add", name, "type", "bridge"]).unwrap();
    }
    assert!(world.pass(&desired).is_converged());
    by_hand("flush chain ip a x");
    let plan = world.plan(&desired);
    let causes: Vec<_> = plan.steps.iter().map(|step| plan.cause(step)).collect();
    assert_eq!(causes, [Cause::Drift]);
}

#[tokio::test]
async fn a_link_that_is_made_again_makes_a_hint() {
    let world = World::new();
    make_br8(&world);
    let desired = world.desired(BY_NUMBER);
    let mut reader = world.source.reader().unwrap();
    let (focus, records) = (Focus::All, Records::new());
    let view = View::new(&focus, &desired, &records);
    reader.observe(&view, &mut |_| {}).await.unwrap();
    // A link that the text does not name does not matter to it.
    world.namespace.ip(&["link", "add", "br9", "type", "bridge"]).unwrap();
    world.namespace.ip(&["link", "set", "br8", "up"]).unwrap();
    let early = tokio::time::timeout(Duration::from_millis(50), reader.hint()).await;
    assert!(early.is_err(), "{early:?}");
    world.namespace.ip(&["link", "del", "br8"]).unwrap();
    let hint = tokio::time::timeout(Duration::from_secs(10), reader.hint()).await.unwrap().unwrap();
    let Hint::Keys(keys) = hint else { panic!("{hint:?}") };
    assert!(keys.keys().any(|key| key.to_string() == "table ip a"), "{keys:?}");
}

#[test]
fn iif_and_devices_mean_the_links_of_the_real_namespace() {
    let mut world = World::new();
    make_links(&world);
    world.converge(TEXT);
    let ours = listed();
    assert_eq!(ours, expected_with(TEXT, make_links));
}

const HOOKED: &str = "table netdev a { chain i { type filter hook ingress device br8 priority 0; tcp dport 22 drop; }; }\n\
    table ip b { chain x { accept; }; }";

#[test]
fn a_hook_into_a_link_that_is_not_there_is_no_failure() {
    let mut world = World::new();
    let desired = world.desired(HOOKED);
    let words = explained(&world.pass(&desired));
    assert!(!words.contains("failed"), "{words}");
    make_br8(&world);
    assert!(world.pass(&desired).is_converged());
    assert_eq!(listed(), expected_with(HOOKED, make_br8));
    assert_eq!(explained(&world.plan(&desired)), "");
}
