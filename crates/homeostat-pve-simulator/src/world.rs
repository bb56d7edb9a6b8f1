//! Everything that the simulated cluster is, and what was asked of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, UNIX_EPOCH};

use tokio::time::Instant;

use crate::answer::Answer;
use crate::call::Call;
use crate::config;
use crate::faults::{Fault, Harm};
use crate::guest::Guest;
use crate::tasks::{Effect, End, Script, Task};
use crate::upid::{self, Upid};

/// The token that is known from the start, and its user.
pub(crate) const USER: &str = "keeper@pve!homeostat";
pub(crate) const SECRET: &str = "0b7c2d4e-51f6-4a3b-9c8d-7e6f5a4b3c2d";
/// Who does what we do not.
const SOMEBODY: &str = "root@pam";

/// A cluster.
#[derive(Debug)]
pub struct World {
    /// The nodes, and whether each can be reached.
    pub nodes: BTreeMap<String, bool>,
    /// The guests by number.
    pub guests: BTreeMap<u32, Guest>,
    /// Tokens with their secrets.
    pub tokens: BTreeMap<String, String>,
    /// Tokens that may not look at what others do: they lack `Sys.Audit` on the nodes.
    pub unaudited: BTreeSet<String>,
    /// So many questions about a fresh task are answered with "no such task".
    pub shy_tasks: u32,
    /// How long the cluster's resource manager takes to do what a task requested.
    pub ha_delay: Duration,
    /// How old the resources of the cluster may be.
    pub stale: Duration,
    /// Every request that arrived, the newest last.
    pub calls: Vec<Call>,
    /// Every request that met a fault, whether it arrived or not.
    pub harmed: Vec<Call>,
    /// Every start and stop that was refused because the guest was so already.
    pub needless: Vec<Call>,
    /// The most tasks that ran at once on a node, and on a guest.
    pub most_per_node: usize,
    /// Likewise of one guest.
    pub most_per_guest: usize,
    /// In the order of their processes.
    pub(crate) tasks: Vec<Task>,
    /// Which of them may still run.
    running: Vec<usize>,
    /// A moment, and what the clocks of the nodes showed then.
    clock: (Instant, Duration),
    pub(crate) scripts: BTreeMap<u32, VecDeque<Script>>,
    pub(crate) requested: Vec<(Instant, u32, Effect)>,
    /// What `/cluster/resources` says, and since when.
    pub(crate) resources: Option<(Instant, serde_json::Value)>,
    faults: Vec<Fault>,
    /// How often everything was mended.
    pub(crate) mended: u32,
    sequence: u32,
}

impl Default for World {
    fn default() -> Self {
        World {
            nodes: BTreeMap::new(),
            guests: BTreeMap::new(),
            tokens: BTreeMap::from([(USER.to_owned(), SECRET.to_owned())]),
            unaudited: BTreeSet::new(),
            shy_tasks: 0,
            ha_delay: Duration::ZERO,
            stale: Duration::from_secs(10),
            calls: Vec::new(),
            harmed: Vec::new(),
            needless: Vec::new(),
            most_per_node: 0,
            most_per_guest: 0,
            tasks: Vec::new(),
            running: Vec::new(),
            clock: (Instant::now(), UNIX_EPOCH.elapsed().unwrap_or_default()),
            scripts: BTreeMap::new(),
            requested: Vec::new(),
            resources: None,
            faults: Vec::new(),
            mended: 0,
            sequence: 0,
        }
    }
}

impl World {
    /// Longer than any test lasts.
    pub const LONG: Duration = Duration::from_hours(1);

    /// Adds a guest, and its node if that is new. One that had the number is gone.
    #[must_use]
    pub fn with(mut self, vmid: u32, guest: Guest) -> Self {
        self.put(vmid, guest);
        self
    }

    /// The same for a world that is already simulated: a number is a name that can be given again.
    pub fn put(&mut self, vmid: u32, guest: Guest) {
        self.nodes.entry(guest.node.clone()).or_insert(true);
        self.guests.insert(vmid, guest);
    }

    /// Says how the next task of a guest goes; without a script it ends well, at once.
    pub fn script(&mut self, vmid: u32, script: Script) {
        self.scripts.entry(vmid).or_default().push_back(script);
    }

