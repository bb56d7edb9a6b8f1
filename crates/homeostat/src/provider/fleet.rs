//! The provider of a machine that belongs to a fleet: its document is the last one that a fleet assigned and that was
//! good here. Until there is one, the machine's own document is in force.
//!
//! ```text
//!   store ──want──▶ agent ──judge, fetch, read──▶ accepted, durable ──▶ provider ──▶ daemon: a trial
//!         ◀─status─ agent ◀────────────────────── good or rolled back, durable ◀────────────┘
//! ```
//!
//! [`Fleet`] is the daemon's side, `agent.rs` the store's, which `supervisor.rs` keeps running. What both know is [`Node`].

mod agent;
mod fetch;
mod kept;
mod planning;
mod settings;
mod supervisor;
mod window;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use homeostat_document::Document;
use homeostat_engine::outcome::Later;
use homeostat_engine::pacing::Pauses;
use homeostat_engine::{Failure, Losses, Retry};
use homeostat_etcd::EtcdStore;
use homeostat_fleet::merkle::Class;
use homeostat_fleet::node::{Ended, Progress, Stage};
use homeostat_fleet::records::Accepted;
use homeostat_fleet::{Digest, Time, chunks};
use homeostat_kit::provider::{Answer, Provider, Verdict};
use homeostat_store::{Error as StoreError, Store as _};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use self::agent::Report;
pub(crate) use self::kept::{Hold, Holds};
use self::kept::{Kept, Unloadable};
pub(crate) use self::settings::{FleetSettings, SECTIONS, TurnSettings, document_of_url, is_url};
use super::files::Files;
use super::{DocumentProvider, NodeTrial};
use crate::cli::Global;
use crate::confirmed::{AssignmentEnd, ConfirmedDocuments};
use crate::context;
use crate::daemon::clock::Stamp;
use crate::daemon::{DaemonView, log};
use crate::failure::{self, helped};
use crate::wire::Leave;

/// How long a member may take to show that it can be reached.
const REACH: Duration = Duration::from_secs(5);
/// Between tries to begin a trial.
const AGAIN: Pauses = Pauses::BACKOFF;

/// Whether a document says that its machine belongs to a fleet.
pub(crate) fn is_in(document: &Document) -> bool {
    FleetSettings::of(document).is_some()
}

/// Where the `[fleet]` is written.
pub(crate) enum Local {
    Url,
    Files(Box<Files>),
}

/// Takes documents from a fleet.
pub(crate) struct Fleet {
    local: Local,
    /// Why the machine's own document cannot be used now.
    own_trouble: Option<anyhow::Error>,
    node: Arc<Node>,
    report: watch::Receiver<Report>,
    /// Until the agent has it.
    sender: Option<watch::Sender<Report>>,
    /// What the last answer was, if it is to be tried.
    answered: Option<Accepted>,
    /// Why it is not known what was accepted: nothing is taken from the fleet then.
    unknown: Option<Failure>,
    postponed: Option<Postponed>,
}

/// A trial that could not begin for a reason that is not in its document.
struct Postponed {
    tried: Accepted,
    failures: u32,
    /// When it is offered again, until that was done.
    again_at: Option<Instant>,
}

/// What provider and agent both know.
struct Node {
    kept: Kept,
    progress: watch::Sender<Progress>,
    settings: watch::Sender<FleetSettings>,
    /// The machine's own document. In force until the fleet has assigned another one.
    own: watch::Sender<Arc<Document>>,
    /// Why what is to be tried is not tried yet.
    postponed: watch::Sender<Option<String>>,
}

/// Whether a document of the fleet stands for the machine's own: the empty one does. It is what a machine goes back to
/// that the fleet had assigned nothing before.
fn is_own(document: &Digest) -> bool {
    *document == chunks::empty().document
}

impl Node {
    /// A document of the fleet. It may take long: everything is compared with its hash.
    fn load(&self, document: &Digest) -> Result<Arc<Document>, Unloadable> {
        if is_own(document) {
            return Ok(Arc::clone(&self.own.borrow()));
        }
        self.kept.load(document).map(Arc::new)
    }

    /// Whether nothing needs to be fetched for a document.
    fn has(&self, document: &Digest) -> bool {
        is_own(document) || self.kept.has(document)
    }

    fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// The trial of an assignment has ended. A record that cannot be written is made good at the next start, by what the
    /// trial itself has recorded.
    fn end(&self, tried: &Accepted, ended: Ended) {
        let mut progress = self.progress();
        progress.end(tried, ended, now());
        if progress == *self.progress.borrow() {
            return;
        }
        if let Err(error) = self.kept.write_progress(&progress) {
            log::log_error(&error, "the end of an assignment cannot be recorded");
        }
        self.progress.send_replace(progress);
    }
}

/// An error for the store, where no terminal draws it.
fn plain_text(error: &anyhow::Error) -> String {
    anstream::adapter::strip_str(&failure::text(error)).to_string()
}

fn now() -> Time {
    Time::of_millis(Stamp::now().as_millis())
}

