//! The daemon: one loop per source and scope of a document, kept in step with the document and with
//! the namespaces that come and go.
//!
//! Everything runs on one thread, but for what has to wait for `nft`. Start at [`Daemon::run`].

mod answers;
mod beside;
pub(crate) mod capabilities;
pub(crate) mod clock;
mod firewall;
pub(crate) mod http;
mod json;
pub(crate) mod log;
mod metrics;
mod orders;
mod readers;
mod recent;
mod scopes;
mod socket;
mod spaces;
mod standing;
#[cfg(test)]
mod stuck;
mod surface;
mod systemd;
mod view;
mod watch;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use homeostat_document::{Document, OnStop as Declared};
use homeostat_engine::{Control, Events, Ledger, OnStop};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch as told};

use crate::cli::LogForm;
use crate::commands::load;
use crate::context::Context;
use crate::scope::Scope;
use crate::wire::Handed;
use answers::Answers;
use beside::Beside;
use capabilities::Allowed;
use http::Listen;
use log::Log;
use orders::{Counter, Deed, Order};
pub(crate) use readers::Readers;
use scopes::{DesiredObjects, Scopes};
use socket::Door;
use spaces::Spaces;
use standing::Standing;
use surface::Surface;
use watch::Watch;

/// How long a document must have been left alone before it is read again.
const QUIET: Duration = Duration::from_secs(1);

/// What a stop may take before the program ends all the same.
const STOP: Duration = Duration::from_millis(900);

/// A running daemon.
pub(crate) struct Daemon {
    context: Context,
    paths: Vec<PathBuf>,
    document: Document,
    ledger: Arc<dyn Ledger>,
    events: Events,
    scopes: Scopes,
    on_stop: Option<OnStop>,
    log: Log,
    listen: Option<Listen>,
    readers: Option<Readers>,
    /// What was not dropped, if anything was.
    allowed: Option<Allowed>,
    is_silent: bool,
    /// The last document of our own files, while another one is in force that was handed over.
    own: Option<Document>,
    /// What the files looked like that our own document names, when it was last read.
    beside: Beside,
    standing: told::Sender<Standing>,
}

/// Why the daemon wakes up.
enum Wake {
    /// The document's files may have changed.
    Changed,
    /// Somebody wants them read again.
    Reload,
    /// Somebody asks for what only the daemon can do.
    Order(Order),
    /// Namespaces may have come or gone.
    Spaces,
    Stop,
}

impl Daemon {
    pub(crate) fn new(
        context: Context,
        (paths, document): (Vec<PathBuf>, Document),
        ledger: Arc<dyn Ledger>,
    ) -> Self {
        let context = Context { is_for_people: false, ..context };
        let (events, scopes) = (Events::default(), Scopes::default());
        let log = Log { form: LogForm::Text, detail: context.detail, color: context.color };
        let (on_stop, listen, allowed, own, is_silent) = (None, None, None, None, false);
        let standing = told::channel(Standing::default()).0;
        let beside = Beside::of(&document);
        Daemon {
            context,
            paths,
            document,
            ledger,
            events,
            scopes,
            on_stop,
            log,
            listen,
            readers: None,
            allowed,
            is_silent,
            own,
            beside,
            standing,
        }
    }

    /// Drops what the document has no need of. Must come before any thread exists.
    pub(crate) fn confined(mut self) -> Result<Self> {
        let Daemon { context, document, ledger, .. } = &self;
        let mut allowed = Allowed::for_document(context, document, &**ledger)?;
        if self.readers.is_some() {
            allowed = allowed.and_chown();
        }
        allowed.drop_others(context)?;
        self.allowed = Some(allowed);
        Ok(self)
    }

    /// Writes its log in this form.
    pub(crate) fn logging(mut self, form: LogForm) -> Self {
        self.log.form = form;
        self
    }

