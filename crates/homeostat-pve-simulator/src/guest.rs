//! A guest: its kind, state and configuration.

use std::collections::{BTreeMap, BTreeSet};

use crate::config;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Lxc,
    Qemu,
}

impl Kind {
    /// As in paths.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Lxc => "lxc",
            Kind::Qemu => "qemu",
        }
    }

    /// As in the text of errors.
    pub(crate) fn called(self) -> &'static str {
        match self {
            Kind::Lxc => "CT",
            Kind::Qemu => "VM",
        }
    }

    /// The start of the kinds of its tasks.
    pub(crate) fn task_prefix(self) -> &'static str {
        match self {
            Kind::Lxc => "vz",
            Kind::Qemu => "qm",
        }
    }
}

/// How a guest reacts to a request to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnShutdown {
    Stops,
    Ignores,
}

#[derive(Clone, Debug)]
pub struct Guest {
    pub kind: Kind,
    pub node: String,
    pub running: bool,
    /// Its configuration, as the file has it.
    pub config: BTreeMap<String, String>,
    /// Options that change with the next start; `None` removes the option.
    pub pending: BTreeMap<String, Option<String>>,
    /// The reason of its lock, such as `backup`.
    pub lock: Option<String>,
    /// Whether the cluster's resource manager starts and stops it.
    pub is_ha: bool,
    /// The state that the resource manager shows, such as `started` or `request_stop`.
    pub managed: Option<String>,
    pub on_shutdown: OnShutdown,
    /// Privileges that the token lacks on it (`VM.Audit`).
    pub denied: BTreeSet<String>,
}

impl Guest {
    /// A stopped guest with the configuration of a new one.
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
            on_shutdown: OnShutdown::Stops,
            denied: BTreeSet::new(),
        }
    }

    #[must_use]
    pub fn running(mut self) -> Self {
        self.running = true;
        self
    }

    /// Sets an option, written as in the configuration file.
    #[must_use]
    pub fn with(mut self, option: &str, value: &str) -> Self {
        self.config.insert(option.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn is_allowed(&self, privilege: &str) -> bool {
        !self.denied.contains(privilege)
    }
}