impl Fleet {
    /// Reads what was accepted before. Uses no network.
    pub(crate) fn open(local: Local, own: &Arc<Document>, global: &Global) -> Result<Self> {
        let settings = FleetSettings::of(own).cloned();
        let settings = settings.ok_or_else(|| anyhow!("the document has no `[fleet]`"))?;
        let (owner, _) = context::owner(global, &own.settings)?;
        let state_dir = context::state_dir(global);
        let kept = Kept::of(&state_dir, &owner, &settings.fleet);
        let (mut progress, unknown) = match kept.progress() {
            Ok(progress) => (progress, None),
            Err(error) => {
                let failure = Failure::new(failure::text(&error), Retry::OnChange);
                (Progress::default(), Some(failure.with_known_help(failure::help(&error))))
            }
        };
        // A process that ended before it could record how a trial ended.
        if let Some(tried) = progress.to_try().copied() {
            let ended = match ConfirmedDocuments::of(&state_dir, &owner).end_of(&tried) {
                Some(AssignmentEnd::Confirmed) => Some(Ended::Good),
                Some(AssignmentEnd::RolledBack { why }) => Some(Ended::RolledBack { why }),
                None => None,
            };
            if let Some(ended) = ended {
                progress.end(&tried, ended, now());
                // A full disk must not keep a machine from its last good document. At the next start it is found again.
                if let Err(error) = kept.write_progress(&progress) {
                    log::log_error(&error, "the end of an assignment cannot be recorded");
                }
            }
        }
        kept.forget_unfinished();
        let (sender, report) = watch::channel(Report::default());
        let node = Node {
            kept,
            progress: watch::Sender::new(progress),
            settings: watch::Sender::new(settings),
            own: watch::Sender::new(Arc::clone(own)),
            postponed: watch::Sender::new(None),
        };
        Ok(Fleet {
            local,
            own_trouble: None,
            node: Arc::new(node),
            report,
            sender: Some(sender),
            answered: None,
            unknown,
            postponed: None,
        })
    }

    fn is_started(&self) -> bool {
        self.sender.is_none()
    }

    /// Reads the machine's own document again, which says how the fleet is reached.
    async fn read_own(&mut self) {
        let Local::Files(files) = &mut self.local else { return };
        self.own_trouble = match files.answer().await {
            Answer::DesiredState(document) => self.take_own(document).err(),
            Answer::Unknown { why } => Some(why),
            Answer::Nothing => None,
        };
    }

    fn take_own(&mut self, document: Arc<Document>) -> Result<()> {
        let settings = FleetSettings::of(&document);
        let is_same = |new: &&FleetSettings| new.fleet == self.node.settings.borrow().fleet;
        let Some(settings) = settings.filter(is_same).cloned() else {
            return Err(helped(
                "the machine's own document names another fleet, or none",
                "restart the daemon for it",
            ));
        };
        self.node.own.send_replace(document);
        self.node.settings.send_if_modified(|known| {
            let is_new = *known != settings;
            *known = settings;
            is_new
        });
        Ok(())
    }

    /// Why this machine does not have what its fleet wants, if it is so.
    fn trouble(&mut self) -> Option<anyhow::Error> {
        if let Some(why) = self.own_trouble.take() {
            return Some(why);
        }
        if let Some(trouble) = self.report.borrow().trouble.clone() {
            return Some(trouble.into());
        }
        let progress = self.node.progress.borrow();
        let generation = progress.accepted.map_or(0, |accepted| accepted.generation);
        match &progress.stage {
            Stage::Trial | Stage::Good => None,
            Stage::RolledBack { why } => Some(helped(
                format!("generation {generation} of the fleet was tried and rolled back: {why}"),
                "it is not tried again; the fleet has to assign a new generation",
            )),
            Stage::Refused { why } => {
                Some(anyhow!("generation {generation} of the fleet cannot be applied here: {why}"))
            }
        }
    }

    /// Loads beside the thread of the daemon, once that runs.
    async fn load(&self, document: Digest) -> Result<Arc<Document>, Unloadable> {
        if !self.is_started() {
            return self.node.load(&document);
        }
        let node = Arc::clone(&self.node);
        let loaded = spawn_blocking(move || node.load(&document)).await;
        loaded.unwrap_or_else(|error| Err(Unloadable::NotHere(error.into())))
    }

    async fn current(&mut self) -> Answer<Document, anyhow::Error> {
        if let Some(failure) = &self.unknown {
            return Answer::Unknown { why: failure.clone().into() };
        }
        let progress = self.node.progress();
        self.answered = None;
        if let Some(tried) = progress.to_try().filter(|_| self.is_started()) {
            return match self.load(tried.document).await {
                Ok(document) => {
                    self.answered = Some(*tried);
                    Answer::DesiredState(document)
                }
                // The agent fetches it again.
                Err(Unloadable::NotHere(why)) => Answer::Unknown { why },
                Err(Unloadable::Unusable(error)) => {
                    let why = plain_text(&error);
                    self.node.end(tried, Ended::Refused { why });
                    Answer::Unknown { why: error }
                }
            };
        }
        if self.is_started()
            && let Some(why) = self.trouble()
        {
            return Answer::Unknown { why };
        }
        match progress.good {
            None => Answer::DesiredState(Arc::clone(&self.node.own.borrow())),
            Some(good) => match self.load(good.document).await {
                Ok(document) => Answer::DesiredState(document),
                Err(why) => Answer::Unknown { why: why.into() },
            },
        }
    }
}

