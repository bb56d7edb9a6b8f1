//! A cluster, a state directory, and processes that come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use homeostat_engine::journal::{Clock, End, Fact, Intent, JournalError, Millis, follow};
use homeostat_engine::{
    Alone, Config, DispatchGuard, Entry, Explain as _, Focus, Hint, Journal, Kind as EntryKind,
    Ledger, LedgerKey, LedgerPage, Limits, Observer, OnRelease, Operations, Ownership, PassInput,
    Report, Source as _, SqliteLedger, pass,
};
use homeostat_guests::{
    Claimant, Client, DesiredState, Guests, Kind, Located, Run, Stop, Timeouts, Token, Trust, Vmid,
    Wanted, Writer,
};
use homeostat_pve_simulator::{Simulator, World};
use tempfile::TempDir;

pub(crate) const TIMEOUTS: Timeouts = Timeouts {
    answer: Duration::from_secs(5),
    task: Duration::from_secs(20),
    poll: Duration::from_millis(20),
    late_task: Duration::from_millis(300),
};

/// A cluster and a state directory.
pub(crate) struct Ground {
    pub(crate) simulator: Simulator,
    pub(crate) state: TempDir,
}

/// One process: what it opens, it closes when it ends, however it does.
pub(crate) struct Process {
    source: Guests,
    observer: Observer<Guests>,
    writer: Writer,
    page: LedgerPage<Guests>,
    pub(crate) operations: Operations<Vmid>,
    config: Config<Vmid>,
}

pub(crate) fn key(vmid: u32) -> Vmid {
    Vmid(vmid)
}

/// A container on node `pve1` of which nothing is declared.
pub(crate) fn wanted() -> Wanted {
    Wanted {
        kind: Kind::Lxc,
        node: Some("pve1".to_owned()),
        run: None,
        stop: Stop::default(),
        options: BTreeMap::new(),
        adopt: false,
    }
}

pub(crate) fn runs(run: Run) -> Wanted {
    Wanted { run: Some(run), ..wanted() }
}

pub(crate) fn options(options: &[(&str, &str)]) -> Wanted {
    let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Wanted { options: options.collect(), ..wanted() }
}

pub(crate) fn desired(guests: impl IntoIterator<Item = (u32, Wanted)>) -> Arc<DesiredState> {
    let guests = guests.into_iter().map(|(vmid, wanted)| (Vmid(vmid), wanted));
    Arc::new(DesiredState::new(guests).unwrap())
}

impl Ground {
    pub(crate) fn new(world: World) -> Self {
        Ground { simulator: Simulator::start(world).unwrap(), state: TempDir::new().unwrap() }
    }

    pub(crate) fn client(&self) -> Client {
        self.client_of(&Simulator::token())
    }

    pub(crate) fn client_of(&self, token: &str) -> Client {
        let trust = Trust::Pinned(self.simulator.fingerprint().parse().unwrap());
        let token = Token::parse(token).unwrap();
        Client::new(self.simulator.endpoint().parse().unwrap(), token, &trust).unwrap()
    }

    pub(crate) fn process(&self) -> Process {
        self.process_of("default")
    }

    pub(crate) fn process_of(&self, owner: &str) -> Process {
        let source = self.source(owner, TIMEOUTS);
        let observer = Observer::without_hints(&source, "host").unwrap();
        self.process_with(source, observer)
    }

    /// A process whose marks name its machine.
    pub(crate) fn process_on(&self, machine: &str) -> Process {
        let claimant = Claimant::new(machine, machine);
        let source = self.source("default", TIMEOUTS).with_claimant(claimant);
        let observer = Observer::without_hints(&source, "host").unwrap();
        self.process_with(source, observer)
    }

    /// A process that waits for other times.
    pub(crate) fn process_within(&self, timeouts: Timeouts) -> Process {
        let source = self.source("default", timeouts);
        let observer = Observer::without_hints(&source, "host").unwrap();
        self.process_with(source, observer)
    }

