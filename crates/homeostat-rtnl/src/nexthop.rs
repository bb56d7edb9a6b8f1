//! Nexthop objects: ways that routes refer to by number, and groups of them.
//!
//! Quirk `nexthop-takes-routes` (Linux 6.18): a nexthop that goes takes its routes along, whoever
//! made them, and leaves its groups; a group without members goes too. None of it is announced but
//! the nexthop itself.

mod cascade;
mod decode;
mod encode;
mod normalize;
mod observe;
#[cfg(feature = "document")]
pub(crate) mod section;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::family::Family;
use crate::key::Key;
use crate::link::LinkName;
use crate::number::{Scope, UnknownNumber};

pub(crate) use cascade::{dependants, doubt, lost_with, of_delete};
pub(crate) use decode::nexthop as decode;
pub(crate) use normalize::{agrees, is_same_kind, normalize, rests_on};
pub(crate) use observe::Standing;

/// The number by which routes refer to a nexthop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NexthopId(pub u32);

impl fmt::Display for NexthopId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<NexthopId> for Key {
    fn from(id: NexthopId) -> Key {
        Key::Nexthop(id)
    }
}

impl FromStr for NexthopId {
    type Err = UnknownNumber;

    fn from_str(text: &str) -> Result<Self, UnknownNumber> {
        let number = text.parse().ok().filter(|number| *number != 0);
        number.map(NexthopId).ok_or_else(|| UnknownNumber(text.to_owned()))
    }
}

/// The managed part of a nexthop: a way, a hole, or a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nexthop {
    /// The family of the routes; a gateway tells it, and a group has none. IPv4 if nothing says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// The gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<LinkName>,
    /// Whether the gateway counts as reachable on the link whatever its address is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onlink: Option<bool>,
    /// How far it is. The kernel derives it, so that only what it derives can be declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// Whether packets are dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blackhole: bool,
    /// The members of a group, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<Member>,
    /// What the kernel knows of it and a desired state cannot say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusual: Option<Unusual>,
}

/// What makes a nexthop one that nobody can desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unusual {
    /// Its packets are put into others.
    Encapsulated,
    /// It is for forwarding tables, not for routes.
    Fdb,
    /// It is a resilient group.
    Resilient,
}

/// A member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The nexthop.
    pub id: NexthopId,
    /// Its share of the traffic, from 1 to 256.
    ///
    /// Quirk `a-weight-of-256` (Linux 6.1): the kernel takes up to 255 and refuses 256 in clear words.
    pub weight: u16,
}

impl Nexthop {
    /// A way through a gateway on a link.
    #[must_use]
    pub fn via(gateway: IpAddr, link: LinkName) -> Self {
        Nexthop { via: Some(gateway), dev: Some(link), ..Nexthop::default() }
    }

    /// A way to what is directly on a link.
    #[must_use]
    pub fn dev(family: Family, link: LinkName) -> Self {
        Nexthop { family: Some(family), dev: Some(link), ..Nexthop::default() }
    }

    /// A hole.
    #[must_use]
    pub fn blackhole(family: Family) -> Self {
        Nexthop { family: Some(family), blackhole: true, ..Nexthop::default() }
    }

    /// A group.
    #[must_use]
    pub fn group(members: Vec<Member>) -> Self {
        Nexthop { group: members, ..Nexthop::default() }
    }

    /// Whether it is a group.
    #[must_use]
    pub fn is_group(&self) -> bool {
        !self.group.is_empty()
    }
}
