//! Nodes that hang: they take connections, and answer nothing. Only their own guests wait.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{Explain as _, Focus};
use homeostat_guests::{DesiredState, Run, Timeouts, Wanted};
use homeostat_pve_simulator::{Fault, Guest, Harm, Kind, World};

use crate::ground::{Ground, Process, TIMEOUTS, desired, key, options, runs, story};

/// Longer than any test lasts.
const LONG: Duration = Duration::from_hours(1);

fn ground() -> Ground {
    let on = |node: &str| Guest::new(Kind::Lxc, node);
    Ground::new(World::default().with(101, on("pve1")).with(102, on("pve2")))
}

fn hang(ground: &Ground, path: &str) {
    ground.simulator.with(|world| world.fail(Fault::on(path, Harm::Slow(LONG))));
}

fn elsewhere() -> Wanted {
    Wanted { node: Some("pve2".to_owned()), ..runs(Run::Running) }
}

fn is_running(ground: &Ground, vmid: u32) -> bool {
    ground.simulator.with(|world| world.guests[&vmid].running)
}

/// Waits for a hint about the guest of the silent node.
async fn is_named(daemon: &mut Process) {
    while !daemon.hinted().await.contains(&key(102)) {}
}

/// Passes until something is so: even a healthy node may be late on a busy machine. Returns what was reported, and how
/// many passes it took.
async fn pass_until(
    daemon: &mut Process,
    desired: &Arc<DesiredState>,
    so: impl Fn() -> bool,
) -> (String, usize) {
    let (mut reported, mut passes) = (String::new(), 0);
    while !so() {
        reported += &story(&daemon.pass(desired).await);
        daemon.operations.tasks_finished().await;
        passes += 1;
    }
    (reported, passes)
}

/// Passes until all is as declared. Who waits this shortly for answers may miss some of them on a busy machine, and a
/// pass that cannot look at all fails.
async fn converge(daemon: &mut Process, desired: &Arc<DesiredState>) {
    while !daemon.try_pass(desired).await.is_ok_and(|report| report.is_converged()) {
        daemon.operations.tasks_finished().await;
    }
}

/// Passes until one goes without the silent node.
async fn misses_pve2(daemon: &mut Process, desired: &Arc<DesiredState>) {
    let misses = |reported: String| reported.contains("node pve2 does not answer");
    while !daemon.try_pass(desired).await.is_ok_and(|report| misses(story(&report))) {}
}

/// Fails in place of waiting for ever.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), work).await.unwrap()
}

#[tokio::test]
async fn a_node_that_hangs_keeps_no_other_guest_from_its_start() {
    let ground = ground();
    hang(&ground, "/nodes/pve2/");
    let desired = desired([(101, runs(Run::Running)), (102, elsewhere())]);
    let mut daemon = ground.daemon(LONG);
    let (reported, _) = soon(pass_until(&mut daemon, &desired, || is_running(&ground, 101))).await;
    assert!(reported.contains("node pve2 does not answer: it has not answered yet"), "{reported}");
    assert!(!is_running(&ground, 102));
    // It is not asked a second time while the first question is open.
    let asked = |world: &mut World| {
        world.harmed.iter().filter(|call| call.path.contains("/nodes/pve2/")).count()
    };
    let before = ground.simulator.with(asked);
    soon(daemon.pass(&desired)).await;
    assert_eq!((before, ground.simulator.with(asked)), (2, 2), "one question for each kind");
}

#[tokio::test]
async fn a_node_that_hangs_with_its_configurations_keeps_no_other_guest_from_its_options() {
    let ground = ground();
    ground.simulator.with(|world| {
        for vmid in 200..260 {
            world.put(vmid, Guest::new(Kind::Lxc, "pve2"));
        }
    });
    hang(&ground, "/nodes/pve2/lxc/");
    let wanted = |node: &str| Wanted { node: Some(node.to_owned()), ..options(&[("cores", "2")]) };
    let many = (200..260).map(|vmid| (vmid, wanted("pve2")));
    let desired = desired(many.chain([(101, wanted("pve1"))]));
    let mut daemon = ground.daemon(LONG);
    let is_set = || ground.simulator.with(|world| world.guests[&101].config.contains_key("cores"));
    let (reported, passes) = soon(pass_until(&mut daemon, &desired, is_set)).await;
    assert!(reported.contains("node pve2 does not answer any more"), "{reported}");
    let asked = ground.simulator.with(|world| world.harmed.len());
    assert!((1..=16 * passes).contains(&asked), "{asked} of 60: the others were not tried");
}

