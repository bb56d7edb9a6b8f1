//! One leader at a time.
//!
//! A candidate puts a key under a lease if nobody holds it. The revision at which the key was created is the *term*: it
//! grows with every election. Two things keep a former leader from acting:
//!
//! - its own clock: it stands down some time before its lease can expire ([`Term::is_held`]);
//! - the store: each of its transactions is guarded by the term ([`Term::guard`]), so what it sends late is refused.
//!
//! The second is what counts. The first spares targets that check no term.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use homeostat_kit::store::{Revision, WatchEvent};
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::error::Error;
use crate::store::{Committed, Guard, Keys, Lease, Renewal, Store, Transaction};

/// A leader stands down when this part of the time to live of its lease is left.
const MARGIN: u32 = 5;
/// A lease is renewed this often within its time to live.
const RENEWALS: u32 = 3;
/// A candidate looks by itself after this time: watches can lose events.
const LOOK: Duration = Duration::from_secs(30);

/// A process that wants to lead.
#[derive(Clone)]
pub struct Candidate {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    key: String,
    name: String,
    time_to_live: Duration,
}

/// How the term before ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// There was none.
    None,
    /// Its leader resigned, and sends nothing more.
    Resigned,
    /// Its lease expired: its leader may still be about to send what it had decided on.
    Expired,
}

/// The time in which one candidate leads.
pub struct Term {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    key: String,
    revision: Revision,
    predecessor: Predecessor,
    lease: Lease,
    /// When it stands down by itself, in nanoseconds of the clock.
    stands_down: AtomicU64,
}

/// Why a leader does not lead any longer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The store ended the lease.
    #[error("the store ended the lease")]
    Ended,
    /// The lease could not be renewed in time.
    #[error("the lease could not be renewed in time: {why}")]
    NotRenewed {
        /// What the last try failed for.
        why: String,
    },
}

const HELD: &[u8] = b"held";
const RESIGNED: &[u8] = b"resigned";

impl Candidate {
    /// A candidate who is known to others by a name, for the leadership that `key` stands for.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        key: impl Into<String>,
        name: impl Into<String>,
        time_to_live: Duration,
    ) -> Self {
        Candidate { store, clock, key: key.into(), name: name.into(), time_to_live }
    }

    /// Waits until this candidate leads. An error means that the store failed; call it again after a pause.
    pub async fn elected(&self) -> Result<Term, Error> {
        loop {
            self.until_vacant().await?;
            if let Some(term) = self.campaign().await? {
                return Ok(term);
            }
        }
    }

    /// Who leads, by name.
    pub async fn leader(&self) -> Result<Option<String>, Error> {
        let listed = self.store.list(Keys::One(self.key.clone())).await?;
        let entry = listed.values.get(&self.key);
        Ok(entry.map(|entry| String::from_utf8_lossy(&entry.value).into_owned()))
    }

    async fn until_vacant(&self) -> Result<(), Error> {
        loop {
            let listed = self.store.list(Keys::One(self.key.clone())).await?;
            if listed.values.is_empty() {
                return Ok(());
            }
            let mut watch = self.store.watch(Keys::One(self.key.clone()), listed.revision).await?;
            let change = async {
                loop {
                    match watch.next().await {
                        Ok(
                            WatchEvent::Progress { .. }
                            | WatchEvent::Changed { value: Some(_), .. },
                        ) => {}
                        Ok(_) => return Ok(()),
                        Err(failure) => return Err(Error::Unreachable { why: failure.error }),
                    }
                }
            };
            // In both cases it looks again.
            if let Ok(changed) = timeout(LOOK, change).await {
                changed?;
            }
        }
    }

    async fn campaign(&self) -> Result<Option<Term>, Error> {
        let key = self.ended_key();
        let listed = self.store.list(Keys::One(key.clone())).await?;
        let ended = listed.values.get(&key);
        let predecessor = match ended {
            None => Predecessor::None,
            Some(entry) if entry.value == RESIGNED => Predecessor::Resigned,
            Some(_) => Predecessor::Expired,
        };
        // Else a whole term could come and go between this look and the election.
        let unchanged = match ended {
            None => Guard::Absent { key },
            Some(entry) => Guard::Unmodified { key, since: entry.modified },
        };
        let since = self.clock.now();
        let lease = self.store.grant(self.time_to_live).await?;
        let transaction = Transaction::new()
            .only_if(Guard::Absent { key: self.key.clone() })
            .only_if(unchanged)
            .put_leased(&self.key, self.name.as_bytes(), lease.id)
            .put(self.ended_key(), HELD);
        let revision = match self.store.commit(transaction).await {
            Ok(Committed::Done { revision }) => revision,
            Ok(Committed::Refused { .. }) => {
                self.store.revoke(lease.id).await?;
                return Ok(None);
            }
            Err(error) => {
                // Without the lease the write cannot be made any more, and what was made vanishes: nobody has to wait
                // for a leader that does not know that it is one. If this fails, too, the lease expires.
                let _ = self.store.revoke(lease.id).await;
                return Err(error);
            }
        };
        let term = Term {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            key: self.key.clone(),
            revision,
            predecessor,
            lease,
            stands_down: AtomicU64::new(0),
        };
        term.renewed(since);
        Ok(Some(term))
    }

    fn ended_key(&self) -> String {
        ended_key(&self.key)
    }
}

