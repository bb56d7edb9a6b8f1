//! Waits to lead, leads, and carries out what is decided.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use homeostat_fleet::decide::{Act, Expected, Step, Transaction as Decided};
use homeostat_fleet::keys::Keys;
use homeostat_fleet::{Name, Time};
use homeostat_kit::store::{Effect, Mirror};
use homeostat_store::{
    Candidate, Clock, Committed, Error, Guard, Keys as Range, Lost, Revision, Store, Term,
    Transaction, WatchEvent, Watching,
};
use tokio::time::{sleep, timeout};

use crate::known::{Known, Unreadable};

/// After a failure of the store, and after an act that was refused.
const PAUSE: Duration = Duration::from_millis(500);
/// A time that has come is looked at no more often than this.
const MOMENT: Duration = Duration::from_millis(100);
/// Everything is listed again after this time without a change: watches can lose events.
const RESYNC: Duration = Duration::from_mins(1);

/// The time of day.
pub trait WallClock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Time;
}

impl<F: Fn() -> Time + Send + Sync + 'static> WallClock for F {
    fn now(&self) -> Time {
        self()
    }
}

/// What a coordinator has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// It leads.
    Leads {
        /// The number of its term.
        term: Revision,
    },
    /// It leads no longer.
    Lost(Lost),
    /// It has carried out an act.
    Acted {
        /// The rollout.
        rollout: Name,
        /// What was done.
        step: Step,
    },
    /// A record cannot be understood; it counts as absent.
    Unreadable {
        /// Where it is.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// The store failed; it is tried again.
    Failed(Error),
}

/// One of those that may lead.
pub struct Coordinator {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    wall: Arc<dyn WallClock>,
    fleet: Name,
    name: String,
    /// Of its own lease.
    time_to_live: Duration,
    /// Of the leases of nodes.
    nodes_live: Duration,
    notify: Arc<dyn Fn(Notice) + Send + Sync>,
}

