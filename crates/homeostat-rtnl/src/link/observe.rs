//! The observed links: whose each is, what it refers to, and what a plan may ask about it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::{Focus, Original, Owner, Record, See, Seen, Stage, View};
use homeostat_netlink::{Batch, Connection};

use crate::key::Key;
use crate::link::cascade::{IPV6_MIN_MTU, first_mtu, going_with};
use crate::link::kinds::LinkKind;
use crate::link::matching::{Identity, Matched};
use crate::link::model::{
    Configured, Field, Incarnation, Link, LinkRef, Setting, changes_in_place,
};
use crate::link::namespaces::OtherNamespaces;
use crate::link::parking::Parked;
use crate::link::port::PortOption;
use crate::link::vlans::{Holder, Vlans};
use crate::link::{IfIndex, LinkName, Links, alias, message, parking};
use crate::moment::Moment;
use crate::object::{Object, agrees};
use crate::shared_map::SharedMap;
use crate::source::Rtnl;

/// Puts names to numbers and an owner to the mark of a link, once all links are known that it refers to.
fn resolve(seen: &mut SeenLink, moment: &Moment, source: &Rtnl, view: &View<'_, Rtnl>) {
    let declared = view.desired.link(seen.name);
    name_others(seen, &moment.links, &moment.namespaces, declared);
    let identity = seen.link.incarnation.identity();
    let record = view.records.get(&Key::Link(seen.name));
    let record = record.filter(|record| record.is_about(identity.as_deref()));
    seen.owner = owner(seen, source, record);
    if matches!(seen.owner, Owner::Unmarked) && is_renamed_half(seen, moment, view) {
        seen.owner = Owner::Ours;
        return;
    }
    // We were stopped before it had its mark, and who knows what else it lacks: no desired state is like
    // it, so that it is made again.
    if seen.owner == Owner::Ours && seen.mark() != Some(source.owner()) {
        let name = format!("half a {}", seen.link.kind.name());
        seen.link.kind = LinkKind::Other { name };
    }
}

/// Names the links that a link refers to, in the words of its desired state.
fn name_others(
    seen: &mut SeenLink,
    links: &Links,
    namespaces: &OtherNamespaces,
    declared: Option<&Link>,
) {
    seen.link.master = seen.master.map(|index| links.name(index));
    let parent = declared.and_then(|link| link.parent.as_ref());
    let peer = declared.and_then(|link| link.kind.peer());
    let named = |declared: Option<&LinkRef>| {
        seen.lower.map(|lower| namespaces.name(lower, links, declared))
    };
    match seen.link.kind.peer_mut() {
        Some(end) => {
            if let Some(name) = named(peer) {
                *end = name;
            }
        }
        None => seen.link.parent = named(parent),
    }
    if let LinkKind::Bond(bond) = &mut seen.link.kind {
        bond.primary = seen.primary.map(|index| links.name(index));
    }
}

/// Whose a link is. The group alone is ours only between the message that makes the link and the one
/// that marks it: then an intent is in the ledger.
fn owner(seen: &SeenLink, source: &Rtnl, record: Option<&Record<Object>>) -> Owner {
    let has_group = seen.group == source.group();
    match seen.mark() {
        Some(owner) if owner == source.owner() => Owner::Ours,
        Some(other) => Owner::Foreign(Cow::Owned(format!("{}{other}", alias::PREFIX))),
        None if is_the_kernels(seen) => Owner::Kernel,
        None if has_group && record.is_some_and(|record| record.stage == Stage::Intent) => {
            Owner::Ours
        }
        None if has_group && record.is_none() => Owner::Unmarked,
        None => Owner::foreign("another owner"),
    }
}

