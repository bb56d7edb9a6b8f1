//! The daemon: one loop per source and scope of a document, kept in step with the document and with
//! the namespaces that come and go.
//!
//! The daemon itself runs on one thread and each loop on one of its own; what may wait for `nft` or the disk runs
//! beside them. Start at [`Daemon::run`].

mod answers;
mod capabilities;
mod clients;
pub(crate) mod clock;
mod command;
mod drift;
mod elections;
mod firewall;
mod headline;
mod health;
pub(crate) mod http;
mod interfaces;
mod live;
pub(crate) mod log;
mod loop_threads;
mod loops_snapshot;
mod metrics;
mod namespace_watch;
mod pieces;
mod provider_health;
mod readers;
mod recent;
mod scopes;
mod socket;
#[cfg(test)]
mod stall_tests;
mod systemd;
pub(crate) mod trial;
#[cfg(test)]
mod verdict_tests;
mod view;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use homeostat_document::{Document, OnStop as StopPolicy};
use homeostat_engine::{Control, Events, Failure, Ledger, Losses, OnStop};
use homeostat_kit::provider::{Answer, Verdict};
use homeostat_registry::{Caller, CapabilitySet, CommandDeps};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::Level;

use crate::commands::plan::plan;
use crate::confirmed::{self, ConfirmedDocuments, Entry, Origin, RecordedTrial};
use crate::context::Context;
use crate::failure::{self, helped};
use crate::orders::{OrderGate, OrderedAction, Right};
use crate::person::Person;
use crate::pieces::Pieces;
use crate::provider::{DocumentProvider, NodeTrial, load};
use crate::referenced_files::ReferencedFiles;
use crate::wire::{Handed, Leave};
use answers::{Answers, note_order};
use clock::{BootTime, Stamp};
use command::{Carried, CommandRequest, DaemonCommand, DaemonHandle, Touched, TrialRequest};
use elections::Elections;
use http::{About, Listen};
use loops_snapshot::LoopsSnapshot;
use namespace_watch::{Names, NamespaceWatch};
use provider_health::ProviderHealth;
pub(crate) use readers::Readers;
use recent::Recent;
use scopes::{Arrangement, Recipients, Scopes};
use socket::ControlSocket;
use systemd::Systemd;
use trial::{NextDocument, Trial, Trials, Tried};
pub(crate) use view::DaemonView;

/// What lets a node of a fleet do what it holds back.
const SIGNED_CLASS: &str = "a higher `--class` of `homeostat fleet sign`";

/// How long a stop may take before the program ends all the same.
const STOP: Duration = Duration::from_millis(900);

/// How long the rollback of an open trial may take at a stop. The next process that takes the lock finishes it.
const STOP_ROLLBACK: Duration = Duration::from_secs(8);

/// How a daemon was asked to run.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) from: Vec<PathBuf>,
    /// The confirmed document that the daemon begins with, and why it is not the provider's.
    pub(crate) fallback: Option<Fallback>,
    /// The document that was tried and confirmed since the provider's last changed.
    pub(crate) newer: Option<Newer>,
    /// Whether the daemon begins with a document that was rolled back, since none was ever confirmed.
    pub(crate) tried_before: bool,
    /// What the daemon is for.
    pub(crate) role: Role,
    /// A trial whose holder ended, and the document that it returns to: that comes before any other.
    pub(crate) left_trial: Option<(RecordedTrial, Arc<Document>)>,
    /// Another way to stop than the document says.
    pub(crate) on_stop: Option<StopPolicy>,
    /// Where status is read over HTTP.
    pub(crate) listen: Option<Listen>,
    /// Who may read status over the control socket.
    pub(crate) readers: Option<Readers>,
    /// What was put beside the document, if a document has it.
    pub(crate) pieces: Option<Pieces>,
    /// What is done once a trial can be handed over.
    pub(crate) ready: Option<Box<dyn FnOnce()>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// It keeps its document until it is stopped.
    #[default]
    Keep,
    /// It has no document of its own: it waits for one trial, and ends with it. `guarded` as in
    /// [`TrialRecord`](crate::confirmed::TrialRecord).
    HoldTrial { guarded: bool },
}

/// A confirmed document in place of the provider's.
pub(crate) struct Fallback {
    pub(crate) entry: Entry,
    /// Why the provider's cannot be taken.
    pub(crate) why: anyhow::Error,
}

