//! A loop that a lease starts and stops: it runs on the one machine that leads, and nowhere else.
//!
//! ```text
//!   standby ──elected──▶ holder: the loop runs ──lost, or the local deadline──▶ the loop is dropped ──▶ standby
//!                          │                                                                              ▲
//!                          └── stop: the loop is dropped, the holder resigns ─────────────────────────────┘
//! ```
//!
//! What the loop sends to a target that knows no terms is fenced twice. [`Held::dispatch`] asks the local clock, which
//! ends the term before the lease can expire; and it waits after a predecessor whose lease expired, because that one
//! may have sent something whose effect does not show yet. What the loop writes to the store is guarded by
//! [`Term::guard`].
//!
//! One gap stays, with any lease: a process that is stopped by its machine between the check and the request can send
//! that one request when it goes on. The wait of its successor covers stops that are shorter than the wait.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use crate::error::Error;
use crate::term::{Candidate, Lost, Predecessor, Term};

/// The local clock is looked at this often. A machine that slept finds out by its clock alone: timers of the runtime
/// do not count the time in which it slept.
const LOOK: Duration = Duration::from_millis(250);
/// After a failure of the store, and before a loop that ended by itself is started again.
const PAUSE: Duration = Duration::from_millis(500);

/// Starts a loop when a candidate is elected, and stops it when the term ends.
///
/// Laws, for all holders of one key on machines whose clocks run at the same rate:
/// 1. At most one loop runs at a time.
/// 2. A loop is dropped within half a second after its local deadline, and as soon as the store says that the lease is
///    gone; also if the machine slept meanwhile.
/// 3. The terms of loops grow.
/// 4. After a predecessor whose lease expired, nothing is dispatched for the time to live of the lease and the time
///    that an answer may take. After one that resigned, nothing is waited for.
/// 5. Nothing is dispatched after the local deadline.
/// 6. A holder that stops resigns, unless a dispatch of it is without an answer.
/// 7. While the store works, the loop runs again within a time to live after its holder died.
pub struct Holder {
    candidate: Candidate,
    answers_within: Duration,
    notify: Box<dyn Fn(Notice) + Send + Sync>,
}

/// What a holder has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// It is elected, and the loop starts.
    Leads {
        /// The number of the term.
        term: u64,
        /// How the term before ended.
        predecessor: Predecessor,
    },
    /// The term is lost, and the loop was dropped.
    Lost(Lost),
    /// The loop ended by itself, or the holder was stopped.
    Resigned,
    /// The store failed; it is tried again.
    Failed(Error),
}

impl Holder {
    /// Holds what `candidate` stands for. `answers_within` is the longest time that the loop waits for the answer of its
    /// target: what a lost holder has sent may arrive that late.
    #[must_use]
    pub fn new(candidate: Candidate, answers_within: Duration) -> Self {
        Holder { candidate, answers_within, notify: Box::new(|_| {}) }
    }

    /// The same, which tells what happens.
    #[must_use]
    pub fn with_notices(self, notify: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        Holder { notify: Box::new(notify), ..self }
    }

    /// The candidate.
    #[must_use]
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// Runs the loop that `start` returns whenever this candidate leads, until `stop` is over.
    ///
    /// The loop must begin with a look at its target: what its predecessor saw or did reaches it by nothing else, unless
    /// it keeps a journal in the store. It is stopped by being dropped. A loop that ends by itself gives the lead to
    /// others.
    pub async fn while_held<W: Future<Output = ()>>(
        &self,
        mut start: impl FnMut(Held) -> W,
        stop: impl Future<Output = ()>,
    ) {
        tokio::pin!(stop);
        loop {
            let elected = tokio::select! {
                () = &mut stop => return,
                elected = self.candidate.elected() => elected,
            };
            let term = match elected {
                Ok(term) => Arc::new(term),
                Err(error) => {
                    (self.notify)(Notice::Failed(error));
                    tokio::select! {
                        () = &mut stop => return,
                        () = sleep(PAUSE) => continue,
                    }
                }
            };
            let held = Held::new(Arc::clone(&term), self.answers_within);
            let (number, predecessor) = (term.revision(), term.predecessor());
            (self.notify)(Notice::Leads { term: number, predecessor });
            let ended = {
                let work = start(held.clone());
                tokio::select! {
                    biased;
                    () = &mut stop => Ended::Stopped,
                    lost = term.keep() => Ended::Lost(lost),
                    lost = local_deadline(&term) => Ended::Lost(lost),
                    () = work => Ended::ByItself,
                }
            };
            held.0.is_over.store(true, Ordering::Release);
            let is_stopped = matches!(ended, Ended::Stopped);
            match ended {
                Ended::Lost(lost) => (self.notify)(Notice::Lost(lost)),
                Ended::Stopped | Ended::ByItself => {
                    // If the store fails, others wait for the lease to expire.
                    let _ = held.end().await;
                    (self.notify)(Notice::Resigned);
                }
            }
            if is_stopped {
                return;
            }
            tokio::select! {
                () = &mut stop => return,
                () = sleep(PAUSE) => {}
            }
        }
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder").field("candidate", &self.candidate).finish_non_exhaustive()
    }
}

