//! Laws 4 and 6: what a pass writes, and that a second one writes nothing.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use homeostat_engine::outcome::Later;
use homeostat_engine::{
    Action, Batch, Failure, Outcome, Outcomes, Ownership, Plan, Schedule, Step as _, Strictness,
    Tally, Work, Writer as _,
};

use super::fixture::{self, Fixture, Object, Snapshot, Suite, keys};
use super::harness::{AsyncHarness, DesiredState, Disturbance, Key};
use super::verdict::Broken;

const COMPARE_DECLARED: &str = "compare declared attributes only, in the form that the target keeps; \
    in an `Api`: see `Api::compare`";

/// Law 4.
pub(super) async fn steps_touch_what_they_name<H: AsyncHarness>(
    suite: &mut Suite<'_, H>,
) -> Result<(), Broken> {
    among_strangers(suite.open(4).await?).await?;
    let mut fixture = suite.open(4).await?;
    let [first, second] = fixture.first_and(DesiredState::Second);
    fixture.pass(&first).await?;
    apply_and_judge(&mut fixture, &second, &Snapshot::new()).await
}

/// Law 4: another writer may come between the look and the write, so each write has a precondition in the target.
pub(super) async fn writes_have_preconditions<H: AsyncHarness>(
    suite: &mut Suite<'_, H>,
) -> Result<(), Broken> {
    suite.harness.reset().await;
    let ownership = suite.harness.ownership();
    let is_by_name = matches!(ownership, Ownership::Prefix(_) | Ownership::Exclusive(_));
    // Without marks the target cannot distinguish one object of a name from the next.
    let is_marked = matches!(ownership, Ownership::Marked);
    let mut is_checked = true;
    for key in keys(&suite.harness.desired(DesiredState::First)) {
        if !is_by_name {
            is_checked &= appears_before_the_create(suite.open(4).await?, &key).await?;
        }
        if is_marked {
            is_checked &= is_replaced_before_the_write(suite.open(4).await?, &key).await?;
        }
    }
    if !is_checked {
        suite.open(4).await?.skip("a write that the target cannot make conditional");
    }
    Ok(())
}

/// Returns false if the target has no precondition for it.
async fn appears_before_the_create<H: AsyncHarness>(
    mut fixture: Fixture<'_, H>,
    key: &Key<H>,
) -> Result<bool, Broken> {
    if !fixture.harness.has_precondition(key, Action::Create) {
        return Ok(false);
    }
    let desired = fixture.desired(DesiredState::First);
    let plan = fixture.plan(&desired).await?;
    let Some(foreign) = fixture.disturb(Disturbance::Occupy(key)).await else { return Ok(true) };
    apply(&fixture, &plan).await;
    let is_untouched = holds(&fixture, &foreign).await;
    demand!(
        fixture,
        is_untouched,
        "`{key}` appeared between the look and the create, and was written over",
        "create only what is absent, by a precondition of the call itself"
    );
    Ok(true)
}

/// Returns false if the target has no precondition for it.
async fn is_replaced_before_the_write<H: AsyncHarness>(
    mut fixture: Fixture<'_, H>,
    key: &Key<H>,
) -> Result<bool, Broken> {
    let [first, second] = fixture.first_and(DesiredState::Second);
    fixture.pass(&first).await?;
    let plan = fixture.plan(&second).await?;
    let Some(step) = plan.steps.iter().find(|step| step.key(&second) == *key) else {
        return Ok(true);
    };
    let word = step.action().word();
    if !fixture.harness.has_precondition(key, step.action()) {
        return Ok(false);
    }
    if fixture.disturb(Disturbance::Remove(key)).await.is_none() {
        return Ok(true);
    }
    let Some(foreign) = fixture.disturb(Disturbance::Occupy(key)).await else { return Ok(true) };
    apply(&fixture, &plan).await;
    let is_untouched = holds(&fixture, &foreign).await;
    demand!(
        fixture,
        is_untouched,
        "`{key}` was replaced by a foreign object between the look and the {word}, which touched it",
        "make the call depend on the mark or the version that was seen"
    );
    Ok(true)
}

