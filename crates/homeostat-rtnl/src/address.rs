//! Addresses of links: key, managed part, when what is seen agrees with what is declared, netlink messages, and reading them from the kernel.

pub(crate) mod cascade;
pub(crate) mod order;
#[cfg(feature = "document")]
pub(crate) mod section;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use homeostat_core::{Agreement, Desired as _, Owner};
use homeostat_netlink::uapi::{
    IFA_ADDRESS, IFA_BROADCAST, IFA_CACHEINFO, IFA_F_DADFAILED, IFA_F_DEPRECATED,
    IFA_F_NOPREFIXROUTE, IFA_F_SECONDARY, IFA_FLAGS, IFA_LABEL, IFA_LOCAL, IFA_PROTO, RTM_DELADDR,
    RTM_GETADDR, RTM_NEWADDR,
};
use homeostat_netlink::{
    Batch, Connection, Errno, Error, Malformed, Message, MessageWriter, Result,
};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::builder::Impossible;
use crate::key::Key;
use crate::link::observe::ask;
use crate::link::{IfIndex, LinkName, Links};
use crate::message::{AF_INET, AF_INET6, Encoded, Encoder, Put, put_ip, read_ip};
use crate::moment::{Moment, ObservedAddress};
use crate::net::{Family, Net};
use crate::number::{Protocol, Scope};
use crate::object::{Object, agrees};
use crate::observe::{MOST_LOOKUPS, Observation, collect, foreign};
use crate::release::is_release_before;
use crate::source::Rtnl;

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
    /// Its old-style interface name: a link's name, often with a colon and a number behind it. IPv4 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The address of everybody in its network; IPv4 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<Ipv4Addr>,
    /// Whether the kernel is kept from making a route for its network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noprefixroute: Option<bool>,
    /// Whether another host on the link has it, so that it is not used. The kernel finds out; none is declared so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_duplicate: bool,
}

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
pub(crate) fn normalize(key: &AddressKey, desired: &mut Address) -> Result<(), Impossible> {
    let seconds = |life: Option<Lifetime>| life.unwrap_or(Lifetime::Forever).to_kernel();
    if seconds(desired.preferred) > seconds(desired.valid) && desired.preferred.is_some() {
        return Err(Impossible::PreferredBeyondValid);
    }
    if desired.valid == Some(Lifetime::Seconds(0)) {
        return Err(Impossible::NoLifetime);
    }
    if key.ip.is_ipv4() && is_never_deprecated(desired.valid, desired.preferred) {
        return Err(Impossible::NeverDeprecated);
    }
    // An address that ends and says no more is preferred until then.
    desired.preferred = desired.preferred.or(desired.valid);
    if key.ip.is_ipv6() {
        if desired.label.is_some() {
            return Err(Impossible::LabelOnIpv6);
        }
        if desired.broadcast.is_some() {
            return Err(Impossible::BroadcastOnIpv6);
        }
        desired.scope = None;
    }
    Ok(())
}

/// Quirk `v4-forever-is-preferred-forever` (Linux 6.18): `ip address add 10.0.0.1/24 dev va preferred_lft 60` succeeds,
/// and the address is preferred for ever, since it lives for ever. Only `preferred_lft 0` is honoured.
pub(crate) fn is_never_deprecated(valid: Option<Lifetime>, preferred: Option<Lifetime>) -> bool {
    let lives_forever = valid.is_none_or(|valid| valid == Lifetime::Forever);
    lives_forever && matches!(preferred, Some(Lifetime::Seconds(1..)))
}

