//! What a target says may be long: what is kept of it is not.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::journal::follow;
use homeostat_guests::{Run, Wanted};
use homeostat_pve_simulator::{End, Fault, Guest, Harm, Kind, Script, World};

use crate::ground::{Ground, desired, options, runs, story};

/// What is kept of it, at most: in a report, and in the journal.
const KEPT: usize = 20_000;

fn ground() -> Ground {
    Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1")))
}

fn long() -> String {
    "x".repeat(15 << 20)
}

/// As much as most answers may have.
fn some() -> String {
    "x".repeat(900_000)
}

fn answer(status: u16, body: &str) -> Harm {
    Harm::Answer(status, Arc::from(body))
}

/// Two passes keep little of what the target says, and no write is taken for done.
async fn is_bounded(ground: &Ground, wanted: Wanted) -> String {
    let desired = desired([(101, wanted)]);
    let mut process = ground.process();
    let mut reported = String::new();
    for _ in 0..2 {
        let report = process.try_pass(&desired).await;
        reported += &report.map_or_else(|error| format!("{error} {error:?}"), |it| story(&it));
        process.operations.tasks_finished().await;
    }
    let records = follow(ground.state.path()).more().unwrap();
    let recorded: Vec<_> = records.iter().map(|record| format!("{record:?}")).collect();
    let recorded = recorded.join("\n");
    let length = (reported.len(), recorded.len());
    assert!(length.0 < KEPT && length.1 < KEPT, "{length:?}: {:.3000}", reported + &recorded);
    reported
}

#[tokio::test]
async fn a_refusal_of_megabytes_is_cut() {
    let body = format!(r#"{{"data":null,"message":"{}"}}"#, some());
    let many: Vec<_> = (0..20_000).map(|at| format!(r#""p{at}":"wrong""#)).collect();
    let many = format!(r#"{{"data":null,"errors":{{{}}}}}"#, many.join(","));
    let huge = format!(r#"{{"data":null,"message":"{}"}}"#, long());
    for body in [body, many, huge] {
        for (path, method, wanted) in [
            ("/status/start", "POST", runs(Run::Running)),
            ("/101/config", "PUT", options(&[("cores", "2")])),
            ("/101/config", "GET", options(&[("cores", "2")])),
            ("/nodes/pve1/lxc", "GET", runs(Run::Running)),
            ("/nodes", "GET", runs(Run::Running)),
        ] {
            let ground = ground();
            let fault = Fault::on(path, answer(500, &body)).method(method);
            ground.simulator.with(|world| world.fail(fault));
            let reported = is_bounded(&ground, wanted).await;
            assert!(reported.contains("(status 500)"), "{path}: {reported}");
        }
    }
}

#[tokio::test]
async fn an_end_of_a_task_of_megabytes_is_cut_and_known() {
    let ground = ground();
    for _ in 0..2 {
        let script = Script { takes: Duration::ZERO, end: End::Error(long()) };
        ground.simulator.with(|world| world.script(101, script));
    }
    is_bounded(&ground, runs(Run::Running)).await;
    assert_eq!(ground.ends(), ["failed", "failed"]);
}

#[tokio::test]
async fn a_name_of_a_task_of_megabytes_is_none() {
    let ground = ground();
    let name = format!("UPID:pve1:00001001:00001001:6740A2B0:vzstart:101:{}@pve!x:", some());
    let body = format!(r#"{{"data":"{name}"}}"#);
    let fault = Fault::on("/status/start", answer(200, &body)).times(2);
    ground.simulator.with(|world| world.fail(fault));
    let reported = is_bounded(&ground, runs(Run::Running)).await;
    assert!(reported.contains("is no name of a task"), "{reported}");
}

#[tokio::test]
async fn a_name_of_a_node_or_a_value_of_an_option_of_megabytes_is_refused() {
    let node = format!(r#"{{"data":[{{"node":"{}","status":"online"}}]}}"#, some());
    let value = format!(r#"{{"data":{{"digest":"a","cores":"{}"}}}}"#, some());
    for (path, body) in [("/nodes", node), ("/101/config", value)] {
        let ground = ground();
        let fault = Fault::on(path, answer(200, &body)).method("GET");
        ground.simulator.with(|world| world.fail(fault));
        let reported = is_bounded(&ground, options(&[("cores", "2")])).await;
        assert!(reported.contains("too long"), "{path}: {reported}");
    }
}

#[tokio::test]
async fn lists_of_more_rows_than_there_can_be_make_no_sense() {
    let rows = |row: &str, count: usize| format!(r#"{{"data":[{}]}}"#, vec![row; count].join(","));
    for (path, body) in [
        ("/nodes/pve1/lxc", rows("{}", 600_000)),
        ("/nodes/pve1/lxc", rows(r#"{"vmid":101}"#, 20_001)),
        ("/nodes", rows(r#"{"node":"a"}"#, 257)),
        ("/nodes/pve1/tasks", rows(r#"{"upid":"a"}"#, 20_001)),
    ] {
        let ground = ground();
        let fault = Fault::on(path, answer(200, &body)).method("GET");
        ground.simulator.with(|world| world.fail(fault));
        let reported = is_bounded(&ground, runs(Run::Running)).await;
        assert!(reported.contains("makes no sense"), "{path}: {reported}");
        assert_eq!(ground.writes(), 0, "{path}");
    }
}
