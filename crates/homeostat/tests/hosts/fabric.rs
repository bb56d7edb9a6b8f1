//! Hosts of a data centre: bonds, bridges with VLANs, VRFs, VXLANs.

use crate::world::{Peer, World};

#[test]
fn the_bonds_of_a_router_carry_packets_also_with_one_cable_less() {
    let world = World::new("bonds");
    let [switch, provider, twin] = ["switch", "provider", "twin"].map(|name| world.peer(name));
    for (number, peer) in [&switch, &switch, &provider, &provider, &twin, &twin].iter().enumerate()
    {
        world.cable(&format!("eth{number}"), peer, &format!("p{number}"));
    }
    switch.bond("802.3ad", &["p0", "p1"]);
    switch.ip("address add 192.168.93.1/24 dev bond0");
    provider.ip("link add br0 type bridge");
    provider.ip("link set br0 up");
    for port in ["p2", "p3"] {
        provider.ip(&format!("link set {port} master br0"));
    }
    provider.ip("address add 192.168.1.1/24 dev br0");
    twin.bond("balance-rr", &["p4", "p5"]);
    twin.ip("address add 192.168.254.1/24 dev bond0");
    world.apply(include_str!("../../../../examples/hosts/01-bonding-router.toml"));
    for target in ["192.168.93.1", "192.168.1.1", "192.168.254.1"] {
        world.reaches_soon(target);
    }
    // Each bond loses the cable that it uses, or one of both.
    for (peer, port) in [(&switch, "p0"), (&provider, "p2")] {
        peer.ip(&format!("link set {port} down"));
    }
    world.reaches_soon("192.168.93.1");
    world.reaches_soon("192.168.1.1");
    // It routes: from the LAN to the provider.
    switch.ip("route add default via 192.168.93.2");
    provider.ip("route add 192.168.93.0/24 via 192.168.1.252");
    switch.reaches_soon("192.168.1.1");
}

#[test]
fn tagged_frames_reach_the_bridge_over_a_vlan_and_the_lease_stays() {
    let world = World::new("bridge");
    let outside = world.peer_at("eth0", "outside", "192.0.2.1/24");
    outside.vlan("eth0", 15, "10.3.99.1/24");
    outside.vlan("eth0", 16, "10.3.98.1/24");
    world.ip("link set eth0 up");
    world.ip("address add 192.0.2.77/24 dev eth0 valid_lft 3600 preferred_lft 3600");
    world.ip("route add default via 192.0.2.1 dev eth0 proto dhcp");
    world.apply(include_str!("../../../../examples/hosts/02-bridge-over-vlan.toml"));
    outside.reaches_soon("10.3.99.25");
    outside.reaches_soon("192.0.2.77");
    assert_eq!(world.ip_json("route show default")[0]["protocol"], "dhcp");
    let guest = world.peer_at("veth100", "guest", "10.3.99.50/24");
    world.ip("link set veth100 master br0 up");
    guest.reaches_soon("10.3.99.1");
    assert!(!outside.reaches("10.3.98.25"), "another tag does not");
    world.homeostat("verify");
}

