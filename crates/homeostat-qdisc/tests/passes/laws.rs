//! The law suite over the root qdiscs of links in a real namespace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use homeostat_engine::{Action, Ownership};
use homeostat_netlink::{Family, Group, Listener, Options, uapi};
use homeostat_qdisc::{DesiredState, Key, Qdiscs};
use homeostat_testkit::laws::{
    self, Ability, DesiredState as Which, Disturbance, Fault, Harness, Meter,
};
use homeostat_testkit::unreachable_kernel::UnreachableKernel;
use serde_json::json;

use crate::bench::{Bench, block_on, desired, tc, tc_json};

const LINKS: [&str; 5] = ["q1", "q2", "q3", "q4", "q5"];

struct Links {
    _bench: Bench,
    writes: Arc<Mutex<Writes>>,
    unreachable: Option<UnreachableKernel>,
}

/// Counts what the kernel announces, by whomever it was written.
struct Writes {
    listener: Listener,
    count: u64,
}

impl Writes {
    fn count(&mut self) -> u64 {
        let Writes { listener, count } = self;
        while listener.receive(&mut |_| *count += 1).unwrap() {}
        *count
    }
}

impl Links {
    fn new() -> Self {
        let bench = Bench::new();
        for link in LINKS {
            // Down, so that no packet is counted.
            bench.ip(&format!("link add {link} type ifb"));
        }
        let groups = [Group(uapi::RTNLGRP_TC)];
        let listener = Listener::open(Family::Route, &groups, &Options::for_events()).unwrap();
        let writes = Arc::new(Mutex::new(Writes { listener, count: 0 }));
        Links { _bench: bench, writes, unreachable: None }
    }
}

impl Harness for Links {
    type Source = Qdiscs;

    fn reset(&mut self) {
        *self = Links::new();
    }

    fn source(&self) -> Qdiscs {
        Qdiscs::here()
    }

    fn ownership(&self) -> Ownership {
        Ownership::Checkpoint
    }

    fn desired(&self, which: Which) -> DesiredState {
        let fifo = |limit: u32| json!({ "kind": "pfifo", "limit": limit });
        let htb = json!({ "kind": "htb", "default": "10", "classes": {
            "1": { "rate": "10mbit" }, "10": { "parent": "1", "rate": "1mbit", "qdisc": fifo(5) } } });
        match which {
            Which::First => {
                desired(&[("qdisc q1", fifo(10)), ("qdisc q2", htb), ("qdisc q3", fifo(30))])
            }
            Which::Second => {
                desired(&[("qdisc q1", fifo(11)), ("qdisc q2", htb), ("qdisc q4", fifo(40))])
            }
            Which::Nothing => desired(&[]),
        }
    }

    /// A foreign object that is taken over is replaced by whatever is sent.
    fn has_precondition(&self, _key: &Key, action: Action) -> bool {
        action != Action::Update
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for qdisc in tc_json("qdisc show") {
            if qdisc["root"] != true || qdisc["handle"] == "0:" {
                continue;
            }
            let link = qdisc["dev"].as_str().unwrap();
            let classes = tc(&format!("-d class show dev {link}"));
            let qdiscs = tc(&format!("-d qdisc show dev {link}"));
            let mut lines: Vec<&str> = classes.lines().chain(qdiscs.lines()).collect();
            lines.sort_unstable();
            found.insert(format!("qdisc {link}"), lines.join("\n"));
        }
        found
    }

    fn meter(&self) -> Meter {
        let writes = Arc::clone(&self.writes);
        Arc::new(move || writes.lock().unwrap_or_else(PoisonError::into_inner).count())
    }

    fn disturb(&mut self, how: Disturbance<'_, Key>) -> Ability {
        let line = match how {
            Disturbance::Remove(key) => format!("qdisc del dev {} root", key.link),
            Disturbance::Alter(key) if key.link.as_str() == "q2" => {
                "class change dev q2 parent 4000:1 classid 4000:10 htb rate 2mbit".to_owned()
            }
            Disturbance::Alter(key) => {
                format!("qdisc change dev {} root handle 4000: pfifo limit 99", key.link)
            }
            Disturbance::Stranger => "qdisc add dev q5 root handle 1: pfifo limit 5".to_owned(),
            Disturbance::Occupy(key) => {
                format!("qdisc add dev {} root handle 1: pfifo limit 98", key.link)
            }
        };
        tc(&line);
        Ability::Done
    }

    fn inject(&mut self, fault: Fault<'_, Key>) -> Ability {
        match fault {
            Fault::Blind => {
                self.unreachable = Some(UnreachableKernel::new().unwrap());
                Ability::Done
            }
            Fault::Unreadable(_) | Fault::Refuse(_) => Ability::Unable,
        }
    }

    fn mend(&mut self) {
        self.unreachable = None;
    }
}

#[test]
fn the_laws_hold_over_qdiscs() {
    let verdict = block_on(async { laws::check(&mut Links::new()).await });
    let verdict = verdict.unwrap_or_else(|broken| panic!("{broken}"));
    // The kernel reports a qdisc whole or not at all, and refuses a good one for no reason that a test could give it.
    let unchecked = [(1, "an object that cannot be read"), (9, "a target that refuses any write")];
    assert_eq!(verdict.unchecked, unchecked);
}

#[test]
fn every_crash_is_made_good() {
    let verdict = block_on(async { laws::check_crashes(&mut Links::new()).await });
    verdict.unwrap_or_else(|broken| panic!("{broken}"));
}
