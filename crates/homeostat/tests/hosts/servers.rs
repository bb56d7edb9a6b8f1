//! Servers: nodes of a cluster, anycast, large packets.

use std::fs;

use crate::world::World;

#[test]
fn bridged_packets_of_pods_pass_the_firewall_of_a_kubernetes_node() {
    let world = World::whole("node");
    let switch = world.peer_at("eth0", "switch", "192.0.2.1/24");
    world.apply(include_str!("../../../../examples/hosts/08-kubernetes-node.toml"));
    switch.reaches_soon("192.0.2.21");
    for (key, value) in [
        ("vm/overcommit_memory", "1"),
        ("kernel/panic", "10"),
        ("fs/inotify/max_user_watches", "524288"),
        ("net/ipv4/neigh/default/gc_thresh3", "65536"),
    ] {
        assert_eq!(fs::read_to_string(format!("/proc/sys/{key}")).unwrap().trim(), value, "{key}");
    }
    let pages = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap();
    assert!(pages.contains("[madvise]"), "{pages}");
    assert!(fs::read_to_string("/proc/filesystems").unwrap().contains("overlay"));
    // What a CNI plugin makes: a bridge with two pods, and rules of the service proxy.
    world.ip("link add br0 type bridge");
    world.ip("link set br0 up");
    let one = world.peer_at("pod1", "pod1", "10.244.0.2/24");
    let _two = world.peer_at("pod2", "pod2", "10.244.0.3/24");
    for link in ["pod1", "pod2"] {
        world.ip(&format!("link set {link} master br0 up"));
    }
    one.reaches_soon("10.244.0.3");
    world.run("nft add table ip proxy");
    world.run("nft add chain ip proxy forward { type filter hook forward priority 0 ; }");
    world.run("nft add rule ip proxy forward ip daddr 10.244.0.3 drop");
    assert!(!one.reaches("10.244.0.3"), "bridged packets pass the rules");
    world.homeostat("verify");
    world.run("nft delete table ip proxy");
}

#[test]
fn the_address_of_an_anycast_service_answers_through_the_router_and_the_rest_does_not() {
    let world = World::new("anycast");
    let router = world.peer_at("eth0", "router", "198.51.100.8/31");
    let client = world.peer("client");
    client.ip("link add eth0 type veth peer name c0");
    client.move_link("c0", &router);
    for args in ["link set c0 up", "address add 203.0.113.1/24 dev c0"] {
        router.ip(args);
    }
    router.run("sysctl -q -w net.ipv4.ip_forward=1");
    client.ip("link set eth0 up");
    client.ip("address add 203.0.113.2/24 dev eth0");
    client.ip("route add default via 203.0.113.1");
    let daemon = world.keep(include_str!("../../../../examples/hosts/11-anycast.toml"));
    let addresses = || world.ip_json("address show dev dummy0")[0]["addr_info"].clone();
    let is_there = |ip: &str| {
        let addresses = addresses();
        addresses.as_array().unwrap().iter().any(|address| address["local"] == ip)
    };
    assert!(!is_there("192.0.2.53"), "nobody serves yet: {}", addresses());
    let service = world.service("127.0.0.1:53");
    world.until("the addresses", || is_there("192.0.2.53") && is_there("2001:db8::53"));
    // What BIRD does on both sides.
    router.ip("route add 192.0.2.53/32 via 198.51.100.9 proto bird");
    world.ip("route add default via 198.51.100.8 proto bird");
    client.reaches_soon("192.0.2.53");
    world.serve("here", "192.0.2.53:53");
    world.serve("here", "192.0.2.53:80");
    assert_eq!(client.connect("192.0.2.53:53").unwrap().words, "here 203.0.113.2");
    assert!(client.connect("192.0.2.53:80").is_none(), "the firewall lets the service in only");
    assert_eq!(world.ip_json("route show default")[0]["protocol"], "bird", "it is BIRD's");
    // The service dies, and the address leaves.
    drop(service);
    world.until("no addresses", || !is_there("192.0.2.53") && !is_there("2001:db8::53"));
    assert!(!client.reaches("192.0.2.53"));
    drop(daemon);
}

#[test]
fn large_packets_pass_a_tuned_server_and_its_limits_are_set() {
    let world = World::whole("tuned");
    let switch = world.peer_at("enp1s0", "switch", "192.0.2.1/24");
    switch.ip("link set eth0 mtu 9000");
    world.ip("link set enp1s0 address 02:00:00:00:00:31");
    world.apply(include_str!("../../../../examples/hosts/12-tuned-server.toml"));
    let eth0 = &world.ip_json("link show eth0")[0];
    assert_eq!((&eth0["mtu"], &eth0["txqlen"]), (&9000.into(), &10000.into()));
    switch.reaches_soon("192.0.2.31");
    let fragments = || {
        let shown = fs::read_to_string("/proc/net/snmp").unwrap();
        let line = shown.lines().filter(|line| line.starts_with("Ip:")).nth(1).unwrap().to_owned();
        line.split_whitespace().last().unwrap().parse::<u64>().unwrap()
    };
    let before = fragments();
    world.run("busybox ping -c 3 -s 8000 192.0.2.1");
    assert_eq!(fragments(), before, "whole packets");
    for (key, value) in [
        ("net/ipv4/tcp_rmem", "4096\t131072\t67108864"),
        ("net/core/rmem_max", "67108864"),
        ("net/ipv4/ip_local_port_range", "10240\t65535"),
    ] {
        assert_eq!(fs::read_to_string(format!("/proc/sys/{key}")).unwrap().trim(), value, "{key}");
    }
    assert_eq!(world.ip_json("route show default")[0]["metrics"][0]["mtu"], 1500);
    let queues = world.run("tc qdisc show dev eth0 root");
    assert!(queues.starts_with("qdisc fq "), "{queues}");
    let features = world.run("ethtool -k eth0");
    for on in ["tcp-segmentation-offload: on", "generic-receive-offload: on"] {
        assert!(features.contains(on), "{on}: {features}");
    }
    let names = fs::read_to_string("/etc/resolv.conf").unwrap();
    assert!(
        names.contains("nameserver 192.0.2.1\n") && names.contains("search example.net"),
        "{names}"
    );
}
