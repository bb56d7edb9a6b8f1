//! The contract: what a subsystem must offer to be kept converged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::change_list::ChangeList;
use crate::desired::Desired;
use crate::operation::DOUBT;
use crate::outcome::{Begun, Failure, Later, Outcome, Outcomes, Recovery, Retry, TaskEnd};
use crate::ownership::{Records, Snapshot};
use crate::plan::{Draft, Step};
use crate::seen::{Focus, Hint, See};

/// Identity as the target sees it. Its text is one line, the same in plans, logs and arguments, and
/// reads back as the same key.
pub trait Key:
    Ord + Hash + Clone + fmt::Debug + fmt::Display + FromStr + Send + Sync + 'static
{
}
impl<T> Key for T where
    T: Ord + Hash + Clone + fmt::Debug + fmt::Display + FromStr + Send + Sync + 'static
{
}

/// The managed part of an object, normalized. Serialized only where it is shown or recorded.
pub trait Object: Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {}
impl<T: Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static> Object for T {}

/// How the steps of a source fail (law 9). The engine cuts the plan into turns by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fails {
    /// By phases: a failed step blocks what needs it, and deletes wait for failed creates of their
    /// group.
    Ordered,
    /// Each on its own: best effort.
    Independent,
    /// All together: one transaction.
    Atomic,
    /// Serial per key, parallel across keys; a failed step stops the rest of its key.
    Lanes,
}

/// How much of what a source manages its hints cover (law 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Every change is announced, unless the announcement is lost.
    All,
    /// Some changes send no hint.
    Some,
    /// There are no hints.
    None,
}

/// One subsystem in one scope. It starts nothing by itself.
pub trait Source: Send + Sync + Sized + 'static {
    /// The name in plans, logs and settings.
    const NAME: &'static str;
    /// How steps fail.
    const FAILS: Fails;
    /// How much the hints cover.
    const COVERAGE: Coverage;

    /// Up to this many deletes in a full pass are never held as a mass delete, whatever part of our objects they are. A
    /// source with few objects, each of which would be missed, says 0.
    const FREE_DELETES: usize = 10;

    /// Identity as the target sees it.
    type Key: Key;
    /// The managed part of an object.
    type Object: Object;
    /// The desired state.
    type Desired: Desired<Key = Self::Key, Object = Self::Object>;
    /// One write.
    type Step: Step<Self::Desired>;
    /// What one observe learned beside the objects (a generation, the indexes of links, digests).
    /// The plan may depend on it, and the writer may use it as a precondition.
    type Moment: Send + Sync;
    /// Observes and subscribes.
    type Reader: Reader<Self>;
    /// Applies.
    type Writer: Writer<Self>;

    /// Opens a reader. It cannot write.
    fn reader(&self) -> Result<Self::Reader, Failure>;

    /// Opens a reader that is never asked for hints: one that needs no subscription, and so costs
    /// the target nothing while it is written to.
    fn reader_without_hints(&self) -> Result<Self::Reader, Failure> {
        self.reader()
    }

    /// Opens a writer. A caller that only plans has no lock, and so no writer.
    fn writer(&self, lock: &ScopeLock) -> Result<Self::Writer, Failure>;

    /// Whether another source reaches the same target in the same way, so that a loop over the same desired state
    /// gains nothing by opening its reader and writer again. By default it does not.
    fn is_same(&self, other: &Self) -> bool {
        let _ = other;
        false
    }

    /// Turns changes into steps. Pure; one change may become many steps, or none and a reason.
    fn plan(
        &self,
        desired: &Self::Desired,
        moment: &Self::Moment,
        changes: ChangeList<Self::Key, Self::Object>,
    ) -> Draft<Self>;
}

/// What an observe is about. A reader whose target cannot list looks at the declared and the recorded
/// keys.
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct View<'a, S: Source> {
    pub focus: &'a Focus<S::Key>,
    /// What is declared; a reader may keep it, to know it again and to read hints by it.
    pub desired: &'a Arc<S::Desired>,
    /// What the ledger says is ours.
    pub records: &'a Records<S::Key, S::Object>,
    /// Whether the caller has read all hints that had come, just now: what a reader keeps of them is of this moment.
    pub is_caught_up: bool,
}

impl<'a, S: Source> View<'a, S> {
    /// A look by a caller that has not read the hints.
    #[must_use]
    pub fn new(
        focus: &'a Focus<S::Key>,
        desired: &'a Arc<S::Desired>,
        records: &'a Records<S::Key, S::Object>,
    ) -> Self {
        View { focus, desired, records, is_caught_up: false }
    }
}

/// Observes the target, and subscribes to its changes.
pub trait Reader<S: Source>: Send {
    /// What the declaration comes to at this moment, where that depends on more than itself: on files that it is made of, or
    /// on the state of the machine. A pass resolves once, and looks, plans, writes and verifies with the answer. Nothing
    /// means that the desired state is as it was declared. The answer declares the same keys.
    fn resolve(
        &mut self,
        view: &View<'_, S>,
    ) -> impl Future<Output = Result<Option<Arc<S::Desired>>, Failure>> + Send {
        let _ = view;
        std::future::ready(Ok(None))
    }

