//! The daemon: one loop per source and scope of a document, kept in step with the document and with
//! the namespaces that come and go.
//!
//! Everything runs on one thread, but for what has to wait for `nft`. Start at [`Daemon::run`].

mod answers;
pub(crate) mod capabilities;
pub(crate) mod clock;
mod command;
mod firewall;
pub(crate) mod http;
mod interfaces;
mod json;
pub(crate) mod log;
mod loop_threads;
mod metrics;
mod namespace_watch;
mod provider_health;
mod readers;
mod recent;
mod scopes;
mod socket;
#[cfg(test)]
mod stall_tests;
mod standing;
mod systemd;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use homeostat_document::{Document, OnStop as Declared};
use homeostat_engine::{Control, Events, Ledger, OnStop};
use homeostat_kit::provider::{Answer, Verdict};
use homeostat_registry::CommandDeps;
use serde_json::Map;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tracing::Level;

use crate::context::Context;
use crate::provider::{DocumentProvider, load};
use crate::referenced_files::ReferencedFiles;
use crate::wire::Handed;
use answers::Answers;
use capabilities::Allowed;
use command::{CommandRequest, DaemonCommand, DaemonHandle};
use http::Listen;
use interfaces::Interfaces;
use namespace_watch::NamespaceWatch;
use provider_health::ProviderHealth;
pub(crate) use readers::Readers;
use recent::Recent;
use scopes::{Recipients, Scopes};
use socket::ControlSocket;
use standing::Standing;

/// What a stop may take before the program ends all the same.
const STOP: Duration = Duration::from_millis(900);

/// How a daemon was asked to run.
#[derive(Default)]
pub(crate) struct Options {
    /// The provider's arguments, for status and events.
    pub(crate) from: String,
    /// Another way to stop than the document says.
    pub(crate) on_stop: Option<OnStop>,
    /// Where status is read over HTTP.
    pub(crate) listen: Option<Listen>,
    /// Who may read status over the control socket.
    pub(crate) readers: Option<Readers>,
}

/// A running daemon.
pub(crate) struct Daemon {
    context: Context,
    options: Options,
    provider: DocumentProvider,
    health: ProviderHealth,
    /// The document in force.
    document: Arc<Document>,
    /// The provider's last good document, while another one is in force that was handed over.
    own: Option<Arc<Document>>,
    /// What the files looked like that the provider's last good document names, when it was read.
    referenced: ReferencedFiles,
    ledger: Arc<dyn Ledger>,
    events: Events,
    recent: Recent,
    scopes: Scopes,
    /// The capabilities that were kept, if any were dropped.
    allowed: Option<Allowed>,
    standing: watch::Sender<Standing>,
}

/// Why the daemon wakes up.
enum Wake {
    /// The provider may have another document.
    Changed,
    /// Somebody wants the provider asked again.
    Reload,
    /// A client asks for what only the daemon can do.
    Command(CommandRequest),
    /// Namespaces may have come or gone.
    Namespaces,
    Stop,
}

impl Daemon {
    /// A daemon that begins with a document that its provider has just given.
    pub(crate) fn new(
        context: Context,
        provider: DocumentProvider,
        document: Arc<Document>,
        ledger: Arc<dyn Ledger>,
        options: Options,
    ) -> Self {
        let mut context = context;
        context.caller.is_for_people = false;
        let health = ProviderHealth::new(&options.from);
        let first = Standing { provider: Some(health.clone()), ..Standing::default() };
        Daemon {
            context,
            options,
            provider,
            health,
            referenced: ReferencedFiles::of(&document),
            document,
            own: None,
            ledger,
            events: Events::default(),
            recent: Recent::default(),
            scopes: Scopes::default(),
            allowed: None,
            standing: watch::channel(first).0,
        }
    }

    /// Drops what the document has no need of. Must come before any thread exists.
    pub(crate) fn confined(mut self) -> Result<Self> {
        let Daemon { context, document, ledger, .. } = &self;
        let mut allowed = Allowed::for_document(context, document, &**ledger)?;
        if self.options.readers.is_some() {
            allowed = allowed.and_chown();
        }
        allowed.drop_others(context)?;
        self.allowed = Some(allowed);
        Ok(self)
    }

