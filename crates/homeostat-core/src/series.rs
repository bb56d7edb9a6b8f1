//! Several passes over one source as one report.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::explain::{About, Entry, Explain, Sampler, Summary};
use crate::finding::Kind;

/// A report or a plan that can be shared.
pub type SharedReport = Arc<dyn Explain + Send + Sync>;

/// Which keys a report speaks of, as entries have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Covers {
    /// Everything: what it does not name is as declared.
    All,
    /// Everything but what was left alone for now, of which an earlier report knows more.
    AllBut(BTreeSet<String>),
    /// These alone.
    Keys(BTreeSet<String>),
}

impl Covers {
    fn contains(&self, key: &str) -> bool {
        match self {
            Covers::All => true,
            Covers::AllBut(keys) => !keys.contains(key),
            Covers::Keys(keys) => keys.contains(key),
        }
    }

    /// Whether a pass over these keys also looked at those of another one. What it left alone was no reason to fail.
    fn includes(&self, other: &Covers) -> bool {
        match (self, other) {
            (Covers::All | Covers::AllBut(_), _) => true,
            (Covers::Keys(keys), Covers::Keys(others)) => keys.is_superset(others),
            (Covers::Keys(_), _) => false,
        }
    }
}

/// One report of a series.
#[derive(Clone)]
#[non_exhaustive]
pub struct PassReport {
    /// What it speaks of.
    pub covers: Covers,
    /// What it says.
    pub report: SharedReport,
}

impl PassReport {
    /// What a pass over these keys says.
    #[must_use]
    pub fn new(covers: Covers, report: SharedReport) -> Self {
        PassReport { covers, report }
    }
}

/// Passes in a row as one report: everything that any of them applied, and about each key what the last
/// of them says that looked at it.
#[derive(Clone, Default)]
pub struct PassSeries {
    passes: Vec<PassReport>,
}

impl PassSeries {
    /// Adds a pass behind the others.
    pub fn push(&mut self, pass: PassReport) {
        self.passes.push(pass);
    }

    /// Adds the passes of another series behind the others.
    pub fn extend(&mut self, later: PassSeries) {
        self.passes.extend(later.passes);
    }

    /// Whether there is no pass at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.passes.is_empty()
    }

    /// The reports that a later one does not replace as a whole.
    fn in_force(&self) -> impl Iterator<Item = (usize, &PassReport)> {
        let full = self.passes.iter().rposition(|pass| pass.covers == Covers::All);
        self.passes.iter().enumerate().skip(full.unwrap_or(0))
    }
}

impl Explain for PassSeries {
    fn explain(&self, kind: Kind, emit: &mut dyn FnMut(Entry)) {
        if kind == Kind::Applied {
            self.passes.iter().for_each(|pass| pass.report.explain(kind, emit));
            return;
        }
        for (nth, pass) in self.in_force() {
            let later = self.passes.get(nth + 1..).unwrap_or_default();
            pass.report.explain(kind, &mut |entry| {
                let is_of_pass = matches!(entry, Entry::Pass { .. });
                let is_left_alone = nth > 0 && !is_of_pass && !pass.covers.contains(entry.key());
                let replaces = |later: &PassReport| match entry {
                    Entry::Pass { .. } => later.covers.includes(&pass.covers),
                    _ => later.covers.contains(entry.key()),
                };
                let is_replaced = later.iter().any(replaces);
                if !is_left_alone && !is_replaced {
                    emit(entry);
                }
            });
        }
    }

    fn sample(&self, kind: Kind, sampler: &mut dyn Sampler) {
        if kind == Kind::Applied {
            self.passes.iter().for_each(|pass| pass.report.sample(kind, sampler));
        } else if let [.., last] = &*self.passes
            && last.covers == Covers::All
        {
            last.report.sample(kind, sampler);
        } else {
            self.explain(kind, &mut |entry| match &entry {
                Entry::Change(_, cause) if !sampler.wants(*cause) => {}
                _ => sampler.take(entry),
            });
        }
    }

    fn summary(&self) -> Summary {
        let mut sum = Summary::default();
        self.passes.iter().for_each(|pass| sum += pass.report.summary());
        sum
    }

    fn is_converged(&self) -> bool {
        if let [.., last] = &*self.passes
            && last.covers == Covers::All
        {
            return last.report.is_converged();
        }
        let mut is_converged = true;
        for kind in Kind::open() {
            self.explain(kind, &mut |_| is_converged = false);
        }
        is_converged
    }

