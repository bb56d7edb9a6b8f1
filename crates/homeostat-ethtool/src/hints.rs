//! The notifications of the family, and links that appear: only ever a reason to look.

use std::collections::BTreeSet;

use homeostat_core::Hint;
use homeostat_netlink::uapi::{IFLA_IFNAME, RTM_NEWLINK, RTNLGRP_LINK};
use homeostat_netlink::{
    AsyncListener, Error, Event, Family, Group as Multicast, Listener, Malformed, Message, Options,
    generic,
};

use crate::key::Key;
use crate::message::{self, FAMILY};
use crate::source::Ethtool;

/// The group of the family to which all changes are announced.
const MONITOR: &str = "monitor";

pub(crate) struct Hints {
    /// Nothing, if the kernel does not have the family.
    changes: Option<AsyncListener>,
    links: AsyncListener,
    /// The links that are waited for. Events of all others mean nothing here.
    pub(crate) absent: BTreeSet<String>,
}

impl Hints {
    pub(crate) fn subscribe(source: &Ethtool) -> Result<Self, Error> {
        let listen = |family, groups: &[Multicast]| match &source.netns {
            Some(netns) => Listener::open_in(netns, family, groups, &Options::default()),
            None => Listener::open(family, groups, &Options::default()),
        };
        let monitor = generic::multicast_group(&mut source.connect()?, FAMILY, MONITOR)?;
        let changes = monitor.map(|group| listen(Family::Generic, &[group])).transpose()?;
        let links = listen(Family::Route, &[Multicast(RTNLGRP_LINK)])?;
        let changes = changes.map(AsyncListener::new);
        Ok(Hints { changes, links: AsyncListener::new(links), absent: BTreeSet::new() })
    }

    /// The next hint about some keys.
    pub(crate) async fn next(&mut self, known: &BTreeSet<Key>) -> Result<Hint<Key>, Error> {
        loop {
            let Hints { changes, links, absent } = self;
            let (mut named, mut appeared, mut is_lost) = (BTreeSet::new(), BTreeSet::new(), false);
            let mut change = |event: Event<'_>| match event {
                Event::Lost => is_lost = true,
                // What cannot be read may be about anything.
                Event::Message(message) => match message::link_of(&message) {
                    Ok(link) => named.extend(link),
                    Err(_) => is_lost = true,
                },
            };
            let mut appear = |event: Event<'_>| appear(&event, absent, &mut appeared);
            match changes {
                Some(changes) => tokio::select! {
                    received = changes.receive(&mut change) => received?,
                    received = links.receive(&mut appear) => received?,
                },
                None => links.receive(&mut appear).await?,
            }
            if is_lost {
                return Ok(Hint::Lost);
            }
            named.append(&mut appeared);
            let keys: Vec<Key> =
                known.iter().filter(|key| named.contains(&key.link)).cloned().collect();
            if !keys.is_empty() {
                return Ok(Hint::keys(keys));
            }
        }
    }
}

type LinkName = Result<Option<String>, Malformed>;

/// Takes the name of a link that is waited for. If events were lost, any of them may have appeared.
fn appear(event: &Event<'_>, absent: &BTreeSet<String>, appeared: &mut BTreeSet<String>) {
    match event {
        Event::Lost => appeared.extend(absent.iter().cloned()),
        Event::Message(message) if message.kind == RTM_NEWLINK => {
            let name = new_link(message).ok().flatten();
            appeared.extend(name.filter(|name| absent.contains(name)));
        }
        Event::Message(_) => {}
    }
}

fn new_link(message: &Message<'_>) -> LinkName {
    // `struct ifinfomsg` has 16 bytes.
    let (_, attrs) = message.split::<16>()?;
    attrs.first(IFLA_IFNAME)?.map(|name| Ok(name.str()?.to_owned())).transpose()
}
