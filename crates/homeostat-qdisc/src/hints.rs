//! The kernel's notices about qdiscs, classes and filters, and about links that come and go.
//!
//! Quirk `a-get-is-announced` (Linux 6.1): asking for one qdisc sends a notice about it to everybody. So one is never asked
//! for alone, and what our own connections caused is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use homeostat_core::{Failure, Hint};
use homeostat_netlink::uapi::{
    RTM_DELLINK, RTM_DELQDISC, RTM_DELTCLASS, RTM_DELTFILTER, RTM_NEWLINK, RTM_NEWQDISC,
    RTM_NEWTCLASS, RTM_NEWTFILTER, RTNLGRP_LINK, RTNLGRP_TC,
};
use homeostat_netlink::{AsyncListener, Event, Group, Message, Port};

use crate::kernel::{failure, link, name};
use crate::key::{Key, LinkName, Side};
use crate::source::Qdiscs;
use crate::wire::Reported;

const GROUPS: [Group; 2] = [Group(RTNLGRP_TC), Group(RTNLGRP_LINK)];

/// The sockets through which this source asks and writes.
#[derive(Debug, Default)]
pub(crate) struct OwnPorts(Mutex<BTreeSet<Port>>);

impl OwnPorts {
    pub(crate) fn add(&self, port: Port) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(port);
    }

    fn has(&self, port: Port) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&port)
    }
}

pub(crate) struct Hints {
    listener: AsyncListener,
    dirty: Dirty,
}

/// What has changed since the last hint.
struct Dirty {
    own: Arc<OwnPorts>,
    names: BTreeSet<LinkName>,
    links: BTreeMap<u32, LinkName>,
    keys: BTreeSet<Key>,
    is_lost: bool,
}

impl Hints {
    pub(crate) fn open(source: &Qdiscs) -> Result<Self, Failure> {
        let listener = AsyncListener::new(source.listen(&GROUPS)?);
        let (names, links, keys) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        let own = Arc::clone(&source.own_ports);
        Ok(Hints { listener, dirty: Dirty { own, names, links, keys, is_lost: false } })
    }

    /// The links that matter, and those of them that are there.
    pub(crate) fn set_links(
        &mut self,
        names: impl IntoIterator<Item = LinkName>,
        links: &BTreeMap<LinkName, u32>,
    ) {
        self.dirty.names = names.into_iter().collect();
        self.dirty.links = links.iter().map(|(name, index)| (*index, name.clone())).collect();
    }

    /// The next hint. Cancel-safe: what was received is kept until it is handed over.
    pub(crate) async fn next(&mut self) -> Result<Hint<Key>, Failure> {
        loop {
            if let Some(hint) = self.dirty.hint() {
                return Ok(hint);
            }
            let Hints { listener, dirty } = self;
            let received = listener.receive(&mut |event| dirty.take(&event)).await;
            received.map_err(|error| failure(&error))?;
        }
    }
}

impl Dirty {
    fn hint(&mut self) -> Option<Hint<Key>> {
        let keys = std::mem::take(&mut self.keys);
        if std::mem::take(&mut self.is_lost) {
            return Some(Hint::Lost);
        }
        (!keys.is_empty()).then(|| Hint::keys(keys))
    }

    fn take(&mut self, event: &Event<'_>) {
        match event {
            Event::Lost => self.is_lost = true,
            Event::Message(message) => self.take_message(message),
        }
    }

    fn take_message(&mut self, message: &Message<'_>) {
        match message.kind {
            RTM_NEWLINK | RTM_DELLINK => {
                let Ok((index, attrs)) = link(message) else { return };
                let name = name(&attrs).ok().flatten().filter(|name| self.names.contains(name));
                let known = self.links.get(&index);
                if message.kind == RTM_NEWLINK && known == name.as_ref() {
                    return;
                }
                // It came, went, or has another name.
                let before = self.links.remove(&index);
                if message.kind == RTM_NEWLINK
                    && let Some(name) = &name
                {
                    self.links.insert(index, name.clone());
                }
                for name in before.into_iter().chain(name) {
                    self.add(&name);
                }
                // What comes in at another link may be redirected to it.
                let ingress = self.names.iter().map(|name| Key::new(name.clone(), Side::Ingress));
                self.keys.extend(ingress);
            }
            RTM_NEWQDISC | RTM_DELQDISC | RTM_NEWTCLASS | RTM_DELTCLASS | RTM_NEWTFILTER
            | RTM_DELTFILTER => {
                if self.own.has(message.port) {
                    return;
                }
                let Ok(reported) = Reported::read(message) else { return };
                if let Some(name) = self.links.get(&reported.tc.link).cloned() {
                    self.add(&name);
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, name: &LinkName) {
        self.keys.extend(Side::ALL.map(|side| Key::new(name.clone(), side)));
    }
}
