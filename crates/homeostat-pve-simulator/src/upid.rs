//! UPIDs, the names of tasks: node, process, start time, kind, guest, user.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upid {
    pub(crate) node: String,
    pub(crate) process: u32,
    /// Seconds since 1970.
    pub(crate) start: u64,
    pub(crate) kind: String,
    pub(crate) vmid: u32,
    pub(crate) user: String,
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Upid { node, process, start, kind, vmid, user } = self;
        write!(f, "UPID:{node}:{process:08X}:{process:08X}:{start:08X}:{kind}:{vmid}:{user}:")
    }
}

pub(crate) fn node_of(upid: &str) -> Option<&str> {
    let mut parts = upid.split(':');
    (parts.next() == Some("UPID")).then(|| parts.next()).flatten()
}

pub(crate) fn pid_of(upid: &str) -> Option<u32> {
    upid.split(':').nth(2).and_then(|process| u32::from_str_radix(process, 16).ok())
}
