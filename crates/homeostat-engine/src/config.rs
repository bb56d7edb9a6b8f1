//! What a caller decides about a pass.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use homeostat_core::{Focus, Key, OnRelease, Ownership, Source, Strictness};

use crate::focus;
use crate::guard::Guards;
use crate::operations::Operations;

/// How a pass behaves.
#[derive(Clone, Debug)]
pub struct Config<K: Key> {
    /// What is held back.
    pub guards: Guards,
    /// What a failure stops.
    pub strictness: Strictness,
    /// What becomes of released values.
    pub on_release: OnRelease,
    /// Keys that may be taken once from whoever has them.
    pub adopt: BTreeSet<K>,
    /// How many lanes run side by side. In a loop with lanes of its own, their limits say so.
    pub lanes: usize,
    /// What keeps writes that must not be sent twice from being so.
    pub fence: Fence<K>,
    /// Who is told how far it has come.
    pub progress: Option<Arc<dyn Progress>>,
}

/// Somebody who is told how far the steps of a pass have come.
pub trait Progress: fmt::Debug + Send + Sync {
    /// So many steps of a source are about to be taken.
    fn begin(&self, source: &str, steps: usize);

    /// So many more have an outcome.
    fn advance(&self, steps: usize);

    /// No more come.
    fn end(&self);
}

/// What keeps writes that must not be sent twice from being so.
#[derive(Clone, Debug, Default)]
pub enum Fence<K: Key> {
    /// Nothing: such writes are refused.
    #[default]
    Absent,
    /// Nothing, and the caller says that a second dispatch after a crash would do no harm.
    Volatile,
    /// Lanes and a journal.
    Kept(Operations<K>),
}

impl<K: Key> Default for Config<K> {
    fn default() -> Self {
        Config {
            guards: Guards::default(),
            strictness: Strictness::default(),
            on_release: OnRelease::default(),
            adopt: BTreeSet::new(),
            lanes: 16,
            fence: Fence::default(),
            progress: None,
        }
    }
}

/// What is to be done: a wish for a source, how its objects are told from others', and how.
pub struct Order<'a, S: Source> {
    /// The source.
    pub source: &'a S,
    /// The wish.
    pub wish: Arc<S::Desired>,
    /// How our objects are told from others'.
    pub ownership: &'a Ownership,
    /// Which keys to look at; what depends on them is looked at too.
    pub focus: Focus<S::Key>,
    /// How.
    pub config: &'a Config<S::Key>,
}

impl<'a, S: Source> Order<'a, S> {
    /// The same order, about its keys and what depends on them.
    pub(crate) fn widened(&self) -> Order<'a, S> {
        self.about(focus::widened(&*self.wish, &self.focus))
    }

    /// The same order about other keys.
    pub(crate) fn about(&self, focus: Focus<S::Key>) -> Order<'a, S> {
        let (source, ownership, config) = (self.source, self.ownership, self.config);
        Order { source, wish: Arc::clone(&self.wish), ownership, focus, config }
    }
}
