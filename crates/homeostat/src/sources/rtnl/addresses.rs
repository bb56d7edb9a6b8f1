//! A link's `addresses`.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context as _, Result};
use homeostat_document::{Address as Declared, Lifetime as DeclaredLife, Link, Scope, Spanned};
use homeostat_rtnl::Scope as Reach;
use homeostat_rtnl::{Address, AddressKey, Builder, Lifetime, LinkName};

use super::Fault;

/// Wishes for all addresses of all links.
pub(super) fn fill(section: &Scope, builder: &mut Builder, fault: &mut dyn FnMut(Fault)) {
    for link in section.links.iter().flatten() {
        for address in link.addresses.iter().flatten() {
            if let Err(error) = add(link, address, builder) {
                fault((address.span, error));
            }
        }
    }
}

fn add(link: &Link, declared: &Declared, builder: &mut Builder) -> Result<()> {
    let key = key(link, declared)?;
    builder.address(key, address(declared))?;
    if declared.adopt {
        builder.may_adopt(key);
    }
    Ok(())
}

fn key(link: &Link, declared: &Declared) -> Result<AddressKey> {
    let name = link_name(&link.name)?;
    let (ip, peer) = (declared.ip.addr(), declared.peer.as_ref());
    let key = AddressKey::new(name, ip, declared.ip.len());
    let key = key.and_then(|key| peer.map_or(Some(key), |peer| key.with_peer(peer.value)));
    key.context("the address and its peer or prefix do not fit each other")
}

/// The name of a link, as the kernel takes it.
pub(super) fn link_name(name: &homeostat_document::Name) -> Result<LinkName> {
    Ok(LinkName::new(name.as_str())?)
}

fn address(declared: &Declared) -> Address {
    let life =
        |life: &Option<Spanned<DeclaredLife>>| life.as_ref().map(|life| lifetime(life.value));
    Address {
        scope: declared.scope.map(|scope| Reach(scope.get())),
        valid: life(&declared.lifetime),
        preferred: life(&declared.preferred_lifetime),
        broadcast: declared.broadcast.and_then(|broadcast| v4(broadcast.value)),
        label: declared.label.as_ref().map(|label| label.as_str().to_owned()),
        noprefixroute: declared.noprefixroute.then_some(true),
    }
}

/// The document has refused others: they are of another family than the address.
fn v4(ip: IpAddr) -> Option<Ipv4Addr> {
    match ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    }
}

/// The kernel counts in seconds, and takes 0 for an address that is gone already.
fn lifetime(declared: DeclaredLife) -> Lifetime {
    match declared {
        DeclaredLife::Forever => Lifetime::Forever,
        DeclaredLife::For(period) => {
            let seconds = period.get().as_millis().div_ceil(1000).max(1);
            Lifetime::Seconds(u32::try_from(seconds).unwrap_or(u32::MAX - 1))
        }
    }
}