/// Whether an address is as declared.
pub(crate) fn address_agrees(desired: &Address, seen: &Address) -> bool {
    !seen.is_duplicate
        && lifetime_agrees(desired.valid, seen.valid)
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct AddressKey {
    pub link: LinkName,
    pub ip: IpAddr,
    /// How many bits are the network's: of the peer's address, if there is one.
    pub prefix_len: u8,
    /// The other end of a link between two.
    pub peer: Option<IpAddr>,
}

impl AddressKey {
    /// The lowest key that an address of a link can have: links come first in the order of keys.
    pub(crate) fn lowest_on(link: LinkName) -> Self {
        AddressKey { link, ip: Ipv4Addr::UNSPECIFIED.into(), prefix_len: 0, peer: None }
    }

    /// An address of a link. None, if the address has not so many bits.
    #[must_use]
    pub fn new(link: LinkName, ip: IpAddr, prefix_len: u8) -> Option<Self> {
        IpNet::new(ip, prefix_len).is_ok().then_some(AddressKey {
            link,
            ip,
            prefix_len,
            peer: None,
        })
    }

    /// The other end of a link between two. None, if it is of another family.
    #[must_use]
    pub fn with_peer(mut self, peer: IpAddr) -> Option<Self> {
        // An address that is its own peer is one without.
        self.peer = Some(peer).filter(|peer| *peer != self.ip);
        (peer.is_ipv4() == self.ip.is_ipv4()).then_some(self)
    }

    /// The network that it is in: its peer's, if it has one.
    #[must_use]
    pub fn net(&self) -> Net {
        Net::masked(self.peer.unwrap_or(self.ip), self.prefix_len)
    }
}

impl fmt::Display for AddressKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AddressKey { link, ip, prefix_len, peer } = self;
        match peer {
            None => write!(f, "address {ip}/{prefix_len} dev {link}"),
            Some(peer) => write!(f, "address {ip} peer {peer}/{prefix_len} dev {link}"),
        }
    }
}

/// Where an address carries the mark that it is ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressMarks {
    /// In the kernel.
    #[default]
    Kernel,
    /// In the kernel, which never changes that of an IPv4 address.
    Fixed,
    /// In the ledger, since the kernel keeps none.
    Ledger,
}

impl AddressMarks {
    /// Quirk `no-address-mark` (before Linux 5.18): the kernel has no `IFA_PROTO`; it ignores what is
    /// sent and never sends it.
    ///
    /// Quirk `v4-mark-for-good` (Linux 5.18 to 6.2): `ip address replace` with another protocol succeeds
    /// and leaves that of an IPv4 address as it was, so that one is taken over by being made anew.
    pub(crate) fn of_this_kernel() -> Self {
        Self::of_release(&rustix::system::uname().release().to_string_lossy())
    }

    fn of_release(release: &str) -> Self {
        match () {
            () if is_release_before(release, (5, 18)) => AddressMarks::Ledger,
            () if is_release_before(release, (6, 3)) => AddressMarks::Fixed,
            () => AddressMarks::Kernel,
        }
    }
}

/// Puts an address there.
pub(crate) fn put(
    encoder: &mut Encoder<'_>,
    key: &AddressKey,
    address: &Address,
    put: Put,
) -> Encoded {
    let index = encoder.index(key.link)?;
    let mut message = encoder.batch.message(RTM_NEWADDR, put.flags() | encoder.echo);
    let scope = address.scope.unwrap_or_else(|| usual_scope(key));
    address_head(&mut message, key, scope, index);
    if encoder.address_marks != AddressMarks::Ledger {
        message.attr_u8(IFA_PROTO, encoder.protocol.0);
    }
    address.broadcast.map(|ip| put_ip(&mut message, IFA_BROADCAST, ip.into()));
    if let Some(label) = &address.label {
        message.attr(IFA_LABEL, &[label.as_bytes(), &[0]].concat());
    }
    if address.noprefixroute == Some(true) {
        message.attr_u32(IFA_FLAGS, IFA_F_NOPREFIXROUTE);
    }
    if address.valid.is_some() || address.preferred.is_some() {
        let seconds = |life: Option<Lifetime>| life.unwrap_or(Lifetime::Forever).to_kernel();
        let [preferred, valid] = [address.preferred, address.valid].map(seconds);
        let times = [preferred.to_ne_bytes(), valid.to_ne_bytes(), [0; 4], [0; 4]];
        message.attr(IFA_CACHEINFO, times.as_flattened());
    }
    Ok(message.finish())
}

