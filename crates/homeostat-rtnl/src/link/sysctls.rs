//! The sysctls of a link: read before the kernel forgets them, and written back. It does so when the link goes, and those
//! of IPv6 also when the MTU is too small for IPv6.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use homeostat_core::{Failure, Retry};
use serde::{Deserialize, Serialize};

use crate::link::LinkName;

/// Whose files `/proc/sys/net` shows is decided by the namespace of the thread that opens them.
const ROOT: &str = "/proc/sys/net";

const SECRET: &str = "stable_secret";
const MODE: &str = "addr_gen_mode";
/// The mode in which the kernel makes no addresses.
const NO_ADDRESSES: &str = "1";

/// Which sysctls of a link are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SysctlSet {
    /// All of them.
    All,
    /// Those of IPv6.
    Ipv6,
}

impl SysctlSet {
    /// The word in keys.
    pub(crate) fn word(self) -> &'static str {
        match self {
            SysctlSet::All => "sysctls",
            SysctlSet::Ipv6 => "ipv6-sysctls",
        }
    }

    /// The directories that have one directory a link.
    fn groups(self) -> &'static [&'static str] {
        match self {
            SysctlSet::All => &["ipv4/conf", "ipv4/neigh", "ipv6/conf", "ipv6/neigh", "mpls/conf"],
            SysctlSet::Ipv6 => &["ipv6/conf", "ipv6/neigh"],
        }
    }
}

/// What they hold, by group and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sysctls(BTreeMap<String, BTreeMap<String, String>>);

impl Sysctls {
    /// Those of a link in the namespace of this thread.
    pub(crate) fn read(link: LinkName, set: SysctlSet) -> Self {
        let mut all = BTreeMap::new();
        for group in set.groups() {
            let entries = fs::read_dir(directory(group, link)).into_iter().flatten().flatten();
            let values = entries.filter_map(|entry| {
                // One that cannot be read was never set, or only acts when it is written.
                let value = fs::read_to_string(entry.path()).ok()?;
                Some((entry.file_name().into_string().ok()?, value.trim_end().to_owned()))
            });
            let values: BTreeMap<String, String> = values.collect();
            if !values.is_empty() {
                all.insert((*group).to_owned(), values);
            }
        }
        Sysctls(all)
    }

    /// Writes back what holds something else. An error is one of those that the kernel refused; all others are written.
    pub(crate) fn write(&self, link: LinkName) -> Result<(), Failure> {
        let mut refused = None;
        for (group, values) in &self.0 {
            let directory = directory(group, link);
            if !directory.is_dir() {
                let why = format!("the link has no {group} yet");
                return Err(Failure::new(why, Retry::Soon));
            }
            let mut write = |name: &str, value: &str| {
                let path = directory.join(name);
                let now = fs::read_to_string(&path);
                if now.is_ok_and(|now| now.trim_end() == value) {
                    return false;
                }
                let written = fs::write(&path, value);
                if let Err(error) = written.as_ref()
                    && error.kind() != io::ErrorKind::NotFound
                {
                    refused = Some(format!("{}: {error}", path.display()));
                }
                written.is_ok()
            };
            // With a secret, the kernel makes another address, but only when the mode that uses it is written again.
            if let Some(secret) = values.get(SECRET)
                && write(SECRET, secret)
            {
                write(MODE, NO_ADDRESSES);
            }
            for (name, value) in values.iter().filter(|(name, _)| *name != SECRET) {
                write(name, value);
            }
        }
        refused.map_or(Ok(()), |why| Err(Failure::new(why, Retry::Soon)))
    }
}

fn directory(group: &str, link: LinkName) -> PathBuf {
    [ROOT, group, link.as_str()].iter().collect()
}
