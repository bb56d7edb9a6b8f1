//! The state of the simulated cluster, and the requests that it received.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, UNIX_EPOCH};

use tokio::time::Instant;

use crate::answer::Answer;
use crate::call::Call;
use crate::config;
use crate::faults::{Fault, Harm};
use crate::guest::Guest;
use crate::tasks::{Effect, End, Script, Task, Upid};

/// The token that every world has.
pub(crate) const USER: &str = "keeper@pve!homeostat";
pub(crate) const SECRET: &str = "0b7c2d4e-51f6-4a3b-9c8d-7e6f5a4b3c2d";
/// The user of tasks that no client started.
const OTHER_USER: &str = "root@pam";

#[derive(Debug)]
pub struct World {
    /// Whether each node is online.
    pub nodes: BTreeMap<String, bool>,
    pub guests: BTreeMap<u32, Guest>,
    /// The secret of each token.
    pub tokens: BTreeMap<String, String>,
    /// Tokens without `Sys.Audit` on the nodes, which may not see tasks of others.
    pub unaudited: BTreeSet<String>,
    /// How many queries of a new task are answered with "no such task".
    pub hidden_queries: u32,
    /// Whether a change of a configuration is a task, also if it is a PUT.
    pub configures_by_tasks: bool,
    /// How long the HA manager takes to start or stop a guest.
    pub ha_delay: Duration,
    /// How old the answer of `/cluster/resources` may be.
    pub stale: Duration,
    /// Every request that arrived, the newest last.
    pub calls: Vec<Call>,
    /// Every request to which a fault applied, whether it arrived or not.
    pub harmed: Vec<Call>,
    /// Every start and stop that was refused because the guest was in that state already.
    pub needless: Vec<Call>,
    /// The largest number of tasks that ran at once on one node.
    pub most_per_node: usize,
    /// The largest number of tasks that ran at once on one guest.
    pub most_per_guest: usize,
    /// Ordered by process id.
    pub(crate) tasks: Vec<Task>,
    /// Indexes of tasks that may still run.
    running: Vec<usize>,
    /// A moment, and the time since 1970 that the clocks of the nodes showed then.
    clock: (Instant, Duration),
    pub(crate) scripts: BTreeMap<u32, VecDeque<Script>>,
    pub(crate) requested: Vec<(Instant, u32, Effect)>,
    /// The cached answer of `/cluster/resources`, and when it was made.
    pub(crate) resources: Option<(Instant, serde_json::Value)>,
    faults: Vec<Fault>,
    /// How often [`World::mend`] was called.
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
            hidden_queries: 0,
            configures_by_tasks: false,
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

    /// Adds a guest, and its node if that is new. Replaces a guest of the same number.
    #[must_use]
    pub fn with(mut self, vmid: u32, guest: Guest) -> Self {
        self.put(vmid, guest);
        self
    }

    /// The same, by reference.
    pub fn put(&mut self, vmid: u32, guest: Guest) {
        self.nodes.entry(guest.node.clone()).or_insert(true);
        self.guests.insert(vmid, guest);
    }

    /// Sets the course of the next task of a guest; without a script it succeeds at once.
    pub fn script(&mut self, vmid: u32, script: Script) {
        self.scripts.entry(vmid).or_default().push_back(script);
    }

    pub fn fail(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Removes all faults; requests under [`Harm::Hold`] continue.
    pub fn mend(&mut self) {
        self.faults.clear();
        self.mended += 1;
    }

    /// Ends all running tasks and pending HA requests now. A test that examines a running task lets it take
    /// [`World::LONG`] and ends it with this, so that it does not depend on the speed of the machine.
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
        self.tasks.iter().filter(|task| task.upid.vmid == vmid && task.upid.kind == kind).count()
    }

    /// Requests that change something.
    #[must_use]
    pub fn writes(&self) -> Vec<&Call> {
        self.calls.iter().filter(|call| call.method != "GET").collect()
    }

