//! A command of an operator for one guest, whatever is declared. It takes the same lane as the steps of a pass.

use std::collections::BTreeSet;
use std::fmt;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use homeostat_core::{Failure, Retry};
use serde::{Deserialize, Serialize};

use crate::api::{Listed, Place};
use crate::model::{Guest, Kind, Run, Stop, Vmid};
use crate::source::Guests;
use crate::step::{Expects, Power};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    Start,
    /// At once.
    Stop,
    /// Leaves it running if it does not shut down in time.
    Shutdown,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Start => "start",
            Verb::Stop => "stop",
            Verb::Shutdown => "shutdown",
        })
    }
}

/// Where a guest is.
#[derive(Clone, Debug)]
pub struct Located {
    pub(crate) place: Place,
    run: Option<Run>,
}

impl Located {
    /// Finds a guest on any node. A node that does not answer is waited for only if no other has the guest.
    pub async fn find(source: &Guests, vmid: Vmid) -> Result<Self, Failure> {
        let nodes = source.api.nodes().await.map_err(|error| error.failure())?;
        let kinds = |(node, is_online)| [Kind::Lxc, Kind::Qemu].map(|kind| (node, kind, is_online));
        let requests = nodes.iter().flat_map(kinds).map(async |(node, kind, is_online)| {
            let guests = if *is_online { source.api.guests(node, kind).await.ok() } else { None };
            (node.as_str(), guests)
        });
        let mut answers: FuturesUnordered<_> = requests.collect();
        let mut unanswered = BTreeSet::new();
        while let Some((node, guests)) = answers.next().await {
            match guests.map(|mut guests| guests.remove(&vmid)) {
                Some(Some(Listed { place, run, .. })) => return Ok(Located { place, run }),
                Some(None) => {}
                None => _ = unanswered.insert(node),
            }
        }
        if unanswered.is_empty() {
            let text = format!("there is no {vmid} that the token can see");
            return Err(Failure::new(text, Retry::OnChange));
        }
        let nodes = unanswered.into_iter().collect::<Vec<_>>().join(", ");
        let text = format!("{vmid} was not found, and node {nodes} does not answer");
        Err(Failure::new(text, Retry::Soon))
    }

    #[must_use]
    pub fn node(&self) -> &str {
        &self.place.node
    }

    pub(crate) fn power(&self, verb: Verb) -> Power {
        let (to, stop) = match verb {
            Verb::Start => (Run::Running, Stop::Immediate),
            Verb::Stop => (Run::Stopped, Stop::Immediate),
            Verb::Shutdown => (Run::Stopped, Stop::Shutdown(Stop::USUAL_TIMEOUT)),
        };
        let (kind, run) = (self.place.kind, self.run);
        let before = Guest { kind, run, options: [].into(), unread: None, is_marked: false };
        let (slot, place) = (homeostat_core::Slot(0), self.place.clone());
        Power { slot, place, before, to, stop, expects: Expects::Number }
    }
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The UPID of the task.
    Task(String),
    /// The guest was in the wanted state already, which a read has confirmed.
    AlreadyDone,
}