    /// Adds a fault.
    pub fn fail(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Nothing goes wrong any more, and what was held back until now goes on.
    pub fn mend(&mut self) {
        self.faults.clear();
        self.mended += 1;
    }

    /// Whatever is under way comes to its end now, however long it would have taken. A test that looks at what is
    /// under way has it take [`World::LONG`] and says itself when it is over: no busy machine can be late for that.
    pub fn hurry(&mut self) {
        let now = Instant::now();
        self.tasks.iter_mut().for_each(|task| task.due = task.due.min(now));
        self.requested.iter_mut().for_each(|(at, ..)| *at = now.min(*at));
        self.settle();
    }

    /// All tasks, the oldest first.
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// How many tasks of this kind a guest has had.
    #[must_use]
    pub fn count(&self, vmid: u32, kind: &str) -> usize {
        self.tasks.iter().filter(|task| task.vmid() == vmid && task.kind() == kind).count()
    }

    /// Requests that change something.
    #[must_use]
    pub fn writes(&self) -> Vec<&Call> {
        self.calls.iter().filter(|call| call.method != "GET").collect()
    }

    /// Brings everything up to the present: tasks that are due end, and have their effect.
    pub fn settle(&mut self) {
        let now = Instant::now();
        for at in std::mem::take(&mut self.running) {
            match self.tasks.get(at) {
                Some(task) if task.is_over => {}
                Some(task) if task.due <= now => self.finish(at),
                _ => self.running.push(at),
            }
        }
        let (due, rest): (Vec<_>, _) =
            std::mem::take(&mut self.requested).into_iter().partition(|(at, ..)| *at <= now);
        self.requested = rest;
        for (_, vmid, effect) in due {
            // A manager asks for nothing that could be refused.
            let _ = self.affect(vmid, &effect);
            if let Some(guest) = self.guests.get_mut(&vmid) {
                let state = if effect == Effect::Start { "started" } else { "stopped" };
                guest.managed = Some(state.to_owned());
            }
        }
    }

    fn finish(&mut self, at: usize) {
        let Some(task) = self.tasks.get_mut(at) else { return };
        task.is_over = true;
        let (vmid, effect, end) = (task.vmid(), task.effect.clone(), task.script.end.clone());
        let done = if end.has_effect() { self.affect(vmid, &effect) } else { Ok(()) };
        if let (Err(refused), Some(task)) = (done, self.tasks.get_mut(at)) {
            task.script.end = End::Error(refused.reason.unwrap_or_default());
        }
    }

    /// Somebody else begins a task on a guest: a backup, say, which changes nothing of it.
    pub fn occupy(&mut self, vmid: u32, kind: &str, takes: Duration) {
        let Some(node) = self.guests.get(&vmid).map(|guest| guest.node.clone()) else { return };
        let name = self.name(kind.to_owned(), (vmid, &node), SOMEBODY);
        self.begin(name, Effect::Nothing, Script { takes, end: End::Ok });
    }

    /// Somebody restarts every guest that runs, without a word to anybody.
    pub fn restart_all(&mut self) {
        for guest in self.guests.values_mut().filter(|guest| guest.running) {
            config::take_effect(guest);
        }
    }

    fn affect(&mut self, vmid: u32, effect: &Effect) -> Result<(), Answer> {
        let Some(guest) = self.guests.get_mut(&vmid) else { return Ok(()) };
        match effect {
            Effect::Start => {
                config::take_effect(guest);
                guest.running = true;
            }
            Effect::Stop => {
                guest.running = false;
                config::take_effect(guest);
            }
            Effect::Configure(call) => config::change(guest, call)?,
            Effect::Nothing => {}
        }
        Ok(())
    }

    pub(crate) fn harm(&mut self, call: &Call) -> Vec<Harm> {
        self.faults.retain(|fault| !fault.is_over());
        let harms: Vec<_> = self.faults.iter_mut().filter_map(|fault| fault.meet(call)).collect();
        if !harms.is_empty() {
            self.harmed.push(call.clone());
        }
        harms
    }

    /// Begins a task, and tells its name.
    pub(crate) fn begin(&mut self, name: Upid, effect: Effect, script: Script) -> String {
        let (node, vmid) = (name.node.clone(), name.vmid);
        let began = Instant::now();
        let (due, hidden) = (began + script.takes, self.shy_tasks);
        self.running.push(self.tasks.len());
        self.tasks.push(Task { name, effect, script, began, due, is_over: false, hidden });
        let running = self.running.iter().filter_map(|at| self.tasks.get(*at));
        let running: Vec<_> = running.filter(|task| task.is_running()).collect();
        let on_node = running.iter().filter(|task| task.name.node == node).count();
        let of_guest = running.iter().filter(|task| task.vmid() == vmid).count();
        self.most_per_node = self.most_per_node.max(on_node);
        self.most_per_guest = self.most_per_guest.max(of_guest);
        self.tasks.last().map(Task::upid).unwrap_or_default()
    }

    /// The task of this name.
    pub(crate) fn task(&mut self, upid: &str) -> Option<&mut Task> {
        let process = upid::pid_of(upid)?;
        let at = self.tasks.binary_search_by_key(&process, |task| task.name.process).ok()?;
        self.tasks.get_mut(at).filter(|task| task.upid() == upid)
    }

    pub(crate) fn name(&mut self, kind: String, (vmid, node): (u32, &str), user: &str) -> Upid {
        self.sequence += 1;
        let (since, shown) = self.clock;
        let start = (shown + since.elapsed()).as_secs();
        let process = 0x1000 + self.sequence;
        Upid { node: node.to_owned(), process, start, kind, vmid, user: user.to_owned() }
    }

    /// The nodes that can be reached.
    pub(crate) fn online(&self) -> BTreeSet<&str> {
        self.nodes.iter().filter(|(_, online)| **online).map(|(name, _)| name.as_str()).collect()
    }
}
