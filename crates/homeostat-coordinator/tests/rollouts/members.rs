//! Rollouts over three real members of etcd that are killed, stopped and compacted, with leaders that are killed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use homeostat_etcd::{Config, EtcdStore};
use homeostat_fleet::records::{Phase, Record as _, State};
use homeostat_store::{BootTime, Keys as Range, Store, WatchEvent};
use homeostat_testkit::etcd::Members;
use rustix::process::Signal;
use tokio::time::timeout;

use crate::simulated::{Dice, History, pass_time};
use crate::world::World;

/// However busy the machine is, what has not happened by then is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);
pub(crate) const LOOK: Duration = Duration::from_millis(50);
const MEMBERS: u64 = 3;

fn client(name: &str) -> Arc<EtcdStore> {
    let members = (0..3).map(|nth| Members::endpoint(nth).parse().unwrap());
    Arc::new(EtcdStore::new(Config::new(members, name)))
}

/// Everything that happens below a prefix, from the beginning on. History may be compacted up to what was recorded.
pub(crate) struct Recorder {
    recorded: Arc<Mutex<History>>,
}

impl Recorder {
    pub(crate) fn start(store: Arc<EtcdStore>, prefix: String) -> Self {
        let recorded = Arc::new(Mutex::new(History::new()));
        let shared = Arc::clone(&recorded);
        tokio::spawn(async move {
            let mut last = 0;
            loop {
                // A broken watch goes on behind the last whole revision, at another member.
                if let Ok(mut watch) = store.watch(Range::Below(prefix.clone()), last).await {
                    loop {
                        match watch.next().await {
                            Ok(WatchEvent::Changed { revision, key, value }) => {
                                let mut history = shared.lock().unwrap();
                                let is_known =
                                    |it: &(u64, String, _)| (it.0, &it.1) == (revision, &key);
                                if !history.iter().rev().take(200).any(is_known) {
                                    history.push((revision, key, value));
                                }
                                last = revision - 1;
                            }
                            Ok(WatchEvent::Progress { .. }) => {}
                            Ok(other) => panic!("the history is not complete: {other:?}"),
                            Err(_) => break,
                        }
                    }
                }
                pass_time(LOOK).await;
            }
        });
        Recorder { recorded }
    }

    pub(crate) fn history(&self) -> History {
        self.recorded.lock().unwrap().clone()
    }

    /// How many acts there were, and whether the rollout is over.
    pub(crate) fn acts(&self) -> (u64, bool) {
        let history = self.recorded.lock().unwrap();
        let last = history.iter().rfind(|(_, key, _)| key.ends_with("/state"));
        let state = last.and_then(|(_, _, entry)| State::read(&entry.as_ref()?.value).ok());
        state.map_or((0, false), |state| (state.acts, state.phase.is_over()))
    }

    /// Waits until the end of the rollout is recorded.
    pub(crate) async fn until_over(&self) {
        let over = async {
            while !self.acts().1 {
                pass_time(LOOK).await;
            }
        };
        timeout(PATIENCE, over).await.expect("the end is recorded");
    }

    /// Waits for some more acts, or for the end of the rollout.
    pub(crate) async fn until_acts(&self, count: u64) {
        let enough = async {
            while !matches!(self.acts(), (_, true)) && self.acts().0 < count {
                pass_time(LOOK).await;
            }
        };
        timeout(PATIENCE, enough).await.expect("the rollout goes on");
    }
}

async fn until_written() {
    let store = client("probe");
    let written = async {
        while store.commit(homeostat_store::Transaction::new().put("/probe", "")).await.is_err() {
            pass_time(LOOK).await;
        }
    };
    timeout(PATIENCE, written).await.expect("the members elect a leader");
}

/// One rollout, disturbed after some of its acts.
async fn disturbed(members: &mut Members, seed: u64) {
    let mut dice = Dice(seed);
    let world =
        World::new(client("operator"), Arc::new(BootTime), &format!("edge{seed}")).hurried();
    let recorder = Recorder::start(client("recorder"), world.keys.prefix().to_owned());
    let bad: &[u64] = if seed % 3 == 2 { &[12] } else { &[] };
    let stores: Vec<_> = (0..4).map(|nth| client(&format!("nodes{nth}"))).collect();
    let of = |nth: u64| Arc::clone(&stores[usize::try_from(nth % 4).unwrap()]) as Arc<dyn Store>;
    let nodes = world.live(of, bad, seed);
    world.until_alive(PATIENCE, LOOK).await;
    world.publish().await;
    let start = |nth: u64| world.coordinate(client(&format!("c{nth}")), &format!("c{nth}"));
    let mut coordinators = vec![start(0), start(1)];
    for round in 0..5 {
        let (acts, is_over) = recorder.acts();
        if is_over {
            break;
        }
        recorder.until_acts(acts + 1 + dice.roll(3)).await;
        let nth = usize::try_from(dice.roll(MEMBERS)).unwrap();
        match (round + seed) % 4 {
            0 => {
                members.kill(nth).unwrap();
                recorder.until_acts(recorder.acts().0 + 2).await;
                members.run(nth).unwrap();
            }
            1 => {
                members.signal(nth, Signal::STOP).unwrap();
                recorder.until_acts(recorder.acts().0 + 2).await;
                members.signal(nth, Signal::CONT).unwrap();
            }
            2 => {
                let last = recorder.history().last().map_or(1, |(revision, ..)| *revision);
                // It may have been compacted further before: then this is refused, and no harm.
                let _ = world_compact(last - 1).await;
            }
            _ => {
                let which = usize::try_from(dice.roll(2)).unwrap();
                coordinators[which].abort();
                coordinators[which] = start(2 + round);
            }
        }
    }
    let state = world.ended(PATIENCE, LOOK).await;
    let expected = if bad.is_empty() { Phase::Done } else { Phase::Stopped };
    assert_eq!(state.phase, expected, "seed {seed}: {state:?}");
    recorder.until_over().await;
    nodes.iter().chain(&coordinators).for_each(tokio::task::JoinHandle::abort);
    let judged = world.judge(&recorder.history());
    assert!(!bad.is_empty() || judged.wants.len() == nodes.len(), "seed {seed}");
}

async fn world_compact(revision: u64) -> Result<(), homeostat_store::Error> {
    client("compactor").compact(revision.max(1)).await
}

#[test]
fn three_disturbed_rollouts_over_three_members_break_no_rule() {
    let rollouts = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 200 } else { 3 };
    let mut members = Members::start(3, &[], |_| None).unwrap();
    // Everything stays on this thread, which is in the namespace.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        until_written().await;
        for seed in 0..rollouts {
            disturbed(&mut members, seed).await;
        }
    });
}
