//! A guest: what it is, what it does, how it is configured.

use std::collections::{BTreeMap, BTreeSet};

use crate::config;

/// What a guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A container.
    Lxc,
    /// A virtual machine.
    Qemu,
}

impl Kind {
    /// Its word in paths.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Lxc => "lxc",
            Kind::Qemu => "qemu",
        }
    }

    /// How errors call it.
    pub(crate) fn called(self) -> &'static str {
        match self {
            Kind::Lxc => "CT",
            Kind::Qemu => "VM",
        }
    }

    /// What its tasks begin with.
    pub(crate) fn task_prefix(self) -> &'static str {
        match self {
            Kind::Lxc => "vz",
            Kind::Qemu => "qm",
        }
    }
}

/// What a guest does when it is asked to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    /// It does so.
    Obeys,
    /// It takes no notice.
    Deaf,
}

/// A guest.
#[derive(Clone, Debug)]
pub struct Guest {
    /// What it is.
    pub kind: Kind,
    /// Where it is.
    pub node: String,
    /// Whether it runs.
    pub running: bool,
    /// Its configuration, as the file has it.
    pub config: BTreeMap<String, String>,
    /// What waits for a restart; nothing means that the option goes.
    pub pending: BTreeMap<String, Option<String>>,
    /// Who holds its lock (`backup`).
    pub lock: Option<String>,
    /// Whether the cluster's resource manager starts and stops it.
    pub is_ha: bool,
    /// What the manager says of it, if anything: `started`, `request_stop`.
    pub managed: Option<String>,
    /// What it does when it is asked to shut down.
    pub manners: Manners,
    /// Privileges that the token lacks on it (`VM.Audit`).
    pub denied: BTreeSet<String>,
}

impl Guest {
    /// A guest that is stopped and has the configuration of a fresh one.
    pub fn new(kind: Kind, node: impl Into<String>) -> Self {
        Guest {
            kind,
            node: node.into(),
            running: false,
            config: config::fresh(kind),
            pending: BTreeMap::new(),
            lock: None,
            is_ha: false,
            managed: None,
            manners: Manners::Obeys,
            denied: BTreeSet::new(),
        }
    }

    /// It runs.
    #[must_use]
    pub fn running(mut self) -> Self {
        self.running = true;
        self
    }

    /// It has this option, as the file would have it.
    #[must_use]
    pub fn with(mut self, option: &str, value: &str) -> Self {
        self.config.insert(option.to_owned(), value.to_owned());
        self
    }

    /// The token lacks this privilege on it.
    #[must_use]
    pub fn denying(mut self, privilege: &str) -> Self {
        self.denied.insert(privilege.to_owned());
        self
    }

    pub(crate) fn is_allowed(&self, privilege: &str) -> bool {
        !self.denied.contains(privilege)
    }
}