/// A confirmed document that is newer than the provider's.
pub(crate) struct Newer {
    pub(crate) number: u64,
    pub(crate) document: Arc<Document>,
}

pub(crate) struct Daemon {
    context: Context,
    options: Options,
    provider: Box<dyn DocumentProvider>,
    health: ProviderHealth,
    /// The document in force.
    document: Arc<Document>,
    /// The provider's last good document, while another one is in force that was handed over.
    own: Option<Arc<Document>>,
    /// The number of the document in force, if it was handed over and is confirmed.
    handed_number: Option<u64>,
    /// What the files looked like that the provider's last good document names, when it was read.
    referenced: ReferencedFiles,
    /// The same of the document in force, when it was bound.
    bound: ReferencedFiles,
    /// Where the document in force came from, until it is confirmed by its first pass.
    unconfirmed: Option<Origin>,
    /// The number of the confirmed document in force, while the provider's cannot be taken.
    fallback: Option<u64>,
    /// Whether the document in force was rolled back before.
    tried_before: bool,
    trials: Trials,
    /// What was put beside the document.
    pieces: Option<Pieces>,
    /// How loops are bound until the passes of a rollback have run.
    rolls_back_as: Option<Caller>,
    /// Whether the client of the present command lets a trial do what cannot be undone.
    losses: Losses,
    /// What the client of the present command lets guards do, and by what right.
    asked: (Leave, Right),
    /// When the daemon ends at the latest, once it was asked to stop while a trial is open.
    stops_at: Option<BootTime>,
    ledger: Arc<dyn Ledger>,
    events: Events,
    recent: Recent,
    scopes: Scopes,
    elections: Elections,
    /// The capabilities that were kept, if any were dropped.
    allowed: Option<CapabilitySet>,
    snapshot: watch::Sender<LoopsSnapshot>,
}

/// Why the daemon wakes up.
enum Wake {
    /// The provider may have another document, or a signal asks for it again.
    Document(Recipients),
    /// A client asks for what only the daemon can do.
    Command(CommandRequest),
    /// Namespaces may have come or gone.
    Namespaces,
    /// This machine has become the one that acts on a shared target, or is it no longer.
    Elected,
    /// Every loop on this machine has made a full pass for the document in force.
    Passed,
    /// The open trial is to be rolled back, for this reason.
    RollBack(String),
    /// The passes of a rollback have run.
    RolledBack,
    /// The passes of a trial have run.
    Tried,
    /// The checks of the open trial were good often enough.
    ChecksAreGood,
    Stop,
}

impl Daemon {
    /// A daemon that begins with a document that its provider has just given.
    pub(crate) fn new(
        context: Context,
        provider: Box<dyn DocumentProvider>,
        document: Arc<Document>,
        ledger: Arc<dyn Ledger>,
        options: Options,
    ) -> Self {
        let mut context = context;
        context.caller.is_for_people = false;
        let from: Vec<_> = options.from.iter().map(|path| path.to_string_lossy()).collect();
        let from = from.join(" ");
        let recent = Recent::default();
        let mut options = options;
        let (fallback, newer) = (options.fallback.take(), options.newer.take());
        let (mut document, mut own, mut trials) = (document, None, Trials::default());
        let mut referenced = ReferencedFiles::of(&document);
        let handed_number = newer.as_ref().map(|newer| newer.number);
        if let Some(Newer { number, document: confirmed }) = newer {
            tracing::info!(number, "confirmed document in force, newer than the files");
            own = Some(std::mem::replace(&mut document, confirmed));
        }
        if let Some((left, before)) = options.left_trial.take() {
            trials.open = Some(Trial::left_by_another(left, own.clone()));
            // Then the provider's own document is taken.
            trials.next = (fallback.is_none() && own.is_none()).then_some(NextDocument::Taken);
            let replaced = std::mem::replace(&mut document, before);
            own.get_or_insert(replaced);
            if handed_number.is_none() {
                referenced = ReferencedFiles::of(&document);
            }
        }
        let health = match &fallback {
            None => ProviderHealth::new(&from),
            Some(Fallback { entry, why }) => {
                let confirmed_at = entry.confirmed_at.parse().unwrap_or_else(|_| Stamp::now());
                let mut health = ProviderHealth::good_until(&from, confirmed_at);
                refused(&mut health, why, &recent);
                log::log_error(why, "document refused at the start");
                tracing::error!(number = entry.number, "confirmed document in force");
                health
            }
        };
        let tried_before = options.tried_before;
        if tried_before {
            tracing::error!("document in force that was rolled back: none was ever confirmed");
            recent.record(Level::ERROR, "rolled-back-document-taken", json!({ "from": from }));
        }
        let pieces = options.pieces.take();
        let first = LoopsSnapshot { provider: Some(health.clone()), ..LoopsSnapshot::default() };
        Daemon {
            elections: Elections::new(context.caller.turns.clone()),
            context,
            options,
            provider,
            health,
            handed_number,
            referenced,
            bound: ReferencedFiles::of(&document),
            document,
            own,
            unconfirmed: None,
            fallback: fallback.map(|fallback| fallback.entry.number),
            tried_before,
            trials,
            pieces,
            rolls_back_as: None,
            losses: Losses::Hold,
            asked: (Leave::default(), Right::Own),
            stops_at: None,
            ledger,
            events: Events::default(),
            recent,
            scopes: Scopes::default(),
            allowed: None,
            snapshot: watch::channel(first).0,
        }
    }

