//! What could not be read is unknown, and never empty.

use crate::stage::{DOOR, Stage, TWO, shared};

#[tokio::test]
async fn a_failed_list_deletes_nothing() {
    for strategy in shared() {
        let stage = Stage::new(strategy);
        let mut life = stage.life();
        life.pass(TWO).await;
        stage.service.state().faults.blind = true;
        stage.calls();
        assert!(life.try_pass(crate::stage::desired(&[])).await.is_err());
        assert!(stage.calls().is_empty());
        stage.service.state().faults.blind = false;
        assert_eq!(life.recorded().len(), stage.life().recorded().len());
        assert!(life.pass(TWO).await.converged);
    }
}

#[tokio::test]
async fn a_partial_list_deletes_nothing_and_makes_nothing_twice() {
    for strategy in shared() {
        let stage = Stage::new(strategy);
        let mut life = stage.life();
        life.pass(TWO).await;
        stage.service.state().faults.partial = Some(1);
        stage.calls();
        for squares in [TWO, DOOR, &[]] {
            let error = life.try_pass(crate::stage::desired(squares)).await.unwrap_err();
            assert!(error.to_string().contains("the list is not whole: 1 of 2"), "{error}");
        }
        assert!(stage.calls().is_empty());
        assert_eq!(stage.service.shown(), "green my-door, blue my-window");
    }
}

#[tokio::test]
async fn a_slow_service_is_waited_for() {
    let stage = Stage::new(crate::stage::marker());
    stage.service.state().faults.slow_ms = 20;
    assert!(stage.life().pass(TWO).await.converged);
}

#[tokio::test]
async fn a_lost_answer_is_looked_up_and_nothing_is_made_twice() {
    for strategy in shared() {
        let stage = Stage::new(strategy);
        stage.service.state().faults.lost_answers = 2;
        let mut life = stage.life();
        assert!(life.pass(TWO).await.converged);
        assert!(life.pass(TWO).await.applied.is_empty());
        assert_eq!(stage.calls().len(), 2);
        assert_eq!(life.pass(&[]).await.applied, ["- my-door", "- my-window"]);
    }
}