/// Takes an address away.
pub(crate) fn delete(encoder: &mut Encoder<'_>, key: &AddressKey) -> Encoded {
    let index = encoder.index(key.link)?;
    let mut message = encoder.batch.message(RTM_DELADDR, 0);
    address_head(&mut message, key, Scope::GLOBAL, index);
    Ok(message.finish())
}

/// Deletes addresses of a link, of any owner.
pub(crate) fn delete_on_link(
    connection: &mut Connection,
    link: IfIndex,
    goes: &dyn Fn(IpAddr, Protocol) -> bool,
) -> Result<()> {
    let all = collect(connection, RTM_GETADDR, &[0; 8], |message| {
        let (fixed, attrs) = message.split::<8>()?;
        if fixed.last_chunk() != Some(&link.0.to_ne_bytes()) {
            return Ok(None);
        }
        let (mut named, mut ip, mut protocol) = (Vec::new(), None, Protocol(0));
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                IFA_LOCAL | IFA_ADDRESS => {
                    ip = Some(read_ip(&attr)?);
                    named.push((attr.kind, attr.value.to_vec()));
                }
                IFA_PROTO => protocol = Protocol(attr.value.first().copied().unwrap_or(0)),
                _ => {}
            }
        }
        Ok(ip.filter(|ip| goes(*ip, protocol)).map(|_| (*fixed, named)))
    })?;
    if all.is_empty() {
        return Ok(());
    }
    let mut batch = Batch::new();
    for (fixed, attrs) in &all {
        let mut message = batch.message(RTM_DELADDR, 0);
        message.fixed(fixed);
        for (kind, value) in attrs {
            message.attr(*kind, value);
        }
        message.finish()?;
    }
    // Secondary ones may have gone with others.
    connection.run(&mut batch, &mut |_, _| {})
}

/// Whether an address is one of those that the kernel makes for each link.
pub(crate) fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// What `ip` takes where nothing is said.
fn usual_scope(key: &AddressKey) -> Scope {
    if key.ip.is_loopback() { Scope::HOST } else { Scope::GLOBAL }
}

fn address_head(message: &mut MessageWriter<'_>, key: &AddressKey, scope: Scope, index: IfIndex) {
    let [i0, i1, i2, i3] = index.0.to_ne_bytes();
    message.fixed(&[Family::of(key.ip).to_kernel(), key.prefix_len, 0, scope.0, i0, i1, i2, i3]);
    put_ip(message, IFA_LOCAL, key.ip);
    put_ip(message, IFA_ADDRESS, key.peer.unwrap_or(key.ip));
}

/// An address as the kernel reports it.
pub(crate) struct SeenAddress {
    pub(crate) key: AddressKey,
    pub(crate) address: Address,
    pub(crate) protocol: Protocol,
    pub(crate) is_secondary: bool,
}

