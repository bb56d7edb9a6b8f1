//! Numbers: queues of a pair of virtual links.

use homeostat_ethtool::DesiredState;

use crate::bench::{Bench, ethtool, numbers};

fn channels(link: &str) -> Vec<String> {
    let shown = ethtool(&format!("-l {link}"));
    let now = shown.split("Current hardware settings:").nth(1).unwrap();
    now.lines().filter(|line| !line.is_empty()).map(|line| line.replace('\t', "")).collect()
}

#[test]
fn queues_are_kept_and_get_their_originals_back() {
    let bench = Bench::with_pairs(1);
    assert_eq!(channels("v0")[..2], ["RX:2", "TX:2"]);
    let desired = numbers(&[("ethtool v0 channels rx", 1), ("ethtool v0 channels tx", 1)]);
    bench.converges(&desired);
    assert_eq!(channels("v0")[..2], ["RX:1", "TX:1"]);
    ethtool("-L v0 rx 2");
    bench.converges(&desired);
    assert_eq!(channels("v0")[..2], ["RX:1", "TX:1"]);
    bench.converges(&DesiredState::default());
    assert_eq!(channels("v0")[..2], ["RX:2", "TX:2"]);
}