/// Whether it is a link that we were about to mark when we were stopped, and that was renamed since. The evidence is our
/// group, an open intent for a link that is not there, and what only one link can have (a VNI, a VLAN id on a parent): it
/// keeps the declared one from being made.
fn is_renamed_half(seen: &SeenLink, moment: &Moment, view: &View<'_, Rtnl>) -> bool {
    let is_wanted = |(key, record): (&Key, &Record<Object>)| match (key, &record.wrote) {
        (Key::Link(name), Object::Link(wrote)) => {
            record.stage == Stage::Intent
                && record.original == Original::Absent
                && moment.table.get(*name).is_none()
                && parking::occupies(wrote, &seen.link)
        }
        _ => false,
    };
    seen.alias.is_none() && view.records.iter().any(is_wanted)
}

/// Links that come with a namespace or with a kernel module, and that cannot be deleted.
fn is_the_kernels(seen: &SeenLink) -> bool {
    const BY_ITSELF: [&str; 10] = [
        "lo", "gre0", "gretap0", "erspan0", "sit0", "tunl0", "ip6tnl0", "ip6gre0", "ip_vti0",
        "ip6_vti0",
    ];
    BY_ITSELF.contains(&seen.name.as_str())
}

/// Resolves and reports the links of the focus, and the fields that are declared or recorded of those that are there.
pub(crate) fn report(
    moment: &mut Moment,
    source: &Rtnl,
    view: &View<'_, Rtnl>,
    see: &mut See<'_, Key, Object>,
) {
    let names: BTreeSet<LinkName> = match view.focus {
        Focus::Keys(keys) => {
            keys.iter().filter(|key| key.is_link()).filter_map(Key::link).collect()
        }
        Focus::All => moment.table.values().map(|seen| seen.name).collect(),
    };
    // Whose a link without a mark is depends on the ledger, which no event tells of.
    let resolved = match view.focus {
        Focus::Keys(_) => moment.table.related_to(&names),
        Focus::All => names.clone(),
    };
    for name in resolved {
        let Some(mut seen) = moment.table.get(name).cloned() else { continue };
        resolve(&mut seen, moment, source, view);
        moment.table.links.insert(name, seen);
    }
    for seen in names.iter().filter_map(|name| moment.table.get(*name)) {
        let (key, owner) = (Key::Link(seen.name), seen.owner.clone());
        if let Some(why) = moment.unread.get(&seen.name).filter(|_| view.focus.covers(&key)) {
            see(Seen::Unknown { key, why: why.clone() });
        } else if view.focus.covers(&key) {
            let object = Object::Link(Box::new(seen.link.clone()));
            see(Seen::Present { key, object, owner });
        }
    }
    let field = |key: &Key| match key {
        Key::LinkField(name, field) => Some((*name, *field)),
        _ => None,
    };
    let fields: BTreeSet<_> = match view.focus {
        Focus::Keys(keys) => keys.iter().filter_map(field).collect(),
        Focus::All => {
            let declared = view.desired.fields().map(|(name, field, _)| (name, field));
            declared.chain(view.records.keys().filter_map(field)).collect()
        }
    };
    for (name, field) in fields {
        let key = Key::LinkField(name, field);
        if let Some(Matched::Unclear(why)) = moment.matched.get(&name)
            && field == Field::Name
        {
            see(Seen::Unknown { key, why: why.clone() });
            continue;
        }
        let setting = moment.setting(name, field).filter(|_| view.focus.covers(&key));
        let incarnation = match moment.matched.get(&name) {
            Some(Matched::One { index, .. }) if field == Field::Name => {
                Some(Incarnation(Some(*index)))
            }
            _ => moment.table.get(name).map(|seen| seen.link.incarnation),
        };
        if let (Some(incarnation), Some(setting)) = (incarnation, setting) {
            let object = Object::Setting(Configured { setting, incarnation });
            let other = source.others.get(&key).map(|other| format!("owner {other}"));
            let owner = other.map_or(Owner::Nobody, |other| Owner::Foreign(Cow::Owned(other)));
            see(Seen::Present { key, object, owner });
        }
    }
}

