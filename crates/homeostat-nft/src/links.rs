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

/// Words of a text that may be names of links; nothing, if the text means no link by number.
pub(crate) fn possible_names(text: &str) -> Option<BTreeSet<String>> {
    const ASKING: [&str; 6] = ["iif", "oif", "device", "devices", "sdif", "iface_index"];
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    if !words.any(|word| ASKING.contains(&word)) {
        return None;
    }
    let names = text.split(|c: char| c.is_whitespace() || "{},;\"=:".contains(c));
    // The kernel takes no longer ones, and a million addresses are no names.
    let may_be = |name: &&str| (1..16).contains(&name.len()) && !is_address(name);
    Some(names.filter(may_be).map(str::to_owned).collect())
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

/// Creates a link of the same name and number. If it cannot be created, `nft` misses it, and says where.
pub(crate) fn create(connection: &mut Connection, link: &Link) -> Result<(), Error> {
    for kind in KINDS {
        match create_one(connection, link, kind) {
            Err(Error::Refused(_)) => {}
            created => return created,
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
    message.fixed(&fixed).attr_str(IFLA_IFNAME, &link.name);
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
    /// Each with a number that no kernel gives by itself, so that it shows which tables name the link.
    absent: Vec<(NamedBy, Link)>,
}

/// Why an absent link is known to be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedBy {
    /// Rules mean it by its number.
    Number,
    /// Chains or flowtables hook into it, on a kernel that wants such links to exist.
    Hook,
}

impl<'a> NamedLinks<'a> {
    pub(crate) fn new(there: &'a [Link], is_named: impl Fn(&str) -> bool) -> Self {
        let present = there.iter().filter(|link| is_named(&link.name)).cloned().collect();
        NamedLinks { there, present, absent: Vec::new() }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Link> {
        self.present.iter().chain(self.absent.iter().map(|(_, link)| link))
    }

    /// Adds links; returns those that are new.
    pub(crate) fn add(
        &mut self,
        names: impl IntoIterator<Item = String>,
        named_by: NamedBy,
    ) -> Vec<Link> {
        const FIRST: u32 = 0x7ed3_a500;
        let mut new = Vec::new();
        for name in names {
            if self.all().any(|link| link.name == name) {
                continue;
            }
            if let Some(link) = self.there.iter().find(|link| link.name == name) {
                self.present.push(link.clone());
                new.push(link.clone());
            } else if self.absent.len() < MOST_ABSENT {
                let index = FIRST + u32::try_from(self.absent.len()).unwrap_or_default();
                let link = Link { name, index: index.to_ne_bytes() };
                self.absent.push((named_by, link.clone()));
                new.push(link);
            }
        }
        new
    }

    /// Whether a table hooks into an absent link that others mean by number: `nft` had no reason to miss it.
    pub(crate) fn may_hide_hooks(&self, tables: &[Table]) -> bool {
        let is_hooked = |link: &Link| tables.iter().any(|table| table.hooks_into(&link.name));
        self.absent.iter().all(|(named_by, _)| *named_by == NamedBy::Number)
            && self.absent.iter().any(|(_, link)| is_hooked(link))
    }

    /// The tables that wait for an absent link.
    pub(crate) fn waiting(&self, tables: &[Table], hooks: Hooks) -> BTreeMap<Key, String> {
        let waits = |table: &Table| {
            let is_meant = |(named_by, link): &&(NamedBy, Link)| {
                *named_by == NamedBy::Number && table.mentions(&link.index)
            };
            let is_hooked = |(_, link): &&(NamedBy, Link)| {
                hooks == Hooks::WantLinks && table.hooks_into(&link.name)
            };
            let link = self.absent.iter().find(is_meant);
            let (_, link) = link.or_else(|| self.absent.iter().find(is_hooked))?;
            Some((table.key.clone(), link.name.clone()))
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
            assert!(possible_names(text).is_some(), "{text}");
        }
        assert!(possible_names("iifname \"eth0\" oifname { \"a\", \"b\" } accept").is_none());
    }

    #[test]
    fn only_links_that_a_text_names_matter_to_it() {
        let text =
            "define wan = eth0\ntable ip a { chain x { iif { $wan, \"br-lan\" } accept; }; }";
        let names = possible_names(text).unwrap();
        for (name, expected) in [("eth0", true), ("br-lan", true), ("eth1", false), ("br", false)] {
            assert_eq!(names.contains(name), expected, "{name}");
        }
    }
}
