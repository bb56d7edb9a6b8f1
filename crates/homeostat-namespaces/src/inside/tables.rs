//! Tables of nftables inside a namespace: foreign, but for those with our mark in their comment, and those
//! that are known to have been taken over.

use homeostat_core::{Owner, Taken};
use homeostat_netlink::uapi::{
    NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE, NFTA_TABLE_HANDLE, NFTA_TABLE_NAME, NFTA_TABLE_USERDATA,
};
use homeostat_netlink::{Connection, Errno, Error, Family, Malformed, Message};
use homeostat_netns::Netns;

use super::{ENOUGH, dump, taken};
use crate::key::Key;
use crate::source::{Namespaces, OwnTable};

const GET_TABLE: u16 = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETTABLE;
/// The type of a comment among a table's user data, as `nft` writes it.
const COMMENT: u8 = 0;

/// What the kernel answers for a subsystem that it does not have.
const MISSING: [Errno; 4] = [Errno::PROTONOSUPPORT, Errno::INVAL, Errno::OPNOTSUPP, Errno::NOENT];

/// Lists them; a kernel without nftables has none.
pub(super) fn foreign(netns: &Netns, source: &Namespaces, key: &Key) -> Result<Vec<Taken>, Error> {
    let listed = Connection::open_in(netns, Family::Netfilter).and_then(|mut connection| {
        dump(&mut connection, GET_TABLE, &[0; 4], ENOUGH, |message| table(message, source, key))
    });
    match listed {
        Err(error) if error.errno().is_some_and(|errno| MISSING.contains(&errno)) => Ok(vec![]),
        listed => listed,
    }
}

fn table(
    message: &Message<'_>,
    source: &Namespaces,
    key: &Key,
) -> Result<Option<Taken>, Malformed> {
    let ([family, ..], attrs) = message.split::<4>()?;
    let userdata = attrs.clone().first(NFTA_TABLE_USERDATA)?.and_then(|attr| comment(attr.value));
    let handle =
        attrs.clone().first(NFTA_TABLE_HANDLE)?.map(|handle| handle.array()).transpose()?;
    let handle = handle.map_or(0, u64::from_be_bytes);
    let name = attrs.first(NFTA_TABLE_NAME)?.map_or(Ok(""), |name| name.str())?;
    let table = OwnTable { name: format!("table {} {name}", family_name(*family)), handle };
    let is_marked = userdata.is_some_and(|comment| source.mark.is_on_table(comment));
    let is_ours = is_marked || source.owns(key, &table);
    Ok(taken(table.name, if is_ours { Owner::Ours } else { Owner::foreign("another owner") }))
}

/// The comment among a table's user data.
fn comment(mut userdata: &[u8]) -> Option<&str> {
    while let [kind, len, rest @ ..] = userdata {
        let (value, rest) = rest.split_at_checked(usize::from(*len))?;
        if *kind == COMMENT {
            return std::str::from_utf8(value.split(|byte| *byte == 0).next()?).ok();
        }
        userdata = rest;
    }
    None
}

/// As `nft` writes it.
fn family_name(family: u8) -> String {
    match family {
        1 => "inet".to_owned(),
        2 => "ip".to_owned(),
        3 => "arp".to_owned(),
        5 => "netdev".to_owned(),
        7 => "bridge".to_owned(),
        10 => "ip6".to_owned(),
        other => other.to_string(),
    }
}
