//! The firewall of the demo: what is done to it, and when it is back. It has a reader and a listener of its
//! own, so that the judge does not believe what it judges.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use homeostat_netlink::uapi::{
    NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES, NFT_MSG_DELRULE, NFT_MSG_DELSETELEM, NFT_MSG_DELTABLE,
    NFT_MSG_GETCHAIN, NFT_MSG_GETRULE, NFT_MSG_GETSETELEM, NFT_MSG_NEWGEN, NFTA_CHAIN_HOOK,
    NFTA_CHAIN_NAME, NFTA_CHAIN_POLICY, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_HANDLE,
    NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_LIST_SET, NFTA_TABLE_NAME,
};
use homeostat_netlink::{
    Attrs, Batch, Connection, Dumped, Errno, Event, Family, Group, Listener, Options, Transacted,
};

use super::judge::{Healing, is_awaited};
use super::kernel_events::now;

/// What the document has of it.
pub(super) const SECTION: &str = include_str!("firewall.toml");

/// Of both versions of the protocol.
const INET: [u8; 4] = [1, 0, 0, 0];
/// In every message of nftables the first attribute is the name of the table.
const IN_TABLE: (u16, &[u8]) = (NFTA_TABLE_NAME, b"filter\0");
const IN_CHAIN: (u16, &[u8]) = (NFTA_RULE_CHAIN, b"input\0");
const IN_SET: (u16, &[u8]) = (NFTA_SET_ELEM_LIST_SET, b"admins\0");

/// What the saboteur does to it.
#[derive(Clone, Copy, Debug)]
pub(super) enum FirewallDamage {
    /// The table goes, with all that is in it.
    Table,
    /// The last rule of a chain goes.
    Rule,
    /// A set loses its elements.
    Set,
}

pub(super) struct Firewall {
    connection: Connection,
    listener: Listener,
    wanted: Parts,
}

/// Chains, rules in their order, and elements, in the kernel's own bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    chains: Vec<Vec<u8>>,
    rules: Vec<Vec<u8>>,
    elements: Vec<Vec<u8>>,
}

impl Firewall {
    /// Takes what is there now for what has to be.
    pub(super) fn open() -> Result<Self> {
        let groups = [Group(NFNLGRP_NFTABLES)];
        let listener = Listener::open(Family::Netfilter, &groups, &Options::for_events())?;
        let mut connection = Connection::open(Family::Netfilter)?;
        let wanted = look(&mut connection)?;
        ensure!(!wanted.rules.is_empty(), "the firewall is not there");
        Ok(Firewall { connection, listener, wanted })
    }

    /// Does it, and returns when it began to.
    pub(super) fn sabotage(&mut self, damage: FirewallDamage) -> Result<Instant> {
        while self.listener.receive(&mut |_| {})? {}
        let mut batch = Batch::new();
        let mut delete = |kind, attrs: &[(u16, &[u8])]| write(&mut batch, kind, attrs);
        match damage {
            FirewallDamage::Table => delete(NFT_MSG_DELTABLE, &[IN_TABLE]),
            FirewallDamage::Rule => {
                let last = last_rule(&mut self.connection)?;
                delete(NFT_MSG_DELRULE, &[IN_TABLE, IN_CHAIN, (NFTA_RULE_HANDLE, &last)])
            }
            FirewallDamage::Set => delete(NFT_MSG_DELSETELEM, &[IN_TABLE, IN_SET]),
        }?;
        let sent = now();
        let done = self.connection.transact(&batch, None)?;
        ensure!(matches!(done, Transacted::Done), "the kernel refused the sabotage: {done:?}");
        Ok(sent)
    }

