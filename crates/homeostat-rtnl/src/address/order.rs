//! The order of the addresses of a link, which decides which of a network is the primary one and with which packets
//! leave. An address that was away comes back in another place: it is put right by making the ones behind it again.
//!
//! IPv4 addresses are appended, the first of each network before those that are secondary. Of IPv6, the newest comes first.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use homeostat_core::{Failure, Outcome, Retry, Snapshot};
use homeostat_netlink::uapi::{RTA_PREFSRC, RTM_GETADDR, RTM_GETROUTE, RTPROT_KERNEL};
use homeostat_netlink::{Batch, Connection, Error, Message};
use serde::{Deserialize, Serialize};

use crate::address::{self, AddressKey, is_link_local};
use crate::apply::failure;
use crate::key::Key;
use crate::link::model::Link;
use crate::link::{self, LinkName, Links};
use crate::message::{AF_INET, AF_INET6, Encoder, Put, read_ip};
use crate::number::Protocol;
use crate::object::Object;
use crate::observe::collect;
use crate::snapshot::{self, Copied};
use crate::source::Rtnl;

/// What is recorded of a link.
#[derive(Debug, Serialize, Deserialize)]
struct Former {
    /// The keys of its addresses.
    addresses: Vec<String>,
    /// A link that loses IPv6 by its MTU, or goes down, may have no address before and after that, and one that the kernel
    /// makes later: so these distinguish the two.
    mtu: Option<u32>,
    up: Option<bool>,
}

/// An address that is there.
struct Present {
    key: AddressKey,
    copied: Copied,
    protocol: Protocol,
}

/// The addresses of these links in their order, as a snapshot of each.
pub(crate) fn take(
    connection: &mut Connection,
    links: &Links,
    wanted: impl Iterator<Item = LinkName>,
) -> Result<Vec<(Key, Snapshot)>, Error> {
    let wanted: BTreeSet<LinkName> = wanted.collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let all = present(connection, links, &|link| wanted.contains(&link))?;
    let mut of = |link: LinkName| {
        let keys = all.iter().filter(|one| one.key.link == link);
        let addresses = keys.map(|one| one.key.to_string()).collect();
        let Link { mtu, up, .. } = link::observe::find(connection, link)?.link;
        let snapshot = serde_json::to_string(&Former { addresses, mtu, up }).ok().map(Snapshot)?;
        Some((Key::AddressOrder(link), snapshot))
    };
    Ok(wanted.iter().filter_map(|link| of(*link)).collect())
}

/// Puts the addresses of a link into the order that they had, as far as they are there, and takes away the link-local ones
/// that the kernel has made meanwhile.
pub(crate) fn put_right(
    source: &Rtnl,
    connection: &mut Connection,
    link: LinkName,
    snapshot: &Snapshot,
) -> Result<Outcome<Object>, Failure> {
    let Ok(Former { addresses, .. }) = serde_json::from_str(&snapshot.0) else {
        return Err(Failure::new("what was recorded of it cannot be read", Retry::Never));
    };
    let former = addresses.iter().filter_map(|key| key.parse::<Key>().ok()?.address()).collect();
    let mut order = Reordering { source, connection, link, former };
    order.drop_new_link_local()?;
    for class in [Class::Ipv4, Class::Ipv6, Class::LinkLocal] {
        order.put_right(class)?;
        if !order.moved(class)?.is_empty() {
            return Err(Failure::new("its addresses are in another order", Retry::Soon));
        }
    }
    Ok(Outcome::Applied { now: None })
}

/// Addresses among which there is an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Ipv4,
    Ipv6,
    LinkLocal,
}

impl Class {
    fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Class::Ipv4,
            IpAddr::V6(_) if is_link_local(ip) => Class::LinkLocal,
            IpAddr::V6(_) => Class::Ipv6,
        }
    }
}

/// Which addresses are made again, in this order, so that the present order becomes the wanted one.
fn moved<T: PartialEq + Copy>(class: Class, wanted: &[T], present: &[T]) -> Vec<T> {
    let is_within = |some: &[T]| {
        let mut rest = present.iter();
        some.iter().all(|one| rest.any(|other| other == one))
    };
    let mut splits = (0..=wanted.len()).map(|at| wanted.split_at(at));
    if class == Class::Ipv4 {
        let split = splits.rev().find(|(kept, _)| is_within(kept));
        return split.map_or_else(Vec::new, |(_, moved)| moved.to_vec());
    }
    let split = splits.find(|(_, kept)| is_within(kept));
    split.map_or_else(Vec::new, |(moved, _)| moved.iter().rev().copied().collect())
}

struct Reordering<'a> {
    source: &'a Rtnl,
    connection: &'a mut Connection,
    link: LinkName,
    /// The addresses that it had.
    former: Vec<AddressKey>,
}