    fn about(&self, key: &str) -> Option<About> {
        self.passes.last()?.report.about(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::{Action, Cause, Line, PassTrouble};
    use crate::finding::Finding;
    use crate::outcome::{Failure, Retry};
    use crate::waits_on::WaitsOn;

    /// A report that applied some keys and left others waiting.
    struct Fixed(Vec<&'static str>, Vec<&'static str>);

    impl Explain for Fixed {
        fn explain(&self, kind: Kind, emit: &mut dyn FnMut(Entry)) {
            let line = |key: &&str| Line::new(Action::Create, *key);
            match kind {
                Kind::Applied => {
                    self.0.iter().for_each(|key| emit(Entry::Applied(line(key), Cause::Config)));
                }
                Kind::Pending => self.1.iter().for_each(|key| {
                    let finding = Finding::Pending { on: WaitsOn::NextPass };
                    emit(Entry::Finding { key: (*key).to_owned(), finding });
                }),
                _ => {}
            }
        }

        fn summary(&self) -> Summary {
            Summary { create: self.0.len(), ..Summary::default() }
        }

        fn is_converged(&self) -> bool {
            self.1.is_empty()
        }
    }

    /// The report of a pass that could not be recorded.
    struct Unrecorded;

    impl Explain for Unrecorded {
        fn explain(&self, kind: Kind, emit: &mut dyn FnMut(Entry)) {
            if kind == Kind::Failed {
                let failure = Failure::new("the disk is full", Retry::Soon);
                emit(Entry::Pass { about: PassTrouble::Ledger, failure });
            }
        }

        fn summary(&self) -> Summary {
            Summary::default()
        }

        fn is_converged(&self) -> bool {
            false
        }
    }

    fn series(passes: Vec<(Option<&[&str]>, Fixed)>) -> PassSeries {
        let mut series = PassSeries::default();
        for (keys, report) in passes {
            let keys = keys.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect());
            let covers = keys.map_or(Covers::All, Covers::Keys);
            series.push(PassReport { covers, report: Arc::new(report) });
        }
        series
    }

    fn keys_of(series: &PassSeries, kind: Kind) -> Vec<String> {
        let mut keys = Vec::new();
        series.explain(kind, &mut |entry| keys.push(entry.key().to_owned()));
        keys
    }

    #[test]
    fn everything_that_was_applied_counts_and_of_open_keys_the_last_word() {
        let series = series(vec![
            (None, Fixed(vec!["a"], vec!["b", "c"])),
            (Some(&["b"]), Fixed(vec!["b"], vec![])),
        ]);
        assert_eq!(keys_of(&series, Kind::Applied), ["a", "b"]);
        assert_eq!(keys_of(&series, Kind::Pending), ["c"]);
        assert!(!series.is_converged());
        assert_eq!(series.summary().create, 2);
    }

    #[test]
    fn a_full_pass_replaces_what_was_said_before_it() {
        let series = series(vec![
            (None, Fixed(vec![], vec!["b", "c"])),
            (Some(&["b"]), Fixed(vec![], vec!["b"])),
            (None, Fixed(vec!["c"], vec![])),
        ]);
        assert_eq!(keys_of(&series, Kind::Pending), <[&str; 0]>::default());
        assert!(series.is_converged());
    }

    #[test]
    fn of_a_key_that_was_left_alone_the_earlier_word_counts() {
        let mut series = series(vec![(None, Fixed(vec![], vec!["b", "c"]))]);
        let report = Arc::new(Fixed(vec![], vec!["b", "d"]));
        let left_alone = ["b".to_owned()].into();
        series.push(PassReport { covers: Covers::AllBut(left_alone), report });
        assert_eq!(keys_of(&series, Kind::Pending), ["b", "d"], "once each");
    }

    #[test]
    fn a_pass_that_failed_as_a_whole_counts_until_another_has_looked_at_its_keys() {
        let covers = |keys: &[&str]| Covers::Keys(keys.iter().map(|key| (*key).into()).collect());
        let mut series = series(vec![(None, Fixed(vec![], vec![]))]);
        series.push(PassReport { covers: covers(&["b"]), report: Arc::new(Unrecorded) });
        let good = || Arc::new(Fixed(vec![], vec![]));
        series.push(PassReport { covers: covers(&["c"]), report: good() });
        assert_eq!(keys_of(&series, Kind::Failed), ["ledger"]);
        assert!(!series.is_converged());
        for later in [covers(&["b", "c"]), Covers::AllBut(BTreeSet::new()), Covers::All] {
            let mut series = series.clone();
            series.push(PassReport { covers: later, report: good() });
            assert_eq!(keys_of(&series, Kind::Failed), <[&str; 0]>::default());
        }
    }

    #[test]
    fn a_focused_pass_can_be_what_converges() {
        let series = series(vec![
            (None, Fixed(vec![], vec!["b"])),
            (Some(&["b"]), Fixed(vec!["b"], vec![])),
        ]);
        assert!(series.is_converged());
    }
}
