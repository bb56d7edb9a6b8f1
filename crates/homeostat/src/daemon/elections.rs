//! Takes part in the elections of targets that machines of a fleet share: the one that is elected acts on the target,
//! the others read it.
//!
//! Each election is a task of the daemon's own runtime. It says how it stands in [`Turns`], by which sources are bound;
//! the daemon then starts the loop anew, with or without the right to write. The end of a term waits for nobody: the
//! loop of a leader ends with it ([`Leader::until_over`]), and the journal refuses what comes later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use homeostat_document::Document;
use homeostat_engine::journal::Millis;
use homeostat_etcd::EtcdStore;
use homeostat_fleet::keys::Keys;
use homeostat_registry::{Leader, Standby, Turn, Turns};
use homeostat_store::{BootTime, Candidate, Held, Holder, Notice, Store, Withheld, open_journal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::clock::Stamp;
use crate::journal;
use crate::provider::fleet::{FleetSettings, TurnSettings};
use crate::registry::SOURCES;

/// How often a standby looks who leads, for people.
const LOOK: Duration = Duration::from_secs(5);
/// After a journal that could not be opened.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a stop waits for a leader to resign. Others wait for its lease otherwise.
const RESIGN: Duration = Duration::from_millis(500);

/// The elections that this machine takes part in, by source.
pub(super) struct Elections {
    turns: Turns,
    running: BTreeMap<&'static str, Election>,
    changed: Arc<Notify>,
}

struct Election {
    target: String,
    settings: TurnSettings,
    answers_within: Duration,
    stop: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Election {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Elections {
    pub(super) fn new(turns: Turns) -> Self {
        Elections { turns, running: BTreeMap::new(), changed: Arc::default() }
    }

    /// Takes part where the document names a shared target and the machine belongs to a fleet, and nowhere else.
    pub(super) async fn follow(&mut self, document: &Document, fleet: Option<&FleetSettings>) {
        for source in SOURCES {
            let name = source.name();
            let wanted = source.shared.as_ref().zip(fleet).and_then(|(shared, fleet)| {
                let target = (shared.name)(document)?;
                Some((target.replace('/', "_"), (shared.answers_within)(document), fleet.turns()))
            });
            let Some((target, answers_within, settings)) = wanted else {
                if let Some(former) = self.running.remove(name) {
                    former.end().await;
                    self.turns.remove(name);
                }
                continue;
            };
            let is_same = |one: &Election| {
                (&one.target, &one.settings) == (&target, &settings)
                    && one.answers_within == answers_within
                    && !one.task.is_finished()
            };
            if self.running.get(name).is_some_and(is_same) {
                continue;
            }
            if let Some(former) = self.running.remove(name) {
                former.end().await;
            }
            let stop = Arc::new(Notify::new());
            let turn = TurnTaker {
                source: name,
                shared: format!("{}/{target}", settings.fleet),
                turns: self.turns.clone(),
                changed: Arc::clone(&self.changed),
            };
            turn.stand_by(None);
            let task = tokio::spawn(turn.take_turns(
                settings.clone(),
                target.clone(),
                answers_within,
                Arc::clone(&stop),
            ));
            let election = Election { target, settings, answers_within, stop, task };
            self.running.insert(name, election);
        }
    }

    /// Waits until this machine has become a leader, or is one no longer.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Resigns, so that others need not wait. Call it when the loops have ended.
    pub(super) async fn stop(&mut self) {
        let all = std::mem::take(&mut self.running).into_values();
        futures_util::future::join_all(all.map(Election::end)).await;
    }
}

impl Election {
    async fn end(mut self) {
        self.stop.notify_one();
        // If the store does not answer, the lease expires.
        let _ = timeout(RESIGN, &mut self.task).await;
    }
}

/// One machine in one election.
#[derive(Clone)]
struct TurnTaker {
    source: &'static str,
    shared: String,
    turns: Turns,
    changed: Arc<Notify>,
}

impl TurnTaker {
    async fn take_turns(
        self,
        settings: TurnSettings,
        target: String,
        answers_within: Duration,
        stop: Arc<Notify>,
    ) {
        let TurnSettings { store, fleet, node, lease } = settings;
        let store: Arc<dyn Store> = Arc::new(EtcdStore::new(store));
        let keys = Keys::new(&fleet);
        let key = keys.turn(self.source, &target);
        let clock = Arc::new(BootTime);
        let candidate = Candidate::new(Arc::clone(&store), clock, key, node.as_str(), lease);
        let listener = self.clone();
        let holder = Holder::new(candidate.clone(), answers_within)
            .with_notices(move |notice| listener.on_notice(&notice));
        let prefix = keys.journal(self.source, &target);
        let work = |held: Held| {
            let (this, store, prefix) = (self.clone(), Arc::clone(&store), prefix.clone());
            async move { this.lead(store, prefix, held).await }
        };
        tokio::select! {
            () = holder.while_held(work, stop.notified()) => {}
            () = self.look_who_leads(&candidate) => {}
        }
    }

    /// Recovers the journal, and has the daemon start the loop, whose first pass looks at everything.
    async fn lead(&self, store: Arc<dyn Store>, prefix: String, held: Held) {
        let journal = loop {
            let opened =
                open_journal(Arc::clone(&store), &*prefix, held.clone(), journal::clock()).await;
            match opened {
                Ok(journal) => break Arc::new(journal),
                Err(error) => {
                    tracing::error!(source = self.source, error = %error, "journal not recovered");
                    self.stand_by(Some(error.to_string()));
                    sleep(PAUSE).await;
                }
            }
        };
        let clear_at = match held.check() {
            Err(Withheld::Predecessor { left }) => Some(Instant::now() + left),
            Ok(()) | Err(Withheld::NotHeld) => None,
        };
        let (over, receiver) = watch::channel(());
        let leader =
            Leader { shared: self.shared.clone(), since: now(), journal, clear_at, over: receiver };
        // Before the sender: whoever sees the end of the term finds that the machine does not lead.
        let _stands_by = StandsBy { taker: self.clone(), _over: over };
        self.turns.set(self.source, Turn::Leader(leader));
        tracing::info!(source = self.source, shared = self.shared, "leads");
        self.changed.notify_one();
        std::future::pending::<()>().await;
    }

    fn on_notice(&self, notice: &Notice) {
        match notice {
            Notice::Lost(lost) => {
                tracing::warn!(source = self.source, why = %lost, "leads no longer");
            }
            Notice::Failed(error) => {
                let why = error.to_string();
                if let Turn::Standby(standby) = self.turns.of(self.source)
                    && standby.trouble.as_ref() != Some(&why)
                {
                    tracing::warn!(source = self.source, error = why, "no election");
                    let trouble = Some(why);
                    self.turns.set(self.source, Turn::Standby(Standby { trouble, ..standby }));
                }
            }
            _ => {}
        }
    }

    /// The machine does not lead. The time at which it began to stand by stays.
    fn stand_by(&self, trouble: Option<String>) {
        let before = match self.turns.of(self.source) {
            Turn::Standby(standby) if standby.shared == self.shared => Some(standby),
            _ => None,
        };
        let (since, leader) = before.map_or((now(), None), |it| (it.since, it.leader));
        let standby = Standby { shared: self.shared.clone(), since, leader, trouble };
        self.turns.set(self.source, Turn::Standby(standby));
    }

    /// Says who leads, while it is another machine.
    async fn look_who_leads(&self, candidate: &Candidate) {
        loop {
            if let Turn::Standby(standby) = self.turns.of(self.source)
                && let Ok(leader) = candidate.leader().await
                && let Turn::Standby(now) = self.turns.of(self.source)
                && (now.leader != leader || now.trouble.is_some())
                && now == standby
            {
                self.turns
                    .set(self.source, Turn::Standby(Standby { leader, trouble: None, ..now }));
            }
            sleep(LOOK).await;
        }
    }
}

/// When it is dropped, the machine leads no longer.
struct StandsBy {
    taker: TurnTaker,
    /// Dropped after the turn has changed.
    _over: watch::Sender<()>,
}

impl Drop for StandsBy {
    fn drop(&mut self) {
        self.taker.stand_by(None);
        self.taker.changed.notify_one();
    }
}

fn now() -> Millis {
    Millis(Stamp::now().as_millis())
}