/// The namespaces of the other ends of pairs that the pass may delete or set down, by what ours calls them.
pub(crate) fn other_ends(moment: &Moment, view: &View<'_, Rtnl>) -> BTreeSet<i32> {
    let may_go = |seen: &&SeenLink| match view.desired.link(seen.name) {
        Some(link) => {
            let falls = link.up == Some(false) && seen.is_up();
            falls || !changes_in_place(link, &seen.link)
        }
        None if matches!(seen.owner, Owner::Ours | Owner::Unmarked) => true,
        None => {
            let up = view.desired.field(seen.name, Field::Up);
            seen.is_up() && up == Some(&Setting::Flag(false))
        }
    };
    let covered = |seen: &&SeenLink| match view.focus {
        Focus::All => true,
        Focus::Keys(keys) => {
            let up = Key::LinkField(seen.name, Field::Up);
            keys.contains(&Key::Link(seen.name)) || keys.contains(&up)
        }
    };
    let ends = moment.table.values().filter(|seen| seen.end_elsewhere().is_some());
    let going = ends.filter(covered).filter(may_go);
    going.filter_map(|seen| seen.end_elsewhere().map(|(nsid, _)| nsid)).collect()
}

/// The link of this name.
pub(crate) fn find(connection: &mut Connection, name: LinkName) -> Option<SeenLink> {
    look_up(connection, name).filter(|seen| seen.name == name)
}

/// Quirk `second-names-answer-too` (Linux 6.18): asked for a name, the kernel also answers with a link that
/// has it as an alternative name.
pub(crate) fn look_up(connection: &mut Connection, name: LinkName) -> Option<SeenLink> {
    let mut found = None;
    let write = |batch: &mut Batch| message::get(batch, name);
    let asked = ask(connection, write, &mut |message| found = message::decode(&message).ok());
    asked.ok().and(found)
}

pub(crate) fn ask(
    connection: &mut Connection,
    write: impl FnOnce(&mut Batch) -> homeostat_netlink::Result<()>,
    replies: &mut dyn FnMut(homeostat_netlink::Message<'_>),
) -> homeostat_netlink::Result<()> {
    let mut batch = Batch::new();
    write(&mut batch)?;
    connection.ask(&mut batch, replies)
}

/// What a look has to learn of foreign things, since a change of a link may take them along.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MayLose {
    pub(crate) neighbours: bool,
    /// IPv6 routes, whose MTU follows that of the link.
    pub(crate) ipv6_routes: bool,
    /// All of it: addresses, nexthops and all routes, too.
    pub(crate) everything: bool,
}

impl MayLose {
    /// The same for a look at everything.
    pub(crate) fn of_all(moment: &Moment, view: &View<'_, Rtnl>) -> Self {
        let declared = view.desired.links().map(|(name, _)| name);
        let links = moment.table.values().map(|seen| seen.name).chain(declared).map(Key::Link);
        let fields = view.desired.fields().map(|(name, field, _)| Key::LinkField(name, field));
        let recorded = view.records.keys().filter(|key| matches!(key, Key::LinkField(..)));
        let keys: BTreeSet<Key> = links.chain(fields).chain(recorded.cloned()).collect();
        Self::of(moment, view, &keys)
    }

    pub(crate) fn anything(self) -> bool {
        self.neighbours || self.ipv6_routes || self.everything
    }

    pub(crate) fn of(moment: &Moment, view: &View<'_, Rtnl>, keys: &BTreeSet<Key>) -> Self {
        let mut may_lose = MayLose::default();
        for key in keys {
            match key {
                Key::Link(name) => may_lose.with_link(moment, view, *name),
                Key::LinkField(name, field) => may_lose.with_field(moment, view, *name, *field),
                _ => {}
            }
        }
        may_lose.neighbours |= may_lose.everything;
        may_lose.ipv6_routes |= may_lose.everything;
        may_lose
    }

