//! Rulesets of every kind: each is applied as `nft` would load it, and each can become any other.

mod headers;

use crate::world::{World, by_hand, expected, listed};

/// Each statement and expression family of nft's manual page that this kernel has.
pub(crate) const CORPUS: &[(&str, &str)] = &[
    ("nothing", ""),
    ("an empty table", "table ip a { }"),
    ("two tables of one name", "table ip a { chain x { accept; }; }\ntable ip6 a { chain x { drop; }; }"),
    ("a dormant table", "table ip a { flags dormant; chain x { type filter hook input priority 0; accept; }; }"),
    ("all hooks of inet", "table inet a {
        chain p { type filter hook prerouting priority raw; }
        chain i { type filter hook input priority filter; policy drop; }
        chain f { type filter hook forward priority filter + 10; policy drop; }
        chain o { type filter hook output priority mangle; policy accept; }
        chain q { type filter hook postrouting priority security; }
    }"),
    ("arp", "table arp a { chain i { type filter hook input priority 0; arp operation request counter; arp saddr ip 10.0.0.1 drop; }; }"),
    ("bridge", "table bridge a { chain f { type filter hook forward priority 0; ether saddr 02:00:00:00:00:01 drop; ether type vlan vlan id 5 accept; }; }"),
    ("netdev", "table netdev a { chain i { type filter hook ingress device lo priority 0; ip saddr 10.0.0.0/8 drop; }; }"),
    ("ip6", "table ip6 a { chain i { type filter hook input priority 0; icmpv6 type { nd-neighbor-solicit, nd-router-advert } accept; ip6 hoplimit 1 drop; exthdr frag exists drop; rt type 0 drop; }; }"),
    ("jumps", "table ip a { chain x { return; }; chain y { jump x; goto z; }; chain z { counter; }; chain i { type filter hook input priority 0; jump y; }; }"),
    ("payloads", "table inet a { chain i { type filter hook input priority 0;
        ip dscp cs1 accept
        ip ttl < 5 drop
        ip frag-off & 0x1fff != 0 counter
        ip protocol { icmp, esp, ah } accept
        ip length 100-200 accept
        udp length > 100 accept
        tcp flags & (fin | syn | rst | ack) == syn counter
        tcp option maxseg size 1-500 drop
        tcp sport != 1024-65535 drop
        icmp type { echo-request, echo-reply } accept
        sctp dport 80 accept
        dccp dport 80 accept
        esp spi 5 accept
        ah spi 5 accept
        comp cpi 5 accept
        @th,0,16 22 accept
        @nh,8,8 0x10 accept
    }; }"),
    ("meta", "table inet a { chain i { type filter hook input priority 0;
        meta iifname \"eth0\" accept
        meta oifname != \"wg*\" accept
        iif lo accept
        meta mark 0x10 accept
        meta mark & 0xff00 == 0x100 accept
        meta skuid 0 accept
        meta skgid { 0, 5 } accept
        meta nfproto ipv4 accept
        meta l4proto { tcp, udp } accept
        meta length > 1500 drop
        meta protocol ip accept
        meta pkttype broadcast drop
        meta cpu 0 accept
        meta iiftype loopback accept
        meta iifgroup 5 accept
        meta priority 1:2 accept
        meta cgroup 5 accept
        meta day \"Monday\" accept
        meta hour \"08:00\"-\"17:00\" accept
        meta time > \"2026-01-01 00:00:00\" accept
    }; }"),
    ("meta set", "table inet a { chain o { type route hook output priority mangle; meta mark set 0x5; meta priority set 0x10001; meta nftrace set 1; }; }"),
    ("ct", "table inet a { chain i { type filter hook input priority 0;
        ct state { established, related } accept
        ct state invalid drop
        ct state vmap { new : continue, untracked : drop }
        ct direction original accept
        ct status dnat accept
        ct mark 5 accept
        ct mark set 7
        ct expiration > 30s accept
        ct helper \"ftp\" accept
        ct original ip saddr 10.0.0.1 accept
        tcp dport 80 ct reply proto-dst 80 accept
        ct bytes > 1000 accept
        ct packets > 10 counter
        ct zone 5 accept
        ct count 5 drop
    }; }"),
    ("ct zone set", "table inet a { chain p { type filter hook prerouting priority raw; ct zone set 3; notrack; }; }"),
    ("counters", "table ip a { counter c { packets 5 bytes 10; }; counter d { comment \"d\"; }; chain i { type filter hook input priority 0; counter; counter packets 7 bytes 9; counter name c; counter name d accept; }; }"),
    ("quotas", "table ip a { quota q { over 100 mbytes; }; quota u { 25 kbytes used 5 kbytes; }; chain i { type filter hook input priority 0; quota name q drop; quota until 10 mbytes accept; }; }"),
    ("limits", "table ip a { limit l { rate 400/minute burst 7 packets; }; limit b { rate over 1 mbytes/second; }; chain i { type filter hook input priority 0; limit name l accept; limit rate 10/second accept; limit rate over 5 mbytes/second burst 2 mbytes drop; }; }"),
    ("logs", "table ip a { chain i { type filter hook input priority 0; log; log prefix \"nft: \" level warn flags all; log group 2 snaplen 256 queue-threshold 5; }; }"),
    ("rejects", "table inet a { chain i { type filter hook input priority 0; reject; tcp dport 1 reject with tcp reset; meta nfproto ipv4 reject with icmp type port-unreachable; meta nfproto ipv6 reject with icmpv6 type admin-prohibited; reject with icmpx type no-route; }; }"),
    ("nat", "table ip a {
        chain pre { type nat hook prerouting priority dstnat; tcp dport 80 dnat to 10.0.0.1:8080; tcp dport 81 dnat to 10.0.0.1-10.0.0.9 random; udp dport 53 redirect to :5353; dnat to tcp dport map { 8000 : 10.0.0.5, 8001 : 10.0.0.6 }; }
        chain post { type nat hook postrouting priority srcnat; ip saddr 10.0.0.0/8 masquerade; tcp dport 9 snat to 192.0.2.1:1000-2000 persistent; snat to ip saddr map { 10.1.1.1 : 192.0.2.7 }; udp dport 9 masquerade to :1024-65535 fully-random; }
    }"),
    ("nat for two families", "table inet a { chain pre { type nat hook prerouting priority dstnat; dnat ip to 10.0.0.1; dnat ip6 to fd00::1; }; }"),
    ("nat by a named map", "table ip a { map m { type inet_service : ipv4_addr . inet_service; elements = { 80 : 10.0.0.1 . 8080, 443 : 10.0.0.2 . 8443 }; }; chain pre { type nat hook prerouting priority dstnat; dnat ip to tcp dport map @m; }; }"),
    ("tproxy", "table ip a { chain p { type filter hook prerouting priority mangle; tcp dport 80 tproxy to 127.0.0.1:8080 meta mark set 1 accept; socket transparent 1 accept; }; }"),
    ("synproxy", "table ip a { synproxy s { mss 1460; wscale 7; timestamp sack-perm; }; chain i { type filter hook input priority 0; tcp dport 80 synproxy name s; tcp dport 81 synproxy mss 1400 wscale 5; }; }"),
    ("ct objects", "table ip a {
        ct helper ftp { type \"ftp\" protocol tcp; }
        ct timeout t { protocol tcp; l3proto ip; policy = { established: 120, close: 20 }; }
        ct expectation e { protocol tcp; dport 9876; timeout 2m; size 12; l3proto ip; }
        chain p { type filter hook prerouting priority filter; tcp dport 21 ct helper set \"ftp\"; tcp dport 22 ct timeout set \"t\"; tcp dport 23 ct expectation set \"e\"; }
    }"),
    ("objects by map", "table ip a { counter x { }; counter y { }; map m { type ipv4_addr : counter; elements = { 10.0.0.1 : \"x\", 10.0.0.2 : \"y\" }; }; chain i { type filter hook input priority 0; counter name ip saddr map @m; counter name tcp dport map { 80 : \"x\", 81 : \"y\" }; }; }"),
    ("sets", "table inet a {
        set v4 { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 }; }
        set v6 { type ipv6_addr; elements = { fd00::1, fd00::2 }; }
        set mac { type ether_addr; elements = { 02:00:00:00:00:01 }; }
        set port { type inet_service; size 1000; elements = { 22, 80, 443 }; }
        set marks { type mark; elements = { 1, 2, 0x500 }; }
        set names { type ifname; elements = { \"eth0\", \"wg0\" }; }
        set proto { type inet_proto; policy memory; elements = { tcp, udp }; }
        set some { typeof ip daddr; comment \"by example\"; elements = { 10.9.9.9 comment \"nine\" }; }
        chain i { type filter hook input priority 0; ip saddr @v4 accept; ip6 saddr @v6 accept; ether saddr @mac accept; tcp dport @port accept; meta mark @marks accept; iifname @names accept; meta l4proto @proto accept; ip daddr != @some drop; }
    }"),
    ("intervals", "table inet a {
        set v4 { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 172.16.0.0-172.16.0.9, 192.168.1.1 }; }
        set every { type ipv4_addr; flags interval; elements = { 0.0.0.0/1, 128.0.0.0/1 }; }
        set top { type inet_service; flags interval; elements = { 1-5, 6-9, 60000-65535 }; }
        set merged { type ipv4_addr; flags interval; auto-merge; elements = { 10.0.0.0/24, 10.0.1.0/24, 10.0.5.0 }; }
        set v6 { type ipv6_addr; flags interval; elements = { fd00::/8, 2001:db8::/32 }; }
        set marks { type mark; flags interval; elements = { 1-5, 0x100-0x1ff }; }
        chain i { type filter hook input priority 0; ip saddr @v4 accept; ip saddr @every counter; tcp dport @top accept; ip saddr @merged drop; ip6 saddr @v6 accept; meta mark @marks accept; tcp dport { 1-1024, 8080 } accept; }
    }"),
    ("concatenations", "table inet a {
        set c { type ipv4_addr . inet_service; elements = { 10.0.0.1 . 80, 10.0.0.2 . 443 }; }
        set r { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/8 . 80, 192.168.0.1-192.168.0.7 . 1000-2000 }; }
        set three { typeof iifname . ip saddr . tcp dport; elements = { \"eth0\" . 10.0.0.1 . 22 }; }
        map m { type ipv4_addr . inet_service : verdict; flags interval; elements = { 10.0.0.0/8 . 80 : accept, 10.1.0.0/16 . 81 : drop }; }
        chain i { type filter hook input priority 0; ip saddr . tcp dport @c accept; ip saddr . tcp dport @r accept; iifname . ip saddr . tcp dport @three accept; ip daddr . tcp dport vmap @m; ip saddr . tcp dport { 10.0.0.1 . 22, 10.0.0.2 . 23 } accept; ip saddr . tcp dport vmap { 10.0.0.1 . 22 : accept }; }
    }"),
    ("maps", "table inet a {
        map marks { type ipv4_addr : mark; elements = { 10.0.0.1 : 1, 10.0.0.2 : 2 }; }
        map v { type inet_service : verdict; elements = { 22 : accept, 23 : drop, 24 : jump x, 25 : goto y, 26 : continue, 27 : return }; }
        map range { type ipv4_addr : mark; flags interval; elements = { 10.0.0.0/8 : 5, 192.168.0.0/16 : 6 }; }
        map nat { type inet_service : ipv4_addr; flags interval; elements = { 1-10 : 10.0.0.1 }; }
        chain x { counter; }
        chain y { counter; }
        chain i { type filter hook input priority 0; meta mark set ip saddr map @marks; tcp dport vmap @v; meta mark set ip saddr map @range; ct mark set tcp dport map { 1 : 5, 2 : 6 }; ip saddr vmap { 10.0.0.0/8 : jump x, 192.168.0.0/16 : goto y }; }
    }"),
    ("catch-all elements", "table ip a { map m { type ipv4_addr : mark; elements = { 10.0.0.1 : 1, * : 9 }; }; set s { type ipv4_addr; flags interval; counter; elements = { 10.0.0.0/8, * }; }; chain i { type filter hook input priority 0; meta mark set ip saddr map @m; ip saddr @s drop; }; }"),
    ("elements that count", "table ip a { set s { type ipv4_addr; counter; elements = { 10.0.0.1 counter packets 5 bytes 7, 10.0.0.2 }; }; map m { type inet_service : verdict; counter; elements = { 22 : accept }; }; chain i { type filter hook input priority 0; ip saddr @s accept; tcp dport vmap @m; }; }"),
    ("timeouts", "table ip a { set s { type ipv4_addr; timeout 1h; gc-interval 5m; elements = { 10.0.0.1 timeout 2h, 10.0.0.2 }; }; set f { type ipv4_addr; flags timeout; elements = { 10.0.0.3, 10.0.0.4 timeout 1d }; }; }"),
    ("dynamic sets", "table ip a {
        set d { type ipv4_addr; flags dynamic, timeout; timeout 5m; size 128; }
        set l { type ipv4_addr; flags dynamic; size 65535; limit rate over 10/second; }
        map m { type ipv4_addr : inet_service; flags dynamic; size 100; }
        chain i { type filter hook input priority 0; add @d { ip saddr timeout 10s }; update @d { ip saddr counter }; add @l { ip saddr limit rate over 10/second } drop; update @m { ip saddr : tcp dport }; delete @d { ip daddr }; ip saddr @d drop; }
    }"),
    ("meters", "table ip a { chain i { type filter hook input priority 0; tcp dport 22 meter ssh { ip saddr timeout 1m limit rate 3/minute } accept; ct state new meter many { ip saddr ct count over 20 } drop; }; }"),
    ("rules inside", "table inet a { chain i { type filter hook input priority 0; iifname \"eth0\" jump { tcp dport 22 accept; ip saddr { 10.0.0.1, 10.0.0.2 } counter drop; tcp dport { 1, 2 } counter; counter; }; goto { log; drop; }; }; }"),
    ("comments", "table ip a { comment \"a table\"; chain x { comment \"a chain\"; accept comment \"a rule\"; }; set s { type ipv4_addr; comment \"a set\"; elements = { 10.0.0.1 comment \"an element\" }; }; }"),
    ("fib", "table inet a { chain p { type filter hook prerouting priority raw; fib saddr . iif oif missing drop; fib daddr type { local, broadcast } accept; fib daddr . mark oif exists accept; }; }"),
    ("routing", "table inet a { chain o { type filter hook output priority 0; rt ip nexthop 10.0.0.1 accept; rt classid 5 accept; rt ip6 nexthop fd00::1 accept; rt mtu > 1000 counter; }; }"),
    ("tcp options are set", "table inet a { chain f { type filter hook forward priority mangle; tcp flags syn tcp option maxseg size set rt mtu; tcp option maxseg size set 1400; reset tcp option sack-perm; }; }"),
    ("payloads are set", "table ip a { chain o { type filter hook output priority mangle; ip dscp set cs3; ip ttl set 64; tcp dport set 8080; ip daddr set 10.0.0.1; }; }"),
    ("dup and forward", "table netdev a { chain i { type filter hook ingress device lo priority 0; ip saddr 10.0.0.1 dup to lo; ip saddr 10.0.0.2 fwd to lo; }; }\ntable ip b { chain p { type filter hook prerouting priority mangle; dup to 10.0.0.9 device lo; }; }"),
    ("numbers", "table ip a { chain p { type nat hook prerouting priority dstnat; dnat to numgen inc mod 2 map { 0 : 10.0.0.1, 1 : 10.0.0.2 }; dnat to jhash ip saddr mod 2 seed 0xabcd map { 0 : 10.0.0.1, 1 : 10.0.0.2 }; meta mark set symhash mod 4; meta mark set numgen random mod 10 offset 5; }; }"),
    ("defines", "define nets = { 10.0.0.0/8, 192.168.0.0/16 }\ndefine ssh = 22\ntable ip a { chain i { type filter hook input priority 0; ip saddr $nets tcp dport $ssh accept; }; }"),
    ("commands", "add table ip a\nadd chain ip a x\nadd chain ip a i { type filter hook input priority 0; }\nadd rule ip a i counter\ninsert rule ip a i tcp dport 22 accept\nadd rule ip a i jump x\nadd set ip a s { type ipv4_addr; }\nadd element ip a s { 10.0.0.1 }"),
    ("commands that undo", "table ip a { chain x { accept; }; }\ndelete table ip a\ntable ip a { chain y { drop; }; }\nflush chain ip a y"),
    ("osf and sockets", "table inet a { chain i { type filter hook input priority 0; socket mark 5 accept; socket wildcard 0 accept; tcp flags syn osf name \"Linux\" accept; }; }"),
    ("secmark and ipsec", "table inet a { chain i { type filter hook input priority 0; ipsec in reqid 5 accept; ipsec in ip saddr 10.0.0.1 accept; meta ipsec exists accept; }; }"),
    ("protocols", "table ip a { chain i { type filter hook input priority 0; ip protocol tcp accept; }; }"),
    ("many equal rules", "table ip a { chain i { type filter hook input priority 0; counter; counter; counter; tcp dport 22 accept; counter; tcp dport 22 accept; }; }"),
    ("odd names", "table ip a-b_c.d { chain x-1.y/z { accept; }; set s.1 { type ipv4_addr; elements = { 10.0.0.1 }; }; }"),
    ("ingress of inet", "table inet a { chain i { type filter hook ingress device lo priority -10; policy accept; tcp dport 22 counter; }; }"),
    ("egress", "table netdev a { chain e { type filter hook egress device lo priority 0; udp dport 53 counter; }; }"),
    ("vlans", "table bridge a { chain f { type filter hook forward priority 0; vlan id 10 vlan pcp 3 counter; ether type arp arp operation reply drop; }; }"),
    ("masks", "table ip a { chain i { type filter hook input priority 0; ip saddr & 255.255.0.0 == 10.1.0.0 accept; ct mark and 0xff == 1 accept; meta mark set meta mark or 0x1 ; ct mark set ct mark and 0xffffff00 xor 0x5; ip daddr != { 10.0.0.1, 10.0.0.2 } drop; }; }"),
    ("a firewall of Debian's", "#!/usr/sbin/nft -f\n\nflush ruleset\n\ntable inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter;\n\t}\n\tchain forward {\n\t\ttype filter hook forward priority filter;\n\t}\n\tchain output {\n\t\ttype filter hook output priority filter;\n\t}\n}"),
    ("a router's", "table inet fw {
        set lan { type ifname; elements = { \"lan0\", \"lan1\" }; }
        set blocked { type ipv4_addr; flags interval, timeout; elements = { 203.0.113.0/24 timeout 1d }; }
        map forward { type inet_service : ipv4_addr . inet_service; elements = { 8080 : 10.0.0.80 . 80 }; }
        chain input { type filter hook input priority filter; policy drop; ct state vmap { established : accept, related : accept, invalid : drop }; iifname lo accept; iifname @lan tcp dport { 22, 53 } accept; iifname @lan udp dport { 53, 67 } accept; ip saddr @blocked drop; icmp type echo-request limit rate 5/second accept; counter comment \"dropped\"; }
        chain forward { type filter hook forward priority filter; policy drop; ct state established,related accept; iifname @lan oifname \"wan0\" accept; ct status dnat accept; }
        chain pre { type nat hook prerouting priority dstnat; iifname \"wan0\" dnat ip to tcp dport map @forward; }
        chain post { type nat hook postrouting priority srcnat; oifname \"wan0\" masquerade; }
    }"),
];

/// All rulesets.
pub(crate) fn corpus() -> Vec<(&'static str, &'static str)> {
    [CORPUS, headers::MORE].concat()
}

#[test]
fn there_are_rulesets_of_many_kinds() {
    let names: std::collections::BTreeSet<_> = corpus().iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), corpus().len());
    assert!(names.len() >= 60, "{}", names.len());
}

/// All of them, if `nft` itself takes them.
pub(crate) fn taken() -> Vec<(&'static str, &'static str)> {
    let refused = |text: &'static str| {
        let tried = std::thread::spawn(move || {
            let _namespace = homeostat_testkit::namespace::Namespace::enter().unwrap();
            crate::world::nft(&["-f", "-"], text)
        });
        tried.join().unwrap().err()
    };
    let mut taken = Vec::new();
    for (name, text) in corpus() {
        match refused(text) {
            None => taken.push((name, text)),
            Some(words) => panic!("nft refuses {name}: {words}"),
        }
    }
    taken
}

/// Runs a check on a thread of its own, and says if it failed.
pub(crate) fn failed(name: String, check: impl FnOnce() + Send + 'static) -> Option<String> {
    std::thread::spawn(check).join().err().map(|_| name)
}

#[test]
fn every_ruleset_is_as_nft_would_have_loaded_it() {
    let taken = taken();
    let check = |(name, text): (&'static str, &'static str)| {
        failed(name.to_owned(), move || {
            let mut world = World::new();
            world.converge(text);
            assert_eq!(listed(), expected(text), "{name}");
        })
    };
    let failed: Vec<String> = taken.into_iter().filter_map(check).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

/// A pseudo-random sequence, the same at each run.
pub(crate) fn pairs(count: usize) -> Vec<(usize, usize)> {
    let (mut state, len) = (0x2545_f491_4f6c_dd1d_u64, corpus().len() as u64);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % len).unwrap()
    };
    (0..count).map(|_| (next(), next())).collect()
}

#[test]
fn every_ruleset_becomes_any_other_in_one_pass_and_strangers_stay() {
    const STRANGER: &str = "table ip stranger { chain x { counter packets 7 bytes 8; }; }";
    let all = corpus();
    let check = |(from, to): (usize, usize)| {
        let ((from_name, from), (to_name, to)) = (all[from], all[to]);
        failed(format!("from {from_name} to {to_name}"), move || {
            let mut world = World::new();
            by_hand(STRANGER);
            world.converge(from);
            world.converge(to);
            let text = to.replace("flush ruleset", "");
            assert_eq!(listed(), expected(&format!("{STRANGER}\n{text}")));
        })
    };
    let count = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 300 } else { 30 };
    let failed: Vec<String> = pairs(count).into_iter().filter_map(check).collect();
    assert!(failed.is_empty(), "{failed:?}");
}
