//! What the tests share: a namespace with links, `tc` as the judge, and a source whose ledger survives "restarts".
#![expect(
    clippy::disallowed_methods,
    reason = "the one module of these tests that starts programs"
)]

use std::process::Command;
use std::sync::Arc;

use homeostat_engine::{
    Alone, Config, Entry, Explain, Finding, Focus, LedgerKey, LedgerPage, MassDelete, MemoryLedger,
    Observer, Ownership, PassInput, Report, Source as _, pass,
};
use homeostat_qdisc::{DesiredState, Key, Object, Qdiscs, Wanted};
use homeostat_testkit::entries::entry_lines;
use homeostat_testkit::namespace::Namespace;
use serde_json::Value;

pub(crate) struct Bench {
    pub(crate) namespace: Namespace,
    pub(crate) source: Qdiscs,
    pub(crate) config: Config<Key>,
    ledger: Arc<MemoryLedger>,
}

impl Bench {
    /// A new namespace with a pair of links, `va` and `vb`, and `ifb0`.
    pub(crate) fn new() -> Self {
        let namespace = Namespace::enter().unwrap_or_else(|error| panic!("{error}"));
        // With IPv6, links send packets of their own, which qdiscs count.
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        let mut config = Config::default();
        config.guards.mass_delete = MassDelete::Allow;
        let bench = Bench { namespace, source: Qdiscs::here(), config, ledger: Arc::default() };
        bench.ip("link add va type veth peer name vb");
        bench.ip("link add ifb0 type ifb");
        for link in ["va", "vb", "ifb0"] {
            bench.ip(&format!("link set {link} up"));
        }
        bench
    }

    pub(crate) fn ip(&self, line: &str) {
        let args: Vec<&str> = line.split_whitespace().collect();
        self.namespace.ip(&args).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Offers `va` thirty packets of a thousand bytes at once, all of which are broadcast: none waits for a neighbour.
    pub(crate) fn flood(&self) {
        self.ip("address add 192.0.2.1/24 broadcast + dev va");
        let socket = std::net::UdpSocket::bind("192.0.2.1:0").unwrap();
        socket.set_broadcast(true).unwrap();
        for _ in 0..30 {
            // A full queue may refuse one.
            let _ = socket.send_to(&[0; 1000], "192.0.2.255:9");
        }
    }

    fn order<'a>(&'a self, desired: &DesiredState, focus: Focus<Key>) -> PassInput<'a, Qdiscs> {
        let (source, desired, config) = (&self.source, Arc::new(desired.clone()), &self.config);
        PassInput { source, desired, ownership: &Ownership::Checkpoint, focus, config }
    }

    pub(crate) fn page(&self) -> LedgerPage<Qdiscs> {
        LedgerPage::open(self.ledger.clone(), filed()).unwrap()
    }

    /// One full pass of a fresh process: only the ledger is left of the ones before.
    pub(crate) fn pass(&self, desired: &DesiredState) -> Report<Qdiscs> {
        let order = self.order(desired, Focus::All);
        let mut observer = Observer::open(&self.source, "test").unwrap();
        let writer = self.source.writer(&Alone::i_am_the_only_writer()).unwrap();
        let mut page = self.page();
        block_on(async { pass(&order, &mut observer, &writer, &mut page).await.unwrap() })
    }

    /// A pass over some keys, by a reader that has looked at everything before `disturb`.
    pub(crate) fn heal(
        &self,
        desired: &DesiredState,
        keys: &[&str],
        disturb: impl FnOnce(),
    ) -> Report<Qdiscs> {
        let keys = keys.iter().map(|key| key.parse().unwrap()).collect();
        let [all, few] = [Focus::All, Focus::Keys(keys)].map(|focus| self.order(desired, focus));
        let mut observer = Observer::open(&self.source, "test").unwrap();
        let writer = self.source.writer(&Alone::i_am_the_only_writer()).unwrap();
        let mut page = self.page();
        block_on(async {
            pass(&all, &mut observer, &writer, &mut page).await.unwrap();
            disturb();
            pass(&few, &mut observer, &writer, &mut page).await.unwrap()
        })
    }

    #[track_caller]
    pub(crate) fn converge(&self, desired: &DesiredState) -> Vec<String> {
        let report = self.pass(desired);
        assert!(report.is_converged(), "{:#?}", report_lines(&report));
        self.assert_quiet(desired);
        report_lines(&report)
    }

    /// Expects that a pass has nothing to do (law 6).
    #[track_caller]
    pub(crate) fn assert_quiet(&self, desired: &DesiredState) {
        let report = self.pass(desired);
        assert!(report.is_converged(), "{:#?}", report_lines(&report));
        assert!(report.plan().steps.is_empty(), "{:#?}", report_lines(&report));
    }
}

