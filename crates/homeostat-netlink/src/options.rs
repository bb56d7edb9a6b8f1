//! Families, groups and options of a socket.

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

/// Whether buffers may exceed the system's limits, which needs `CAP_NET_ADMIN` in the initial user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Exceed them where permitted, else use the largest permitted size.
    IfAllowed,
    /// Stay within the limits.
    Never,
}

/// Whether to enable strict checks of dump requests, with which the kernel applies their filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strict {
    /// Enable them. [`Socket::is_strict`](crate::Socket::is_strict) says whether the kernel could.
    IfPossible,
    /// Leave them off: the kernel silently ignores filters.
    Never,
}

/// How a socket is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The receive buffer in bytes; `None` leaves the system's default. The kernel doubles the value.
    pub receive_buffer: Option<usize>,
    /// The send buffer in bytes; `None` leaves the system's default. No single send can be larger.
    pub send_buffer: Option<usize>,
    /// Whether the buffers may exceed the system's limits.
    pub force: Force,
    /// Whether dumps are to be filtered by the kernel.
    pub strict: Strict,
    /// Applied to all messages, answers included.
    pub filter: Option<Filter>,
}

impl Default for Options {
    /// Large enough for the answers to every message of the largest send.
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
    /// Large enough for the events of a full routing table at once. Memory is used only as far as the buffer fills.
    #[must_use]
    pub fn for_events() -> Self {
        Self { receive_buffer: Some(64 << 20), ..Self::default() }
    }
}