enum Ended {
    Stopped,
    ByItself,
    Lost(Lost),
}

/// Waits until the local clock says that the term is over.
async fn local_deadline(term: &Term) -> Lost {
    while term.is_held() {
        sleep(term.left().min(LOOK)).await;
    }
    Lost::NotRenewed { why: "the time is over".to_owned() }
}

/// The right to act in one term. Clones are the same one.
#[derive(Clone)]
pub struct Held(Arc<Holding>);

struct Holding {
    term: Arc<Term>,
    /// When what a predecessor has sent has arrived, by the clock of the term.
    clear: Duration,
    /// The loop was dropped.
    is_over: AtomicBool,
    /// A dispatch was dropped without its answer.
    has_doubt: AtomicBool,
}

/// Why nothing may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Withheld {
    /// The term is over, by the local clock.
    #[error("this machine does not lead any longer")]
    NotHeld,
    /// A predecessor's lease expired: something that it has sent may still arrive.
    #[error("the machine that led before was lost: what it sent may still arrive for {left:.1?}")]
    Predecessor {
        /// For so long.
        left: Duration,
    },
}

/// Something that is being sent. Say that it was answered: one that is dropped without is in doubt, and the successor
/// waits as if the lease had expired.
#[derive(Debug)]
#[must_use = "call `answered` once the target has answered"]
pub struct Dispatch {
    held: Held,
    is_answered: bool,
}

impl Held {
    fn new(term: Arc<Term>, answers_within: Duration) -> Self {
        let now = term.clock().now();
        let clear = match term.predecessor() {
            Predecessor::Expired => now + term.time_to_live() + answers_within,
            Predecessor::None | Predecessor::Resigned => now,
        };
        let (is_over, has_doubt) = (AtomicBool::new(false), AtomicBool::new(false));
        Held(Arc::new(Holding { term, clear, is_over, has_doubt }))
    }

    /// The term, whose guard belongs into every transaction of the loop.
    #[must_use]
    pub fn term(&self) -> &Term {
        &self.0.term
    }

    /// Whether anything may be sent at all, by the local clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.term.is_held() && !self.0.is_over.load(Ordering::Acquire)
    }

    /// Whether something may be sent that must not be sent twice.
    pub fn check(&self) -> Result<(), Withheld> {
        if !self.is_held() {
            return Err(Withheld::NotHeld);
        }
        let left = self.0.clear.saturating_sub(self.0.term.clock().now());
        if left.is_zero() { Ok(()) } else { Err(Withheld::Predecessor { left }) }
    }

    /// Asks for leave to send something that must not be sent twice; ask right before it is sent.
    pub fn dispatch(&self) -> Result<Dispatch, Withheld> {
        self.check()?;
        Ok(Dispatch { held: self.clone(), is_answered: false })
    }

    /// Waits until everything has arrived that a predecessor has sent. Look at the target after it, not before.
    pub async fn until_clear(&self) {
        while let Err(Withheld::Predecessor { left }) = self.check() {
            sleep(left.min(LOOK)).await;
        }
    }

    async fn end(&self) -> Result<(), Error> {
        if self.0.has_doubt.load(Ordering::Acquire) {
            self.0.term.abandon().await
        } else {
            self.0.term.resign().await
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("term", &self.0.term).finish_non_exhaustive()
    }
}

impl Dispatch {
    /// The target has answered, with success or an error: nothing of it is on its way any longer.
    pub fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Dispatch {
    fn drop(&mut self) {
        if !self.is_answered {
            self.held.0.has_doubt.store(true, Ordering::Release);
        }
    }
}
