//! Addresses of links: what is managed of one, and when what is seen agrees with a desired state. Pure.

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

/// Brings a declared address to the form in which it is compared.
pub(crate) fn normalize(key: &AddressKey, mut desired: Address) -> Result<Address, Impossible> {
    let seconds = |life: Option<Lifetime>| life.unwrap_or(Lifetime::Forever).to_kernel();
    if seconds(desired.preferred) > seconds(desired.valid) && desired.preferred.is_some() {
        return Err(Impossible::PreferredBeyondValid);
    }
    // An address that ends and says no more is preferred until then.
    desired.preferred = desired.preferred.or(desired.valid);
    if key.ip().is_ipv6() {
        if desired.label.is_some() {
            return Err(Impossible::LabelOnIpv6);
        }
        if desired.broadcast.is_some() {
            return Err(Impossible::BroadcastOnIpv6);
        }
        desired.scope = None;
    }
    Ok(desired)
}

/// Whether an address is as declared.
pub(crate) fn address_agrees(desired: &Address, seen: &Address) -> bool {
    lifetime_agrees(desired.valid, seen.valid)
        && lifetime_agrees(desired.preferred, seen.preferred)
        && is_fixed_alike(desired, seen)
}

/// Whether the attributes are as declared that IPv4 addresses keep as long as they are there.
///
/// Quirk `v4-address-fixed-attributes` (Linux 6.18): `ip address change` sets lifetimes and the
/// protocol of an IPv4 address, and silently leaves scope, label, broadcast and noprefixroute as they
/// were.
pub(crate) fn is_fixed_alike(desired: &Address, seen: &Address) -> bool {
    agrees(desired.scope.as_ref(), seen.scope.as_ref())
        && agrees(desired.label.as_ref(), seen.label.as_ref())
        && agrees(desired.broadcast.as_ref(), seen.broadcast.as_ref())
        && agrees(desired.noprefixroute.as_ref(), seen.noprefixroute.as_ref())
}

/// A lifetime runs down by itself: one that has not grown is as declared.
fn lifetime_agrees(desired: Option<Lifetime>, seen: Option<Lifetime>) -> bool {
    match (desired, seen) {
        (None, _) => true,
        (Some(Lifetime::Seconds(desired)), Some(Lifetime::Seconds(seen))) => seen <= desired,
        (desired, seen) => desired == seen,
    }
}
