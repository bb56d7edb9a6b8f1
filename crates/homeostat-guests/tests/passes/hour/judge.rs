//! What must never happen, as seen from outside: by the cluster's own tasks and by the requests that it received.

use std::collections::BTreeMap;
use std::time::Duration;

use homeostat_guests::{Run, Vmid};
use homeostat_pve_simulator::{Simulator, Task, World};
use tokio::time::Instant;

use super::stage::{HA_DELAY, Stage, UNDECLARED};
use super::trouble::Disturbance;

/// A client that looks before it writes has seen what was so for this long, however slow the answers are.
const SEEN: Duration = Duration::from_mins(1);

/// So many tasks of a guest in a minute are not due to timeouts.
const STORM: usize = 30;

pub(crate) struct Judge<'a> {
    world: &'a World,
    /// Our tasks by guest, the oldest first.
    ours: BTreeMap<u32, Vec<&'a Task>>,
    disturbances: &'a [Disturbance],
}

/// A moment in the life of a guest.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// A task has done its work.
    Done(bool),
    /// Another client disturbs it.
    Disturbed(bool),
    /// A task of ours begins that is to do this.
    Begun(bool),
}

impl<'a> Judge<'a> {
    pub(crate) fn of(world: &'a World, disturbances: &'a [Disturbance]) -> Self {
        let mut ours: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for task in world.tasks().iter().filter(|task| is_ours(task)) {
            ours.entry(task.upid.vmid).or_default().push(task);
        }
        Judge { world, ours, disturbances }
    }

    /// Everything that was wrong.
    pub(crate) fn breaches(&self) -> Vec<String> {
        let overlaps = self.ours.values().flat_map(|tasks| overlaps(tasks));
        let needless = self.ours.keys().flat_map(|vmid| self.needless(*vmid));
        let storms = self.ours.values().flat_map(|tasks| storms(tasks));
        let refused = self.world.needless.iter().map(|call| format!("needless: {}", call.path));
        let all = overlaps.chain(needless).chain(storms).chain(refused);
        all.chain(self.run_into()).chain(self.uninvited()).collect()
    }

    /// The most tasks of ours at once, on a node and in all.
    pub(crate) fn most_at_once(&self) -> (usize, usize) {
        let mut by_node: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for task in self.ours.values().flatten() {
            by_node.entry(&task.upid.node).or_default().push(task.lasts());
        }
        let all = by_node.values().flatten().copied().collect();
        (by_node.into_values().map(most).max().unwrap_or_default(), most(all))
    }

    /// Tasks that began although the guest was as they were to make it, or was about to be.
    fn needless(&self, vmid: u32) -> Vec<String> {
        let mut breaches = Vec::new();
        let (mut runs, mut is_coming) = (false, false);
        for (at, moment) in self.moments(vmid) {
            match moment {
                Moment::Done(so) => (runs, is_coming) = (so, false),
                Moment::Disturbed(so) => runs = so,
                Moment::Begun(so) => {
                    if runs == so || is_coming {
                        breaches.push(format!("guest {vmid} needed no {so} at {at:?}"));
                    }
                    is_coming = self.world.guests[&vmid].is_ha;
                }
            }
        }
        breaches
    }

    /// What happened to a guest, in order. What ends at an instant makes room for what happens then, and a task
    /// that takes no time ends after it began.
    fn moments(&self, vmid: u32) -> Vec<(Instant, Moment)> {
        let own = self.disturbances.iter().filter(|disturbance| disturbance.vmid == vmid);
        let disturbed = own.map(|one| ((one.at, 1), Moment::Disturbed(one.runs)));
        let mut moments: Vec<_> = disturbed.collect();
        for task in self.ours.get(&vmid).into_iter().flatten() {
            let (began, ended) = task.lasts();
            let starts = task.upid.kind.ends_with("start");
            moments.push(((began, 2), Moment::Begun(starts)));
            if task.upid.kind.starts_with("ha") {
                moments.push(((began + HA_DELAY, 0), Moment::Done(starts)));
            } else if task.script.end.has_effect() {
                let rank = if began == ended { 2 } else { 0 };
                moments.push(((ended, rank), Moment::Done(starts)));
            }
        }
        moments.sort_by_key(|(at, _)| *at);
        moments.into_iter().map(|((at, _), moment)| (at, moment)).collect()
    }

