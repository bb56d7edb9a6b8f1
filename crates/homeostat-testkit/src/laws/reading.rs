//! Laws 1, 2 and 3: observe, compare and plan.

use homeostat_engine::{
    Agreement, Desired, Diff, Explain, Focus, Holdings, Kind, Plan, Reader as _, Report, Rights,
    Seen, Slot, Source, Step, View,
};

use super::harness::{Ability, DesiredState, Disturbance, Fault, Harness, Key};
use super::scene::{self, Scene, entries, keys};
use super::verdict::{Broken, Verdict};

/// Law 1.
pub(super) async fn observe_only_reads<H: Harness>(
    harness: &mut H,
    verdict: &mut Verdict,
) -> Result<(), Broken> {
    looking_leaves_no_trace(&mut Scene::open(harness, 1)?).await?;
    a_failed_look_stops_the_pass(Scene::open(harness, 1)?, verdict).await?;
    unknown_is_left_alone(Scene::open(harness, 1)?, verdict).await
}

async fn looking_leaves_no_trace<H: Harness>(scene: &mut Scene<'_, H>) -> Result<(), Broken> {
    let desired = scene.desired(DesiredState::First);
    for prepared in [false, true] {
        if prepared {
            scene.pass(&desired).await?;
        }
        let (before, writes) = (scene.harness.snapshot(), (scene.harness.meter())());
        scene.look(&desired).await.map_err(|failure| scene.broken(&failure))?;
        scene.demand((scene.harness.meter())() == writes, || "a look wrote".to_owned())?;
        let same = scene.harness.snapshot() == before;
        scene.demand(same, || "a look changed the target".to_owned())?;
    }
    Ok(())
}

async fn a_failed_look_stops_the_pass<H: Harness>(
    mut scene: Scene<'_, H>,
    verdict: &mut Verdict,
) -> Result<(), Broken> {
    let [first, nothing] =
        [DesiredState::First, DesiredState::Nothing].map(|which| scene.desired(which));
    scene.pass(&first).await?;
    for desired in [first, nothing] {
        // A reader may recover from the fault by itself, so each desired state gets a new one.
        scene.restart()?;
        if scene.harness.inject(Fault::Blind) == Ability::Unable {
            verdict.skip(1, "a target that cannot be observed");
            return Ok(());
        }
        let writes = (scene.harness.meter())();
        let passed = scene.try_pass(&desired, Focus::All).await.is_ok();
        let wrote = (scene.harness.meter())() != writes;
        scene.demand(!passed, || "a target that could not be observed gave a report".to_owned())?;
        scene.demand(!wrote, || "a pass wrote although its observe failed".to_owned())?;
        scene.harness.mend();
    }
    Ok(())
}

async fn unknown_is_left_alone<H: Harness>(
    mut scene: Scene<'_, H>,
    verdict: &mut Verdict,
) -> Result<(), Broken> {
    let [first, nothing] =
        [DesiredState::First, DesiredState::Nothing].map(|which| scene.desired(which));
    scene.pass(&first).await?;
    let Some(key) = keys(&*first).pop() else { return Ok(()) };
    // Altered, so that a source that ignores the fault has something to write.
    let _ = scene.harness.disturb(Disturbance::Alter(&key));
    if scene.harness.inject(Fault::Unreadable(&key)) == Ability::Unable {
        verdict.skip(1, "an object that cannot be read");
        return Ok(());
    }
    let before = scene.harness.snapshot().get(&key.to_string()).cloned();
    for desired in [first, nothing] {
        let report = scene.pass(&desired).await?;
        let tried = report.plan().steps.iter().any(|step| step.key(&desired) == key);
        scene.demand(!tried, || format!("`{key}` could not be read, and a step was planned"))?;
        let after = scene.harness.snapshot().get(&key.to_string()).cloned();
        scene.demand(after == before, || format!("`{key}` could not be read, and was written"))?;
        let unknown = entries(&report, &[Kind::Unknown]);
        scene.demand(!unknown.is_empty(), || {
            format!("`{key}` could not be read, and nobody says")
        })?;
    }
    Ok(())
}

/// Law 2.
pub(super) async fn objects_are_normalized<H: Harness>(harness: &mut H) -> Result<(), Broken> {
    let mut scene = Scene::open(harness, 2)?;
    for which in [DesiredState::First, DesiredState::Second] {
        let desired = scene.desired(which);
        desired_is_orderly(&scene, &desired)?;
        let report = scene.pass(&desired).await?;
        reads_back(&mut scene, &report).await?;
    }
    Ok(())
}

