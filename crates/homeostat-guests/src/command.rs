//! A command of an operator for one guest, whatever is declared. It takes the same lane as the steps of a pass.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use homeostat_core::{Dispatch, Failure, Retry};
use serde::{Deserialize, Serialize};

use crate::api::Place;
use crate::apply::Writer;
use crate::client::Client;
use crate::error::Error;
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
    #[must_use]
    pub fn node(&self) -> &str {
        &self.place.node
    }

    /// What the journal records of a command.
    #[must_use]
    pub fn dispatch(&self, verb: Verb) -> Dispatch {
        let power = self.power(verb);
        let (kind, parameters) = (power.verb().to_owned(), power.request());
        Dispatch { kind, parameters, precondition: None }
    }

    fn power(&self, verb: Verb) -> Power {
        let (to, stop) = match verb {
            Verb::Start => (Run::Running, Stop::Immediate),
            Verb::Stop => (Run::Stopped, Stop::Immediate),
            Verb::Shutdown => (Run::Stopped, Stop::Shutdown(Duration::from_mins(1))),
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

impl Writer {
    /// The guests that it writes to, whose tasks can be followed and found again.
    #[must_use]
    pub fn source(&self) -> &Guests {
        &self.source
    }

    /// Finds a guest on any node. A node that does not answer is waited for only if no other has the guest.
    pub async fn locate(&self, vmid: Vmid) -> Result<Located, Failure> {
        locate(&self.source.client, vmid).await
    }

    /// Whether the guest is in the state that the command asks for.
    pub async fn is_as_asked(&self, located: &Located, verb: Verb) -> Result<bool, Failure> {
        let shown = self.shows(&located.power(verb)).await;
        shown.map_err(|error| error.failure())
    }

    /// Sends a command. The caller holds the lane of the guest, and has recorded the intent.
    pub async fn send(&self, located: &Located, verb: Verb) -> Result<Sent, Error> {
        let power = located.power(verb);
        let client = &self.source.client;
        match client.power(&located.place, power.verb(), power.parameters()).await {
            Ok(upid) => Ok(Sent::Task(upid.to_string())),
            Err(error) if self.is_done(&power, &error).await => Ok(Sent::AlreadyDone),
            Err(error) => Err(error),
        }
    }
}

/// See [`Writer::locate`].
pub(crate) async fn locate(client: &Client, vmid: Vmid) -> Result<Located, Failure> {
    let nodes = client.nodes().await.map_err(|error| error.failure())?;
    let places = nodes.iter().flat_map(|(node, is_online)| {
        [Kind::Lxc, Kind::Qemu].map(|kind| (Place { node: node.clone(), kind, vmid }, *is_online))
    });
    let requests = places.map(async |(place, is_online)| {
        let listed =
            if is_online { client.guests(&place.node, place.kind).await.ok() } else { None };
        (place, listed)
    });
    let mut answers: FuturesUnordered<_> = requests.collect();
    let mut unanswered = BTreeSet::new();
    while let Some((place, listed)) = answers.next().await {
        match listed.map(|mut listed| listed.remove(&vmid)) {
            Some(Some(listed)) => return Ok(Located { place, run: listed.run }),
            Some(None) => {}
            None => _ = unanswered.insert(place.node),
        }
    }
    Err(not_found(vmid, unanswered))
}

fn not_found(vmid: Vmid, unanswered: BTreeSet<String>) -> Failure {
    if unanswered.is_empty() {
        let text = format!("there is no guest {vmid} that the token can see");
        return Failure::new(text, Retry::OnChange);
    }
    let nodes = unanswered.into_iter().collect::<Vec<_>>().join(", ");
    let text = format!("guest {vmid} was not found, and node {nodes} does not answer");
    Failure::new(text, Retry::Soon)
}
