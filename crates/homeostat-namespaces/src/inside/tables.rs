//! Tables of nftables inside a namespace. Each is foreign: the seam for a mark of ours is here.

use homeostat_core::{Owner, Taken};
use homeostat_netlink::{Connection, Errno, Error, Family, Malformed, Message};
use homeostat_netns::Netns;

use super::{ENOUGH, List, dump, taken};

/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETTABLE`.
const GET_TABLE: u16 = 0x0a01;
const NFTA_TABLE_NAME: u16 = 1;

/// What the kernel answers for a subsystem that it does not have.
const MISSING: [Errno; 4] = [Errno::PROTONOSUPPORT, Errno::INVAL, Errno::OPNOTSUPP, Errno::NOENT];

/// Lists them; a kernel without nftables has none.
pub(super) fn tables(netns: &Netns) -> Result<Vec<Taken>, Error> {
    let listed = Connection::open_in(netns, Family::Netfilter).and_then(|mut connection| {
        let list = List { kind: GET_TABLE, fixed: &[0; 4], most: ENOUGH };
        dump(&mut connection, &list, &mut table)
    });
    match listed {
        Err(error) if error.errno().is_some_and(|errno| MISSING.contains(&errno)) => Ok(vec![]),
        listed => listed,
    }
}

fn table(message: &Message<'_>) -> Result<Option<Taken>, Malformed> {
    let ([family, ..], attrs) = message.split::<4>()?;
    let name = attrs.first(NFTA_TABLE_NAME)?.map_or(Ok(""), |name| name.str())?;
    let key = format!("table {} {name}", family_name(*family));
    Ok(taken(key, Owner::foreign("somebody else")))
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
