//! The service, an owner with a ledger, and summaries of passes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{
    Alone, Bound, Config, Edit, Entry, Error, Exclusive, Explain, Finding, Focus, Handle, Kind,
    Ledger, LedgerKey, LedgerPage, Loop, LoopDeps, MemoryLedger, Observer, Ownership, Pace, Page,
    Pages, PassInput, Prefixes, Report, Source as _, pass,
};
use homeostat_kit::Strategy;
use homeostat_kit::simple::{Adapted, DesiredObjects, Versioned, place};
use homeostat_shapes::client::Client;
use homeostat_shapes::service::Service;
use homeostat_shapes::shape::Shape;
use homeostat_shapes::source::Shapes;

/// A desired state, as the reader of a test likes it: names and colours of squares.
pub(crate) type Squares<'a> = &'a [(&'a str, &'a str)];

pub(crate) const TWO: Squares<'static> = &[("my-door", "green"), ("my-window", "blue")];
pub(crate) const DOOR: Squares<'static> = &[("my-door", "green")];

pub(crate) fn desired(squares: Squares<'_>) -> DesiredObjects<Shapes> {
    let object = |colour: &str| Versioned::declared(Shape::square(colour));
    DesiredObjects::new(squares.iter().map(|(name, colour)| ((*name).to_owned(), object(colour))))
        .unwrap()
}

pub(crate) fn marker() -> Strategy {
    Strategy::marker("me").unwrap()
}

pub(crate) fn prefix() -> Strategy {
    Strategy::Prefix(Prefixes::default().claim("my-").unwrap())
}

pub(crate) fn exclusive() -> Strategy {
    Strategy::Exclusive(Exclusive::everything_in_this_scope_is_mine())
}

/// All strategies that share a service with strangers.
pub(crate) fn shared() -> [Strategy; 3] {
    [marker(), prefix(), Strategy::Checkpoint]
}

const KINDS: [Kind; 6] =
    [Kind::Applied, Kind::Failed, Kind::Pending, Kind::Conflict, Kind::Unknown, Kind::Held];

/// A report in words.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PassSummary {
    pub(crate) applied: Vec<String>,
    pub(crate) open: BTreeMap<String, String>,
    pub(crate) converged: bool,
}

impl PassSummary {
    pub(crate) fn of(report: &dyn Explain) -> Self {
        let mut summary =
            PassSummary { converged: report.is_converged(), ..PassSummary::default() };
        for kind in KINDS {
            report.explain(kind, &mut |entry| summary.take(entry));
        }
        summary
    }

    fn take(&mut self, entry: Entry) {
        let (key, what) = match entry {
            Entry::Applied(line, _) => {
                return self.applied.push(format!("{} {}", line.action.sign(), line.key));
            }
            Entry::Finding { key, finding: Finding::Conflict { reason, .. } } => {
                (key, format!("conflict: {reason}"))
            }
            Entry::Finding {
                key,
                finding: Finding::Failed { failure, .. } | Finding::NotShown { failure, .. },
            } => (key, format!("failed: {failure}")),
            Entry::Finding { key, finding: Finding::Unknown { why } } => {
                (key, format!("unknown: {why}"))
            }
            Entry::Finding { key, finding: Finding::Pending { on } } => {
                (key, format!("pending: {on}"))
            }
            Entry::Finding { key, finding: Finding::Held { why, .. } } => {
                (key, format!("held: {why}"))
            }
            _ => return,
        };
        self.open.insert(key, what);
    }
}

/// One process of an owner: what it forgets when it ends is forgotten with this.
pub(crate) struct Life {
    source: Adapted<Shapes>,
    observer: Observer<Adapted<Shapes>>,
    book: LedgerPage<Adapted<Shapes>>,
    pub(crate) ownership: Ownership,
    pub(crate) config: Config<String>,
}

impl Life {
    pub(crate) fn begin(
        source: &Adapted<Shapes>,
        strategy: &Strategy,
        ledger: Arc<dyn Ledger>,
    ) -> Self {
        Life {
            source: source.clone(),
            observer: Observer::open(source, "loopback").unwrap(),
            book: LedgerPage::open(ledger, place::<Shapes>("me", "loopback")).unwrap(),
            ownership: strategy.ownership(),
            config: Config::default(),
        }
    }

