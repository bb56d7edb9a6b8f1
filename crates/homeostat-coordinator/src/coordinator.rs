//! Waits to lead, leads, and carries out what is decided.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use homeostat_fleet::decide::{Act, Expected, Step, Transaction as Decided};
use homeostat_fleet::keys::Keys;
use homeostat_fleet::records::SignedStatement;
use homeostat_fleet::{Name, Time};
use homeostat_kit::store::{Effect, Mirror, Snapshot};
use homeostat_store::{
    Candidate, Clock, Committed, Error, Guard, Held, Holder, Keys as Range, Lost,
    Notice as Holding, Revision, Store, Term, Transaction, WatchEvent, Watching,
};
use tokio::time::{Instant, sleep, timeout};

use crate::known::{Known, Part, Unreadable, Verify};

/// After a failure of the store, and after an act that was refused.
const PAUSE: Duration = Duration::from_millis(500);
/// After so many failures in a row the pause does not grow any more.
const LONGEST_PAUSE: u32 = 10;
/// A time that has come is looked at no more often than this.
const MOMENT: Duration = Duration::from_millis(100);
/// Everything is listed again after this time: watches can lose events.
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
    /// A record cannot be understood; nothing is done that would need it.
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
    verify: Option<Verify>,
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
            verify: None,
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

    /// The same, which follows only statements that pass this. Without it, whoever can write to the store can replace all
    /// rollouts by one that nodes then refuse.
    #[must_use]
    pub fn with_verification(
        self,
        verify: impl Fn(&SignedStatement) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Coordinator { verify: Some(Arc::new(verify)), ..self }
    }

    /// Waits to lead and leads, again and again, until `stop` is over; then it resigns.
    pub async fn run(&self, stop: impl Future<Output = ()> + Send) {
        let candidate = Candidate::new(
            Arc::clone(&self.store),
            Arc::clone(&self.clock),
            Keys::new(&self.fleet).leader(),
            &self.name,
            self.time_to_live,
        );
        // All it sends goes to the store, which knows terms: nothing has to be waited for.
        let notify = Arc::clone(&self.notify);
        let holder = Holder::new(candidate, Duration::ZERO).with_notices(move |notice| {
            notify(match notice {
                Holding::Leads { term, .. } => Notice::Leads { term },
                Holding::Lost(lost) => Notice::Lost(lost),
                Holding::Failed(error) => Notice::Failed(error),
                _ => return,
            });
        });
        let lead = |held: Held| async move { self.lead(held.term()).await };
        holder.while_held(lead, stop).await;
    }

    /// Carries out acts for as long as the term is held.
    async fn lead(&self, term: &Term) {
        let verify = self.verify.clone();
        let mut known = Known::new(&self.fleet, term.revision(), self.nodes_live, verify);
        let mut failures = 0;
        while term.is_held() {
            match self.follow(term, &mut known).await {
                Ok(()) => failures = 0,
                Err(error) => {
                    (self.notify)(Notice::Failed(error));
                    failures = LONGEST_PAUSE.min(failures + 1);
                    sleep(PAUSE * failures).await;
                }
            }
        }
    }

    /// Lists what is needed and follows it, until it has to be listed again.
    async fn follow(&self, term: &Term, known: &mut Known) -> Result<(), Error> {
        let list_at = Instant::now() + RESYNC;
        let mut feeds = vec![self.open(Part::Rollouts, known).await?];
        if !known.needs_nodes() {
            known.forget_nodes();
        }
        loop {
            if known.needs_nodes() && feeds.len() == 1 {
                for part in Part::NODES {
                    feeds.push(self.open(part, known).await?);
                }
            }
            for id in known.lacks_leaves() {
                let leaves = Range::Below(known.keys().all_leaves(&id));
                known.take_leaves(&id, &self.store.list(leaves).await?.values);
            }
            let now = self.wall.now();
            let acted = self.act(term, known, now).await?;
            let left = list_at.saturating_duration_since(Instant::now());
            let pause = match acted {
                Acted::Lost => return Ok(()),
                Acted::Written => Duration::ZERO,
                Acted::Refused => PAUSE,
                Acted::Waits { until: Some(until) } => until.since(now).max(MOMENT),
                Acted::Waits { until: None } => left,
            };
            match timeout(pause.min(left), self.catch_up(known, &mut feeds)).await {
                Ok(Ok(Effect::List)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                // What it was decided on is old, and the watch does not tell more.
                Err(_) if acted == Acted::Refused => return Ok(()),
                // Something has changed, or a time has come that was waited for.
                Ok(Ok(_)) | Err(_) => {}
            }
            if Instant::now() >= list_at {
                return Ok(());
            }
        }
    }

    /// Carries out the next act of each rollout.
    async fn act(&self, term: &Term, known: &mut Known, now: Time) -> Result<Acted, Error> {
        let mut acted = Acted::Waits { until: None };
        for (rollout, act) in known.next(now) {
            match act {
                Act::Write(decided) => {
                    if !term.is_held() {
                        return Ok(Acted::Lost);
                    }
                    let (step, puts) = (decided.step, decided.puts.clone());
                    match self.store.commit(transaction(decided)).await? {
                        Committed::Done { revision } => {
                            (self.notify)(Notice::Acted { rollout, step });
                            known.wrote(&puts, revision, now);
                            if acted != Acted::Refused {
                                acted = Acted::Written;
                            }
                        }
                        Committed::Refused { .. } => acted = Acted::Refused,
                    }
                }
                Act::Wait { until: Some(time) } => {
                    if let Acted::Waits { until } = &mut acted {
                        *until = Some(until.map_or(time, |until| until.min(time)));
                    }
                }
                Act::Wait { until: None } | Act::Finished => {}
            }
        }
        Ok(acted)
    }

    /// Lists a part of the store, and watches it from there.
    async fn open(&self, part: Part, known: &mut Known) -> Result<Feed, Error> {
        let keys = Range::Below(part.prefix(known.keys()));
        let listed = self.store.list(keys.clone()).await?;
        self.tell(known.list(part, &listed.values, listed.revision, self.wall.now()));
        let keys_only = listed.values.into_keys().map(|key| (key, ())).collect();
        let mirror = Mirror::new(Snapshot { revision: listed.revision, values: keys_only });
        let watch = self.store.watch(keys, listed.revision).await?;
        Ok(Feed { mirror, watch })
    }

    /// Takes the next change that a watch tells, and all others that have come by then.
    async fn catch_up(&self, known: &mut Known, feeds: &mut [Feed]) -> Result<Effect, Error> {
        let mut has_come = false;
        loop {
            // Changes of one transaction come together, and are seen together.
            let (feed, event) = tokio::select! {
                biased;
                next = next(feeds) => next,
                () = std::future::ready(()), if has_come => return Ok(Effect::Changed),
            };
            let event = event?;
            let Some(feed) = feeds.get_mut(feed) else { continue };
            let (event, change) = match event {
                WatchEvent::Changed { revision, key, value } => {
                    let known = value.as_ref().map(|_| ());
                    let event = WatchEvent::Changed { revision, key: key.clone(), value: known };
                    (event, Some((revision, key, value)))
                }
                WatchEvent::Progress { revision } => (WatchEvent::Progress { revision }, None),
                // Whatever else it says, it cannot go on.
                _ => return Ok(Effect::List),
            };
            match feed.mirror.take(event) {
                Effect::None => {}
                Effect::List => return Ok(Effect::List),
                Effect::Changed => {
                    if let Some((revision, key, value)) = change {
                        let taken = known.take(&key, revision, value.as_ref(), self.wall.now());
                        self.tell(taken.err());
                    }
                    has_come = true;
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

/// A part of the store that is followed.
struct Feed {
    /// Its keys, by which events are dropped that are old.
    mirror: Mirror<String, ()>,
    watch: Watching,
}

/// What a look at all rollouts came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acted {
    /// Something was written: there may be more to do.
    Written,
    /// What something was decided on is old.
    Refused,
    Waits {
        until: Option<Time>,
    },
    /// It leads no longer.
    Lost,
}

/// The next event of any feed, with its place.
async fn next(
    feeds: &mut [Feed],
) -> (usize, Result<WatchEvent<String, homeostat_store::Entry>, Error>) {
    // Dropping the future of a watch loses nothing, so each poll may begin anew.
    std::future::poll_fn(|context| {
        for (nth, feed) in feeds.iter_mut().enumerate() {
            if let Poll::Ready(event) = feed.watch.next().as_mut().poll(context) {
                let event = event.map_err(|failure| Error::Unreachable { why: failure.error });
                return Poll::Ready((nth, event));
            }
        }
        Poll::Pending
    })
    .await
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
