//! Laws 1, 2 and 3: observe, compare and plan.

use homeostat_engine::{
    Agreement, Desired, Diff, Explain, Focus, Holdings, Kind, Plan, Reader as _, Report, Rights,
    Seen, Slot, Source, Step, View,
};

use super::fixture::{self, Fixture, entries, keys};
use super::harness::{Ability, DesiredState, Disturbance, Fault, Harness, Key};
use super::verdict::{Broken, Verdict};

/// Law 1.
pub(super) async fn observe_only_reads<H: Harness>(
    harness: &mut H,
    verdict: &mut Verdict,
) -> Result<(), Broken> {
    looking_leaves_no_trace(&mut Fixture::open(harness, 1)?).await?;
    a_failed_look_stops_the_pass(Fixture::open(harness, 1)?, verdict).await?;
    unknown_is_left_alone(Fixture::open(harness, 1)?, verdict).await
}

async fn looking_leaves_no_trace<H: Harness>(fixture: &mut Fixture<'_, H>) -> Result<(), Broken> {
    let desired = fixture.desired(DesiredState::First);
    for prepared in [false, true] {
        if prepared {
            fixture.pass(&desired).await?;
        }
        let (before, writes) = (fixture.harness.snapshot(), (fixture.harness.meter())());
        fixture.look(&desired).await.map_err(|failure| fixture.broken(&failure))?;
        fixture.demand((fixture.harness.meter())() == writes, || "a look wrote".to_owned())?;
        let same = fixture.harness.snapshot() == before;
        fixture.demand(same, || "a look changed the target".to_owned())?;
    }
    Ok(())
}

async fn a_failed_look_stops_the_pass<H: Harness>(
    mut fixture: Fixture<'_, H>,
    verdict: &mut Verdict,
) -> Result<(), Broken> {
    let [first, nothing] =
        [DesiredState::First, DesiredState::Nothing].map(|which| fixture.desired(which));
    fixture.pass(&first).await?;
    for desired in [first, nothing] {
        // A reader may recover from the fault by itself, so each desired state gets a new one.
        fixture.restart()?;
        if fixture.harness.inject(Fault::Blind) == Ability::Unable {
            verdict.skip(1, "a target that cannot be observed");
            return Ok(());
        }
        let writes = (fixture.harness.meter())();
        let passed = fixture.try_pass(&desired, Focus::All).await.is_ok();
        let wrote = (fixture.harness.meter())() != writes;
        fixture
            .demand(!passed, || "a target that could not be observed gave a report".to_owned())?;
        fixture.demand(!wrote, || "a pass wrote although its observe failed".to_owned())?;
        fixture.harness.mend();
    }
    Ok(())
}

async fn unknown_is_left_alone<H: Harness>(
    mut fixture: Fixture<'_, H>,
    verdict: &mut Verdict,
) -> Result<(), Broken> {
    let [first, nothing] =
        [DesiredState::First, DesiredState::Nothing].map(|which| fixture.desired(which));
    fixture.pass(&first).await?;
    let Some(key) = keys(&*first).pop() else { return Ok(()) };
    // Altered, so that a source that ignores the fault has something to write.
    let _ = fixture.harness.disturb(Disturbance::Alter(&key));
    if fixture.harness.inject(Fault::Unreadable(&key)) == Ability::Unable {
        verdict.skip(1, "an object that cannot be read");
        return Ok(());
    }
    let before = fixture.harness.snapshot().get(&key.to_string()).cloned();
    for desired in [first, nothing] {
        let report = fixture.pass(&desired).await?;
        let tried = report.plan().steps.iter().any(|step| step.key(&desired) == key);
        fixture.demand(!tried, || format!("`{key}` could not be read, and a step was planned"))?;
        let after = fixture.harness.snapshot().get(&key.to_string()).cloned();
        fixture
            .demand(after == before, || format!("`{key}` could not be read, and was written"))?;
        let unknown = entries(&report, &[Kind::Unknown]);
        fixture.demand(!unknown.is_empty(), || {
            format!("`{key}` could not be read, and nobody says")
        })?;
    }
    Ok(())
}

/// Law 2.
pub(super) async fn objects_are_normalized<H: Harness>(harness: &mut H) -> Result<(), Broken> {
    let mut fixture = Fixture::open(harness, 2)?;
    for which in [DesiredState::First, DesiredState::Second] {
        let desired = fixture.desired(which);
        desired_is_orderly(&fixture, &desired)?;
        let report = fixture.pass(&desired).await?;
        reads_back(&mut fixture, &report).await?;
    }
    Ok(())
}

