//! Nexthop objects: ways that routes refer to by number, and groups of them.
//!
//! Quirk `nexthop-takes-routes` (Linux 6.18): a nexthop that is deleted takes its routes along, whatever
//! their owner, and leaves its groups; a group without members is deleted too. Only the nexthop itself is
//! announced.

#[cfg(feature = "document")]
pub(crate) mod section;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use homeostat_core::{Owner, Taken, WaitsOn};
use homeostat_netlink::uapi::{
    NEXTHOP_GRP_TYPE_RES, NHA_BLACKHOLE, NHA_ENCAP, NHA_FDB, NHA_GATEWAY, NHA_GROUP,
    NHA_GROUP_TYPE, NHA_ID, NHA_OIF, RTM_DELNEXTHOP, RTM_GETNEXTHOP, RTM_NEWNEXTHOP, RTNH_F_ONLINK,
};
use homeostat_netlink::{Attr, Batch, Errno, Error, Malformed, Message, Result};
use serde::{Deserialize, Serialize};

use crate::address::AddressKey;
use crate::address::cascade::Cascade;
use crate::builder::Impossible;
use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::observe::ask;
use crate::link::{IfIndex, LinkName, Links};
use crate::message::{Encoded, Encoder, Put, put_ip, read_ip};
use crate::moment::Moment;
use crate::net::Family;
use crate::number::{NO_NUMBER, ParseError, Protocol, Scope};
use crate::object::Object;
use crate::observe::{MOST_LOOKUPS, Observation, collect};
use crate::plan::{Has, missing_link};
use crate::route::Route;
use crate::route::observe::route_owner;
use crate::shadow::Shadow;

/// The number by which routes refer to a nexthop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NexthopId(pub u32);

impl fmt::Display for NexthopId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for NexthopId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let number = text.parse().ok().filter(|number| *number != 0);
        ParseError::unless(number.map(NexthopId), text, NO_NUMBER)
    }
}

/// The managed part of a nexthop: a gateway or a link, a blackhole, or a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nexthop {
    /// The family of the routes; that of the gateway, if there is one; a group has none. IPv4 if neither is declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
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

/// What makes a nexthop one that cannot be declared.
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

    #[must_use]
    pub fn blackhole(family: Family) -> Self {
        Nexthop { family: Some(family), blackhole: true, ..Nexthop::default() }
    }

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

/// Brings a declared nexthop to the form in which it is compared.
pub(crate) fn normalize(id: NexthopId, desired: &mut Nexthop) -> Result<(), Impossible> {
    if id.0 == 0 || desired.unusual.is_some() {
        return Err(Impossible::NotANexthop);
    }
    if desired.is_group() {
        check_group(id, desired)?;
        desired.group.sort_unstable();
    } else {
        check_single(desired)?;
        let family = desired.via.map(Family::of).or(desired.family);
        desired.family = Some(family.unwrap_or(Family::V4));
    }
    let scope = desired.scope.take();
    if scope.is_some_and(|scope| scope != derived_scope(desired)) {
        return Err(Impossible::NexthopScope);
    }
    Ok(())
}

fn check_group(id: NexthopId, desired: &Nexthop) -> Result<(), Impossible> {
    let Nexthop { family, via, dev, onlink, blackhole, group, .. } = desired;
    if family.is_some() || via.is_some() || dev.is_some() || onlink.is_some() || *blackhole {
        return Err(Impossible::GroupWithWay);
    }
    let mut ids: Vec<NexthopId> = group.iter().map(|member| member.id).collect();
    ids.sort_unstable();
    if ids.contains(&id) || ids.array_windows().any(|[a, b]| a == b) {
        return Err(Impossible::GroupMember);
    }
    let weighs = |member: &Member| (1..=256).contains(&member.weight);
    if group.iter().all(weighs) { Ok(()) } else { Err(Impossible::Weight) }
}

fn check_single(desired: &Nexthop) -> Result<(), Impossible> {
    let families = desired.via.map(Family::of).zip(desired.family);
    if families.is_some_and(|(gateway, family)| gateway != family) {
        return Err(Impossible::NexthopFamily);
    }
    let has_way = desired.via.is_some() || desired.dev.is_some() || desired.onlink.is_some();
    match (desired.blackhole, desired.dev) {
        (true, _) if has_way => Err(Impossible::HoleWithWay),
        (false, None) => Err(Impossible::NexthopWithoutLink),
        _ => Ok(()),
    }
}

