//! Links in the scratch namespace that stand for those of the real one: same names, same numbers.
//!
//! `iif` and `oif` compare the number of a link, and hooks of `netdev` chains and flowtables want the link
//! to exist. With equal numbers nothing has to be understood or mapped.

use std::collections::BTreeSet;

use homeostat_netlink::uapi::{
    IFLA_IFNAME, IFLA_INFO_KIND, IFLA_LINKINFO, NLM_F_CREATE, NLM_F_EXCL, RTM_GETLINK, RTM_NEWLINK,
    ifinfomsg,
};
use homeostat_netlink::{Batch, Connection, Dumped, Error};

use crate::tlv::name;

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
    /// One that is not there: its number is one that no kernel gives by itself, by which a table that
    /// speaks of it is known.
    pub(crate) fn absent(name: String, nth: usize) -> Self {
        const FIRST: u32 = 0x7ed3_a500;
        let index = FIRST + u32::try_from(nth).unwrap_or_default();
        Link { name, index: index.to_ne_bytes() }
    }
}

/// Which links a text may speak of by its own words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Relevance(BTreeSet<String>);

impl Relevance {
    /// Nothing, if a text asks for no link by number.
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
        words.any(|word| ASKING.contains(&word)).then(|| Relevance(names()))
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
pub(crate) fn links(connection: &mut Connection) -> Result<Vec<Link>, Error> {
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

/// Makes their like. What cannot be made is missed by `nft`, which says so with its place.
pub(crate) fn make(connection: &mut Connection, links: &[&Link]) -> Result<(), Error> {
    for link in links {
        for kind in KINDS {
            match make_one(connection, link, kind) {
                Err(Error::Refused(_)) => {}
                made => {
                    made?;
                    break;
                }
            }
        }
    }
    Ok(())
}

fn make_one(connection: &mut Connection, link: &Link, kind: &str) -> Result<(), Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_needed_where_a_text_asks_for_them_by_number() {
        for text in ["iif lo accept", "meta oif eth0", "hook ingress device eth0"] {
            assert!(Relevance::of(text).is_some(), "{text}");
        }
        assert!(Relevance::of("iifname \"eth0\" oifname { \"a\", \"b\" } accept").is_none());
    }

    #[test]
    fn only_links_that_a_text_names_matter_to_it() {
        let text =
            "define wan = eth0\ntable ip a { chain x { iif { $wan, \"br-lan\" } accept; }; }";
        let relevance = Relevance::of(text).unwrap();
        for (name, expected) in [("eth0", true), ("br-lan", true), ("eth1", false), ("br", false)] {
            assert_eq!(relevance.covers(name), expected, "{name}");
        }
    }
}
