//! The crash-point matrix: a process is killed before and after every request to write and every
//! record, with each strategy, and the next one goes on. Each call has its effect once, nothing is
//! leaked, nothing is stolen.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use homeostat_engine::{
    Alone, Config, Exclusive, Focus, LedgerPage, Observer, PassInput, Prefixes, Source as _,
    SqliteLedger, pass,
};
use homeostat_kit::Strategy;
use homeostat_kit::simple::{Adapted, DesiredObjects, Versioned, place};
use homeostat_shapes::client::{Client, Tap};
use homeostat_shapes::service::{Effect, Service, Stored};
use homeostat_shapes::shape::Shape;
use homeostat_shapes::source::Shapes;
use homeostat_testkit::ledger::Tapped;

/// The desired states of one life: creates, updates, deletes, and a name that comes back.
const LIFE: [&str; 5] = [
    "my-door=green my-window=blue my-gate=black",
    "my-door=purple my-window=blue my-gate=black",
    "my-door=purple my-roof=red",
    "my-window=white",
    "",
];

const STRATEGIES: [&str; 5] = ["marker", "witnessed", "prefix", "checkpoint", "exclusive"];

const CHILD: &str = "SHAPES_TEST_LIFE";

fn strategy(name: &str) -> Strategy {
    match name {
        "marker" | "witnessed" => Strategy::marker("me").unwrap(),
        "prefix" => Strategy::Prefix(Prefixes::default().claim("my-").unwrap()),
        "checkpoint" => Strategy::Checkpoint,
        "exclusive" => Strategy::Exclusive(Exclusive::everything_in_this_scope_is_mine()),
        other => panic!("{other}"),
    }
}

fn desired(text: &str) -> DesiredObjects<Shapes> {
    let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    let square = |colour: &str| Versioned::declared(Shape::square(colour));
    DesiredObjects::new(pairs.map(|(name, colour)| (name.to_owned(), square(colour)))).unwrap()
}

/// One process with its ledger in a directory; `tap` is called at each boundary.
struct Process {
    runtime: tokio::runtime::Runtime,
    source: Adapted<Shapes>,
    strategy: Strategy,
    observer: Observer<Adapted<Shapes>>,
    page: LedgerPage<Adapted<Shapes>>,
}

impl Process {
    fn start(name: &str, (addr, directory): (&str, &Path), tap: Tap) -> Self {
        let strategy = strategy(name);
        let client = Client::new(addr.parse().unwrap()).tapped(Arc::clone(&tap));
        let source = Adapted::new(Shapes { client, strategy: strategy.clone() });
        let source = if name == "witnessed" { source.witnessed() } else { source };
        let (before, after) = (Arc::clone(&tap), tap);
        let ledger = Tapped::new(SqliteLedger::open(directory).unwrap())
            .before(move |_, _| before("before"))
            .after(move |_, _| after("after"));
        Process {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            observer: Observer::open(&source, "loopback").unwrap(),
            page: LedgerPage::open(Arc::new(ledger), place::<Shapes>("me", "loopback")).unwrap(),
            source,
            strategy,
        }
    }

    fn pass(&mut self, text: &str) {
        let Process { runtime, source, strategy, observer, page } = self;
        let (ownership, config) = (strategy.ownership(), Config::default());
        let (ownership, config, focus) = (&ownership, &config, Focus::All);
        let order =
            PassInput { source, desired: Arc::new(desired(text)), ownership, focus, config };
        let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
        runtime.block_on(pass(&order, observer, &writer, page)).unwrap();
    }

    /// Lives from one of the desired states on, and notes how far it came.
    fn live(&mut self, from: usize, directory: &Path) {
        for (at, text) in LIFE.iter().enumerate().skip(from) {
            std::fs::write(directory.join("at"), at.to_string()).unwrap();
            self.pass(text);
        }
    }
}

fn untapped() -> Tap {
    Arc::new(|_| {})
}

/// Dies at the boundary with this number, as by a power cut.
fn fuse(dies_at: u64) -> Tap {
    let passed = AtomicU64::new(0);
    Arc::new(move |_| {
        if passed.fetch_add(1, Ordering::SeqCst) + 1 == dies_at {
            std::process::abort();
        }
    })
}

