//! The daemon: one loop per source and scope of a document, kept in step with the document and with
//! the namespaces that come and go.
//!
//! Everything runs on one thread. Start at [`Daemon::run`].

pub(crate) mod capabilities;
mod clock;
pub(crate) mod http;
mod json;
pub(crate) mod log;
mod metrics;
mod recent;
mod scopes;
mod surface;
mod systemd;
mod view;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use homeostat_document::{Document, OnStop as Declared};
use homeostat_engine::{Control, Events, Ledger, OnStop, What};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::broadcast::error::RecvError;

use crate::cli::LogForm;
use crate::commands::load;
use crate::context::Context;
use capabilities::Allowed;
use http::Listen;
use log::Log;
use scopes::Scopes;
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
    /// What was not dropped, if anything was.
    allowed: Option<Allowed>,
    is_silent: bool,
}

/// Why the daemon wakes up.
enum Wake {
    /// The document may have changed.
    Reload,
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
        let (events, scopes) = (Events::default(), Scopes::default());
        let log = Log { form: LogForm::Text, detail: context.detail, color: context.color };
        let (on_stop, listen, allowed, is_silent) = (None, None, None, false);
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
            allowed,
            is_silent,
        }
    }

    /// Drops what the document has no need of. Must come before any thread exists.
    pub(crate) fn confined(mut self) -> Result<Self> {
        let Daemon { context, document, ledger, .. } = &self;
        let allowed = Allowed::for_document(context, document, &**ledger)?;
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
        let mut wakes = Wakes::new(&self)?;
        let surface = Surface::open(&self.events, self.log, self.listen).await?;
        if !self.is_silent {
            tokio::spawn(self.log.follow(self.events.subscribe()));
        }
        self.arrange().await?;
        surface.show(self.loops());
        loop {
            match wakes.next().await {
                Wake::Stop => break,
                Wake::Spaces => {
                    // Whatever is wrong with one namespace, the others go on as they are.
                    if let Err(error) = self.arrange().await {
                        self.log.failed(&error);
                    }
                }
                Wake::Reload => {
                    surface.reloading();
                    self.reload().await;
                    surface.reloaded();
                }
            }
            surface.show(self.loops());
        }
        surface.stopping();
        self.stop().await;
        Ok(())
    }

    /// Brings the loops in line with the document and with the namespaces that are there. Those of
    /// our own come first, since the others may be inside.
    async fn arrange(&mut self) -> Result<()> {
        let Daemon { context, document, ledger, events, scopes, .. } = self;
        scopes.arrange(context, document, (ledger, events)).await
    }

    /// Reads the document again. One that is broken is refused, and the last good one stands.
    async fn reload(&mut self) {
        let refused = match load(&self.paths) {
            Ok(document) if document == self.document => return,
            Ok(document) => self.take(document).await.err(),
            Err(error) => Some(error),
        };
        if let Some(error) = refused {
            self.log.failed(&error);
        }
    }

    async fn take(&mut self, document: Document) -> Result<()> {
        self.context.check_same(&document.settings)?;
        if let Some(allowed) = self.allowed {
            allowed.check(Allowed::for_document(&self.context, &document, &*self.ledger)?)?;
        }
        let before = std::mem::replace(&mut self.document, document);
        if let Err(error) = self.arrange().await {
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

/// Everything that wakes the daemon.
struct Wakes {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    document: Watch,
    spaces: Watch,
    events: tokio::sync::broadcast::Receiver<homeostat_engine::Event>,
}

impl Wakes {
    fn new(daemon: &Daemon) -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Wakes {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
            document: Watch::documents(&daemon.paths)?,
            spaces: Watch::namespaces()?,
            events: daemon.events.subscribe(),
        })
    }

    async fn next(&mut self) -> Wake {
        loop {
            let Wakes { terminate, interrupt, hangup, document, spaces, events } = self;
            tokio::select! {
                _ = terminate.recv() => return Wake::Stop,
                _ = interrupt.recv() => return Wake::Stop,
                _ = hangup.recv() => return Wake::Reload,
                () = document.changed(QUIET) => return Wake::Reload,
                () = spaces.changed(Duration::from_millis(20)) => return Wake::Spaces,
                event = events.recv() => match event {
                    Ok(event) if is_about_spaces(&event) => return Wake::Spaces,
                    Ok(_) => {}
                    // Something was missed, and it may have been that.
                    Err(RecvError::Lagged(_)) => return Wake::Spaces,
                    Err(RecvError::Closed) => return Wake::Stop,
                },
            }
        }
    }
}

/// Whether namespaces of our own were made or removed.
fn is_about_spaces(event: &homeostat_engine::Event) -> bool {
    let is_made = matches!(&event.what, What::Completed { summary, .. } if summary.total() > 0);
    is_made && event.source == crate::registry::FIRST.name
}