    /// Drops what the document has no need of. Must come before any thread exists.
    pub(crate) fn confined(mut self) -> Result<Self> {
        let Daemon { context, document, ledger, .. } = &self;
        let mut allowed = match self.options.role {
            // They cannot know what will be tried.
            Role::HoldTrial { .. } => return Ok(self),
            Role::Keep if self.provider.is_open_ended() => return Ok(self),
            Role::Keep => {
                let needed = |document| capabilities::needed(context, document, &**ledger);
                let own = self.own.as_deref().map(needed).transpose()?;
                needed(document)? | own.unwrap_or(CapabilitySet::empty())
            }
        };
        if self.options.readers.is_some() {
            // To give the control socket to the group.
            allowed |= CapabilitySet::CHOWN;
        }
        capabilities::drop_others(allowed, context)?;
        self.allowed = Some(allowed);
        Ok(self)
    }

    /// The loops that run now.
    pub(crate) fn loops(&self) -> Vec<Arc<dyn Control>> {
        self.scopes.loops()
    }

    /// Keeps everything as declared until it is stopped, or until the process has ended that it was started for.
    pub(crate) async fn run(mut self) -> Result<End> {
        let (commands, requests) = DaemonHandle::new();
        let mut wakes = Wakes::new(requests)?;
        let (snapshot, recent) = (self.snapshot.subscribe(), self.recent.clone());
        let answers = Answers { snapshot, commands, recent };
        let about = About {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            owner: self.context.caller.owner.clone(),
            since: Instant::now(),
            confirmed: self.confirmed(),
        };
        interfaces::open(&self.events, self.options.listen, answers.clone(), about).await?;
        let _socket = ControlSocket::open(&self.context.socket, answers, self.options.readers)?;
        let systemd = Systemd::from_environment();
        // Later it is waited for.
        self.context.top_scope()?;
        let arranged = wakes.unless_stopped(self.begin()).await;
        self.provider.start(DaemonView::new(&self.snapshot, &self.events, &self.context));
        let mut goes_on = arranged.transpose()?.is_some();
        let mut end = End::Stopped;
        while goes_on {
            let places = self.scopes.places(&self.context, &self.document, &*self.ledger);
            let reach = if self.document.patterns.is_empty() { Names::These } else { Names::All };
            wakes.namespaces.watch_places(&places, reach);
            if self.context.top_process().is_some_and(|pid| wakes.namespaces.has_ended(pid)) {
                end = End::ProcessEnded;
                break;
            }
            let (passed, trial, stops_at) = (self.passed(), trial::next_wake(&self), self.stops_at);
            let elected = self.elections.changed();
            let wake = wakes.next(&mut self.provider, passed, trial, elected, stops_at).await;
            let handled = match wake {
                Wake::Stop => None,
                wake => wakes.unless_stopped(self.handle(wake, &systemd)).await,
            };
            if handled.is_none() {
                // The second time nothing is waited for.
                let stopped = self.stops_at.is_none();
                goes_on =
                    stopped && wakes.unless_stopped(self.roll_back_at_stop()).await == Some(true);
            }
            goes_on &= self.stops_at.is_none() || self.trials.open.is_some();
        }
        systemd.stopping();
        self.stop().await;
        Ok(end)
    }

