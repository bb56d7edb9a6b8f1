//! A server that works on tasks for a while, as a hypervisor does, in virtual time.

mod hands;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use homeostat_engine::{
    Action, Change, ChangeList, Coverage, Desired as _, Dispatch, Draft, Fails, Failure, Line,
    Outcome, Owner, Reader, Retry, Reversibility, ScopeLock, See, Seen, Source, Step, Table,
    TaskEnd, View,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(pub(crate) u32);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guest {}", self.0)
    }
}

impl FromStr for Id {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.strip_prefix("guest ").unwrap_or_default().parse().map(Id)
    }
}

impl Id {
    /// Ten nodes, by the last digit.
    pub(crate) fn node(self) -> String {
        format!("pve{}", self.0 % 10)
    }
}

/// How much the journal records of each step, so that it is worth making anew soon.
pub(crate) const SENT: usize = 4000;

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It never arrives, and the client cannot know that.
    DropRequest,
    /// It is done, and the answer is lost.
    DropAnswer,
    /// It is done, the answer is lost, and the server cannot be reached from then on.
    Vanish,
    Refuse,
    /// It is done, and the answer says that it was refused.
    Belie,
    /// It is accepted, and its task fails.
    FailTask,
    /// It is accepted, its task says that it was done, and nothing has happened.
    Idle,
    /// Waiting for its task panics.
    PanicInWait,
    /// Sending it panics before anything is sent.
    PanicInSend,
    /// It is done, and no answer ever comes.
    Hang,
}

/// A moment of a look that takes some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Moment {
    Beginning,
    #[default]
    End,
}

struct Task {
    guest: Id,
    wanted: bool,
    ends: Instant,
    fault: Option<Fault>,
    is_over: bool,
}

/// Everything on the server, and what it has seen.
#[derive(Default)]
pub(crate) struct World {
    running: BTreeMap<Id, bool>,
    tasks: BTreeMap<String, Task>,
    faults: BTreeMap<Id, Vec<Fault>>,
    pub(crate) takes: Duration,
    /// Guests whose tasks take longer.
    pub(crate) slow: BTreeMap<Id, Duration>,
    /// Guests whose steps may be sent again: they are done at once.
    pub(crate) harmless: BTreeSet<Id>,
    /// Guests whose answers hold their state.
    pub(crate) tells: BTreeSet<Id>,
    /// Requests that had an effect, in order.
    pub(crate) calls: Vec<Id>,
    /// What must never be: two tasks of one guest, too many on a node.
    pub(crate) breaches: Vec<String>,
    pub(crate) most_per_node: usize,
    pub(crate) most_in_all: usize,
    pub(crate) is_unreachable: bool,
    /// Nodes that take requests and answer none, until they are mended.
    silent: BTreeSet<String>,
    /// Why looks fail, if they do.
    pub(crate) hidden: Option<&'static str>,
    /// Guests that looks cannot see.
    pub(crate) unseen: BTreeSet<Id>,
    /// How long a look takes.
    pub(crate) looks_take: Duration,
    pub(crate) looks_tell: Moment,
    /// How long the answer to a question is waited for.
    pub(crate) questions_take: Option<Duration>,
    /// Guests that went to another node.
    pub(crate) moved: BTreeMap<Id, String>,
    /// Guests whose steps need a record in the ledger.
    pub(crate) recorded: BTreeSet<Id>,
    /// How long a task is waited for at once.
    pub(crate) patience: Option<Duration>,
    /// Guests whose requests are answered only after some time.
    pub(crate) late: BTreeMap<Id, Duration>,
    /// Whether the server has no list of tasks any more.
    pub(crate) is_forgetful: bool,
    /// How often the end of a step was asked for.
    pub(crate) asked: usize,
    /// Counts down to a crash.
    pub(crate) fuse: Option<u32>,
}

#[derive(Clone, Default)]
pub(crate) struct Server {
    pub(crate) world: Arc<Mutex<World>>,
    pub(crate) crashed: Arc<Notify>,
    mended: Arc<Notify>,
}

impl Server {
    pub(crate) fn new(guests: impl IntoIterator<Item = u32>, takes: Duration) -> Self {
        let running = guests.into_iter().map(|id| (Id(id), false)).collect();
        let world = World { running, takes, ..World::default() };
        Server { world: Arc::new(Mutex::new(world)), ..Server::default() }
    }

