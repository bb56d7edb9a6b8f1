//! UPIDs, the names of tasks.

use std::fmt;
use std::str::FromStr;

/// The name of a task, which contains its node, kind and guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upid {
    text: String,
    node: String,
    kind: String,
    id: String,
}

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
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Such as `vzstart`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    #[must_use]
    pub fn guest(&self) -> Option<u32> {
        self.id.parse().ok()
    }

    /// Quirk `consoles-are-tasks` (Proxmox VE 8): a console is a task of its guest that runs as long as it is open,
    /// perhaps for hours, and does not prevent a start or stop of the guest.
    #[must_use]
    pub fn is_console(&self) -> bool {
        matches!(self.kind.as_str(), "vncproxy" | "spiceproxy")
    }

    /// Whether it is only a request to the HA manager.
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.kind.starts_with("ha")
    }
}
