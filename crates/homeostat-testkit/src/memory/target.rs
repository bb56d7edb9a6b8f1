//! The world behind the source in memory, shared by whoever holds a handle to it.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use homeostat_engine::{Failure, Hint, Retry};

use super::faults::{Act, Faults, HintFault};

/// Who made an object, as the target would know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The source under test.
    Ours,
    /// Somebody else.
    Foreign,
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its key; the target does not mind twins.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Who made it.
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

/// A handle to the world.
#[derive(Clone, Debug, Default)]
pub struct Target {
    world: Arc<Mutex<World>>,
}

impl Target {
    /// A panic in a test leaves the world as it is: it is looked at all the same.
    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an object there behind everybody's back; an object with this key stays beside it.
    pub fn add(&self, key: &str, value: &str, mark: Mark) {
        let mut world = self.world();
        let (key, value) = (key.to_owned(), value.to_owned());
        world.notify(&key);
        world.objects.push(Held { key, value, mark });
    }

    /// Takes objects away behind everybody's back.
    pub fn remove(&self, key: &str) {
        let mut world = self.world();
        world.objects.retain(|held| held.key != key);
        world.notify(key);
    }

    /// Changes an object behind everybody's back.
    pub fn alter(&self, key: &str, value: &str) {
        let mut world = self.world();
        let found = world.objects.iter_mut().filter(|held| held.key == key);
        found.for_each(|held| value.clone_into(&mut held.value));
        world.notify(key);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.world().faults.hints == HintFault::Closed
    }

    /// Changes what the target does wrong.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        let mut world = self.world();
        change(&mut world.faults);
        let waiting = world.waiting.take();
        world.hanging.drain(..).chain(waiting).for_each(Waker::wake);
    }

    /// Tells the source that hints were lost.
    pub fn overflow(&self) {
        let mut world = self.world();
        world.hints.push_back(Hint::Lost);
        world.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Takes what the source did since the last call: readers, looks, writes, in order.
    #[must_use]
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.world().log)
    }

    pub(super) fn note(&self, line: String) {
        self.world().log.push(line);
    }

    /// Panics or hangs in an act, if that is what it shall do.
    pub(super) async fn meet(&self, act: Act) {
        poll_fn(|context| self.poll_act(act, context)).await;
    }

    fn poll_act(&self, act: Act, context: &Context<'_>) -> Poll<()> {
        self.stumble(act);
        let mut world = self.world();
        if world.faults.hangs == Some(act) {
            world.hanging.push(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Panics in an act, if that is what it shall do.
    pub(super) fn stumble(&self, act: Act) {
        let is_due = self.world().faults.panics == Some(act);
        assert!(!is_due, "the source stumbles in {act:?}");
    }

    /// Everything that is there.
    #[must_use]
    pub fn objects(&self) -> Vec<Held> {
        self.world().objects.clone()
    }

    /// Everything that is there, as text by key.
    #[must_use]
    pub fn snapshot(&self) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::<String, String>::new();
        for Held { key, value, mark } in self.objects() {
            let text = texts.entry(key).or_default();
            *text = format!("{text}{value} ({mark:?})");
        }
        texts
    }

    /// How many writes came in, refused ones included.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.world().writes
    }

    pub(super) fn poll_hint(&self, context: &Context<'_>) -> Poll<Result<Hint<String>, Failure>> {
        self.stumble(Act::Hint);
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
            let keys = vec![key.to_owned()];
            match &who {
                Some(who) => Hint::By { who: who.clone(), keys },
                None => Hint::Keys(keys),
            }
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
