//! The floor: dumps that are not parsed, and dumped messages that are sent back to the kernel.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use homeostat_netlink::uapi::{
    NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END, NFNL_SUBSYS_NFTABLES, NFT_MSG_DELRULE,
    NFT_MSG_DELSETELEM, NFT_MSG_DELTABLE, NFT_MSG_GETCHAIN, NFT_MSG_GETRULE, NFT_MSG_GETSET,
    NFT_MSG_GETSETELEM, NFT_MSG_GETTABLE, NFT_MSG_NEWCHAIN, NFT_MSG_NEWRULE, NFT_MSG_NEWSET,
    NFT_MSG_NEWSETELEM, NFT_MSG_NEWTABLE, NFTA_CHAIN_FLAGS, NFTA_CHAIN_HOOK, NFTA_CHAIN_NAME,
    NFTA_CHAIN_POLICY, NFTA_CHAIN_TYPE, NFTA_DATA_VALUE, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS,
    NFTA_RULE_HANDLE, NFTA_RULE_POSITION, NFTA_RULE_USERDATA, NFTA_SET_DESC, NFTA_SET_ELEM_KEY,
    NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_LIST_SET, NFTA_SET_FLAGS, NFTA_SET_ID,
    NFTA_SET_KEY_LEN, NFTA_SET_KEY_TYPE, NFTA_SET_NAME, NFTA_SET_USERDATA, NFTA_TABLE_FLAGS,
    NFTA_TABLE_NAME, NFTA_TABLE_USERDATA, NLA_F_NESTED, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE,
    NLM_F_DUMP,
};
use homeostat_netlink::{
    Attrs, Batch, Connection, Dumped, Family, Message, MessageWriter, Options, Socket,
};

use super::super::wire::{read_raw, send_raw};
use super::load::{CHAIN, Load, SET, TABLE};

const IPV4: [u8; 4] = [2, 0, 0, 0];
/// In every message of nftables the first attribute is the name of the table.
const IN_TABLE: u16 = NFTA_TABLE_NAME;

/// A socket to the calling thread's namespace with room for a large transaction.
pub(super) fn socket(send: usize) -> Result<Socket> {
    let options = Options { send_buffer: Some(send.max(1 << 20)), ..Options::default() };
    Ok(Socket::open(Family::Netfilter, &options)?)
}

/// The requests for all that a ruleset consists of.
pub(super) fn requests(load: Load) -> Result<Vec<Batch>> {
    let table = [NFT_MSG_GETTABLE, NFT_MSG_GETCHAIN, NFT_MSG_GETRULE, NFT_MSG_GETSET];
    let mut requests =
        table.into_iter().map(|message| request(message, None)).collect::<Result<Vec<_>>>()?;
    if load.elements > 0 {
        requests.push(request(NFT_MSG_GETSETELEM, Some(SET))?);
    }
    Ok(requests)
}

fn request(message: u16, set: Option<&str>) -> Result<Batch> {
    let mut batch = Batch::new();
    let mut writer = batch.message(kind(message), NLM_F_DUMP);
    writer.fixed(&IPV4);
    // A table that is asked for by name is no list.
    if message != NFT_MSG_GETTABLE {
        put_name(&mut writer, IN_TABLE, TABLE);
    }
    if let Some(set) = set {
        put_name(&mut writer, NFTA_SET_ELEM_LIST_SET, set);
    }
    writer.finish()?;
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
    let mut batch = begun()?;
    let kinds = [NFT_MSG_GETTABLE, NFT_MSG_GETCHAIN, NFT_MSG_GETSET];
    for message in kinds {
        add_dumped(&mut connection, &mut request(message, None)?, &mut batch)?;
    }
    if load.elements > 0 {
        add_dumped(&mut connection, &mut request(NFT_MSG_GETSETELEM, Some(SET))?, &mut batch)?;
    }
    add_dumped(&mut connection, &mut request(NFT_MSG_GETRULE, None)?, &mut batch)?;
    ended(batch)
}

fn add_dumped(connection: &mut Connection, request: &mut Batch, into: &mut Batch) -> Result<()> {
    let mut failed = Ok(());
    connection.dump(request, &mut |dumped| {
        if let Dumped::Object(message) = dumped
            && failed.is_ok()
        {
            failed = again(&message, into);
        }
    })?;
    failed
}

/// Turns a message of a dump into one that creates the object.
fn again(message: &Message<'_>, into: &mut Batch) -> Result<()> {
    let (head, attrs) = message.split::<4>()?;
    let is_rule = message.kind == kind(NFT_MSG_NEWRULE);
    let flags = NLM_F_CREATE | if is_rule { NLM_F_APPEND } else { 0 };
    let mut writer = into.message(message.kind, flags);
    writer.fixed(head);
    copy(attrs, taken(message.kind), &mut writer)?;
    if message.kind == kind(NFT_MSG_NEWSET) {
        writer.attr_be32(NFTA_SET_ID, 1);
    }
    Ok(writer.finish()?)
}

/// Attributes of a dump that the kernel accepts in a request.
fn taken(message: u16) -> &'static [u16] {
    match message & 0xff {
        NFT_MSG_NEWTABLE => &[IN_TABLE, NFTA_TABLE_FLAGS, NFTA_TABLE_USERDATA],
        NFT_MSG_NEWCHAIN => &[
            IN_TABLE,
            NFTA_CHAIN_NAME,
            NFTA_CHAIN_HOOK,
            NFTA_CHAIN_POLICY,
            NFTA_CHAIN_TYPE,
            NFTA_CHAIN_FLAGS,
        ],
        NFT_MSG_NEWSET => &[
            IN_TABLE,
            NFTA_SET_NAME,
            NFTA_SET_FLAGS,
            NFTA_SET_KEY_TYPE,
            NFTA_SET_KEY_LEN,
            NFTA_SET_DESC,
            NFTA_SET_USERDATA,
        ],
        NFT_MSG_NEWSETELEM => &[IN_TABLE, NFTA_SET_ELEM_LIST_SET, NFTA_SET_ELEM_LIST_ELEMENTS],
        _ => &[IN_TABLE, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_USERDATA],
    }
}

