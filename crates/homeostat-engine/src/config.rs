//! What a caller decides about a pass.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use homeostat_core::{Focus, Key, OnRelease, Ownership, Source, Strictness, WaysOut};

use crate::focus;
use crate::guard::{Guards, MissingSections};
use crate::health_board::Conditions;
use crate::operations::DispatchGuard;
use crate::undo::UndoList;

/// How a pass behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config<K: Key> {
    /// The guards that hold steps back.
    pub guards: Guards,
    /// The sections of the document that are missing.
    pub missing: MissingSections<K>,
    /// The keys that are there only while a check is good.
    pub conditions: Conditions<K>,
    /// What a failure stops.
    pub strictness: Strictness,
    /// How values are released.
    pub on_release: OnRelease,
    /// Whether steps are put off whose objects could not be made again ([`Parking`]): the desired state may be taken
    /// back.
    ///
    /// [`Parking`]: homeostat_core::Parking
    pub parks: bool,
    /// Where objects of other owners are recorded that go as a side effect.
    pub undo: Option<Arc<dyn UndoList>>,
    /// Keys that may be taken once from any owner.
    pub adopt: BTreeSet<K>,
    /// How many lanes run side by side. In a loop with lanes of its own, their limits say so.
    pub lanes: usize,
    /// The operations of a source whose writes must not be sent twice.
    pub dispatch: DispatchGuard<K>,
    /// What people can do about findings, for the status of a loop.
    pub ways_out: WaysOut,
    /// Receives the progress of its steps.
    pub progress: Option<Arc<dyn Progress>>,
}

/// Receives the progress of the steps of a pass.
pub trait Progress: fmt::Debug + Send + Sync {
    /// This many steps of a source are about to be taken.
    fn begin(&self, source: &str, steps: usize);

    /// This many more steps have an outcome.
    fn advance(&self, steps: usize);

    /// All steps have an outcome.
    fn end(&self);

    /// A key waits for work that the target does by itself; called once a pass that finds it so.
    fn waits(&self, key: &str, task: &str) {
        let _ = (key, task);
    }
}

impl<K: Key> Default for Config<K> {
    fn default() -> Self {
        Config {
            guards: Guards::default(),
            missing: MissingSections::default(),
            conditions: Conditions::default(),
            strictness: Strictness::default(),
            on_release: OnRelease::default(),
            parks: false,
            undo: None,
            adopt: BTreeSet::new(),
            lanes: 16,
            dispatch: DispatchGuard::default(),
            ways_out: WaysOut::default(),
            progress: None,
        }
    }
}

impl<K: Key> Config<K> {
    /// Whether passes behave in the same way under both.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let progress = |config: &Self| config.progress.as_ref().map(|it| Arc::as_ptr(it).addr());
        let undo = |config: &Self| config.undo.as_ref().map(|it| Arc::as_ptr(it).addr());
        self.dispatch.is_same(&other.dispatch)
            && progress(self) == progress(other)
            && self.guards == other.guards
            && self.missing.is_same(&other.missing)
            && self.conditions.is_same(&other.conditions)
            && self.strictness == other.strictness
            && self.on_release == other.on_release
            && self.parks == other.parks
            && undo(self) == undo(other)
            && self.adopt == other.adopt
            && self.lanes == other.lanes
            && self.ways_out == other.ways_out
    }
}

/// What one pass works on: a source, its desired state, how our objects are distinguished from others', and which keys.
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct PassInput<'a, S: Source> {
    pub source: &'a S,
    pub desired: Arc<S::Desired>,
    /// How our objects are distinguished from others'.
    pub ownership: &'a Ownership,
    /// Which keys to look at; what depends on them is looked at too.
    pub focus: Focus<S::Key>,
    pub config: &'a Config<S::Key>,
}

impl<'a, S: Source> PassInput<'a, S> {
    /// The same, about its keys and what depends on them.
    pub(crate) fn widened(&self) -> PassInput<'a, S> {
        self.about(focus::widened(&*self.desired, &self.focus))
    }

    /// The same about other keys.
    pub(crate) fn about(&self, focus: Focus<S::Key>) -> PassInput<'a, S> {
        let (source, ownership, config) = (self.source, self.ownership, self.config);
        PassInput { source, desired: Arc::clone(&self.desired), ownership, focus, config }
    }
}
