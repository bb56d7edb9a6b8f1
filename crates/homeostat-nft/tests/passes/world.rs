//! A namespace, passes over it, and `nft` as the independent judge.
#![expect(clippy::disallowed_methods, reason = "runs `nft`")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{
    Alone, Config, Entry, Explain, Finding, Focus, Kind, LedgerKey, LedgerPage, MassDelete,
    MemoryLedger, Observer, Ownership, PassInput, Plan, Report, Snapshot, Source as _, Writer as _,
    pass,
};
use homeostat_nft::{
    CompileError, Compiler, DesiredState, Key, Mark, Nft, Ruleset, Wording, Writer,
};
use homeostat_testkit::namespace::Namespace;
use serde_json::Value;

/// A fresh namespace with our source in it.
pub(crate) struct World {
    pub(crate) namespace: Namespace,
    pub(crate) source: Nft,
    observer: Observer<Nft>,
    writer: Writer,
    pub(crate) page: LedgerPage<Nft>,
    pub(crate) config: Config<Key>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::worded(Wording::Parts)
    }

    /// One whose plans describe rules in this way.
    pub(crate) fn worded(wording: Wording) -> Self {
        let namespace = Namespace::enter().unwrap();
        let source = Nft::here(Mark::new("test")).with_wording(wording);
        let observer = Observer::open(&source, "test").unwrap();
        let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
        let page = LedgerPage::open(Arc::new(MemoryLedger::default()), place()).unwrap();
        let mut config = Config::default();
        config.guards.mass_delete = MassDelete::Allow;
        World { namespace, source, observer, writer, page, config }
    }

    pub(crate) fn compile(&self, text: &str) -> Result<DesiredState, CompileError> {
        let (name, directory) = ("fw.nft".to_owned(), std::env::temp_dir());
        let ruleset = Ruleset { text: text.into(), name, directory, root: "/".into() };
        Compiler::default().compile(&ruleset, &self.source)
    }

    pub(crate) fn desired(&self, text: &str) -> Arc<DesiredState> {
        Arc::new(self.compile(text).unwrap_or_else(|error| panic!("{error}\n{text}")))
    }

    pub(crate) fn plan(&mut self, desired: &Arc<DesiredState>) -> Plan<Nft> {
        let World { source, observer, page, config, .. } = self;
        let (focus, ownership) = (Focus::All, &Ownership::Marked);
        let order = PassInput { source, desired: Arc::clone(desired), focus, ownership, config };
        done(pass::plan(&order, observer, page.holdings())).unwrap()
    }

    pub(crate) fn pass(&mut self, desired: &Arc<DesiredState>) -> Report<Nft> {
        let World { source, observer, writer, page, config, .. } = self;
        let (focus, ownership) = (Focus::All, &Ownership::Marked);
        let order = PassInput { source, desired: Arc::clone(desired), focus, ownership, config };
        done(pass::pass(&order, observer, writer, page)).unwrap()
    }

    /// Calls this before each request of a look.
    pub(crate) fn before_each_call(&mut self, run: impl FnMut() + Send + 'static) {
        self.observer.reader().before_each_call(run);
    }

    /// Looks at everything are answered from notifications wherever they can be, however long ago it was read.
    pub(crate) fn rest_from_reading(&mut self) {
        self.observer.reader().read_again_after(Duration::from_hours(1));
    }

    /// The next look at everything reads everything.
    pub(crate) fn read_anew(&mut self) {
        self.observer.reader().read_again_after(Duration::ZERO);
    }

    pub(crate) fn apply_plan(
        &mut self,
        desired: &Arc<DesiredState>,
        plan: Plan<Nft>,
    ) -> Report<Nft> {
        let World { source, observer, writer, page, config, .. } = self;
        let (focus, ownership) = (Focus::All, &Ownership::Marked);
        let order = PassInput { source, desired: Arc::clone(desired), focus, ownership, config };
        done(pass::apply(&order, observer, writer, page, plan)).unwrap()
    }

    /// A pass inside of a test's own runtime: whether it converged.
    pub(crate) async fn pass_async(&mut self, desired: &Arc<DesiredState>) -> bool {
        let World { source, observer, writer, page, config, .. } = self;
        let (focus, ownership) = (Focus::All, &Ownership::Marked);
        let order = PassInput { source, desired: Arc::clone(desired), focus, ownership, config };
        pass::pass(&order, observer, writer, page).await.unwrap().is_converged()
    }

    /// Applies a text in one pass and shows that the next one would write nothing.
    pub(crate) fn converge(&mut self, text: &str) {
        let desired = self.desired(text);
        let report = self.pass(&desired);
        assert!(report.is_converged(), "{}\n{text}", explained(&report));
        let plan = self.plan(&desired);
        assert!(plan.steps.is_empty(), "a second pass would write: {}\n{text}", explained(&plan));
    }

    /// Makes a table again as it was recorded.
    pub(crate) fn restore(&self, key: &str, snapshot: &Snapshot) {
        let outcome = done(self.writer.restore(&key.parse().unwrap(), snapshot));
        assert!(outcome.is_good(), "{outcome:?}");
    }

    /// What the next plan for a text says.
    pub(crate) fn planned(&mut self, text: &str) -> String {
        let desired = self.desired(text);
        explained(&self.plan(&desired))
    }

    pub(crate) fn adopt(&mut self, key: &str) {
        self.config.adopt = BTreeSet::from([key.parse().unwrap()]);
    }
}

