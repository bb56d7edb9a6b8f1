//! Law 9: how steps fail.

use homeostat_engine::{
    Action, Desired, Entry, Explain as _, Fails, Finding, Kind, Outcome, Report, Retry, Source,
    Step, WaitsOn,
};

use super::fixture::{Fixture, Suite, entries, keys};
use super::harness::{Ability, AsyncHarness, DesiredState, Fault, Key};
use super::verdict::Broken;

const SAY_FAILED: &str = "answer a write that was refused with `Outcome::Failed` and the target's own words; \
    in an `Api`: with `Refusal::Failed`";
const SAY_HOW_STEPS_FAIL: &str = "go on with the steps that do not need the one that failed, or say by \
    `Source::FAILS` how steps fail; \
    in an `Api`: let one call depend on no other, and name in `Api::needs` what an object needs";

const SAY_NEEDS: &str = "put the step into a later phase than what it needs, and a delete into a later phase than \
    those of its users; in an `Api`: name the other key in `Api::needs`";

/// Law 9: what is needed is created first and deleted last.
pub(super) async fn needs_are_in_order<H: AsyncHarness>(
    suite: &mut Suite<'_, H>,
) -> Result<(), Broken> {
    order_alone_refuses_nothing(suite.open(9).await?).await?;
    deletes_run_in_reverse_order(suite.open(9).await?).await
}

/// What is refused by a target without faults, and accepted as soon as the others were written, came too early.
async fn order_alone_refuses_nothing<H: AsyncHarness>(
    mut fixture: Fixture<'_, H>,
) -> Result<(), Broken> {
    for which in [DesiredState::First, DesiredState::Second, DesiredState::Nothing] {
        let desired = fixture.desired(which);
        let report = fixture.pass(&desired).await?;
        let refused: Vec<(Key<H>, Action)> = steps(&report, |outcome| {
            matches!(outcome, Some(Outcome::Failed(_) | Outcome::Pending { .. }))
        });
        if refused.is_empty() {
            continue;
        }
        let again = fixture.pass(&desired).await?;
        let accepted = steps(&again, |outcome| outcome.is_none());
        let early = refused.iter().find(|step| accepted.contains(step));
        let Some((key, action)) = early else { return Ok(()) };
        let word = action.word();
        demand!(
            fixture,
            early.is_none(),
            "the target refused to {word} `{key}`, and did so once the others had been written",
            SAY_NEEDS
        );
    }
    Ok(())
}

/// The steps with such an outcome; `None` is a step that was applied.
fn steps<S: Source>(
    report: &Report<S>,
    is_meant: impl Fn(Option<&Outcome<S::Object>>) -> bool,
) -> Vec<(S::Key, Action)> {
    let plan = report.plan();
    let steps = plan.steps.iter().enumerate();
    let meant = steps.filter(|(at, _)| is_meant(report.tally().other(*at)));
    meant.map(|(_, step)| (step.key(&plan.desired), step.action())).collect()
}

async fn deletes_run_in_reverse_order<H: AsyncHarness>(
    mut fixture: Fixture<'_, H>,
) -> Result<(), Broken> {
    if H::Source::FAILS == Fails::Atomic {
        return Ok(());
    }
    let [first, nothing] = fixture.first_and(DesiredState::Nothing);
    let mut needs = Vec::new();
    for step in &fixture.plan(&first).await?.steps {
        let user = step.key(&first);
        step.needs(&first, &mut |need| needs.push((user.clone(), need)));
    }
    fixture.pass(&first).await?;
    let plan = fixture.plan(&nothing).await?;
    let deletes: Vec<_> = plan.steps.iter().map(|step| (step.key(&nothing), step)).collect();
    let find = |key: &Key<H>| deletes.iter().position(|(deleted, _)| deleted == key);
    for (user, need) in needs {
        let (Some(first), Some(then)) = (find(&user), find(&need)) else { continue };
        let waits = deletes.get(then).is_some_and(|(_, step)| {
            let mut waits = false;
            step.needs(&nothing, &mut |other| waits |= other == user);
            waits
        });
        // Lanes run side by side, whatever the order of the plan is.
        let is_ordered = if H::Source::FAILS == Fails::Lanes { waits } else { first < then };
        demand!(
            fixture,
            is_ordered,
            "`{need}` is deleted before `{user}`, which needs it",
            SAY_NEEDS
        );
    }
    Ok(())
}

/// Law 9.
pub(super) async fn failures_stay_where_they_belong<H: AsyncHarness>(
    suite: &mut Suite<'_, H>,
) -> Result<(), Broken> {
    suite.harness.reset().await;
    let mut is_able = true;
    for key in keys(&suite.harness.desired(DesiredState::First)) {
        let fixture = suite.open(9).await?;
        match fixture.harness.inject(Fault::Refuse(&key)).await {
            Ability::Unable => is_able = false,
            Ability::Done => one_step_fails(fixture, &key).await?,
        }
    }
    is_able &= the_first_failure_stops_all(suite.open(9).await?.strict()).await? == Ability::Done;
    if !is_able {
        suite.open(9).await?.skip("a target that refuses any write");
    }
    Ok(())
}

