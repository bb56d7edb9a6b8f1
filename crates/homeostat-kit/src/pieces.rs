//! Desired states that are put together of pieces: each part of a program, or each of its clients, declares its own under
//! a name, and takes it away again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homeostat_engine::outcome::Later;
use tokio::sync::watch;

use crate::provider::{Answer, Provider, Verdict};

/// The pieces by their names.
pub type ByName<T> = BTreeMap<String, Arc<T>>;

type Join<D, T> = dyn Fn(&D, &ByName<T>) -> Result<D, String> + Send + Sync;

/// A provider that joins what `base` declares with pieces, and where these are put in. `join` must be pure. It refuses
/// what does not fit together, for people: "the route 10.0.0.0/8 is declared by `web` and by `db`".
///
/// Pieces live as long as the provider: a program that must have them after a restart stores them, and puts them in
/// again before it asks.
///
/// ```
/// use std::sync::Arc;
///
/// use homeostat_kit::pieces::{ByName, pieces};
/// use homeostat_kit::provider::{Answer, Provider as _};
///
/// fn join(base: &Vec<u32>, pieces: &ByName<u32>) -> Result<Vec<u32>, String> {
///     let mut all = base.clone();
///     for (name, piece) in pieces {
///         if all.contains(piece) {
///             return Err(format!("`{name}` declares {piece} again"));
///         }
///         all.push(**piece);
///     }
///     Ok(all)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (sender, mut provider) = pieces(Arc::new(vec![1, 2]), join);
/// sender.put("three", 3).unwrap();
/// assert_eq!(provider.answer().await, Answer::DesiredState(Arc::new(vec![1, 2, 3])));
/// assert_eq!(sender.put("again", 3).unwrap_err(), "`three` declares 3 again");
/// # }
/// ```
#[must_use]
pub fn pieces<P: Provider, T>(
    base: P,
    join: impl Fn(&P::DesiredState, &ByName<T>) -> Result<P::DesiredState, String>
    + Send
    + Sync
    + 'static,
) -> (PieceSender<P::DesiredState, T>, Pieces<P, T>) {
    let state = State { base: None, pieces: BTreeMap::new() };
    let (notify, changed) = watch::channel(());
    let shared = Arc::new(Shared { state: Mutex::new(state), join: Box::new(join), notify });
    (PieceSender(Arc::clone(&shared)), Pieces { base, shared, changed })
}

struct Shared<D, T> {
    state: Mutex<State<D, T>>,
    join: Box<Join<D, T>>,
    notify: watch::Sender<()>,
}

struct State<D, T> {
    /// What the other provider declared last.
    base: Option<Arc<D>>,
    pieces: ByName<T>,
}

impl<D, T> Shared<D, T> {
    fn state(&self) -> MutexGuard<'_, State<D, T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where pieces are put in. Clones share them. Once all are dropped, the last pieces stay.
pub struct PieceSender<D, T>(Arc<Shared<D, T>>);

impl<D, T> Clone for PieceSender<D, T> {
    fn clone(&self) -> Self {
        PieceSender(Arc::clone(&self.0))
    }
}

impl<D, T> PieceSender<D, T> {
    /// Puts a piece in place of the one of this name. One that cannot be joined with what is declared now is refused with
    /// the reason, and what was there stays. Before the other provider has answered, nothing can be said against it.
    pub fn put(&self, name: impl Into<String>, piece: T) -> Result<(), String> {
        let mut state = self.0.state();
        let mut pieces = state.pieces.clone();
        pieces.insert(name.into(), Arc::new(piece));
        if let Some(base) = &state.base {
            (self.0.join)(base, &pieces)?;
        }
        state.pieces = pieces;
        self.0.notify.send_replace(());
        Ok(())
    }

    /// Takes a piece away. One that is not there is gone already.
    pub fn drop_piece(&self, name: &str) {
        if self.0.state().pieces.remove(name).is_some() {
            self.0.notify.send_replace(());
        }
    }

    /// The names of all pieces.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.state().pieces.keys().cloned().collect()
    }
}

/// What another provider declares, joined with pieces. If an answer of the other one does not fit the pieces, the desired
/// state is unknown, with the reason: the last good one stays in force.
pub struct Pieces<P: Provider, T> {
    base: P,
    shared: Arc<Shared<P::DesiredState, T>>,
    changed: watch::Receiver<()>,
}

impl<P: Provider, T: Send + Sync + 'static> Provider for Pieces<P, T> {
    type DesiredState = P::DesiredState;
    type Error = String;

    fn answer(&mut self) -> Later<'_, Answer<P::DesiredState>> {
        Box::pin(async {
            self.changed.mark_unchanged();
            let base = match self.base.answer().await {
                Answer::DesiredState(base) => base,
                Answer::Unknown { why } => return Answer::Unknown { why: why.to_string() },
                Answer::Nothing => return Answer::Nothing,
            };
            let mut state = self.shared.state();
            state.base = Some(Arc::clone(&base));
            if state.pieces.is_empty() {
                return Answer::DesiredState(base);
            }
            match (self.shared.join)(&base, &state.pieces) {
                Ok(joined) => Answer::DesiredState(Arc::new(joined)),
                Err(why) => Answer::Unknown { why },
            }
        })
    }

    fn changed(&mut self) -> Later<'_, ()> {
        Box::pin(async {
            tokio::select! {
                () = self.base.changed() => {}
                changed = self.changed.changed() => {
                    if changed.is_err() {
                        std::future::pending::<()>().await;
                    }
                    // It stays a change until it is answered, so that a wait that is dropped loses nothing.
                    self.changed.mark_changed();
                }
            }
        })
    }

    fn judged(&mut self, verdict: Verdict) {
        self.base.judged(verdict);
    }

    fn passed(&mut self, is_open: &dyn Fn(&str) -> bool) {
        self.base.passed(is_open);
    }
}