fn desired_is_orderly<H: Harness>(
    fixture: &Fixture<'_, H>,
    desired: &fixture::Desired<H>,
) -> Result<(), Broken> {
    let keys = keys(&**desired);
    fixture.demand(keys.is_sorted_by(|a, b| a < b), || {
        "the desired state is not sorted by key".to_owned()
    })?;
    for (index, key) in keys.iter().enumerate() {
        let slot = Slot::at(index);
        let found = [None, Some(Slot(0)), Some(slot)].map(|near| desired.slot(key, near));
        fixture.demand(found == [Some(slot); 3], || format!("`{key}` is not found in its slot"))?;
        let agrees = desired.compare(slot, &desired.object(slot)) == Agreement::Agrees;
        fixture
            .demand(agrees, || format!("what is desired for `{key}` does not agree with itself"))?;
        let text = key.to_string();
        let same = text.parse::<Key<H>>().is_ok_and(|parsed| parsed == *key);
        let one_line = !text.is_empty() && !text.contains('\n');
        fixture.demand(same && one_line, || format!("the key `{text}` does not read back"))?;
    }
    Ok(())
}

async fn reads_back<H: Harness>(
    fixture: &mut Fixture<'_, H>,
    report: &Report<H::Source>,
) -> Result<(), Broken> {
    let desired = &report.plan().desired;
    let seen = fixture.look(desired).await.map_err(|failure| fixture.broken(&failure))?;
    let planned = fixture.plan(desired).await?;
    for (at, step) in report.plan().steps.iter().enumerate() {
        let key = step.key(desired);
        let Some(slot) = desired.slot(&key, None).filter(|_| report.tally().is_good(at)) else {
            continue;
        };
        let agrees = seen.iter().any(|seen| match seen {
            Seen::Present { key: found, object, .. } if *found == key => {
                desired.compare(slot, object) == Agreement::Agrees
            }
            _ => false,
        });
        let settled = planned.findings_of(Kind::Settled).any(|(settled, _)| *settled == key);
        fixture.demand(agrees || settled, || {
            format!("`{key}` was written, and does not read back as written")
        })?;
    }
    Ok(())
}

/// Law 3.
pub(super) async fn plans_are_pure<H: Harness>(harness: &mut H) -> Result<(), Broken> {
    let mut fixture = Fixture::open(harness, 3)?;
    let [first, second] =
        [DesiredState::First, DesiredState::Second].map(|which| fixture.desired(which));
    same_plan_each_time(&fixture, &first).await?;
    fixture.pass(&first).await?;
    same_plan_each_time(&fixture, &second).await
}

async fn same_plan_each_time<H: Harness>(
    fixture: &Fixture<'_, H>,
    desired: &fixture::Desired<H>,
) -> Result<(), Broken> {
    let first = lines(fixture, desired, Order::AsReported).await?;
    let again = lines(fixture, desired, Order::AsReported).await?;
    let turned = lines(fixture, desired, Order::Reversed).await?;
    fixture.demand(!first.is_empty(), || "a desired state that is new has no plan".to_owned())?;
    fixture.demand(first == again, || "the same input gave two plans".to_owned())?;
    fixture.demand(first == turned, || {
        "the plan depends on the order in which the target tells its objects".to_owned()
    })
}

enum Order {
    AsReported,
    Reversed,
}

/// The lines of a plan that is made here step by step, so that the order of the objects can be reversed.
async fn lines<H: Harness>(
    fixture: &Fixture<'_, H>,
    desired: &fixture::Desired<H>,
    order: Order,
) -> Result<Vec<String>, Broken> {
    let Holdings { records, last } = fixture.book.holdings();
    let mut reader = fixture.source.reader().map_err(|failure| fixture.broken(&failure))?;
    let (mut seen, focus) = (Vec::new(), Focus::All);
    let view = View { focus: &focus, desired, records };
    let observed = reader.observe(&view, &mut |one| seen.push(one)).await;
    let moment = observed.map_err(|failure| fixture.broken(&failure))?;
    if let Order::Reversed = order {
        seen.reverse();
    }
    let (ownership, adopt) = (&fixture.ownership, &fixture.config.adopt);
    let rights = Rights { ownership, records, adopt, on_release: fixture.config.on_release };
    let mut diff = Diff::new(&**desired, &focus, rights);
    for one in seen {
        diff.see(one);
    }
    let plan =
        Plan::new(&fixture.source, desired.clone(), moment, diff.finish()).since(last.clone());
    let kinds = [Kind::Change, Kind::Failed, Kind::Pending, Kind::Conflict, Kind::Matched];
    Ok(entries(&plan as &dyn Explain, &kinds).iter().map(|entry| format!("{entry:?}")).collect())
}