async fn one_step_fails<H: AsyncHarness>(
    mut fixture: Fixture<'_, H>,
    bad: &Key<H>,
) -> Result<(), Broken> {
    let desired = fixture.desired(DesiredState::First);
    let before = fixture.harness.snapshot().await;
    let report = fixture.pass(&desired).await?;
    let is_converged = report.is_converged();
    demand!(
        fixture,
        !is_converged,
        "`{bad}` was refused, and the report says converged",
        SAY_FAILED
    );
    let failed = entries(&report, &[Kind::Failed]);
    let is_named = failed.iter().any(|entry| entry.key() == bad.to_string());
    demand!(fixture, is_named, "`{bad}` was refused, and the report does not say so", SAY_FAILED);
    let is_storm = failed.iter().any(|entry| match entry {
        Entry::Finding { key, finding: Finding::Failed { failure, .. } } => {
            *key == bad.to_string() && failure.retry == Retry::Now
        }
        _ => false,
    });
    demand!(
        fixture,
        !is_storm,
        "`{bad}` was refused, and is to be tried again at once, for ever",
        "answer with `Retry::Soon`: only a write whose precondition did not hold is worth another try at once"
    );
    for (at, step) in report.plan().steps.iter().enumerate() {
        let key = step.key(&desired);
        let outcome = report.tally().other(at);
        let is_ordered = matches!(H::Source::FAILS, Fails::Ordered | Fails::Lanes);
        let is_blocked = is_ordered && needs(step, &desired, bad);
        demand!(
            fixture,
            !is_blocked || outcome.is_some(),
            "`{key}` needs `{bad}`, which was refused, and was written all the same",
            "put its step into a later phase; in an `Api`: name the other key in `Api::needs`"
        );
        let is_fine = is_allowed_outcome(H::Source::FAILS, outcome);
        demand!(
            fixture,
            key == *bad || is_fine,
            "`{bad}` was refused, and took `{key}` along",
            SAY_HOW_STEPS_FAIL
        );
    }
    let rolled_back =
        H::Source::FAILS != Fails::Atomic || fixture.harness.snapshot().await == before;
    demand!(
        fixture,
        rolled_back,
        "a refused transaction left something behind",
        "undo the whole transaction, or say how steps fail by `Source::FAILS`"
    );
    fixture.harness.mend().await;
    fixture.converge(&desired).await.map(|_| ())
}

/// Whether another step may have this outcome when one has failed; `None` is a step that was applied.
fn is_allowed_outcome<O>(fails: Fails, outcome: Option<&Outcome<O>>) -> bool {
    match (fails, outcome) {
        (Fails::Atomic, outcome) => outcome.is_some_and(|outcome| !outcome.is_good()),
        (_, None | Some(Outcome::Settled { .. }))
        | (Fails::Lanes, Some(Outcome::Pending { on: WaitsOn::Key(_) })) => true,
        (Fails::Ordered, Some(Outcome::Pending { on })) => !on.to_string().is_empty(),
        _ => false,
    }
}

/// Whether a step that creates or changes something names the key among its needs.
fn needs<D: Desired>(step: &impl Step<D>, desired: &D, bad: &D::Key) -> bool {
    let mut found = false;
    step.needs(desired, &mut |need| found |= need == *bad);
    found && step.action() != Action::Delete
}

async fn the_first_failure_stops_all<H: AsyncHarness>(
    mut fixture: Fixture<'_, H>,
) -> Result<Ability, Broken> {
    let desired = fixture.desired(DesiredState::First);
    let first = fixture.plan(&desired).await?.steps.first().map(|step| step.key(&desired));
    let Some(bad) = first else { return Ok(Ability::Unable) };
    if fixture.harness.inject(Fault::Refuse(&bad)).await == Ability::Unable {
        return Ok(Ability::Unable);
    }
    let before = fixture.harness.snapshot().await;
    let report = fixture.pass(&desired).await?;
    let is_same = fixture.harness.snapshot().await == before;
    demand!(
        fixture,
        is_same,
        "strict, `{bad}` was refused first, and others were written",
        "write in `apply` only, and only the steps that it is given; \
            in an `Api`: let a call write its own key only"
    );
    for (at, step) in report.plan().steps.iter().enumerate().skip(1) {
        let key = step.key(&desired);
        let waits = match report.tally().other(at) {
            Some(Outcome::Pending { on }) => {
                H::Source::FAILS == Fails::Atomic || is_wait_on(on, &bad.to_string())
            }
            other => key == bad || H::Source::FAILS == Fails::Atomic && other.is_some(),
        };
        demand!(
            fixture,
            waits,
            "strict, and `{key}` does not wait on `{bad}`",
            "answer in `apply` only for the steps that it is given"
        );
    }
    Ok(Ability::Done)
}

/// Whether it is this very key that is waited for.
fn is_wait_on(on: &WaitsOn, key: &str) -> bool {
    match on {
        WaitsOn::Key(other) | WaitsOn::FailedInStrictMode(other) | WaitsOn::EarlierStep(other) => {
            other == key
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_on_a_key_is_not_one_on_a_key_that_contains_its_text() {
        let [a, ab] = ["a", "ab"].map(str::to_owned);
        for on in [WaitsOn::Key, WaitsOn::FailedInStrictMode, WaitsOn::EarlierStep] {
            assert!(is_wait_on(&on(a.clone()), "a"));
            assert!(!is_wait_on(&on(ab.clone()), "a"));
        }
        assert!(!is_wait_on(&WaitsOn::Condition("a".to_owned()), "a"));
    }
}
