//! A new target with everything that passes over it need.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use homeostat_engine::{
    Alone, Book, Config, Entry, Error, Explain, Failure, Focus, Guards, Hint, Kind, LedgerKey,
    MassDelete, MemoryLedger, Observer, Order, Ownership, Plan, Reader, Report, Seen, Slot, Source,
    Strictness, View, pass, plan,
};

use super::harness::{Ability, DesiredState, Disturbance, Harness, Key};
use super::verdict::{Broken, LAWS, Law};
use crate::ledger::{Count, Tapped};

/// All objects of a target, by the harness.
pub(super) type Snapshot = BTreeMap<String, String>;
pub(super) type Object<H> = <<H as Harness>::Source as Source>::Object;
pub(super) type Desired<H> = Arc<<<H as Harness>::Source as Source>::Desired>;

/// The fixture of one check.
pub(super) struct Fixture<'h, H: Harness> {
    pub(super) harness: &'h mut H,
    pub(super) source: H::Source,
    pub(super) ownership: Ownership,
    pub(super) config: Config<Key<H>>,
    pub(super) writer: <H::Source as Source>::Writer,
    pub(super) book: Book<H::Source>,
    pub(super) ledger_writes: Count,
    ledger: Arc<Tapped<MemoryLedger>>,
    observer: Observer<H::Source>,
    law: Law,
}

impl<'h, H: Harness> Fixture<'h, H> {
    /// A new target for the check of the law with this number.
    pub(super) fn open(harness: &'h mut H, law: usize) -> Result<Self, Broken> {
        Self::with_ledger(harness, law, |_| Tapped::new(MemoryLedger::default()))
    }

    /// The same with another ledger.
    pub(super) fn with_ledger(
        harness: &'h mut H,
        law: usize,
        ledger: impl FnOnce(&H) -> Tapped<MemoryLedger>,
    ) -> Result<Self, Broken> {
        harness.reset();
        let law = by_number(law);
        let source = harness.source();
        let ledger = Arc::new(ledger(harness));
        let broken = |error: &dyn std::fmt::Display| breach::<H>(law, format!("{error}"));
        let lock = Alone::i_am_the_only_writer();
        Ok(Fixture {
            writer: source.writer(&lock).map_err(|failure| broken(&failure))?,
            observer: Observer::open(&source, "law").map_err(|error| broken(&error))?,
            book: Book::open(ledger.clone(), place::<H>()).map_err(|error| broken(&error))?,
            ledger_writes: ledger.count(),
            ownership: harness.ownership(),
            config: config(),
            ledger,
            source,
            harness,
            law,
        })
    }

    /// Opens everything anew, as after a restart of the process.
    pub(super) fn restart(&mut self) -> Result<(), Broken> {
        self.source = self.harness.source();
        let opened = Observer::open(&self.source, "law");
        self.observer = opened.map_err(|error| self.broken(&error))?;
        let opened = Book::open(self.ledger.clone(), place::<H>());
        self.book = opened.map_err(|error| self.broken(&error))?;
        Ok(())
    }

    pub(super) fn strict(mut self) -> Self {
        self.config.strictness = Strictness::Strict;
        self
    }

    pub(super) fn desired(&self, which: DesiredState) -> Desired<H> {
        Arc::new(self.harness.desired(which))
    }

    /// The law is broken, and this is how it shows.
    pub(super) fn broken(&self, how: &dyn std::fmt::Display) -> Broken {
        breach::<H>(self.law, how.to_string())
    }

    pub(super) fn demand(&self, holds: bool, how: impl FnOnce() -> String) -> Result<(), Broken> {
        if holds { Ok(()) } else { Err(self.broken(&how())) }
    }