    /// Lets others read over HTTP how it stands.
    pub(crate) fn listening(mut self, listen: Option<Listen>) -> Self {
        self.listen = listen;
        self
    }

    /// Lets a group read over the control socket how it stands.
    pub(crate) fn read_by(mut self, readers: Option<Readers>) -> Self {
        self.readers = readers;
        self
    }

    /// Stops in another way than the document says.
    pub(crate) fn stopping(mut self, policy: Option<OnStop>) -> Self {
        self.on_stop = policy;
        self
    }

    /// Logs nothing.
    pub(crate) fn silent(mut self) -> Self {
        self.is_silent = true;
        self
    }

    /// The loops that run now.
    pub(crate) fn loops(&self) -> Vec<Arc<dyn Control>> {
        self.scopes.loops()
    }

    /// Keeps everything as declared until it is told to stop.
    pub(crate) async fn run(mut self) -> Result<()> {
        let (counter, orders) = Counter::open();
        let mut wakes = Wakes::new(&self, orders)?;
        let surface = Surface::open(&self.events, self.log, self.listen).await?;
        let answers = Answers::new(&self.standing, counter, surface.recent());
        let _door = Door::open(&self.context.socket, answers, self.readers)?;
        if !self.is_silent {
            tokio::spawn(self.log.follow(self.events.subscribe()));
        }
        let arranged = wakes.unless_stopped(self.arrange(DesiredObjects::Changed)).await;
        let mut goes_on = arranged.transpose()?.is_some();
        wakes.spaces.attend(self.names(), &self.scopes.absent());
        surface.show(self.loops());
        while goes_on {
            let wake = wakes.next().await;
            goes_on = !matches!(wake, Wake::Stop)
                && wakes.unless_stopped(self.attend(wake, &surface)).await.is_some();
            wakes.document.attend(self.beside.directories());
            wakes.spaces.attend(self.names(), &self.scopes.absent());
            surface.show(self.loops());
        }
        surface.stopping();
        self.stop().await;
        Ok(())
    }

    async fn attend(&mut self, wake: Wake, surface: &Surface) {
        match wake {
            Wake::Stop => {}
            Wake::Spaces => {
                // Whatever is wrong with one namespace, the others go on as they are.
                if let Err(error) = self.arrange(DesiredObjects::Changed).await {
                    self.log.failed(&error);
                }
            }
            Wake::Changed => self.reload_aloud(Occasion::Changed, surface).await,
            Wake::Reload => self.reload_aloud(Occasion::Asked, surface).await,
            Wake::Order(order) => self.obey(order).await,
        }
    }

    /// Brings the loops in line with the document and with the namespaces that are there. Those of
    /// our own come first, since the others may be inside.
    async fn arrange(&mut self, desired_states: DesiredObjects) -> Result<()> {
        let Daemon { context, document, ledger, events, scopes, .. } = self;
        let arranged = scopes.arrange(context, document, (ledger, events), desired_states).await;
        self.tell_standing();
        arranged
    }

    /// The names of namespaces after whose change the loops have to be arranged again.
    fn names(&self) -> BTreeSet<String> {
        self.scopes.names(&self.context, &self.document, &*self.ledger)
    }

    /// Lets whoever asks know what runs.
    fn tell_standing(&self) {
        let (loops, waiting) = (self.scopes.loops(), self.scopes.waiting());
        let is_handed = self.own.is_some();
        // Without a scope's lock there is nobody who could command.
        let top = Scope::top(&self.context).ok();
        let lock = top.and_then(|top| self.scopes.lock(&top.name));
        let commands = lock.and_then(|lock| self.context.desk.commands(&lock).ok().flatten());
        let is_arranged = true;
        self.standing.send_replace(Standing { loops, waiting, is_arranged, commands, is_handed });
    }

