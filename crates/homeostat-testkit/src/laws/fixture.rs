//! A new target with everything that passes over it need.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use homeostat_engine::{
    Alone, Config, Entry, Error, Explain, Focus, Hint, Kind, LedgerKey, LedgerPage, MassDelete,
    MemoryLedger, Observer, Ownership, PassInput, Plan, Reader, Report, Seen, Slot, Source,
    Strictness, View, pass, plan,
};

use super::harness::{Ability, AsyncHarness, DesiredState, Disturbance, Key};
use super::verdict::{Broken, Verdict};
use crate::ledger::{Count, Tapped};

/// All objects of a target, by the harness.
pub(super) type Snapshot = BTreeMap<String, String>;
pub(super) type Object<H> = <<H as AsyncHarness>::Source as Source>::Object;
pub(super) type Desired<H> = Arc<<<H as AsyncHarness>::Source as Source>::Desired>;

/// What to do about an error where none is due.
const FAILED: &str =
    "the target has no fault here: let the source open, look and write without an error";

/// The checks of one harness, and what they could not check so far.
pub(super) struct Suite<'h, H> {
    pub(super) harness: &'h mut H,
    pub(super) verdict: Verdict,
}

/// The fixture of one check.
pub(super) struct Fixture<'s, H: AsyncHarness> {
    pub(super) harness: &'s mut H,
    pub(super) source: H::Source,
    pub(super) ownership: Ownership,
    pub(super) config: Config<Key<H>>,
    pub(super) writer: <H::Source as Source>::Writer,
    pub(super) ledger_page: LedgerPage<H::Source>,
    pub(super) ledger_writes: Count,
    /// What the target held before us.
    pub(super) originals: Snapshot,
    pub(super) ledger: Arc<Tapped<MemoryLedger>>,
    observer: Observer<H::Source>,
    verdict: &'s mut Verdict,
    law: u8,
}

impl<H: AsyncHarness> Suite<'_, H> {
    /// A new target for the check of the law with this number.
    pub(super) async fn open(&mut self, law: u8) -> Result<Fixture<'_, H>, Broken> {
        self.open_with_ledger(law, |_| Tapped::new(MemoryLedger::default())).await
    }

    /// The same with another ledger.
    pub(super) async fn open_with_ledger(
        &mut self,
        law: u8,
        ledger: impl FnOnce(&H) -> Tapped<MemoryLedger>,
    ) -> Result<Fixture<'_, H>, Broken> {
        let Suite { harness, verdict } = self;
        harness.reset().await;
        let source = harness.source();
        let ledger = Arc::new(ledger(harness));
        let broken = |error: &dyn Display| breach::<H>(law, error, FAILED);
        let lock = Alone::i_am_the_only_writer();
        // The guard against mass deletes would hold these small desired states.
        let mut config = Config::default();
        config.guards.mass_delete = MassDelete::Allow;
        Ok(Fixture {
            writer: source.writer(&lock).map_err(|failure| broken(&failure))?,
            observer: Observer::open(&source, "law").map_err(|error| broken(&error))?,
            ledger_page: LedgerPage::open(ledger.clone(), place::<H>())
                .map_err(|error| broken(&error))?,
            ledger_writes: ledger.count(),
            originals: harness.snapshot().await,
            ownership: harness.ownership(),
            config,
            ledger,
            source,
            harness,
            verdict,
            law,
        })
    }
}