/// Says how the last term ended. It has no lease.
fn ended_key(key: &str) -> String {
    format!("{key}.ended")
}

impl Term {
    /// Its number: greater than that of all terms before.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// How the term before ended.
    #[must_use]
    pub fn predecessor(&self) -> Predecessor {
        self.predecessor
    }

    /// Holds as long as nobody else was elected.
    #[must_use]
    pub fn guard(&self) -> Guard {
        Guard::Created { key: self.key.clone(), at: self.revision }
    }

    /// Whether its leader may still act, by its own clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.left().is_zero()
    }

    /// How long its leader may still act, unless the lease is renewed.
    #[must_use]
    pub fn left(&self) -> Duration {
        let stands_down = Duration::from_nanos(self.stands_down.load(Ordering::Acquire));
        stands_down.saturating_sub(self.clock.now())
    }

    /// Renews the lease until the term is lost; run it beside the work. Dropping the future loses nothing.
    pub async fn keep(&self) -> Lost {
        let pause = self.lease.time_to_live / RENEWALS;
        let mut why = "the process was stopped".to_owned();
        loop {
            if !self.is_held() {
                return Lost::NotRenewed { why };
            }
            let sent = self.clock.now();
            match timeout(self.left(), self.store.renew(self.lease.id)).await {
                Ok(Ok(Renewal::Lasts(_))) => {
                    self.renewed(sent);
                    sleep(pause).await;
                }
                Ok(Ok(Renewal::Gone)) => return Lost::Ended,
                Ok(Err(error)) => {
                    why = error.to_string();
                    sleep(self.left().min(pause / 10)).await;
                }
                Err(_) => "no answer".clone_into(&mut why),
            }
        }
    }

    /// How long its lease lasts after each renewal.
    #[must_use]
    pub fn time_to_live(&self) -> Duration {
        self.lease.time_to_live
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Ends the term, so that others need not wait for its lease to expire. Call it when everything that was sent has
    /// been answered.
    pub async fn resign(&self) -> Result<(), Error> {
        self.stands_down.store(0, Ordering::Release);
        let transaction = Transaction::new()
            .only_if(self.guard())
            .put(ended_key(&self.key), RESIGNED)
            .delete(&self.key);
        let ended = self.store.commit(transaction).await;
        self.store.revoke(self.lease.id).await?;
        ended.map(drop)
    }

    /// Ends the term at once, but lets the successor wait as if the lease had expired: something that was sent has not
    /// been answered.
    pub async fn abandon(&self) -> Result<(), Error> {
        self.stands_down.store(0, Ordering::Release);
        self.store.revoke(self.lease.id).await
    }

    fn renewed(&self, sent: Duration) {
        let whole = self.lease.time_to_live;
        let lasts = whole.saturating_sub(whole / MARGIN);
        let stands_down = u64::try_from((sent + lasts).as_nanos()).unwrap_or(u64::MAX);
        self.stands_down.fetch_max(stands_down, Ordering::AcqRel);
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate")
            .field("key", &self.key)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("key", &self.key)
            .field("revision", &self.revision)
            .field("left", &self.left())
            .finish_non_exhaustive()
    }
}