    /// Waits for the commit after which everything is back.
    pub(super) fn healed(
        &mut self,
        damage: FirewallDamage,
        sent: Instant,
        stop: &AtomicBool,
    ) -> Result<Option<Healing>> {
        // The saboteur's own commit is the first.
        let (mut commits, mut last) = (0, sent);
        while is_awaited(sent, stop) {
            self.listener.receive_within(Duration::from_millis(100), &mut |event| {
                if let Event::Message(message) = event
                    && message.kind == kind(NFT_MSG_NEWGEN)
                {
                    (commits, last) = (commits + 1, now());
                }
            })?;
            if commits > 1 && look(&mut self.connection)? == self.wanted {
                let took = last.saturating_duration_since(sent);
                let Parts { chains, rules, elements } = &self.wanted;
                let objects = match damage {
                    FirewallDamage::Table => chains.len() + rules.len() + elements.len(),
                    FirewallDamage::Rule => 1,
                    FirewallDamage::Set => elements.len(),
                };
                return Ok(Some(Healing { took, objects }));
            }
        }
        Ok(None)
    }
}

/// Everything of the table that is there.
fn look(connection: &mut Connection) -> Result<Parts> {
    let mut parts = Parts::default();
    list(connection, NFT_MSG_GETCHAIN, &[], &mut |attrs| {
        let (kind, table) = IN_TABLE;
        if attrs.clone().first(kind)?.is_some_and(|name| name.value == table) {
            let kinds = [NFTA_CHAIN_NAME, NFTA_CHAIN_HOOK, NFTA_CHAIN_POLICY];
            parts.chains.push(fields(attrs, &kinds)?);
        }
        Ok(())
    })?;
    list(connection, NFT_MSG_GETRULE, &[IN_TABLE], &mut |attrs| {
        parts.rules.push(fields(attrs, &[NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS])?);
        Ok(())
    })?;
    list(connection, NFT_MSG_GETSETELEM, &[IN_TABLE, IN_SET], &mut |attrs| {
        let Some(all) = attrs.first(NFTA_SET_ELEM_LIST_ELEMENTS)? else { return Ok(()) };
        for element in Attrs::new(all.value) {
            parts.elements.push(element?.value.to_vec());
        }
        Ok(())
    })?;
    parts.elements.sort();
    Ok(parts)
}

/// The handle of the last rule of a chain.
fn last_rule(connection: &mut Connection) -> Result<Vec<u8>> {
    let mut handle = None;
    list(connection, NFT_MSG_GETRULE, &[IN_TABLE, IN_CHAIN], &mut |attrs| {
        handle = attrs.first(NFTA_RULE_HANDLE)?.map(|attr| attr.value.to_vec());
        Ok(())
    })?;
    handle.context("the firewall has no rule")
}

/// Reads a list; what is not there has none.
fn list(
    connection: &mut Connection,
    message: u16,
    attrs: &[(u16, &[u8])],
    each: &mut dyn FnMut(Attrs<'_>) -> Result<()>,
) -> Result<()> {
    let mut request = Batch::new();
    write(&mut request, message, attrs)?;
    let mut read = Ok(());
    let dumped = connection.dump(&mut request, &mut |dumped| {
        if let Dumped::Object(message) = dumped
            && read.is_ok()
        {
            read = message.split::<4>().map_err(Into::into).and_then(|(_, attrs)| each(attrs));
        }
    });
    match dumped {
        Err(error) if error.errno() == Some(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => read,
    }
}

/// Some attributes, one after the other.
fn fields(attrs: Attrs<'_>, kinds: &[u16]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for attr in attrs {
        let attr = attr?;
        if kinds.contains(&attr.kind) {
            bytes.extend_from_slice(attr.value);
        }
    }
    Ok(bytes)
}

const fn kind(message: u16) -> u16 {
    NFNL_SUBSYS_NFTABLES << 8 | message
}

fn write(batch: &mut Batch, message: u16, attrs: &[(u16, &[u8])]) -> Result<()> {
    let mut writer = batch.message(kind(message), 0);
    writer.fixed(&INET);
    for (kind, value) in attrs {
        writer.attr(*kind, value);
    }
    Ok(writer.finish()?)
}