    fn with_link(&mut self, moment: &Moment, view: &View<'_, Rtnl>, name: LinkName) {
        match (moment.table.get(name), view.desired.link(name)) {
            (Some(seen), None) => {
                let maker = view.desired.relations.makers.get(&name);
                let maker = maker.and_then(|maker| moment.table.get(*maker));
                let other_end = maker.and_then(|maker| moment.table.peer(maker));
                // The other end of a declared pair goes with that only.
                let is_declared = other_end.is_some_and(|end| end.index == seen.index);
                let may_be_ours = matches!(seen.owner, Owner::Ours | Owner::Unmarked);
                self.everything |= may_be_ours && !is_declared;
            }
            (Some(seen), Some(link)) => self.with_change(&seen.link, link),
            // A fresh one may change the hardware address of its bridge, and lower its MTU.
            (None, Some(link)) => {
                let master = link.master.and_then(|master| moment.table.get(master));
                self.neighbours |= master.is_some();
                let mtu = first_mtu(link, &moment.table);
                self.everything |= master.is_some_and(|master| Some(mtu) < master.link.mtu);
            }
            (None, None) => {}
        }
    }

    fn with_change(&mut self, seen: &Link, declared: &Link) {
        let falls = declared.up == Some(false) && seen.up == Some(true);
        // Nothing is lost with the peers of a tunnel.
        let is_alike = declared.kind.wireguard().is_some() || declared.kind.is_alike(&seen.kind);
        let stays = changes_in_place(declared, seen)
            && is_alike
            && agrees(declared.master.as_ref(), seen.master.as_ref())
            && agrees(declared.parent.as_ref(), seen.parent.as_ref());
        self.everything |= falls || !stays;
        self.neighbours |= !agrees(declared.mac.as_ref(), seen.mac.as_ref());
        if !agrees(declared.mtu.as_ref(), seen.mtu.as_ref()) {
            self.everything |= declared.mtu < Some(IPV6_MIN_MTU);
            self.ipv6_routes = true;
        }
    }

    fn with_field(&mut self, moment: &Moment, view: &View<'_, Rtnl>, name: LinkName, field: Field) {
        let Some(seen) = moment.table.get(name) else {
            // The other end of a pair that is made in this pass joins its master then.
            let master = view.desired.field(name, field).filter(|_| field == Field::Master);
            let master = master.and_then(Setting::link_name);
            self.everything |= master.is_some_and(|master| moment.table.get(master).is_some());
            return;
        };
        let changes = match view.desired.field(name, field) {
            Some(setting) => moment.setting(name, field).as_ref() != Some(setting),
            // One that is given up may get its original back.
            None => view.records.contains_key(&Key::LinkField(name, field)),
        };
        if !changes {
            return;
        }
        let is_low = view.desired.mtu(name) < Some(IPV6_MIN_MTU);
        match field {
            Field::Up => self.everything |= seen.is_up(),
            Field::Master => self.everything = true,
            Field::Mtu if is_low => self.everything = true,
            Field::Mtu => self.ipv6_routes = true,
            Field::Mac => self.neighbours = true,
            Field::TxQueueLen | Field::Alias | Field::Vlans | Field::Port(_) | Field::Name => {}
        }
    }
}

/// A link that is there.
#[derive(Clone, Debug)]
pub(crate) struct SeenLink {
    pub(crate) index: IfIndex,
    pub(crate) name: LinkName,
    /// The managed part, in the words of a desired state.
    pub(crate) link: Link,
    pub(crate) owner: Owner,
    /// The alias as it is, with whatever mark is in it.
    pub(crate) alias: Option<String>,
    pub(crate) group: u32,
    pub(crate) master: Option<IfIndex>,
    /// The link below, or the other end of a pair.
    pub(crate) lower: Option<Lower>,
    /// The preferred link of a bond.
    pub(crate) primary: Option<IfIndex>,
    /// Whether it is up, and what it leads to is, too.
    pub(crate) has_carrier: bool,
    /// What it has as a port of a bridge.
    pub(crate) port: BTreeMap<PortOption, u32>,
    /// What it is, whatever its name is; few links have any of it.
    pub(crate) identity: Option<Box<Identity>>,
}

