//! Hints from notifications of the kernel: which of our tables was changed, and by whom. Our own commits
//! give no hints. Links that a text means by number are watched as well.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::{Hint, HintedKeys};
use homeostat_netlink::uapi::*;
use homeostat_netlink::{AsyncListener, Connection, Event, Group, Message};

use crate::desired::DesiredState;
use crate::dump::TABLE_NAME;
use crate::error::Error;
use crate::key::{Family, Key};
use crate::links::{self, Link};
use crate::shadow::Shadow;
use crate::source::{Nft, OwnPorts};
use crate::wire::{be32, name, nft_message};

/// The subscriptions of a reader, and what they have brought.
pub(crate) struct Notifications {
    /// None where no hint is asked for: then the kernel does not build notifications of large commits.
    subscription: Option<AsyncListener>,
    pub(crate) commits: Commits,
    /// Open while the desired state names links.
    pub(crate) links: Option<LinkNotifications>,
}

impl Notifications {
    pub(crate) fn open(source: &Nft) -> Result<Self, Error> {
        let listener =
            source.listen(homeostat_netlink::Family::Netfilter, Group(NFNLGRP_NFTABLES))?;
        let subscription = Some(AsyncListener::new(listener));
        Ok(Notifications { subscription, ..Self::closed(source) })
    }

    /// Without a subscription to commits.
    pub(crate) fn closed(source: &Nft) -> Self {
        let commits = Commits {
            own_ports: source.own_ports.clone(),
            watched: BTreeSet::new(),
            changed: BTreeSet::new(),
            shadow: Shadow::default(),
            dirty: HintedKeys::default(),
            is_lost: false,
        };
        Notifications { subscription: None, commits, links: None }
    }

    /// Gives hints about these tables, too.
    pub(crate) fn watch(&mut self, keys: impl Iterator<Item = Key>) {
        self.commits.watched.extend(keys);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.subscription.is_some()
    }

    /// Takes what has arrived, without waiting, and so much of it at most: another program may commit without a pause.
    pub(crate) fn catch_up(&mut self) {
        const MOST: usize = 4096;
        let Notifications { subscription: Some(subscription), commits, .. } = self else {
            return self.commits.shadow.discard();
        };
        let mut commit = |event: Event<'_>| commits.take(&event);
        let mut received = (0..MOST).map(|_| subscription.receive_now(&mut commit));
        let end = received.find(|received| !matches!(received, Ok(true)));
        // The failure is reported to the next call that waits for hints.
        if matches!(end, Some(Err(_))) {
            self.commits.shadow.discard();
        }
    }

    /// The next hint. Cancel-safe.
    pub(crate) async fn hint(&mut self) -> Result<Hint<Key>, Error> {
        loop {
            if let Some(hint) = self.commits.hint() {
                return Ok(hint);
            }
            self.receive().await?;
        }
    }

    /// Waits for one datagram.
    async fn receive(&mut self) -> Result<(), Error> {
        let Notifications { subscription, commits, links } = self;
        let subscription = subscription.as_mut().ok_or(homeostat_netlink::Error::Dead)?;
        let mut commit = |event: Event<'_>| commits.take(&event);
        let received = subscription.receive(&mut commit);
        let Some(LinkNotifications { subscription, watch, .. }) = links else {
            return Ok(received.await?);
        };
        let mut is_relevant = false;
        let mut link = |event: Event<'_>| is_relevant |= watch.take(&event);
        tokio::select! {
            biased;
            received = received => received?,
            received = subscription.receive(&mut link) => received?,
        }
        if is_relevant {
            for key in watch.desired.keys() {
                commits.dirty.add(key, None);
            }
        }
        Ok(())
    }
}

/// What the subscription to commits has brought.
pub(crate) struct Commits {
    own_ports: OwnPorts,
    /// Tables that are declared or ours.
    watched: BTreeSet<Key>,
    /// What the commit that is being announced has changed so far; it ends with its generation.
    changed: BTreeSet<Key>,
    /// Our tables as the commits left them.
    pub(crate) shadow: Shadow,
    /// What no hint has handed out yet.
    dirty: HintedKeys<Key>,
    is_lost: bool,
}

impl Commits {
    /// What needs a look, handed out once.
    fn hint(&mut self) -> Option<Hint<Key>> {
        let keys = std::mem::take(&mut self.dirty);
        if std::mem::take(&mut self.is_lost) {
            return Some(Hint::Lost);
        }
        (!keys.is_empty()).then_some(Hint::Keys(keys))
    }

