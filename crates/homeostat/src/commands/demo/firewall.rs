//! The firewall of the demo: what is done to it, and when it is back. It has a reader and an listener of its
//! own, so that the judge does not believe what it judges.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use homeostat_netlink::uapi::{
    NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES, NFT_MSG_DELRULE, NFT_MSG_DELSETELEM, NFT_MSG_DELTABLE,
    NFT_MSG_GETCHAIN, NFT_MSG_GETRULE, NFT_MSG_GETSETELEM, NFT_MSG_NEWGEN, NFTA_CHAIN_HOOK,
    NFTA_CHAIN_NAME, NFTA_CHAIN_POLICY, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_HANDLE,
    NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_LIST_SET, NFTA_TABLE_NAME,
};
use homeostat_netlink::{
    Attrs, Batch, Connection, Dumped, Errno, Event, Family, Group, Listener, MessageWriter,
    Options, Transacted,
};

use super::judge::Healing;
use super::kernel_events::now;

/// What the document has of it.
pub(super) const SECTION: &str = include_str!("firewall.toml");

/// What is no healing after this time is none.
const PATIENCE: Duration = Duration::from_secs(10);

const TABLE: &str = "filter";
const CHAIN: &str = "input";
const SET: &str = "admins";
/// Of both versions of the protocol.
const INET: [u8; 4] = [1, 0, 0, 0];
/// In every message of nftables the first attribute is the name of the table.
const IN_TABLE: u16 = NFTA_TABLE_NAME;

/// What somebody does to it.
#[derive(Clone, Copy, Debug)]
pub(super) enum FirewallDamage {
    /// The table goes, with all that is in it.
    Table,
    /// The last rule of a chain goes.
    Rule,
    /// A set loses its elements.
    Set,
}

/// The firewall as it has to be.
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

    /// Does it, and tells when it began to.
    pub(super) fn sabotage(&mut self, damage: FirewallDamage) -> Result<Instant> {
        while self.listener.receive(&mut |_| {})? {}
        let mut batch = Batch::new();
        let mut message = match damage {
            FirewallDamage::Table => batch.message(kind(NFT_MSG_DELTABLE), 0),
            FirewallDamage::Rule => batch.message(kind(NFT_MSG_DELRULE), 0),
            FirewallDamage::Set => batch.message(kind(NFT_MSG_DELSETELEM), 0),
        };
        message.fixed(&INET);
        put_name(&mut message, IN_TABLE, TABLE);
        match damage {
            FirewallDamage::Table => {}
            FirewallDamage::Rule => {
                put_name(&mut message, NFTA_RULE_CHAIN, CHAIN);
                message.attr(NFTA_RULE_HANDLE, &last_rule(&mut self.connection)?);
            }
            FirewallDamage::Set => put_name(&mut message, NFTA_SET_ELEM_LIST_SET, SET),
        }
        message.finish()?;
        let sent = now();
        let done = self.connection.transact(&batch, None)?;
        ensure!(matches!(done, Transacted::Done), "the kernel refused the sabotage: {done:?}");
        Ok(sent)
    }

    /// Waits for the commit after which everything is back.
    pub(super) fn healed(
        &mut self,
        (damage, sent): (FirewallDamage, Instant),
        stop: &AtomicBool,
    ) -> Result<Option<Healing>> {
        // The saboteur's own commit is the first.
        let (mut commits, mut last) = (0, sent);
        while sent.elapsed() < PATIENCE && !stop.load(Ordering::Relaxed) {
            self.listener.receive_within(Duration::from_millis(100), &mut |event| {
                let is_commit = matches!(&event, Event::Message(message) if message.kind == kind(NFT_MSG_NEWGEN));
                if is_commit {
                    (commits, last) = (commits + 1, now());
                }
            })?;
            if commits > 1 && look(&mut self.connection)? == self.wanted {
                let took = last.saturating_duration_since(sent);
                return Ok(Some(Healing { took, objects: self.wanted.lost_by(damage) }));
            }
        }
        Ok(None)
    }
}

impl Parts {
    fn lost_by(&self, damage: FirewallDamage) -> usize {
        match damage {
            FirewallDamage::Table => self.chains.len() + self.rules.len() + self.elements.len(),
            FirewallDamage::Rule => 1,
            FirewallDamage::Set => self.elements.len(),
        }
    }
}

/// Everything of the table that is there.
fn look(connection: &mut Connection) -> Result<Parts> {
    let mut parts = Parts::default();
    list(connection, (NFT_MSG_GETCHAIN, &[]), &mut |attrs| {
        let is_ours = attrs.clone().first(IN_TABLE)?.is_some_and(|name| name.value == c(TABLE));
        if is_ours {
            parts
                .chains
                .push(fields(attrs, &[NFTA_CHAIN_NAME, NFTA_CHAIN_HOOK, NFTA_CHAIN_POLICY])?);
        }
        Ok(())
    })?;
    list(connection, (NFT_MSG_GETRULE, &[(IN_TABLE, TABLE)]), &mut |attrs| {
        parts.rules.push(fields(attrs, &[NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS])?);
        Ok(())
    })?;
    let inside = [(IN_TABLE, TABLE), (NFTA_SET_ELEM_LIST_SET, SET)];
    list(connection, (NFT_MSG_GETSETELEM, &inside), &mut |attrs| {
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
    let inside = [(IN_TABLE, TABLE), (NFTA_RULE_CHAIN, CHAIN)];
    list(connection, (NFT_MSG_GETRULE, &inside), &mut |attrs| {
        handle = attrs.first(NFTA_RULE_HANDLE)?.map(|attr| attr.value.to_vec());
        Ok(())
    })?;
    handle.context("the firewall has no rule")
}

/// Reads a list; what is not there has none.
fn list(
    connection: &mut Connection,
    (message, names): (u16, &[(u16, &str)]),
    each: &mut dyn FnMut(Attrs<'_>) -> Result<()>,
) -> Result<()> {
    let mut request = Batch::new();
    let mut writer = request.message(kind(message), 0);
    writer.fixed(&INET);
    for (kind, name) in names {
        put_name(&mut writer, *kind, name);
    }
    writer.finish()?;
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

fn put_name(writer: &mut MessageWriter<'_>, kind: u16, name: &str) {
    writer.attr(kind, &c(name));
}

/// A name as the kernel tells it.
fn c(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}
