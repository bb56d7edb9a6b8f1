//! One command for one guest, as somebody gives it: whatever is declared, and through the same lane.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use homeostat_core::{Dispatch, Failure, Retry};

use crate::api::Place;
use crate::apply::Writer;
use crate::client::Client;
use crate::error::Error;
use crate::model::{Guest, Kind, Run, Stop, Vmid};
use crate::step::{Expects, Power};

/// What is to be done to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Start it.
    Start,
    /// Stop it at once.
    Stop,
    /// Ask it to shut down, and leave it running if it does not.
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
    /// Its node.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.place.node
    }

    /// What is remembered of a command for it.
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

/// What the target made of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It works on it, and calls the work so.
    Task(String),
    /// It is already as asked for: it says so, and another look shows it.
    AlreadyDone,
}

impl Writer {
    /// Finds a guest, wherever it is; a node that hangs is waited for only if no other has it.
    pub async fn locate(&self, vmid: Vmid) -> Result<Located, Failure> {
        locate(&self.source.client, vmid).await
    }

    /// Looks whether a guest is already as a command wants it.
    pub async fn is_as_asked(&self, located: &Located, verb: Verb) -> Result<bool, Failure> {
        let shown = self.shows(&located.power(verb)).await;
        shown.map_err(|error| error.failure())
    }

    /// Sends a command. The caller holds the guest's lane, and has written down the intent.
    pub async fn send(&self, located: &Located, verb: Verb) -> Result<Sent, Error> {
        let power = located.power(verb);
        let asked = (power.verb(), power.parameters());
        match self.source.client.power(&located.place, asked).await {
            Ok(upid) => Ok(Sent::Task(upid.to_string())),
            Err(error) if self.is_done(&power, &error).await => Ok(Sent::AlreadyDone),
            Err(error) => Err(error),
        }
    }
}

/// Finds a guest, see [`Writer::locate`].
pub(crate) async fn locate(client: &Client, vmid: Vmid) -> Result<Located, Failure> {
    let nodes = client.nodes().await.map_err(|error| error.failure())?;
    let places = nodes.iter().flat_map(|(node, is_online)| {
        [Kind::Lxc, Kind::Qemu].map(|kind| (Place { node: node.clone(), kind, vmid }, *is_online))
    });
    let asked = places.map(async |(place, is_online)| {
        let listed =
            if is_online { client.guests(&place.node, place.kind).await.ok() } else { None };
        (place, listed)
    });
    let mut answers: FuturesUnordered<_> = asked.collect();
    let mut silent = BTreeSet::new();
    while let Some((place, listed)) = answers.next().await {
        match listed.map(|mut listed| listed.remove(&vmid)) {
            Some(Some(listed)) => return Ok(Located { place, run: listed.run }),
            Some(None) => {}
            None => _ = silent.insert(place.node),
        }
    }
    Err(not_found(vmid, silent))
}

fn not_found(vmid: Vmid, silent: BTreeSet<String>) -> Failure {
    if silent.is_empty() {
        let words = format!("there is no guest {vmid} that the token can see");
        return Failure::new(words, Retry::OnChange);
    }
    let nodes = silent.into_iter().collect::<Vec<_>>().join(", ");
    let words = format!("guest {vmid} was not found, and node {nodes} does not answer");
    Failure::new(words, Retry::Soon)
}