    fn take(&mut self, event: &Event<'_>) {
        self.shadow.apply(event);
        match event {
            Event::Lost => {
                self.changed.clear();
                self.is_lost = true;
            }
            Event::Message(message) if nft_message(message) == NFT_MSG_NEWGEN => self.end(message),
            Event::Message(message) => self.note_change(message),
        }
    }

    fn note_change(&mut self, message: &Message<'_>) {
        let Ok(([family, ..], attrs)) = message.split::<4>() else { return };
        let Ok(name) = name(&attrs, TABLE_NAME) else { return };
        let key = Key { family: Family(*family), name };
        if self.watched.contains(&key) {
            self.changed.insert(key);
        }
    }

    fn end(&mut self, message: &Message<'_>) {
        let changed = std::mem::take(&mut self.changed);
        if changed.is_empty() || self.own_ports.contain(message.port) {
            return;
        }
        let by = who(message);
        for key in changed {
            self.dirty.add(key, by.clone());
        }
    }
}

/// Who committed, where the kernel says so.
fn who(message: &Message<'_>) -> Option<Arc<str>> {
    let (_, attrs) = message.split::<4>().ok()?;
    let name = name(&attrs, NFTA_GEN_PROC_NAME).ok().filter(|name| !name.is_empty())?;
    let pid = be32(&attrs, NFTA_GEN_PROC_PID).ok()??;
    Some(format!("{name} (pid {pid})").into())
}

/// The subscription to links, and which of them matter.
pub(crate) struct LinkNotifications {
    subscription: AsyncListener,
    watch: LinkWatch,
    connection: Connection,
}

/// Which links matter, and their known names and numbers.
struct LinkWatch {
    desired: Arc<DesiredState>,
    known: Vec<Link>,
    /// Whether one of them came, went or changed since they were listed.
    has_changed: bool,
}

impl LinkNotifications {
    pub(crate) fn open(source: &Nft, desired: &Arc<DesiredState>) -> Result<Self, Error> {
        // The subscription is open before the first look.
        let listener = source.listen(homeostat_netlink::Family::Route, Group(RTNLGRP_LINK))?;
        let connection = source.connect(homeostat_netlink::Family::Route)?;
        let watch =
            LinkWatch { desired: Arc::clone(desired), known: Vec::new(), has_changed: true };
        Ok(LinkNotifications { subscription: AsyncListener::new(listener), watch, connection })
    }

    /// Whether a look at a few tables must look at links, too.
    pub(crate) fn have_changed(&self) -> bool {
        self.watch.has_changed
    }

    /// The links that are there.
    pub(crate) fn list(&mut self, desired: &Arc<DesiredState>) -> Result<Vec<Link>, Error> {
        let links = links::list(&mut self.connection)?;
        self.watch(desired, &links);
        Ok(links)
    }

    /// Watches those of these links that a desired state may name.
    pub(crate) fn watch(&mut self, desired: &Arc<DesiredState>, links: &[Link]) {
        let (desired, known) = (Arc::clone(desired), desired.relevant(links));
        self.watch = LinkWatch { desired, known, has_changed: false };
    }
}

impl LinkWatch {
    /// Whether this event is the first relevant one since the links were listed.
    fn take(&mut self, event: &Event<'_>) -> bool {
        let is_relevant = match event {
            Event::Lost => true,
            Event::Message(message) => self.concerns(message),
        };
        let is_first = is_relevant && !self.has_changed;
        self.has_changed |= is_relevant;
        is_first
    }

    fn concerns(&self, message: &Message<'_>) -> bool {
        let Ok((fixed, attrs)) = message.split::<{ links::FIXED }>() else { return false };
        // A bridge announces its ports by the same message, of another family.
        let (Some(0), Some(index)) = (fixed.first(), links::index(fixed)) else {
            return false;
        };
        let Ok(name) = name(&attrs, IFLA_IFNAME) else { return false };
        let is_known = self.known.iter().any(|link| link.index == index);
        let is_same = self.known.iter().any(|link| link.index == index && link.name == name);
        match message.kind {
            RTM_NEWLINK if is_same => false,
            RTM_NEWLINK => is_known || self.desired.may_name(&name),
            RTM_DELLINK => is_known,
            _ => false,
        }
    }
}
