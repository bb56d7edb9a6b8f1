//! What a driver cannot do is refused with the reason, and costs nothing else.

use homeostat_ethtool::{DesiredState, Value};

use crate::bench::{Bench, feature, key, report_lines};

#[test]
fn what_a_driver_cannot_do_is_refused_with_the_way_out() {
    let bench = Bench::with_pairs(1);
    let modes =
        |words: &[&str]| Value::Words(words.iter().map(|word| (*word).to_owned()).collect());
    let desired = DesiredState::new([
        (key("ethtool v0 feature gro"), Value::Switch(true)),
        (key("ethtool v0 feature lro"), Value::Switch(true)),
        (key("ethtool v0 feature tx-nocache-cpy"), Value::Switch(true)),
        (key("ethtool v0 rings rx"), Value::Number(512)),
        (key("ethtool v0 channels rx"), Value::Number(9)),
        (key("ethtool v0 channels combined"), Value::Number(1)),
        (key("ethtool v0 coalesce rx-usecs"), Value::Number(1)),
        (key("ethtool v0 pause rx"), Value::Switch(true)),
        (key("ethtool v0 wol"), modes(&["magic"])),
        (key("ethtool v0 fec"), modes(&["rs"])),
        (key("ethtool v0 private-flag x"), Value::Switch(true)),
    ]);
    let lines = report_lines(&bench.pass(&desired));
    let failed: Vec<&String> = lines.iter().filter(|line| line.starts_with("failed")).collect();
    assert_eq!(
        failed,
        [
            "failed ethtool v0 feature lro: it is fixed: the driver of `v0` keeps it off (leave it out)",
            "failed ethtool v0 feature tx-nocache-cpy: the kernel has no such feature \
             (did you mean `tx-nocache-copy`?)",
            "failed ethtool v0 rings rx: the driver of `v0` has no settings of rings ()",
            "failed ethtool v0 channels combined: the driver of `v0` has no `combined` of channels \
             (`ethtool -l v0` shows what it has)",
            "failed ethtool v0 channels rx: `9` is too large: the driver of `v0` has at most 2 (write 2 or less)",
            "failed ethtool v0 coalesce rx-usecs: the driver of `v0` has no settings of coalescing ()",
            "failed ethtool v0 pause rx: the driver of `v0` has no settings of pause frames ()",
            "failed ethtool v0 wol: the driver of `v0` has no settings of Wake-on-LAN ()",
            "failed ethtool v0 fec: the driver of `v0` has no settings of FEC ()",
            "failed ethtool v0 private-flag x: the driver of `v0` has no settings of its own flags ()",
        ]
    );
    assert_eq!(feature("v0", "generic-receive-offload"), (true, true));
}