fn desired_is_orderly<H: Harness>(
    scene: &Scene<'_, H>,
    desired: &scene::Desired<H>,
) -> Result<(), Broken> {
    let keys = keys(&**desired);
    scene.demand(keys.is_sorted_by(|a, b| a < b), || {
        "the desired state is not sorted by key".to_owned()
    })?;
    for (index, key) in keys.iter().enumerate() {
        let slot = Slot::at(index);
        let found = [None, Some(Slot(0)), Some(slot)].map(|near| desired.slot(key, near));
        scene.demand(found == [Some(slot); 3], || format!("`{key}` is not found in its slot"))?;
        let agrees = desired.compare(slot, &desired.object(slot)) == Agreement::Agrees;
        scene.demand(agrees, || format!("the declare `{key}` does not agree with itself"))?;
        let text = key.to_string();
        let same = text.parse::<Key<H>>().is_ok_and(|parsed| parsed == *key);
        let one_line = !text.is_empty() && !text.contains('\n');
        scene.demand(same && one_line, || format!("the key `{text}` does not read back"))?;
    }
    Ok(())
}

async fn reads_back<H: Harness>(
    scene: &mut Scene<'_, H>,
    report: &Report<H::Source>,
) -> Result<(), Broken> {
    let desired = &report.plan().desired;
    let seen = scene.look(desired).await.map_err(|failure| scene.broken(&failure))?;
    let settled = scene.plan(desired).await?.found.settled;
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
        let settled = settled.iter().any(|(at, _)| *at == slot);
        scene.demand(agrees || settled, || {
            format!("`{key}` was written, and does not read back as written")
        })?;
    }
    Ok(())
}

/// Law 3.
pub(super) async fn plans_are_pure<H: Harness>(harness: &mut H) -> Result<(), Broken> {
    let mut scene = Scene::open(harness, 3)?;
    let [first, second] =
        [DesiredState::First, DesiredState::Second].map(|which| scene.desired(which));
    same_plan_each_time(&scene, &first).await?;
    scene.pass(&first).await?;
    same_plan_each_time(&scene, &second).await
}

async fn same_plan_each_time<H: Harness>(
    scene: &Scene<'_, H>,
    desired: &scene::Desired<H>,
) -> Result<(), Broken> {
    let first = lines(scene, desired, Order::AsReported).await?;
    let again = lines(scene, desired, Order::AsReported).await?;
    let turned = lines(scene, desired, Order::Reversed).await?;
    scene.demand(!first.is_empty(), || "a desired state that is new has no plan".to_owned())?;
    scene.demand(first == again, || "the same input gave two plans".to_owned())?;
    scene.demand(first == turned, || {
        "the plan depends on the order in which the target tells its objects".to_owned()
    })
}

enum Order {
    AsReported,
    Reversed,
}

/// The lines of a plan that is made here step by step, so that the order of the objects can be reversed.
async fn lines<H: Harness>(
    scene: &Scene<'_, H>,
    desired: &scene::Desired<H>,
    order: Order,
) -> Result<Vec<String>, Broken> {
    let Holdings { records, last } = scene.book.holdings();
    let mut reader = scene.source.reader().map_err(|failure| scene.broken(&failure))?;
    let (mut seen, focus) = (Vec::new(), Focus::All);
    let view = View { focus: &focus, desired, records };
    let observed = reader.observe(&view, &mut |one| seen.push(one)).await;
    let moment = observed.map_err(|failure| scene.broken(&failure))?;
    if let Order::Reversed = order {
        seen.reverse();
    }
    let (ownership, adopt) = (&scene.ownership, &scene.config.adopt);
    let rights = Rights { ownership, records, adopt, on_release: scene.config.on_release };
    let mut diff = Diff::new(&**desired, &focus, rights);
    for one in seen {
        diff.see(one);
    }
    let plan = Plan::new(&scene.source, desired.clone(), moment, diff.finish()).since(last.clone());
    let kinds = [Kind::Change, Kind::Failed, Kind::Pending, Kind::Conflict, Kind::Matched];
    Ok(entries(&plan as &dyn Explain, &kinds).iter().map(|entry| format!("{entry:?}")).collect())
}