/// Quirk `nexthop-scope-is-derived` (Linux 6.18): a request that names a scope is refused, and what
/// is read back follows from the way.
fn derived_scope(desired: &Nexthop) -> Scope {
    match desired {
        Nexthop { blackhole: true, .. } => Scope::GLOBAL,
        _ if desired.is_group() => Scope::GLOBAL,
        Nexthop { via: None, family: Some(Family::V4), .. } => Scope::HOST,
        _ => Scope::LINK,
    }
}

/// Whether a nexthop is as declared. What makes the way is always declared.
pub(crate) fn agrees(desired: &Nexthop, seen: &Nexthop) -> bool {
    let is_onlink = desired.onlink.is_none() || desired.onlink == seen.onlink;
    is_onlink
        && seen.unusual.is_none()
        && (desired.family, desired.via, desired.dev) == (seen.family, seen.via, seen.dev)
        && desired.blackhole == seen.blackhole
        && desired.group == seen.group
}

/// Whether one can become the other in place.
///
/// Quirk `nexthop-kind-is-for-good` (Linux 6.18): a group cannot become a single nexthop, nor the
/// other way round; a resilient group cannot become a usual one.
pub(crate) fn is_same_kind(desired: &Nexthop, seen: &Nexthop) -> bool {
    desired.is_group() == seen.is_group() && seen.unusual.is_none()
}

/// Puts a nexthop there.
pub(crate) fn put(
    encoder: &mut Encoder<'_>,
    id: NexthopId,
    desired: &Nexthop,
    put: Put,
) -> Encoded {
    let dev = desired.dev.map(|dev| encoder.index(dev)).transpose()?;
    let flags = if desired.onlink == Some(true) { RTNH_F_ONLINK } else { 0 };
    let [f0, f1, f2, f3] = flags.to_ne_bytes();
    let family = desired.family.map_or(0, Family::to_kernel);
    let mut message = encoder.batch.message(RTM_NEWNEXTHOP, put.flags());
    message.fixed(&[family, 0, encoder.protocol.0, 0, f0, f1, f2, f3]);
    message.attr_u32(NHA_ID, id.0);
    desired.via.map(|gateway| put_ip(&mut message, NHA_GATEWAY, gateway));
    dev.map(|dev| message.attr_u32(NHA_OIF, dev.0));
    if desired.blackhole {
        message.attr_flag(NHA_BLACKHOLE);
    }
    if desired.is_group() {
        message.attr(
            NHA_GROUP,
            desired.group.iter().copied().map(entry).collect::<Vec<_>>().as_flattened(),
        );
    }
    Ok(message.finish())
}

/// Takes a nexthop away.
///
/// Quirk `nexthop-delete-asks-for-no-protocol` (Linux 6.18): the kernel refuses a delete that
/// names a protocol, so that only what was seen to be ours just before may be asked for.
pub(crate) fn delete(encoder: &mut Encoder<'_>, id: NexthopId) -> Result<()> {
    let mut message = encoder.batch.message(RTM_DELNEXTHOP, 0);
    message.fixed(&[0; 8]).attr_u32(NHA_ID, id.0);
    message.finish()
}

/// A member as `struct nexthop_grp`: its number and its weight, counted from zero.
fn entry(member: Member) -> [u8; 8] {
    let [i0, i1, i2, i3] = member.id.0.to_ne_bytes();
    let [weight, ..] = member.weight.saturating_sub(1).to_le_bytes();
    [i0, i1, i2, i3, weight, 0, 0, 0]
}

/// A nexthop as the kernel reports it.
pub(crate) struct SeenNexthop {
    pub(crate) id: NexthopId,
    pub(crate) nexthop: Nexthop,
    pub(crate) protocol: Protocol,
}