    /// A node answers nothing any more.
    pub(crate) fn silence(&self, node: &str) {
        self.world.lock().unwrap().silent.insert(node.to_owned());
    }

    /// All nodes answer again, also what they were asked before.
    pub(crate) fn mend(&self) {
        self.world.lock().unwrap().silent.clear();
        self.mended.notify_waiters();
    }

    /// Waits for as long as the guest's node says nothing.
    async fn reach(&self, guest: Id) {
        loop {
            let mended = self.mended.notified();
            if !self.world.lock().unwrap().silent.contains(&guest.node()) {
                return;
            }
            mended.await;
        }
    }

    pub(crate) fn breaks(&self, guest: u32, fault: Fault) {
        self.world.lock().unwrap().faults.entry(Id(guest)).or_default().push(fault);
    }

    /// How much has still to go wrong with a guest.
    pub(crate) fn faults_left(&self, guest: u32) -> usize {
        self.world.lock().unwrap().faults.get(&Id(guest)).map_or(0, Vec::len)
    }

    /// A guest stops by itself, unless the server is working on it.
    pub(crate) fn stop(&self, guest: u32) {
        let mut world = self.world.lock().unwrap();
        world.now();
        if !world.tasks.values().any(|task| task.guest == Id(guest) && !task.is_over) {
            world.running.insert(Id(guest), false);
        }
    }

    /// A guest starts by itself.
    pub(crate) fn start(&self, guest: u32) {
        self.world.lock().unwrap().running.insert(Id(guest), true);
    }

