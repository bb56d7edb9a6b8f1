//! The observed links: whose each is, what it refers to, and what a plan may ask about it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::{Focus, Owner, Record, See, Seen, Stage, View};
use homeostat_netlink::{Batch, Connection};

use crate::key::Key;
use crate::link::cascade::IPV6_MIN_MTU;
use crate::link::kinds::LinkKind;
use crate::link::model::{Configured, Field, Link, LinkRef, Setting, link_agrees};
use crate::link::{IfIndex, LinkName, alias, message};
use crate::moment::Moment;
use crate::object::Object;
use crate::source::Rtnl;

/// Puts names to numbers and owners to marks, once all links are known.
pub(crate) fn resolve(moment: &mut Moment, source: &Rtnl, view: &View<'_, Rtnl>) {
    let Moment { links, table, namespaces, .. } = moment;
    for seen in table.values_mut() {
        let declared = view.desired.link(seen.name);
        seen.link.master = seen.master.map(|index| links.name(index));
        let parent = declared.and_then(|link| link.parent.as_ref());
        let peer = declared.and_then(|link| link.kind.peer());
        let named = |declared: Option<&LinkRef>| {
            seen.lower.map(|lower| namespaces.name(lower, links, declared))
        };
        match &mut seen.link.kind {
            LinkKind::Veth(veth) => {
                veth.peer = named(peer).unwrap_or_else(|| veth.peer.clone());
            }
            _ => seen.link.parent = named(parent),
        }
        if let LinkKind::Bond(bond) = &mut seen.link.kind {
            bond.primary = seen.primary.map(|index| links.name(index));
        }
        let identity = seen.link.incarnation.identity();
        let record = view.records.get(&Key::Link(seen.name));
        let record = record.filter(|record| record.is_about(identity.as_deref()));
        seen.owner = owner(seen, source, record);
        // We were stopped before it had its mark, and who knows what else it lacks: no desired state is like
        // it, so that it is made again.
        if seen.owner == Owner::Ours && seen.mark() != Some(source.owner()) {
            let name = format!("half a {}", seen.link.kind.name());
            seen.link.kind = LinkKind::Other { name };
        }
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
        None => Owner::foreign("somebody else"),
    }
}

/// Links that come with a namespace or with a kernel module, and that cannot be deleted.
fn is_the_kernels(seen: &SeenLink) -> bool {
    const BY_ITSELF: [&str; 10] = [
        "lo", "gre0", "gretap0", "erspan0", "sit0", "tunl0", "ip6tnl0", "ip6gre0", "ip_vti0",
        "ip6_vti0",
    ];
    BY_ITSELF.contains(&seen.name.as_str())
}

/// Reports every link, and the fields that are declared or recorded of those that are there.
pub(crate) fn report(moment: &Moment, view: &View<'_, Rtnl>, see: &mut See<'_, Key, Object>) {
    for seen in moment.table.values() {
        let (key, owner) = (Key::Link(seen.name), seen.owner.clone());
        if view.focus.covers(&key) {
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
        if let Some(seen) = moment.table.get(&name).filter(|_| view.focus.covers(&key)) {
            let (setting, incarnation) = (seen.setting(field), seen.link.incarnation);
            let object = Object::Setting(Configured { setting, incarnation });
            see(Seen::Present { key, object, owner: Owner::Nobody });
        }
    }
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

/// Whether what is to become of a link may take foreign things along, so that a focused look has to
/// learn of them. A new hardware address costs neighbours only, which are looked at anyhow.
pub(crate) fn may_take_along(moment: &Moment, view: &View<'_, Rtnl>, key: &Key) -> bool {
    match key {
        Key::Link(name) => match (moment.table.get(name), view.desired.link(*name)) {
            (Some(seen), None) => matches!(seen.owner, Owner::Ours | Owner::Unmarked),
            (Some(seen), Some(link)) => !link_agrees(link, &seen.link),
            // A fresh one may lower the MTU of its bridge.
            (None, Some(link)) => {
                link.master.is_some() && link.mtu.is_some_and(|mtu| mtu < IPV6_MIN_MTU)
            }
            (None, None) => false,
        },
        Key::LinkField(name, field) => field_may_take_along(moment, view, *name, *field),
        _ => false,
    }
}

fn field_may_take_along(
    moment: &Moment,
    view: &View<'_, Rtnl>,
    name: LinkName,
    field: Field,
) -> bool {
    let Some(seen) = moment.table.get(&name) else { return false };
    let is_low = view.desired.mtu(name).or(seen.link.mtu) < Some(IPV6_MIN_MTU);
    let declared = view.desired.field(name, field);
    let may_cost = match field {
        Field::Up => seen.is_up(),
        Field::Master => seen.is_up() || is_low,
        Field::Mtu => is_low || declared.is_none(),
        Field::Mac | Field::Alias => false,
    };
    may_cost
        && match declared {
            Some(setting) => *setting != seen.setting(field),
            // One that is given up may get its original back.
            None => view.records.contains_key(&Key::LinkField(name, field)),
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
            Field::Mac => text(self.link.mac.map(|mac| mac.to_string())),
            Field::Master => text(self.link.master.map(|master| master.to_string())),
            Field::Alias => text(self.link.alias.clone()),
            Field::Up => Setting::Flag(self.is_up()),
        }
    }

    /// The other end of a pair, if it is in this namespace.
    pub(crate) fn peer(&self) -> Option<IfIndex> {
        let is_veth = matches!(self.link.kind, LinkKind::Veth(_));
        self.lower.filter(|lower| is_veth && lower.nsid.is_none()).map(|lower| lower.index)
    }

    /// The link below in this namespace, without which it cannot be.
    pub(crate) fn parent(&self) -> Option<IfIndex> {
        let is_veth = matches!(self.link.kind, LinkKind::Veth(_));
        self.lower.filter(|lower| !is_veth && lower.nsid.is_none()).map(|lower| lower.index)
    }
}

fn text(value: Option<String>) -> Setting {
    Setting::Text(value.unwrap_or_default())
}

/// All links of one moment.
pub(crate) type LinkTable = BTreeMap<LinkName, SeenLink>;