    /// The loops that run now.
    pub(crate) fn loops(&self) -> Vec<Arc<dyn Control>> {
        self.scopes.loops()
    }

    /// Keeps everything as declared until it is stopped.
    pub(crate) async fn run(mut self) -> Result<()> {
        let (handle, commands) = DaemonHandle::new();
        let mut wakes = Wakes::new(commands)?;
        let listen = self.options.listen;
        let standing = self.standing.subscribe();
        let interfaces =
            Interfaces::open(&self.events, listen, standing, self.recent.clone()).await?;
        let answers = Answers::new(&self.standing, handle, self.recent.clone());
        let _socket = ControlSocket::open(&self.context.socket, answers, self.options.readers)?;
        tokio::spawn(log::follow(self.events.subscribe()));
        let arranged = wakes.unless_stopped(self.arrange(Recipients::Changed)).await;
        let mut goes_on = arranged.transpose()?.is_some();
        self.provider.judged(Verdict::Accepted);
        wakes.namespaces.watch_names(self.names(), &self.scopes.absent());
        interfaces.show(self.loops());
        while goes_on {
            let wake = wakes.next(&mut self.provider).await;
            goes_on = !matches!(wake, Wake::Stop)
                && wakes.unless_stopped(self.handle(wake, &interfaces)).await.is_some();
            wakes.namespaces.watch_names(self.names(), &self.scopes.absent());
            interfaces.show(self.loops());
        }
        interfaces.stopping();
        self.stop().await;
        Ok(())
    }

    async fn handle(&mut self, wake: Wake, interfaces: &Interfaces) {
        match wake {
            Wake::Stop => {}
            Wake::Namespaces => {
                // Whatever is wrong with one namespace, the others go on as they are.
                if let Err(error) = self.arrange(Recipients::Changed).await {
                    log::log_error(&error);
                }
            }
            Wake::Changed => self.reload_and_log(Occasion::Changed, interfaces).await,
            Wake::Reload => self.reload_and_log(Occasion::Asked, interfaces).await,
            Wake::Command(request) => self.handle_command(request).await,
        }
    }

    /// Brings the loops in line with the document and with the namespaces that are there. Those of
    /// our own come first, since the others may be inside.
    async fn arrange(&mut self, recipients: Recipients) -> Result<()> {
        let Daemon { context, document, ledger, events, scopes, .. } = self;
        let arranged = scopes.arrange(context, document, (ledger, events), recipients).await;
        self.publish();
        arranged
    }

    /// The names of namespaces after whose change the loops have to be arranged again.
    fn names(&self) -> BTreeSet<String> {
        self.scopes.names(&self.context, &self.document, &*self.ledger)
    }

    /// Publishes what runs, for status.
    fn publish(&self) {
        // Without a scope's lock there is nobody who could command.
        let top = self.context.top_scope().ok();
        let lock = top.and_then(|top| self.scopes.lock(&top.name));
        self.standing.send_replace(Standing {
            loops: self.scopes.loops(),
            waiting: self.scopes.waiting(),
            is_arranged: true,
            commands: lock
                .map(|lock| CommandDeps { memory: self.context.caller.memory.clone(), lock }),
            is_handed: self.own.is_some(),
            provider: Some(self.health.clone()),
        });
    }

    /// Does what a client asked for, and answers what became of it.
    async fn handle_command(&mut self, request: CommandRequest) {
        let guards = self.context.caller.guards;
        self.context.caller.guards = command::with_leave(guards, request.leave);
        let done = match request.command {
            DaemonCommand::Arrange => self.arrange(Recipients::All).await,
            DaemonCommand::Reload => self.reload(Occasion::Asked).await,
            DaemonCommand::TakeDocument(handed) => self.take_handed(&handed).await,
        };
        self.context.caller.guards = guards;
        // The client may be gone; it was done all the same.
        let _ = request.answer.send(done.map(|()| command::start_passes(self.loops())));
    }

    async fn reload_and_log(&mut self, occasion: Occasion, interfaces: &Interfaces) {
        interfaces.reloading();
        if let Err(error) = self.reload(occasion).await {
            log::log_error(&error);
        }
        interfaces.reloaded();
    }

