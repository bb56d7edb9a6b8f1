//! The end of a process at any moment: nothing is sent twice, no task is lost, all is well in the end.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use homeostat_guests::{DesiredState, Run, Stop, Wanted};
use homeostat_pve_simulator::{End, Guest, Kind, Script, World};

use crate::ground::{Ground, desired, options};

/// Runs passes until the cluster has seen so many requests; then the process is no more, whatever it was
/// doing. The answer to the last request is never read.
async fn run_until(ground: &Ground, desired: &Arc<DesiredState>, requests: usize) {
    let mut process = ground.process();
    let crash = poll_fn(|_| {
        let seen = ground.simulator.with(|world| world.calls.len());
        if seen >= requests { Poll::Ready(()) } else { Poll::Pending }
    });
    let work = async {
        loop {
            let report = process.pass(desired).await;
            process.operations.tasks_finished().await;
            if homeostat_engine::Explain::is_converged(&report) {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        () = crash => {}
        () = work => {}
    }
    drop(process);
    // What it had started is dropped when the runtime next looks at it, and only then is its journal free.
    while !ground.is_free() {
        tokio::task::yield_now().await;
    }
}

/// A cluster, what is declared of it, and which tasks bring it there, each once.
struct Scenario {
    world: fn() -> World,
    desired: fn() -> Arc<DesiredState>,
    /// The guest, its task, what the journal calls the step, and whether it runs in the end.
    tasks: [(u32, &'static str, &'static str, bool); 2],
}

/// A container and a machine, of which each task takes its time.
fn cluster(container: Guest, machine: Guest) -> World {
    let mut world = World::default().with(101, container).with(102, machine);
    for vmid in [101, 102] {
        world.script(vmid, Script { takes: Duration::from_millis(120), end: End::Ok });
    }
    world
}

fn container() -> Guest {
    Guest::new(Kind::Lxc, "pve1")
}

fn machine() -> Guest {
    Guest::new(Kind::Qemu, "pve2")
}

/// Desired states both to run or not, with options for each.
fn both(container: (Run, Stop), machine: (Run, Stop)) -> Arc<DesiredState> {
    let first = Wanted {
        run: Some(container.0),
        stop: container.1,
        ..options(&[("cores", "2"), ("tags", "web")])
    };
    let second = Wanted {
        kind: homeostat_guests::Kind::Qemu,
        node: Some("pve2".to_owned()),
        run: Some(machine.0),
        stop: machine.1,
        ..options(&[("description", "db")])
    };
    desired([(101, first), (102, second)])
}

const GRACEFUL: Stop = Stop::Graceful(Duration::from_secs(5));

const START_AND_STOP: Scenario = Scenario {
    world: || cluster(container(), machine().running()),
    desired: || both((Run::Running, GRACEFUL), (Run::Stopped, Stop::Immediate)),
    tasks: [(101, "vzstart", "start", true), (102, "qmstop", "stop", false)],
};

/// A shutdown, which becomes a stop if the guest ignores it, and the start of a machine.
const SHUTDOWN_AND_START: Scenario = Scenario {
    world: || cluster(container().running(), machine()),
    desired: || both((Run::Stopped, GRACEFUL), (Run::Running, GRACEFUL)),
    tasks: [(101, "vzshutdown", "shutdown", false), (102, "qmstart", "start", true)],
};

/// Guests that the cluster's resource manager keeps.
const REQUESTS: Scenario = Scenario {
    world: || {
        let kept = |guest| Guest { is_ha: true, ..guest };
        let mut world = cluster(kept(container()), kept(machine().running()));
        world.ha_delay = Duration::from_millis(120);
        world
    },
    desired: || both((Run::Running, GRACEFUL), (Run::Stopped, GRACEFUL)),
    tasks: [(101, "hastart", "start", true), (102, "hastop", "shutdown", false)],
};

impl Scenario {
    fn ground(&self) -> Ground {
        Ground::new((self.world)())
    }

    /// All is as declared, each task was begun once, and the journal knows how each ended.
    fn check(&self, ground: &Ground, at: usize) {
        for (vmid, task, step, runs) in self.tasks {
            ground.simulator.with(|world| {
                assert_eq!(world.guests[&vmid].running, runs, "{task}, crash at {at}");
                assert_eq!(world.count(vmid, task), 1, "{task}, crash at {at}");
                assert_eq!(world.most_per_guest, 1, "{task}, crash at {at}");
            });
            let ends = ground.ends_of(vmid, step);
            let known = ends.iter().filter(|end| **end == "succeeded").count();
            assert_eq!(known, 1, "no task is lost: {task} has {ends:?}, crash at {at}");
        }
        assert_eq!(ground.simulator.with(|world| world.tasks().len()), 2, "crash at {at}");
    }

    /// A crash after every request that a calm run makes.
    async fn crash_everywhere(&self) {
        let desired = (self.desired)();
        let calm = self.ground();
        run_until(&calm, &desired, usize::MAX).await;
        self.check(&calm, 0);
        let requests = calm.simulator.with(|world| world.calls.len());
        assert!(requests > 20, "{requests} requests");
        for at in 1..=requests {
            let ground = self.ground();
            run_until(&ground, &desired, at).await;
            ground.process().converge(&desired).await;
            self.check(&ground, at);
        }
    }
}

#[tokio::test]
async fn a_crash_after_any_request_loses_no_task_and_sends_none_twice() {
    START_AND_STOP.crash_everywhere().await;
}

#[tokio::test]
async fn a_crash_around_a_shutdown_or_the_start_of_a_machine_is_no_worse() {
    SHUTDOWN_AND_START.crash_everywhere().await;
}

#[tokio::test]
async fn a_crash_around_a_request_to_the_resource_manager_is_no_worse() {
    REQUESTS.crash_everywhere().await;
}

/// Quirk `no-such-task-for-a-moment`: a process that comes back right after its crash asks too early.
#[tokio::test]
async fn a_task_that_is_not_known_yet_after_a_crash_is_not_lost() {
    let shy = Scenario {
        world: || {
            let mut world = (START_AND_STOP.world)();
            world.hidden_queries = 3;
            world
        },
        ..START_AND_STOP
    };
    shy.crash_everywhere().await;
}

#[tokio::test]
async fn two_crashes_in_a_row_are_no_worse() {
    for scenario in [START_AND_STOP, SHUTDOWN_AND_START, REQUESTS] {
        let desired = (scenario.desired)();
        for at in (2..40).step_by(5) {
            let ground = scenario.ground();
            run_until(&ground, &desired, at).await;
            run_until(&ground, &desired, at + at / 2).await;
            ground.process().converge(&desired).await;
            scenario.check(&ground, at);
        }
    }
}
