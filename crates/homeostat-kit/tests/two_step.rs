//! A target that cannot take the mark in the creating call.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard};

use homeostat_engine::{Failure, Finding, Owner, Ownership};
use homeostat_kit::Strategy;
use homeostat_kit::simple::{
    Adapted, Api, DesiredObjects, Listed, Marking, Refusal, TwoStep, Written,
};
use homeostat_kit::{Objects, Reconciler};
use homeostat_testkit::laws::{self, Ability, DesiredState, Disturbance, Fault, Harness, Meter};

/// Numbers by name, each with the comment that was put on it.
#[derive(Clone, Default)]
struct Target(Arc<Mutex<World>>);

#[derive(Default)]
struct World {
    held: BTreeMap<String, (u32, Option<String>)>,
    writes: u64,
    refused: Option<String>,
    is_blind: bool,
    /// The next comment is refused.
    refuses_comment: bool,
}

impl Target {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    /// A request that may be refused, and takes a moment.
    async fn write(&self, key: &str) -> Result<(), Refusal> {
        tokio::task::yield_now().await;
        let mut world = self.world();
        world.writes += 1;
        if world.refused.as_deref() == Some(key) {
            Err(Failure::new("refused", homeostat_engine::Retry::Soon).into())
        } else {
            Ok(())
        }
    }
}

struct Numbers {
    target: Target,
    strategy: Strategy,
}

impl Numbers {
    async fn comment(&self, key: &str) -> Result<(), Refusal> {
        self.target.write(key).await?;
        let mut world = self.target.world();
        if std::mem::take(&mut world.refuses_comment) {
            return Err(Failure::new("no comment", homeostat_engine::Retry::Soon).into());
        }
        let Some((_, comment)) = world.held.get_mut(key) else { return Err(Refusal::Gone) };
        *comment = self.strategy.mark();
        Ok(())
    }

    /// An object may be touched if it carries our mark, or none and was about to be ours.
    fn check(&self, key: &str, before: &TwoStep<u32>) -> Result<(), Refusal> {
        match self.target.world().held.get(key) {
            None => Err(Refusal::Gone),
            Some((_, None)) if !before.is_marked() => Ok(()),
            Some((_, comment)) if *comment == self.strategy.mark() => Ok(()),
            Some(_) => Err(Refusal::Conflict(Owner::foreign("somebody"))),
        }
    }
}

impl Api for Numbers {
    const NAME: &'static str = "numbers";
    const MARKING: Marking<TwoStep<u32>> = Marking::AfterCreate { is_marked: TwoStep::is_marked };
    type Key = String;
    type Object = TwoStep<u32>;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        tokio::task::yield_now().await;
        let world = self.target.world();
        if world.is_blind {
            return Err(Failure::new("blind", homeostat_engine::Retry::Soon));
        }
        let seen = world.held.iter().map(|(key, (number, comment))| {
            TwoStep::seen(&self.strategy, key.clone(), *number, comment.as_deref())
        });
        Ok(seen.collect())
    }

    async fn create(&self, key: &String, wanted: &TwoStep<u32>) -> Written<Self> {
        self.target.write(key).await?;
        match self.target.world().held.entry(key.clone()) {
            Entry::Vacant(free) => _ = free.insert((**wanted, None)),
            Entry::Occupied(_) => return Err(Refusal::Conflict(Owner::foreign("somebody"))),
        }
        wanted.marked(self.comment(key).await)
    }

    async fn update(
        &self,
        key: &String,
        before: &TwoStep<u32>,
        wanted: &TwoStep<u32>,
    ) -> Written<Self> {
        self.target.write(key).await?;
        self.check(key, before)?;
        if let Some((number, _)) = self.target.world().held.get_mut(key) {
            *number = **wanted;
        }
        if !before.is_marked() {
            self.comment(key).await?;
        }
        Ok(Some(wanted.clone()))
    }

    async fn delete(&self, key: &String, before: &TwoStep<u32>) -> Result<(), Refusal> {
        self.target.write(key).await?;
        self.check(key, before)?;
        self.target.world().held.remove(key).map(drop).ok_or(Refusal::Gone)
    }
}

