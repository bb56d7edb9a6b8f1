//! A second namespace behind a veth that sends real packets, and what the rules counted of them.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant};

use homeostat_netns::Netns;
use serde_json::Value;

use crate::world::{World, by_hand, ip_here, nft};

/// Receives every packet of the other side, whatever our own tables do with it.
const TALLY: &str = "table ip tally { counter seen { }; chain i { type filter hook prerouting \
    priority raw; udp dport 9999 counter name seen; }; }";

/// Of the side that receives.
const ADDRESS: &str = "02:00:00:00:00:01";

/// However busy the machine is, what takes longer does not come.
const PATIENCE: Duration = Duration::from_mins(1);

/// The other side of a veth.
pub(crate) struct Sender {
    netns: Netns,
}

impl Sender {
    /// Wires the world to a namespace of its own.
    pub(crate) fn beside(world: &World) -> Self {
        let netns = Netns::anonymous().unwrap();
        let fd = netns.as_fd().as_raw_fd();
        let path = format!("/proc/{}/fd/{fd}", std::process::id());
        let ip = |words: &str| {
            world.namespace.ip(&words.split(' ').collect::<Vec<_>>()).unwrap();
        };
        ip(&format!("link add v0 address {ADDRESS} type veth peer name v1"));
        ip("address add 10.9.0.1/24 dev v0");
        ip("link set v0 up");
        ip(&format!("link set v1 netns {path}"));
        netns
            .run(|| {
                ip_here("address add 10.9.0.2/24 dev v1");
                ip_here("link set v1 up");
                // Nothing waits for an answer about the neighbour, and no packet is lost over it.
                ip_here(&format!("neighbour add 10.9.0.1 lladdr {ADDRESS} dev v1 nud permanent"));
            })
            .unwrap();
        by_hand(TALLY);
        Sender { netns }
    }

    /// Sends packets and waits until all of them were seen.
    pub(crate) fn send(&self, packets: u64) {
        let before = seen();
        self.netns
            .run(|| {
                let socket = UdpSocket::bind("10.9.0.2:0").unwrap();
                for _ in 0..packets {
                    socket.send_to(b"x", "10.9.0.1:9999").unwrap();
                }
            })
            .unwrap();
        let start = now();
        while seen() < before + packets {
            assert!(now() - start < PATIENCE, "{} of {packets} packets came", seen() - before);
            std::thread::yield_now();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a deadline for the kernel")]
fn now() -> Instant {
    Instant::now()
}

fn seen() -> u64 {
    let text = nft(&["-j", "list", "counters", "table", "ip", "tally"], "").unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let counters = all["nftables"].as_array().unwrap().iter();
    counters.filter_map(|entry| entry["counter"]["packets"].as_u64()).sum()
}

/// What each rule of a table has counted, by its handle; and by chain and text, for rules that got
/// another handle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) by_handle: BTreeMap<u64, u64>,
    pub(crate) by_text: BTreeMap<String, Vec<u64>>,
}

/// Looks at all rules of a table that count.
pub(crate) fn counted(table: &str) -> Counted {
    let text = nft(&["-j", "list", "table", "ip", table], "").unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let (mut by_handle, mut by_text) = (BTreeMap::new(), BTreeMap::<_, Vec<_>>::new());
    for rule in all["nftables"].as_array().unwrap().iter().filter_map(|entry| entry.get("rule")) {
        let mut rule = rule.clone();
        let handle = rule["handle"].take().as_u64().unwrap();
        let counter = rule["expr"].as_array_mut().unwrap().iter_mut().find_map(|one| {
            let counter = one.get_mut("counter").filter(|counter| counter.is_object())?;
            Some(counter.take())
        });
        let Some(packets) = counter.and_then(|counter| counter["packets"].as_u64()) else {
            continue;
        };
        by_handle.insert(handle, packets);
        by_text.entry(rule.to_string()).or_default().push(packets);
    }
    for counts in by_text.values_mut() {
        counts.sort_unstable();
    }
    Counted { by_handle, by_text }
}
