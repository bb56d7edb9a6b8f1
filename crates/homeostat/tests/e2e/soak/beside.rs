//! Foreign objects of every kind, beside ours and on the same links.

use crate::keeping::until;
use crate::program::{command, output};
use crate::world::World;

/// Somebody else's work. `va` is theirs, but the document declares some of what is on it.
const WORK: &str = "\
link set lo up
link add va address 02:00:00:00:0e:00 type veth peer name vb address 02:00:00:00:0e:01
link set va up
link set vb up
link add f0 address 02:00:00:00:0f:00 type veth peer name f1 address 02:00:00:00:0f:01
link set f0 up alias theirs
link set f1 up
address add 172.16.0.1/24 dev va
address add 172.18.0.1/24 dev f0
address add 172.18.0.2/24 dev f0
address add fdf0::1/64 dev f0
route add 172.17.0.0/16 via 172.16.0.9 proto bird
route add 172.19.0.0/16 via 172.18.0.9 proto bird table 100
route add 10.9.0.0/16 via 172.16.0.9 proto bird metric 50
route add fdf1::/48 via fdf0::9 proto bird
nexthop add id 900 via 172.16.0.9 dev va proto bird
route add 172.20.0.0/16 nhid 900 proto bird
rule add from 172.16.0.0/12 table 200 priority 900 protocol bird
rule add from 10.0.0.0/9 table 201 priority 1000 protocol bird
neighbour add 172.16.0.9 lladdr 02:00:00:00:00:99 dev va nud permanent
neighbour add 172.18.0.9 lladdr 02:00:00:00:00:98 dev f0 nud permanent protocol bird
";

const FIREWALL: &str = "\
table ip stranger {
    set known {
        type ipv4_addr
        elements = { 192.0.2.1, 192.0.2.2 }
    }
    chain input {
        type filter hook input priority 10; policy accept;
        ip saddr @known counter packets 7 bytes 700 accept
    }
}
";

/// The ways to ask for what is foreign, and only for that.
const QUESTIONS: [&str; 12] = [
    "-j -d link show f0",
    "-j -d link show f1",
    "-j -d address show f0",
    "-d -o address show va to 172.16.0.0/16",
    "-j -d route show table all proto bird",
    "-j -d -6 route show table all proto bird",
    "-j -d route show table all dev f0",
    "-j -d rule show priority 900",
    "-j -d rule show priority 1000 table 201",
    "-j -d neighbour show dev f0 nud permanent",
    "-j -d neighbour show 172.16.0.9 nud permanent",
    "-j -d nexthop show id 900",
];

/// Puts all of it there.
pub(super) fn put(world: &World) {
    // Nothing comes by itself and late.
    for (key, value) in [("addr_gen_mode", "1"), ("accept_dad", "0")] {
        world.meddle(&format!("net/ipv6/conf/default/{key}"), value);
    }
    world.write("theirs", WORK);
    world.ip("-batch theirs");
    world.write("theirs.nft", FIREWALL);
    nft(world, "-f theirs.nft");
    world.meddle("net/ipv4/tcp_retries2", "9");
    for link in ["va", "vb", "f0", "f1"] {
        until(link, || world.ip(&format!("link show {link}")).contains("state UP"));
    }
}

/// Everything foreign, as `ip`, `nft` and the kernel report it.
pub(super) fn foreign_state(world: &World) -> Vec<String> {
    let mut state =
        QUESTIONS.map(|question| format!("{question}: {}", world.ip(question))).to_vec();
    state.push(nft(world, "-j list table ip stranger"));
    state.push(world.knob("net/ipv4/tcp_retries2"));
    state
}

/// Runs `nft`.
pub(super) fn nft(world: &World, args: &str) -> String {
    let mut nft = command("nft");
    nft.current_dir(world.path()).args(args.split_whitespace());
    output(nft)
}
