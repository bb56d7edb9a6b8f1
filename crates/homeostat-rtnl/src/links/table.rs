//! The links of one moment, with everything that a plan may ask about them.

use std::collections::BTreeMap;

use homeostat_core::Owner;

use crate::link::{IfIndex, LinkName};
use crate::links::alias;
use crate::links::field::{Field, Setting};
use crate::links::kinds::LinkKind;
use crate::links::model::Link;

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

    /// The value of a field.
    pub(crate) fn setting(&self, field: Field) -> Setting {
        match field {
            Field::Mtu => Setting::Number(self.link.mtu.unwrap_or_default()),
            Field::Mac => text(self.link.mac.map(|mac| mac.to_string())),
            Field::Master => text(self.link.master.map(|master| master.to_string())),
            Field::Alias => text(self.alias.as_deref().map(|text| alias::split(text).0.to_owned())),
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
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkTable {
    by_name: BTreeMap<LinkName, SeenLink>,
}

impl LinkTable {
    pub(crate) fn insert(&mut self, seen: SeenLink) {
        self.by_name.insert(seen.name, seen);
    }

    pub(crate) fn clear(&mut self) {
        self.by_name.clear();
    }

    pub(crate) fn get(&self, name: LinkName) -> Option<&SeenLink> {
        self.by_name.get(&name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SeenLink> {
        self.by_name.values()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut SeenLink> {
        self.by_name.values_mut()
    }
}
