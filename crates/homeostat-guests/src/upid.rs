//! The target's name for a task.

use std::fmt;
use std::str::FromStr;

/// A task's name, which tells where it runs and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upid {
    text: String,
    node: String,
    kind: String,
    id: String,
}

/// A text names no task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no name of a task")]
pub struct BadUpid(String);

impl FromStr for Upid {
    type Err = BadUpid;

    fn from_str(text: &str) -> Result<Self, BadUpid> {
        let parts: Vec<_> = text.split(':').collect();
        match parts.as_slice() {
            ["UPID", node, _, _, _, kind, id, ..] if !node.is_empty() => Ok(Upid {
                text: text.to_owned(),
                node: (*node).to_owned(),
                kind: (*kind).to_owned(),
                id: (*id).to_owned(),
            }),
            _ => Err(BadUpid(text.to_owned())),
        }
    }
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Upid {
    /// Where it runs.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// What it does: `vzstart`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The number of its guest.
    #[must_use]
    pub fn guest(&self) -> Option<u32> {
        self.id.parse().ok()
    }

    /// Whether it only shows a guest to somebody.
    ///
    /// Quirk `consoles-are-tasks` (Proxmox VE 8): a console is a task of its guest that runs for as long as
    /// it is open, for hours perhaps, and keeps nobody from starting or stopping the guest.
    #[must_use]
    pub fn is_console(&self) -> bool {
        matches!(self.kind.as_str(), "vncproxy" | "spiceproxy")
    }

    /// Whether it only asks the cluster's resource manager for something.
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.kind.starts_with("ha")
    }
}
