//! Where the daemon's document comes from. A new provider is its file below, and its line in [`open`].

mod files;
pub(crate) mod fleet;
mod undecided;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use homeostat_document::Document;
use homeostat_engine::Losses;
use homeostat_engine::outcome::Later;
use homeostat_fleet::records::Accepted;
use homeostat_kit::provider::{Answer, Provider};

pub(crate) use self::files::{load, understand};
use crate::checks::Check;
use crate::cli::Global;
use crate::daemon::DaemonView;
use crate::wire::Leave;

/// What the daemon takes its document from.
pub(crate) trait DocumentProvider:
    Provider<DesiredState = Document, Error = anyhow::Error>
{
    /// The daemon runs from now on. Before this a provider uses no network and starts no thread.
    fn start(&mut self, _daemon: DaemonView) {}

    /// The trial that the document of the last answer must pass, if the provider wants one.
    fn trial(&self) -> Option<NodeTrial> {
        None
    }

    /// The trial of an assignment has ended: with a reason, if it was rolled back.
    fn tried(&mut self, _assignment: &Accepted, _rolled_back: Option<&str>) {}

    /// The trial of the last answer's document could not begin, for a reason that is not in the document: it is to be
    /// answered again after a while.
    fn postponed(&mut self, _why: &str) {}

    /// The fleet that the machine belongs to.
    fn fleet(&self) -> Option<fleet::FleetSettings> {
        None
    }

    /// Whether later documents may need what the present one does not, such as capabilities.
    fn is_open_ended(&self) -> bool {
        false
    }
}

/// A trial that a node decides by itself.
#[derive(Clone)]
pub(crate) struct NodeTrial {
    pub(crate) assignment: Accepted,
    pub(crate) within: Duration,
    /// How long everything must be as declared, without a break.
    pub(crate) settle: Duration,
    pub(crate) checks: Vec<Check>,
    /// What the guards let through.
    pub(crate) leave: Leave,
    /// What may be done that cannot be undone.
    pub(crate) losses: Losses,
    /// Whether a member of the store answers on a new connection; if not, why.
    pub(crate) reach: Arc<dyn Fn() -> Later<'static, Result<(), String>> + Send + Sync>,
}

/// The provider that these arguments name, with its first answer. It uses no network for it.
pub(crate) async fn open(
    arguments: &[PathBuf],
    global: &Global,
) -> Result<(Box<dyn DocumentProvider>, Answer<Document, anyhow::Error>)> {
    if let Some(store) = arguments.iter().find(|path| fleet::is_url(path)) {
        let document = Arc::new(fleet::document_of_url(store, arguments)?);
        let provider = fleet::Fleet::open(fleet::Local::Url, &document, global)?;
        return first(Box::new(provider)).await;
    }
    let mut files = files::Files::new(arguments)?;
    match files.answer().await {
        Answer::DesiredState(document) if fleet::is_in(&document) => {
            let provider =
                fleet::Fleet::open(fleet::Local::Files(Box::new(files)), &document, global)?;
            first(Box::new(provider)).await
        }
        // Whether the machine belongs to a fleet shows once it can be read.
        Answer::Unknown { why } => {
            let undecided = undecided::Undecided::new(files, global.clone());
            Ok((Box::new(undecided), Answer::Unknown { why }))
        }
        answer => Ok((Box::new(files), answer)),
    }
}

async fn first(
    mut provider: Box<dyn DocumentProvider>,
) -> Result<(Box<dyn DocumentProvider>, Answer<Document, anyhow::Error>)> {
    let answer = provider.answer().await;
    Ok((provider, answer))
}

impl DocumentProvider for files::Files {}