/// A link by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lower {
    pub(crate) index: IfIndex,
    /// What our namespace calls the one that it is in; none, if it is ours.
    pub(crate) nsid: Option<i32>,
}

impl SeenLink {
    pub(crate) fn is_up(&self) -> bool {
        self.link.up == Some(true)
    }

    /// The owner whose mark is in the alias.
    pub(crate) fn mark(&self) -> Option<&str> {
        self.alias.as_deref().and_then(|text| alias::split(text).1)
    }

    /// The value of a field.
    pub(crate) fn setting(&self, field: Field) -> Setting {
        match field {
            Field::Mtu => Setting::Number(self.link.mtu.unwrap_or_default()),
            Field::TxQueueLen => Setting::Number(self.link.txqueuelen.unwrap_or_default()),
            Field::Mac => text(self.link.mac.map(|mac| mac.to_string())),
            Field::Master => text(self.link.master.map(|master| master.to_string())),
            Field::Alias => text(self.link.alias.clone()),
            // Not every link has them: the moment says which.
            Field::Vlans => Setting::Vlans(Vlans::default()),
            Field::Port(option) => {
                option.setting(self.port.get(&option).copied().unwrap_or_default())
            }
            Field::Up => Setting::Flag(self.is_up()),
            Field::Name => Setting::Text(self.name.to_string()),
        }
    }

    /// The other end of a pair, if it is in this namespace.
    pub(crate) fn peer(&self) -> Option<IfIndex> {
        self.lower.filter(|lower| self.is_end() && lower.nsid.is_none()).map(|lower| lower.index)
    }

    /// The other end of a pair, if it is in another namespace: what ours calls that, and the number of the link.
    pub(crate) fn end_elsewhere(&self) -> Option<(i32, IfIndex)> {
        let lower = self.lower.filter(|_| self.is_end())?;
        Some((lower.nsid?, lower.index))
    }

    /// The link below in this namespace, without which it cannot be.
    pub(crate) fn parent(&self) -> Option<IfIndex> {
        self.lower.filter(|lower| !self.is_end() && lower.nsid.is_none()).map(|lower| lower.index)
    }

    /// Whether it is one end of a pair.
    fn is_end(&self) -> bool {
        self.link.kind.peer().is_some()
    }
}

fn text(value: Option<String>) -> Setting {
    Setting::Text(value.unwrap_or_default())
}

/// The links of one moment, and how they stand to each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkTable {
    links: SharedMap<LinkName, SeenLink>,
    names: SharedMap<IfIndex, LinkName>,
    /// The links on top of a link.
    above: Related,
    /// The links that have it as their master.
    ports: Related,
}

/// The links that stand in some relation to a link.
type Related = SharedMap<(IfIndex, LinkName), ()>;

impl Extend<SeenLink> for LinkTable {
    /// Each takes the place of what has its number or its name.
    fn extend<I: IntoIterator<Item = SeenLink>>(&mut self, found: I) {
        for seen in found {
            self.remove(seen.index);
            if let Some(former) = self.get(seen.name).map(|former| former.index) {
                self.remove(former);
            }
            let name = seen.name;
            self.names.insert(seen.index, name);
            if let Some(parent) = seen.parent() {
                self.above.insert((parent, name), ());
            }
            if let Some(master) = seen.master {
                self.ports.insert((master, name), ());
            }
            self.links.insert(name, seen);
        }
    }
}

impl LinkTable {
    pub(crate) fn remove(&mut self, index: IfIndex) {
        let Some(seen) = self.names.remove(&index).and_then(|name| self.links.remove(&name)) else {
            return;
        };
        seen.parent().map(|parent| self.above.remove(&(parent, seen.name)));
        seen.master.map(|master| self.ports.remove(&(master, seen.name)));
    }

    pub(crate) fn get(&self, name: LinkName) -> Option<&SeenLink> {
        self.links.get(&name)
    }