/// An address; none, if it is of a family that is not kept here.
pub(crate) fn decode(
    message: &Message<'_>,
    links: &Links,
) -> Result<Option<SeenAddress>, Malformed> {
    let (fixed, attrs) = message.split::<8>()?;
    let [family, prefix_len, flags, scope, i0, i1, i2, i3] = *fixed;
    if family != AF_INET && family != AF_INET6 {
        return Ok(None);
    }
    let link = links.name(IfIndex(u32::from_ne_bytes([i0, i1, i2, i3])));
    let mut address = Address { scope: Some(Scope(scope)), ..Address::default() };
    let (mut local, mut peer, mut protocol, mut flags) = (None, None, 0, u32::from(flags));
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            IFA_LOCAL => local = Some(read_ip(&attr)?),
            IFA_ADDRESS => peer = Some(read_ip(&attr)?),
            IFA_BROADCAST => address.broadcast = attr.array().ok().map(Ipv4Addr::from_octets),
            IFA_LABEL => address.label = attr.str().ok().map(str::to_owned),
            IFA_FLAGS => flags = attr.u32()?,
            IFA_PROTO => protocol = attr.u8()?,
            IFA_CACHEINFO => {
                let [p0, p1, p2, p3, v0, v1, v2, v3, ..] = attr.array::<16>()?;
                let life = |bytes| Some(Lifetime::from_kernel(u32::from_ne_bytes(bytes)));
                address.preferred = life([p0, p1, p2, p3]);
                address.valid = life([v0, v1, v2, v3]);
            }
            _ => {}
        }
    }
    address.noprefixroute = Some(flags & IFA_F_NOPREFIXROUTE != 0);
    address.is_duplicate = flags & IFA_F_DADFAILED != 0;
    // The kernel says that an IPv4 address that lives for ever is preferred for ever, deprecated or not.
    if flags & IFA_F_DEPRECATED != 0 {
        address.preferred = Some(Lifetime::Seconds(0));
    }
    let Some(ip) = local.or(peer) else { return Ok(None) };
    let key = AddressKey::new(link, ip, prefix_len);
    let key = key.and_then(|key| key.with_peer(peer.unwrap_or(ip)));
    let (protocol, is_secondary) = (Protocol(protocol), flags & IFA_F_SECONDARY != 0);
    Ok(key.map(|key| SeenAddress { key, address, protocol, is_secondary }))
}

/// Dumps addresses, of which the shadow then knows. Returns whether one of them may be deleted by the pass, for
/// good or for a moment.
pub(crate) fn observe_all(
    observation: &mut Observation<'_, '_>,
    moment: &mut Moment,
) -> Result<bool, Error> {
    let links = &moment.links;
    let found =
        collect(observation.connection, RTM_GETADDR, &[0; 8], |message| decode(message, links))?;
    moment.addresses.extend(found.into_iter().map(|seen| {
        let mut observed = announced(&seen, observation.source);
        observed.owner = proven(observation, &seen.key, &observed.owner);
        (seen.key, observed)
    }));
    if let Some(shadow) = &mut observation.shadow {
        shadow.addresses = Some(moment.addresses.clone());
    }
    Ok(report(observation, moment.addresses.iter()))
}

/// The same for some keys, without a dump if the shadow knows all addresses. A mark that is in the ledger is not
/// known there.
///
/// Quirk `tentative-addresses-change-silently` (Linux 6.18): new lifetimes of an IPv6 address are announced only once
/// duplicate address detection has ended, so that the kernel is asked for each. It cannot be asked for an IPv4 one.
pub(crate) fn observe_some(
    observation: &mut Observation<'_, '_>,
    moment: &mut Moment,
    keys: &BTreeSet<Key>,
) -> Result<bool, Error> {
    let known = observation.shadow.as_mut().and_then(|shadow| shadow.addresses.take());
    let known = known.filter(|_| observation.source.address_marks != AddressMarks::Ledger);
    let keys: Vec<AddressKey> = keys.iter().filter_map(Key::address).collect();
    let (Some(mut known), true) = (known, keys.len() <= MOST_LOOKUPS) else {
        return observe_all(observation, moment);
    };
    for key in keys.iter().filter(|key| key.ip.is_ipv6()) {
        let seen = look_up_ipv6(observation, key, &moment.links)?;
        match seen.filter(|seen| seen.key == *key) {
            Some(seen) => known.extend([(*key, announced(&seen, observation.source))]),
            None => known.remove(key),
        }
    }
    moment.addresses = known.clone();
    if let Some(shadow) = &mut observation.shadow {
        shadow.addresses = Some(known);
    }
    Ok(report(observation, keys.iter().filter_map(|key| Some((key, moment.addresses.get(key)?)))))
}