/// A nexthop; none, if it has no number.
pub(crate) fn decode(
    message: &Message<'_>,
    links: &Links,
) -> Result<Option<SeenNexthop>, Malformed> {
    let (fixed, attrs) = message.split::<8>()?;
    let [family, _scope, protocol, _, f0, f1, f2, f3] = *fixed;
    let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
    let mut nexthop = Nexthop { family: Family::from_kernel(family), ..Nexthop::default() };
    let mut id = None;
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NHA_ID => id = Some(NexthopId(attr.u32()?)),
            NHA_OIF => nexthop.dev = Some(links.name(IfIndex(attr.u32()?))),
            NHA_GATEWAY => nexthop.via = Some(read_ip(&attr)?),
            NHA_BLACKHOLE => nexthop.blackhole = true,
            NHA_GROUP => nexthop.group = members(&attr)?,
            NHA_ENCAP => nexthop.unusual = Some(Unusual::Encapsulated),
            NHA_FDB => nexthop.unusual = Some(Unusual::Fdb),
            NHA_GROUP_TYPE if attr.u16()? == NEXTHOP_GRP_TYPE_RES => {
                nexthop.unusual = Some(Unusual::Resilient);
            }
            _ => {}
        }
    }
    if nexthop.is_group() {
        nexthop.family = None;
    } else if !nexthop.blackhole {
        nexthop.onlink = Some(flags & RTNH_F_ONLINK != 0);
    }
    Ok(id.map(|id| SeenNexthop { id, nexthop, protocol: Protocol(protocol) }))
}

/// The kernel counts weights from zero, in a byte and, since 6.12, in a second one above it.
fn members(attr: &Attr<'_>) -> Result<Vec<Member>, Malformed> {
    let (entries, rest) = attr.value.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(Malformed::Value { kind: attr.kind, len: attr.value.len() });
    }
    let member = |[i0, i1, i2, i3, low, high, ..]: &[u8; 8]| Member {
        id: NexthopId(u32::from_ne_bytes([*i0, *i1, *i2, *i3])),
        weight: u16::from_le_bytes([*low, *high]).saturating_add(1),
    };
    let mut members: Vec<Member> = entries.iter().map(member).collect();
    members.sort_unstable();
    Ok(members)
}

/// A nexthop that is there.
#[derive(Clone, Debug)]
pub(crate) struct ObservedNexthop {
    pub(crate) id: NexthopId,
    pub(crate) owner: Owner,
    pub(crate) dev: Option<LinkName>,
    pub(crate) members: Vec<NexthopId>,
}

/// The nexthops that are there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nexthops {
    by_id: BTreeMap<NexthopId, ObservedNexthop>,
    on_links: BTreeMap<LinkName, BTreeSet<NexthopId>>,
    /// The groups that a nexthop is in.
    groups: BTreeMap<NexthopId, Vec<NexthopId>>,
}

impl Extend<ObservedNexthop> for Nexthops {
    fn extend<I: IntoIterator<Item = ObservedNexthop>>(&mut self, found: I) {
        for observed in found {
            let id = observed.id;
            observed.dev.map(|link| self.on_links.entry(link).or_default().insert(id));
            for member in &observed.members {
                self.groups.entry(*member).or_default().push(id);
            }
            self.by_id.insert(id, observed);
        }
    }
}

impl Nexthops {
    /// The links of a nexthop, or of the members of a group.
    pub(crate) fn links_of(&self, id: NexthopId) -> Vec<LinkName> {
        let Some(observed) = self.by_id.get(&id) else { return Vec::new() };
        let members = observed.members.iter().filter_map(|member| self.by_id.get(member));
        members.chain([observed]).filter_map(|one| one.dev).collect()
    }

    /// The groups that lose a member with some nexthops.
    fn groups_of(&self, ids: &BTreeSet<NexthopId>) -> impl Iterator<Item = &ObservedNexthop> {
        let groups = ids.iter().filter_map(|id| self.groups.get(id)).flatten();
        let groups: BTreeSet<&NexthopId> = groups.collect();
        groups.into_iter().filter_map(|group| self.by_id.get(group))
    }
}

