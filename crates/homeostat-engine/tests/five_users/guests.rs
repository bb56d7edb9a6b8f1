//! Guests: steps in lanes, work that the server accepts and finishes later, fields that the server
//! does not always tell.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use homeostat_engine::{
    Action, Agreement, Bound, Change, ChangeList, Coverage, Desired, DispatchGuard, Draft,
    Explain as _, Fails, Failure, Kind, Line, Outcome, Outcomes, Owner, Ownership, Reader, Retry,
    Reversibility, ScopeLock, See, Seen, Slot, Source, Step, Table, View, Work, Writer,
};
use serde::{Deserialize, Serialize};

use crate::stage::{Scene, Writes, bind, keys};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(u32);

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

/// As observed, `None` is a field that the server did not return.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Guest {
    running: Option<bool>,
    cores: Option<u32>,
}

/// Desired states whose fields are always known.
pub(crate) struct DesiredState(Table<Id, Guest>);

impl Desired for DesiredState {
    type Key = Id;
    type Object = Guest;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn slot(&self, key: &Id, near: Option<Slot>) -> Option<Slot> {
        self.0.slot(key, near)
    }

    fn key(&self, slot: Slot) -> Id {
        self.0.key(slot)
    }

    fn object(&self, slot: Slot) -> Guest {
        self.0.object(slot)
    }

    fn compare(&self, slot: Slot, seen: &Guest) -> Agreement {
        let declared = self.object(slot);
        let differs =
            differs(seen.running, declared.running) || differs(seen.cores, declared.cores);
        let unread = [("run state", seen.running.is_none()), ("cores", seen.cores.is_none())];
        match unread.iter().find(|(_, unread)| *unread) {
            Some((field, _)) => Agreement::Unsure { differs, why: format!("no {field} reported") },
            None => Agreement::when(!differs),
        }
    }
}

/// What could not be read is never a difference.
fn differs<T: PartialEq + Copy>(seen: Option<T>, declared: Option<T>) -> bool {
    seen.is_some() && seen != declared
}

#[derive(Clone, Copy)]
enum Call {
    SetCores(u32),
    Run(bool),
}

pub(crate) struct Request {
    id: Id,
    call: Call,
}

impl Step<DesiredState> for Request {
    fn key(&self, _: &DesiredState) -> Id {
        self.id
    }

    fn reversibility(&self, _desired: &DesiredState) -> Reversibility {
        Reversibility::Reversible
    }

    fn action(&self) -> Action {
        Action::Update
    }

    /// A guest is configured before it is started.
    fn phase(&self) -> u8 {
        match self.call {
            Call::SetCores(_) => 0,
            Call::Run(_) => 1,
        }
    }

    fn explain(&self, _: &DesiredState, emit: &mut dyn FnMut(Line)) {
        let after = Some(match self.call {
            Call::SetCores(cores) => cores.into(),
            Call::Run(running) => running.into(),
        });
        let (action, key) = (self.action(), self.id.to_string());
        emit(Line { after, ..Line::new(action, key) });
    }
}

/// The version of each guest's configuration at the time of a look.
type Digests = BTreeMap<Id, u64>;

struct Machine {
    guest: Guest,
    digest: u64,
}

/// Whether the server finishes its tasks at once.
#[derive(Clone, Copy, PartialEq)]
enum Pace {
    Quick,
    Slow,
}

#[derive(Clone)]
pub(crate) struct Server {
    machines: Arc<Mutex<BTreeMap<Id, Machine>>>,
    tasks: Arc<Mutex<Vec<(Id, Call)>>>,
    pace: Pace,
    writes: Writes,
}

impl Server {
    pub(crate) fn new(writes: &Writes) -> Self {
        let off = || Machine { guest: guest(false, 1), digest: 0 };
        let machines = BTreeMap::from([(Id(100), off()), (Id(101), off())]);
        let machines = Arc::new(Mutex::new(machines));
        Server { machines, tasks: Arc::default(), pace: Pace::Quick, writes: writes.clone() }
    }

    fn perform(&self, id: Id, call: Call) {
        let mut machines = self.machines.lock().unwrap();
        let machine = machines.get_mut(&id).unwrap();
        match call {
            Call::SetCores(cores) => machine.guest.cores = Some(cores),
            Call::Run(running) => machine.guest.running = Some(running),
        }
    }

    fn finish_tasks(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap());
        for (id, call) in tasks {
            self.perform(id, call);
        }
    }

    /// What the server answers to a request: a task's name, or no.
    fn request(&self, request: &Request, seen: &Digests) -> Result<String, Failure> {
        self.writes.add();
        let moved = {
            let machines = self.machines.lock().unwrap();
            machines.get(&request.id).map(|machine| machine.digest)
                != seen.get(&request.id).copied()
        };
        if moved {
            return Err(Failure::new("the configuration has another digest", Retry::Soon));
        }
        match self.pace {
            Pace::Quick => self.perform(request.id, request.call),
            Pace::Slow => self.tasks.lock().unwrap().push((request.id, request.call)),
        }
        Ok(format!("UPID:{}", request.id.0))
    }
}

fn guest(running: bool, cores: u32) -> Guest {
    Guest { running: Some(running), cores: Some(cores) }
}

pub(crate) const BOTH: &[(u32, bool, u32)] = &[(100, true, 2), (101, true, 1)];

pub(crate) struct Guests(Server);

