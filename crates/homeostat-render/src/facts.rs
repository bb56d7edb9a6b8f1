//! Facts of this machine for templates: its name, its links with their addresses, its namespaces. Nothing in them ticks,
//! and so nothing is rendered again because time has passed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use minijinja::value::{Serde, Value as Jinja};
use serde::Serialize;

/// What templates see as `host`, `links` and `namespaces`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    pub host: Host,
    /// By name.
    pub links: BTreeMap<String, Link>,
    /// Names of the network namespaces.
    pub namespaces: BTreeSet<String>,
}

/// What could not be read is missing, and a template that reads it fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Host {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The release of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<usize>,
    /// In bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Link {
    /// With the length of the prefix, sorted. Those that the kernel does not use yet, or no more, are left out: it is still
    /// looking for their doubles, or has found one.
    pub addresses: BTreeSet<String>,
    /// Nothing for a link that has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    pub mtu: u32,
    /// Whether it is switched on, with or without a carrier.
    pub up: bool,
}

impl Facts {
    pub(crate) fn host(&self) -> Jinja {
        Jinja::from(Serde(&self.host))
    }

    pub(crate) fn links(&self) -> Jinja {
        Jinja::from(Serde(&self.links))
    }

    pub(crate) fn namespaces(&self) -> Jinja {
        Jinja::from(Serde(&self.namespaces))
    }
}

impl Host {
    /// Reads what the kernel and `/etc/machine-id` say.
    #[must_use]
    pub fn read() -> Self {
        let line = |path: &str| {
            let text = fs::read_to_string(path).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        Host {
            name: line("/proc/sys/kernel/hostname"),
            kernel: line("/proc/sys/kernel/osrelease"),
            processors: std::thread::available_parallelism().ok().map(usize::from),
            memory: fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory(&text)),
            machine_id: line("/etc/machine-id"),
        }
    }
}

/// The whole memory, from the text of `/proc/meminfo`.
fn memory(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_a_name_a_kernel_processors_and_memory() {
        let host = Host::read();
        assert!(host.name.is_some() && host.kernel.is_some(), "{host:?}");
        assert!(host.processors.is_some_and(|count| count > 0), "{host:?}");
        assert!(host.memory.is_some_and(|bytes| bytes > 1 << 20), "{host:?}");
    }

    #[test]
    fn memory_is_in_bytes() {
        assert_eq!(memory("MemTotal:        2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(memory("MemFree: 1 kB\n"), None);
    }
}