/// Reports the nexthops of some keys. Dumps all only if one of them does not stay: then it matters what else there
/// is. Returns whether one is deleted, as `nexthops` does.
pub(crate) fn observe_some(
    observation: &mut Observation<'_, '_>,
    moment: &mut Moment,
    keys: &BTreeSet<Key>,
) -> Result<bool, Error> {
    let ids = keys.iter().filter_map(|key| match key {
        Key::Nexthop(id) => Some(*id),
        _ => None,
    });
    let ids: Vec<NexthopId> = ids.collect();
    if ids.len() > MOST_LOOKUPS {
        return observe_all(observation, moment);
    }
    let mut found = Vec::new();
    for id in ids {
        let links = &moment.links;
        let asked = ask(observation.connection, |batch| get(batch, id), &mut |message| {
            found.extend(decode(&message, links).ok().flatten());
        });
        match asked {
            Err(Error::Refused(refusal)) if refusal.errno == Errno::NOENT => {}
            Err(Error::Refused(_)) => return observe_all(observation, moment),
            asked => asked?,
        }
    }
    if !found.iter().all(|seen| stays(observation, seen)) {
        return observe_all(observation, moment);
    }
    for SeenNexthop { id, nexthop, protocol } in found {
        let owner = route_owner(protocol, observation.source.protocol);
        observation.report(Key::Nexthop(id), Object::Nexthop(nexthop), owner);
    }
    Ok(false)
}

/// Whether a nexthop is declared, and can be changed to be as declared.
fn stays(observation: &Observation<'_, '_>, seen: &SeenNexthop) -> bool {
    let declared = observation.view.desired.get(&Key::Nexthop(seen.id));
    let declared = declared.map(|declared| &declared.object);
    matches!(declared, Some(Object::Nexthop(one)) if is_same_kind(one, &seen.nexthop))
}

/// Dumps nexthops. Returns whether one of them is deleted, for good or for a moment: its routes go
/// along, wherever they are.
pub(crate) fn observe_all(
    observation: &mut Observation<'_, '_>,
    moment: &mut Moment,
) -> Result<bool, Error> {
    let links = &moment.links;
    let found =
        collect(observation.connection, RTM_GETNEXTHOP, &[0; 8], |message| decode(message, links))?;
    let mut goes = false;
    for seen in found {
        let stays = stays(observation, &seen);
        let SeenNexthop { id, nexthop, protocol } = seen;
        let owner = route_owner(protocol, observation.source.protocol);
        let key = Key::Nexthop(id);
        let is_kept = owner != Owner::Ours || !observation.view.focus.covers(&key);
        goes |= !is_kept && !stays;
        let members = nexthop.group.iter().map(|member| member.id).collect();
        let (owner_seen, dev) = (owner.clone(), nexthop.dev);
        moment.nexthops.extend([ObservedNexthop { id, owner: owner_seen, dev, members }]);
        observation.report(key, Object::Nexthop(nexthop), owner);
    }
    Ok(goes)
}

/// Asks for one nexthop.
fn get(batch: &mut Batch, id: NexthopId) -> Result<()> {
    let mut message = batch.message(RTM_GETNEXTHOP, 0);
    message.fixed(&[0; 8]).attr_u32(NHA_ID, id.0);
    message.finish()
}

/// What other owners lose when a nexthop is deleted: routes, and members of groups.
pub(crate) fn of_delete(id: NexthopId, moment: &Moment) -> Cascade {
    Cascade { takes: lost(&BTreeSet::from([id]), moment), ..Cascade::default() }
}

/// What other owners lose when a link loses its nexthops.
pub(crate) fn lost_on(link: LinkName, moment: &Moment) -> Vec<Taken> {
    let Some(ids) = moment.nexthops.on_links.get(&link) else { return Vec::new() };
    let nexthops = ids.iter().filter_map(|id| moment.nexthops.by_id.get(id));
    let mut takes: Vec<Taken> = nexthops.filter_map(foreign).collect();
    takes.extend(lost(ids, moment));
    takes
}

fn lost(ids: &BTreeSet<NexthopId>, moment: &Moment) -> Vec<Taken> {
    let routes = |id: &NexthopId| moment.foreign.by_nexthop.get(id).cloned();
    let mut takes: Vec<Taken> = ids.iter().filter_map(routes).collect();
    for group in moment.nexthops.groups_of(ids) {
        takes.extend(foreign(group));
        // A group goes with its last member.
        let goes = group.members.iter().all(|member| ids.contains(member));
        takes.extend(routes(&group.id).filter(|_| goes));
    }
    takes
}

