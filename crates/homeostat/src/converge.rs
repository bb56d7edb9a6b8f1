//! The one way to converge: loops run passes until everything is as declared, or until nothing moves any
//! more. `apply` does this with loops of its own, the daemon with those that it keeps.

use std::sync::Arc;

use futures_util::future::join_all;
use homeostat_engine::PassAnswer;
use homeostat_engine::{
    Control, Covers, Entries, Entry, Explain as _, Kind, Mode, PassReport, PassSeries, PassTrouble,
    Patience, Recording, SharedReport,
};

use crate::machine::ObserveOnlyPlan;
use crate::output::SourceReport;

/// How often all sources are passed over, one after the other: what one of them writes may be what another
/// one waits for.
const ROUNDS: usize = 3;

/// A loop, and the reports of its passes.
pub(crate) struct Converging {
    pub(crate) control: Arc<dyn Control>,
    recording: Recording,
    passes: PassSeries,
}

impl Converging {
    /// Records all passes from here on.
    pub(crate) fn new(control: Arc<dyn Control>) -> Self {
        Converging { recording: control.record(), control, passes: PassSeries::default() }
    }

    /// Takes in a full pass that was begun before it was recorded.
    pub(crate) fn record(&mut self, answer: PassAnswer) {
        self.recording.take();
        let report: SharedReport = match answer {
            Ok(report) => report,
            Err(error) => {
                Arc::new(Entries::of_broken_pass(&error, &self.control.ledger_key().source))
            }
        };
        self.passes.push(PassReport::new(Covers::All, report));
    }

    /// Runs a full pass. A loop that has ended meanwhile, as with its namespace, adds nothing.
    pub(crate) async fn pass(&mut self) {
        let _ = self.control.pass().await;
        self.take_recorded();
    }

    fn take_recorded(&mut self) {
        self.recording.take().into_iter().for_each(|pass| self.passes.push(pass));
    }

    /// How many changes were made.
    pub(crate) fn written(&self) -> usize {
        self.passes.summary().total()
    }

    async fn settle(&mut self, patience: Patience) {
        let _ = self.control.settle(patience).await;
        self.take_recorded();
    }

    /// What the passes have to say together; nothing, if there was none.
    pub(crate) fn report(self) -> Option<SourceReport> {
        if self.passes.is_empty() {
            return None;
        }
        let place = self.control.ledger_key().clone();
        let what: Box<dyn homeostat_engine::Explain> = match self.control.status().mode {
            Mode::Heal => Box::new(self.passes),
            Mode::Observe => Box::new(ObserveOnlyPlan::of(Box::new(self.passes), &place)),
        };
        Some(SourceReport { ledger_key: place, report: what, pattern: None })
    }
}

/// Lets loops that had their first pass settle, and passes over all of them again as long as that brings
/// something. `pass` runs the pass of one of them.
pub(crate) async fn converge(
    all: &mut [Converging],
    patience: Patience,
    pass: impl AsyncFn(&mut Converging),
    settled: impl Fn(&Converging),
) {
    let mut written = 0;
    for round in 1..=ROUNDS {
        join_all(all.iter_mut().map(|one| one.settle(patience))).await;
        all.iter().for_each(&settled);
        let is_converged = all.iter().all(|one| one.passes.is_converged());
        let total = all.iter().map(Converging::written).sum();
        if round == ROUNDS || is_converged || total == written || is_unrecorded(all) {
            return;
        }
        written = total;
        for one in &mut *all {
            pass(one).await;
        }
    }
}

/// Whether outcomes could not be recorded: another pass would only fail at that.
fn is_unrecorded(all: &[Converging]) -> bool {
    let mut found = false;
    for one in all {
        one.passes.explain(Kind::Failed, &mut |entry| {
            let Entry::Pass { about, .. } = entry else { return };
            found |= matches!(about, PassTrouble::Ledger | PassTrouble::Journal);
        });
    }
    found
}