fn place() -> LedgerKey {
    LedgerKey::new("test", "nft", "test").with_identity("1")
}

/// Everything in a plan or report, a line each.
pub(crate) fn explained(report: &dyn Explain) -> String {
    let mut lines = Vec::new();
    let kinds = [
        Kind::Change,
        Kind::Applied,
        Kind::Failed,
        Kind::Pending,
        Kind::Conflict,
        Kind::Matched,
        Kind::Unknown,
        Kind::Held,
    ];
    for kind in kinds {
        report.explain(kind, &mut |entry| lines.push(line(&entry)));
    }
    lines.join("\n")
}

fn line(entry: &Entry) -> String {
    let (line, word) = match entry {
        Entry::Change(line, _) => (line, ""),
        Entry::Applied(line, _) => (line, "done "),
        Entry::Finding {
            key,
            finding: Finding::Failed { failure, .. } | Finding::NotShown { failure, .. },
        } => {
            return format!("failed {key}: {failure}");
        }
        Entry::Finding { key, finding: Finding::Conflict { owner, reason } } => {
            return format!("conflict {key}: {owner}, {reason}");
        }
        Entry::Finding { key, finding: Finding::Matched { owner } } => {
            return format!("matched {key}: {owner}");
        }
        other => return format!("{other:?}"),
    };
    let mut text = format!("{word}{} {}", line.action.sign(), line.key);
    for value in [&line.before, &line.after].into_iter().flatten() {
        text.push_str(" | ");
        let words = value["rule"].as_str().or(value.as_str());
        text.push_str(&words.map_or_else(|| value.to_string(), str::to_owned));
    }
    let note = line.note.as_ref().map(|note| format!(" ({note})"));
    text + &note.unwrap_or_default()
}

/// Runs `nft` on the calling thread's network.
pub(crate) fn nft(arguments: &[&str], text: &str) -> Result<String, String> {
    nft_from(Path::new("."), arguments, text)
}

/// The same from another directory, which some includes are relative to.
pub(crate) fn nft_from(directory: &Path, arguments: &[&str], text: &str) -> Result<String, String> {
    let mut child = Command::new("nft")
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(words(&output.stdout)) } else { Err(words(&output.stderr)) }
}

/// Runs `ip` on the calling thread's network.
pub(crate) fn ip_here(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(status.success(), "ip {words}");
}

/// Runs one command of nft, as another program would.
pub(crate) fn by_hand(command: &str) {
    nft(&["-f", "-"], command).unwrap_or_else(|words| panic!("{command}: {words}"));
}

/// The ruleset as `nft -j` lists it, without handles, counts and names that the kernel gave.
pub(crate) fn listed() -> Vec<Value> {
    listed_if_readable().unwrap()
}

/// The same, if `nft` prints valid JSON: version 1.0.6 does not for a dormant table.
pub(crate) fn listed_if_readable() -> Option<Vec<Value>> {
    let text = nft(&["-j", "list", "ruleset"], "").unwrap();
    let all: Value = serde_json::from_str(&text).ok()?;
    let mut entries = all["nftables"].as_array().unwrap().clone();
    entries.retain(|entry| entry.get("metainfo").is_none());
    entries.iter_mut().for_each(steady);
    // Rules are listed in their order; of everything else the order means nothing.
    let mut others: Vec<_> =
        entries.iter().filter(|entry| entry.get("rule").is_none()).cloned().collect();
    others.sort_by_key(ToString::to_string);
    let mut rules: Vec<_> =
        entries.into_iter().filter(|entry| entry.get("rule").is_some()).collect();
    let chain = |rule: &Value| {
        ["family", "table", "chain"].map(|at| rule["rule"][at].as_str().unwrap_or("").to_owned())
    };
    rules.sort_by_key(chain);
    others.extend(rules);
    Some(others)
}

fn steady(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for gone in ["handle", "packets", "bytes", "used", "expires", "last"] {
                fields.remove(gone);
            }
            // The elements of a set have no order.
            if let Some(Value::Array(elements)) = fields.get_mut("elem") {
                elements.iter_mut().for_each(steady);
                elements.sort_by_key(ToString::to_string);
            }
            fields.values_mut().for_each(steady);
        }
        Value::Array(entries) => entries.iter_mut().for_each(steady),
        _ => {}
    }
}

/// What `nft -f` of a text gives in a namespace of its own.
pub(crate) fn expected(text: &str) -> Vec<Value> {
    expected_with(text, |_| {})
}

/// The same in a namespace that was prepared.
pub(crate) fn expected_with(text: &str, prepare: fn(&World)) -> Vec<Value> {
    let text = text.to_owned();
    expected_of(prepare, move || by_hand(&text))
}

/// What another way of loading gives there.
pub(crate) fn expected_of(prepare: fn(&World), load: impl FnOnce() + Send + 'static) -> Vec<Value> {
    std::thread::spawn(move || {
        let world = World::new();
        prepare(&world);
        load();
        listed()
    })
    .join()
    .unwrap()
}

pub(crate) fn done<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
