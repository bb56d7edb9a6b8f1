//! What the tests share: a source with a ledger that survives "restarts", and a network of its own.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use homeostat_engine::{
    Alone, Config, Entry, Error, Explain, Finding, Focus, LedgerKey, LedgerPage, MemoryLedger,
    Observer, OnRelease, Ownership, PassInput, Plan, Report, Source, ledger_page, pass, plan,
};
use homeostat_knobs::{DesiredState, Key, Knobs, Roots, Sysfs};
use homeostat_testkit::entries::entry_lines;
use homeostat_testkit::namespace::Namespace;

pub(crate) struct Bench {
    pub(crate) source: Knobs,
    pub(crate) config: Config<Key>,
    ledger: Arc<MemoryLedger>,
}

const OWNERSHIP: Ownership = Ownership::Checkpoint;

impl Bench {
    pub(crate) fn new(source: Knobs) -> Self {
        Bench { source, config: Config::default(), ledger: Arc::default() }
    }

    /// The kernel's own knobs, as the calling thread sees them.
    pub(crate) fn of_the_kernel() -> Self {
        Bench::new(Knobs::new(Roots::of_the_system(), None))
    }

    pub(crate) fn restoring(mut self) -> Self {
        self.config.on_release = OnRelease::Restore;
        self
    }

    pub(crate) fn order<'a>(
        &'a self,
        desired: &DesiredState,
        focus: Focus<Key>,
    ) -> PassInput<'a, Knobs> {
        let (source, desired, config) = (&self.source, Arc::new(desired.clone()), &self.config);
        PassInput { source, desired, ownership: &OWNERSHIP, focus, config }
    }

    pub(crate) fn page(&self) -> LedgerPage<Knobs> {
        LedgerPage::open(self.ledger.clone(), filed()).unwrap()
    }

    pub(crate) fn observer(&self) -> Observer<Knobs> {
        Observer::open(&self.source, "test").unwrap()
    }

    pub(crate) fn writer(&self) -> <Knobs as Source>::Writer {
        self.source.writer(&Alone::i_am_the_only_writer()).unwrap()
    }

    pub(crate) fn try_plan(&self, desired: &DesiredState) -> Result<Plan<Knobs>, Error> {
        let held = ledger_page::holdings::<Knobs>(&*self.ledger, &filed()).unwrap();
        let order = self.order(desired, Focus::All);
        block_on(async { plan(&order, &mut self.observer(), &held).await })
    }

    pub(crate) fn plan(&self, desired: &DesiredState) -> Plan<Knobs> {
        self.try_plan(desired).unwrap()
    }

    /// One full pass of a fresh process: only the ledger is left of the ones before.
    pub(crate) fn pass(&self, desired: &DesiredState) -> Report<Knobs> {
        let order = self.order(desired, Focus::All);
        let (mut observer, mut page) = (self.observer(), self.page());
        block_on(async { pass(&order, &mut observer, &self.writer(), &mut page).await.unwrap() })
    }

    /// Expects that a pass has nothing to do (law 6).
    pub(crate) fn assert_quiet(&self, desired: &DesiredState) {
        let report = self.pass(desired);
        assert!(report.is_converged(), "{:#?}", report_lines(&report));
        assert!(report.plan().steps.is_empty(), "{:#?}", report_lines(&report));
    }
}

/// A tree of a test's own: `sys` for sysctls, `sysfs`, and no control groups.
pub(crate) fn roots_below(root: &Path) -> Roots {
    let sysfs = Sysfs::Directory(root.join("sysfs"));
    Roots { sysctl: root.join("sys"), sysfs, cgroup: None, systemd: false }
}

fn filed() -> LedgerKey {
    LedgerKey::new("test", "knobs", "test").with_identity("1")
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) fn desired(pairs: &[(&str, &str)]) -> DesiredState {
    let builder = pairs
        .iter()
        .fold(DesiredState::builder(), |desired, (key, value)| desired.sysctl(key, value).unwrap());
    builder.build().unwrap()
}

/// Everything in a plan or a report, one short line each.
pub(crate) fn report_lines(explain: &dyn Explain) -> Vec<String> {
    entry_lines(explain, line)
}

fn line(entry: Entry) -> String {
    let text = |value: serde_json::Value| value.as_str().unwrap_or("nothing").to_owned();
    match entry {
        Entry::Change(line, _) | Entry::Applied(line, _) => {
            let before = text(line.before.unwrap_or_default());
            let after = text(line.after.unwrap_or_default());
            format!("{} {}: {before} -> {after}", line.action.sign(), line.key)
        }
        Entry::Finding {
            key,
            finding: Finding::Failed { failure, .. } | Finding::NotShown { failure, .. },
        } => {
            format!("failed {key}: {failure}")
        }
        Entry::Finding { key, finding: Finding::Pending { on } } => {
            format!("pending {key} on {on}")
        }
        Entry::Finding { key, finding: Finding::Conflict { owner, reason } } => {
            format!("conflict {key} with {owner}: {reason}")
        }
        Entry::Finding { key, finding: Finding::Settled { wanted, held } } => {
            format!("settled {key}: {} for {}", text(*held), text(*wanted))
        }
        Entry::Finding { key, finding: Finding::Matched { owner } } => {
            format!("matched {key} of {owner}")
        }
        Entry::Finding { key, finding: Finding::Unknown { why } } => {
            format!("unknown {key}: {why}")
        }
        Entry::Finding { key, finding: Finding::Held { why, .. } } => format!("held {key}: {why}"),
        Entry::Finding { key, finding: Finding::Irreversible { why } } => {
            format!("irreversible {key}: {why}")
        }
        Entry::Finding { key, finding: Finding::Parked { .. } } => format!("parked {key}"),
        other => format!("{other:?}"),
    }
}

/// The test's own network.
pub(crate) struct Network(Namespace);

/// Moves the test's own thread into a fresh network namespace.
pub(crate) fn fresh_network() -> Network {
    Network(Namespace::enter().unwrap_or_else(|error| panic!("{error}")))
}

impl Network {
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.0
    }

    pub(crate) fn ip(&self, line: &str) {
        let args: Vec<&str> = line.split_whitespace().collect();
        self.0.ip(&args).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// What the kernel itself says, not read by the source under test.
pub(crate) fn kernel(path: &str) -> String {
    let text = fs::read_to_string(Path::new("/proc/sys/net").join(path)).unwrap();
    text.trim_end().to_owned()
}

/// What another process does to a knob.
pub(crate) fn meddle(path: &str, value: &str) {
    assert_own_network();
    fs::write(Path::new("/proc/sys/net").join(path), value).unwrap();
}

/// No test may change the host's network.
fn assert_own_network() {
    let of = |task: &str| fs::read_link(format!("/proc/{task}/ns/net")).unwrap();
    assert_ne!(of("thread-self"), of("self"), "call fresh_network() first");
}
