//! Hosts at the edge: tunnels, several providers, a line at home, rented servers.

use crate::world::{World, ask_from};

#[test]
fn everything_but_what_is_nearer_goes_through_the_wireguard_tunnel() {
    const THEIRS: &str = "WhHLZFso/OZFhE7Cf5SGKBIk/kh6tLTWmpc6KTPGG3c=";
    let world = World::new("wireguard");
    let gateway = world.peer_at("eth0", "gateway", "198.51.100.1/24");
    gateway.ip("address add 203.0.113.1/32 dev lo");
    let (_, own) = world.wireguard_key("wg0.key");
    let (file, theirs) = world.wireguard_key("theirs.key");
    gateway.ip("link add wg0 type wireguard");
    let peer = format!("peer {own} allowed-ips 10.8.0.2/32");
    gateway.run(&format!("wg set wg0 listen-port 51820 private-key {file} {peer}"));
    gateway.ip("link set wg0 up");
    gateway.ip("address add 10.8.0.1/24 dev wg0");
    gateway.ip("address add 192.0.2.99/32 dev lo");
    let document = include_str!("../../../../examples/hosts/05-wireguard.toml");
    let document = document.replace("/etc/wireguard/", "").replace(THEIRS, &theirs);
    world.apply(&document);
    world.reaches_soon("10.8.0.1");
    // Far addresses are seen there with the address of the tunnel, near ones with that of the cable.
    gateway.serve("gateway", "0.0.0.0:7");
    assert_eq!(ask_from("0.0.0.0", "192.0.2.99:7"), "gateway 10.8.0.2");
    assert_eq!(ask_from("0.0.0.0", "198.51.100.1:7"), "gateway 198.51.100.7");
    // Without the tunnel at the other end nothing far is reached: it does not leave in the clear.
    gateway.ip("link set wg0 down");
    assert!(!world.reaches("192.0.2.99"));
    world.reaches_soon("198.51.100.1");
}

#[test]
fn a_gateway_in_no_network_of_its_own_is_reached_and_guests_with_routed_addresses_are_too() {
    let world = World::new("rented");
    let router = world.peer("router");
    world.cable("eth0", &router, "eth0");
    world.ip("link set eth0 address 02:00:00:00:00:01");
    for args in [
        "address add 172.31.1.1/32 dev eth0",
        "address add fe80::1/64 dev eth0 nodad",
        "route add 203.0.113.10/32 dev eth0",
        "route add 203.0.113.64/29 via 203.0.113.10 dev eth0 onlink",
        "address add 198.51.100.99/32 dev lo",
        "address add 2001:db8:ffff::1/128 dev lo",
        "-6 route add 2001:db8:1:2::/64 via fe80::ff:fe00:1 dev eth0",
    ] {
        router.ip(args);
    }
    world.apply(include_str!("../../../../examples/hosts/06-hetzner-routed-guests.toml"));
    world.reaches_soon("198.51.100.99");
    let guest = world.peer_at("tap100i0", "guest", "203.0.113.65/32");
    world.ip("link set tap100i0 master vmbr0 up");
    guest.ip("route add default via 203.0.113.10 dev eth0 onlink");
    guest.ip("address add 2001:db8:1:2::65/64 dev eth0 nodad");
    guest.ip("-6 route add default via 2001:db8:1:2::1");
    guest.reaches_soon("198.51.100.99");
    guest.reaches_soon("2001:db8:ffff::1");
    router.reaches_soon("203.0.113.65");
    world.homeostat("verify");
}

