//! Commands that only the daemon itself can carry out: clients send them through a [`DaemonHandle`], and wait.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use futures_util::FutureExt as _;
use futures_util::future::Shared;
use homeostat_engine::PassAnswer;
use homeostat_engine::outcome::Later;
use homeostat_engine::{CommandRefused, Control};
use tokio::sync::{mpsc, oneshot};

use crate::context::Context;
use crate::failure::helped;
use crate::orders::Right;
use crate::person::Person;
use crate::pieces::{NewPiece, PieceName};
use crate::wire::{Handed, Leave, Terms};

/// How many commands may wait.
const WAITING: usize = 16;

/// A command, and who waits for its result.
pub(super) struct CommandRequest {
    pub(super) command: DaemonCommand,
    pub(super) leave: Leave,
    pub(super) right: Right,
    pub(super) answer: oneshot::Sender<Result<Carried>>,
}

/// What the daemon did for a client.
pub(super) struct Carried {
    /// The passes of all loops that it started.
    pub(super) started: Vec<StartedPass>,
    pub(super) touched: Touched,
}

/// The scopes that a command is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Touched {
    #[default]
    All,
    /// Those of these names.
    Scopes(Arc<BTreeSet<String>>),
}

impl Touched {
    pub(super) fn has(&self, scope: &str) -> bool {
        match self {
            Touched::All => true,
            Touched::Scopes(scopes) => scopes.contains(scope),
        }
    }
}

/// A pass that a loop was asked for.
pub(super) struct StartedPass {
    pub(super) control: Arc<dyn Control>,
    pub(super) pass: Later<'static, Result<PassAnswer, CommandRefused>>,
}

/// The answer of a pass, for all who wait for it.
pub(super) type SharedPass = Shared<Later<'static, Result<PassAnswer, CommandRefused>>>;

/// Asks a loop for a pass, at once.
pub(super) fn start_pass(control: &Arc<dyn Control>) -> SharedPass {
    let asked = Arc::clone(control);
    let pass = async move { asked.pass().await }.boxed().shared();
    // The first poll is what sends the request.
    let _ = pass.clone().now_or_never();
    pass
}

/// Asks all of these loops for a pass, at once: a client that has just changed a desired state gets the report of the
/// very pass that carries it out.
pub(super) fn start_passes(loops: Vec<Arc<dyn Control>>) -> Vec<StartedPass> {
    let started = loops.into_iter().map(|control| {
        let pass = start_pass(&control).boxed();
        StartedPass { control, pass }
    });
    started.collect()
}

pub(super) enum DaemonCommand {
    /// Bring the loops in line with the document.
    Arrange,
    /// The same, without a word to those whose desired state is what it was.
    ArrangeChanged,
    /// Put a piece beside the document.
    PutPiece { name: PieceName, piece: NewPiece },
    /// Take a piece away.
    DropPiece { name: PieceName, by: Person },
    /// Read the document again.
    Reload,
    /// Take another one in its place.
    TakeDocument { handed: Handed, trial: Option<TrialRequest> },
    /// End the open trial, or give it more time.
    Confirm { by: Person, same_session: bool, extend: Option<Duration> },
    /// Return to the document before the open trial.
    RollBack { by: Person },
    /// Try an older confirmed document.
    TryOlder { number: u64, trial: TrialRequest },
}

/// A trial that a client asks for.
pub(super) struct TrialRequest {
    pub(super) within: Duration,
    pub(super) by: Person,
    pub(super) terms: Terms,
}

/// Sends commands to the daemon.
#[derive(Clone)]
pub(super) struct DaemonHandle(mpsc::Sender<CommandRequest>);

impl DaemonHandle {
    pub(super) fn new() -> (Self, mpsc::Receiver<CommandRequest>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (DaemonHandle(sender), receiver)
    }

    /// Sends a command, and waits until it is carried out.
    pub(super) async fn send(
        &self,
        command: DaemonCommand,
        leave: Leave,
        right: Right,
    ) -> Result<Carried> {
        let gone = || anyhow!("the daemon is stopping");
        let (answer, answered) = oneshot::channel();
        self.0.send(CommandRequest { command, leave, right, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

/// Refuses a document that was meant for another place: its top level would be applied here.
pub(super) fn check_meant_for(context: &Context, handed: &Handed) -> Result<()> {
    let top = context.top_scope().context("cannot tell where the daemon works")?;
    let is_here = top.identity == handed.top && context.caller.mark.0 == handed.protocol;
    if is_here {
        return Ok(());
    }
    Err(helped(
        format!(
            "the daemon of `{}` works elsewhere, or with another protocol",
            context.caller.owner
        ),
        "give the --netns and --protocol that the daemon was started with",
    ))
}
