//! Hears of links that a text means by number: one that comes, goes or is another under the same name.

use std::sync::Arc;

use homeostat_netlink::uapi::{IFLA_IFNAME, RTM_DELLINK, RTM_NEWLINK, RTNLGRP_LINK};
use homeostat_netlink::{Connection, Event, Family, Group, Message};

use super::Subscription;
use crate::desired::DesiredState;
use crate::error::Error;
use crate::placeholders::{self, Link};
use crate::source::Nft;
use crate::tlv::name;

/// What is known of links.
pub(crate) struct Links {
    pub(super) subscription: Subscription,
    pub(super) watch: Watch,
    connection: Connection,
}

/// Which links matter, and as what they are known.
pub(super) struct Watch {
    desired: Arc<DesiredState>,
    known: Vec<Link>,
    /// Whether one of them is no longer what it was.
    pub(super) is_moved: bool,
}

impl Links {
    pub(crate) fn open(source: &Nft, desired: &Arc<DesiredState>) -> Result<Self, Error> {
        // The subscription stands before the first look.
        let listener = source.listen(Family::Route, Group(RTNLGRP_LINK))?;
        let connection = source.connect(Family::Route)?;
        let watch = Watch { desired: Arc::clone(desired), known: Vec::new(), is_moved: true };
        Ok(Links { subscription: Subscription::Standing(listener), watch, connection })
    }

    /// Whether a look at a few tables must look at links, too.
    pub(crate) fn have_moved(&self) -> bool {
        self.watch.is_moved
    }

    /// The links that are there.
    pub(crate) fn look(&mut self, desired: &Arc<DesiredState>) -> Result<Vec<Link>, Error> {
        let links = placeholders::links(&mut self.connection)?;
        self.attend(desired, &links);
        Ok(links)
    }

    /// Listens for those of these links that a desired state means.
    pub(crate) fn attend(&mut self, desired: &Arc<DesiredState>, links: &[Link]) {
        let (desired, known) = (Arc::clone(desired), desired.relevant(links));
        self.watch = Watch { desired, known, is_moved: false };
    }
}

impl Watch {
    /// Takes an event: whether it is news.
    pub(super) fn take(&mut self, event: &Event<'_>) -> bool {
        let is_news = match event {
            Event::Lost => true,
            Event::Message(message) => self.concerns(message),
        };
        let is_first = is_news && !self.is_moved;
        self.is_moved |= is_news;
        is_first
    }

    fn concerns(&self, message: &Message<'_>) -> bool {
        let Ok((fixed, attrs)) = message.split::<{ placeholders::FIXED }>() else { return false };
        // A bridge tells of its ports in the same words.
        let (Some(0), Some(index)) = (fixed.first(), placeholders::index(fixed)) else {
            return false;
        };
        let Ok(name) = name(&attrs, IFLA_IFNAME) else { return false };
        let is_known = self.known.iter().any(|link| link.index == index);
        let is_same = self.known.iter().any(|link| link.index == index && link.name == name);
        match message.kind {
            RTM_NEWLINK if is_same => false,
            RTM_NEWLINK => is_known || self.desired.speaks_of(&name),
            RTM_DELLINK => is_known,
            _ => false,
        }
    }

    /// The tables that may mean another link than before.
    pub(super) fn keys(&self) -> Vec<crate::key::Key> {
        self.desired.keys()
    }
}