impl Provider for Fleet {
    type DesiredState = Document;
    type Error = anyhow::Error;

    fn answer(&mut self) -> Later<'_, Answer<Document, anyhow::Error>> {
        Box::pin(async {
            if self.is_started() {
                self.read_own().await;
            }
            self.report.mark_unchanged();
            self.current().await
        })
    }

    fn changed(&mut self) -> Later<'_, ()> {
        let Fleet { local, report, postponed, .. } = self;
        let own = match local {
            Local::Url => Box::pin(std::future::pending()),
            Local::Files(files) => files.changed(),
        };
        Box::pin(async {
            let reported = async {
                if report.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let again = async {
                let again_at = postponed.as_mut().map(|postponed| &mut postponed.again_at);
                match again_at {
                    Some(again_at @ Some(_)) => {
                        sleep_until(again_at.unwrap_or_else(Instant::now)).await;
                        *again_at = None;
                    }
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                () = reported => {}
                () = own => {}
                () = again => {}
            }
        })
    }

    fn judged(&mut self, verdict: Verdict) {
        self.postponed = None;
        self.node.postponed.send_replace(None);
        if let (Verdict::Refused { why }, Some(tried)) = (verdict, self.answered.take()) {
            self.node.end(&tried, Ended::Refused { why });
        }
    }
}

impl DocumentProvider for Fleet {
    fn start(&mut self, daemon: DaemonView) {
        if let Some(report) = self.sender.take()
            && self.unknown.is_none()
        {
            let (node, report) = (Arc::clone(&self.node), Arc::new(report));
            let sender = Arc::clone(&report);
            let run = move || agent::run(Arc::clone(&node), daemon.clone(), Arc::clone(&sender));
            tokio::spawn(supervisor::supervise(run, report));
        }
    }

    fn trial(&self) -> Option<NodeTrial> {
        let assignment = self.answered?;
        let terms = self.node.progress().terms?;
        let settings = self.node.settings.borrow().clone();
        let accepts = |what: &str| terms.accept.iter().any(|accepted| accepted == what);
        let leave = Leave {
            mass_delete: accepts("mass-delete"),
            cascades: accepts("cascades"),
            losses: false,
        };
        // A new connection each time: an old one may pass a firewall that no new one passes.
        let config = settings.config().with_spread(Duration::ZERO).with_deadline(REACH);
        let reach = move || -> Later<'static, Result<(), String>> {
            let store = EtcdStore::new(config.clone());
            Box::pin(async move { is_reached(&store.status().await.map(drop)) })
        };
        Some(NodeTrial {
            assignment,
            within: terms.confirm_within.get(),
            settle: terms.settle.get().max(settings.settle),
            checks: settings.checks,
            leave,
            losses: losses(terms.class),
            reach: Arc::new(reach),
        })
    }

    fn tried(&mut self, assignment: &Accepted, rolled_back: Option<&str>) {
        let ended = match rolled_back {
            None => Ended::Good,
            Some(why) => Ended::RolledBack { why: why.to_owned() },
        };
        self.node.end(assignment, ended);
    }

    fn postponed(&mut self, why: &str) {
        let Some(tried) = self.answered.take() else { return };
        let before = self.postponed.take().filter(|before| before.tried == tried);
        let failures = before.map_or(1, |before| before.failures.saturating_add(1));
        let again_at = Some(Instant::now() + AGAIN.nth(failures));
        self.postponed = Some(Postponed { tried, failures, again_at });
        self.node.postponed.send_replace(Some(why.to_owned()));
    }

    fn fleet(&self) -> Option<FleetSettings> {
        Some(self.node.settings.borrow().clone())
    }

    fn is_open_ended(&self) -> bool {
        true
    }
}

/// What a signed class lets a trial do. What could be put off until the confirm is held, too: the node confirms by
/// itself.
const fn losses(class: Class) -> Losses {
    match class {
        Class::Reversible => Losses::HoldCompensable,
        Class::Compensable => Losses::HoldAll,
        Class::Irreversible => Losses::Allow,
    }
}

/// Whether a member has answered. One that refuses has, too: the node may lack the right to ask for this.
fn is_reached(answer: &Result<(), StoreError>) -> Result<(), String> {
    match answer {
        Err(error @ (StoreError::Unreachable { .. } | StoreError::InDoubt { .. })) => {
            Err(error.to_string())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_refuses_to_answer_is_reached() {
        let why = || "x".to_owned();
        assert_eq!(is_reached(&Ok(())), Ok(()));
        assert_eq!(is_reached(&Err(StoreError::Denied { why: why() })), Ok(()));
        assert_eq!(is_reached(&Err(StoreError::NoLeader)), Ok(()));
        assert!(is_reached(&Err(StoreError::Unreachable { why: why() })).is_err());
    }
}
