//! Rulesets by header, option and statement, beyond what a firewall has every day.

/// Each with a name for failures.
pub(super) const MORE: &[(&str, &str)] = &[
    (
        "more transport headers",
        "table inet a { chain i { type filter hook input priority 0; th dport 53 accept; udplite dport 5 accept; udp checksum 0 counter; tcp window > 1000 counter; tcp urgptr 0 counter; tcp sequence 5 counter; tcp ackseq 6 counter; tcp doff 8 counter; }; }",
    ),
    (
        "ip headers",
        "table ip a { chain i { type filter hook input priority 0; ip version 4 counter; ip hdrlength 5 counter; ip ecn ce counter; ip id 7 counter; ip checksum 5 counter; igmp type membership-query counter; ip option rr exists counter; ip option lsrr type 1 drop; }; }",
    ),
    (
        "ip6 headers",
        "table ip6 a { chain i { type filter hook input priority 0; ip6 dscp af11 counter; ip6 ecn ect0 counter; ip6 flowlabel 5 counter; ip6 length > 10 counter; ip6 nexthdr tcp counter; ip6 version 6 counter; hbh nexthdr tcp counter; dst hdrlength 1 counter; mh type 5 counter; frag more-fragments 1 drop; exthdr hbh exists drop; rt0 addr[1] fd00::1 drop; icmpv6 code 1 drop; icmpv6 mtu 1280 counter; }; }",
    ),
    (
        "tcp options and sctp chunks",
        "table inet a { chain i { type filter hook input priority 0; tcp option sack-perm exists counter; tcp option window count 7 counter; tcp option timestamp tsval 5 counter; tcp option sack left 5 counter; tcp option fastopen exists counter; tcp option 42 exists counter; tcp option @42,16,8 5 counter; sctp chunk init exists counter; sctp chunk data flags 2 counter; }; }",
    ),
    (
        "arp headers",
        "table arp a { chain o { type filter hook output priority 0; arp htype 1 counter; arp ptype ip counter; arp hlen 6 counter; arp plen 4 counter; arp daddr ether 02:00:00:00:00:01 drop; arp operation { request, reply } counter; }; }",
    ),
    (
        "icmp",
        "table ip a { chain i { type filter hook input priority 0; icmp code 1 counter; icmp id 5 counter; icmp sequence 6 counter; icmp mtu 1500 counter; icmp gateway 1 counter; }; }",
    ),
    (
        "more of ct",
        "table inet a { chain i { type filter hook input priority 0; ct l3proto ipv4 counter; ct protocol tcp counter; ct label 5 counter; ct id 7 counter; ct avgpkt > 100 counter; ct original packets > 5 counter; ct reply bytes > 9 counter; ct event set new,destroy; ct label set 7; ct original zone 5 counter; }; }",
    ),
    (
        "sets by example",
        "table inet a { set s { typeof ip saddr . tcp dport; flags interval; counter; elements = { 10.0.0.0/8 . 1-5 counter packets 1 bytes 2, 11.0.0.0/8 . 7 }; }; map m { typeof ip saddr . meta mark : ip daddr; elements = { 10.0.0.1 . 5 : 10.0.0.2 }; }; set v { typeof vlan id; elements = { 5, 6 }; }; set d { typeof ct mark; elements = { 7 }; }; chain i { type filter hook input priority 0; ip saddr . tcp dport @s accept; ct mark @d drop; }; }",
    ),
    (
        "maps of concatenations and prefixes",
        "table ip a { map m { type ipv4_addr . inet_service : ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/8 . 1-5 : 10.0.0.1 . 80, 11.0.0.1 . 7 : 10.0.0.2 . 81 }; }; map p { type ipv4_addr : interval ipv4_addr; flags interval; elements = { 10.0.0.0/24 : 10.1.0.0/24 }; }; chain p { type nat hook prerouting priority dstnat; dnat ip to ip daddr . tcp dport map @m; }; chain q { type nat hook postrouting priority srcnat; snat ip prefix to ip saddr map @p; }; }",
    ),
    (
        "nat for ip6",
        "table ip6 a { chain p { type nat hook prerouting priority dstnat; tcp dport 80 dnat to [fd00::1]:8080; udp dport 53 redirect to :53; ip6 daddr fd00::5 dnat to fd00::6-fd00::9; }; chain q { type nat hook postrouting priority srcnat; masquerade random,persistent; snat to fd00::7; }; chain o { type nat hook output priority -100; dnat to fd00::8; }; chain i { type nat hook input priority 100; snat to fd00::9; }; }",
    ),
    (
        "tproxy for both families",
        "table inet a { chain p { type filter hook prerouting priority mangle; meta nfproto ipv6 tcp dport 80 tproxy ip6 to [::1]:8080; meta nfproto ipv4 udp dport 53 tproxy ip to :5300; tcp dport 443 tproxy to :4430 accept; }; }",
    ),
    (
        "helpers by map",
        r#"table ip a { ct helper sip { type "sip" protocol udp; l3proto ip; }; ct helper tftp { type "tftp" protocol udp; }; ct timeout u { protocol udp; l3proto ip; policy = { unreplied : 5, replied : 60 }; }; chain p { type filter hook prerouting priority 0; udp dport 53 ct timeout set "u"; ct helper set udp dport map { 1 : "sip", 2 : "tftp" }; }; }"#,
    ),
    (
        "more objects by map",
        r#"table ip a { quota q { over 5 mbytes used 1 kbytes; }; limit l { rate 5/hour; }; synproxy y { mss 1400; wscale 8; }; map mq { type ipv4_addr : quota; elements = { 10.0.0.1 : "q" }; }; map ml { type ipv4_addr : limit; elements = { 10.0.0.1 : "l" }; }; map my { type ipv4_addr : synproxy; elements = { 10.0.0.1 : "y" }; }; chain i { type filter hook input priority 0; quota name ip saddr map @mq drop; limit name ip saddr map @ml accept; synproxy name ip saddr map @my; }; }"#,
    ),
    (
        "dynamic sets with declared elements",
        r#"table ip a { set s { type ipv4_addr; flags dynamic, timeout; timeout 1m; size 500; elements = { 10.0.0.1 timeout 1h, 10.0.0.2 timeout 1d comment "kept" }; }; set q { type ipv4_addr; size 100; quota over 1 mbytes; flags dynamic; }; set c { type ipv4_addr . inet_service; flags dynamic; size 9; ct count over 5; }; chain i { type filter hook input priority 0; update @s { ip saddr timeout 5m limit rate 5/second burst 9 packets } accept; add @q { ip saddr quota over 1 mbytes } drop; add @c { ip saddr . tcp dport ct count over 5 } drop; set update ip saddr timeout 3s @s; }; }"#,
    ),
    (
        "logs of all kinds",
        r#"table ip a { chain i { type filter hook input priority 0; log prefix "a" group 5 queue-threshold 3; log level debug flags tcp sequence,options; log flags ip options; log flags skuid; log flags ether; log level audit; log prefix "x" level emerg counter log; }; }"#,
    ),
    (
        "rates and quotas",
        "table ip a { chain i { type filter hook input priority 0; limit rate 5/day burst 2 packets; limit rate over 400 kbytes/minute; limit rate 1 bytes/week; limit rate over 9/hour burst 5 packets drop; quota 5 bytes; quota over 7 kbytes used 2 bytes drop; counter packets 4 bytes 5 quota 9 mbytes limit rate 1/second; ct count over 9 reject with tcp reset; }; }",
    ),
    (
        "forwarding at ingress",
        "table netdev a { chain i { type filter hook ingress device lo priority -500; policy drop; meta protocol arp accept; vlan id 5 accept; ether type ip6 ip6 saddr fd00::1 fwd ip6 to fd00::2 device lo; ip saddr 10.0.0.1 fwd ip to 10.0.0.2 device lo; meta mark set 7; }; }",
    ),
    (
        "verdicts by ranges and concatenations",
        r#"table inet a { chain i { type filter hook input priority 0; tcp dport vmap { 22 : goto s, 80-90 : jump w, 443 : continue, 9 : return }; ip protocol . th dport vmap { tcp . 22 : accept, udp . 53-54 : drop }; iifname vmap { "lo" : accept, "eth*" : jump w }; ct state . ct direction { new . original, established . reply } accept; meta mark { 1-5, 9 } drop; ip saddr . ip daddr . tcp dport { 10.0.0.0/8 . 11.0.0.0/8 . 5 } accept; }; chain s { }; chain w { }; }"#,
    ),
    (
        "values by map",
        "table inet a { chain i { type filter hook input priority filter - 5; meta mark set ct mark; ct mark set meta mark; meta mark set tcp dport map { 1 : 0x10, 2-9 : 0x20 }; meta mark set jhash ip saddr . tcp sport mod 7 offset 3; meta mark set ip dscp map { cs0 : 1, cs1 : 2 }; meta priority set ip dscp map { cs0 : 1:1, cs1 : 1:2 }; ether saddr set 02:00:00:00:00:09; ip ecn set ce; tcp option timestamp tsval set 1; udp checksum set 0; }; }",
    ),
    (
        "more of meta",
        r#"table inet a { chain i { type filter hook input priority 0; meta random 5 counter; meta rtclassid 7 counter; meta oifgroup 5 counter; meta oiftype ether counter; meta sdif 1 counter; meta sdifname "x" counter; meta iifkind "vrf" counter; meta oifkind "bridge" counter; }; }"#,
    ),
    (
        "bridge headers",
        "table bridge a { chain p { type filter hook prerouting priority dstnat; ether daddr 02:00:00:00:00:02 counter; }; chain c { type filter hook output priority 0; vlan id 1-5 counter; vlan dei 1 counter; vlan type ip counter; ip saddr 10.0.0.1 counter; }; }",
    ),
];
