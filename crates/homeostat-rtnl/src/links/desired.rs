//! The declared links of a desired state: those that are made, then the fields of those that are not.

use std::collections::BTreeSet;

use crate::desired::Declared;
use crate::key::Key;
use crate::link::LinkName;
use crate::links::field::{Field, Setting};
use crate::links::kinds::LinkKind;
use crate::links::model::{Link, LinkRef};
use crate::model::Object;

/// What is declared of links, each list in key order.
#[derive(Clone, Debug, Default)]
pub(crate) struct DesiredLinks {
    pub(crate) made: Vec<DesiredLink>,
    pub(crate) fields: Vec<DesiredField>,
}

/// A link that is made.
#[derive(Clone, Debug)]
pub(crate) struct DesiredLink {
    pub(crate) name: LinkName,
    pub(crate) link: Link,
    pub(crate) may_adopt: bool,
}

/// One field of a link that is only configured.
#[derive(Clone, Debug)]
pub(crate) struct DesiredField {
    pub(crate) name: LinkName,
    pub(crate) field: Field,
    pub(crate) setting: Setting,
}

impl DesiredLink {
    /// The other end, if it is a pair that is declared to be in this namespace whole.
    pub(crate) fn peer_here(&self) -> Option<LinkName> {
        let peer = self.peer()?;
        peer.namespace.is_none().then_some(peer.name)
    }

    /// The other end of a pair.
    pub(crate) fn peer(&self) -> Option<&LinkRef> {
        match &self.link.kind {
            LinkKind::Veth(veth) => Some(&veth.peer),
            _ => None,
        }
    }

    /// The namespaces that it refers to.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        let links = self.link.parent.iter().chain(self.peer());
        links.filter_map(|link| link.namespace.as_deref())
    }
}

impl DesiredField {
    pub(crate) fn key(&self) -> Key {
        Key::LinkField(self.name, self.field)
    }
}

impl DesiredLinks {
    pub(crate) fn len(&self) -> usize {
        self.made.len() + self.fields.len()
    }

    /// The place of a key among the declared links.
    pub(crate) fn place(&self, key: &Key) -> Option<usize> {
        match key {
            Key::Link(name) => self.made.binary_search_by_key(name, |desired| desired.name).ok(),
            Key::LinkField(name, field) => {
                let found = self.fields.binary_search_by_key(&(*name, *field), |desired| {
                    (desired.name, desired.field)
                });
                found.ok().map(|at| self.made.len() + at)
            }
            _ => None,
        }
    }

    /// The declared link of this name.
    pub(crate) fn link(&self, name: LinkName) -> Option<&DesiredLink> {
        self.made
            .binary_search_by_key(&name, |desired| desired.name)
            .ok()
            .and_then(|at| self.made.get(at))
    }

    /// The declared field of a link.
    pub(crate) fn field(&self, name: LinkName, field: Field) -> Option<&DesiredField> {
        let key = |desired: &DesiredField| (desired.name, desired.field);
        let at = self.fields.binary_search_by_key(&(name, field), key).ok()?;
        self.fields.get(at)
    }

    /// The declared MTU of a link, made or only configured.
    pub(crate) fn mtu(&self, name: LinkName) -> Option<u32> {
        let field = || match self.field(name, Field::Mtu)?.setting {
            Setting::Number(mtu) => Some(mtu),
            _ => None,
        };
        self.link(name).and_then(|desired| desired.link.mtu).or_else(field)
    }

    /// The declared link without which there is none of this name: itself, or the other end.
    pub(crate) fn maker_of(&self, name: LinkName) -> Option<&DesiredLink> {
        let other_end = || self.made.iter().find(|desired| desired.peer_here() == Some(name));
        self.link(name).or_else(other_end)
    }

    /// The keys of links without which nothing can be on this one.
    pub(crate) fn needed_for(&self, name: LinkName, need: &mut dyn FnMut(Key)) {
        if let Some(maker) = self.maker_of(name) {
            need(Key::Link(maker.name));
        }
        let fields = self.fields.iter().filter(|desired| desired.name == name);
        fields.for_each(|desired| need(desired.key()));
    }

    /// The namespaces that any of them refers to.
    pub(crate) fn namespaces(&self) -> BTreeSet<&str> {
        self.made.iter().flat_map(DesiredLink::namespaces).collect()
    }

    /// Sorts them; the key that stands there twice, if one does.
    pub(crate) fn sort(&mut self) -> Option<Key> {
        self.made.sort_by_key(|desired| desired.name);
        self.fields.sort_by_key(|desired| (desired.name, desired.field));
        let made = self.made.array_windows().find(|[a, b]| a.name == b.name);
        let fields = self.fields.array_windows().find(|[a, b]| a.key() == b.key());
        let made = made.map(|[one, _]| Key::Link(one.name));
        made.or_else(|| fields.map(|[one, _]| one.key()))
    }

    /// What has two places in the desired state: a field of a link that is made as well, or a link that is
    /// made as the other end of a pair as well.
    pub(crate) fn made_twice(&self) -> Option<Key> {
        let field = self.fields.iter().find(|desired| self.link(desired.name).is_some());
        let mut ends = self.made.iter().filter_map(DesiredLink::peer_here);
        let end = ends.find(|end| self.link(*end).is_some());
        field.map(DesiredField::key).or(end.map(Key::Link))
    }
}

impl Declared {
    /// The link without which it cannot be.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkName> {
        let link = match (&self.key, &self.object) {
            (Key::Neighbour(key), _) => Some(key.link()),
            (_, Object::Nexthop(nexthop)) => nexthop.dev,
            _ => None,
        };
        link.into_iter()
    }
}
