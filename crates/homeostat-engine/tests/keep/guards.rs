//! Guards hold in focused passes, too.

use homeostat_engine::{Bound, Control as _, Kind, MassDelete, MissingSections, OnStop};
use homeostat_testkit::memory::{Mark, Target};

use crate::stage::{SECOND, Source, Stage, bound, later, pace};

fn many(target: &Target) -> Bound<Source> {
    let keys: Vec<String> = (10..30).map(|number| format!("k{number}")).collect();
    let desired: Vec<_> = keys.iter().map(|key| (key.as_str(), "1")).collect();
    bound(target, &desired)
}

async fn held() -> Stage {
    let target = Target::default();
    let stage = Stage::over(target.clone(), many(&target), pace());
    stage.converged().await;
    stage.handle.put(bound(&target, &[("k10", "1")])).unwrap();
    stage.handle.wait_for(|status| status.open.count(Kind::Held) == 19).await.unwrap();
    later(SECOND).await;
    stage
}

#[tokio::test(start_paused = true)]
async fn what_a_full_pass_holds_back_focused_passes_hold_back() {
    let stage = held().await;
    for number in 11..30 {
        stage.target.alter(&format!("k{number}"), "2");
    }
    later(10 * SECOND).await;
    assert_eq!(stage.values().len(), 20, "not one by one either");
    assert!(stage.handle.status().counts.focused > 0);
    let report = stage.handle.look("k11").await.unwrap().unwrap();
    assert!(!report.is_converged());
}

#[tokio::test(start_paused = true)]
async fn a_word_of_the_operator_lets_them_go() {
    let stage = held().await;
    let mut order = bound(&stage.target, &[("k10", "1")]);
    order.config.guards.mass_delete = MassDelete::Allow;
    stage.handle.put(order).unwrap();
    stage.converged().await;
    assert_eq!(stage.values(), ["k10=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_failed_holds_no_others_back() {
    let stage = Stage::settled(&[("a", "1"), ("b", "2"), ("c", "3")]).await;
    stage.faults(|faults| _ = faults.refused.insert("a".into()));
    stage.handle.put(bound(&stage.target, &[("c", "3")])).unwrap();
    stage.handle.wait_for(|status| status.open.count(Kind::Failed) == 1).await.unwrap();
    later(10 * SECOND).await;
    // A full pass that leaves the removal alone for its backoff is no guard.
    stage.target.overflow();
    later(SECOND).await;
    stage.target.add("b", "2", Mark::Ours);
    later(SECOND).await;
    assert_eq!(stage.values(), ["a=1", "c=3"]);
    let report = stage.handle.pass().await.unwrap().unwrap();
    let mut held = 0;
    report.explain(Kind::Held, &mut |_| held += 1);
    assert_eq!(held, 0);
}

/// A bound desired state of which the section of `a` is missing.
fn without_a(target: &Target, desired: &[(&str, &str)]) -> Bound<Source> {
    let mut bound = bound(target, desired);
    bound.config.missing = MissingSections::new('a', |section, key: &String| {
        key.starts_with(*section).then(|| "section a is missing".to_owned())
    });
    bound
}

#[tokio::test(start_paused = true)]
async fn focused_passes_hold_what_a_missing_section_declared_and_make_other_removals() {
    let stage = Stage::settled(&[("a1", "1"), ("a2", "1"), ("b1", "1"), ("b2", "1")]).await;
    stage.handle.put(without_a(&stage.target, &[("b1", "1")])).unwrap();
    stage.handle.wait_for(|status| status.open.count(Kind::Held) == 2).await.unwrap();
    assert_eq!(stage.values(), ["a1=1", "a2=1", "b1=1"]);
    // Each is looked at by itself, and one of ours comes that is not declared.
    stage.target.alter("a1", "2");
    stage.target.alter("b1", "2");
    stage.target.add("b2", "1", Mark::Ours);
    later(10 * SECOND).await;
    assert!(stage.handle.status().counts.focused > 0);
    assert_eq!(stage.values(), ["a1=2", "a2=1", "b1=1"]);
    assert_eq!(stage.handle.status().open.count(Kind::Held), 2);
    stage.handle.put(bound(&stage.target, &[("b1", "1")])).unwrap();
    stage.converged().await;
    assert_eq!(stage.values(), ["b1=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_revert_is_not_held_by_missing_sections() {
    let stage = Stage::settled(&[("a1", "1")]).await;
    let mut order = without_a(&stage.target, &[]);
    order.nothing = Some(std::sync::Arc::clone(&order.desired));
    stage.handle.put(order).unwrap();
    stage.handle.wait_for(|status| status.open.count(Kind::Held) == 1).await.unwrap();
    stage.handle.stop(OnStop::Revert).await;
    assert!(stage.values().is_empty(), "{:?}", stage.values());
}
