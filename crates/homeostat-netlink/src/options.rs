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
    /// Families by name: see [`generic`](crate::generic).
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

/// How a socket is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The receive buffer in bytes; `None` leaves the system's default. The kernel doubles the value. It may exceed
    /// the system's limit with `CAP_NET_ADMIN` in the initial user namespace; else it is the largest permitted one.
    pub receive_buffer: Option<usize>,
    /// Applied to all messages, answers included.
    pub filter: Option<Filter>,
}

impl Default for Options {
    /// Large enough for the answers to every message of the largest send.
    fn default() -> Self {
        Self { receive_buffer: Some(4 << 20), filter: None }
    }
}

impl Options {
    /// Large enough for the events of a full routing table at once. Memory is used only as far as the buffer fills.
    #[must_use]
    pub fn for_events() -> Self {
        Self { receive_buffer: Some(64 << 20), ..Self::default() }
    }
}
