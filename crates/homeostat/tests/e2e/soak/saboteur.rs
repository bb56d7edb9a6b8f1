//! Three saboteurs: one with `ip`, one with `nft` and knobs, one with raw messages. They act at the
//! same time, turn by turn, on everything that is ours and on nothing that is foreign.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use super::dice::Dice;
use super::raw::Raw;
use crate::program::command;
use crate::world::World;

const IP: [&str; 38] = [
    "link del br0",
    "link del vx0",
    "link del port0",
    "link del port1",
    "link del mv0",
    "link set br0 down",
    "link set port0 down",
    "link set port1 down",
    "link set vx0 down",
    "link set mv0 down",
    "link set va mtu 1290",
    "link set br0 mtu 1400",
    "link set vx0 mtu 1200",
    "link set port0 nomaster",
    "link set br0 address 02:00:00:00:0b:66",
    "link set vx0 name vx9",
    "address flush dev br0",
    "address del 10.0.0.1/24 dev va",
    "address del 10.1.0.1/24 dev br0",
    "address del 10.1.0.2/24 dev br0",
    "address del fd00::1/64 dev va",
    "address del 10.2.0.1/24 dev vx0",
    "route del 10.9.0.0/16 proto 76",
    "route del 10.66.0.0/16 proto 76",
    "route flush proto 76",
    "-6 route flush proto 76",
    "route flush table 100 proto 76",
    "route change 10.9.0.0/16 via 10.0.0.66 proto 76",
    "route replace 203.0.113.0/24 via 10.0.0.66 proto bird metric 0",
    "rule del priority 1000 from 10.0.0.0/8 table 100 protocol 76",
    "-6 rule del priority 1001",
    "neighbour del 10.0.0.9 dev va",
    "neighbour replace 10.0.0.9 lladdr 02:00:00:00:00:66 dev va nud permanent protocol bird",
    "neighbour del fd01::9 dev br0",
    "nexthop del id 10",
    "nexthop del id 11",
    "nexthop replace id 10 via 10.1.0.66 dev br0 proto 76",
    "nexthop flush proto 76",
];

const NFT: [&str; 12] = [
    "delete table inet filter",
    "delete table ip nat",
    "flush table inet filter",
    "flush chain inet filter input",
    "insert rule inet filter input accept",
    "add rule inet filter forward drop",
    "add chain inet filter extra",
    "flush set inet filter admins",
    "add element inet filter admins { 10.0.0.66 }",
    "delete element inet filter admins { 10.0.0.2 }",
    "add set inet filter more { type ipv4_addr; }",
    "delete chain ip nat out",
];

const KNOBS: [(&str, &str); 4] = [
    ("net/ipv4/ip_forward", "0"),
    ("net/ipv4/tcp_retries1", "7"),
    ("net/ipv4/tcp_keepalive_time", "900"),
    ("net/ipv4/conf/va/rp_filter", "1"),
];

/// Every act that the first two know, to be done by itself.
pub(super) fn all_acts() -> Vec<(&'static str, String)> {
    let ip = IP.iter().map(|args| ("ip", (*args).to_owned()));
    let nft = NFT.iter().map(|args| ("nft", (*args).to_owned()));
    let knobs = KNOBS
        .iter()
        .map(|(key, value)| ("sysctl", format!("-q -w {}={value}", key.replace('/', "."))));
    ip.chain(nft).chain(knobs).collect()
}

/// Saboteurs at work. They end by themselves.
pub(super) struct Sabotage {
    threads: Vec<JoinHandle<()>>,
    turns: Receiver<()>,
}

impl Sabotage {
    /// Starts them for so many turns.
    pub(super) fn start(_: &World, seed: u64, turns: usize) -> Self {
        let (done, finished) = channel();
        let barrier = Arc::new(Barrier::new(3));
        let acts: [fn(&mut Dice, &Raw); 3] = [with_ip, with_nft_and_knobs, with_messages];
        let start = |(number, act): (u64, fn(&mut Dice, &Raw))| {
            let (barrier, done) = (Arc::clone(&barrier), done.clone());
            let dice = Dice::new(seed * 3 + number);
            // A thread begins in the namespace of the one that starts it.
            std::thread::spawn(move || act_by_turns(act, dice, turns, (&barrier, &done)))
        };
        Sabotage { threads: (0..).zip(acts).map(start).collect(), turns: finished }
    }

    /// Waits until so many acts more were done; false if all were.
    pub(super) fn acts(&self, count: usize) -> bool {
        (0..count).all(|_| self.turns.recv().is_ok())
    }

    /// Waits for their end.
    pub(super) fn end(self) {
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

fn act_by_turns(
    act: fn(&mut Dice, &Raw),
    mut dice: Dice,
    turns: usize,
    (barrier, done): (&Barrier, &Sender<()>),
) {
    let raw = Raw::open();
    for _ in 0..turns {
        barrier.wait();
        act(&mut dice, &raw);
        // Nobody may be counting.
        let _ = done.send(());
    }
}

fn with_ip(dice: &mut Dice, _: &Raw) {
    attempt("ip", dice.pick::<&str>(&IP));
}

fn with_nft_and_knobs(dice: &mut Dice, _: &Raw) {
    if dice.below(2) == 0 {
        let (key, value) = dice.pick(&KNOBS);
        std::fs::write(format!("/proc/sys/{key}"), value).unwrap();
    } else {
        attempt("nft", dice.pick::<&str>(&NFT));
    }
}

fn with_messages(dice: &mut Dice, raw: &Raw) {
    raw.delete_some(dice);
}

/// What it is about may be gone already.
pub(super) fn attempt(program: &str, args: &str) {
    command(program).args(args.split_whitespace()).output().unwrap();
}
