//! When a lost connection is made again: at a random time that is later after each failure. Pure.

use std::time::Duration;

/// The longest pause.
const LONGEST: Duration = Duration::from_mins(5);
/// The first pause of a client that need not spread.
const SHORTEST: Duration = Duration::from_millis(50);
/// How long at least a member is kept that knows no leader: elections are over long before.
const LEADERLESS: Duration = Duration::from_secs(15);

/// Counts failures, and says how long to wait. The pause is random between nothing and a bound which doubles, so that
/// clients which lost their connections together do not come back together.
#[derive(Clone, Debug)]
pub(crate) struct Reconnect {
    spread: Duration,
    failures: u32,
    random: u64,
}

impl Reconnect {
    pub(crate) fn new(spread: Duration, seed: u64) -> Self {
        Reconnect { spread, failures: 0, random: seed }
    }

    /// A connection was made, and answered.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// A connection was lost or could not be made to any member: how long to wait before the next try.
    pub(crate) fn failed(&mut self) -> Duration {
        let first = self.spread.max(SHORTEST);
        let bound = first.saturating_mul(1 << self.failures.min(16)).min(LONGEST.max(self.spread));
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(self.fraction())
    }

    /// A connection is left that works: how long to wait before the next one.
    pub(crate) fn moved(&mut self) -> Duration {
        self.spread.max(SHORTEST).mul_f64(self.fraction())
    }

    /// How long a member is kept that knows no leader, after so many others that knew none.
    pub(crate) fn patience(&mut self, members: u32) -> Duration {
        let least = LEADERLESS.saturating_mul(1 << members.min(16)).min(LONGEST);
        least + least.mul_f64(self.fraction())
    }

    /// Evenly between 0 and 1: splitmix64, whose upper 53 bits are taken.
    fn fraction(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let fraction = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
        fraction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_reconnects_of_many_clients_are_spread_evenly() {
        let spread = Duration::from_mins(1);
        let pauses = (0..6_000_u64).map(|seed| Reconnect::new(spread, seed * 7).failed());
        let mut by_second = [0_u32; 60];
        for pause in pauses {
            by_second[usize::try_from(pause.as_secs()).unwrap()] += 1;
        }
        assert!(by_second.iter().all(|count| (50..150).contains(count)), "{by_second:?}");
    }

    #[test]
    fn pauses_grow_to_five_minutes_and_begin_anew_after_a_success() {
        let mut reconnect = Reconnect::new(Duration::from_secs(10), 1);
        let bounds = [10, 20, 40, 80, 160, 300, 300];
        for bound in bounds {
            let pause = reconnect.failed();
            assert!(pause <= Duration::from_secs(bound), "{pause:?} of {bound} s");
        }
        let longest = (0..100).map(|_| reconnect.failed()).max().unwrap();
        assert!(longest > Duration::from_secs(200) && longest <= LONGEST, "{longest:?}");
        reconnect.succeeded();
        assert!(reconnect.failed() <= Duration::from_secs(10));
    }

    #[test]
    fn members_without_a_leader_are_left_ever_more_rarely_and_not_by_all_at_once() {
        let mut reconnect = Reconnect::new(Duration::from_secs(10), 1);
        for (members, least) in [(0, 15), (1, 30), (2, 60), (5, 300), (40, 300)] {
            let least = Duration::from_secs(least);
            let patience = reconnect.patience(members);
            assert!((least..2 * least).contains(&patience), "{members}: {patience:?}");
            assert!(reconnect.moved() <= Duration::from_secs(10));
        }
        let first = |seed| Reconnect::new(Duration::ZERO, seed).patience(0).as_secs();
        let distinct: std::collections::BTreeSet<_> = (0..1000).map(first).collect();
        assert!(distinct.len() >= 15, "{distinct:?}");
    }
}
