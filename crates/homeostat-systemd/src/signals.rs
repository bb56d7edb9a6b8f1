//! What systemd announces: hints that something changed, and nothing more.

use std::path::Path;

use futures_util::StreamExt as _;
use zbus::message::Type;
use zbus::{MatchRule, Message, MessageStream, OwnedObjectPath};

use crate::client::{DESTINATION, MANAGER, MANAGER_PATH, Systemd, connection_error, read};
use crate::error::Error;
use crate::name::UnitName;

/// Something may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A unit, or a job of it.
    Unit(UnitName),
    /// Unit files: any unit may be enabled or masked now.
    Files,
}

/// Signals of systemd, on a connection of their own.
#[derive(Debug)]
pub struct Signals {
    stream: MessageStream,
    // Systemd sends signals as long as one of its subscribers is on the bus.
    _systemd: Systemd,
}

impl Signals {
    /// Subscribes. What changes after this is announced.
    pub async fn subscribe(root: &Path) -> Result<Self, Error> {
        let systemd = Systemd::connect(root).await?;
        let rule = MatchRule::builder().msg_type(Type::Signal).sender(DESTINATION);
        let rule = rule.path_namespace(MANAGER_PATH).build();
        let rule = rule.map_err(|error| connection_error(&error))?;
        let stream = MessageStream::for_match_rule(rule, systemd.bus(), None).await;
        let stream = stream.map_err(|error| connection_error(&error))?;
        systemd.subscribe().await?;
        Ok(Signals { stream, _systemd: systemd })
    }

    /// The next signal. Cancel-safe. An error means that the connection is gone.
    pub async fn next(&mut self) -> Result<Signal, Error> {
        loop {
            let message = match self.stream.next().await {
                Some(message) => message.map_err(|error| connection_error(&error))?,
                None => return Err(Error::Connection { why: "it was closed".to_owned() }),
            };
            if let Some(signal) = meaning(&message) {
                return Ok(signal);
            }
        }
    }
}

/// What a message says; nothing, if it is about no unit.
fn meaning(message: &Message) -> Option<Signal> {
    let header = message.header();
    let member = header.member()?.as_str();
    if header.interface()?.as_str() != MANAGER {
        return UnitName::of_path(header.path()?.as_str()).map(Signal::Unit);
    }
    let unit = match member {
        "UnitNew" | "UnitRemoved" => {
            let (name, _): (String, OwnedObjectPath) = read("a signal", message).ok()?;
            name
        }
        "JobNew" => {
            let (_, _, name): (u32, OwnedObjectPath, String) = read("a signal", message).ok()?;
            name
        }
        "JobRemoved" => {
            let (_, _, name, _): (u32, OwnedObjectPath, String, String) =
                read("a signal", message).ok()?;
            name
        }
        "UnitFilesChanged" | "Reloading" => return Some(Signal::Files),
        _ => return None,
    };
    unit.parse().ok().map(Signal::Unit)
}