    /// Does what somebody asked for, and tells them what became of it.
    async fn obey(&mut self, order: Order) {
        let guards = self.context.guards;
        self.context.guards = orders::with_leave(guards, order.leave);
        let done = match order.deed {
            Deed::Arrange => self.arrange(DesiredObjects::All).await,
            Deed::Reload => self.reload(Occasion::Asked).await,
            Deed::Take(handed) => self.take_handed(&handed).await,
        };
        self.context.guards = guards;
        // Who asked may be gone; it was done all the same.
        let _ = order.answer.send(done.map(|()| orders::begin(self.loops())));
    }

    async fn reload_aloud(&mut self, occasion: Occasion, surface: &Surface) {
        surface.reloading();
        if let Err(error) = self.reload(occasion).await {
            self.log.failed(&error);
        }
        surface.reloaded();
    }

    /// Reads the document again. One that is broken is refused, and the last good one stands.
    async fn reload(&mut self, occasion: Occasion) -> Result<()> {
        let document = load(&self.paths)?;
        let known = self.own.as_ref().unwrap_or(&self.document);
        let beside = Beside::of(&document);
        let is_same = document == *known && beside == self.beside;
        if occasion == Occasion::Changed && is_same {
            return Ok(());
        }
        let desired_states = match occasion {
            Occasion::Changed => DesiredObjects::Changed,
            Occasion::Asked => DesiredObjects::All,
        };
        self.take(document, desired_states).await?;
        (self.own, self.beside) = (None, beside);
        self.tell_standing();
        Ok(())
    }

    /// Takes a document in place of our own, until our own changes or is read again.
    async fn take_handed(&mut self, handed: &Handed) -> Result<()> {
        orders::check_meant_for(&self.context, handed)?;
        let document = load(&handed.paths)?;
        let before = self.document.clone();
        self.take(document, DesiredObjects::All).await?;
        self.own.get_or_insert(before);
        self.tell_standing();
        Ok(())
    }

    async fn take(&mut self, document: Document, desired_states: DesiredObjects) -> Result<()> {
        self.context.check_same(&document.settings)?;
        if let Some(allowed) = self.allowed {
            allowed.check(Allowed::for_document(&self.context, &document, &*self.ledger)?)?;
        }
        let before = std::mem::replace(&mut self.document, document);
        if let Err(error) = self.arrange(desired_states).await {
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
        let policy = self.on_stop.or(declared).unwrap_or_default();
        let stopped = futures_util::future::join_all(
            self.loops().into_iter().map(|control| async move { control.stop(policy).await }),
        );
        // A loop that is in the middle of something long is left: what it wrote carries our mark.
        let _ = tokio::time::timeout(STOP, stopped).await;
    }
}

/// Why the document is read again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occasion {
    /// Something changed near it; if it is the same, nothing is to be done.
    Changed,
    /// Somebody asked for it, and gets it.
    Asked,
}

/// Everything that wakes the daemon.
struct Wakes {
    orders: mpsc::Receiver<Order>,
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    document: Watch,
    spaces: Spaces,
}

impl Wakes {
    fn new(daemon: &Daemon, orders: mpsc::Receiver<Order>) -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Wakes {
            orders,
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
            document: Watch::documents(&daemon.paths, &daemon.beside)?,
            spaces: Spaces::open()?,
        })
    }

    /// Waits for work that may take long; for nothing more, once it is told to stop.
    async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let Wakes { terminate, interrupt, .. } = self;
        tokio::select! {
            done = work => Some(done),
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
        }
    }

    async fn next(&mut self) -> Wake {
        let Wakes { orders, terminate, interrupt, hangup, document, spaces } = self;
        tokio::select! {
            _ = terminate.recv() => Wake::Stop,
            _ = interrupt.recv() => Wake::Stop,
            _ = hangup.recv() => Wake::Reload,
            Some(order) = orders.recv() => Wake::Order(order),
            () = document.changed(QUIET) => Wake::Changed,
            () = spaces.changed() => Wake::Spaces,
        }
    }
}
