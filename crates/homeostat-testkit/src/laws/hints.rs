//! Laws 7 and 10: hints save time, and nothing depends on them.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_engine::{Coverage, Desired as _, Focus, Source};

use super::fixture::{Fixture, keys};
use super::harness::{Ability, DesiredState, Disturbance, Harness, Key};
use super::verdict::{Broken, Verdict};

/// Law 7.
pub(super) async fn hints_only_save_time<H: Harness>(
    harness: &mut H,
    verdict: &mut Verdict,
) -> Result<(), Broken> {
    harness.reset();
    let Some(scripts) = scripts(harness) else { return Ok(()) };
    let mut end = None;
    for (what, hints) in scripts {
        let Some(snapshot) = disturbed_end(Fixture::open(harness, 7)?, &hints).await? else {
            verdict.skip(7, "a target that changes behind our back");
            return Ok(());
        };
        let expected = end.get_or_insert_with(|| snapshot.clone());
        let same = *expected == snapshot;
        let fixture = Fixture::open(harness, 7)?;
        fixture.demand(same, || format!("with hints {what} the target ends otherwise"))?;
    }
    wrong_hints_write_nothing(Fixture::open(harness, 7)?).await
}

type Hints<K> = Vec<BTreeSet<K>>;
type Scripts<K> = Vec<(&'static str, Hints<K>)>;

/// What may happen to the hints about two disturbed keys.
fn scripts<H: Harness>(harness: &H) -> Option<Scripts<Key<H>>> {
    let (first, second) =
        (harness.desired(DesiredState::First), harness.desired(DesiredState::Second));
    let all = keys(&first);
    let (one, two) = (all.first()?.clone(), all.last()?.clone());
    let absent = keys(&second).into_iter().filter(|key| first.slot(key, None).is_none());
    let one = || BTreeSet::from([one.clone()]);
    let two = || BTreeSet::from([two.clone()]);
    let wrong: BTreeSet<_> = absent.collect();
    let everything = all.iter().cloned().chain(wrong.clone()).collect();
    Some(vec![
        ("lost", vec![]),
        ("whole", vec![one(), two()]),
        ("in another order", vec![two(), one()]),
        ("duplicated", vec![one(), one(), two(), two()]),
        ("half lost", vec![two()]),
        ("wrong", vec![wrong.clone(), wrong]),
        ("about everything", vec![everything]),
    ])
}

/// Disturbs a converged target, makes a pass per hint, and resyncs; returns the end state.
async fn disturbed_end<H: Harness>(
    mut fixture: Fixture<'_, H>,
    hints: &Hints<Key<H>>,
) -> Result<Option<BTreeMap<String, String>>, Broken> {
    let desired = fixture.desired(DesiredState::First);
    fixture.converge(&desired).await?;
    let all = keys(&*desired);
    let (Some(one), Some(two)) = (all.first(), all.last()) else { return Ok(None) };
    let altered = fixture.harness.disturb(Disturbance::Alter(one));
    let removed = fixture.harness.disturb(Disturbance::Remove(two));
    if [altered, removed] == [Ability::Unable; 2] {
        return Ok(None);
    }
    for keys in hints {
        let pass = fixture.try_pass(&desired, Focus::Keys(keys.clone())).await;
        pass.map_err(|error| fixture.broken(&format!("a focused pass failed: {error}")))?;
    }
    fixture.converge(&desired).await?;
    Ok(Some(fixture.harness.snapshot()))
}

async fn wrong_hints_write_nothing<H: Harness>(mut fixture: Fixture<'_, H>) -> Result<(), Broken> {
    let desired = fixture.desired(DesiredState::First);
    fixture.converge(&desired).await?;
    let writes = (fixture.harness.meter())();
    let focus = Focus::Keys(keys(&*desired).into_iter().collect());
    let pass = fixture.try_pass(&desired, focus).await;
    pass.map_err(|error| fixture.broken(&format!("a focused pass failed: {error}")))?;
    let same = (fixture.harness.meter())() == writes;
    fixture.demand(same, || "hints about nothing made a pass write".to_owned())
}

/// Law 10.
pub(super) async fn coverage_is_true<H: Harness>(
    harness: &mut H,
    verdict: &mut Verdict,
) -> Result<(), Broken> {
    let mut fixture = Fixture::open(harness, 10)?;
    let desired = fixture.desired(DesiredState::First);
    fixture.converge(&desired).await?;
    // Skips the echoes of our own writes, with a limit for a source that never stops.
    let mut echoes = 0;
    while echoes < 10_000 && fixture.hint_in_time().await?.is_some() {
        echoes += 1;
    }
    let Some(key) = keys(&*desired).into_iter().next() else { return Ok(()) };
    if fixture.harness.disturb(Disturbance::Alter(&key)) == Ability::Unable {
        verdict.skip(10, "a target that changes behind our back");
        return Ok(());
    }
    let hinted = fixture.hint_in_time().await?.is_some();
    match H::Source::COVERAGE {
        Coverage::None => {
            let silent = !hinted && echoes == 0;
            fixture.demand(silent, || "it claims to have no hints, and sends some".to_owned())
        }
        Coverage::Some => Ok(()),
        Coverage::All => {
            fixture.demand(hinted, || format!("all is covered, and no hint came about `{key}`"))
        }
    }
}