/// The hardware address that a machine knows for another.
fn lladdr(peer: &Peer, ip: &str) -> String {
    peer.ip_json(&format!("neigh show {ip}"))[0]["lladdr"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_switch_passes_declared_vlans_has_a_virtual_gateway_and_keeps_customers_apart() {
    let world = World::new("switch");
    let upstream = world.peer("upstream");
    world.cable("swp1", &upstream, "p1");
    world.cable("swp2", &upstream, "p2");
    upstream.bond("802.3ad", &["p1", "p2"]);
    for id in [10, 20, 30] {
        upstream.vlan("bond0", id, &format!("10.0.10.{}/32", 200 + id / 10));
        upstream.ip(&format!("route add 10.0.10.{}/32 dev bond0.{id}", 50 + id / 10));
    }
    let red = world.peer_at("swp3", "red", "10.0.10.51/24");
    let blue = world.peer_at("swp4", "blue", "10.0.10.52/24");
    red.vlan("eth0", 30, "10.0.30.53/24");
    world.apply(include_str!("../../../../examples/hosts/03-vlan-aware-bridge.toml"));
    red.reaches_soon("10.0.10.1");
    blue.reaches_soon("10.0.10.1");
    let gateways = [&red, &blue].map(|host| lladdr(host, "10.0.10.1"));
    assert_eq!(gateways, ["00:00:5e:00:01:01", "00:00:5e:00:01:02"]);
    // VLANs 10 and 20 pass the uplink, and one that is not declared does not.
    red.reaches_soon("10.0.10.201");
    blue.reaches_soon("10.0.10.202");
    assert!(!red.reaches("10.0.10.52") && !blue.reaches("10.0.10.51"), "customers are apart");
    upstream.ip("address add 10.0.30.203/24 dev bond0.30");
    assert!(!red.reaches("10.0.30.203"), "VLAN 30 is not declared");
    // The same address is a host of each customer, and each gateway reaches its own.
    for (vrf, target) in [("red", "10.0.10.51"), ("blue", "10.0.10.52")] {
        world.run(&format!("busybox ping -c 1 -W 5 -I {vrf} {target}"));
    }
}

/// How many frames have come to a link.
fn received(peer: &Peer, link: &str) -> u64 {
    let shown = peer.ip_json(&format!("link show {link}"));
    shown[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

/// Another leaf: an address in each network, right on the tunnel.
fn leaf(world: &World, spine: &Peer, number: u8) -> Peer {
    let leaf = world.peer(&format!("leaf{number}"));
    let (own, port) = (format!("192.0.2.{number}"), format!("l{number}"));
    leaf.ip(&format!("link add eth0 type veth peer name {port}"));
    leaf.ip(&format!("address add {own}/32 dev lo"));
    leaf.ip("link set eth0 up");
    leaf.move_link(&port, spine);
    spine.ip(&format!("link set {port} up"));
    spine.ip(&format!("address add 169.254.{number}.1/24 dev {port}"));
    leaf.ip(&format!("address add 169.254.{number}.2/24 dev eth0"));
    spine.ip(&format!("route add {own} via 169.254.{number}.2"));
    leaf.ip(&format!("route add default via 169.254.{number}.1 src {own}"));
    for (id, vlan) in [(10010, 10), (10020, 20)] {
        let mac = format!("02:00:00:00:{vlan}:{number}");
        let ends = format!("local {own} remote 192.0.2.11 dstport 4789 nolearning");
        leaf.ip(&format!("link add vx{vlan} address {mac} type vxlan id {id} {ends}"));
        leaf.ip(&format!("link set vx{vlan} up"));
        leaf.ip(&format!("address add 10.{vlan}.0.{number}/24 dev vx{vlan}"));
    }
    leaf
}

#[test]
fn frames_of_a_leaf_reach_the_right_leaf_through_the_vxlan_of_their_vlan() {
    let world = World::new("leaf");
    let spine = world.peer_at("swp1", "spine", "198.51.100.0/31");
    spine.run("sysctl -q -w net.ipv4.ip_forward=1");
    spine.ip("route add 192.0.2.11 via 198.51.100.1");
    let [twelve, thirteen] = [12, 13].map(|number| leaf(&world, &spine, number));
    let server = world.peer_at("swp2", "server", "10.10.0.50/24");
    let both = world.peer("both");
    world.cable("swp3", &both, "eth0");
    both.vlan("eth0", 20, "10.20.0.60/24");
    world.apply(include_str!("../../../../examples/hosts/04-evpn-leaf.toml"));
    // What the routing daemon does.
    world.ip("route add 192.0.2.0/24 via 198.51.100.0 src 192.0.2.11 proto bgp");
    server.reaches_soon("10.10.0.12");
    server.reaches_soon("10.10.0.13");
    both.reaches_soon("10.20.0.12");
    assert!(!both.reaches("10.20.0.13"), "no remote end in VLAN 20");
    // The address of leaf 12 is known: nothing of it goes to leaf 13. Each host also sends to all now and then.
    let is_unicast = || {
        let before = [&twelve, &thirteen].map(|leaf| received(leaf, "vx10"));
        for _ in 0..3 {
            server.reaches_soon("10.10.0.12");
        }
        let after = [&twelve, &thirteen].map(|leaf| received(leaf, "vx10"));
        after[0] >= before[0] + 3 && after[1] == before[1]
    };
    assert!((0..10).any(|_| is_unicast()), "leaf 13 gets what is for leaf 12");
    // The VRF routes between both.
    server.ip("route add 10.20.0.0/24 via 10.10.0.1");
    both.ip("route add 10.10.0.0/24 via 10.20.0.1");
    server.reaches_soon("10.20.0.60");
    world.homeostat("verify");
}

#[test]
fn guests_in_any_vlan_pass_the_bridge_of_a_hypervisor_and_keep_what_it_gave_them() {
    let world = World::new("proxmox");
    let switch = world.peer("switch");
    world.cable("eno1", &switch, "p1");
    world.cable("eno2", &switch, "p2");
    switch.bond("802.3ad", &["p1", "p2"]);
    switch.vlan("bond0", 20, "10.20.0.1/24");
    switch.vlan("bond0", 3000, "10.30.0.1/24");
    world.apply(include_str!("../../../../examples/hosts/10-proxmox-host.toml"));
    world.reaches_soon("10.20.0.1");
    // As Proxmox VE starts guests with `tag=20` and `tag=3000`.
    for (link, id, net) in [("tap100i0", 20, 20), ("tap101i0", 3000, 30)] {
        let guest = world.peer_at(link, link, &format!("10.{net}.0.50/24"));
        world.ip(&format!("link set {link} master vmbr0 up"));
        world.run(&format!("bridge vlan del dev {link} vid 1"));
        world.run(&format!("bridge vlan add dev {link} vid {id} pvid untagged"));
        guest.reaches_soon(&format!("10.{net}.0.1"));
        let vlans = world.run(&format!("bridge vlan show dev {link}"));
        world.homeostat("apply --yes");
        assert_eq!(world.run(&format!("bridge vlan show dev {link}")), vlans);
        guest.reaches_soon(&format!("10.{net}.0.1"));
        if id == 20 {
            guest.reaches_soon("10.20.0.11");
        } else {
            assert!(!guest.reaches("10.20.0.11"), "the host is in VLAN 20");
        }
    }
}
