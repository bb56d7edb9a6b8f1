//! All latencies together.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use super::sabotage::Group;
use crate::output::line::BOLD;

/// The results of all acts of sabotage.
#[derive(Default)]
pub(super) struct Latencies {
    took: BTreeMap<Group, Vec<Duration>>,
    unhealed: usize,
}

impl Latencies {
    /// Adds one, healed or not.
    pub(super) fn add(&mut self, group: Group, took: Option<Duration>) {
        match took {
            Some(took) => self.took.entry(group).or_default().push(took),
            None => self.unhealed += 1,
        }
    }

    /// Whether everything was healed.
    pub(super) fn is_whole(&self) -> bool {
        self.unhealed == 0
    }

    pub(super) fn write(&mut self, to: &mut impl Write) -> io::Result<()> {
        let healed: usize = self.took.values().map(Vec::len).sum();
        writeln!(to, "\n{BOLD}# {healed} of {} healed{BOLD:#}", healed + self.unhealed)?;
        let columns = ["healed", "p50", "p90", "p99", "max"];
        writeln!(to, "  {:<24}{}", "", columns.map(|name| format!("{name:>11}")).concat())?;
        for (group, took) in &mut self.took {
            took.sort();
            let words = match group {
                Group::Object => "objects, by event",
                Group::Firewall => "firewall, by event",
                Group::Link => "links and flushes",
                Group::File => "files (~)",
                Group::Looked => "seen by looking (~)",
            };
            let times =
                [50, 90, 99, 100].map(|part| format!("{:>11}", time(percentile(took, part))));
            writeln!(to, "  {words:<24}{:>11}{}", took.len(), times.concat())?;
        }
        Ok(())
    }
}

/// The least that so many of a hundred do not exceed.
fn percentile(sorted: &[Duration], part: usize) -> Duration {
    let rank = (sorted.len() * part).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// A time as people read it.
pub(super) fn time(took: Duration) -> String {
    let millis = took.as_secs_f64() * 1000.0;
    match millis {
        _ if millis < 10.0 => format!("{millis:.2} ms"),
        _ if millis < 1000.0 => format!("{millis:.0} ms"),
        _ => format!("{:.2} s", millis / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_time_that_was_measured() {
        let all: Vec<Duration> = (1..=10).map(Duration::from_millis).collect();
        let check = |part, millis| {
            assert_eq!(percentile(&all, part), Duration::from_millis(millis), "p{part}");
        };
        check(50, 5);
        check(90, 9);
        check(99, 10);
        check(100, 10);
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }

    #[test]
    fn a_time_has_the_unit_that_fits_it() {
        let check = |micros, text: &str| assert_eq!(time(Duration::from_micros(micros)), text);
        check(312, "0.31 ms");
        check(9_990, "9.99 ms");
        check(31_400, "31 ms");
        check(1_250_000, "1.25 s");
    }
}
