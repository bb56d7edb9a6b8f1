//! How often a program may be reloaded. Pure: `now` is an argument, the time since some moment.

use std::fmt;
use std::time::Duration;

/// What a set says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Between the end of a reload and the next one.
    pub min_interval: Duration,
    /// So many processes of before a reload may still end their work.
    pub old_processes: Option<usize>,
}

/// When a program was reloaded last.
#[derive(Debug, Default)]
pub(crate) struct Brake {
    last: Option<Duration>,
}

/// Why a program is not reloaded now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Until this moment, for this long after the last time.
    Until { at: Duration, interval: Duration },
    /// Until processes have ended.
    Draining { processes: usize, most: usize },
}

impl Brake {
    /// A reload has ended, well or not.
    pub(crate) fn ended(&mut self, now: Duration) {
        self.last = Some(now);
    }

    /// What is to be waited for before the next reload. Whatever is declared by then is what it gets.
    pub(crate) fn wait(
        &self,
        limits: Limits,
        draining: impl FnOnce() -> usize,
        now: Duration,
    ) -> Option<Wait> {
        let Limits { min_interval: interval, old_processes } = limits;
        if let Some(at) = self.last.map(|last| last + interval).filter(|at| now < *at) {
            return Some(Wait::Until { at, interval });
        }
        let most = old_processes?;
        let processes = draining();
        (processes > most).then_some(Wait::Draining { processes, most })
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Until { interval, .. } => {
                write!(f, "the next reload, {interval:?} after the last one (`min-interval`)")
            }
            Wait::Draining { processes, most } => write!(
                f,
                "draining: {processes} processes of former reloads still work, and {most} may (`old-processes`)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn reloads_keep_their_distance_from_the_end_of_the_last_one() {
        let limits = Limits { min_interval: 2 * SECOND, old_processes: None };
        let mut brake = Brake::default();
        let wait = |brake: &Brake, now: Duration| brake.wait(limits, || 9, now);
        assert_eq!(wait(&brake, Duration::ZERO), None, "the first one waits for nothing");
        // It began at 10 and took a second.
        brake.ended(11 * SECOND);
        let until = Some(Wait::Until { at: 13 * SECOND, interval: 2 * SECOND });
        assert_eq!(wait(&brake, 11 * SECOND), until);
        assert_eq!(wait(&brake, Duration::from_millis(12_999)), until);
        assert_eq!(wait(&brake, 13 * SECOND), None);
        brake.ended(13 * SECOND);
        assert!(wait(&brake, 14 * SECOND).is_some());
    }

    #[test]
    fn a_reload_waits_while_too_many_processes_drain() {
        let limits = Limits { min_interval: SECOND, old_processes: Some(2) };
        let mut brake = Brake::default();
        assert_eq!(brake.wait(limits, || 2, SECOND), None);
        let draining = Some(Wait::Draining { processes: 3, most: 2 });
        assert_eq!(brake.wait(limits, || 3, SECOND), draining);
        brake.ended(SECOND);
        // Nobody is asked before the interval is over.
        let asked = || -> usize { unreachable!("it would be asked again anyway") };
        assert!(matches!(brake.wait(limits, asked, SECOND), Some(Wait::Until { .. })));
        assert_eq!(brake.wait(limits, || 3, 2 * SECOND), draining);
        assert_eq!(brake.wait(Limits::default(), asked, SECOND), None, "nothing is declared");
    }
}
