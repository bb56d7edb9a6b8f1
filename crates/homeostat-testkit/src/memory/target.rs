//! The target in memory, shared by all handles to it, and its faults.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use homeostat_engine::{Failure, Hint, HintedKeys, Retry};

/// Who created an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Ours,
    Foreign,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Not unique: the target accepts duplicates.
    pub key: String,
    pub value: String,
    pub mark: Mark,
}

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) objects: Vec<Held>,
    pub(super) writes: u64,
    pub(super) faults: Faults,
    pub(super) plans: u64,
    pub(super) log: Vec<String>,
    hints: VecDeque<Hint<String>>,
    waiting: Option<Waker>,
    hanging: Vec<Waker>,
}

/// A handle to the target; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Target {
    world: Arc<Mutex<World>>,
}

impl Target {
    /// Whether both are handles to one world.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.world, &other.world)
    }

    /// Usable also after a panic in a test.
    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an object, as another program would. An object with the same key stays.
    pub fn add(&self, key: &str, value: &str, mark: Mark) {
        let mut world = self.world();
        let (key, value) = (key.to_owned(), value.to_owned());
        world.notify(&key);
        world.objects.push(Held { key, value, mark });
    }

    /// Removes objects, as another program would.
    pub fn remove(&self, key: &str) {
        let mut world = self.world();
        world.objects.retain(|held| held.key != key);
        world.notify(key);
    }

    pub(super) fn mark(&self, key: &str, mark: Mark) {
        let mut world = self.world();
        world.objects.iter_mut().filter(|held| held.key == key).for_each(|held| held.mark = mark);
    }

    /// Changes an object, as another program would.
    pub fn alter(&self, key: &str, value: &str) {
        let mut world = self.world();
        let found = world.objects.iter_mut().filter(|held| held.key == key);
        found.for_each(|held| value.clone_into(&mut held.value));
        world.notify(key);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.world().faults.hints == HintFault::Closed
    }

    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        let mut world = self.world();
        change(&mut world.faults);
        let waiting = world.waiting.take();
        world.hanging.drain(..).chain(waiting).for_each(Waker::wake);
    }

    /// Sends a hint that hints were lost.
    pub fn overflow(&self) {
        let mut world = self.world();
        world.hints.push_back(Hint::Lost);
        world.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// What the source did since the last call: subscriptions, observes, writes, in order.
    #[must_use]
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.world().log)
    }

    pub(super) fn note(&self, line: String) {
        self.world().log.push(line);
    }

    /// Panics or hangs, if the faults say so for this operation.
    pub(super) async fn fail_if_due(&self, act: Act) {
        poll_fn(|context| self.poll_act(act, context)).await;
    }

    fn poll_act(&self, act: Act, context: &Context<'_>) -> Poll<()> {
        self.panic_if_due(act);
        let mut world = self.world();
        if world.faults.hangs == Some(act) {
            world.hanging.push(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Panics, if the faults say so for this operation.
    pub(super) fn panic_if_due(&self, act: Act) {
        let is_due = self.world().faults.panics == Some(act);
        assert!(!is_due, "the source stumbles in {act:?}");
    }

    #[must_use]
    pub fn objects(&self) -> Vec<Held> {
        self.world().objects.clone()
    }

    /// All objects as text, by key.
    #[must_use]
    pub fn snapshot(&self) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::<String, String>::new();
        for Held { key, value, mark } in self.objects() {
            let text = texts.entry(key).or_default();
            *text = format!("{text}{value} ({mark:?})");
        }
        texts
    }

    /// How many writes arrived, refused ones included.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.world().writes
    }

    pub(super) fn poll_hint(&self, context: &Context<'_>) -> Poll<Result<Hint<String>, Failure>> {
        self.panic_if_due(Act::Hint);
        let mut world = self.world();
        if world.faults.hints == HintFault::Dead {
            return Poll::Ready(Err(Failure::new("the subscription is dead", Retry::Soon)));
        }
        if let Some(hint) = world.hints.pop_front() {
            return Poll::Ready(Ok(hint));
        }
        world.waiting = Some(context.waker().clone());
        Poll::Pending
    }
}

impl World {
    pub(super) fn notify(&mut self, key: &str) {
        let who = self.faults.culprit.clone();
        let hint = |key: &str| {
            let mut keys = HintedKeys::default();
            keys.add(key.to_owned(), who.clone());
            Hint::Keys(keys)
        };
        match self.faults.hints {
            HintFault::None => self.hints.push_back(hint(key)),
            HintFault::Lost | HintFault::Dead | HintFault::Closed => return,
            HintFault::Twice => self.hints.extend([hint(key), hint(key)]),
            HintFault::Wrong => self.hints.push_back(hint("no-such-key")),
        }
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }
}

/// The default has no faults.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Every observe fails.
    pub blind: bool,
    /// An observe fails after this many objects.
    pub torn_after: Option<usize>,
    /// Objects that cannot be read.
    pub unreadable: BTreeSet<String>,
    /// Keys whose writes are refused.
    pub refused: BTreeSet<String>,
    /// When a refused write should be retried; soon, if none.
    pub refused_until: Option<Retry>,
    /// The error of a refused write, in place of the usual one.
    pub refused_with: Option<String>,
    /// The write with this number, counted from one, is refused.
    pub refuse_write: Option<u64>,
    /// Keys whose writes are done, but whose answers are lost.
    pub answer_lost: BTreeSet<String>,
    /// The outcome of a write does not contain the object.
    pub no_read_back: bool,
    /// How the target changes a value when it is written.
    pub rewrite: Option<fn(&str) -> String>,
    pub hints: HintFault,
    /// The culprit that hints name.
    pub culprit: Option<Arc<str>>,
    pub echoes: Echoes,
    /// The operation in which the source panics.
    pub panics: Option<Act>,
    /// The operation in which the source hangs while this is set.
    pub hangs: Option<Act>,
}

/// An operation of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the verbs of the contract")]
pub enum Act {
    Observe,
    Plan,
    Apply,
    Hint,
}

/// Whether a source gets hints of its own writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Echoes {
    #[default]
    Received,
    Suppressed,
}

/// What happens to hints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HintFault {
    #[default]
    None,
    Lost,
    Twice,
    /// They name another key.
    Wrong,
    /// The subscription fails.
    Dead,
    /// No subscription can be opened.
    Closed,
}
