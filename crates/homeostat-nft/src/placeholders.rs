//! Links in the scratch namespace that stand for those of the real one: same names, same numbers.
//!
//! `iif` and `oif` compare the number of a link, and hooks of `netdev` chains and flowtables want the link
//! to exist. With equal numbers nothing has to be understood or mapped.

use homeostat_netlink::uapi::{
    IFLA_IFNAME, IFLA_INFO_KIND, IFLA_LINKINFO, NLM_F_CREATE, NLM_F_EXCL, RTM_GETLINK, RTM_NEWLINK,
    ifinfomsg,
};
use homeostat_netlink::{Batch, Connection, Dumped, Error};

use crate::tlv::name;

const FIXED: usize = size_of::<ifinfomsg>();
/// Where the number of a link is in `struct ifinfomsg`.
const INDEX_AT: usize = std::mem::offset_of!(ifinfomsg, ifi_index);
/// Kinds that can stand for any link; one of them is in every kernel.
const KINDS: [&str; 3] = ["dummy", "bridge", "ifb"];
/// Every namespace has its own.
const LOOPBACK: &str = "lo";

/// A link of the real namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    name: String,
    index: [u8; 4],
}

/// Whether a text may ask for links by number, or may include another that does.
pub(crate) fn are_needed(text: &str) -> bool {
    const WORDS: [&str; 6] = ["iif", "oif", "device", "devices", "include", "sdif"];
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.split(|c| !is_word(c)).any(|word| WORDS.contains(&word))
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
            let index = fixed.get(INDEX_AT..).and_then(|rest| rest.first_chunk()).copied();
            let name = name(&attrs, IFLA_IFNAME).unwrap_or_default();
            links.extend(index.map(|index| Link { name, index }));
        }
    })?;
    links.retain(|link| link.name != LOOPBACK);
    Ok(links)
}

/// Makes their like. What cannot be made is missed by `nft`, which says so with its place.
pub(crate) fn make(connection: &mut Connection, links: &[Link]) -> Result<(), Error> {
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
        for text in ["iif lo accept", "meta oif eth0", "hook ingress device eth0", "include \"x\""]
        {
            assert!(are_needed(text), "{text}");
        }
        assert!(!are_needed("iifname \"eth0\" oifname { \"a\", \"b\" } accept"));
    }
}
