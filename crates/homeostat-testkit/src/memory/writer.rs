//! Writes to the target in memory, which checks preconditions as a good target does.

use std::sync::MutexGuard;

use homeostat_engine::{
    Change, Desired, Fails, Failure, Outcome, Outcomes, Owner, Retry, Step, Table, WaitsOn, Work,
    Writer,
};

use super::faults::{Act, Echoes};
use super::flaw::Flaw;
use super::source::{Behaviour, Memory};
use super::step::{Marks, Put};
use super::target::{Held, Mark, Target, World};

/// The writer of [`Memory`].
#[derive(Debug)]
pub struct MemoryWriter {
    target: Target,
    marks: Marks,
    fails: Fails,
    flaw: Option<Flaw>,
}

impl MemoryWriter {
    pub(super) fn new(target: Target, marks: Marks, fails: Fails, flaw: Option<Flaw>) -> Self {
        MemoryWriter { target, marks, fails, flaw }
    }

    fn is_flawed(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn answer(&self, at: usize, outcome: Outcome<String>, out: &dyn Outcomes<String>) {
        if !(self.is_flawed(Flaw::Mute) && at == 0) {
            out.put(at..at + 1, outcome);
        }
    }

    /// Each step by itself.
    async fn apply_each<M: Behaviour>(
        &self,
        work: &Work<'_, Memory<M>>,
        out: &dyn Outcomes<String>,
    ) {
        let mut given_up = false;
        for (at, step) in work.iter() {
            self.target.fail_if_due(Act::Apply).await;
            let outcome = if given_up {
                Outcome::Failed(Failure::new("gave up", Retry::Soon))
            } else {
                self.write(&mut self.target.world(), work.desired, step)
            };
            given_up |= self.is_flawed(Flaw::GivesUp) && !outcome.is_good();
            self.answer(at, outcome, out);
        }
    }

    /// All steps or none.
    fn apply_all<M: Behaviour>(&self, work: &Work<'_, Memory<M>>, out: &dyn Outcomes<String>) {
        let mut world = self.target.world();
        let before = world.objects.clone();
        let outcomes: Vec<_> = work
            .iter()
            .map(|(at, step)| (at, self.write(&mut world, work.desired, step)))
            .collect();
        let bad = outcomes.iter().find(|(_, outcome)| !outcome.is_good()).cloned();
        if bad.is_some() {
            world.objects = before;
        }
        for (at, outcome) in outcomes {
            let rolled_back = || Outcome::Pending {
                on: WaitsOn::Condition("the transaction, which was refused".into()),
            };
            let outcome = if outcome.is_good() && bad.is_some() { rolled_back() } else { outcome };
            self.answer(at, outcome, out);
        }
    }

    fn write(
        &self,
        world: &mut MutexGuard<'_, World>,
        desired: &Table<String, String>,
        step: &Put,
    ) -> Outcome<String> {
        world.writes += 1;
        let key = step.key(desired);
        world.log.push(format!("write {key}"));
        let refused = world.faults.refused.contains(&key);
        if refused || world.faults.refuse_write == Some(world.writes) {
            let retry = world.faults.refused_until.unwrap_or(Retry::Soon);
            let error = world.faults.refused_with.as_deref().unwrap_or("the target refused");
            return Outcome::Failed(Failure::new(error, retry));
        }
        if let Some(owner) = self.conflicting_owner(world, &key, step) {
            return Outcome::Conflict { owner };
        }
        let outcome = world.put(desired, step);
        if world.faults.echoes == Echoes::Heard {
            world.notify(&key);
        }
        if self.is_flawed(Flaw::Sprawls) {
            let (key, value) = ("sprawl".to_owned(), String::new());
            world.objects.retain(|held| held.key != key);
            world.objects.push(Held { key, value, mark: Mark::Foreign });
        }
        outcome
    }

    /// The owner of an object that forbids the step: a create needs a free key, other steps an object of ours.
    fn conflicting_owner(&self, world: &World, key: &str, step: &Put) -> Option<Owner> {
        let held = world.objects.iter().find(|held| held.key == key)?;
        let lies = self.is_flawed(Flaw::Usurps) || self.is_flawed(Flaw::Steals);
        let blocked = match &step.change {
            Change::Create { .. } => true,
            Change::Update { adopts: Some(_), .. } => false,
            _ => self.marks == Marks::Held && held.mark == Mark::Foreign && !lies,
        };
        blocked.then(|| Owner::foreign("a stranger"))
    }
}

impl World {
    fn put(&mut self, desired: &Table<String, String>, step: &Put) -> Outcome<String> {
        let key = step.key(desired);
        let wanted = match &step.change {
            Change::Create { slot } | Change::Update { slot, .. } => desired.object(*slot),
            Change::Release { restore: Some(original), .. } => original.clone(),
            Change::Release { before, restore: None, .. } => before.clone(),
            Change::Delete { .. } => {
                self.objects.retain(|held| held.key != key);
                return Outcome::Applied { now: None };
            }
        };
        let value = self.faults.rewrite.map_or_else(|| wanted.clone(), |rewrite| rewrite(&wanted));
        self.store(&key, &value, &step.change);
        if self.faults.answer_lost.contains(&key) {
            return Outcome::Unknown { why: "the answer was lost".to_owned() };
        }
        match self.faults.no_read_back {
            true => Outcome::Applied { now: None },
            false if value != wanted => Outcome::Settled { held: value },
            false => Outcome::Applied { now: Some(value) },
        }
    }

    fn store(&mut self, key: &str, value: &str, change: &Change<String, String>) {
        let found = self.objects.iter_mut().find(|held| held.key == key);
        let (key, value) = (key.to_owned(), value.to_owned());
        match found {
            Some(held) => {
                held.value = value;
                if let Change::Update { adopts: Some(_), .. } = change {
                    held.mark = Mark::Ours;
                }
            }
            None => self.objects.push(Held { key, value, mark: Mark::Ours }),
        }
    }
}

impl<M: Behaviour> Writer<Memory<M>> for MemoryWriter {
    async fn apply(&self, work: Work<'_, Memory<M>>, out: &dyn Outcomes<String>) {
        match self.fails {
            Fails::Atomic => self.apply_all(&work, out),
            _ => self.apply_each(&work, out).await,
        }
    }
}
