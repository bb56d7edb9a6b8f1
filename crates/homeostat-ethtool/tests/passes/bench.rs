//! What the tests share: links of their own, a source with a ledger that survives "restarts", and the judge.
#![expect(clippy::disallowed_methods, reason = "the judge is another program")]

use std::process::Command;
use std::sync::Arc;

use homeostat_engine::{
    Alone, Config, Entry, Explain, Finding, Focus, LedgerKey, LedgerPage, MemoryLedger, Observer,
    OnRelease, Ownership, PassInput, Report, Source as _, pass,
};
use homeostat_ethtool::{DesiredState, Ethtool, Key, Value};
use homeostat_testkit::entries::entry_lines;
use homeostat_testkit::namespace::Namespace;

pub(crate) struct Bench {
    /// Nothing, where the links of the machine are meant.
    namespace: Option<Namespace>,
    ledger: Arc<MemoryLedger>,
}

impl Bench {
    /// A fresh namespace with pairs of links, each with two queues: `v0` and `w0`, `v1` and `w1`...
    pub(crate) fn with_pairs(count: usize) -> Self {
        let namespace = Namespace::enter().unwrap_or_else(|error| panic!("{error}"));
        let bench = Bench { namespace: Some(namespace), ..Bench::here() };
        for number in 0..count {
            bench.ip(&format!(
                "link add v{number} numtxqueues 2 numrxqueues 2 type veth peer name w{number}"
            ));
        }
        bench
    }

    /// The namespace that the test runs in.
    pub(crate) fn here() -> Self {
        Bench { namespace: None, ledger: Arc::default() }
    }

    pub(crate) fn ip(&self, line: &str) {
        let args: Vec<&str> = line.split_whitespace().collect();
        let namespace = self.namespace.as_ref().unwrap_or_else(|| panic!("no namespace"));
        namespace.ip(&args).unwrap_or_else(|error| panic!("{error}"));
    }

    pub(crate) fn source() -> Ethtool {
        Ethtool::new(None)
    }

    /// One full pass of a fresh process: only the ledger is left of the ones before.
    pub(crate) fn pass(&self, desired: &DesiredState) -> Report<Ethtool> {
        let mut config = Config::<Key>::default();
        config.on_release = OnRelease::Restore;
        let source = Bench::source();
        let ownership = &Ownership::Checkpoint;
        let (desired, focus) = (Arc::new(desired.clone()), Focus::All);
        let input = PassInput { source: &source, desired, ownership, focus, config: &config };
        let key = LedgerKey::new("test", "ethtool", "test").with_identity("1");
        let mut page = LedgerPage::open(self.ledger.clone(), key).unwrap();
        let mut observer = Observer::open(&source, "test").unwrap();
        let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
        block_on(async { pass(&input, &mut observer, &writer, &mut page).await.unwrap() })
    }

    #[track_caller]
    pub(crate) fn converges(&self, desired: &DesiredState) {
        let report = self.pass(desired);
        assert!(report.is_converged(), "{:#?}", report_lines(&report));
        let report = self.pass(desired);
        assert!(report.is_converged(), "{:#?}", report_lines(&report));
        assert!(report.plan().steps.is_empty(), "{:#?}", report_lines(&report));
    }
}

/// What `ethtool` prints.
pub(crate) fn ethtool(line: &str) -> String {
    let args: Vec<&str> = line.split_whitespace().collect();
    let output = Command::new("ethtool").args(&args).output();
    let output = output.unwrap_or_else(|error| panic!("ethtool: {error}: run `cargo xtask setup`"));
    assert!(output.status.success(), "ethtool {line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether a feature is on, and whether it is asked for. `ethtool` has its own words for some.
pub(crate) fn feature(link: &str, name: &str) -> (bool, bool) {
    let shown = ethtool(&format!("--json -k {link}"));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let is = |what: &str| {
        let found = shown[0][name][what].as_bool();
        found.unwrap_or_else(|| panic!("`ethtool -k {link}` has no `{name}`: {shown}"))
    };
    (is("active"), is("requested"))
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) fn key(text: &str) -> Key {
    text.parse().unwrap()
}

pub(crate) fn switches(pairs: &[(&str, bool)]) -> DesiredState {
    DesiredState::new(pairs.iter().map(|(text, on)| (key(text), Value::Switch(*on))))
}

pub(crate) fn numbers(pairs: &[(&str, u32)]) -> DesiredState {
    DesiredState::new(pairs.iter().map(|(text, number)| (key(text), Value::Number(*number))))
}

/// Everything in a plan or a report, one short line each.
pub(crate) fn report_lines(explain: &dyn Explain) -> Vec<String> {
    entry_lines(explain, |entry| match entry {
        Entry::Change(line, _) | Entry::Applied(line, _) => {
            let text = |value: Option<serde_json::Value>| value.unwrap_or_default().to_string();
            let note = line.note.map(|note| format!(" ({note})")).unwrap_or_default();
            let (before, after) = (text(line.before), text(line.after));
            format!("{} {}: {before} -> {after}{note}", line.action.sign(), line.key)
        }
        Entry::Finding {
            key,
            finding: Finding::Failed { failure, .. } | Finding::NotShown { failure, .. },
        } => {
            let help = failure.help.as_deref().unwrap_or_default().to_owned();
            format!("failed {key}: {} ({help})", failure.error)
        }
        Entry::Finding { key, finding: Finding::Pending { on } } => {
            format!("pending {key} on {on}")
        }
        Entry::Finding { key, finding: Finding::Settled { wanted, held } } => {
            format!("settled {key}: {held} for {wanted}")
        }
        other => format!("{other:?}"),
    })
}
