//! Links by number: those of the real namespace are known while a text is compiled.

use crate::world::{World, expected_with, listed};

const TEXT: &str = "table inet a { chain i { type filter hook input priority 0; iif br7 accept; oif != { br7, lo } drop; }; }\n\
    table netdev b { chain i { type filter hook ingress device br7 priority 0; }; }";

fn make_links(world: &World) {
    // Something in between, so that numbers are not those of a fresh namespace by chance.
    for name in ["br5", "br6", "br7"] {
        world.namespace.ip(&["link", "add", name, "type", "bridge"]).unwrap();
    }
    world.namespace.ip(&["link", "del", "br5"]).unwrap();
}

#[test]
fn iif_and_devices_mean_the_links_of_the_real_namespace() {
    let mut world = World::new();
    make_links(&world);
    world.converge(TEXT);
    let ours = listed();
    assert_eq!(ours, expected_with(TEXT, make_links));
}