    /// Ends the tasks that are due, with their effects.
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
            // Starts and stops cannot be refused here.
            let _ = self.take_effect(vmid, &effect);
            if let Some(guest) = self.guests.get_mut(&vmid) {
                let state = if effect == Effect::Start { "started" } else { "stopped" };
                guest.managed = Some(state.to_owned());
            }
        }
    }

    fn finish(&mut self, at: usize) {
        let Some(task) = self.tasks.get_mut(at) else { return };
        task.is_over = true;
        let (vmid, effect, end) = (task.upid.vmid, task.effect.clone(), task.script.end.clone());
        let done = if end.has_effect() { self.take_effect(vmid, &effect) } else { Ok(()) };
        if let (Err(refused), Some(task)) = (done, self.tasks.get_mut(at)) {
            task.script.end = End::Error(refused.reason.unwrap_or_default());
        }
    }

    /// Starts a task of another user that does not change the guest, such as a backup.
    pub fn occupy(&mut self, vmid: u32, kind: &str, takes: Duration) {
        if self.guests.contains_key(&vmid) {
            self.begin(kind, vmid, OTHER_USER, Effect::Nothing, Script { takes, end: End::Ok });
        }
    }

    /// Restarts every running guest without a task.
    pub fn restart_all(&mut self) {
        for guest in self.guests.values_mut().filter(|guest| guest.running) {
            config::apply_pending(guest);
        }
    }

    fn take_effect(&mut self, vmid: u32, effect: &Effect) -> Result<(), Answer> {
        let Some(guest) = self.guests.get_mut(&vmid) else { return Ok(()) };
        match effect {
            Effect::Start => {
                config::apply_pending(guest);
                guest.running = true;
            }
            Effect::Stop => {
                guest.running = false;
                config::apply_pending(guest);
            }
            Effect::Configure(call) => config::change(guest, vmid, call)?,
            Effect::Nothing => {}
        }
        Ok(())
    }

    pub(crate) fn harm(&mut self, call: &Call) -> Vec<Harm> {
        self.faults.retain(|fault| !fault.is_over());
        let harms: Vec<_> = self.faults.iter_mut().filter_map(|fault| fault.apply(call)).collect();
        if !harms.is_empty() {
            self.harmed.push(call.clone());
        }
        harms
    }

    /// Starts a task of a guest, on its node, and returns its UPID.
    pub(crate) fn begin(
        &mut self,
        kind: &str,
        vmid: u32,
        user: &str,
        effect: Effect,
        script: Script,
    ) -> String {
        self.sequence += 1;
        let (since, shown) = self.clock;
        let upid = Upid {
            node: self.guests.get(&vmid).map(|guest| guest.node.clone()).unwrap_or_default(),
            process: 0x1000 + self.sequence,
            start: (shown + since.elapsed()).as_secs(),
            kind: kind.to_owned(),
            vmid,
            user: user.to_owned(),
        };
        let (name, node, began) = (upid.to_string(), upid.node.clone(), Instant::now());
        let (due, hidden) = (began + script.takes, self.hidden_queries);
        self.running.push(self.tasks.len());
        self.tasks.push(Task { upid, script, effect, began, due, is_over: false, hidden });
        let running = self.running.iter().filter_map(|at| self.tasks.get(*at));
        let running = running.filter(|task| task.is_running());
        let on_node = running.clone().filter(|task| task.upid.node == node).count();
        let of_guest = running.filter(|task| task.upid.vmid == vmid).count();
        self.most_per_node = self.most_per_node.max(on_node);
        self.most_per_guest = self.most_per_guest.max(of_guest);
        name
    }

    pub(crate) fn task(&mut self, upid: &str) -> Option<&mut Task> {
        let process = u32::from_str_radix(upid.split(':').nth(2)?, 16).ok()?;
        let at = self.tasks.binary_search_by_key(&process, |task| task.upid.process).ok()?;
        self.tasks.get_mut(at).filter(|task| task.upid.to_string() == upid)
    }
}