#[tokio::test]
async fn the_answer_of_a_late_node_is_used_when_it_comes() {
    let ground = ground();
    ground.simulator.with(|world| {
        world.fail(Fault::on("/nodes/pve2/", Harm::Hold).times(2));
    });
    let desired = desired([(101, runs(Run::Running)), (102, elsewhere())]);
    let mut daemon = ground.daemon(LONG);
    assert!(story(&soon(daemon.pass(&desired)).await).contains("it has not answered yet"));
    ground.simulator.with(World::mend);
    soon(daemon.operations.tasks_finished()).await;
    soon(is_named(&mut daemon)).await;
    let focus = Focus::Keys([key(102)].into());
    soon(daemon.pass_over(&desired, focus)).await.unwrap();
    soon(daemon.operations.tasks_finished()).await;
    assert!(is_running(&ground, 102));
}

#[tokio::test]
async fn a_node_that_hung_is_asked_again_by_itself_and_its_guests_are_looked_at() {
    let ground = ground();
    hang(&ground, "/nodes/pve2/");
    let desired = desired([(101, runs(Run::Running)), (102, elsewhere())]);
    let mut daemon = ground.daemon(Duration::from_millis(1200));
    soon(misses_pve2(&mut daemon, &desired)).await;
    soon(daemon.operations.tasks_finished()).await;
    ground.simulator.with(World::mend);
    soon(is_named(&mut daemon)).await;
    soon(converge(&mut daemon, &desired)).await;
    assert!(is_running(&ground, 102));
}

#[tokio::test]
async fn without_hints_a_pass_waits_for_a_node_as_long_as_an_answer_may_take() {
    let ground = ground();
    ground.simulator.with(|world| {
        let late = Harm::Slow(Duration::from_millis(1500));
        world.fail(Fault::on("/nodes/pve2/", late).times(2));
    });
    let mut process = ground.process_within(Timeouts { answer: LONG, ..TIMEOUTS });
    let report = soon(process.pass(&desired([(102, elsewhere())]))).await;
    assert!(!story(&report).contains("does not answer"), "{}", story(&report));
}

#[tokio::test]
async fn a_command_finds_its_guest_although_another_node_hangs() {
    let ground = ground();
    hang(&ground, "/nodes/pve1/");
    let process = ground.daemon(LONG);
    let located = soon(process.locate(102)).await.unwrap();
    assert_eq!(located.node(), "pve2");
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_at_all_fails_the_pass_and_harms_nothing() {
    let ground = ground();
    hang(&ground, "/nodes");
    let mut daemon = ground.daemon(Duration::from_millis(200));
    let desired = desired([(101, runs(Run::Running))]);
    let error = soon(daemon.try_pass(&desired)).await.err().unwrap();
    assert!(error.to_string().contains("observe"), "{error}");
    ground.simulator.with(World::mend);
    soon(converge(&mut daemon, &desired)).await;
    assert!(is_running(&ground, 101));
}

#[tokio::test]
async fn a_node_that_answers_an_earlier_question_during_a_look_makes_no_guest_absent() {
    let ground = ground();
    let desired = desired([(101, runs(Run::Running)), (102, elsewhere())]);
    let mut daemon = ground.daemon(LONG);
    soon(Box::pin(daemon.converge(&desired))).await;
    ground.simulator.with(|world| {
        world.fail(Fault::on("/nodes/pve2/", Harm::Hold).times(2));
        let late = Harm::Slow(Duration::from_millis(900));
        world.fail(Fault::on("/nodes/pve1/", late).times(2).after(4));
    });
    let first = story(&soon(daemon.pass(&desired)).await);
    assert!(first.contains("node pve2 does not answer"), "{first}");
    // The next look is still waiting for this node when the other one answers at last.
    let is_waiting =
        |world: &mut World| world.harmed.iter().any(|call| call.path.contains("/nodes/pve1/"));
    let answers = async {
        while !ground.simulator.with(is_waiting) {
            tokio::task::yield_now().await;
        }
        ground.simulator.with(World::mend);
    };
    let (second, ()) = soon(async { tokio::join!(daemon.pass(&desired), answers) }).await;
    let second = story(&second);
    assert!(!second.contains("there is no such guest"), "{second}");
}