impl Coordinator {
    /// A coordinator that others know by `name`.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        wall: impl WallClock,
        fleet: Name,
        name: impl Into<String>,
    ) -> Self {
        Coordinator {
            store,
            clock,
            wall: Arc::new(wall),
            fleet,
            name: name.into(),
            time_to_live: Duration::from_secs(5),
            nodes_live: Duration::from_mins(1),
            notify: Arc::new(|_| {}),
        }
    }

    /// The same, which tells what happens.
    #[must_use]
    pub fn with_notices(self, notify: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        Coordinator { notify: Arc::new(notify), ..self }
    }

    /// The same with another time to live of its own lease, and of those of nodes.
    #[must_use]
    pub fn with_leases(self, own: Duration, nodes: Duration) -> Self {
        Coordinator { time_to_live: own, nodes_live: nodes, ..self }
    }

    /// Waits to lead and leads, again and again, until `stop` is over; then it resigns.
    pub async fn run(&self, stop: impl Future<Output = ()> + Send) {
        tokio::pin!(stop);
        let candidate = Candidate::new(
            Arc::clone(&self.store),
            Arc::clone(&self.clock),
            Keys::new(&self.fleet).leader(),
            &self.name,
            self.time_to_live,
        );
        loop {
            let elected = tokio::select! {
                () = &mut stop => return,
                elected = candidate.elected() => elected,
            };
            let term = match elected {
                Ok(term) => term,
                Err(error) => {
                    (self.notify)(Notice::Failed(error));
                    tokio::select! {
                        () = &mut stop => return,
                        () = sleep(PAUSE) => continue,
                    }
                }
            };
            (self.notify)(Notice::Leads { term: term.revision() });
            let lost = tokio::select! {
                () = &mut stop => {
                    // Others would have to wait for the lease to expire; that is all.
                    let _ = term.resign().await;
                    return;
                }
                lost = term.keep() => lost,
                () = self.lead(&term) => continue,
            };
            (self.notify)(Notice::Lost(lost));
        }
    }

    /// Carries out acts for as long as the term is held.
    async fn lead(&self, term: &Term) {
        while term.is_held() {
            let failed = match self.follow(term).await {
                Ok(()) => None,
                Err(error) => Some(Notice::Failed(error)),
            };
            if let Some(notice) = failed {
                (self.notify)(notice);
                sleep(PAUSE).await;
            }
        }
    }

    /// Lists everything and follows it, until it has to be listed again.
    async fn follow(&self, term: &Term) -> Result<(), Error> {
        let keys = Range::Below(Keys::new(&self.fleet).prefix().to_owned());
        let listed = self.store.list(keys.clone()).await?;
        let mut known = Known::new(&self.fleet, term.revision(), self.nodes_live);
        self.tell(known.list(&listed.values, self.wall.now()));
        let mut mirror = Mirror::new(listed);
        let mut watch = self.store.watch(keys, mirror.revision()).await?;
        loop {
            let now = self.wall.now();
            let mut until: Option<Time> = None;
            let mut written = None;
            for (rollout, act) in known.next(mirror.revision(), now) {
                match act {
                    Act::Write(decided) => {
                        let step = decided.step;
                        if !term.is_held() {
                            return Ok(());
                        }
                        match self.store.commit(transaction(decided)).await? {
                            Committed::Done { revision } => {
                                (self.notify)(Notice::Acted { rollout, step });
                                written = Some(revision);
                            }
                            // What it was decided on is old: look again.
                            Committed::Refused { revision, .. } => written = Some(revision),
                        }
                        break;
                    }
                    Act::Wait { until: Some(time) } => {
                        until = Some(until.map_or(time, |until| until.min(time)));
                    }
                    Act::Wait { until: None } | Act::Finished => {}
                }
            }
            let pause = match (written, until) {
                (Some(_), _) => PAUSE,
                (None, Some(until)) => until.since(now).min(RESYNC),
                (None, None) => RESYNC,
            };
            // An act is seen in the watch before the next one is decided: what was read before it would be old.
            let seen = self.catch_up(&mut known, &mut mirror, &mut watch, written);
            match timeout(pause.max(MOMENT), seen).await {
                Ok(Ok(Effect::List)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Err(_) if written.is_some() || pause == RESYNC => return Ok(()),
                // Something has changed, or a time has come that was waited for.
                Ok(Ok(_)) | Err(_) => {}
            }
        }
    }

    /// Takes what the watch tells: up to a revision, or the next change.
    async fn catch_up(
        &self,
        known: &mut Known,
        mirror: &mut Mirror<String, homeostat_store::Entry>,
        watch: &mut Watching,
        until: Option<Revision>,
    ) -> Result<Effect, Error> {
        let mut has_come = false;
        loop {
            // Changes of one transaction come together, and are seen together.
            let event = tokio::select! {
                biased;
                event = watch.next() => event,
                () = std::future::ready(()), if has_come => return Ok(Effect::Changed),
            };
            let event = event.map_err(|failure| Error::Unreachable { why: failure.error })?;
            let change = match &event {
                WatchEvent::Changed { key, value, .. } => Some((key.clone(), value.clone())),
                _ => None,
            };
            match mirror.take(event) {
                Effect::None => {}
                Effect::List => return Ok(Effect::List),
                Effect::Changed => {
                    if let Some((key, value)) = change {
                        let taken = known.take(&key, value.as_ref(), self.wall.now());
                        self.tell(taken.err());
                    }
                    has_come |= until.is_none_or(|until| mirror.revision() >= until);
                }
            }
        }
    }

    fn tell(&self, unreadable: impl IntoIterator<Item = Unreadable>) {
        for Unreadable { key, why } in unreadable {
            (self.notify)(Notice::Unreadable { key, why });
        }
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator")
            .field("fleet", &self.fleet)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn transaction(decided: Decided) -> Transaction {
    let unsigned = |revision: i64| Revision::try_from(revision).unwrap_or_default();
    let guard = |guard: homeostat_fleet::decide::Guard| {
        let key = guard.key;
        match guard.expected {
            Expected::Absent => Guard::Absent { key },
            Expected::Unchanged { revision } => {
                Guard::Unmodified { key, since: unsigned(revision) }
            }
            Expected::Created { revision } => Guard::Created { key, at: unsigned(revision) },
        }
    };
    let guarded =
        decided.guards.into_iter().map(guard).fold(Transaction::new(), Transaction::only_if);
    decided.puts.into_iter().fold(guarded, |all, put| all.put(put.key, put.value))
}
