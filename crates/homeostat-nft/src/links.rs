//! Links that a text means by number, or hooks into, and the links in the scratch namespace that stand for them.
//!
//! `iif` and `oif` compare the number of a link, and hooks of `netdev` chains and flowtables want the link to exist.
//! So the scratch namespace gets links of the same names and numbers, and nothing has to be understood or mapped.
//! Which links a text names, `nft` itself says when it misses one: it knows what is included and defined.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_netlink::uapi::*;
use homeostat_netlink::{Batch, Connection, Dumped, Error};

use crate::error::CompileError;
use crate::key::Key;
use crate::model::Table;
use crate::wire::name;

pub(crate) const FIXED: usize = size_of::<ifinfomsg>();
/// Where the number of a link is in `struct ifinfomsg`.
const INDEX_AT: usize = std::mem::offset_of!(ifinfomsg, ifi_index);
/// Kinds that can stand for any link; one of them is in every kernel.
const KINDS: [&str; 3] = ["dummy", "bridge", "ifb"];
/// Every namespace has its own.
const LOOPBACK: &str = "lo";

/// A link of the real namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) index: [u8; 4],
}

impl Link {
    /// One that is not there. No kernel gives its number by itself, so that it shows which tables name the link.
    pub(crate) fn absent(name: String, nth: usize) -> Self {
        const FIRST: u32 = 0x7ed3_a500;
        let index = FIRST + u32::try_from(nth).unwrap_or_default();
        Link { name, index: index.to_ne_bytes() }
    }
}

/// Words of a text that may be names of links.
#[derive(Clone, Debug, Default)]
pub(crate) struct PossibleNames(BTreeSet<String>);

impl PossibleNames {
    /// Nothing, if the text means no link by number.
    pub(crate) fn of(text: &str) -> Option<Self> {
        const ASKING: [&str; 6] = ["iif", "oif", "device", "devices", "sdif", "iface_index"];
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let mut words = text.split(|c| !is_word(c));
        let names = || {
            let names = text.split(|c: char| c.is_whitespace() || "{},;\"=:".contains(c));
            // The kernel takes no longer ones, and a million addresses are no names.
            let may_be = |name: &&str| (1..16).contains(&name.len()) && !is_address(name);
            names.filter(may_be).map(str::to_owned).collect()
        };
        words.any(|word| ASKING.contains(&word)).then(|| PossibleNames(names()))
    }

    pub(crate) fn covers(&self, link: &str) -> bool {
        self.0.contains(link)
    }
}

fn is_address(word: &str) -> bool {
    let (address, _) = word.split_once('/').unwrap_or((word, ""));
    address.parse::<std::net::IpAddr>().is_ok()
}

/// The number of a link that a message is about.
pub(crate) fn index(fixed: &[u8; FIXED]) -> Option<[u8; 4]> {
    fixed.get(INDEX_AT..).and_then(|rest| rest.first_chunk()).copied()
}

/// The links of a namespace.
pub(crate) fn list(connection: &mut Connection) -> Result<Vec<Link>, Error> {
    let mut request = Batch::new();
    let mut message = request.message(RTM_GETLINK, 0);
    message.fixed(&[0; FIXED]);
    message.finish()?;
    let mut links = Vec::new();
    connection.dump(&mut request, &mut |dumped| match dumped {
        Dumped::Restart => links.clear(),
        Dumped::Object(message) => {
            let Ok((fixed, attrs)) = message.split::<FIXED>() else { return };
            let index = index(fixed);
            let name = name(&attrs, IFLA_IFNAME).unwrap_or_default();
            links.extend(index.map(|index| Link { name, index }));
        }
    })?;
    links.retain(|link| link.name != LOOPBACK);
    Ok(links)
}

/// Creates links of the same names and numbers. What cannot be created is missed by `nft`, which says where.
pub(crate) fn create(connection: &mut Connection, links: &[&Link]) -> Result<(), Error> {
    for link in links {
        for kind in KINDS {
            match create_one(connection, link, kind) {
                Err(Error::Refused(_)) => {}
                created => {
                    created?;
                    break;
                }
            }
        }
    }
    Ok(())
}

fn create_one(connection: &mut Connection, link: &Link, kind: &str) -> Result<(), Error> {
    let mut fixed = [0; FIXED];
    if let Some(place) = fixed.get_mut(INDEX_AT..).and_then(<[u8]>::first_chunk_mut) {
        *place = link.index;
    }
    let mut request = Batch::new();
    let mut message = request.message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
    message.fixed(&fixed).attr(IFLA_IFNAME, &[link.name.as_bytes(), &[0]].concat());
    message.nest(IFLA_LINKINFO, |info| _ = info.attr(IFLA_INFO_KIND, kind.as_bytes()));
    message.finish()?;
    connection.ask(&mut request, &mut |_| {})
}

/// More absent links than this are a mistake.
const MOST_ABSENT: usize = 64;