    /// A place where the process may die: then nothing of it goes on.
    async fn point(&self) {
        let is_the_end = {
            let mut world = self.world.lock().unwrap();
            match &mut world.fuse {
                Some(0) => true,
                Some(left) => {
                    *left -= 1;
                    false
                }
                None => false,
            }
        };
        if is_the_end {
            self.crashed.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// How the guests run now.
    pub(crate) fn running(&self) -> Vec<bool> {
        self.world.lock().unwrap().now().values().copied().collect()
    }

    /// What a request leads to.
    fn request(&self, guest: Id, wanted: bool) -> Result<String, Outcome<bool>> {
        let mut world = self.world.lock().unwrap();
        let lost = || Outcome::Unknown { why: "the answer was lost".to_owned() };
        if world.is_unreachable {
            let failure = Failure::new("connection refused", Retry::Soon);
            return Err(Outcome::Failed(failure));
        }
        let fault = world.faults.get_mut(&guest).and_then(Vec::pop);
        match fault {
            Some(Fault::Refuse) => {
                return Err(Outcome::Failed(Failure::new("CT is locked (backup)", Retry::Soon)));
            }
            Some(Fault::DropRequest) => return Err(lost()),
            _ => {}
        }
        let task = world.accept(guest, wanted, fault);
        world.is_unreachable = fault == Some(Fault::Vanish);
        match fault {
            Some(Fault::DropAnswer | Fault::Vanish) => Err(lost()),
            Some(Fault::Belie) => {
                Err(Outcome::Failed(Failure::new("already running", Retry::Soon)))
            }
            _ => Ok(task),
        }
    }
}

impl World {
    /// The run states, with the tasks that are over by now done.
    fn now(&mut self) -> &BTreeMap<Id, bool> {
        let now = Instant::now();
        for task in self.tasks.values_mut().filter(|task| !task.is_over && task.ends <= now) {
            task.is_over = true;
            if !matches!(task.fault, Some(Fault::FailTask | Fault::Idle)) {
                self.running.insert(task.guest, task.wanted);
            }
        }
        &self.running
    }

    fn accept(&mut self, guest: Id, wanted: bool, fault: Option<Fault>) -> String {
        self.now();
        let open = || self.tasks.values().filter(|task| !task.is_over);
        if open().any(|task| task.guest == guest) {
            self.breaches.push(format!("{guest} has two tasks"));
        }
        if self.running.get(&guest) == Some(&wanted) {
            self.breaches.push(format!("{guest} was as declared before"));
        }
        let on_node = 1 + open().filter(|task| task.guest.node() == guest.node()).count();
        self.most_per_node = self.most_per_node.max(on_node);
        self.most_in_all = self.most_in_all.max(1 + open().count());
        let name = format!("UPID:{}:{:06}", guest.0, self.tasks.len());
        let ends = Instant::now() + self.slow.get(&guest).copied().unwrap_or(self.takes);
        let task = Task { guest, wanted, ends, fault, is_over: false };
        self.tasks.insert(name.clone(), task);
        self.calls.push(guest);
        name
    }

    fn end_of(&mut self, task: &str) -> Option<TaskEnd> {
        self.now();
        let task = self.tasks.get(task)?;
        match task.fault {
            _ if !task.is_over => None,
            Some(Fault::FailTask) => {
                Some(TaskEnd::Failed("startup for container failed".to_owned()))
            }
            _ => Some(TaskEnd::Succeeded),
        }
    }
}

pub(crate) struct Guests(pub(crate) Server);

pub(crate) struct Run {
    id: Id,
    wanted: bool,
    is_recorded: bool,
}

impl Step<Table<Id, bool>> for Run {
    fn key(&self, _: &Table<Id, bool>) -> Id {
        self.id
    }

    fn reversibility(&self, _desired: &Table<Id, bool>) -> Reversibility {
        Reversibility::Reversible
    }

    fn action(&self) -> Action {
        Action::Update
    }

    fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    fn node(&self, _: &Table<Id, bool>) -> String {
        self.id.node()
    }

    fn dispatch(&self, _: &Table<Id, bool>) -> Dispatch {
        let kind = if self.wanted { "start" } else { "stop" };
        Dispatch { kind: kind.to_owned(), parameters: "x".repeat(SENT), precondition: None }
    }

    fn explain(&self, _: &Table<Id, bool>, emit: &mut dyn FnMut(Line)) {
        let (action, key, after) = (Action::Update, self.id.to_string(), Some(self.wanted.into()));
        emit(Line { after, ..Line::new(action, key) });
    }
}

impl Source for Guests {
    const NAME: &'static str = "guests";
    const FAILS: Fails = Fails::Lanes;
    const COVERAGE: Coverage = Coverage::None;
    type Key = Id;
    type Object = bool;
    type Desired = Table<Id, bool>;
    type Step = Run;
    type Moment = ();
    type Reader = Server;
    type Writer = Server;

    fn reader(&self) -> Result<Server, Failure> {
        Ok(self.0.clone())
    }

    fn writer(&self, _: &ScopeLock) -> Result<Server, Failure> {
        Ok(self.0.clone())
    }

    fn plan(
        &self,
        desired: &Table<Id, bool>,
        (): &(),
        changes: ChangeList<Id, bool>,
    ) -> Draft<Self> {
        let mut draft = Draft::default();
        let world = self.0.world.lock().unwrap();
        for change in changes {
            if let Change::Update { slot, .. } = change {
                let (id, wanted) = (desired.key(slot), desired.object(slot));
                draft.steps.push(Run { id, wanted, is_recorded: world.recorded.contains(&id) });
            }
        }
        draft
    }
}

impl Reader<Guests> for Server {
    async fn observe(
        &mut self,
        view: &View<'_, Guests>,
        see: &mut See<'_, Id, bool>,
    ) -> Result<(), Failure> {
        let old = {
            let mut world = self.world.lock().unwrap();
            (world.looks_tell == Moment::Beginning).then(|| world.now().clone())
        };
        let takes = self.world.lock().unwrap().looks_take;
        if takes > Duration::ZERO {
            sleep_until(Instant::now() + takes).await;
        }
        let mut world = self.world.lock().unwrap();
        if let Some(why) = world.hidden {
            return Err(Failure::new(why, Retry::Soon));
        }
        let seen = old.unwrap_or_else(|| world.now().clone());
        for (key, object) in seen.iter().filter(|(id, _)| view.focus.covers(id)) {
            see(if world.unseen.contains(key) {
                Seen::Unknown { key: *key, why: "its node is silent".to_owned() }
            } else {
                Seen::Present { key: *key, object: *object, owner: Owner::Ours }
            });
        }
        Ok(())
    }
}

pub(crate) fn all_running(guests: impl IntoIterator<Item = u32>) -> Table<Id, bool> {
    Table::new(guests.into_iter().map(|id| (Id(id), true))).unwrap()
}