    /// A process with a client of its own.
    pub(crate) fn process_by(&self, client: &Client) -> Process {
        let source = Guests::new(client, "default", TIMEOUTS);
        let observer = Observer::without_hints(&source, "host").unwrap();
        self.process_with(source, observer)
    }

    /// A process that waits for hints, as a daemon does.
    pub(crate) fn daemon(&self, answer: Duration) -> Process {
        let source = self.source("default", Timeouts { answer, ..TIMEOUTS });
        let observer = Observer::open(&source, "host").unwrap();
        self.process_with(source, observer)
    }

    fn source(&self, owner: &str, timeouts: Timeouts) -> Guests {
        Guests::new(&self.client(), owner, timeouts)
    }

    fn process_with(&self, source: Guests, observer: Observer<Guests>) -> Process {
        let owner = source.owner.clone();
        let clock: Clock =
            Arc::new(|| Millis(u64::try_from(UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap()));
        let journal = self.journal(&clock);
        let limits = Limits { total: 16, per_node: 2 };
        let operations = Operations::new(Arc::new(journal), Guests::NAME, "host", limits);
        let ledger: Arc<dyn Ledger> = Arc::new(SqliteLedger::open(self.state.path()).unwrap());
        let place = LedgerKey::new(owner, Guests::NAME, "host").with_identity("cluster");
        let mut config = Config::default();
        config.dispatch = DispatchGuard::Operations(operations.clone());
        Process {
            observer,
            writer: source.writer(&Alone::i_am_the_only_writer()).unwrap(),
            page: LedgerPage::open(ledger, place).unwrap(),
            config,
            operations,
            source,
        }
    }

    /// Whether no process holds the journal.
    pub(crate) fn is_free(&self) -> bool {
        let clock: Clock = Arc::new(|| Millis(0));
        !matches!(Journal::open(self.state.path(), clock), Err(JournalError::Busy { .. }))
    }

    /// The journal of the process before is closed by a thread of its own.
    fn journal(&self, clock: &Clock) -> Journal {
        let deadline = UNIX_EPOCH.elapsed().unwrap() + Duration::from_secs(10);
        loop {
            match Journal::open(self.state.path(), Arc::clone(clock)) {
                Ok(journal) => return journal,
                Err(JournalError::Busy { .. }) if UNIX_EPOCH.elapsed().unwrap() < deadline => {
                    std::thread::yield_now();
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// How the journal says that steps ended, in its own words.
    pub(crate) fn ends(&self) -> Vec<&'static str> {
        self.ended(|_| true)
    }

    /// The same of one verb for one guest.
    pub(crate) fn ends_of(&self, vmid: u32, verb: &str) -> Vec<&'static str> {
        let key = key(vmid).to_string();
        self.ended(|intent| intent.subject.key == key && intent.kind == verb)
    }

    fn ended(&self, is_meant: impl Fn(&Intent) -> bool) -> Vec<&'static str> {
        let mut meant = BTreeSet::new();
        let mut ends = Vec::new();
        for record in follow(self.state.path()).more().unwrap() {
            match &record.fact {
                Fact::Intent(intent) if is_meant(intent) => _ = meant.insert(record.id),
                Fact::Ended(end) if meant.contains(&record.id) => ends.push(match end {
                    End::Succeeded { .. } => "succeeded",
                    End::Failed { .. } => "failed",
                    End::Unknown { .. } => "unknown",
                }),
                _ => {}
            }
        }
        ends
    }

    /// How often it was asked for the tasks of this source: `active`, or `all`, which nobody needs who
    /// knows what became of a request.
    pub(crate) fn looked_up(&self, source: &str) -> usize {
        self.simulator.with(|world| {
            let calls = world.calls.iter().filter(|call| call.path.ends_with("/tasks"));
            calls.filter(|call| call.parameter("source") == Some(source)).count()
        })
    }

    /// What is under way ends once the cluster is asked this again, and not when a clock says so.
    pub(crate) async fn hurry_when_asked(&self, path: &str) {
        let before = self.simulator.with(|world| world.calls.len());
        let is_asked = |world: &mut World| {
            world.calls.iter().skip(before).any(|call| call.path.contains(path))
        };
        let asked = async {
            while !self.simulator.with(is_asked) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), asked).await.unwrap();
        self.simulator.with(World::hurry);
    }

    /// How many writes reached the cluster.
    pub(crate) fn writes(&self) -> usize {
        self.simulator.with(|world| world.writes().len())
    }
}

impl Process {
    pub(crate) async fn pass(&mut self, desired: &Arc<DesiredState>) -> Report<Guests> {
        self.try_pass(desired).await.unwrap()
    }

