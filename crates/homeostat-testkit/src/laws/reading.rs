//! Laws 1, 2 and 3: observe, compare and plan.

use homeostat_engine::{
    Agreement, Desired, Diff, Focus, Holdings, Kind, Plan, Report, Rights, Seen, Slot, Step,
};

use super::fixture::{self, Fixture, Suite, entries, keys};
use super::harness::{Ability, AsyncHarness, DesiredState, Disturbance, Fault, Key};
use super::verdict::Broken;

const ONLY_READ: &str =
    "let `observe` send nothing but reads; in an `Api`: let `list`, `look` and `watch` do so";
const FAIL_AS_A_WHOLE: &str = "return an error from `observe` if anything could not be listed: a part of a \
    list is no list; \
    in an `Api`: from `list`, `list_shard` and `look`";
const SAY_UNKNOWN: &str = "report what cannot be read as `Seen::Unknown`, and never leave it out; \
    in an `Api`: in what `list` and `look` return";
const NORMALIZE: &str = "normalize what is declared and what is read by one function that changes nothing \
    when it is applied again, or answer with what the target keeps, as `Outcome::Settled`; \
    in an `Api`: normalize objects when they are declared and when they are listed, or let `Api::compare` \
    accept the form that the target keeps";

/// Law 1.
pub(super) async fn observe_only_reads<H: AsyncHarness>(
    suite: &mut Suite<'_, H>,
) -> Result<(), Broken> {
    looking_leaves_no_trace(suite.open(1).await?).await?;
    a_failed_look_stops_the_pass(suite.open(1).await?).await?;
    unknown_is_left_alone(suite.open(1).await?).await
}

async fn looking_leaves_no_trace<H: AsyncHarness>(
    mut fixture: Fixture<'_, H>,
) -> Result<(), Broken> {
    let desired = fixture.desired(DesiredState::First);
    for prepared in [false, true] {
        if prepared {
            fixture.pass(&desired).await?;
        }
        let (before, writes) = fixture.state().await;
        fixture.look(&desired).await?;
        demand!(fixture, fixture.writes() == writes, "a look wrote", ONLY_READ);
        demand!(
            fixture,
            fixture.harness.snapshot().await == before,
            "a look changed the target",
            ONLY_READ
        );
    }
    Ok(())
}

async fn a_failed_look_stops_the_pass<H: AsyncHarness>(
    mut fixture: Fixture<'_, H>,
) -> Result<(), Broken> {
    let [first, nothing] = fixture.first_and(DesiredState::Nothing);
    fixture.pass(&first).await?;
    for desired in [first, nothing] {
        // A reader may recover from the fault by itself, so each desired state gets a new one.
        fixture.restart()?;
        if fixture.harness.inject(Fault::Blind).await == Ability::Unable {
            fixture.skip("a target that cannot be observed");
            return Ok(());
        }
        let writes = fixture.writes();
        let passed = fixture.try_pass(&desired, Focus::All).await.is_ok();
        demand!(
            fixture,
            !passed,
            "a target that could not be observed gave a report",
            FAIL_AS_A_WHOLE
        );
        let is_same = fixture.writes() == writes;
        demand!(fixture, is_same, "a pass wrote although its observe failed", FAIL_AS_A_WHOLE);
        fixture.harness.mend().await;
    }
    Ok(())
}

async fn unknown_is_left_alone<H: AsyncHarness>(mut fixture: Fixture<'_, H>) -> Result<(), Broken> {
    let [first, nothing] = fixture.first_and(DesiredState::Nothing);
    fixture.pass(&first).await?;
    let Some(key) = keys(&*first).pop() else { return Ok(()) };
    // Altered, so that a source that ignores the fault has something to write.
    let _ = fixture.harness.disturb(Disturbance::Alter(&key)).await;
    if fixture.harness.inject(Fault::Unreadable(&key)).await == Ability::Unable {
        fixture.skip("an object that cannot be read");
        return Ok(());
    }
    let before = fixture.harness.snapshot().await.get(&key.to_string()).cloned();
    for desired in [first, nothing] {
        let report = fixture.pass(&desired).await?;
        let tried = report.plan().steps.iter().any(|step| step.key(&desired) == key);
        demand!(fixture, !tried, "`{key}` could not be read, and a step was planned", SAY_UNKNOWN);
        let after = fixture.harness.snapshot().await.get(&key.to_string()).cloned();
        demand!(
            fixture,
            after == before,
            "`{key}` could not be read, and was written",
            SAY_UNKNOWN
        );
        let is_reported = !entries(&report, &[Kind::Unknown]).is_empty();
        demand!(
            fixture,
            is_reported,
            "`{key}` could not be read, and the report does not say so",
            SAY_UNKNOWN
        );
    }
    Ok(())
}