    /// Starts the loops; or, where only a trial is held, takes the lock that is needed for it.
    async fn begin(&mut self) -> Result<()> {
        if let Role::HoldTrial { .. } = self.options.role {
            self.scopes.hold(&self.context, &*self.ledger)?;
            self.publish();
            if let Some(ready) = self.options.ready.take() {
                ready();
            }
            return Ok(());
        }
        if let Some(trial) = &self.trials.open {
            tracing::warn!(
                trial = trial.record.id,
                "a trial was left open: it is rolled back first"
            );
            let why = trial.record.why_left();
            trial::roll_back_or_retry(self, why).await;
        } else {
            self.arrange(Recipients::Changed).await?;
        }
        if self.fallback.is_none() {
            let is_own = self.trials.open.is_none() && self.own.is_none();
            self.unconfirmed = self.origin().ok().filter(|_| is_own);
            self.provider.judged(Verdict::Accepted);
        } else {
            let why = self.health.failure.as_ref().map(|failure| failure.error.clone());
            self.provider.judged(Verdict::Refused { why: why.unwrap_or_default() });
        }
        Ok(())
    }

    /// The daemon was asked to stop. Returns whether it must go on because a trial is open: an open trial never outlives
    /// its holder.
    async fn roll_back_at_stop(&mut self) -> bool {
        if self.trials.open.is_none() {
            return false;
        }
        self.stops_at = Some(BootTime::after(STOP_ROLLBACK));
        trial::roll_back_or_retry(self, "the daemon that held it was stopped").await;
        true
    }

    async fn handle(&mut self, wake: Wake, systemd: &Systemd) {
        match wake {
            Wake::Stop => {}
            Wake::Namespaces => {
                // An error in one namespace does not affect the others.
                if let Err(error) = self.arrange_namespaces().await {
                    log::log_error(&error, "namespaces cannot be arranged");
                }
            }
            Wake::Elected => {
                if let Err(error) = self.arrange(Recipients::Changed).await {
                    log::log_error(&error, "loops cannot be arranged after an election");
                }
            }
            Wake::Document(recipients) => {
                systemd.reloading();
                if let Err(error) = self.reload(recipients, None).await {
                    log::log_error(&error, "document refused");
                }
                systemd.reloaded();
            }
            Wake::Command(request) => self.handle_command(request).await,
            Wake::Passed => self.confirm().await,
            Wake::RollBack(why) => trial::roll_back_or_retry(self, &why).await,
            Wake::Tried => trial::judge(self).await,
            Wake::ChecksAreGood => trial::confirm_by_checks(self).await,
            Wake::RolledBack => {
                trial::rolled_back(self).await;
                self.reload_edit().await;
            }
        }
    }

    /// Waits until the document in force, if it is not confirmed, has had its first pass.
    fn passed(&self) -> impl Future<Output = ()> + use<> {
        let unconfirmed = self.unconfirmed.as_ref().map(|_| self.snapshot.borrow().clone());
        async {
            match unconfirmed {
                Some(loops) => loops.wait_until_passed().await,
                None => std::future::pending().await,
            }
        }
    }

    fn confirmed(&self) -> ConfirmedDocuments {
        ConfirmedDocuments::of(&self.context.caller.state_dir, &self.context.caller.owner)
    }

    /// Where the provider's document comes from.
    fn origin(&self) -> Result<Origin> {
        Ok(Origin {
            from: self.options.from.iter().map(|path| confirmed::absolute(path)).collect(),
            scope: self.context.top_scope()?.name,
            applied_by: Person::current(),
            confirmed_by: None,
        })
    }

    /// Keeps the document in force, with the files that it names. The disk may be slow or full, which holds up nothing.
    async fn confirm(&mut self) {
        let Some(origin) = self.unconfirmed.take() else { return };
        let (document, files) = (Arc::clone(&self.document), self.bound.clone());
        let confirmed = self.confirmed();
        let kept =
            tokio::task::spawn_blocking(move || confirmed.add(&document, &files, origin)).await;
        match kept.map_err(Into::into).flatten() {
            Ok(number) => {
                self.recent.record(Level::INFO, "document-confirmed", json!({ "number": number }));
            }
            Err(error) => {
                log::log_error(&error, "the document in force is not kept");
                let fields =
                    json!({ "error": failure::text(&error), "help": failure::help(&error) });
                self.recent.record(Level::ERROR, "document-not-kept", fields);
            }
        }
    }

