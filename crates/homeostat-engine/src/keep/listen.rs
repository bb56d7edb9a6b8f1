//! What a loop hears from its target.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use homeostat_core::{Failure, Hint, Retry, Source};

use super::Keeper;
use super::event::EventKind;
use super::turn::words;
use super::wakeup::Wakeup;
use crate::session::{Hints, Session};

/// How many hints are taken in before something is done about them.
const MOST_HINTS: usize = 1000;

/// The keys that hints named since the last pass over them, with who did it, where the target tells.
pub(super) type Named<K> = BTreeMap<K, Option<Arc<str>>>;

impl<S: Source> Keeper<S> {
    /// Takes in the hints that are there already. What follows from one loss is seen together then,
    /// and a full pass absorbs what came before it.
    pub(super) fn drain(&mut self) {
        for _ in 0..MOST_HINTS {
            let heard = hint(&mut self.open, self.pace.hints).now_or_never();
            let Some(heard) = heard else { return };
            self.heard(heard);
        }
    }

    pub(super) fn heard(&mut self, hint: Result<Hint<S::Key>, Failure>) {
        match hint {
            Ok(Hint::Keys(keys)) => self.hinted(keys, None),
            Ok(Hint::By { who, keys }) => self.hinted(keys, Some(&who)),
            Ok(Hint::Lost) => {
                self.status.send_modify(|status| status.counts.lost += 1);
                self.tell(EventKind::Lost);
                self.wake(Wakeup::Lost);
            }
            Err(failure) => {
                self.tell(EventKind::Failed { failure });
                self.lose_reader();
            }
        }
    }

    fn hinted(&mut self, keys: Vec<S::Key>, who: Option<&Arc<str>>) {
        for key in &keys {
            let named = self.named.entry(key.clone()).or_default();
            // A later event about the key may not name the process that an earlier one named.
            *named = who.cloned().or(named.take());
        }
        self.wake_by(Wakeup::Hint(keys), who);
    }

    /// A dead subscription is opened anew, and everything is looked at after it.
    pub(super) fn lose_reader(&mut self) {
        (self.open, self.has_lost_reader) = (None, true);
        self.agenda.died(self.now());
    }
}

/// The next hint; a reader that panics has died.
pub(super) async fn hint<S: Source>(
    open: &mut Option<Session<S>>,
    hints: Hints,
) -> Result<Hint<S::Key>, Failure> {
    let Some(open) = open.as_mut().filter(|_| hints == Hints::Subscribe) else {
        return std::future::pending().await;
    };
    let heard = AssertUnwindSafe(open.observer.hint()).catch_unwind().await;
    heard.unwrap_or_else(|panic| {
        let what = format!("the subscription panicked: {}", words(&*panic));
        Err(Failure::new(what, Retry::Soon))
    })
}