impl Reordering<'_> {
    /// The addresses of a class that it had and has, but for those that the kernel makes by itself, whenever it finds a
    /// reason.
    fn present(&mut self, class: Class) -> Result<Vec<Present>, Failure> {
        let (links, here) = (self.links()?, self.link);
        let present = present(self.connection, &links, &|link| link == here);
        let mut present = present.map_err(|error| failure(&error))?;
        present.retain(|Present { key, protocol, .. }| {
            let is_made = matches!(protocol, Protocol(1..=3));
            Class::of(key.ip) == class && !is_made && self.former.contains(key)
        });
        Ok(present)
    }

    /// Those that are made again, in this order.
    fn moved(&mut self, class: Class) -> Result<Vec<AddressKey>, Failure> {
        let now: Vec<AddressKey> = self.present(class)?.into_iter().map(|one| one.key).collect();
        let wanted = self.former.iter().copied().filter(|key| now.contains(key));
        Ok(moved(class, &wanted.collect::<Vec<_>>(), &now))
    }

    fn links(&mut self) -> Result<Links, Failure> {
        snapshot::links(self.connection).map_err(|error| failure(&error))
    }

    fn drop_new_link_local(&mut self) -> Result<(), Failure> {
        let Some(index) = self.links()?.index(self.link) else { return Ok(()) };
        let is_new = |ip: IpAddr, protocol: Protocol| {
            let is_made = matches!(protocol, Protocol(1..=3));
            is_link_local(ip) && is_made && self.former.iter().all(|key| key.ip != ip)
        };
        address::delete_on_link(self.connection, index, &is_new).map_err(|error| failure(&error))
    }

    fn put_right(&mut self, class: Class) -> Result<(), Failure> {
        let (moved, present) = (self.moved(class)?, self.present(class)?);
        if moved.is_empty() {
            return Ok(());
        }
        let links = self.links()?;
        let routes = self.routes_from(&moved, &links)?;
        let promoting = (class == Class::Ipv4).then(|| Promoting::begin(self.source, self.link));
        let changed = self.send(&links, |encoder| {
            // Secondary ones are the last: they go before the one that they would go with.
            for one in present.iter().rev().filter(|one| moved.contains(&one.key)) {
                let _ = address::delete(encoder, &one.key);
            }
            for key in &moved {
                let copied = present.iter().find(|one| one.key == *key).map(|one| &one.copied);
                copied.map(|copied| snapshot::put_back(encoder, copied, Put::Create.flags()));
            }
        });
        drop(promoting);
        changed?;
        // Of IPv6, the kernel keeps them without the address that they came from.
        let put = if class == Class::Ipv4 { Put::Create } else { Put::Replace };
        self.send(&links, |encoder| {
            for copied in &routes {
                let _ = snapshot::put_back(encoder, copied, put.flags());
            }
        })
    }

    /// The routes that leave with one of these addresses: they go along with it.
    fn routes_from(&mut self, of: &[AddressKey], links: &Links) -> Result<Vec<Copied>, Failure> {
        let family = if of.iter().any(|key| key.ip.is_ipv4()) { AF_INET } else { AF_INET6 };
        let is_from = |message: &Message<'_>| {
            let (fixed, attrs) = message.split::<12>()?;
            // Those of the kernel itself come with the address.
            let [_, _, _, _, _, protocol, ..] = *fixed;
            let source = attrs.first(RTA_PREFSRC)?.map(|attr| read_ip(&attr)).transpose()?;
            let is_one = |source: IpAddr| of.iter().any(|key| key.ip == source);
            Ok(protocol != RTPROT_KERNEL && source.is_some_and(is_one))
        };
        let fixed = [family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let routes = collect(self.connection, RTM_GETROUTE, &fixed, |message| {
            if is_from(message)? { Copied::of(message, links).map(Some) } else { Ok(None) }
        });
        routes.map_err(|error| failure(&error))
    }

    fn send(&mut self, links: &Links, write: impl FnOnce(&mut Encoder<'_>)) -> Result<(), Failure> {
        let mut batch = Batch::new();
        let (protocol, address_marks) = (self.source.protocol, self.source.address_marks);
        write(&mut Encoder { batch: &mut batch, links, protocol, address_marks, echo: 0 });
        // What became of it is seen by a look at the addresses.
        let ran = self.connection.run(&mut batch, &mut |_, _| {});
        ran.map_err(|error| failure(&error))
    }
}

/// While it lives, an address that goes does not take along those that are secondary to it.
struct Promoting<'a> {
    source: &'a Rtnl,
    path: PathBuf,
    former: Option<String>,
}

impl<'a> Promoting<'a> {
    fn begin(source: &'a Rtnl, link: LinkName) -> Self {
        let path = ["/proc/sys/net/ipv4/conf", link.as_str(), "promote_secondaries"];
        let path: PathBuf = path.iter().collect();
        let former = source.run(|| {
            let former = fs::read_to_string(&path).ok()?;
            fs::write(&path, "1").ok().map(|()| former)
        });
        // Where it cannot be set, the secondary ones go along, and are made again by the next pass.
        Promoting { source, path, former: former.ok().flatten() }
    }
}

impl Drop for Promoting<'_> {
    fn drop(&mut self) {
        if let Some(former) = &self.former {
            let _ = self.source.run(|| fs::write(&self.path, former));
        }
    }
}

fn present(
    connection: &mut Connection,
    links: &Links,
    is_wanted: &dyn Fn(LinkName) -> bool,
) -> Result<Vec<Present>, Error> {
    collect(connection, RTM_GETADDR, &[0; 8], |message| {
        let seen = address::decode(message, links)?.filter(|seen| is_wanted(seen.key.link));
        let Some(seen) = seen else { return Ok(None) };
        let (key, protocol) = (seen.key, seen.protocol);
        Ok(Some(Present { key, copied: Copied::of(message, links)?, protocol }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_few_as_possible_are_made_again() {
        for (class, wanted, present, again) in [
            (Class::Ipv4, "abc", "abc", ""),
            (Class::Ipv4, "abc", "axbyc", ""),
            (Class::Ipv4, "abc", "bac", "bc"),
            (Class::Ipv4, "abc", "acb", "c"),
            (Class::Ipv4, "", "x", ""),
            (Class::Ipv6, "abc", "bac", "a"),
            (Class::Ipv6, "abc", "cba", "ba"),
            (Class::Ipv6, "abc", "abc", ""),
        ] {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            let moved = moved(class, &letters(wanted), &letters(present));
            assert_eq!(moved.iter().collect::<String>(), again, "{wanted} of {present}");
        }
    }
}