/// Whether these objects are as they were.
async fn holds<H: AsyncHarness>(fixture: &Fixture<'_, H>, objects: &Snapshot) -> bool {
    let now = fixture.harness.snapshot().await;
    objects.iter().all(|(key, text)| now.get(key) == Some(text))
}

async fn among_strangers<H: AsyncHarness>(mut fixture: Fixture<'_, H>) -> Result<(), Broken> {
    let desired = fixture.desired(DesiredState::First);
    let mut foreign = Snapshot::new();
    let by_name = matches!(fixture.ownership, Ownership::Prefix(_) | Ownership::Exclusive(_));
    let first = keys(&*desired).into_iter().next().filter(|_| !by_name);
    let occupied = match &first {
        Some(key) => fixture.disturb(Disturbance::Occupy(key)).await,
        None => None,
    };
    match occupied {
        Some(occupied) => foreign.extend(occupied),
        None => fixture.skip("a foreign object on a declared key"),
    }
    match fixture.add_stranger().await {
        Some(stranger) => foreign.extend(stranger),
        None => fixture.skip("a foreign object beside ours"),
    }
    apply_and_judge(&mut fixture, &desired, &foreign).await?;
    // Once more with the engine, which retries what was refused.
    let before = fixture.harness.snapshot().await;
    fixture.pass(&desired).await?;
    judge(&fixture, &before, &BTreeSet::new()).await
}

/// Applies a plan without the engine and checks what it changed.
async fn apply_and_judge<H: AsyncHarness>(
    fixture: &mut Fixture<'_, H>,
    desired: &fixture::Desired<H>,
    foreign: &Snapshot,
) -> Result<(), Broken> {
    let before = fixture.harness.snapshot().await;
    let plan = fixture.plan(desired).await?;
    let Answered { open, twice } = apply(fixture, &plan).await;
    let twice = twice.first().and_then(|at| plan.steps.get(*at)).map(|step| step.key(desired));
    if let Some(key) = twice {
        let how = format!("the step for `{key}` got two answers");
        return Err(fixture.broken(&how, "answer for each step once"));
    }
    let unanswered = open.first().and_then(|at| plan.steps.get(*at)).map(|step| step.key(desired));
    if let Some(key) = unanswered {
        let help = "answer for each step; with `Outcome::Unknown` if the target's answer was lost";
        return Err(fixture.broken(&format!("the step for `{key}` got no answer"), help));
    }
    let taken =
        plan.steps.iter().flat_map(|step| step.takes().iter().map(|taken| taken.key.clone()));
    let named = plan.steps.iter().map(|step| step.key(desired).to_string());
    let mine = taken.chain(named).filter(|key| !foreign.contains_key(key)).collect();
    judge(fixture, &before, &mine).await
}

/// Fails if anything but `named` has changed.
async fn judge<H: AsyncHarness>(
    fixture: &Fixture<'_, H>,
    before: &Snapshot,
    named: &BTreeSet<String>,
) -> Result<(), Broken> {
    let after = fixture.harness.snapshot().await;
    let changed = before
        .keys()
        .chain(after.keys())
        .find(|key| before.get(*key) != after.get(*key) && !named.contains(*key));
    let Some(key) = changed else { return Ok(()) };
    match (before.get(key), after.get(key)) {
        (Some(was), None) => {
            let help = "report what does not carry our mark as `Owner::Foreign`, and delete only what the step names; \
                in an `Api`: only the object of the key that `delete` is given";
            Err(fixture::breach::<H>(5, &format!("`{key}` ({was}) was deleted"), help))
        }
        (was, is) => {
            let how =
                format!("`{key}` was touched: {was:?} before, {is:?} after, and no step names it");
            let help = "write to the keys of the steps only; what the target takes along, name in \
                `Step::takes`; \
                in an `Api`: let `create`, `update` and `delete` touch the object of their key only";
            Err(fixture.broken(&how, help))
        }
    }
}

