//! Addresses of links: what is managed of one, and when what is seen agrees with a wish. Pure.

#[cfg(feature = "document")]
pub(crate) mod section;

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::key::AddressKey;
use crate::normalize::{Impossible, agrees};
use crate::number::Scope;

/// The managed part of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Address {
    /// How far it is valid. The kernel derives it for IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// How long it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid: Option<Lifetime>,
    /// How long it is used for new connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<Lifetime>,
    /// Its old-style interface name; IPv4 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// The address of everybody in its network; IPv4 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<Ipv4Addr>,
    /// Whether the kernel is kept from making a route for its network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noprefixroute: Option<bool>,
}

/// An address's label: a link's name, often with a colon and a number behind it.
pub type Label = String;

/// How long something lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lifetime {
    /// It does not end.
    Forever,
    /// So many seconds from the moment that it is written.
    Seconds(u32),
}

impl Lifetime {
    pub(crate) fn from_kernel(seconds: u32) -> Self {
        if seconds == u32::MAX { Lifetime::Forever } else { Lifetime::Seconds(seconds) }
    }

    pub(crate) fn to_kernel(self) -> u32 {
        match self {
            Lifetime::Forever => u32::MAX,
            Lifetime::Seconds(seconds) => seconds,
        }
    }
}

/// Brings a wished address to the form in which it is compared.
pub(crate) fn normalize(key: &AddressKey, mut wish: Address) -> Result<Address, Impossible> {
    let seconds = |life: Option<Lifetime>| life.unwrap_or(Lifetime::Forever).to_kernel();
    if seconds(wish.preferred) > seconds(wish.valid) && wish.preferred.is_some() {
        return Err(Impossible::PreferredBeyondValid);
    }
    // An address that ends and says no more is preferred until then.
    wish.preferred = wish.preferred.or(wish.valid);
    if key.ip().is_ipv6() {
        if wish.label.is_some() {
            return Err(Impossible::LabelOnIpv6);
        }
        if wish.broadcast.is_some() {
            return Err(Impossible::BroadcastOnIpv6);
        }
        wish.scope = None;
    }
    Ok(wish)
}

/// Whether an address is as wished.
pub(crate) fn address_agrees(wish: &Address, seen: &Address) -> bool {
    lifetime_agrees(wish.valid, seen.valid)
        && lifetime_agrees(wish.preferred, seen.preferred)
        && is_fixed_alike(wish, seen)
}

/// Whether the attributes are as wished that IPv4 addresses keep as long as they are there.
///
/// Quirk `v4-address-fixed-attributes` (Linux 6.18): `ip address change` sets lifetimes and the
/// protocol of an IPv4 address, and silently leaves scope, label, broadcast and noprefixroute as they
/// were.
pub(crate) fn is_fixed_alike(wish: &Address, seen: &Address) -> bool {
    agrees(wish.scope.as_ref(), seen.scope.as_ref())
        && agrees(wish.label.as_ref(), seen.label.as_ref())
        && agrees(wish.broadcast.as_ref(), seen.broadcast.as_ref())
        && agrees(wish.noprefixroute.as_ref(), seen.noprefixroute.as_ref())
}

/// A lifetime runs down by itself: one that has not grown is as wished.
fn lifetime_agrees(wish: Option<Lifetime>, seen: Option<Lifetime>) -> bool {
    match (wish, seen) {
        (None, _) => true,
        (Some(Lifetime::Seconds(wish)), Some(Lifetime::Seconds(seen))) => seen <= wish,
        (wish, seen) => wish == seen,
    }
}
