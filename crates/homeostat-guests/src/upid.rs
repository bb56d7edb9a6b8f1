//! UPIDs, the names of tasks.

use crate::model::{Run, Vmid};

/// The name of a task, which contains its node, kind and guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upid {
    /// The whole name.
    pub(crate) task: String,
    pub(crate) node: String,
    /// Such as `vzstart`.
    pub(crate) kind: String,
    pub(crate) guest: Option<Vmid>,
    /// Whose it is, without the name of the token: `user@realm`.
    pub(crate) user: String,
}

/// The kinds of tasks that each verb can start.
const KINDS: [(&str, &[&str]); 3] = [
    ("start", &["vzstart", "qmstart", "hastart"]),
    ("stop", &["vzstop", "qmstop", "hastop"]),
    ("shutdown", &["vzshutdown", "qmshutdown", "hastop"]),
];

impl Upid {
    /// Nothing, if it is none; a longer one is none, since it is kept in many places.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        const LONGEST: usize = 255;
        if text.len() > LONGEST {
            return None;
        }
        match text.split(':').collect::<Vec<_>>().as_slice() {
            ["UPID", node, _, _, _, kind, id, user, ..] if !node.is_empty() => Some(Upid {
                task: text.to_owned(),
                node: (*node).to_owned(),
                kind: (*kind).to_owned(),
                guest: id.parse().ok().map(Vmid),
                user: user.split('!').next().unwrap_or_default().to_owned(),
            }),
            _ => None,
        }
    }

    /// Quirk `consoles-are-tasks` (Proxmox VE 8): a console is a task of its guest that runs as long as it is open,
    /// perhaps for hours, and does not prevent a start or stop of the guest.
    pub(crate) fn is_console(&self) -> bool {
        matches!(self.kind.as_str(), "vncproxy" | "spiceproxy")
    }

    /// Whether it is only a request to the HA manager.
    pub(crate) fn is_request(&self) -> bool {
        self.kind.starts_with("ha")
    }

    /// Whether a verb can have started it.
    pub(crate) fn is_of(&self, verb: &str) -> bool {
        KINDS.iter().any(|(of, kinds)| *of == verb && kinds.contains(&self.kind.as_str()))
    }

    /// The run state that it is to bring about.
    pub(crate) fn asks_for(&self) -> Option<Run> {
        KINDS.iter().find(|(verb, _)| self.is_of(verb)).and_then(|(verb, _)| asks_for(verb))
    }
}

/// The run state that a verb asks for.
pub(crate) fn asks_for(verb: &str) -> Option<Run> {
    match verb {
        "start" => Some(Run::Running),
        "stop" | "shutdown" => Some(Run::Stopped),
        _ => None,
    }
}
