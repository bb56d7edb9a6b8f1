//! Links that are put aside until it is certain that they are not wanted back: under another name, down, without
//! addresses, and out of their bridge. They stay ours, and their alias says what they were, so that the next process
//! knows them, too. Pure.

use homeostat_core::Owner;

use crate::address::AddressKey;
use crate::key::Key;
use crate::link::kinds::behaviour::Occupies;
use crate::link::model::{Field, Link};
use crate::link::observe::SeenLink;
use crate::link::{IfIndex, LinkName, alias};

/// What the name of every parked link begins with.
pub(crate) const PREFIX: &str = "hs-";

/// The word in the alias of a link that was ours, and of the other end of one.
const LINK: &str = "parked";
const END: &str = "parked-end";

/// What a parked link was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parked {
    pub(crate) name: LinkName,
    /// Whether it is only the other end of one.
    pub(crate) is_end: bool,
    pub(crate) up: bool,
    pub(crate) master: Option<LinkName>,
    /// The words of its alias.
    pub(crate) words: String,
}

/// The name of a link while it is parked: its number is not used twice.
pub(crate) fn name_of(IfIndex(number): IfIndex) -> LinkName {
    LinkName::padded(&format!("{PREFIX}{number}"))
}

impl Parked {
    /// What a link is, in case that it is parked.
    pub(crate) fn from_link(seen: &SeenLink, is_end: bool) -> Self {
        let alias = seen.alias.as_deref().unwrap_or_default();
        let words = if is_end { alias } else { alias::split(alias).0 };
        let (up, master, words) = (seen.is_up(), seen.link.master, words.to_owned());
        Parked { name: seen.name, is_end, up, master, words }
    }

    /// What a link was; nothing, if it is not parked.
    pub(crate) fn of(seen: &SeenLink) -> Option<Self> {
        if seen.name != name_of(seen.index) {
            return None;
        }
        let (text, Some(_)) = alias::split(seen.alias.as_deref()?) else { return None };
        let (words, last) = text.rsplit_once(' ').unwrap_or(("", text));
        let mut parts = last.split(':');
        let is_end = match parts.next()? {
            LINK => false,
            END => true,
            _ => return None,
        };
        let name = parts.next()?.parse().ok()?;
        let up = parts.next()? == "up";
        let master = parts.next().and_then(|master| master.parse().ok());
        Some(Parked { name, is_end, up, master, words: words.to_owned() })
    }

    /// The alias that says so.
    pub(crate) fn alias(&self, owner: &str) -> String {
        let word = if self.is_end { END } else { LINK };
        let state = if self.up { "up" } else { "down" };
        let mut last = format!("{word}:{}:{state}", self.name);
        if let Some(master) = self.master {
            last.push(':');
            last += master.as_str();
        }
        // What it was must be read again: its own words are cut where all do not fit.
        let mark = alias::join("", owner);
        let mut room =
            alias::MOST.saturating_sub(mark.len() + last.len() + 2).min(self.words.len());
        while !self.words.is_char_boundary(room) {
            room -= 1;
        }
        match self.words.get(..room) {
            None | Some("") => format!("{last} {mark}"),
            Some(words) => format!("{words} {last} {mark}"),
        }
    }
}

/// What is done to park a link, and what goes with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parking {
    pub(crate) links: Vec<ToPark>,
    /// The links that leave it, since it was their bridge, bond or VRF.
    pub(crate) releases: Vec<LinkName>,
    /// The link-local addresses on them. A bridge may have one of a hardware address that it no longer has.
    pub(crate) link_local: Vec<AddressKey>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToPark {
    pub(crate) name: LinkName,
    /// Whether it is only the other end of a link of ours.
    pub(crate) is_end: bool,
    /// The bridge, bond or VRF that it leaves, since that stays.
    pub(crate) leaves: Option<LinkName>,
}

impl Parking {
    /// What is recorded, since it does not return by itself: link-local addresses, the order of all addresses and ports, and
    /// places in bridges.
    pub(crate) fn records(&self) -> impl Iterator<Item = Key> {
        let leaving = self.links.iter().filter(|link| link.leaves.is_some()).map(|link| link.name);
        let all = leaving.chain(self.releases.iter().copied());
        let places = all.map(|name| Key::LinkField(name, Field::Master));
        let orders = self.links.iter().map(|link| Key::AddressOrder(link.name));
        // A bridge has its ports; of other links there are none.
        let bridges = self.links.iter().flat_map(|link| [Some(link.name), link.leaves]).flatten();
        let orders = orders.chain(bridges.map(Key::Ports));
        places.chain(self.link_local.iter().copied().map(Key::Address)).chain(orders)
    }
}