    /// Brings the loops in line with the document and with the namespaces that are there. Those of
    /// our own come first, since the others may be inside.
    async fn arrange(&mut self, recipients: Recipients) -> Result<()> {
        let context = &self.loop_context();
        self.elections.follow(&self.document, self.provider.fleet().as_ref()).await;
        let Daemon { document, ledger, events, scopes, .. } = self;
        let by = Arrangement { context, document, ledger, events, recipients };
        let arranged = scopes.arrange(by).await;
        self.publish();
        arranged
    }

    /// A rollback goes on as it was begun until its passes have run, whatever else the loops are arranged for meanwhile: at
    /// a boot namespaces come while the target of a source is not there yet. An open trial keeps what it was allowed: what
    /// it has put off until the confirm is planned again by each pass.
    fn loop_context(&self) -> Context {
        let mut context = self.context.clone();
        if let Some(caller) = &self.rolls_back_as {
            context.caller = caller.clone();
        } else if let Some(granted) = self.trials.granted() {
            context.caller.guards = granted.apply(context.caller.guards);
        }
        context
    }

    /// The same for namespaces that came or went. Files that the document names and that have changed since it was
    /// taken are being written, or come with the next document: it is not bound by them before.
    async fn arrange_namespaces(&mut self) -> Result<()> {
        self.scopes.end_gone(&self.context).await;
        self.publish();
        self.bound.check_unchanged(&self.document)?;
        self.arrange(Recipients::Changed).await
    }

    /// Publishes what runs, for status.
    fn publish(&self) {
        // Commands need the lock of the first scope.
        let top = self.context.top_scope().ok();
        let lock = top.and_then(|top| self.scopes.lock(&top.name));
        self.snapshot.send_replace(LoopsSnapshot {
            loops: self.scopes.loops(),
            waiting: self.scopes.waiting(),
            is_arranged: true,
            commands: lock
                .map(|lock| CommandDeps { memory: self.context.caller.memory.clone(), lock }),
            is_handed: self.own.is_some(),
            handed_number: self.handed_number.filter(|_| self.own.is_some()),
            fallback: self.fallback,
            tried_before: self.tried_before,
            trials: self.trials.clone(),
            provider: Some(self.health.clone()),
            orders: self.orders(),
            document: Some(Arc::clone(&self.document)),
            invocation: self.context.invocation(),
            memory: self.context.caller.memory.clone(),
            turns: self.context.caller.turns.clone(),
            patterns: self.scopes.patterns(),
            pieces: self.pieces.as_ref().map(Pieces::status).unwrap_or_default(),
        });
    }

    /// Runs the command of a client, and answers with the result.
    async fn handle_command(&mut self, request: CommandRequest) {
        let guards = self.context.caller.guards;
        self.context.caller.guards = request.leave.apply(guards);
        self.losses = if request.leave.losses { Losses::Allow } else { Losses::Hold };
        self.asked = (request.leave, request.right);
        let mut touched = Touched::All;
        let done = match request.command {
            DaemonCommand::Arrange => match self.check_order(&Arc::clone(&self.document)).await {
                Ok(()) => self.arrange(Recipients::AllForClient).await,
                refused => refused,
            },
            DaemonCommand::ArrangeChanged => self.arrange(Recipients::ChangedForClient).await,
            DaemonCommand::PutPiece { name, piece } => {
                pieces::put(self, name, piece).await.map(|scopes| touched = scopes)
            }
            DaemonCommand::DropPiece { name, by } => {
                pieces::drop_piece(self, name, &by).await.map(|scopes| touched = scopes)
            }
            DaemonCommand::Reload => self.reload(Recipients::AllForClient, None).await,
            DaemonCommand::TakeDocument { handed, trial } => self.take_handed(&handed, trial).await,
            DaemonCommand::Confirm { extend: Some(during), .. } => trial::extend(self, during),
            DaemonCommand::Confirm { by, same_session, .. } => {
                trial::confirm(self, &by, same_session).await
            }
            DaemonCommand::TryOlder { number, trial } => self.try_older(number, trial).await,
            DaemonCommand::RollBack { .. } if self.needs_order() => Err(helped(
                "a rollback takes no order",
                "leave out the flags that let it delete more than the trial may",
            )),
            DaemonCommand::RollBack { by } => {
                trial::roll_back(self, &format!("{by} asked for it"), Recipients::AllForClient)
                    .await
            }
        };
        self.context.caller.guards = guards;
        self.losses = Losses::Hold;
        self.asked = (Leave::default(), Right::Own);
        let started = self.scopes.take_started();
        // The client may be gone; it was done all the same.
        let _ = request.answer.send(done.map(|()| Carried { started, touched }));
        self.reload_edit().await;
    }

