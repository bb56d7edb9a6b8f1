//! What a socket is opened for and how it is set up.

use rustix::net::Protocol;
use rustix::net::netlink;

use crate::Filter;

/// Which part of the kernel a socket talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// Links, addresses, routes, rules, neighbours, nexthops.
    Route,
    /// nftables, conntrack.
    Netfilter,
    /// Families that register by name.
    Generic,
}

impl Family {
    pub(crate) fn protocol(self) -> Option<Protocol> {
        match self {
            Self::Route => None,
            Self::Netfilter => Some(netlink::NETFILTER),
            Self::Generic => Some(netlink::GENERIC),
        }
    }
}

/// A multicast group of a family, such as `uapi::RTNLGRP_LINK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub u32);

/// Whether buffers may go beyond the system's limits, which needs privileges outside any user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Go beyond where allowed, else take what the limits give.
    IfAllowed,
    /// Stay within the limits.
    Never,
}

/// Whether the kernel is asked to check dump requests strictly, and so to obey their filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strict {
    /// Ask for it. A kernel that cannot is remembered in [`Socket::is_strict`](crate::Socket::is_strict).
    IfPossible,
    /// Leave it off: filters are silently ignored.
    Never,
}

/// How a socket is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The receive buffer in bytes; `None` leaves the system's default. The kernel counts twice what is asked for.
    pub receive_buffer: Option<usize>,
    /// The send buffer in bytes; `None` leaves the system's default. No single send can be larger.
    pub send_buffer: Option<usize>,
    /// Whether the buffers may go beyond the system's limits.
    pub force: Force,
    /// Whether dumps are to be filtered by the kernel.
    pub strict: Strict,
    /// What to keep out of the queue, answers included.
    pub filter: Option<Filter>,
}

impl Default for Options {
    /// Room for the answers to every message of the largest send.
    fn default() -> Self {
        Self {
            receive_buffer: Some(4 << 20),
            send_buffer: None,
            force: Force::IfAllowed,
            strict: Strict::IfPossible,
            filter: None,
        }
    }
}

impl Options {
    /// Room for the events of a full routing table that arrives at once. Memory is used only as far as it fills.
    #[must_use]
    pub fn for_events() -> Self {
        Self { receive_buffer: Some(64 << 20), ..Self::default() }
    }
}