impl<H: AsyncHarness> Fixture<'_, H> {
    /// Opens everything anew, as after a restart of the process.
    pub(super) fn restart(&mut self) -> Result<(), Broken> {
        self.source = self.harness.source();
        self.observer = self.observer()?;
        let opened = LedgerPage::open(self.ledger.clone(), place::<H>());
        self.ledger_page = opened.map_err(|error| self.failed(&error))?;
        Ok(())
    }

    fn observer(&self) -> Result<Observer<H::Source>, Broken> {
        Observer::open(&self.source, "law").map_err(|error| self.failed(&error))
    }

    pub(super) fn strict(mut self) -> Self {
        self.config.strictness = Strictness::Strict;
        self
    }

    pub(super) fn desired(&self, which: DesiredState) -> Desired<H> {
        Arc::new(self.harness.desired(which))
    }

    /// The first desired state, and another one.
    pub(super) fn first_and(&self, other: DesiredState) -> [Desired<H>; 2] {
        [DesiredState::First, other].map(|which| self.desired(which))
    }

    /// The law is broken, and this is how it shows.
    pub(super) fn broken(&self, how: &dyn Display, help: &'static str) -> Broken {
        breach::<H>(self.law, how, help)
    }

    /// The source fails although its target has no fault.
    pub(super) fn failed(&self, error: &dyn Display) -> Broken {
        self.broken(error, FAILED)
    }

    /// Notes that the harness cannot check a part of the law.
    pub(super) fn skip(&mut self, what: &'static str) {
        self.verdict.unchecked.push((self.law, what));
    }

    /// How many writes the target has received.
    pub(super) fn writes(&self) -> u64 {
        (self.harness.meter())()
    }

    /// What the target holds, and how many writes it has received.
    pub(super) async fn state(&self) -> (Snapshot, u64) {
        (self.harness.snapshot().await, self.writes())
    }

    /// Adds a foreign object beside ours, unless the scope is ours alone.
    pub(super) async fn add_stranger(&mut self) -> Option<Snapshot> {
        match self.ownership {
            Ownership::Exclusive(_) => None,
            _ => self.disturb(Disturbance::Stranger).await,
        }
    }

    /// Disturbs the target; returns the objects that are new or changed.
    pub(super) async fn disturb(&mut self, how: Disturbance<'_, Key<H>>) -> Option<Snapshot> {
        let before = self.harness.snapshot().await;
        match self.harness.disturb(how).await {
            Ability::Unable => None,
            Ability::Done => {
                let mut after = self.harness.snapshot().await;
                after.retain(|key, text| before.get(key) != Some(text));
                Some(after)
            }
        }
    }

    pub(super) async fn plan(&mut self, desired: &Desired<H>) -> Result<Plan<H::Source>, Broken> {
        let mut observer = self.observer()?;
        let (source, ownership, config) = (&self.source, &self.ownership, &self.config);
        let desired = Arc::clone(desired);
        let order = PassInput { source, desired, ownership, focus: Focus::All, config };
        let planned = plan(&order, &mut observer, self.ledger_page.holdings()).await;
        planned.map_err(|error| self.failed(&error))
    }

    /// One pass, which may fail.
    pub(super) async fn try_pass(
        &mut self,
        desired: &Desired<H>,
        focus: Focus<Key<H>>,
    ) -> Result<Report<H::Source>, Error> {
        let Fixture { source, ownership, config, observer, writer, ledger_page, .. } = self;
        let order = PassInput { source, desired: desired.clone(), ownership, focus, config };
        pass(&order, observer, writer, ledger_page).await
    }

    /// One full pass, which must not fail.
    pub(super) async fn pass(&mut self, desired: &Desired<H>) -> Result<Report<H::Source>, Broken> {
        let report = self.try_pass(desired, Focus::All).await;
        report.map_err(|error| self.failed(&format!("a pass failed: {error}")))
    }

    /// One full pass, which must end converged.
    pub(super) async fn converge(
        &mut self,
        desired: &Desired<H>,
    ) -> Result<Report<H::Source>, Broken> {
        let report = self.pass(desired).await?;
        let open: Vec<_> = Kind::open().collect();
        let troubles = entries(&report, &open).into_iter().map(|entry| format!("{entry:?}"));
        let troubles = troubles.collect::<Vec<_>>().join("; ");
        demand!(
            self,
            report.is_converged(),
            "a pass did not converge: {troubles}",
            "make every declared object as declared in one pass over a target without faults"
        );
        Ok(report)
    }

    /// What a new reader reports, and what it learned beside it.
    pub(super) async fn look(
        &self,
        desired: &Desired<H>,
    ) -> Result<(Vec<Seen<Key<H>, Object<H>>>, <H::Source as Source>::Moment), Broken> {
        let mut all = Vec::new();
        let mut reader = self.source.reader().map_err(|failure| self.failed(&failure))?;
        let records = &self.ledger_page.holdings().records;
        let view = View::new(&Focus::All, desired, records);
        let observed = reader.observe(&view, &mut |seen| all.push(seen)).await;
        Ok((all, observed.map_err(|failure| self.failed(&failure))?))
    }

    /// The next hint, if one arrives in time.
    pub(super) async fn hint_in_time(&mut self) -> Result<Option<Hint<Key<H>>>, Broken> {
        let (mut hint, mut patience) = (pin!(self.observer.hint()), self.harness.patience());
        let hinted = poll_fn(|context| match hint.as_mut().poll(context) {
            Poll::Ready(hint) => Poll::Ready(Some(hint)),
            Poll::Pending => patience.as_mut().poll(context).map(|()| None),
        })
        .await;
        drop(patience);
        let law = self.law;
        hinted.transpose().map_err(|failure| breach::<H>(law, &failure, FAILED))
    }
}

/// The law with this number is broken.
pub(super) fn breach<H: AsyncHarness>(law: u8, how: &dyn Display, help: &'static str) -> Broken {
    Broken::Law { law, source_name: H::Source::NAME, how: how.to_string(), help }
}

fn place<H: AsyncHarness>() -> LedgerKey {
    LedgerKey::new("laws", H::Source::NAME, "law").with_identity("fresh")
}

/// All keys of a desired state.
pub(super) fn keys<D: homeostat_engine::Desired>(desired: &D) -> Vec<D::Key> {
    (0..desired.len()).map(|index| desired.key(Slot::at(index))).collect()
}

/// The entries of a plan or report of these kinds.
pub(super) fn entries(explain: &dyn Explain, kinds: &[Kind]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for kind in kinds {
        explain.explain(*kind, &mut |entry| entries.push(entry));
    }
    entries
}