    /// Asks the provider again. A document that is unknown or cannot be taken is refused, and the last good
    /// one stands. Status and events say so until the provider has a good one.
    async fn reload(&mut self, occasion: Occasion) -> Result<()> {
        let reloaded = self.try_reload(occasion).await;
        let from = ("from".to_owned(), self.health.from().into());
        match &reloaded {
            Err(error) => {
                self.health.fail(error);
                let trouble = serde_json::json!(self.health.trouble());
                let fields = Map::from_iter([from]).into_iter();
                let fields = fields.chain(trouble.as_object().cloned().unwrap_or_default());
                self.recent.record(Level::ERROR, "document-refused", fields.collect());
            }
            Ok(Reloaded::Unchanged) if self.health.trouble().is_none() => self.health.succeed(),
            Ok(_) => {
                self.health.succeed();
                self.recent.record(Level::INFO, "document-accepted", Map::from_iter([from]));
            }
        }
        self.publish();
        reloaded.map(drop)
    }

    async fn try_reload(&mut self, occasion: Occasion) -> Result<Reloaded> {
        let document = match self.provider.answer().await {
            Answer::DesiredState(document) => document,
            Answer::Unknown { why } => return Err(why),
            Answer::Nothing => return Err(anyhow!("the provider has no document any more")),
        };
        let known = self.own.as_ref().unwrap_or(&self.document);
        let referenced = ReferencedFiles::of(&document);
        let is_same = document == *known && referenced == self.referenced;
        let recipients = match occasion {
            Occasion::Changed if is_same => {
                self.provider.judged(Verdict::Accepted);
                return Ok(Reloaded::Unchanged);
            }
            Occasion::Changed => Recipients::Changed,
            Occasion::Asked => Recipients::All,
        };
        if let Err(error) = self.take(document, recipients).await {
            let why = crate::failure::text(&error);
            self.provider.judged(Verdict::Refused { why });
            return Err(error);
        }
        self.provider.judged(Verdict::Accepted);
        (self.own, self.referenced) = (None, referenced);
        Ok(Reloaded::Taken)
    }

    /// Takes a document in place of the provider's, until that one changes or is asked for again.
    async fn take_handed(&mut self, handed: &Handed) -> Result<()> {
        command::check_meant_for(&self.context, handed)?;
        let document = load(&handed.paths)?;
        let before = Arc::clone(&self.document);
        self.take(Arc::new(document), Recipients::All).await?;
        self.own.get_or_insert(before);
        self.publish();
        Ok(())
    }

    async fn take(&mut self, document: Arc<Document>, recipients: Recipients) -> Result<()> {
        self.context.check_same(&document.settings)?;
        if let Some(allowed) = self.allowed {
            allowed.check(Allowed::for_document(&self.context, &document, &*self.ledger)?)?;
        }
        let before = std::mem::replace(&mut self.document, document);
        if let Err(error) = self.arrange(recipients).await {
            self.document = before;
            return Err(error.context("the document is refused, and the last good one stands"));
        }
        Ok(())
    }

    async fn stop(self) {
        let declared = self.document.settings.on_stop.as_ref().map(|policy| match policy.value {
            Declared::Leave => OnStop::Leave,
            Declared::Release => OnStop::Release,
            Declared::Revert => OnStop::Revert,
        });
        let policy = self.options.on_stop.or(declared).unwrap_or_default();
        let stopped = futures_util::future::join_all(
            self.loops().into_iter().map(|control| async move { control.stop(policy).await }),
        );
        // A loop that is in the middle of something long is left: what it wrote carries our mark.
        let _ = tokio::time::timeout(STOP, stopped).await;
    }
}

/// Why the provider is asked again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occasion {
    /// It may have changed; if its document is the same, nothing is to be done.
    Changed,
    /// Somebody asked for it: the document is taken even if it is the same.
    Asked,
}

/// What became of a good document.
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

    async fn next(&mut self, provider: &mut DocumentProvider) -> Wake {
        let Wakes { commands, terminate, interrupt, hangup, namespaces } = self;
        tokio::select! {
            _ = terminate.recv() => Wake::Stop,
            _ = interrupt.recv() => Wake::Stop,
            _ = hangup.recv() => Wake::Reload,
            Some(request) = commands.recv() => Wake::Command(request),
            () = provider.changed() => Wake::Changed,
            () = namespaces.changed() => Wake::Namespaces,
        }
    }
}
