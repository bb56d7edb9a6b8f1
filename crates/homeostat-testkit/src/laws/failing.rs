//! Law 9: how steps fail.

use homeostat_engine::{
    Entry, Explain as _, Fails, Finding, Kind, Outcome, Report, Source, Step as _,
};

use super::fixture::{Fixture, Object, entries, keys};
use super::harness::{Ability, DesiredState, Fault, Harness, Key};
use super::verdict::{Broken, Verdict};

/// Law 9.
pub(super) async fn failures_stay_where_they_belong<H: Harness>(
    harness: &mut H,
    verdict: &mut Verdict,
) -> Result<(), Broken> {
    harness.reset();
    let mut is_able = true;
    for key in keys(&harness.desired(DesiredState::First)) {
        let fixture = Fixture::open(harness, 9)?;
        match fixture.harness.inject(Fault::Refuse(&key)) {
            Ability::Unable => is_able = false,
            Ability::Done => one_step_fails(fixture, &key).await?,
        }
    }
    is_able &=
        the_first_failure_stops_all(Fixture::open(harness, 9)?.strict()).await? == Ability::Done;
    if !is_able {
        verdict.skip(9, "a target that refuses any write");
    }
    Ok(())
}

async fn one_step_fails<H: Harness>(
    mut fixture: Fixture<'_, H>,
    bad: &Key<H>,
) -> Result<(), Broken> {
    let desired = fixture.desired(DesiredState::First);
    let before = fixture.harness.snapshot();
    let report = fixture.pass(&desired).await?;
    let converged = report.is_converged();
    fixture.demand(!converged, || format!("`{bad}` was refused, and the report says converged"))?;
    let failed = entries(&report, &[Kind::Failed]);
    let named = |entry: &Entry| matches!(entry, Entry::Finding { key, finding: Finding::Failed { .. } | Finding::NotShown { .. } } if *key == bad.to_string());
    fixture.demand(failed.iter().any(named), || format!("`{bad}` was refused, and nobody says"))?;
    for (at, step) in report.plan().steps.iter().enumerate() {
        if step.key(&desired) != *bad {
            let fine = is_allowed_outcome(H::Source::FAILS, outcome::<H>(&report, at));
            let key = step.key(&desired);
            fixture.demand(fine, || format!("`{bad}` was refused, and took `{key}` along"))?;
        }
    }
    let rolled_back = H::Source::FAILS != Fails::Atomic || fixture.harness.snapshot() == before;
    fixture.demand(rolled_back, || "a refused transaction left something behind".to_owned())?;
    fixture.harness.mend();
    fixture.converge(&desired).await.map(|_| ())
}

/// `None` is a step that was applied.
fn outcome<H: Harness>(report: &Report<H::Source>, at: usize) -> Option<&Outcome<Object<H>>> {
    report.tally().other(at)
}

/// Whether another step may have this outcome when one has failed.
fn is_allowed_outcome<O>(fails: Fails, outcome: Option<&Outcome<O>>) -> bool {
    match (fails, outcome) {
        (Fails::Atomic, outcome) => outcome.is_some_and(|outcome| !outcome.is_good()),
        (_, None | Some(Outcome::Settled { .. })) => true,
        (Fails::Ordered, Some(Outcome::Pending { on })) => !on.to_string().is_empty(),
        _ => false,
    }
}

async fn the_first_failure_stops_all<H: Harness>(
    mut fixture: Fixture<'_, H>,
) -> Result<Ability, Broken> {
    let desired = fixture.desired(DesiredState::First);
    let first = fixture.plan(&desired).await?.steps.first().map(|step| step.key(&desired));
    let Some(bad) = first else { return Ok(Ability::Unable) };
    if fixture.harness.inject(Fault::Refuse(&bad)) == Ability::Unable {
        return Ok(Ability::Unable);
    }
    let before = fixture.harness.snapshot();
    let report = fixture.pass(&desired).await?;
    let same = fixture.harness.snapshot() == before;
    fixture
        .demand(same, || format!("strict, `{bad}` was refused first, and others were written"))?;
    for (at, step) in report.plan().steps.iter().enumerate().skip(1) {
        let key = step.key(&desired);
        let waits = match outcome::<H>(&report, at) {
            Some(Outcome::Pending { on }) => {
                H::Source::FAILS == Fails::Atomic || on.to_string().contains(&bad.to_string())
            }
            other => key == bad || H::Source::FAILS == Fails::Atomic && other.is_some(),
        };
        fixture.demand(waits, || format!("strict, and `{key}` does not wait on `{bad}`"))?;
    }
    Ok(Ability::Done)
}
