//! The floor: dumps that are not parsed, and dumped messages that are sent back to the kernel.

use anyhow::{Context as _, Result};
use homeostat_netlink::{
    Batch, Connection, Dumped, Family, Message, MessageWriter, Options, Socket, uapi,
};

use super::super::wire::{read_raw, send_raw};
use super::load::{Load, SET, TABLE, address};

const IPV4: [u8; 4] = [2, 0, 0, 0];
/// In every message of nftables the first attribute is the name of the table.
const IN_TABLE: u16 = uapi::NFTA_TABLE_NAME;

/// A socket to the calling thread's namespace with room for a large transaction.
pub(super) fn socket(send: usize) -> Result<Socket> {
    let socket = Socket::open(Family::Netfilter, &Options::default())?;
    socket.make_send_room(send.max(1 << 20));
    Ok(socket)
}

/// The requests for all that a ruleset consists of, in the order in which it can be created again.
pub(super) fn requests(load: Load) -> Result<Vec<Batch>> {
    let mut messages = vec![uapi::NFT_MSG_GETTABLE, uapi::NFT_MSG_GETCHAIN, uapi::NFT_MSG_GETSET];
    messages.extend((load.elements > 0).then_some(uapi::NFT_MSG_GETSETELEM));
    messages.push(uapi::NFT_MSG_GETRULE);
    messages.into_iter().map(request).collect()
}

fn request(message: u16) -> Result<Batch> {
    let mut batch = Batch::new();
    put(&mut batch, message, uapi::NLM_F_DUMP, |writer| {
        // A table that is asked for by name is no list.
        if message != uapi::NFT_MSG_GETTABLE {
            put_name(writer, IN_TABLE, TABLE);
        }
        if message == uapi::NFT_MSG_GETSETELEM {
            put_name(writer, uapi::NFTA_SET_ELEM_LIST_SET, SET);
        }
        Ok(())
    })?;
    Ok(batch)
}

/// Reads all of it; returns the number of bytes.
pub(super) fn read(socket: &Socket, requests: &[Batch]) -> Result<usize> {
    requests.iter().map(|request| read_raw(socket, request)).sum()
}

/// Commits messages that were framed before.
pub(super) fn commit(socket: &Socket, transaction: &Batch) -> Result<()> {
    send_raw(socket, transaction)
}

/// The transaction that creates the ruleset of the calling thread's namespace.
pub(super) fn whole(load: Load) -> Result<Batch> {
    let mut connection = Connection::open(Family::Netfilter)?;
    transaction(|batch| {
        requests(load)?.iter_mut().try_for_each(|request| {
            let mut added = Ok(());
            connection.dump(request, &mut |dumped| {
                if let (Dumped::Object(message), Ok(())) = (dumped, &added) {
                    added = create(batch, &message);
                }
            })?;
            added
        })
    })
}

/// Turns a message of a dump into one that creates the object; a rule behind the one that it follows.
fn create(batch: &mut Batch, message: &Message<'_>) -> Result<()> {
    let kind = message.kind & 0xff;
    let is_rule = kind == uapi::NFT_MSG_NEWRULE;
    let flags = uapi::NLM_F_CREATE | if is_rule { uapi::NLM_F_APPEND } else { 0 };
    put(batch, kind, flags, |writer| {
        copy(message, accepted(kind), writer)?;
        if kind == uapi::NFT_MSG_NEWSET {
            writer.attr_be32(uapi::NFTA_SET_ID, 1);
        }
        Ok(())
    })
}

/// Attributes of a dump that the kernel accepts in a request.
fn accepted(message: u16) -> &'static [u16] {
    match message {
        uapi::NFT_MSG_NEWTABLE => &[IN_TABLE, uapi::NFTA_TABLE_FLAGS, uapi::NFTA_TABLE_USERDATA],
        uapi::NFT_MSG_NEWCHAIN => &[
            IN_TABLE,
            uapi::NFTA_CHAIN_NAME,
            uapi::NFTA_CHAIN_HOOK,
            uapi::NFTA_CHAIN_POLICY,
            uapi::NFTA_CHAIN_TYPE,
            uapi::NFTA_CHAIN_FLAGS,
        ],
        uapi::NFT_MSG_NEWSET => &[
            IN_TABLE,
            uapi::NFTA_SET_NAME,
            uapi::NFTA_SET_FLAGS,
            uapi::NFTA_SET_KEY_TYPE,
            uapi::NFTA_SET_KEY_LEN,
            uapi::NFTA_SET_DESC,
            uapi::NFTA_SET_USERDATA,
        ],
        uapi::NFT_MSG_NEWSETELEM => {
            &[IN_TABLE, uapi::NFTA_SET_ELEM_LIST_SET, uapi::NFTA_SET_ELEM_LIST_ELEMENTS]
        }
        _ => &[
            IN_TABLE,
            uapi::NFTA_RULE_CHAIN,
            uapi::NFTA_RULE_EXPRESSIONS,
            uapi::NFTA_RULE_USERDATA,
        ],
    }
}

