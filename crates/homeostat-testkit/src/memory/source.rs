//! The source in memory, in one variant for each way of failing.

use std::marker::PhantomData;

use homeostat_engine::{
    Change, ChangeList, Coverage, Draft, Fails, Failure, Retry, ScopeLock, Slot, Source, Table,
};

use super::faults::Act;
use super::flaw::Flaw;
use super::reader::MemoryReader;
use super::step::{Marks, Put};
use super::target::Target;
use super::writer::MemoryWriter;

/// The constants of a source in memory.
pub trait Behaviour: Send + Sync + 'static {
    /// The name in plans and verdicts.
    const NAME: &'static str;
    const FAILS: Fails;
    const COVERAGE: Coverage = Coverage::All;
}

/// Fails by phases.
#[derive(Debug)]
pub struct Ordered;
/// Fails step by step.
#[derive(Debug)]
pub struct Independent;
/// Fails as a whole.
#[derive(Debug)]
pub struct Atomic;
/// Fails key by key.
#[derive(Debug)]
pub struct Lanes;
/// Fails step by step, and sends no hints.
#[derive(Debug)]
pub struct Quiet;

impl Behaviour for Ordered {
    const NAME: &'static str = "memory-ordered";
    const FAILS: Fails = Fails::Ordered;
}

impl Behaviour for Independent {
    const NAME: &'static str = "memory-independent";
    const FAILS: Fails = Fails::Independent;
}

impl Behaviour for Atomic {
    const NAME: &'static str = "memory-atomic";
    const FAILS: Fails = Fails::Atomic;
}

impl Behaviour for Lanes {
    const NAME: &'static str = "memory-lanes";
    const FAILS: Fails = Fails::Lanes;
}

impl Behaviour for Quiet {
    const NAME: &'static str = "memory-quiet";
    const FAILS: Fails = Fails::Independent;
    const COVERAGE: Coverage = Coverage::None;
}

/// The source over a [`Target`].
#[derive(Debug)]
pub struct Memory<M> {
    target: Target,
    marks: Marks,
    flaw: Option<Flaw>,
    behaviour: PhantomData<fn() -> M>,
}

impl<M: Behaviour> Memory<M> {
    /// A source whose target holds marks.
    #[must_use]
    pub fn marked(target: Target) -> Self {
        Memory { target, marks: Marks::Held, flaw: None, behaviour: PhantomData }
    }

    /// A source whose target cannot hold marks, for the other kinds of ownership.
    #[must_use]
    pub fn unmarked(target: Target) -> Self {
        Memory { marks: Marks::None, ..Self::marked(target) }
    }

    /// A source of values that always exist and belong to nobody.
    #[must_use]
    pub fn values(target: Target) -> Self {
        Memory { marks: Marks::Nobody, ..Self::marked(target) }
    }

    /// The same source with a flaw.
    #[must_use]
    pub fn with(mut self, flaw: Option<Flaw>) -> Self {
        self.flaw = flaw;
        self
    }
}

impl<M: Behaviour> Source for Memory<M> {
    const NAME: &'static str = M::NAME;
    const FAILS: Fails = M::FAILS;
    const COVERAGE: Coverage = M::COVERAGE;

    type Key = String;
    type Object = String;
    type Desired = Table<String, String>;
    type Step = Put;
    type Moment = ();
    type Reader = MemoryReader;
    type Writer = MemoryWriter;

    fn reader(&self) -> Result<MemoryReader, Failure> {
        self.target.note("subscribe".to_owned());
        if self.target.is_closed() {
            return Err(Failure::new("nobody can subscribe", Retry::Soon));
        }
        Ok(MemoryReader::new(self.target.clone(), self.marks, self.flaw))
    }

    fn writer(&self, _: &ScopeLock) -> Result<MemoryWriter, Failure> {
        Ok(MemoryWriter::new(self.target.clone(), self.marks, M::FAILS, self.flaw))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.target.is(&other.target) && (self.marks, self.flaw) == (other.marks, other.flaw)
    }

    fn plan(
        &self,
        desired: &Table<String, String>,
        (): &(),
        changes: ChangeList<String, String>,
    ) -> Draft<Self> {
        self.target.panic_if_due(Act::Plan);
        let mut steps: Vec<Put> =
            changes.into_iter().map(|change| Put::new(desired, change)).collect();
        match self.flaw {
            Some(Flaw::Fickle) => self.shuffle(&mut steps),
            Some(Flaw::Restless) => steps.extend(rewrites(desired)),
            _ => {}
        }
        Draft { steps, ..Draft::default() }
    }
}

impl<M> Memory<M> {
    /// Another order at every other plan.
    fn shuffle(&self, steps: &mut [Put]) {
        let mut world = self.target.world();
        world.plans += 1;
        if world.plans.is_multiple_of(2) {
            steps.reverse();
        }
    }
}

/// An update of the first object that changes nothing.
fn rewrites(desired: &Table<String, String>) -> Option<Put> {
    let (_, value) = desired.iter().next()?;
    let change = Change::Update { slot: Slot(0), before: value.clone(), adopts: None };
    Some(Put::new(desired, change))
}