    /// Which commands need an order: by the document in force, and by that of the provider.
    fn orders(&self) -> OrderGate {
        let (caller, settings) = (&self.context.caller, &self.document.settings);
        let gate = match self.options.role {
            Role::Keep => OrderGate::of(caller, settings),
            Role::HoldTrial { .. } => OrderGate::where_no_daemon_runs(caller, settings),
        };
        let own = self.own.as_ref();
        own.map_or(gate.clone(), |own| gate.and(&own.settings))
    }

    fn needs_order(&self) -> bool {
        let (leave, right) = &self.asked;
        self.orders().must_know(right, &leave.actions())
    }

    /// Lets the present command of a client be carried out with this document, once it is known what would be done.
    async fn check_order(&self, document: &Arc<Document>) -> Result<()> {
        let (leave, right) = &self.asked;
        let (gate, actions) = (self.orders().and(&document.settings), leave.actions());
        if !gate.must_know(right, &actions) {
            return Ok(());
        }
        let (context, document) = (self.context.clone(), Arc::clone(document));
        let planned = tokio::task::spawn_blocking(move || {
            OrderedAction::of_plan(actions, &plan(&context, &document)?)
        });
        let checked = gate.check(right, planned.await??).await;
        note_order(&self.recent, &checked);
        checked.map(drop)
    }

    /// Takes the document that was edited during a trial, once that has ended.
    async fn reload_edit(&mut self) {
        if self.trials.open.is_none()
            && self.stops_at.is_none()
            && let Some(next) = self.trials.next.take()
            && let Err(error) = self.reload(Recipients::Changed, Some(next)).await
        {
            log::log_error(&error, "document refused");
        }
    }

    /// Asks the provider again. A document that is unknown or cannot be taken is refused, and the last good
    /// one stays in force. Status and events say so until the provider has a good one.
    async fn reload(&mut self, recipients: Recipients, next: Option<NextDocument>) -> Result<()> {
        if let Some(trial) = &self.trials.open {
            // It would end the trial.
            self.trials.next = Some(trial.next_document());
            self.publish();
            return match recipients {
                Recipients::Changed => Ok(()),
                Recipients::All | Recipients::AllForClient | Recipients::ChangedForClient => {
                    Err(helped(
                        "a trial is open: the document is read again when it has ended",
                        "`homeostat confirm` or `homeostat rollback` ends it",
                    ))
                }
            };
        }
        let reloaded = match self.provider.answer().await {
            Answer::DesiredState(document) => {
                let taken = match self.with_pieces(document) {
                    Ok(document) => {
                        self.check_order(&document).await?;
                        self.take_provided(document, recipients, next).await
                    }
                    Err(error) => Err(error),
                };
                match &taken {
                    Ok(_) => self.provider.judged(Verdict::Accepted),
                    Err(error) if error.is::<NotBegun>() => {
                        self.provider.postponed(&failure::text(error));
                    }
                    Err(error) => {
                        self.provider.judged(Verdict::Refused { why: failure::text(error) });
                    }
                }
                taken
            }
            Answer::Unknown { why } => Err(why),
            Answer::Nothing => Err(anyhow!("the provider has no document any more")),
        };
        let from = self.health.from.to_string();
        match &reloaded {
            Err(error) => refused(&mut self.health, error, &self.recent),
            Ok(Reloaded::Unchanged) if self.health.failure.is_none() => self.health.succeed(),
            Ok(_) => {
                self.health.succeed();
                self.recent.record(Level::INFO, "document-accepted", json!({ "from": from }));
            }
        }
        self.publish();
        reloaded.map(drop)
    }