fn look_up_ipv6(
    observation: &mut Observation<'_, '_>,
    key: &AddressKey,
    links: &Links,
) -> Result<Option<SeenAddress>, Error> {
    let Some(index) = links.index(key.link) else { return Ok(None) };
    let mut found = None;
    let write = |batch: &mut Batch| {
        let [i0, i1, i2, i3] = index.0.to_ne_bytes();
        let mut message = batch.message(RTM_GETADDR, 0);
        message.fixed(&[AF_INET6, 0, 0, 0, i0, i1, i2, i3]);
        put_ip(&mut message, IFA_LOCAL, key.ip);
        put_ip(&mut message, IFA_ADDRESS, key.peer.unwrap_or(key.ip));
        message.finish()
    };
    let asked = ask(observation.connection, write, &mut |message| {
        found = decode(&message, links).ok().flatten();
    });
    match asked {
        Err(Error::Refused(refusal)) if refusal.errno == Errno::ADDRNOTAVAIL => Ok(None),
        asked => asked.map(|()| found),
    }
}

fn report<'k>(
    observation: &mut Observation<'_, '_>,
    found: impl Iterator<Item = (&'k AddressKey, &'k ObservedAddress)>,
) -> bool {
    let mut goes = false;
    for (key, observed) in found {
        let owner = match observation.source.address_marks {
            AddressMarks::Ledger => Owner::Unmarked,
            _ => observed.owner.clone(),
        };
        let (key, object) = (Key::Address(*key), Object::Address(observed.address.clone()));
        goes |= may_go(observation, &key, &object, &owner);
        observation.report(key, object, owner);
    }
    goes
}

/// Whose an address is; the ledger says it of one without a mark.
fn proven(observation: &Observation<'_, '_>, key: &AddressKey, owner: &Owner) -> Owner {
    match owner {
        Owner::Unmarked if observation.view.records.contains_key(&Key::Address(*key)) => {
            Owner::Ours
        }
        Owner::Unmarked => Owner::foreign("another owner"),
        owner => owner.clone(),
    }
}

/// Whether the pass may delete an address, be it to create it again.
fn may_go(observation: &Observation<'_, '_>, key: &Key, object: &Object, owner: &Owner) -> bool {
    let may_be_ours = matches!(owner, Owner::Ours | Owner::Unmarked);
    let desired = observation.view.desired;
    let is_as_declared = || {
        let slot = desired.slot(key, None);
        slot.is_some_and(|slot| desired.compare(slot, object) == Agreement::Agrees)
    };
    may_be_ours && observation.view.focus.covers(key) && !is_as_declared()
}

/// What a message says of an address.
pub(crate) fn announced(seen: &SeenAddress, source: &Rtnl) -> ObservedAddress {
    let (address, is_secondary) = (seen.address.clone(), seen.is_secondary);
    ObservedAddress { address, owner: address_owner(seen.protocol, source), is_secondary }
}

/// The kernel marks what it makes by itself with 1 to 3: loopback, router advertisement, link-local.
fn address_owner(protocol: Protocol, source: &Rtnl) -> Owner {
    match protocol {
        _ if source.address_marks == AddressMarks::Ledger => Owner::Unmarked,
        protocol if protocol == source.protocol => Owner::Ours,
        Protocol(1..=3) => Owner::Kernel,
        protocol => foreign(protocol),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_kernels_keep_no_mark_on_addresses_or_the_first_one() {
        for (release, marks) in [
            ("5.17.0-1-amd64", AddressMarks::Ledger),
            ("4.19.0", AddressMarks::Ledger),
            ("5.18-rc1", AddressMarks::Fixed),
            ("5.18.0", AddressMarks::Fixed),
            ("6.1.0-44-amd64", AddressMarks::Fixed),
            ("6.3.0", AddressMarks::Kernel),
            ("6.18.44", AddressMarks::Kernel),
            ("", AddressMarks::Kernel),
            ("odd", AddressMarks::Kernel),
        ] {
            assert_eq!(AddressMarks::of_release(release), marks, "{release}");
        }
    }
}
