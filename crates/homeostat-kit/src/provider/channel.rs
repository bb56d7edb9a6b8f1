//! The provider that is told its desired state by another part of the program. Needs no runtime.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::{Answer, Provider};

/// Makes both ends. Nothing is known before the first desired state is put in.
#[must_use]
pub fn channel<W>() -> (Sender<W>, Channel<W>) {
    let why = "no desired state has been put in yet".to_owned();
    let state = State { desired: Err(why), version: 0, waiting: None };
    let shared = Arc::new(Mutex::new(state));
    (Sender { shared: shared.clone() }, Channel { shared, answered: 0 })
}

struct State<W> {
    desired: Result<Arc<W>, String>,
    version: u64,
    waiting: Option<Waker>,
}

type Shared<W> = Arc<Mutex<State<W>>>;

/// A panic elsewhere leaves the state whole: every change is one assignment.
fn lock<W>(shared: &Shared<W>) -> MutexGuard<'_, State<W>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where desired states are put in. Once it is dropped, nothing more is known.
pub struct Sender<W> {
    shared: Shared<W>,
}

impl<W> Sender<W> {
    /// Replaces the desired state.
    pub fn put(&self, desired: W) {
        self.set(Ok(Arc::new(desired)));
    }

    /// Says that the desired state is not known for the time being.
    pub fn unknown(&self, why: impl Into<String>) {
        self.set(Err(why.into()));
    }

    fn set(&self, desired: Result<Arc<W>, String>) {
        let mut state = lock(&self.shared);
        state.desired = desired;
        state.version += 1;
        let waiting = state.waiting.take();
        drop(state);
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

impl<W> Drop for Sender<W> {
    fn drop(&mut self) {
        self.set(Err("the sender of the desired state is gone".to_owned()));
    }
}

/// Where desired states come out.
pub struct Channel<W> {
    shared: Shared<W>,
    answered: u64,
}

impl<W: Send + Sync + 'static> Provider for Channel<W> {
    type DesiredState = W;

    async fn answer(&mut self) -> Answer<W> {
        let state = lock(&self.shared);
        self.answered = state.version;
        match &state.desired {
            Ok(desired) => Answer::DesiredState(desired.clone()),
            Err(why) => Answer::Unknown { why: why.clone() },
        }
    }

    async fn changed(&mut self) {
        poll_fn(|context| {
            let mut state = lock(&self.shared);
            if state.version != self.answered {
                return Poll::Ready(());
            }
            state.waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