/// Law 2.
pub(super) async fn objects_are_normalized<H: AsyncHarness>(
    suite: &mut Suite<'_, H>,
) -> Result<(), Broken> {
    let mut fixture = suite.open(2).await?;
    for which in [DesiredState::First, DesiredState::Second] {
        let desired = fixture.desired(which);
        desired_is_orderly(&fixture, &desired)?;
        let report = fixture.pass(&desired).await?;
        reads_back(&mut fixture, &report).await?;
    }
    Ok(())
}

fn desired_is_orderly<H: AsyncHarness>(
    fixture: &Fixture<'_, H>,
    desired: &fixture::Desired<H>,
) -> Result<(), Broken> {
    let keys = keys(&**desired);
    let is_sorted = keys.is_sorted_by(|a, b| a < b);
    demand!(
        fixture,
        is_sorted,
        "the desired state is not sorted by key",
        "sort the desired state when it is built, in the order of its keys"
    );
    for (index, key) in keys.iter().enumerate() {
        let slot = Slot::at(index);
        let found = [None, Some(Slot(0)), Some(slot)].map(|near| desired.slot(key, near));
        demand!(
            fixture,
            found == [Some(slot); 3],
            "`{key}` is not found in its slot",
            "let `Desired::slot` find each key whatever `near` says, as `find_near` does"
        );
        let agrees = desired.compare(slot, &desired.object(slot)) == Agreement::Agrees;
        demand!(
            fixture,
            agrees,
            "what is desired for `{key}` does not agree with itself",
            "normalize objects when the desired state is built, and compare normalized objects only"
        );
        let text = key.to_string();
        let same = text.parse::<Key<H>>().is_ok_and(|parsed| parsed == *key);
        let one_line = !text.is_empty() && !text.contains('\n');
        demand!(
            fixture,
            same && one_line,
            "the key `{text}` does not read back",
            "let `Display` of a key be one line that `FromStr` reads as the same key"
        );
    }
    Ok(())
}

async fn reads_back<H: AsyncHarness>(
    fixture: &mut Fixture<'_, H>,
    report: &Report<H::Source>,
) -> Result<(), Broken> {
    let desired = &report.plan().desired;
    let (seen, _) = fixture.look(desired).await?;
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
        demand!(
            fixture,
            agrees || settled,
            "`{key}` was written, and does not read back as written",
            NORMALIZE
        );
    }
    Ok(())
}

/// Law 3.
pub(super) async fn plans_are_pure<H: AsyncHarness>(
    suite: &mut Suite<'_, H>,
) -> Result<(), Broken> {
    let mut fixture = suite.open(3).await?;
    let [first, second] = fixture.first_and(DesiredState::Second);
    same_plan_each_time(&fixture, &first).await?;
    fixture.pass(&first).await?;
    same_plan_each_time(&fixture, &second).await
}

async fn same_plan_each_time<H: AsyncHarness>(
    fixture: &Fixture<'_, H>,
    desired: &fixture::Desired<H>,
) -> Result<(), Broken> {
    let first = lines(fixture, desired, Order::AsReported).await?;
    let again = lines(fixture, desired, Order::AsReported).await?;
    let turned = lines(fixture, desired, Order::Reversed).await?;
    demand!(
        fixture,
        !first.is_empty(),
        "a desired state that is new has no plan",
        "let `plan` make a step or a finding of each change; \
            in an `Api`: let `Api::compare` find the difference"
    );
    demand!(
        fixture,
        first == again,
        "the same input gave two plans",
        "let `plan` depend on its arguments only: no clock, no state, no order of a hash map; \
            in an `Api`: let `needs`, `compare` and `name` do so"
    );
    demand!(
        fixture,
        first == turned,
        "the plan depends on the order in which the target lists its objects",
        "sort what the plan goes through, by key"
    );
    Ok(())
}

enum Order {
    AsReported,
    Reversed,
}

/// The lines of a plan that is made here step by step, so that the order of the objects can be reversed.
async fn lines<H: AsyncHarness>(
    fixture: &Fixture<'_, H>,
    desired: &fixture::Desired<H>,
    order: Order,
) -> Result<Vec<String>, Broken> {
    let Holdings { records, last, .. } = fixture.ledger_page.holdings();
    let (mut seen, moment) = fixture.look(desired).await?;
    if let Order::Reversed = order {
        seen.reverse();
    }
    let (ownership, adopt) = (&fixture.ownership, &fixture.config.adopt);
    let rights = Rights { ownership, records, adopt, on_release: fixture.config.on_release };
    let mut diff = Diff::new(&**desired, &Focus::All, rights);
    for one in seen {
        diff.see(one);
    }
    let plan =
        Plan::new(&fixture.source, desired.clone(), moment, diff.finish()).since(last.clone());
    let kinds = [Kind::Change, Kind::Failed, Kind::Pending, Kind::Conflict, Kind::Matched];
    Ok(entries(&plan, &kinds).iter().map(|entry| format!("{entry:?}")).collect())
}