fn copy(attrs: Attrs<'_>, kinds: &[u16], writer: &mut MessageWriter<'_>) -> Result<()> {
    for attr in attrs {
        let attr = attr?;
        if kinds.contains(&attr.kind) {
            let nested = if attr.is_nested { NLA_F_NESTED } else { 0 };
            writer.attr(attr.kind | nested, attr.value);
        }
    }
    Ok(())
}

/// A rule, and what puts it back.
pub(super) struct Rule {
    pub(super) delete: Batch,
    pub(super) add: Batch,
}

impl Rule {
    /// By its place in the chain of the calling thread's namespace. It must not be the last one.
    pub(super) fn at(place: usize) -> Result<Self> {
        let mut connection = Connection::open(Family::Netfilter)?;
        let (mut seen, mut delete, mut add, mut next) = (0, begun()?, begun()?, None);
        let mut failed = Ok(());
        connection.dump(&mut request(NFT_MSG_GETRULE, None)?, &mut |dumped| {
            let Dumped::Object(message) = dumped else { return };
            if seen == place + 1 {
                next = Some(handle(&message));
            }
            if seen == place {
                failed = drop_rule(&message, &mut delete);
            }
            seen += 1;
        })?;
        failed?;
        let next = next.context("the last rule")??;
        let mut at = 0;
        let mut failed = Ok(());
        connection.dump(&mut request(NFT_MSG_GETRULE, None)?, &mut |dumped| {
            let Dumped::Object(message) = dumped else { return };
            if at == place {
                failed = insert_rule(&message, next, &mut add);
            }
            at += 1;
        })?;
        failed?;
        Ok(Rule { delete: ended(delete)?, add: ended(add)? })
    }
}

fn handle(message: &Message<'_>) -> Result<[u8; 8]> {
    let (_, attrs) = message.split::<4>()?;
    Ok(attrs.first(NFTA_RULE_HANDLE)?.context("no handle")?.array()?)
}

fn drop_rule(message: &Message<'_>, into: &mut Batch) -> Result<()> {
    let mut writer = into.message(kind(NFT_MSG_DELRULE), 0);
    writer.fixed(&IPV4);
    put_name(&mut writer, IN_TABLE, TABLE);
    put_name(&mut writer, NFTA_RULE_CHAIN, CHAIN);
    writer.attr(NFTA_RULE_HANDLE, &handle(message)?);
    Ok(writer.finish()?)
}

fn insert_rule(message: &Message<'_>, before: [u8; 8], into: &mut Batch) -> Result<()> {
    let (_, attrs) = message.split::<4>()?;
    let mut writer = into.message(kind(NFT_MSG_NEWRULE), NLM_F_CREATE);
    writer.fixed(&IPV4);
    copy(attrs, taken(message.kind), &mut writer)?;
    writer.attr(NFTA_RULE_POSITION, &before);
    Ok(writer.finish()?)
}

/// Adds an element.
pub(super) fn add_element(address: Ipv4Addr) -> Result<Batch> {
    element(NFT_MSG_NEWSETELEM, NLM_F_CREATE, address)
}

/// Takes an element away.
pub(super) fn drop_element(address: Ipv4Addr) -> Result<Batch> {
    element(NFT_MSG_DELSETELEM, 0, address)
}

fn element(message: u16, flags: u16, address: Ipv4Addr) -> Result<Batch> {
    let mut batch = begun()?;
    let mut writer = batch.message(kind(message), flags);
    writer.fixed(&IPV4);
    put_name(&mut writer, IN_TABLE, TABLE);
    put_name(&mut writer, NFTA_SET_ELEM_LIST_SET, SET);
    writer.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |list| {
        list.nest(1, |element| {
            element.nest(NFTA_SET_ELEM_KEY, |key| {
                key.attr(NFTA_DATA_VALUE, &address.octets());
            });
        });
    });
    writer.finish()?;
    ended(batch)
}

/// Clears the whole ruleset.
pub(super) fn flush() -> Result<Batch> {
    let mut batch = begun()?;
    let mut writer = batch.message(kind(NFT_MSG_DELTABLE), 0);
    writer.fixed(&[0; 4]);
    writer.finish()?;
    ended(batch)
}

const fn kind(message: u16) -> u16 {
    NFNL_SUBSYS_NFTABLES << 8 | message
}

fn put_name(writer: &mut MessageWriter<'_>, kind: u16, name: &str) {
    writer.attr(kind, &[name.as_bytes(), &[0]].concat());
}

fn begun() -> Result<Batch> {
    mark(Batch::new(), NFNL_MSG_BATCH_BEGIN, 0)
}

fn ended(batch: Batch) -> Result<Batch> {
    mark(batch, NFNL_MSG_BATCH_END, NLM_F_ACK)
}

fn mark(mut batch: Batch, message: u16, flags: u16) -> Result<Batch> {
    let [high, low] = NFNL_SUBSYS_NFTABLES.to_be_bytes();
    let mut writer = batch.message(message, flags);
    writer.fixed(&[0, 0, high, low]);
    writer.finish()?;
    Ok(batch)
}