fn foreign(observed: &ObservedNexthop) -> Option<Taken> {
    let is_foreign = !matches!(observed.owner, Owner::Ours | Owner::Kernel);
    let key = || Key::Nexthop(observed.id).to_string();
    is_foreign.then(|| Taken::new(key(), observed.owner.clone()))
}

/// The declared keys that depend on a nexthop: groups that it is in, and routes through it or them.
pub(crate) fn dependants(id: NexthopId, desired: &DesiredState, each: &mut dyn FnMut(Key)) {
    let with_groups = with_groups(id, desired);
    with_groups.iter().filter(|other| **other != id).for_each(|group| each(Key::Nexthop(*group)));
    let routes = desired.routes_of_all(desired.relations.carried(&BTreeSet::new(), &with_groups));
    routes.for_each(|route| each(Key::Route(route)));
}

/// Marks the routes as uncertain that may have been deleted with a nexthop. False, if they are too many.
pub(crate) fn mark_uncertain(id: NexthopId, shadow: &mut Shadow) -> bool {
    let with_groups = with_groups(id, shadow.desired());
    let templates = shadow.desired().relations.carried(&BTreeSet::new(), &with_groups);
    let is_through = |route: &Route| route.nexthop.is_some_and(|id| with_groups.contains(&id));
    shadow.mark_uncertain(templates, is_through)
}

/// A nexthop, and the declared groups that it is in.
fn with_groups(id: NexthopId, desired: &DesiredState) -> BTreeSet<NexthopId> {
    desired.relations.groups_with(id).iter().copied().chain([id]).collect()
}

/// The declared nexthops that are deleted with some links: those on them, and groups that have no others.
pub(crate) fn lost_with(desired: &DesiredState, links: &BTreeSet<LinkName>) -> BTreeSet<NexthopId> {
    let relations = &desired.relations;
    let alone = links.iter().flat_map(|link| relations.nexthops_on(*link)).copied();
    let mut lost: BTreeSet<NexthopId> = alone.collect();
    let is_lost = |id: &NexthopId| match desired.get(&Key::Nexthop(*id)).map(|one| &one.object) {
        Some(Object::Nexthop(group)) => group.group.iter().all(|one| lost.contains(&one.id)),
        _ => false,
    };
    let groups: BTreeSet<NexthopId> =
        lost.iter().flat_map(|id| relations.groups_with(*id)).copied().collect();
    let groups: Vec<NexthopId> = groups.into_iter().filter(is_lost).collect();
    lost.extend(groups);
    lost
}

/// What a nexthop waits for: its link, or a member that waits.
pub(crate) fn waits_for(
    nexthop: &Nexthop,
    desired: &DesiredState,
    has: Has<'_>,
) -> Option<WaitsOn> {
    let link = nexthop.dev.and_then(|link| missing_link(has, link));
    link.or_else(|| nexthop.group.iter().find_map(|member| waiting(member.id, desired, has)))
}

/// A declared nexthop as what others wait for, if it waits itself.
pub(crate) fn waiting(id: NexthopId, desired: &DesiredState, has: Has<'_>) -> Option<WaitsOn> {
    let key = Key::Nexthop(id);
    let Object::Nexthop(nexthop) = &desired.get(&key)?.object else { return None };
    // Groups have no groups in them.
    let member = |member: &Member| match &desired.get(&Key::Nexthop(member.id))?.object {
        Object::Nexthop(nexthop) => nexthop.dev,
        _ => None,
    };
    let mut links = nexthop.dev.into_iter().chain(nexthop.group.iter().filter_map(member));
    links.any(|link| !has(link)).then(|| WaitsOn::Key(key.to_string()))
}

/// The keys that have to exist before a nexthop.
pub(crate) fn needs(nexthop: &Nexthop, desired: &DesiredState, need: &mut dyn FnMut(Key)) {
    nexthop.dev.into_iter().for_each(|link| desired.needed_for(link, need));
    nexthop.group.iter().for_each(|member| need(Key::Nexthop(member.id)));
    let reaches = |key: &AddressKey| nexthop.via.is_some_and(|via| key.net().contains(via));
    let below = desired.addresses().filter(|key| nexthop.dev == Some(key.link) && reaches(key));
    below.for_each(|key| need(Key::Address(key)));
}