    pub(crate) async fn try_pass(
        &mut self,
        desired: &Arc<DesiredState>,
    ) -> Result<Report<Guests>, homeostat_engine::Error> {
        self.pass_over(desired, Focus::All).await
    }

    pub(crate) async fn pass_over(
        &mut self,
        desired: &Arc<DesiredState>,
        focus: Focus<Vmid>,
    ) -> Result<Report<Guests>, homeostat_engine::Error> {
        let order = PassInput {
            source: &self.source,
            desired: Arc::clone(desired),
            ownership: &Ownership::Checkpoint,
            focus,
            config: &self.config,
        };
        pass(&order, &mut self.observer, &self.writer, &mut self.page).await
    }

    /// Passes, each after everything has landed, until one is converged; at most ten. A guest can be as declared a
    /// moment before its task is over: that is waited for, too, so that the journal has its end.
    pub(crate) async fn converge(&mut self, desired: &Arc<DesiredState>) {
        let mut last = None;
        for _ in 0..10 {
            let report = self.pass(desired).await;
            self.operations.tasks_finished().await;
            if report.is_converged() {
                return;
            }
            last = Some(story(&report));
        }
        panic!("not converged: {last:#?}");
    }

    /// The next hint. Nothing may be missing for it: the wait has an end.
    pub(crate) async fn hint(&mut self) -> Hint<Vmid> {
        let hint = tokio::time::timeout(Duration::from_mins(1), self.observer.hint()).await;
        hint.unwrap().unwrap()
    }

    /// The keys that the next hint names.
    pub(crate) async fn hinted(&mut self) -> Vec<Vmid> {
        match self.hint().await {
            Hint::Keys(keys) => keys.keys().copied().collect(),
            Hint::Lost => panic!("hints were lost"),
        }
    }

    pub(crate) async fn locate(
        &self,
        vmid: u32,
    ) -> Result<homeostat_guests::Located, homeostat_core::Failure> {
        Located::find(&self.writer.source, Vmid(vmid)).await
    }

    pub(crate) fn on_release(&mut self, policy: OnRelease) {
        self.config.on_release = policy;
    }

    pub(crate) fn adopt(&mut self, key: Vmid) {
        self.config.adopt.insert(key);
    }
}

pub(crate) fn entries(what: &dyn homeostat_engine::Explain, kind: EntryKind) -> Vec<Entry> {
    let mut entries = Vec::new();
    what.explain(kind, &mut |entry| entries.push(entry));
    entries
}

/// Everything that a report contains, as text.
pub(crate) fn story(report: &Report<Guests>) -> String {
    let kinds = [
        EntryKind::Applied,
        EntryKind::Failed,
        EntryKind::Pending,
        EntryKind::Conflict,
        EntryKind::Settled,
        EntryKind::Matched,
        EntryKind::Unknown,
        EntryKind::Held,
    ];
    let entries = kinds.into_iter().flat_map(|kind| entries(report, kind));
    entries.map(|entry| format!("{entry:?}")).collect::<Vec<_>>().join("\n")
}
