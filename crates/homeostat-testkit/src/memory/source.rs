//! The source in memory, in four manners of failing.

use std::marker::PhantomData;

use homeostat_engine::{
    Change, ChangeList, Coverage, Draft, Fails, Failure, Retry, ScopeLock, Slot, Source, Table,
};

use super::faults::Act;
use super::flaw::Flaw;
use super::reader::Eyes;
use super::step::{Marks, Put};
use super::target::Target;
use super::writer::Hands;

/// How a source in memory behaves by type.
pub trait Manner: Send + Sync + 'static {
    /// The name in plans and verdicts.
    const NAME: &'static str;
    /// How steps fail.
    const FAILS: Fails;
    /// How much the hints cover.
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

impl Manner for Ordered {
    const NAME: &'static str = "memory-ordered";
    const FAILS: Fails = Fails::Ordered;
}

impl Manner for Independent {
    const NAME: &'static str = "memory-independent";
    const FAILS: Fails = Fails::Independent;
}

impl Manner for Atomic {
    const NAME: &'static str = "memory-atomic";
    const FAILS: Fails = Fails::Atomic;
}

impl Manner for Lanes {
    const NAME: &'static str = "memory-lanes";
    const FAILS: Fails = Fails::Lanes;
}

impl Manner for Quiet {
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
    manner: PhantomData<fn() -> M>,
}

impl<M: Manner> Memory<M> {
    /// A source whose target holds marks.
    #[must_use]
    pub fn marked(target: Target) -> Self {
        Memory { target, marks: Marks::Held, flaw: None, manner: PhantomData }
    }

    /// A source whose target cannot hold marks: a checkpoint, a prefix or a statement must help.
    #[must_use]
    pub fn unmarked(target: Target) -> Self {
        Memory { marks: Marks::None, ..Self::marked(target) }
    }

    /// A source of values that always exist and belong to whoever writes them.
    #[must_use]
    pub fn values(target: Target) -> Self {
        Memory { marks: Marks::Nobody, ..Self::marked(target) }
    }

    /// The same source, broken.
    #[must_use]
    pub fn with(mut self, flaw: Option<Flaw>) -> Self {
        self.flaw = flaw;
        self
    }
}

impl<M: Manner> Source for Memory<M> {
    const NAME: &'static str = M::NAME;
    const FAILS: Fails = M::FAILS;
    const COVERAGE: Coverage = M::COVERAGE;

    type Key = String;
    type Object = String;
    type Desired = Table<String, String>;
    type Step = Put;
    type Moment = ();
    type Reader = Eyes;
    type Writer = Hands;

    fn reader(&self) -> Result<Eyes, Failure> {
        self.target.note("subscribe".to_owned());
        if self.target.is_closed() {
            return Err(Failure::new("nobody can subscribe", Retry::Soon));
        }
        Ok(Eyes::new(self.target.clone(), self.marks, self.flaw))
    }

    fn writer(&self, _: &ScopeLock) -> Result<Hands, Failure> {
        Ok(Hands::new(self.target.clone(), self.marks, (M::FAILS, self.flaw)))
    }

    fn plan(
        &self,
        wish: &Table<String, String>,
        (): &(),
        changes: ChangeList<String, String>,
    ) -> Draft<Self> {
        self.target.stumble(Act::Plan);
        let mut steps: Vec<Put> =
            changes.into_iter().map(|change| Put::new(wish, change)).collect();
        match self.flaw {
            Some(Flaw::Fickle) => self.shuffle(&mut steps),
            Some(Flaw::Restless) => steps.extend(rewrites(wish)),
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

/// A needless update of the first wish.
fn rewrites(wish: &Table<String, String>) -> Option<Put> {
    let (_, value) = wish.iter().next()?;
    let change = Change::Update { slot: Slot(0), before: value.clone(), adopts: None };
    Some(Put::new(wish, change))
}