pub(crate) fn bound(server: Server, declared: &[(u32, bool, u32)]) -> Bound<Guests> {
    let desired_states =
        declared.iter().map(|(id, running, cores)| (Id(*id), guest(*running, *cores)));
    let mut bound =
        bind(Guests(server), DesiredState(Table::new(desired_states).unwrap()), Ownership::Marked);
    // This server takes a second request for the same state as done.
    bound.config.dispatch = DispatchGuard::Volatile;
    bound
}

impl Source for Guests {
    const NAME: &'static str = "guests";
    const FAILS: Fails = Fails::Lanes;
    const COVERAGE: Coverage = Coverage::None;
    type Key = Id;
    type Object = Guest;
    type Desired = DesiredState;
    type Step = Request;
    type Moment = Digests;
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
        desired: &DesiredState,
        _: &Digests,
        changes: ChangeList<Id, Guest>,
    ) -> Draft<Self> {
        let mut draft = Draft::default();
        for change in changes {
            let id = change.key(desired);
            match change {
                Change::Update { slot, before, .. } => {
                    draft.steps.extend(requests(id, &before, &desired.object(slot)));
                }
                Change::Create { .. } => {
                    let failure = Failure::new("there is no such guest", Retry::OnChange)
                        .with_help("create it first; only its state and settings are kept");
                    draft.refuse(id, failure);
                }
                // A guest that is no longer declared is left to its fate.
                Change::Delete { .. } | Change::Release { .. } | Change::GiveBack { .. } => {}
            }
        }
        draft
    }
}

fn requests(id: Id, before: &Guest, declared: &Guest) -> impl Iterator<Item = Request> {
    let cores =
        declared.cores.filter(|_| differs(before.cores, declared.cores)).map(Call::SetCores);
    let run = declared.running.filter(|_| differs(before.running, declared.running)).map(Call::Run);
    cores.into_iter().chain(run).map(move |call| Request { id, call })
}

impl Reader<Guests> for Server {
    async fn observe(
        &mut self,
        view: &View<'_, Guests>,
        see: &mut See<'_, Id, Guest>,
    ) -> Result<Digests, Failure> {
        let machines = self.machines.lock().unwrap();
        for (id, machine) in machines.iter().filter(|(id, _)| view.focus.covers(id)) {
            see(Seen::Present { key: *id, object: machine.guest.clone(), owner: Owner::Ours });
        }
        Ok(machines.iter().map(|(id, machine)| (*id, machine.digest)).collect())
    }
}

impl Writer<Guests> for Server {
    /// The intent is durable before the request, and the task's name after it: a crash between
    /// the two must not lead to a second start.
    async fn apply(&self, work: Work<'_, Guests>, out: &dyn Outcomes<Guest>) {
        for (at, request) in work.iter() {
            let outcome = match out.intent(at).await {
                Err(failure) => Outcome::Failed(failure),
                Ok(()) => match self.request(request, work.moment) {
                    Err(failure) => Outcome::Failed(failure),
                    Ok(task) => match out.dispatched(at, &task).await {
                        Ok(()) if self.pace == Pace::Quick => Outcome::Applied { now: None },
                        Ok(()) => Outcome::Waiting { task },
                        Err(failure) => Outcome::Unknown { why: failure.error },
                    },
                },
            };
            out.put(at..at + 1, outcome);
        }
    }
}

#[tokio::test]
async fn a_task_is_waited_for_and_holds_up_its_own_guest_only() {
    let server = Server { pace: Pace::Slow, ..Server::new(&Writes::default()) };
    let mut scene = Scene::open(bound(server.clone(), BOTH));
    let report = scene.pass().await;
    // Guest 100 needs two steps: the second waits for the first.
    assert_eq!(keys(&report, Kind::Pending), ["guest 100", "guest 100", "guest 101"]);
    assert_eq!(server.tasks.lock().unwrap().len(), 2);
    server.finish_tasks();
    scene.pass().await;
    server.finish_tasks();
    assert!(scene.pass().await.is_converged());
}

#[tokio::test]
async fn a_field_that_the_server_does_not_return_is_never_written() {
    let writes = Writes::default();
    let server = Server::new(&writes);
    server.machines.lock().unwrap().get_mut(&Id(100)).unwrap().guest.cores = None;
    let mut scene = Scene::open(bound(server.clone(), &[(100, true, 2)]));
    let report = scene.pass().await;
    assert_eq!(keys(&report, Kind::Unknown), ["guest 100"]);
    assert_eq!(writes.count(), 1, "the run state was reported, and is written");
    let machines = server.machines.lock().unwrap();
    assert_eq!(machines[&Id(100)].guest, Guest { running: Some(true), cores: None });
}

#[tokio::test]
async fn another_digest_refuses_the_request_and_an_absent_guest_is_refused_with_help() {
    let server = Server::new(&Writes::default());
    let mut scene = Scene::open(bound(server.clone(), &[(100, true, 1), (999, true, 1)]));
    let plan = scene.plan().await.unwrap();
    server.machines.lock().unwrap().get_mut(&Id(100)).unwrap().digest += 1;
    let report = scene.apply(plan).await;
    assert_eq!(keys(&report, Kind::Failed), ["guest 999", "guest 100"]);
    let machines = server.machines.lock().unwrap();
    assert_eq!(machines[&Id(100)].guest, guest(false, 1));
}

#[tokio::test]
async fn without_a_journal_nothing_is_sent_that_must_not_be_sent_twice() {
    let writes = Writes::default();
    let mut bound = bound(Server::new(&writes), BOTH);
    bound.config.dispatch = DispatchGuard::Absent;
    let report = Scene::open(bound).pass().await;
    assert_eq!(writes.count(), 0);
    assert_eq!(keys(&report, Kind::Failed), ["guest 100", "guest 101"]);
}