    /// Takes the provider's document. One that is the same is only taken if a client or a signal asked for it.
    async fn take_provided(
        &mut self,
        document: Arc<Document>,
        recipients: Recipients,
        next: Option<NextDocument>,
    ) -> Result<Reloaded> {
        let known = self.own.as_ref().unwrap_or(&self.document);
        let referenced = ReferencedFiles::of(&document);
        let is_same = document == *known && referenced == self.referenced;
        if is_same && let Some(trial) = self.provider.trial() {
            // Nothing changes, so there is nothing to try.
            self.provider.tried(&trial.assignment, None);
        }
        if is_same && recipients == Recipients::Changed {
            return Ok(Reloaded::Unchanged);
        }
        let is_asked_for = recipients != Recipients::Changed;
        // The document of the start, once a trial that was left open has ended.
        let is_of_start = matches!(next, Some(NextDocument::Taken));
        if let Some(trial) = self.provider.trial().filter(|_| !is_same) {
            self.try_assignment(document, trial, recipients).await?;
        } else {
            if !is_same {
                trial::begin_for_edit(self, &document, is_asked_for, next).await?;
            }
            self.take_tried(document, recipients).await?;
        }
        (self.own, self.referenced, self.fallback) = (None, referenced, None);
        self.handed_number = None;
        self.tried_before &= is_same || is_of_start;
        self.unconfirmed = self.origin().ok().filter(|_| self.trials.open.is_none());
        Ok(Reloaded::Taken)
    }

    /// Takes what a fleet assigned, in a trial that the node decides by itself.
    async fn try_assignment(
        &mut self,
        document: Arc<Document>,
        trial: NodeTrial,
        recipients: Recipients,
    ) -> Result<()> {
        let guards = self.context.caller.guards;
        self.context.caller.guards = trial.leave.apply(guards);
        // Whoever reads why something is held can only sign anew.
        self.context.caller.guards.options.losses = SIGNED_CLASS;
        self.losses = trial.losses;
        let begun = trial::begin_for_node(self, &document, &trial).await;
        let mut taken = begun.map_err(|error| error.context(NotBegun));
        if taken.is_ok() {
            taken = self.take_tried(document, recipients).await;
        }
        (self.context.caller.guards, self.losses) = (guards, Losses::Hold);
        taken?;
        trial::watch_node(self, trial)
    }

    /// Takes a document in place of the provider's, until that one changes or is asked for again.
    async fn take_handed(&mut self, handed: &Handed, trial: Option<TrialRequest>) -> Result<()> {
        command::check_meant_for(&self.context, handed)?;
        if trial.is_none() && self.options.role != Role::Keep && self.trials.open.is_none() {
            return Err(helped(
                "the holder of a trial that has ended is about to end, and takes no other document",
                "apply it again in a moment",
            ));
        }
        let document = self.with_pieces(Arc::new(load(&handed.paths)?))?;
        if trial.is_none() && self.trials.open.is_some() {
            return Err(helped(
                "a trial is open, and another document would end it",
                "`homeostat confirm` or `homeostat rollback` ends it",
            ));
        }
        self.check_order(&document).await?;
        self.take_other(document, trial, handed.paths.clone()).await
    }

    /// Tries a confirmed document again.
    async fn try_older(&mut self, number: u64, trial: TrialRequest) -> Result<()> {
        let confirmed = self.confirmed();
        let entry = confirmed.entry(number)?;
        let document = self.with_pieces(Arc::new(confirmed.load(&entry)?))?;
        self.check_order(&document).await?;
        self.take_other(document, Some(trial), entry.origin.from).await
    }

    /// A document with the pieces that were put beside it.
    fn with_pieces(&mut self, document: Arc<Document>) -> Result<Arc<Document>> {
        match &mut self.pieces {
            Some(pieces) if self.provider.fleet().is_none() => pieces.join(document),
            _ => Ok(document),
        }
    }

    async fn take_other(
        &mut self,
        document: Arc<Document>,
        trial: Option<TrialRequest>,
        from: Vec<PathBuf>,
    ) -> Result<()> {
        if let Some(request) = trial {
            trial::begin(self, &document, request, from, Tried::HandedOver).await?;
        }
        let before = Arc::clone(&self.document);
        self.take_tried(document, Recipients::AllForClient).await?;
        self.own.get_or_insert(before);
        self.handed_number = None;
        self.tried_before = false;
        // It is in force until the files change, and no longer.
        self.unconfirmed = None;
        self.publish();
        Ok(())
    }