/// Runs `tc` in the namespace of the thread.
#[track_caller]
pub(crate) fn tc(line: &str) -> String {
    try_tc(line).unwrap_or_else(|error| panic!("tc {line}: {error}"))
}

pub(crate) fn try_tc(line: &str) -> Result<String, String> {
    let output = Command::new("tc").args(line.split_whitespace()).output().unwrap();
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned())
}

/// What `tc -j` prints.
#[track_caller]
pub(crate) fn tc_json(line: &str) -> Vec<Value> {
    let text = tc(&format!("-j -d -s {line}"));
    match serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}")) {
        Value::Array(found) => found,
        other => vec![other],
    }
}

/// The root qdisc of a link, as `tc` reports it.
#[track_caller]
pub(crate) fn root(link: &str) -> Value {
    let all = tc_json(&format!("qdisc show dev {link}"));
    all.into_iter().find(|one| one["root"] == true).unwrap_or_default()
}

/// A class of a link in the words of `tc`, which has no JSON for those of htb; empty if there is none.
pub(crate) fn class(link: &str, handle: &str) -> String {
    let all = tc(&format!("-d class show dev {link}"));
    let start = format!("class htb {handle} ");
    all.lines().find(|line| line.starts_with(&start)).unwrap_or_default().to_owned()
}

/// The sides, each as a key and as the fields of a document.
#[track_caller]
pub(crate) fn desired(sides: &[(&str, Value)]) -> DesiredState {
    DesiredState::new(sides.iter().map(|(key, words)| wanted(key, words, false)))
}

#[track_caller]
pub(crate) fn adopting(sides: &[(&str, Value)]) -> DesiredState {
    DesiredState::new(sides.iter().map(|(key, words)| wanted(key, words, true)))
}

fn wanted(key: &str, words: &Value, adopt: bool) -> (Key, Wanted) {
    let side = Object::try_from(words.clone()).unwrap().side;
    (key.parse().unwrap(), Wanted { side, adopt })
}

fn filed() -> LedgerKey {
    LedgerKey::new("test", "qdisc", "test").with_identity("1")
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Everything in a plan or a report, one short line each.
pub(crate) fn report_lines(explain: &dyn Explain) -> Vec<String> {
    entry_lines(explain, |entry| match entry {
        Entry::Change(line, _) | Entry::Applied(line, _) => {
            let text =
                |value: Option<Value>| value.map_or("nothing".to_owned(), |it| it.to_string());
            let (before, after) = (text(line.before), text(line.after));
            format!("{} {}: {before} -> {after}", line.action.sign(), line.key)
        }
        Entry::Finding {
            key,
            finding: Finding::Failed { failure, .. } | Finding::NotShown { failure, .. },
        } => format!("failed {key}: {failure}; {}", failure.help.as_deref().unwrap_or_default()),
        Entry::Finding { key, finding } => {
            format!("{} {key}: {}", finding.kind().list(), finding.reason())
        }
        other => format!("{other:?}"),
    })
}