fn strategy() -> Strategy {
    Strategy::marker("me").unwrap()
}

fn numbers(pairs: &[(&str, u32)]) -> Objects<Numbers> {
    pairs.iter().map(|(key, number)| ((*key).to_owned(), (*number).into())).collect()
}

#[tokio::test]
async fn an_object_whose_mark_was_refused_gets_it_by_the_next_pass() {
    let target = Target::default();
    target.world().refuses_comment = true;
    let reconciler =
        Reconciler::new(Numbers { target: target.clone(), strategy: strategy() }, strategy());
    let report = reconciler.reconcile(&numbers(&[("a", 1)])).await.unwrap();
    assert!(matches!(report.finding(&"a".to_owned()), Some(Finding::Unknown { .. })), "{report}");
    let report = reconciler.reconcile(&numbers(&[("a", 1)])).await.unwrap();
    assert!(report.is_converged(), "{report}");
    assert_eq!(target.world().held["a"], (1, Some("me".to_owned())));
}

#[tokio::test]
async fn an_object_without_a_mark_that_we_did_not_make_is_foreign() {
    let target = Target::default();
    target.world().held.insert("a".to_owned(), (7, None));
    let reconciler =
        Reconciler::new(Numbers { target: target.clone(), strategy: strategy() }, strategy());
    let report = reconciler.reconcile(&numbers(&[("a", 1)])).await.unwrap();
    assert!(matches!(report.finding(&"a".to_owned()), Some(Finding::Conflict { .. })), "{report}");
    assert_eq!(target.world().held["a"], (7, None));
}

#[derive(Default)]
struct Bench(Target);

impl Harness for Bench {
    type Source = Adapted<Numbers>;

    fn reset(&mut self) {
        self.0 = Target::default();
    }

    fn source(&self) -> Adapted<Numbers> {
        Adapted::new(Numbers { target: self.0.clone(), strategy: strategy() })
    }

    fn ownership(&self) -> Ownership {
        strategy().ownership()
    }

    fn desired(&self, which: DesiredState) -> DesiredObjects<Numbers> {
        DesiredObjects::from(numbers(match which {
            DesiredState::First => &[("a", 1), ("b", 2), ("c", 3)],
            DesiredState::Second => &[("a", 9), ("b", 2)],
            DesiredState::Nothing => &[],
        }))
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        let text = |(key, object): (&String, &_)| (key.clone(), format!("{object:?}"));
        self.0.world().held.iter().map(text).collect()
    }

    fn meter(&self) -> Meter {
        let target = self.0.clone();
        Arc::new(move || target.world().writes)
    }

    fn disturb(&mut self, how: Disturbance<'_, String>) -> Ability {
        let mut world = self.0.world();
        let theirs = (77, Some("them".to_owned()));
        match how {
            Disturbance::Remove(key) => _ = world.held.remove(key),
            Disturbance::Alter(key) => {
                world.held.entry(key.clone()).and_modify(|(number, _)| *number = 55);
            }
            Disturbance::Stranger => _ = world.held.insert("stranger".to_owned(), theirs),
            Disturbance::Occupy(key) => _ = world.held.insert(key.clone(), theirs),
        }
        Ability::Done
    }

    fn inject(&mut self, fault: Fault<'_, String>) -> Ability {
        let mut world = self.0.world();
        match fault {
            Fault::Blind => world.is_blind = true,
            Fault::Refuse(key) => world.refused = Some(key.clone()),
            Fault::Unreadable(_) => return Ability::Unable,
        }
        Ability::Done
    }

    fn mend(&mut self) {
        let mut world = self.0.world();
        (world.is_blind, world.refused) = (false, None);
    }
}

#[tokio::test]
async fn it_keeps_all_laws() {
    let verdict = laws::check(&mut Bench::default()).await.unwrap();
    assert_eq!(verdict.unchecked, [(1, "an object that cannot be read")]);
}

#[tokio::test]
async fn a_crash_between_the_two_calls_leaves_nothing_behind() {
    let points = laws::check_crashes(&mut Bench::default()).await.unwrap();
    assert!(points >= 5, "{points}");
}