/// The steps of a plan that were not answered for once.
struct Answered {
    open: Vec<usize>,
    twice: Vec<usize>,
}

async fn apply<H: AsyncHarness>(fixture: &Fixture<'_, H>, plan: &Plan<H::Source>) -> Answered {
    let answers = Answers::<Object<H>> {
        tally: Mutex::new(Tally::new(plan.steps.len())),
        twice: Mutex::default(),
    };
    let mut schedule = Schedule::<H::Source>::new(Strictness::Lenient);
    while let Some(turn) = schedule.next(plan) {
        let runs = match turn {
            Batch::Run(steps) => vec![steps],
            Batch::Lanes(lanes) => lanes,
            Batch::Wait { steps, on } => {
                answers.put(steps, Outcome::Pending { on });
                vec![]
            }
        };
        for run in runs {
            let (first, steps) = (run.start, plan.steps.get(run).unwrap_or_default());
            let work = Work { desired: &*plan.desired, moment: &*plan.moment, first, steps };
            fixture.writer.apply(work, &answers).await;
        }
        let answers = answers.tally();
        let bad = answers.others().filter(|(_, outcome)| !outcome.is_good());
        bad.for_each(|(step, _)| schedule.went_bad(plan, step));
    }
    let twice = std::mem::take(&mut *lock(&answers.twice));
    let answers = answers.tally();
    let open = (0..plan.steps.len()).filter(|step| answers.is_open(*step)).collect();
    Answered { open, twice }
}

struct Answers<O> {
    tally: Mutex<Tally<O>>,
    twice: Mutex<Vec<usize>>,
}

impl<O> Answers<O> {
    fn tally(&self) -> MutexGuard<'_, Tally<O>> {
        lock(&self.tally)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<O: Clone + Send> Outcomes<O> for Answers<O> {
    fn put(&self, steps: Range<usize>, outcome: Outcome<O>) {
        let mut tally = self.tally();
        lock(&self.twice).extend(steps.clone().filter(|step| !tally.is_open(*step)));
        tally.put(steps, &outcome);
    }

    fn intent(&self, _step: usize) -> Later<'_, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn note(&self, _: usize) -> Later<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn dispatched<'a>(&'a self, _step: usize, _task: &'a str) -> Later<'a, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Law 6.
pub(super) async fn a_second_pass_writes_nothing<H: AsyncHarness>(
    suite: &mut Suite<'_, H>,
) -> Result<(), Broken> {
    let mut fixture = suite.open(6).await?;
    for which in [DesiredState::First, DesiredState::Second, DesiredState::Nothing] {
        let desired = fixture.desired(which);
        fixture.converge(&desired).await?;
        writes_nothing(&mut fixture, &desired).await?;
        let same_again = fixture.desired(which);
        writes_nothing(&mut fixture, &same_again).await?;
        fixture.restart()?;
        writes_nothing(&mut fixture, &same_again).await?;
    }
    Ok(())
}

async fn writes_nothing<H: AsyncHarness>(
    fixture: &mut Fixture<'_, H>,
    desired: &fixture::Desired<H>,
) -> Result<(), Broken> {
    let (before, writes) = fixture.state().await;
    let recorded = fixture.ledger_writes.writes();
    fixture.pass(desired).await?;
    let wrote = fixture.writes() - writes;
    demand!(
        fixture,
        wrote == 0,
        "a second pass wrote {wrote} times to the target",
        COMPARE_DECLARED
    );
    let is_same = fixture.harness.snapshot().await == before;
    demand!(fixture, is_same, "a second pass changed the target", COMPARE_DECLARED);
    let wrote = fixture.ledger_writes.writes() - recorded;
    demand!(
        fixture,
        wrote == 0,
        "a second pass wrote {wrote} times to the ledger",
        "let the target answer for an object always in the same way"
    );
    Ok(())
}
