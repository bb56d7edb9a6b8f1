//! Law 9: how steps fail.

use homeostat_engine::{Entry, Explain as _, Fails, Kind, Outcome, Report, Source, Step as _};

use super::harness::{Ability, DesiredState, Fault, Harness, Key};
use super::scene::{Object, Scene, entries, keys};
use super::verdict::{Broken, Verdict};

/// Law 9.
pub(super) async fn failures_stay_where_they_belong<H: Harness>(
    harness: &mut H,
    verdict: &mut Verdict,
) -> Result<(), Broken> {
    harness.reset();
    let mut is_able = true;
    for key in keys(&harness.desired(DesiredState::First)) {
        let scene = Scene::open(harness, 9)?;
        match scene.harness.inject(Fault::Refuse(&key)) {
            Ability::Unable => is_able = false,
            Ability::Done => one_step_fails(scene, &key).await?,
        }
    }
    is_able &=
        the_first_failure_stops_all(Scene::open(harness, 9)?.strict()).await? == Ability::Done;
    if !is_able {
        verdict.skip(9, "a target that refuses any write");
    }
    Ok(())
}

async fn one_step_fails<H: Harness>(mut scene: Scene<'_, H>, bad: &Key<H>) -> Result<(), Broken> {
    let desired = scene.desired(DesiredState::First);
    let before = scene.harness.snapshot();
    let report = scene.pass(&desired).await?;
    let converged = report.is_converged();
    scene.demand(!converged, || format!("`{bad}` was refused, and the report says converged"))?;
    let failed = entries(&report, &[Kind::Failed]);
    let named =
        |entry: &Entry| matches!(entry, Entry::Failed { key, .. } if *key == bad.to_string());
    scene.demand(failed.iter().any(named), || format!("`{bad}` was refused, and nobody says"))?;
    for (at, step) in report.plan().steps.iter().enumerate() {
        if step.key(&desired) != *bad {
            let fine = is_allowed_outcome(H::Source::FAILS, outcome::<H>(&report, at));
            let key = step.key(&desired);
            scene.demand(fine, || format!("`{bad}` was refused, and took `{key}` along"))?;
        }
    }
    let rolled_back = H::Source::FAILS != Fails::Atomic || scene.harness.snapshot() == before;
    scene.demand(rolled_back, || "a refused transaction left something behind".to_owned())?;
    scene.harness.mend();
    scene.converge(&desired).await.map(|_| ())
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
    mut scene: Scene<'_, H>,
) -> Result<Ability, Broken> {
    let desired = scene.desired(DesiredState::First);
    let first = scene.plan(&desired).await?.steps.first().map(|step| step.key(&desired));
    let Some(bad) = first else { return Ok(Ability::Unable) };
    if scene.harness.inject(Fault::Refuse(&bad)) == Ability::Unable {
        return Ok(Ability::Unable);
    }
    let before = scene.harness.snapshot();
    let report = scene.pass(&desired).await?;
    let same = scene.harness.snapshot() == before;
    scene.demand(same, || format!("strict, `{bad}` was refused first, and others were written"))?;
    for (at, step) in report.plan().steps.iter().enumerate().skip(1) {
        let key = step.key(&desired);
        let waits = match outcome::<H>(&report, at) {
            Some(Outcome::Pending { on }) => {
                H::Source::FAILS == Fails::Atomic || on.to_string().contains(&bad.to_string())
            }
            other => key == bad || H::Source::FAILS == Fails::Atomic && other.is_some(),
        };
        scene.demand(waits, || format!("strict, and `{key}` does not wait on `{bad}`"))?;
    }
    Ok(Ability::Done)
}