/// How a link can be put aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aside {
    /// It cannot: it is nothing whole.
    Not,
    /// It is parked already.
    Already,
    /// It can be parked.
    Parked(Parking),
    /// Something declared needs what it occupies while it is there. These are recorded, so that they can be made again
    /// with the same numbers.
    Recorded(Vec<Key>),
}

/// Whether a link can be parked: ours, and whole.
pub(crate) fn is_parkable(seen: &SeenLink) -> bool {
    seen.owner == Owner::Ours && seen.mark().is_some()
}

/// Whether a link keeps another one from being made, whatever their names are.
pub(crate) fn occupies(old: &Link, new: &Link) -> bool {
    let shares_parent = old.parent.is_some() && old.parent == new.parent;
    let is_same_place = match old.kind.behaviour().occupies {
        Occupies::Nothing => false,
        Occupies::Namespace => true,
        Occupies::Parent | Occupies::ParentPackets => shares_parent,
    };
    is_same_place && old.kind.excludes(&new.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::kinds::LinkKind;
    use crate::link::kinds::macvlan::{Macvlan, MacvlanMode};
    use crate::link::kinds::vlan::Vlan;
    use crate::link::kinds::vxlan::Vxlan;
    use crate::link::model::LinkRef;

    fn seen(index: u32, name: &str, alias: &str) -> SeenLink {
        SeenLink {
            index: IfIndex(index),
            name: LinkName::padded(name),
            link: Link::new(LinkKind::Dummy),
            owner: Owner::Ours,
            alias: Some(alias.to_owned()),
            group: 0,
            master: None,
            lower: None,
            primary: None,
            has_carrier: false,
            port: std::collections::BTreeMap::new(),
            identity: None,
        }
    }

    #[test]
    fn what_a_parked_link_was_is_read_from_its_alias() {
        let master = Some("br0".parse().unwrap());
        for (is_end, up, master, words) in [
            (false, true, None, ""),
            (false, false, master, "to the office"),
            (true, true, master, "parked:x:up"),
        ] {
            let (name, words) = ("lan".parse().unwrap(), words.to_owned());
            let was = Parked { name, is_end, up, master, words };
            let alias = was.alias("blue");
            assert!(alias.ends_with(" homeostat:blue"), "{alias}");
            assert_eq!(Parked::of(&seen(7, "hs-7", &alias)), Some(was), "{alias}");
            assert_eq!(Parked::of(&seen(8, "hs-7", &alias)), None, "another link of the name");
        }
    }

    #[test]
    fn a_link_that_only_looks_parked_is_not() {
        for alias in ["", "homeostat:blue", "parked:lan:up", "was lan homeostat:blue"] {
            assert_eq!(Parked::of(&seen(7, "hs-7", alias)), None, "{alias}");
        }
    }

    #[test]
    fn an_alias_that_is_too_long_loses_words_of_its_own() {
        let words = "ö".repeat(120);
        let name = "a23456789012345".parse().unwrap();
        let was = Parked { name, is_end: true, up: true, master: Some(name), words };
        let alias = was.alias("default");
        assert!(alias.len() <= alias::MOST);
        let read = Parked::of(&seen(7, "hs-7", &alias)).unwrap();
        assert_eq!((read.name, read.master), (name, Some(name)));
    }

    #[test]
    fn a_link_is_in_the_way_of_another_where_both_need_the_same() {
        let on = |kind: LinkKind, parent: &str| {
            let parent = Some(LinkRef::here(parent.parse().unwrap()));
            Link { parent, ..Link::new(kind) }
        };
        let vlan = |id| LinkKind::Vlan(Vlan { id, protocol: None });
        let tunnel = |id| Link::new(LinkKind::Vxlan(Vxlan { id, ..Vxlan::default() }));
        let macvlan = |mode| LinkKind::Macvlan(Macvlan { mode: Some(mode) });
        assert!(occupies(&on(vlan(5), "a"), &on(vlan(5), "a")));
        assert!(!occupies(&on(vlan(5), "a"), &on(vlan(6), "a")));
        assert!(!occupies(&on(vlan(5), "a"), &on(vlan(5), "b")));
        assert!(occupies(&tunnel(5), &tunnel(5)) && !occupies(&tunnel(5), &tunnel(6)));
        let (bridge, passthru) = (macvlan(MacvlanMode::Bridge), macvlan(MacvlanMode::Passthru));
        assert!(!occupies(&on(bridge.clone(), "a"), &on(bridge.clone(), "a")));
        assert!(occupies(&on(passthru, "a"), &on(bridge, "a")));
    }
}
