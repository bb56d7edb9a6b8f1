//! The law suite over a feature of several links. A program of its own, since it is too slow for the virtual machine.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

#[path = "../passes/bench.rs"]
#[expect(dead_code, reason = "the laws need a part of it")]
mod bench;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use homeostat_engine::Ownership;
use homeostat_ethtool::{DesiredState, Ethtool, Key};
use homeostat_netlink::{Connection, Family, Listener, Options, generic};
use homeostat_testkit::laws::{self, Ability, DesiredState as Which, Disturbance, Harness, Meter};

use crate::bench::{Bench, block_on, ethtool, feature, switches};

/// Links whose feature is off are as they were made.
const LINKS: [&str; 5] = ["v0", "v1", "v2", "v3", "v4"];

struct Links {
    _bench: Bench,
    changes: Meter,
}

impl Links {
    fn new() -> Self {
        let bench = Bench::with_pairs(LINKS.len());
        Links { _bench: bench, changes: changes() }
    }
}

impl Harness for Links {
    type Source = Ethtool;

    fn reset(&mut self) {
        *self = Links::new();
    }

    fn source(&self) -> Ethtool {
        Bench::source()
    }

    fn ownership(&self) -> Ownership {
        Ownership::Checkpoint
    }

    fn desired(&self, which: Which) -> DesiredState {
        let gro = |links: &[(&str, bool)]| {
            let texts = links.iter().map(|(link, on)| (format!("ethtool {link} feature gro"), *on));
            let texts: Vec<(String, bool)> = texts.collect();
            let pairs: Vec<(&str, bool)> =
                texts.iter().map(|(text, on)| (text.as_str(), *on)).collect();
            switches(&pairs)
        };
        match which {
            Which::First => gro(&[("v0", true), ("v1", true), ("v2", true)]),
            Which::Second => gro(&[("v0", false), ("v2", true), ("v3", true)]),
            Which::Nothing => gro(&[]),
        }
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        let shown = LINKS.iter().map(|link| {
            let is_on = feature(link, "generic-receive-offload").0;
            (format!("ethtool {link} feature gro"), is_on.to_string())
        });
        shown.collect()
    }

    fn meter(&self) -> Meter {
        Arc::clone(&self.changes)
    }

    fn disturb(&mut self, how: Disturbance<'_, Key>) -> Ability {
        match how {
            Disturbance::Alter(key) => {
                let is_on = feature(&key.link, "generic-receive-offload").0;
                let other = if is_on { "off" } else { "on" };
                _ = ethtool(&format!("-K {} gro {other}", key.link));
                Ability::Done
            }
            Disturbance::Stranger => {
                _ = ethtool("-K v4 gro on");
                Ability::Done
            }
            // A setting goes only with its link, and belongs to the one that writes it.
            Disturbance::Remove(_) | Disturbance::Occupy(_) => Ability::Unable,
        }
    }
}

/// Counts the changes of features that the kernel announces in the namespace of the calling thread, by whomever.
fn changes() -> Meter {
    let monitor = Connection::open(Family::Generic)
        .and_then(|mut connection| generic::multicast_group(&mut connection, "ethtool", "monitor"));
    let monitor = monitor.unwrap().unwrap_or_else(|| panic!("there is no group"));
    let listener = Listener::open(Family::Generic, &[monitor], &Options::default()).unwrap();
    let state = Mutex::new((listener, 0));
    Arc::new(move || {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (listener, count) = &mut *state;
        while listener.receive(&mut |_| *count += 1).unwrap() {}
        *count
    })
}

#[test]
fn the_laws_hold_over_features() {
    let verdict = block_on(async { laws::check(&mut Links::new()).await });
    let verdict = verdict.unwrap_or_else(|broken| panic!("{broken}"));
    // The kernel can neither be blinded nor be made to refuse a feature; a setting is never foreign, and goes only with
    // its link.
    let laws: Vec<_> = verdict.unchecked.iter().map(|(law, _)| *law).collect();
    assert_eq!(laws, [1, 1, 4, 5, 9], "{:?}", verdict.unchecked);
}
