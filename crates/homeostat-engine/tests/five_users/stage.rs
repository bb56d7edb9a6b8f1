//! What the five have in common: a counter of writes, and a typed scene for what is special to one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use homeostat_engine::{
    Alone, Bound, Error, Explain as _, Focus, Kind, LedgerKey, LedgerPage, MemoryLedger, Observer,
    Ownership, PassInput, Plan, Report, Source, apply, pass, plan,
};

/// How many writes the targets were asked for.
#[derive(Clone, Default)]
pub(crate) struct Writes(Arc<AtomicU64>);

impl Writes {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// The count, which begins again.
    pub(crate) fn take(&self) -> u64 {
        self.0.swap(0, Ordering::SeqCst)
    }
}

pub(crate) fn bind<S: Source>(source: S, desired: S::Desired, ownership: Ownership) -> Bound<S> {
    Bound::new(source, desired, ownership, LedgerKey::new("five", S::NAME, "memory"))
}

/// A source in action, with its types.
pub(crate) struct Scene<S: Source> {
    pub(crate) bound: Bound<S>,
    pub(crate) ledger_page: LedgerPage<S>,
    observer: Observer<S>,
    writer: S::Writer,
}

impl<S: Source> Scene<S> {
    pub(crate) fn open(bound: Bound<S>) -> Self {
        let ledger_page =
            LedgerPage::open(Arc::new(MemoryLedger::default()), bound.ledger_key.clone()).unwrap();
        let observer = Observer::open(&bound.source, "memory").unwrap();
        let writer = bound.source.writer(&Alone::i_am_the_only_writer()).unwrap();
        Scene { bound, ledger_page, observer, writer }
    }

    pub(crate) async fn plan(&mut self) -> Result<Plan<S>, Error> {
        let order = order(&self.bound, Focus::All);
        plan(&order, &mut self.observer, self.ledger_page.holdings()).await
    }

    pub(crate) async fn apply(&mut self, plan: Plan<S>) -> Report<S> {
        let order = order(&self.bound, Focus::All);
        let (observer, ledger_page) = (&mut self.observer, &mut self.ledger_page);
        apply(&order, observer, &self.writer, ledger_page, plan).await.unwrap()
    }

    pub(crate) async fn pass(&mut self) -> Report<S> {
        self.pass_on(Focus::All).await
    }

    pub(crate) async fn heal(&mut self, keys: impl IntoIterator<Item = S::Key>) -> Report<S> {
        self.pass_on(Focus::Keys(keys.into_iter().collect::<BTreeSet<_>>())).await
    }

    async fn pass_on(&mut self, focus: Focus<S::Key>) -> Report<S> {
        let order = order(&self.bound, focus);
        pass(&order, &mut self.observer, &self.writer, &mut self.ledger_page).await.unwrap()
    }
}

fn order<S: Source>(bound: &Bound<S>, focus: Focus<S::Key>) -> PassInput<'_, S> {
    let Bound { source, desired, ownership, config, .. } = bound;
    PassInput { source, desired: desired.clone(), ownership, focus, config }
}

/// The keys of all entries of one kind.
pub(crate) fn keys<S: Source>(report: &Report<S>, kind: Kind) -> Vec<String> {
    let mut found = Vec::new();
    report.explain(kind, &mut |entry| found.push(entry.key().to_owned()));
    found
}
