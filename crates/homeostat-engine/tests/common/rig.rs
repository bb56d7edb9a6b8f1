//! Everything that a pass needs, in one place.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_engine::{
    Alone, Config, Entry, Error, Explain, Finding, Focus, LedgerKey, LedgerPage, Observer,
    Original, Ownership, PassInput, Plan, Record, Report, Source as _, Stage, pass, plan,
};

use homeostat_testkit::entries::entry_lines;

use super::block_on;
use super::ledger::Watched;
use super::toy::{Hands, Mode, Script, Toy, desired};
use super::world::World;

pub(crate) struct Rig<M: Mode> {
    pub(crate) world: World,
    pub(crate) ledger: Arc<Watched>,
    pub(crate) ownership: Ownership,
    pub(crate) config: Config<String>,
    pub(crate) source: Toy<M>,
    observer: Observer<Toy<M>>,
    writer: Hands,
    pub(crate) ledger_page: LedgerPage<Toy<M>>,
}

pub(crate) fn place() -> LedgerKey {
    LedgerKey::new("me", "toy", "here").with_identity("boot-1")
}

impl<M: Mode> Rig<M> {
    /// A rig whose target holds `rows` and cannot hold marks.
    pub(crate) fn checkpoint(rows: &str) -> Self {
        Self::new(rows, Ownership::Checkpoint, Script::default())
    }

    /// A rig whose target holds `rows` and marks.
    pub(crate) fn marked(rows: &str) -> Self {
        Self::new(rows, Ownership::Marked, Script { marks: true, ..Script::default() })
    }

    pub(crate) fn new(rows: &str, ownership: Ownership, script: Script) -> Self {
        let world = World::default();
        world.holds(rows);
        let source = Toy::new(world.clone(), script);
        let ledger = Arc::new(Watched::new(world.clone()));
        let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
        let observer = Observer::open(&source, "here").unwrap();
        let ledger_page = LedgerPage::open(Arc::clone(&ledger) as _, place()).unwrap();
        let config = Config::default();
        Rig { world, ledger, ownership, config, source, observer, writer, ledger_page }
    }

    /// As after a restart: only what is durable is left.
    pub(crate) fn restart(&mut self) {
        self.observer = Observer::open(&self.source, "here").unwrap();
        self.ledger_page = LedgerPage::open(Arc::clone(&self.ledger) as _, place()).unwrap();
    }

    /// Opens reader and writer again, with the script as it is now.
    pub(crate) fn rescript(&mut self, change: impl FnOnce(&mut Script)) {
        change(&mut self.source.script);
        self.writer = self.source.writer(&Alone::i_am_the_only_writer()).unwrap();
    }

    pub(crate) fn plan(&mut self, rows: &str) -> Plan<Toy<M>> {
        let (source, ownership, config) = (&self.source, &self.ownership, &self.config);
        let desired = Arc::new(desired(rows));
        let order = PassInput { source, desired, ownership, focus: Focus::All, config };
        block_on(plan(&order, &mut self.observer, self.ledger_page.holdings())).unwrap()
    }

    pub(crate) fn try_pass(
        &mut self,
        rows: &str,
        focus: Option<&str>,
    ) -> Result<Report<Toy<M>>, Error> {
        let (source, ownership, config) = (&self.source, &self.ownership, &self.config);
        let words =
            |keys: &str| keys.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
        let focus = focus.map_or(Focus::All, |keys| Focus::Keys(words(keys)));
        let order =
            PassInput { source, desired: Arc::new(desired(rows)), ownership, focus, config };
        block_on(pass(&order, &mut self.observer, &self.writer, &mut self.ledger_page))
    }

    /// A full pass; returns the lines of its report.
    pub(crate) fn pass(&mut self, rows: &str) -> Vec<String> {
        lines(&self.try_pass(rows, None).unwrap())
    }

    pub(crate) fn focused_pass(&mut self, rows: &str, keys: &str) -> Vec<String> {
        lines(&self.try_pass(rows, Some(keys)).unwrap())
    }

    /// A full pass, and everything that happened in it.
    pub(crate) fn log_of_pass(&mut self, rows: &str) -> Vec<String> {
        self.world.take_log();
        self.try_pass(rows, None).unwrap();
        self.world.take_log()
    }

    /// Runs a pass and checks that it wrote nothing, neither to the target nor to the disk (law 6).
    #[track_caller]
    pub(crate) fn assert_quiet(&mut self, rows: &str) {
        assert_eq!(self.log_of_pass(rows), ["look at all"]);
    }

    /// The durable records, as text in key order.
    pub(crate) fn records(&self) -> String {
        let ledger_page =
            LedgerPage::<Toy<M>>::open(Arc::clone(&self.ledger) as _, place()).unwrap();
        let rows: Vec<_> = ledger_page
            .holdings()
            .records
            .iter()
            .map(|(key, record)| record_text(key, record))
            .collect();
        rows.join(" ")
    }
}

fn record_text(key: &str, record: &Record<u32>) -> String {
    let original = match record.original {
        Original::Absent => "absent".to_owned(),
        Original::Was(was) => was.to_string(),
    };
    let stage = if record.stage == Stage::Done { "done" } else { "intent" };
    let settled = record.settled.map(|settled| format!(",{settled}")).unwrap_or_default();
    format!("{key}={},{original},{stage}{settled}", record.wrote)
}

/// All entries of a plan or a report, a line each, and at last whether it is converged.
pub(crate) fn lines(explain: &dyn Explain) -> Vec<String> {
    let mut lines = entry_lines(explain, line);
    lines.push(if explain.is_converged() { "converged" } else { "not converged" }.to_owned());
    lines
}

fn line(entry: Entry) -> String {
    match entry {
        Entry::Change(line, _) => format!("will {} {}", line.action.word(), line.key),
        Entry::Applied(line, _) => format!("{} {}", line.action.word(), line.key),
        Entry::Finding {
            key,
            finding: Finding::Failed { failure, .. } | Finding::NotShown { failure, .. },
        } => {
            format!("failed {key}: {failure}")
        }
        Entry::Finding { key, finding: Finding::Pending { on } } => format!("pending {key}: {on}"),
        Entry::Finding { key, finding: Finding::Conflict { owner, .. } } => {
            format!("conflict {key}: {owner}")
        }
        Entry::Finding { key, finding: Finding::Settled { wanted, held } } => {
            format!("settled {key}: {held} for {wanted}")
        }
        Entry::Finding { key, finding: Finding::Matched { owner } } => {
            format!("matched {key}: {owner}")
        }
        Entry::Finding { key, finding: Finding::Unknown { why } } => {
            format!("unknown {key}: {why}")
        }
        Entry::Finding { key, finding: Finding::Held { .. } } => format!("held {key}"),
        Entry::Finding { key, finding: Finding::Irreversible { why } } => {
            format!("irreversible {key}: {why}")
        }
        Entry::Finding { key, finding: Finding::Parked { .. } } => format!("parked {key}"),
        Entry::Pass { about, failure } => format!("failed {}: {failure}", about.name()),
        other => format!("{other:?}"),
    }
}