    fn order<'a>(&'a self, desired: &Desired<H>, focus: Focus<Key<H>>) -> Order<'a, H::Source> {
        let (source, ownership, config) = (&self.source, &self.ownership, &self.config);
        Order { source, desired: desired.clone(), ownership, focus, config }
    }

    /// Disturbs the target; returns the objects that are new or changed.
    pub(super) fn disturb(&mut self, how: Disturbance<'_, Key<H>>) -> Option<Snapshot> {
        let before = self.harness.snapshot();
        match self.harness.disturb(how) {
            Ability::Unable => None,
            Ability::Done => {
                let mut after = self.harness.snapshot();
                after.retain(|key, text| before.get(key) != Some(text));
                Some(after)
            }
        }
    }

    pub(super) async fn plan(&mut self, desired: &Desired<H>) -> Result<Plan<H::Source>, Broken> {
        let mut observer =
            Observer::open(&self.source, "law").map_err(|error| self.broken(&error))?;
        let order = self.order(desired, Focus::All);
        let planned = plan(&order, &mut observer, self.book.holdings()).await;
        planned.map_err(|error| self.broken(&error))
    }

    /// One pass, which may fail.
    pub(super) async fn try_pass(
        &mut self,
        desired: &Desired<H>,
        focus: Focus<Key<H>>,
    ) -> Result<Report<H::Source>, Error> {
        let Fixture { source, ownership, config, observer, writer, book, .. } = self;
        let order = Order { source, desired: desired.clone(), ownership, focus, config };
        pass(&order, observer, writer, book).await
    }

    /// One full pass, which must not fail.
    pub(super) async fn pass(&mut self, desired: &Desired<H>) -> Result<Report<H::Source>, Broken> {
        let report = self.try_pass(desired, Focus::All).await;
        report.map_err(|error| self.broken(&format!("a pass failed: {error}")))
    }

    /// One full pass, which must end converged.
    pub(super) async fn converge(
        &mut self,
        desired: &Desired<H>,
    ) -> Result<Report<H::Source>, Broken> {
        let report = self.pass(desired).await?;
        self.demand(report.is_converged(), || {
            format!("a pass did not converge: {}", troubles(&report).join("; "))
        })?;
        Ok(report)
    }

    /// What a new reader reports.
    pub(super) async fn look(
        &self,
        desired: &Desired<H>,
    ) -> Result<Vec<Seen<Key<H>, Object<H>>>, Failure> {
        let mut all = Vec::new();
        let mut reader = self.source.reader()?;
        let records = &self.book.holdings().records;
        let view = View { focus: &Focus::All, desired, records };
        reader.observe(&view, &mut |seen| all.push(seen)).await?;
        Ok(all)
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
        hinted.transpose().map_err(|failure| breach::<H>(law, failure.to_string()))
    }
}

fn breach<H: Harness>(law: Law, how: String) -> Broken {
    Broken::Law { law, source: H::Source::NAME, how }
}

/// The law with this number is broken.
pub(super) fn broken_by<H: Harness>(law: usize, how: String) -> Broken {
    breach::<H>(by_number(law), how)
}

fn by_number(number: usize) -> Law {
    let [first, ..] = LAWS;
    LAWS.get(number.wrapping_sub(1)).copied().unwrap_or(first)
}

fn place<H: Harness>() -> LedgerKey {
    let [owner, scope, identity] = ["laws", "law", "fresh"].map(str::to_owned);
    LedgerKey { owner, source: H::Source::NAME.to_owned(), scope, identity }
}

/// Without the guard against mass deletes, since these desired states are small.
fn config<K: homeostat_engine::Key>() -> Config<K> {
    let guards = Guards { mass_delete: MassDelete::Allow, ..Guards::default() };
    Config { guards, ..Config::default() }
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

/// The entries that keep a report from being converged.
pub(super) fn troubles(explain: &dyn Explain) -> Vec<String> {
    let kinds = [Kind::Failed, Kind::Pending, Kind::Conflict, Kind::Unknown, Kind::Held];
    entries(explain, &kinds).iter().map(|entry| format!("{entry:?}")).collect()
}