    /// Takes a document; a trial that was begun for it ends if it cannot be taken.
    async fn take_tried(&mut self, document: Arc<Document>, recipients: Recipients) -> Result<()> {
        let taken = self.take(document, recipients).await;
        if let (Err(error), Some(_)) = (&taken, &self.trials.open) {
            trial::abandon(self, error).await;
        }
        taken
    }

    async fn take(&mut self, document: Arc<Document>, recipients: Recipients) -> Result<()> {
        self.context.check_same(&document.settings)?;
        if let Some(allowed) = self.allowed {
            let needed = capabilities::needed(&self.loop_context(), &document, &*self.ledger)?;
            capabilities::check(allowed, needed)?;
        }
        let bound = ReferencedFiles::of(&document);
        let before = std::mem::replace(&mut self.document, document);
        if let Err(error) = self.arrange(recipients).await {
            self.document = before;
            return Err(error.context("the document is refused, and the last good one stands"));
        }
        self.bound = bound;
        Ok(())
    }

    async fn stop(mut self) {
        let declared = self.document.settings.on_stop.as_ref().map(|policy| policy.value);
        let policy = match self.options.on_stop.or(declared) {
            None | Some(StopPolicy::Leave) => OnStop::Leave,
            Some(StopPolicy::Release) => OnStop::Release,
            Some(StopPolicy::Revert) => OnStop::Revert,
        };
        let stopped = futures_util::future::join_all(
            self.loops().into_iter().map(|control| async move { control.stop(policy).await }),
        );
        // A loop that is in the middle of something long is left: what it wrote carries our mark.
        let _ = tokio::time::timeout(STOP, stopped).await;
        self.elections.stop().await;
    }
}

/// The trial of a document could not begin, for a reason that is not in the document.
#[derive(Debug, thiserror::Error)]
#[error("the trial of the document cannot begin now")]
struct NotBegun;

/// Makes a document that cannot be taken visible in status, events and metrics.
fn refused(health: &mut ProviderHealth, error: &anyhow::Error, recent: &Recent) {
    let from = health.from.to_string();
    let Failure { error, help, .. } = health.fail(error);
    let fields = json!({ "from": from, "error": error, "help": help });
    recent.record(Level::ERROR, "document-refused", fields);
}

/// Why the daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Stopped,
    /// The process of `--netns PID`.
    ProcessEnded,
}

/// What the daemon did with a good document.
enum Reloaded {
    Unchanged,
    Taken,
}

/// Everything that wakes the daemon, beside the provider.
struct Wakes {
    commands: mpsc::Receiver<CommandRequest>,
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    namespaces: NamespaceWatch,
}

impl Wakes {
    fn new(commands: mpsc::Receiver<CommandRequest>) -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Wakes {
            commands,
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
            namespaces: NamespaceWatch::open()?,
        })
    }

    /// Waits for work that may take long, unless the daemon is stopped meanwhile.
    async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let Wakes { terminate, interrupt, .. } = self;
        tokio::select! {
            done = work => Some(done),
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
        }
    }

    async fn next(
        &mut self,
        provider: &mut Box<dyn DocumentProvider>,
        passed: impl Future<Output = ()>,
        trial: impl Future<Output = Wake>,
        elected: impl Future<Output = ()>,
        stops_at: Option<BootTime>,
    ) -> Wake {
        let stops = async {
            match stops_at {
                Some(time) => time.wait().await,
                None => std::future::pending().await,
            }
        };
        let Wakes { commands, terminate, interrupt, hangup, namespaces } = self;
        tokio::select! {
            _ = terminate.recv() => Wake::Stop,
            _ = interrupt.recv() => Wake::Stop,
            _ = hangup.recv() => Wake::Document(Recipients::All),
            Some(request) = commands.recv() => Wake::Command(request),
            () = provider.changed() => Wake::Document(Recipients::Changed),
            () = namespaces.changed() => Wake::Namespaces,
            () = elected => Wake::Elected,
            () = passed => Wake::Passed,
            wake = trial => wake,
            () = stops => Wake::Stop,
        }
    }
}
