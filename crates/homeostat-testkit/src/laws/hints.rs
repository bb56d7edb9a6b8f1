//! Laws 7 and 10: hints save time, and nothing depends on them.

use std::collections::BTreeSet;

use homeostat_engine::{Coverage, Desired as _, Focus, Source};

use super::fixture::{Fixture, Snapshot, Suite, keys};
use super::harness::{Ability, AsyncHarness, DesiredState, Disturbance, Key};
use super::verdict::Broken;

/// Law 7.
pub(super) async fn hints_only_save_time<H: AsyncHarness>(
    suite: &mut Suite<'_, H>,
) -> Result<(), Broken> {
    suite.harness.reset().await;
    let Some(scripts) = scripts(suite.harness) else { return Ok(()) };
    let mut end = None;
    for (what, hints) in scripts {
        let Some(snapshot) = disturbed_end(suite.open(7).await?, &hints).await? else {
            return Ok(());
        };
        let is_same = *end.get_or_insert_with(|| snapshot.clone()) == snapshot;
        demand!(
            suite.open(7).await?,
            is_same,
            "with hints {what} the target ends otherwise",
            "read objects from the target, and take nothing but keys from hints"
        );
    }
    wrong_hints_write_nothing(suite.open(7).await?).await
}

type Hints<K> = Vec<BTreeSet<K>>;
type Scripts<K> = Vec<(&'static str, Hints<K>)>;

/// What may happen to the hints about two disturbed keys.
fn scripts<H: AsyncHarness>(harness: &H) -> Option<Scripts<Key<H>>> {
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

/// Disturbs a converged target, makes a pass per hint, and resyncs; returns the end state, if the target can be
/// disturbed.
async fn disturbed_end<H: AsyncHarness>(
    mut fixture: Fixture<'_, H>,
    hints: &Hints<Key<H>>,
) -> Result<Option<Snapshot>, Broken> {
    let desired = fixture.desired(DesiredState::First);
    fixture.converge(&desired).await?;
    let all = keys(&*desired);
    let (Some(one), Some(two)) = (all.first(), all.last()) else { return Ok(None) };
    let altered = fixture.harness.disturb(Disturbance::Alter(one)).await;
    let removed = fixture.harness.disturb(Disturbance::Remove(two)).await;
    if [altered, removed] == [Ability::Unable; 2] {
        fixture.skip("a target that changes behind our back");
        return Ok(None);
    }
    for keys in hints {
        let pass = fixture.try_pass(&desired, Focus::Keys(keys.clone())).await;
        pass.map_err(|error| fixture.failed(&format!("a focused pass failed: {error}")))?;
    }
    fixture.converge(&desired).await?;
    Ok(Some(fixture.harness.snapshot().await))
}

async fn wrong_hints_write_nothing<H: AsyncHarness>(
    mut fixture: Fixture<'_, H>,
) -> Result<(), Broken> {
    let desired = fixture.desired(DesiredState::First);
    fixture.converge(&desired).await?;
    let writes = fixture.writes();
    let focus = Focus::Keys(keys(&*desired).into_iter().collect());
    let pass = fixture.try_pass(&desired, focus).await;
    pass.map_err(|error| fixture.failed(&format!("a focused pass failed: {error}")))?;
    demand!(
        fixture,
        fixture.writes() == writes,
        "hints about nothing made a pass write",
        "report an object in a look at a few keys as in a look at all; \
            in an `Api`: from `look` as from `list`"
    );
    Ok(())
}

/// Law 10.
pub(super) async fn coverage_is_true<H: AsyncHarness>(
    suite: &mut Suite<'_, H>,
) -> Result<(), Broken> {
    let mut fixture = suite.open(10).await?;
    let desired = fixture.desired(DesiredState::First);
    fixture.converge(&desired).await?;
    // Skips the echoes of our own writes, with a limit for a source that never stops.
    let mut echoes = 0;
    while echoes < 10_000 && fixture.hint_in_time().await?.is_some() {
        echoes += 1;
    }
    let Some(key) = keys(&*desired).into_iter().next() else { return Ok(()) };
    if fixture.harness.disturb(Disturbance::Alter(&key)).await == Ability::Unable {
        fixture.skip("a target that changes behind our back");
        return Ok(());
    }
    let hinted = fixture.hint_in_time().await?.is_some();
    let coverage = H::Source::COVERAGE;
    let is_silent = !hinted && echoes == 0;
    demand!(
        fixture,
        coverage != Coverage::None || is_silent,
        "it claims to have no hints, and sends some",
        "say how much the hints cover by `Source::COVERAGE`; in an `Api`: by `Api::COVERAGE`"
    );
    let is_covered = coverage != Coverage::All || hinted;
    demand!(
        fixture,
        is_covered,
        "all is covered, and no hint came about `{key}`",
        "subscribe when the reader is opened, before the first look, or say by `Source::COVERAGE` how much \
            hints cover; \
            in an `Api`: subscribe in `watch`, and say it by `Api::COVERAGE`"
    );
    Ok(())
}
