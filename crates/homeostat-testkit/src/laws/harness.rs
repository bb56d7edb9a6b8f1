//! The interface between the law suite and the target of a source.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use homeostat_engine::outcome::Later;
use homeostat_engine::{Action, Agreement, Desired, Focus, Ownership, Seen, Slot, Source};

use super::fixture::{Suite, keys};
use super::verdict::Broken;

/// Returns how many writes the target has received, refused ones included.
pub type Meter = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A desired state for the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesiredState {
    /// At least two keys, at most ten.
    First,
    /// Drops a key of the first, keeps one, and has another object for one.
    Second,
    Nothing,
}

/// A change of the target by another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance<'a, K> {
    /// An object is deleted.
    Remove(&'a K),
    /// An object is changed in a managed attribute; its mark stays.
    Alter(&'a K),
    /// An object is created on a key of no desired state.
    Stranger,
    /// An object is created on a free key of the desired state; it differs from the desired state.
    Occupy(&'a K),
}

/// A fault of the target until [`Harness::mend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault<'a, K> {
    /// It cannot be observed at all.
    Blind,
    /// This object cannot be read.
    Unreadable(&'a K),
    /// Writes to this key are refused.
    Refuse(&'a K),
}

/// Whether the harness supports a disturbance or fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    Done,
    /// The verdict will list it as not checked.
    Unable,
}

/// A target that the suite can create, read and disturb.
pub trait Harness: Send {
    /// The source under test.
    type Source: Source;

    /// Replaces the target by a new one without objects of ours and without faults.
    fn reset(&mut self);

    /// A source for the target, as a new process would open it.
    fn source(&self) -> Self::Source;

    /// How objects of ours are recognized.
    fn ownership(&self) -> Ownership;

    /// The desired state; the same at each call.
    fn desired(&self, which: DesiredState) -> <Self::Source as Source>::Desired;

    /// Whether two objects of one key can differ. If the key is the whole object, the second desired state cannot have
    /// another one.
    fn objects_differ(&self) -> bool {
        true
    }

    /// Whether the target can make a write of this kind depend on what is there when it arrives. Where it cannot, as
    /// with a kernel that replaces whatever is on a key, a foreign object that comes between the look and the write is
    /// lost, and the verdict lists it.
    fn has_precondition(&self, key: &<Self::Source as Source>::Key, action: Action) -> bool {
        let _ = (key, action);
        true
    }

    /// All objects of the target, foreign ones too, read in another way than by the source under test. Each is filed
    /// under the text of its key (`Display`), by which the suite finds it; its value is any text that changes with
    /// any of its attributes, the mark included.
    fn snapshot(&self) -> BTreeMap<String, String>;

    /// Counts writes to the target that [`Harness::reset`] has made.
    fn meter(&self) -> Meter;

    /// Changes the target as another program would.
    fn disturb(&mut self, how: Disturbance<'_, <Self::Source as Source>::Key>) -> Ability;

    /// Makes the target fail until [`Harness::mend`]: what the source then asks for is refused by the target, or by
    /// the client that the source has. One fault is there at a time. The default knows none, and the verdict lists
    /// what was not checked.
    fn inject(&mut self, fault: Fault<'_, <Self::Source as Source>::Key>) -> Ability {
        let _ = fault;
        Ability::Unable
    }

    /// Removes all faults.
    fn mend(&mut self) {}

    /// How long to wait for a hint. The default yields to the other tasks of a runtime many times.
    fn patience(&self) -> Later<'_, ()> {
        Box::pin(Yields(10_000))
    }
}

/// The same for a target that is reached by an async client. The suite takes either: every [`Harness`] is one of these.
pub trait AsyncHarness: Send {
    /// The source under test.
    type Source: Source;

    /// As [`Harness::reset`].
    fn reset(&mut self) -> impl Future<Output = ()> + Send;

    /// As [`Harness::source`].
    fn source(&self) -> Self::Source;

    /// As [`Harness::ownership`].
    fn ownership(&self) -> Ownership;

    /// As [`Harness::desired`].
    fn desired(&self, which: DesiredState) -> <Self::Source as Source>::Desired;

    /// As [`Harness::objects_differ`].
    fn objects_differ(&self) -> bool {
        true
    }

    /// As [`Harness::has_precondition`].
    fn has_precondition(&self, key: &Key<Self>, action: Action) -> bool {
        let _ = (key, action);
        true
    }

    /// As [`Harness::snapshot`].
    fn snapshot(&self) -> impl Future<Output = BTreeMap<String, String>> + Send;

    /// As [`Harness::meter`]. It is asked also where nothing can wait, so it counts what was sent.
    fn meter(&self) -> Meter;

    /// As [`Harness::disturb`].
    fn disturb(&mut self, how: Disturbance<'_, Key<Self>>) -> impl Future<Output = Ability> + Send;

    /// As [`Harness::inject`].
    fn inject(&mut self, fault: Fault<'_, Key<Self>>) -> impl Future<Output = Ability> + Send {
        let _ = fault;
        std::future::ready(Ability::Unable)
    }

    /// As [`Harness::mend`].
    fn mend(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// As [`Harness::patience`].
    fn patience(&self) -> Later<'_, ()> {
        Box::pin(Yields(10_000))
    }
}

impl<H: Harness> AsyncHarness for H {
    type Source = H::Source;

    fn reset(&mut self) -> impl Future<Output = ()> + Send {
        Harness::reset(self);
        std::future::ready(())
    }

    fn source(&self) -> Self::Source {
        Harness::source(self)
    }

    fn ownership(&self) -> Ownership {
        Harness::ownership(self)
    }

    fn desired(&self, which: DesiredState) -> <Self::Source as Source>::Desired {
        Harness::desired(self, which)
    }

    fn objects_differ(&self) -> bool {
        Harness::objects_differ(self)
    }

    fn has_precondition(&self, key: &Key<Self>, action: Action) -> bool {
        Harness::has_precondition(self, key, action)
    }

    fn snapshot(&self) -> impl Future<Output = BTreeMap<String, String>> + Send {
        std::future::ready(Harness::snapshot(self))
    }

    fn meter(&self) -> Meter {
        Harness::meter(self)
    }

    fn disturb(&mut self, how: Disturbance<'_, Key<Self>>) -> impl Future<Output = Ability> + Send {
        std::future::ready(Harness::disturb(self, how))
    }

    fn inject(&mut self, fault: Fault<'_, Key<Self>>) -> impl Future<Output = Ability> + Send {
        std::future::ready(Harness::inject(self, fault))
    }

    fn mend(&mut self) -> impl Future<Output = ()> + Send {
        Harness::mend(self);
        std::future::ready(())
    }

    fn patience(&self) -> Later<'_, ()> {
        Harness::patience(self)
    }
}

pub(super) type Key<H> = <<H as AsyncHarness>::Source as Source>::Key;

/// Yields this many times.
struct Yields(u32);

impl Future for Yields {
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

/// With desired states that are too simple every source would pass.
pub(super) async fn check<H: AsyncHarness>(harness: &mut H) -> Result<(), Broken> {
    harness.reset().await;
    let unfit = |how: &str| Err(Broken::Harness { how: how.to_owned() });
    let [first, second] =
        [DesiredState::First, DesiredState::Second].map(|which| harness.desired(which));
    if !(2..=10).contains(&first.len()) {
        return unfit("the first desired state must have two to ten keys");
    }
    if !harness.desired(DesiredState::Nothing).is_empty() {
        return unfit("the third desired state must be empty");
    }
    let slots = || (0..first.len()).map(Slot::at);
    let kept = |slot: &Slot| second.slot(&first.key(*slot), None);
    if slots().all(|slot| kept(&slot).is_some()) || slots().all(|slot| kept(&slot).is_none()) {
        return unfit("the second desired state must drop a key of the first and keep another");
    }
    let is_changed = |slot: Slot| {
        kept(&slot).is_some_and(|at| second.compare(at, &first.object(slot)) != Agreement::Agrees)
    };
    if harness.objects_differ() != slots().any(is_changed) {
        return unfit("the second desired state must have another object for a key of the first");
    }
    Ok(())
}

/// What the suite cannot find in a snapshot it would take for a fault of the source. Where even a first pass fails, the
/// laws say so.
pub(super) async fn check_snapshot<H: AsyncHarness>(
    suite: &mut Suite<'_, H>,
    law: u8,
) -> Result<(), Broken> {
    let mut fixture = suite.open(law).await?;
    let desired = fixture.desired(DesiredState::First);
    let (before, writes) = fixture.state().await;
    if fixture.try_pass(&desired, Focus::All).await.is_err() {
        return Ok(());
    }
    let (after, writes_after) = fixture.state().await;
    let Ok((seen, _)) = fixture.look(&desired).await else { return Ok(()) };
    let declared = keys(&*desired);
    let missing = seen.iter().find_map(|seen| match seen {
        Seen::Present { key, .. } if declared.contains(key) => {
            Some(key.to_string()).filter(|key| !after.contains_key(key))
        }
        _ => None,
    });
    let Some(missing) = missing else { return Ok(()) };
    let declared: Vec<String> = declared.iter().map(ToString::to_string).collect();
    let other = after.keys().find(|key| !before.contains_key(*key) && !declared.contains(key));
    let instead = match other {
        Some(other) => format!("it has `{other}`, which is not declared"),
        None if before == after && writes != writes_after => "no write changed it".to_owned(),
        // Nothing was written: the source sees what is not there.
        None => return Ok(()),
    };
    let how = format!(
        "the source has made `{missing}` and sees it, the snapshot has no such key, and {instead}: file each object \
         under the text of its key"
    );
    Err(Broken::Harness { how })
}