    /// Says what a link is made of, which its own message does not say.
    pub(crate) fn set_kind(&mut self, name: LinkName, kind: LinkKind) {
        if let Some(mut seen) = self.links.get(&name).cloned() {
            seen.link.kind = kind;
            self.links.insert(name, seen);
        }
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &SeenLink> {
        self.links.iter().map(|(_, seen)| seen)
    }

    /// The links that are parked, as far as their names say.
    pub(crate) fn parked(&self) -> impl Iterator<Item = (&SeenLink, Parked)> {
        let named = self.links.range(LinkName::padded(parking::PREFIX)..);
        let named = named.take_while(|(name, _)| name.as_str().starts_with(parking::PREFIX));
        named.filter_map(|(_, seen)| Some((seen, Parked::of(seen)?)))
    }

    pub(crate) fn numbered(&self, index: IfIndex) -> Option<&SeenLink> {
        self.get(*self.names.get(&index)?)
    }

    /// The other end of a pair, if it is here.
    pub(crate) fn peer(&self, seen: &SeenLink) -> Option<&SeenLink> {
        self.numbered(seen.peer()?)
    }

    pub(crate) fn master(&self, seen: &SeenLink) -> Option<&SeenLink> {
        self.numbered(seen.master?)
    }

    /// What a link is to a bridge, if it is one or a port of one.
    pub(crate) fn part_of_bridge(&self, seen: &SeenLink) -> Option<Holder> {
        if seen.link.kind.is_bridge() {
            return Some(Holder::Bridge);
        }
        self.master(seen).filter(|master| master.link.kind.is_bridge()).map(|_| Holder::Port)
    }

    /// The links on top of a link.
    pub(crate) fn above(&self, seen: &SeenLink) -> impl Iterator<Item = &SeenLink> {
        self.related(&self.above, seen.index)
    }

    /// The links in a bridge, bond or VRF.
    pub(crate) fn ports(&self, seen: &SeenLink) -> impl Iterator<Item = &SeenLink> {
        self.related(&self.ports, seen.index)
    }

    /// Some links, and those that a change of one of them may concern: what goes with it, its master and its ports.
    fn related_to(&self, names: &BTreeSet<LinkName>) -> BTreeSet<LinkName> {
        let mut related: BTreeSet<LinkName> = BTreeSet::new();
        for name in names {
            for name in going_with(self, *name) {
                related.insert(name);
                let Some(seen) = self.get(name) else { continue };
                related.extend(self.ports(seen).chain(self.master(seen)).map(|other| other.name));
            }
        }
        related
    }

    fn related<'a>(
        &'a self,
        related: &'a Related,
        of: IfIndex,
    ) -> impl Iterator<Item = &'a SeenLink> {
        let all = related.range((of, LinkName::LOWEST)..).map(|(pair, ())| pair);
        all.take_while(move |(index, _)| *index == of).filter_map(|(_, name)| self.get(*name))
    }
}

/// The links as the last observation and the events since then say.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownLinks {
    pub(crate) links: Links,
    /// The names in it are those of its moment: a look resolves those of its focus again.
    pub(crate) table: LinkTable,
}

impl KnownLinks {
    /// What a look at the link of a name shows.
    pub(crate) fn refresh(&mut self, name: LinkName, seen: Option<SeenLink>, source: &Rtnl) {
        let former = self.links.index(name);
        match seen {
            Some(seen) => self.insert(seen, source),
            None => former.into_iter().for_each(|index| self.remove(index)),
        }
    }

    pub(crate) fn insert(&mut self, mut seen: SeenLink, source: &Rtnl) {
        self.links.insert(seen.name, seen.index);
        name_others(&mut seen, &self.links, &OtherNamespaces::default(), None);
        seen.owner = owner(&seen, source, None);
        self.table.extend([seen]);
    }

    pub(crate) fn remove(&mut self, index: IfIndex) {
        self.links.remove(index);
        self.table.remove(index);
    }
}