/// The service with its strangers: one apart and, where the strategy can distinguish it, one on a declared name.
fn service(strategy: &str) -> (Service, BTreeMap<String, Stored>) {
    let service = Service::start().unwrap();
    if strategy != "exclusive" {
        service.paint("cloud", "white");
    }
    if matches!(strategy, "marker" | "witnessed" | "checkpoint") {
        service.paint("my-gate", "golden");
    }
    let strangers = service.state().shapes.clone();
    service.state().effects.clear();
    (service, strangers)
}

fn effects(service: &Service) -> Vec<String> {
    let state = service.state();
    let word = |effect: &Effect| match effect {
        Effect::Made(name, _) => format!("made {name}"),
        Effect::Changed(name, _) => format!("changed {name}"),
        Effect::Removed(name, _) => format!("removed {name}"),
    };
    let mut effects: Vec<String> = state.effects.iter().map(word).collect();
    effects.sort();
    effects
}

/// Also runs as another process that dies on the way, for the test below.
#[test]
fn a_run_that_is_not_killed_leaves_nothing_behind() {
    if let Ok(order) = std::env::var(CHILD) {
        let [name, addr, at, directory] = order.splitn(4, ' ').collect::<Vec<_>>()[..] else {
            panic!("{order}")
        };
        let directory = Path::new(directory);
        let tap = fuse(at.parse().unwrap());
        return Process::start(name, (addr, directory), tap).live(0, directory);
    }
    for name in STRATEGIES {
        let directory = tempfile::tempdir().unwrap();
        let (service, strangers) = service(name);
        let addr = service.addr().to_string();
        let mut process = Process::start(name, (&addr, directory.path()), untapped());
        process.live(0, directory.path());
        assert_eq!(service.state().shapes, strangers, "{name}");
        assert!(process.page.holdings().records.is_empty(), "{name}");
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where these tests start a program")]
fn child(order: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--exact").arg("a_run_that_is_not_killed_leaves_nothing_behind");
    command.env(CHILD, order).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap()
}

/// Kills a process at a boundary and lets another one go on; returns whether there was such a boundary.
fn survives(name: &str, at: u64, expected: &[String]) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let (service, strangers) = service(name);
    let addr = service.addr().to_string();
    let status = child(&format!("{name} {addr} {at} {}", directory.path().display()));
    assert!(status.success() || status.code().is_none(), "it failed before its end: {status}");
    let from = std::fs::read_to_string(directory.path().join("at")).unwrap().parse().unwrap();
    let mut process = Process::start(name, (&addr, directory.path()), untapped());
    process.live(from, directory.path());
    let context = format!("{name}, killed at boundary {at}, in desired state {from}");
    assert_eq!(effects(&service), expected, "{context}: an effect twice, or missing");
    assert_eq!(service.state().shapes, strangers, "{context}: something was leaked or stolen");
    assert!(process.page.holdings().records.is_empty(), "{context}: a record is left");
    !status.success()
}

fn check(name: &str) {
    let directory = tempfile::tempdir().unwrap();
    let (service, _) = service(name);
    let addr = service.addr().to_string();
    Process::start(name, (&addr, directory.path()), untapped()).live(0, directory.path());
    let expected = effects(&service);
    let boundaries = (1..1000).take_while(|at| survives(name, *at, &expected)).count();
    assert!((20..999).contains(&boundaries), "{boundaries} boundaries");
}

#[test]
fn label_ownership_survives_a_kill_before_and_after_every_call_and_record() {
    check("marker");
}

#[test]
fn witnessed_label_ownership_survives_a_kill_before_and_after_every_call_and_record() {
    check("witnessed");
}

#[test]
fn prefix_ownership_survives_a_kill_before_and_after_every_call_and_record() {
    check("prefix");
}

#[test]
fn checkpoint_ownership_survives_a_kill_before_and_after_every_call_and_record() {
    check("checkpoint");
}

#[test]
fn exclusive_ownership_survives_a_kill_before_and_after_every_call_and_record() {
    check("exclusive");
}
