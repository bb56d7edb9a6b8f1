//! Hears of commits: which of our tables somebody touched, and who. Our own commits are not told.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use homeostat_core::Hint;
use homeostat_netlink::uapi::{NFT_MSG_NEWGEN, NFTA_GEN_PROC_NAME, NFTA_GEN_PROC_PID};
use homeostat_netlink::{AsyncListener, Event, Listener, Message};

use crate::dump::{TABLE, kind};
use crate::error::Error;
use crate::key::{Family, Key};
use crate::source::{Nft, Ports};
use crate::tlv::{be32, name};

/// A subscription. It waits on a runtime only once somebody asks for hints.
pub(crate) struct Ear {
    ours: Ports,
    /// Tables that are wished or ours; all others are nobody's business.
    attended: BTreeSet<Key>,
    /// What the commit under way has touched; it ends with its generation.
    touched: BTreeSet<Key>,
    /// What is heard and not yet told.
    heard: VecDeque<Hint<Key>>,
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
        let (attended, touched, heard) = (BTreeSet::new(), BTreeSet::new(), VecDeque::new());
        Ok(Ear { ours: source.ours.clone(), attended, touched, heard, state })
    }

    pub(crate) fn attend(&mut self, keys: impl Iterator<Item = Key>) {
        self.attended.extend(keys);
    }

    /// The next hint. Nothing is lost if it is dropped while it waits.
    pub(crate) async fn hint(&mut self) -> Result<Hint<Key>, Error> {
        self.wait()?;
        let Ear { ours, attended, touched, heard, state } = self;
        let State::Waiting(listener) = state else {
            return Err(homeostat_netlink::Error::Dead.into());
        };
        loop {
            if let Some(hint) = heard.pop_front() {
                return Ok(hint);
            }
            let mut datagram = Datagram { ours, attended, touched, heard };
            listener.receive(&mut |event| datagram.take(event)).await?;
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

/// What one datagram tells.
struct Datagram<'a> {
    ours: &'a Ports,
    attended: &'a BTreeSet<Key>,
    touched: &'a mut BTreeSet<Key>,
    heard: &'a mut VecDeque<Hint<Key>>,
}

const NEW_GENERATION: u16 = kind(NFT_MSG_NEWGEN);

impl Datagram<'_> {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Lost => {
                self.touched.clear();
                self.heard.push_back(Hint::Lost);
            }
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
        let keys: Vec<Key> = std::mem::take(self.touched).into_iter().collect();
        if keys.is_empty() || self.ours.contain(message.port) {
            return;
        }
        self.heard.push_back(match who(message) {
            Some(who) => Hint::By { who, keys },
            None => Hint::Keys(keys),
        });
    }
}

/// Who committed, where the kernel tells.
fn who(message: &Message<'_>) -> Option<Arc<str>> {
    let (_, attrs) = message.split::<4>().ok()?;
    let name = name(&attrs, NFTA_GEN_PROC_NAME).ok().filter(|name| !name.is_empty())?;
    let pid = be32(&attrs, NFTA_GEN_PROC_PID).ok()??;
    Some(format!("{name} (pid {pid})").into())
}