#[cfg(test)]
mod plan_tests {
    use super::*;
    use crate::link::IfIndex;

    fn desired() -> DesiredState {
        let mut builder = DesiredState::builder();
        let member = Member { id: NexthopId(10), weight: 1 };
        let way = Nexthop::via([10, 0, 0, 2].into(), "va".parse().unwrap());
        builder.add(Key::Nexthop(NexthopId(10)), Object::Nexthop(way)).unwrap();
        let group = Object::Nexthop(Nexthop::group(vec![member]));
        builder.add(Key::Nexthop(NexthopId(20)), group).unwrap();
        for text in ["address 10.0.0.1/24 dev va", "address 10.1.0.1/24 dev va"] {
            let address = Object::Address(crate::address::Address::default());
            builder.add(text.parse().unwrap(), address).unwrap();
        }
        builder.build().unwrap()
    }

    fn at<'w>(desired: &'w DesiredState, key: &str) -> &'w Nexthop {
        match &desired.get(&key.parse().unwrap()).unwrap().object {
            Object::Nexthop(nexthop) => nexthop,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_group_needs_its_members_and_a_nexthop_the_address_that_reaches_its_gateway() {
        let desired = desired();
        let needed = |key: &str| {
            let mut needed = Vec::new();
            needs(at(&desired, key), &desired, &mut |key| needed.push(key.to_string()));
            needed
        };
        assert_eq!(needed("nexthop 20"), ["nexthop 10"]);
        assert_eq!(needed("nexthop 10"), ["address 10.0.0.1/24 dev va"]);
    }

    #[test]
    fn groups_that_are_members_of_each_other_are_looked_at_once() {
        let mut builder = DesiredState::builder();
        for (id, other) in [(20, 21), (21, 20)] {
            let member = Member { id: NexthopId(other), weight: 1 };
            let group = Object::Nexthop(Nexthop::group(vec![member]));
            builder.add(Key::Nexthop(NexthopId(id)), group).unwrap();
        }
        builder
            .route(
                "10.0.0.0/8".parse().map(crate::route::RouteKey::new).unwrap(),
                Route::through(NexthopId(20)),
            )
            .unwrap();
        let desired = builder.build().unwrap();
        assert_eq!(waits_for(at(&desired, "nexthop 20"), &desired, &|_| false), None);
        assert_eq!(waiting(NexthopId(20), &desired, &|_| false), None);
        assert!(lost_with(&desired, &BTreeSet::from(["va".parse().unwrap()])).is_empty());
        let mut found = Vec::new();
        dependants(NexthopId(21), &desired, &mut |key| found.push(key.to_string()));
        assert_eq!(found, ["nexthop 20", "route 10.0.0.0/8"]);
    }

    #[test]
    fn a_group_waits_for_a_member_that_waits_for_its_link() {
        let (desired, mut moment) = (desired(), Moment::default());
        let waits = |key: &str, moment: &Moment| {
            let has = |link| moment.links.index(link).is_some();
            waits_for(at(&desired, key), &desired, &has)
        };
        assert_eq!(waits("nexthop 10", &moment).unwrap().to_string(), "link va");
        assert_eq!(waits("nexthop 20", &moment).unwrap().to_string(), "nexthop 10");
        moment.links.insert("va".parse().unwrap(), IfIndex(7));
        assert_eq!(waits("nexthop 20", &moment), None);
    }
}

#[cfg(test)]
mod normalize_tests {
    use super::*;

    fn way() -> Nexthop {
        Nexthop::via([10, 0, 0, 2].into(), "va".parse().unwrap())
    }

    fn normalize(id: NexthopId, mut desired: Nexthop) -> Result<Nexthop, Impossible> {
        super::normalize(id, &mut desired).map(|()| desired)
    }

    fn group(members: &[(u32, u16)]) -> Nexthop {
        let member = |(id, weight): &(u32, u16)| Member { id: NexthopId(*id), weight: *weight };
        Nexthop::group(members.iter().map(member).collect())
    }