#[test]
fn two_providers_are_chosen_by_source_and_by_mark_and_shared_otherwise() {
    const FAR: &str = "203.0.113.9";
    let world = World::new("wans");
    for (link, name, address) in
        [("wan1", "first", "192.0.2.1/24"), ("wan2", "second", "198.51.100.1/24")]
    {
        let provider = world.peer_at(link, name, address);
        provider.ip(&format!("address add {FAR}/32 dev lo"));
        provider.serve(name, "0.0.0.0:25");
        provider.serve(name, "0.0.0.0:80");
    }
    let lan = world.peer_at("lan0", "lan", "10.0.0.2/24");
    lan.ip("route add default via 10.0.0.1");
    world.apply(include_str!("../../../../examples/hosts/07-two-wans.toml"));
    let far = format!("{FAR}:80");
    for _ in 0..4 {
        assert_eq!(ask_from("192.0.2.2", &far), "first 192.0.2.2");
        assert_eq!(ask_from("198.51.100.2", &far), "second 198.51.100.2");
    }
    // Mail goes by the second one, with its address; the rest is shared.
    lan.reaches_soon("10.0.0.1");
    let connect = |port: u16| {
        let answer = lan.connect(&format!("{FAR}:{port}"));
        answer.unwrap_or_else(|| panic!("no answer at port {port}")).words
    };
    for _ in 0..8 {
        assert_eq!(connect(25), "second 198.51.100.2");
    }
    let shared: Vec<String> = (0..40).map(|_| connect(80)).collect();
    let first = shared.iter().filter(|words| *words == "first 192.0.2.2").count();
    let second = shared.iter().filter(|words| *words == "second 198.51.100.2").count();
    assert!(first + second == 40 && first > second && second > 0, "{first} and {second} of 40");
}

#[test]
fn a_router_at_home_hides_the_lan_and_makes_segments_fit_once_the_line_is_up() {
    let world = World::new("home");
    let modem = world.peer("modem");
    world.cable("eth0", &modem, "eth0");
    let lan = world.peer("lan");
    world.cable("eth1", &lan, "eth0");
    lan.ip("address add 192.168.1.10/24 dev eth0");
    lan.ip("route add default via 192.168.1.1");
    // Without the line everything is as declared.
    world.apply(include_str!("../../../../examples/hosts/09-home-router.toml"));
    lan.reaches_soon("192.168.1.1");
    // What pppd does.
    let provider = world.peer_at("ppp0", "provider", "198.51.100.1/32");
    provider.ip("address add 203.0.113.9/32 dev lo");
    provider.ip("route add 198.51.100.7/32 dev eth0");
    world.ip("link set ppp0 mtu 1400 up");
    world.ip("address add 198.51.100.7 peer 198.51.100.1/32 dev ppp0");
    world.ip("route add default dev ppp0");
    world.homeostat("apply --yes");
    world.homeostat("verify");
    provider.serve("far", "0.0.0.0:80");
    lan.reaches_soon("203.0.113.9");
    // Both ways pass the queues.
    for link in ["ppp0", "ifb0"] {
        let queues = world.run(&format!("tc -s qdisc show dev {link} root"));
        assert!(queues.starts_with("qdisc cake "), "{queues}");
        assert!(!queues.contains("Sent 0 bytes"), "nothing passes {link}: {queues}");
    }
    let answer = lan.connect("203.0.113.9:80").unwrap();
    assert_eq!(answer.words, "far 198.51.100.7", "with the address of the line");
    let sockets = provider.run("ss -H -t -n -i state established");
    let segment = sockets.split_whitespace().find_map(|word| word.strip_prefix("mss:"));
    let segment: u32 = segment.unwrap().parse().unwrap();
    assert!(segment <= 1360, "segments of {segment} bytes do not fit: {sockets}");
    // Nothing comes in by itself, from the line or from guests.
    lan.serve("lan", "0.0.0.0:22");
    provider.ip("route add 192.168.1.0/24 dev eth0");
    assert!(provider.connect("192.168.1.10:22").is_none());
    lan.vlan("eth0", 30, "192.168.30.10/24");
    lan.reaches_soon("192.168.30.1");
    assert!(lan.connect("192.168.30.1:22").is_none(), "guests reach names and leases only");
}