fn copy(message: &Message<'_>, kinds: &[u16], writer: &mut MessageWriter<'_>) -> Result<()> {
    let (_, attrs) = message.split::<4>()?;
    for attr in attrs {
        let attr = attr?;
        if kinds.contains(&attr.kind) {
            let nested = if attr.is_nested { uapi::NLA_F_NESTED } else { 0 };
            writer.attr(attr.kind | nested, attr.value);
        }
    }
    Ok(())
}

/// The transactions that delete a part of the ruleset and put it back.
pub(super) struct Missing {
    pub(super) delete: Batch,
    pub(super) add: Batch,
}

impl Missing {
    /// A rule in the middle of the chain of the calling thread's namespace.
    pub(super) fn rule(load: Load) -> Result<Self> {
        let mut connection = Connection::open(Family::Netfilter)?;
        let (mut place, mut found) = (0, None);
        connection.dump(&mut request(uapi::NFT_MSG_GETRULE)?, &mut |dumped| {
            let Dumped::Object(message) = dumped else { return };
            if place == load.rules / 2 {
                found = Some(Self::of_rule(&message));
            }
            place += 1;
        })?;
        found.context("there are too few rules")?
    }

    fn of_rule(message: &Message<'_>) -> Result<Self> {
        const NAMES: [u16; 3] = [IN_TABLE, uapi::NFTA_RULE_CHAIN, uapi::NFTA_RULE_HANDLE];
        let delete = |writer: &mut MessageWriter<'_>| copy(message, &NAMES, writer);
        // In a dump the position is the handle of the rule before; with NLM_F_APPEND it means behind that rule.
        let flags = uapi::NLM_F_CREATE | uapi::NLM_F_APPEND;
        let add = |writer: &mut MessageWriter<'_>| {
            copy(message, accepted(uapi::NFT_MSG_NEWRULE), writer)?;
            copy(message, &[uapi::NFTA_RULE_POSITION], writer)
        };
        Ok(Missing {
            delete: transaction(|batch| put(batch, uapi::NFT_MSG_DELRULE, 0, delete))?,
            add: transaction(|batch| put(batch, uapi::NFT_MSG_NEWRULE, flags, add))?,
        })
    }

    /// An element in the middle of the set.
    pub(super) fn element(load: Load) -> Result<Self> {
        let octets = address(load.elements / 2).octets();
        let element = |writer: &mut MessageWriter<'_>| {
            put_name(writer, IN_TABLE, TABLE);
            put_name(writer, uapi::NFTA_SET_ELEM_LIST_SET, SET);
            writer.nest(uapi::NFTA_SET_ELEM_LIST_ELEMENTS, |list| {
                list.nest(1, |element| {
                    element.nest(uapi::NFTA_SET_ELEM_KEY, |key| {
                        key.attr(uapi::NFTA_DATA_VALUE, &octets);
                    });
                });
            });
            Ok(())
        };
        let (new, del) = (uapi::NFT_MSG_NEWSETELEM, uapi::NFT_MSG_DELSETELEM);
        Ok(Missing {
            delete: transaction(|batch| put(batch, del, 0, element))?,
            add: transaction(|batch| put(batch, new, uapi::NLM_F_CREATE, element))?,
        })
    }
}

/// Clears the whole ruleset.
pub(super) fn flush() -> Result<Batch> {
    transaction(|batch| {
        let deltable = uapi::NFNL_SUBSYS_NFTABLES << 8 | uapi::NFT_MSG_DELTABLE;
        let mut writer = batch.message(deltable, 0);
        writer.fixed(&[0; 4]);
        Ok(writer.finish()?)
    })
}

/// Adds a message about IPv4.
fn put(
    batch: &mut Batch,
    message: u16,
    flags: u16,
    fill: impl FnOnce(&mut MessageWriter<'_>) -> Result<()>,
) -> Result<()> {
    let mut writer = batch.message(uapi::NFNL_SUBSYS_NFTABLES << 8 | message, flags);
    writer.fixed(&IPV4);
    fill(&mut writer)?;
    Ok(writer.finish()?)
}

fn put_name(writer: &mut MessageWriter<'_>, kind: u16, name: &str) {
    writer.attr(kind, &[name.as_bytes(), &[0]].concat());
}

/// Frames what `fill` adds as one transaction.
fn transaction(fill: impl FnOnce(&mut Batch) -> Result<()>) -> Result<Batch> {
    let [high, low] = uapi::NFNL_SUBSYS_NFTABLES.to_be_bytes();
    let mark = |batch: &mut Batch, message, flags| {
        let mut writer = batch.message(message, flags);
        writer.fixed(&[0, 0, high, low]);
        writer.finish()
    };
    let mut batch = Batch::new();
    mark(&mut batch, uapi::NFNL_MSG_BATCH_BEGIN, 0)?;
    fill(&mut batch)?;
    mark(&mut batch, uapi::NFNL_MSG_BATCH_END, uapi::NLM_F_ACK)?;
    Ok(batch)
}