    pub(crate) async fn try_pass(
        &mut self,
        desired: DesiredObjects<Shapes>,
    ) -> Result<PassSummary, Error> {
        self.report(desired).await.map(|report| PassSummary::of(&report))
    }

    pub(crate) async fn report(
        &mut self,
        desired: DesiredObjects<Shapes>,
    ) -> Result<Report<Adapted<Shapes>>, Error> {
        let Life { source, observer, book, ownership, config } = self;
        let focus = Focus::All;
        let order = PassInput { source, desired: Arc::new(desired), ownership, focus, config };
        let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
        pass(&order, observer, &writer, book).await
    }

    pub(crate) async fn pass(&mut self, squares: Squares<'_>) -> PassSummary {
        self.try_pass(desired(squares)).await.unwrap()
    }

    pub(crate) fn recorded(&self) -> Vec<String> {
        self.book.holdings().records.keys().cloned().collect()
    }
}

/// The service and one owner of shapes in it.
pub(crate) struct Stage {
    pub(crate) service: Service,
    pub(crate) ledger: Arc<MemoryLedger>,
    pub(crate) strategy: Strategy,
    pub(crate) source: Adapted<Shapes>,
}

impl Stage {
    pub(crate) fn new(strategy: Strategy) -> Self {
        let service = Service::start().unwrap();
        let source = source(&service, &strategy);
        Stage { service, ledger: Arc::default(), strategy, source }
    }

    pub(crate) fn api(&self) -> Shapes {
        Shapes { client: Client::new(self.service.addr()), strategy: self.strategy.clone() }
    }

    pub(crate) fn witnessed(mut self) -> Self {
        self.source = self.source.witnessed();
        self
    }

    /// A process of the owner, with the ledger that the last one left.
    pub(crate) fn life(&self) -> Life {
        Life::begin(&self.source, &self.strategy, self.ledger.clone())
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.service.state().calls)
    }

    pub(crate) fn bound(&self, squares: Squares<'_>) -> Bound<Adapted<Shapes>> {
        self.source
            .bind(&self.strategy, desired(squares), place::<Shapes>("me", "loopback"))
            .unwrap()
    }

    /// A loop that looks at everything once in this time.
    pub(crate) fn keep(&self, squares: Squares<'_>, resync: Duration) -> Handle<Adapted<Shapes>> {
        let lock = Arc::new(Alone::i_am_the_only_writer());
        let deps = LoopDeps::new(lock, self.ledger.clone());
        let pace = Pace::of::<Adapted<Shapes>>(1).with_resync(resync).unwrap();
        let (kept, handle) = Loop::new(self.bound(squares), deps, pace);
        tokio::spawn(kept.run());
        handle
    }
}

pub(crate) fn source(service: &Service, strategy: &Strategy) -> Adapted<Shapes> {
    let client = Client::new(service.addr());
    Adapted::new(Shapes { client, strategy: strategy.clone() })
}

/// A minute, after which waiting for something is a failure.
pub(crate) async fn in_time<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    let minute = Duration::from_mins(1);
    tokio::time::timeout(minute, waiting).await.unwrap_or_else(|_| panic!("never came: {what}"))
}

/// Waits until something is so, while others run.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let mut turn = tokio::time::interval(Duration::from_millis(2));
    in_time(what, async {
        while !so() {
            turn.tick().await;
        }
    })
    .await;
}

/// The ledger of a stage, lent to a process that may die.
pub(crate) struct Lent(pub(crate) Arc<MemoryLedger>);

impl Pages for Lent {
    fn page(&self, place: &LedgerKey) -> Result<Page, Error> {
        self.0.page(place)
    }

    fn places(&self, owner: &str) -> Result<Vec<LedgerKey>, Error> {
        self.0.places(owner)
    }
}

impl Ledger for Lent {
    fn write(&self, place: &LedgerKey, edits: &[Edit]) -> Result<(), Error> {
        self.0.write(place, edits)
    }
}