    /// Reports everything in focus, or fails (law 1). It may keep a shadow from its own hints for
    /// focused looks, if every write has a precondition in the target.
    fn observe(
        &mut self,
        view: &View<'_, S>,
        see: &mut See<'_, S::Key, S::Object>,
    ) -> impl Future<Output = Result<S::Moment, Failure>> + Send;

    /// What happened on the way since it was last asked, in order, for events. Nothing that must be right depends on it.
    fn phases(&mut self) -> Vec<Phase> {
        Vec::new()
    }

    /// Snapshots of objects of other owners, taken before a step takes them over. Keys of which no snapshot can be taken
    /// are left out: what was taken over without one is deleted, not given back, when it leaves the desired state.
    fn snapshots(
        &mut self,
        keys: &BTreeSet<S::Key>,
    ) -> impl Future<Output = Result<BTreeMap<S::Key, Snapshot>, Failure>> + Send {
        let _ = keys;
        std::future::ready(Ok(BTreeMap::new()))
    }

    /// Snapshots of all foreign objects that a step on these may delete as a side effect. It may be more
    /// than will be deleted, and must not be fewer.
    fn snapshots_along(
        &mut self,
        taken: &BTreeSet<S::Key>,
    ) -> impl Future<Output = Result<BTreeMap<S::Key, Snapshot>, Failure>> + Send {
        self.snapshots(taken)
    }

    /// The next hint. Cancel-safe. An error means that the subscription is dead and that the reader
    /// must be opened again. The default never answers: this subsystem offers no hints.
    fn hint(&mut self) -> impl Future<Output = Result<Hint<S::Key>, Failure>> + Send {
        std::future::pending()
    }
}

/// Something that happened on the way from a declaration to a target that works with it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Phase {
    /// The desired state was made of its inputs.
    Rendered {
        /// How long it is.
        bytes: usize,
        /// A digest of it.
        print: u64,
    },
    /// What was rendered is good.
    Validated,
    /// It is in place.
    Deployed {
        /// So many objects were written.
        objects: usize,
    },
    /// Who reads it has taken it over.
    Reloaded,
    /// What was in place before is back.
    RolledBack {
        /// Why.
        failure: Failure,
    },
}

/// The steps that may run now: a phase, a lane, or the whole transaction.
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct Work<'a, S: Source> {
    /// The desired state, since a step may be as small as a slot in it.
    pub desired: &'a S::Desired,
    /// What the observe learned.
    pub moment: &'a S::Moment,
    /// The number of the first step in the plan.
    pub first: usize,
    pub steps: &'a [S::Step],
}

impl<'a, S: Source> Work<'a, S> {
    /// The steps with their numbers in the plan, by which outcomes are put.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &'a S::Step)> + use<'a, S> {
        (self.first..).zip(self.steps)
    }
}

/// The only writer of a source.
pub trait Writer<S: Source>: Send + Sync {
    /// Runs the steps and answers for each of them through `out`.
    fn apply(
        &self,
        work: Work<'_, S>,
        out: &dyn Outcomes<S::Object>,
    ) -> impl Future<Output = ()> + Send;

    /// Makes an object of another owner again, as a snapshot has it, if nothing is on its key. If something is, that is a
    /// conflict, and stays.
    fn restore(
        &self,
        key: &S::Key,
        snapshot: &Snapshot,
    ) -> impl Future<Output = Outcome<S::Object>> + Send {
        let _ = snapshot;
        let failure = Failure::new(format!("`{key}` cannot be made again"), Retry::Never);
        std::future::ready(Outcome::Failed(failure))
    }

    /// The tasks of the target; nothing where every write is done when it is answered.
    fn tasks(&self) -> Option<Arc<dyn Tasks>> {
        None
    }
}

/// The tasks of a target that goes on working after it has answered: followed to their end, and found again after a
/// lost answer or a crash. Only sources whose writes must not be sent twice have them.
pub trait Tasks: Send + Sync {
    /// Waits for the end of a task. It needs a deadline of its own: a task that takes too long is given up, which is
    /// no end of the task.
    fn follow(&self, task: &str) -> Later<'static, TaskEnd>;

    /// Finds the result of a write without a recorded end. An error means that the target cannot be asked
    /// now: nothing new is sent to that key before it can.
    fn recover(&self, begun: Begun) -> Later<'static, Result<Recovery, Failure>>;

    /// How long after a lost answer the target may still begin the write's task: longer than the longest wait for an
    /// answer. Until then a task that is not found ([`Recovery::NotFound`]) proves nothing.
    fn doubt_lasts(&self) -> Duration {
        DOUBT
    }
}

/// A guard that keeps every other writer of a scope and mark out for as long as it lives.
pub trait Excludes: Send + Sync + 'static {}

/// Proof that this process alone writes in the scope.
pub struct ScopeLock {
    _held: Box<dyn Excludes>,
}

impl ScopeLock {
    /// Wraps the guard that keeps other writers out; it is released when the lock is dropped.
    pub fn holding(guard: impl Excludes) -> Self {
        ScopeLock { _held: Box::new(guard) }
    }
}