/// The links that a text names, as far as they are known: the scratch namespace has them all.
#[derive(Debug)]
pub(crate) struct NamedLinks<'a> {
    /// All links of the real namespace.
    there: &'a [Link],
    present: Vec<Link>,
    /// Absent, and meant by number in rules.
    by_number: Vec<Link>,
    /// Absent, and hooked into by chains or flowtables, on a kernel that wants such links to exist.
    by_hook: Vec<Link>,
}

impl<'a> NamedLinks<'a> {
    pub(crate) fn new(there: &'a [Link], is_named: impl Fn(&str) -> bool) -> Self {
        let present = there.iter().filter(|link| is_named(&link.name)).cloned().collect();
        NamedLinks { there, present, by_number: Vec::new(), by_hook: Vec::new() }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Link> {
        self.present.iter().chain(&self.by_number).chain(&self.by_hook)
    }

    /// Adds links that are meant by number; returns those that are new.
    pub(crate) fn add_numbers(&mut self, names: Vec<String>) -> Vec<Link> {
        let (new, absent) = self.add(names);
        self.by_number.extend(absent);
        new
    }

    /// Adds links that are hooked into; returns those that are new.
    pub(crate) fn add_hooks(&mut self, names: BTreeSet<String>) -> Vec<Link> {
        let (new, absent) = self.add(names);
        self.by_hook.extend(absent);
        new
    }

    /// Those of the names that are new, and those of them that are absent.
    fn add(&mut self, names: impl IntoIterator<Item = String>) -> (Vec<Link>, Vec<Link>) {
        let (mut new, mut absent) = (Vec::new(), Vec::new());
        for name in names {
            let count = self.by_number.len() + self.by_hook.len() + absent.len();
            if self.all().chain(&new).any(|link| link.name == name) {
                continue;
            }
            if let Some(link) = self.there.iter().find(|link| link.name == name) {
                self.present.push(link.clone());
                new.push(link.clone());
            } else if count < MOST_ABSENT {
                absent.push(Link::absent(name, count));
                new.extend(absent.last().cloned());
            }
        }
        (new, absent)
    }

    /// Whether a table hooks into an absent link that others mean by number: `nft` had no reason to miss it.
    pub(crate) fn may_hide_hooks(&self, tables: &[Table]) -> bool {
        let is_hooked = |link: &Link| tables.iter().any(|table| table.hooks_into(&link.name));
        self.by_hook.is_empty() && self.by_number.iter().any(is_hooked)
    }

    /// The tables that wait for an absent link.
    pub(crate) fn waiting(&self, tables: &[Table], hooks: Hooks) -> BTreeMap<Key, String> {
        let waits = |table: &Table| {
            let by_number = self.by_number.iter().find(|link| table.mentions(&link.index));
            let mut absent = self.by_number.iter().chain(&self.by_hook);
            let by_hook = || absent.find(|link| table.hooks_into(&link.name));
            let by_hook = || (hooks == Hooks::WantLinks).then(by_hook).flatten();
            Some((table.key.clone(), by_number.or_else(by_hook)?.name.clone()))
        };
        tables.iter().filter_map(waits).collect()
    }

    /// The links that are there, sorted, and the names of all.
    pub(crate) fn into_known(self) -> (Vec<Link>, BTreeSet<String>) {
        let names = self.all().map(|link| link.name.clone()).collect();
        let mut links = self.present;
        links.sort();
        (links, names)
    }
}

/// What the kernel does with a hook into a link that is not there.
///
/// Quirk `hooks-want-links` (Linux 6.1): `nft add chain netdev t c '{ type filter hook ingress device x
/// priority 0; }'` is refused with ENOENT as long as there is no link `x`. Linux 6.18 takes it, and hooks
/// in when the link comes. The refusal does not say which place of the text it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hooks {
    /// It refuses it.
    WantLinks,
    /// It hooks in when the link comes.
    Wait,
}

impl Hooks {
    /// Loaded where there is no such link.
    pub(crate) const PROBE: &'static str =
        "table netdev p { chain c { type filter hook ingress device hst-none priority 0; }; }";

    pub(crate) fn of(loaded: &Result<(), CompileError>) -> Self {
        match loaded {
            Err(refused) if refused.is_absence() => Hooks::WantLinks,
            _ => Hooks::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_needed_where_a_text_asks_for_them_by_number() {
        for text in ["iif lo accept", "meta oif eth0", "hook ingress device eth0"] {
            assert!(PossibleNames::of(text).is_some(), "{text}");
        }
        assert!(PossibleNames::of("iifname \"eth0\" oifname { \"a\", \"b\" } accept").is_none());
    }

    #[test]
    fn only_links_that_a_text_names_matter_to_it() {
        let text =
            "define wan = eth0\ntable ip a { chain x { iif { $wan, \"br-lan\" } accept; }; }";
        let possible_names = PossibleNames::of(text).unwrap();
        for (name, expected) in [("eth0", true), ("br-lan", true), ("eth1", false), ("br", false)] {
            assert_eq!(possible_names.covers(name), expected, "{name}");
        }
    }
}
