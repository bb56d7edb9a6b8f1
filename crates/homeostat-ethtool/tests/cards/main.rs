//! What virtual links do not have: an emulated card of the virtual machine, judged by `ethtool`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

#[path = "../passes/bench.rs"]
#[expect(dead_code, reason = "virtual links are for the other program")]
mod bench;

use std::fs;

use homeostat_ethtool::{DesiredState, Value};

use crate::bench::{Bench, ethtool, key, numbers, report_lines};

/// The card, in the namespace of the machine.
struct Card {
    bench: Bench,
    name: String,
}

impl Card {
    fn take() -> Self {
        let name = name_of("e1000e");
        Card { bench: Bench::here(), name }
    }

    fn key(&self, setting: &str) -> homeostat_ethtool::Key {
        key(&format!("ethtool {} {setting}", self.name))
    }

    fn shows(&self, option: &str, line: &str) -> bool {
        let shown = ethtool(&format!("{option} {}", self.name));
        let plain = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        shown.lines().any(|shown| plain(shown) == line)
    }

    #[track_caller]
    fn must_show(&self, option: &str, line: &str) {
        let shown = ethtool(&format!("{option} {}", self.name));
        assert!(self.shows(option, line), "`{line}` is not in:\n{shown}");
    }
}

/// The link of a driver.
fn name_of(driver: &str) -> String {
    for entry in fs::read_dir("/sys/class/net").unwrap() {
        let path = entry.unwrap().path();
        let found = fs::read_link(path.join("device/driver"));
        if found.is_ok_and(|found| found.ends_with(driver)) {
            return path.file_name().unwrap().to_str().unwrap().to_owned();
        }
    }
    panic!("there is no card of {driver}: run it by `cargo xtask vm homeostat-ethtool/cards`")
}

/// One test, since there is one card.
#[test]
fn settings_of_a_card_are_kept_and_get_their_originals_back() {
    let card = Card::take();
    let bench = &card.bench;

    // Rings, of which this driver makes multiples of eight.
    card.must_show("-g", "RX: 256");
    let [rx, tx] = ["rx", "tx"].map(|word| format!("ethtool {} rings {word}", card.name));
    let rings = |size: u32| numbers(&[(rx.as_str(), size), (tx.as_str(), 512)]);
    bench.converges(&rings(1024));
    card.must_show("-g", "RX: 1024");
    card.must_show("-g", "TX: 512");
    let lines = report_lines(&bench.pass(&rings(501)));
    assert!(lines.iter().any(|line| line.ends_with("rings rx: 504 for 501")), "{lines:?}");
    card.must_show("-g", "RX: 504");
    bench.converges(&rings(501));
    let lines = report_lines(&bench.pass(&rings(5000)));
    assert!(lines.iter().any(|line| line.contains("at most 4096")), "{lines:?}");
    bench.converges(&DesiredState::default());
    card.must_show("-g", "RX: 256");
    card.must_show("-g", "TX: 256");

    // Interrupts and pause frames.
    let usecs = ethtool(&format!("-c {}", card.name));
    let usecs = usecs.lines().find(|line| line.starts_with("rx-usecs:")).unwrap().to_owned();
    let desired = DesiredState::new([
        (card.key("coalesce rx-usecs"), Value::Number(50)),
        (card.key("pause autoneg"), Value::Switch(false)),
        (card.key("pause rx"), Value::Switch(true)),
        (card.key("pause tx"), Value::Switch(false)),
    ]);
    bench.converges(&desired);
    card.must_show("-c", "rx-usecs: 50");
    card.must_show("-a", "Autonegotiate: off");
    card.must_show("-a", "RX: on");
    card.must_show("-a", "TX: off");
    ethtool(&format!("-A {} tx on", card.name));
    bench.converges(&desired);
    card.must_show("-a", "TX: off");
    bench.converges(&DesiredState::default());
    card.must_show("-c", &usecs.split_whitespace().collect::<Vec<_>>().join(" "));
    card.must_show("-a", "Autonegotiate: on");

    // What this card cannot do: it has no power of its own that would wake the machine.
    let desired = DesiredState::new([
        (card.key("wol"), Value::Words(["magic".to_owned()].into())),
        (card.key("private-flag s0ix-enabled"), Value::Switch(true)),
        (card.key("private-flag nosuch"), Value::Switch(true)),
        (card.key("rings rx-jumbo"), Value::Number(1)),
    ]);
    let lines = report_lines(&bench.pass(&desired));
    for expected in [
        "has no mode `magic`",
        "private-flag s0ix-enabled: the kernel refused the write",
        "private-flag nosuch: the driver of",
        "rings rx-jumbo: the driver of",
    ] {
        assert!(lines.iter().any(|line| line.contains(expected)), "{expected}: {lines:?}");
    }
    bench.converges(&DesiredState::default());
}
