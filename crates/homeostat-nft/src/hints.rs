//! Hears of commits: which of our tables somebody touched. Our own commits are not told.

use std::collections::BTreeSet;

use homeostat_core::Hint;
use homeostat_netlink::uapi::NFT_MSG_NEWGEN;
use homeostat_netlink::{AsyncListener, Event, Listener, Message};

use crate::dump::{TABLE, kind};
use crate::error::Error;
use crate::key::{Family, Key};
use crate::source::{Nft, Ports};
use crate::tlv::name;

/// A subscription. It waits on a runtime only once somebody asks for hints.
pub(crate) struct Ear {
    ours: Ports,
    /// Tables that are wished or ours; all others are nobody's business.
    attended: BTreeSet<Key>,
    /// What the commit under way has touched; it ends with its generation.
    touched: BTreeSet<Key>,
    state: State,
}

enum State {
    Subscribed(Listener),
    Waiting(AsyncListener),
    Deaf,
}

impl Ear {
    pub(crate) fn open(source: &Nft) -> Result<Self, Error> {
        let state = State::Subscribed(source.listen()?);
        let (attended, touched) = (BTreeSet::new(), BTreeSet::new());
        Ok(Ear { ours: source.ours.clone(), attended, touched, state })
    }

    pub(crate) fn attend(&mut self, keys: impl Iterator<Item = Key>) {
        self.attended.extend(keys);
    }

    /// The next hint. Nothing is lost if it is dropped while it waits.
    pub(crate) async fn hint(&mut self) -> Result<Hint<Key>, Error> {
        self.wait()?;
        let Ear { ours, attended, touched, state } = self;
        let State::Waiting(listener) = state else {
            return Err(homeostat_netlink::Error::Dead.into());
        };
        loop {
            let mut heard = Heard { ours, attended, touched, keys: Vec::new(), is_lost: false };
            listener.receive(&mut |event| heard.take(event)).await?;
            let (keys, is_lost) = (heard.keys, heard.is_lost);
            if is_lost {
                touched.clear();
                return Ok(Hint::Lost);
            }
            if !keys.is_empty() {
                return Ok(Hint::Keys(keys));
            }
        }
    }

    fn wait(&mut self) -> Result<(), Error> {
        if let State::Subscribed(_) = self.state
            && let State::Subscribed(listener) = std::mem::replace(&mut self.state, State::Deaf)
        {
            self.state = State::Waiting(AsyncListener::new(listener)?);
        }
        Ok(())
    }
}

/// What one datagram told.
struct Heard<'a> {
    ours: &'a Ports,
    attended: &'a BTreeSet<Key>,
    touched: &'a mut BTreeSet<Key>,
    keys: Vec<Key>,
    is_lost: bool,
}

const NEW_GENERATION: u16 = kind(NFT_MSG_NEWGEN);

impl Heard<'_> {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Lost => self.is_lost = true,
            Event::Message(message) if message.kind == NEW_GENERATION => self.end(&message),
            Event::Message(message) => self.touch(&message),
        }
    }

    fn touch(&mut self, message: &Message<'_>) {
        let Ok(([family, ..], attrs)) = message.split::<4>() else { return };
        let Ok(name) = name(&attrs, TABLE) else { return };
        let key = Key { family: Family(*family), name };
        if self.attended.contains(&key) {
            self.touched.insert(key);
        }
    }

    fn end(&mut self, message: &Message<'_>) {
        let touched = std::mem::take(self.touched);
        if !self.ours.contain(message.port) {
            self.keys.extend(touched);
        }
    }
}