    /// Tasks that began while another client had been at work on the guest for long.
    fn run_into(&self) -> Vec<String> {
        let theirs = self.world.tasks().iter().filter(|task| !is_ours(task));
        let met = theirs.flat_map(|theirs| {
            let (began, ended) = theirs.lasts();
            let ours = self.ours.get(&theirs.upid.vmid).into_iter().flatten();
            let during = ours.filter(move |ours| {
                let at = ours.lasts().0;
                began + SEEN < at && at < ended
            });
            during.map(move |ours| format!("{} ran into {}", ours.upid, theirs.upid))
        });
        met.collect()
    }

    /// Writes to guests that are not declared.
    fn uninvited(&self) -> Vec<String> {
        let number = |path: &str| path.split('/').find_map(|part| part.parse::<u32>().ok());
        let writes = self.world.writes().into_iter();
        let uninvited =
            writes.filter(|call| number(&call.path).is_none_or(|vmid| vmid >= UNDECLARED));
        uninvited.map(|call| format!("uninvited: {} {}", call.method, call.path)).collect()
    }
}

fn is_ours(task: &Task) -> bool {
    Simulator::token().starts_with(&format!("{}=", task.upid.user))
}

fn overlaps(tasks: &[&Task]) -> Vec<String> {
    let pairs = tasks.windows(2).filter(|pair| pair[1].lasts().0 < pair[0].lasts().1);
    pairs.map(|pair| format!("{} began during {}", pair[1].upid, pair[0].upid)).collect()
}

/// What fails is tried with growing pauses, also if a new desired state or a new life begins them anew.
fn storms(tasks: &[&Task]) -> Vec<String> {
    let storms = tasks.windows(STORM).filter(|storm| match storm {
        [first, .., last] => last.lasts().0 - first.lasts().0 < Duration::from_mins(1),
        _ => false,
    });
    storms.map(|storm| format!("{STORM} tasks in a minute since {}", storm[0].upid)).collect()
}

/// The most that run at once. What ends makes room for what begins at the same moment.
fn most(tasks: Vec<(Instant, Instant)>) -> usize {
    let mut turns: Vec<(Instant, isize)> = tasks
        .into_iter()
        .filter(|(began, ended)| began < ended)
        .flat_map(|(began, ended)| [(began, 1), (ended, -1)])
        .collect();
    turns.sort_unstable();
    let running = turns.iter().scan(0_isize, |running, (_, turn)| {
        *running += turn;
        Some(*running)
    });
    usize::try_from(running.max().unwrap_or_default()).unwrap()
}

/// Every declared guest is as declared, and the others are as they were.
pub(crate) fn assert_is_kept(stage: &Stage, seed: u64) {
    stage.cluster.with(|world| {
        for (Vmid(vmid), wanted) in stage.desired.iter() {
            let guest = &world.guests[vmid];
            let story = format!("seed {seed}, guest {vmid}: {guest:?}");
            assert_eq!(guest.running, wanted.run == Some(Run::Running), "{story}");
            assert!(guest.pending.is_empty(), "{story}");
            for (option, value) in &wanted.options {
                // Lines end where the target ends them, and our mark is among the tags.
                let found = guest.config.get(option).map(String::as_str).unwrap_or_default();
                let is_so = found.trim_end() == value || option == "tags" && found.contains(value);
                assert!(is_so, "{option}: {story}");
            }
        }
        for (vmid, guest) in world.guests.range(UNDECLARED..) {
            assert_eq!(guest.running, vmid.is_multiple_of(2), "seed {seed}, guest {vmid}");
        }
    });
}
