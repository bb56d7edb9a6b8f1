//! What an author of a source hands to the law suite.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use homeostat_engine::outcome::Later;
use homeostat_engine::{Agreement, Desired, Ownership, Slot, Source};

use super::verdict::Broken;

/// Tells how many writes the target has been asked for, refused ones included.
pub type Meter = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Which wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// At least two keys, at most ten.
    First,
    /// It drops a key of the first, keeps one, and has another object for one.
    Second,
    /// The empty wish.
    Nothing,
}

/// Something that happens to the target behind our back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance<'a, K> {
    /// An object vanishes.
    Remove(&'a K),
    /// An object is changed in a managed attribute; its mark stays.
    Alter(&'a K),
    /// Somebody makes an object on a key that no wish has.
    Stranger,
    /// Somebody makes an object on a wished key that is free; it is not as wished.
    Occupy(&'a K),
}

/// Something that the target is made to do wrong until [`Harness::mend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault<'a, K> {
    /// It cannot be observed at all.
    Blind,
    /// This object cannot be read.
    Unreadable(&'a K),
    /// Writes to this key are refused.
    Refuse(&'a K),
}

/// Whether the harness can do what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// It is done.
    Done,
    /// This target has no such thing; the verdict will say that it was not checked.
    Unable,
}

/// A target that can be made, looked at and meddled with.
pub trait Harness: Send {
    /// The source under test.
    type Source: Source;

    /// Throws the target away and makes a fresh one, with nothing of ours in it and no faults.
    fn reset(&mut self);

    /// A source for the target, as a fresh process would open it.
    fn source(&self) -> Self::Source;

    /// How the source's objects are told from others'.
    fn ownership(&self) -> Ownership;

    /// The wish to try; the same one at each call.
    fn wish(&self, which: Wish) -> <Self::Source as Source>::Desired;

    /// Whether two objects of one key can differ. Where a key is all there is to an object, the second
    /// wish cannot have another one.
    fn objects_differ(&self) -> bool {
        true
    }

    /// Everything in the target, foreign objects too: by the text of the key, everything about the
    /// object that a stranger could care for. Not read by the source under test.
    fn snapshot(&self) -> BTreeMap<String, String>;

    /// Counts writes to the target that [`Harness::reset`] has made.
    fn meter(&self) -> Meter;

    /// Meddles with the target.
    fn disturb(&mut self, how: Disturbance<'_, Key<Self>>) -> Ability;

    /// Makes the target misbehave.
    fn inject(&mut self, fault: Fault<'_, Key<Self>>) -> Ability {
        let _ = fault;
        Ability::Unable
    }

    /// Lifts all faults.
    fn mend(&mut self) {}

    /// How long to wait for a hint before saying that none comes. The default gives other tasks
    /// of a runtime a fair number of turns.
    fn patience(&self) -> Later<'_, ()> {
        Box::pin(Turns(10_000))
    }
}

/// The keys of a harness's source.
pub(super) type Key<H> = <<H as Harness>::Source as Source>::Key;

/// Yields so many times.
struct Turns(u32);

impl Future for Turns {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<()> {
        match self.0.checked_sub(1) {
            None => Poll::Ready(()),
            Some(left) => {
                self.0 = left;
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

/// A harness whose wishes are too poor would let every source pass.
pub(super) fn check<H: Harness>(harness: &mut H) -> Result<(), Broken> {
    harness.reset();
    let unfit = |how: &str| Err(Broken::Harness { how: how.to_owned() });
    let [first, second] = [Wish::First, Wish::Second].map(|which| harness.wish(which));
    if !(2..=10).contains(&first.len()) {
        return unfit("the first wish must have two to ten keys");
    }
    if !harness.wish(Wish::Nothing).is_empty() {
        return unfit("the wish for nothing is not empty");
    }
    let slots = || (0..first.len()).map(Slot::at);
    let kept = |slot: &Slot| second.slot(&first.key(*slot), None);
    if slots().all(|slot| kept(&slot).is_some()) || slots().all(|slot| kept(&slot).is_none()) {
        return unfit("the second wish must drop a key of the first and keep another");
    }
    let is_changed = |slot: Slot| {
        kept(&slot).is_some_and(|at| second.compare(at, &first.object(slot)) != Agreement::Agrees)
    };
    if harness.objects_differ() != slots().any(is_changed) {
        return unfit("the second wish must have another object for a key of the first");
    }
    Ok(())
}