    #[test]
    fn the_family_is_the_gateways_or_ipv4() {
        let family = |desired| normalize(NexthopId(1), desired).unwrap().family;
        let v6 = Nexthop { via: Some("fd00::1".parse().unwrap()), ..way() };
        assert_eq!(family(way()), Some(Family::V4));
        assert_eq!(family(v6), Some(Family::V6));
        assert_eq!(family(Nexthop { via: None, ..way() }), Some(Family::V4));
        assert_eq!(family(Nexthop::blackhole(Family::V6)), Some(Family::V6));
        assert_eq!(family(group(&[(7, 1)])), None);
    }

    #[test]
    fn what_can_never_be_is_refused_with_its_reason() {
        let gateway = Some([10, 0, 0, 2].into());
        for (desired, why) in [
            (Nexthop::default(), Impossible::NexthopWithoutLink),
            (Nexthop { dev: None, ..way() }, Impossible::NexthopWithoutLink),
            (Nexthop { blackhole: true, ..way() }, Impossible::HoleWithWay),
            (Nexthop { family: Some(Family::V6), ..way() }, Impossible::NexthopFamily),
            (Nexthop { via: gateway, ..group(&[(7, 1)]) }, Impossible::GroupWithWay),
            (group(&[(1, 1)]), Impossible::GroupMember),
            (group(&[(7, 1), (7, 2)]), Impossible::GroupMember),
            (group(&[(7, 0)]), Impossible::Weight),
            (group(&[(7, 257)]), Impossible::Weight),
            (Nexthop { scope: Some(Scope::HOST), ..way() }, Impossible::NexthopScope),
        ] {
            assert_eq!(normalize(NexthopId(1), desired), Err(why));
        }
        assert_eq!(normalize(NexthopId(0), way()), Err(Impossible::NotANexthop));
    }

    #[test]
    fn a_scope_that_the_kernel_derives_anyway_may_be_declared() {
        for (desired, scope) in [
            (way(), Scope::LINK),
            (Nexthop { via: None, ..way() }, Scope::HOST),
            (Nexthop { via: None, family: Some(Family::V6), ..way() }, Scope::LINK),
            (Nexthop::blackhole(Family::V4), Scope::GLOBAL),
            (group(&[(7, 1)]), Scope::GLOBAL),
        ] {
            let desired = Nexthop { scope: Some(scope), ..desired };
            assert!(normalize(NexthopId(1), desired.clone()).is_ok(), "{desired:?}");
        }
    }

    #[test]
    fn members_agree_in_any_order_and_weights_count() {
        let seen = normalize(NexthopId(1), group(&[(7, 1), (8, 2)])).unwrap();
        let agrees = |desired| agrees(&normalize(NexthopId(1), desired).unwrap(), &seen);
        assert!(agrees(group(&[(8, 2), (7, 1)])));
        assert!(!agrees(group(&[(8, 1), (7, 1)])));
        assert!(!agrees(group(&[(7, 1)])));
    }
}

#[cfg(test)]
mod cascade_tests {
    use super::*;
    use crate::route::Route;

    fn observed(id: u32, owner: Owner, members: &[u32]) -> ObservedNexthop {
        let members = members.iter().copied().map(NexthopId).collect();
        ObservedNexthop { id: NexthopId(id), owner, dev: None, members }
    }

    #[test]
    fn foreign_groups_and_their_routes_are_named_and_ours_are_not() {
        let foreign = Owner::foreign("somebody");
        let mut moment = Moment::default();
        moment.nexthops.extend([
            observed(1, Owner::Ours, &[]),
            observed(20, Owner::Ours, &[1]),
            observed(30, foreign.clone(), &[1]),
            observed(31, foreign.clone(), &[1, 2]),
            observed(32, foreign.clone(), &[2]),
        ]);
        for (dst, id) in [("10.1.0.0/16", 30), ("10.2.0.0/16", 31), ("10.3.0.0/16", 1)] {
            let key = crate::route::RouteKey::new(dst.parse().unwrap());
            let route = Route::through(NexthopId(id));
            moment.foreign.note(&key, &route, &foreign, &Nexthops::default());
        }
        let takes = of_delete(NexthopId(1), &moment).takes;
        let keys: Vec<&str> = takes.iter().map(|taken| taken.key.as_str()).collect();
        assert_eq!(keys, ["route 10.3.0.0/16", "nexthop 30", "route 10.1.0.0/16", "nexthop 31"]);
    }
}
