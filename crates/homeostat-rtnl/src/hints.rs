//! Hears of changes, keeps the shadow up to date by them, and names the keys that need a look.
//!
//! The subscription is here; what an event means is in `notices`.

use std::sync::Arc;

use homeostat_core::{Desired as _, Failure, Focus, Hint};
use homeostat_netlink::uapi::{
    RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_IFADDR,
    RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV6_RULE, RTNLGRP_LINK, RTNLGRP_NEIGH, RTNLGRP_NEXTHOP,
};
use homeostat_netlink::{AsyncListener, Error, Event, Group, Listener};

use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::Links;
use crate::muffler::{self, Muffler};
use crate::neighbour;
use crate::notices::Notices;
use crate::observe::failure;
use crate::shadow::Shadow;
use crate::source::Rtnl;

const GROUPS: [Group; 8] = [
    Group(RTNLGRP_LINK),
    Group(RTNLGRP_IPV4_IFADDR),
    Group(RTNLGRP_IPV6_IFADDR),
    Group(RTNLGRP_IPV4_ROUTE),
    Group(RTNLGRP_IPV6_ROUTE),
    Group(RTNLGRP_IPV4_RULE),
    Group(RTNLGRP_IPV6_RULE),
    Group(RTNLGRP_NEXTHOP),
];

/// How many datagrams are taken at once, so that a flood cannot keep a look from beginning. What is
/// left in the queue is heard with the next look.
const MOST_AT_ONCE: usize = 1 << 20;

/// A subscription. It waits on a runtime only once somebody asks for hints.
pub(crate) struct Ear {
    notices: Notices,
    state: State,
    muffler: Arc<Muffler>,
    /// Whether it hears of neighbours.
    is_nearby: bool,
}

enum State {
    Subscribed(Listener),
    Waiting(AsyncListener),
    Deaf,
}

impl Ear {
    pub(crate) fn open(source: &Rtnl) -> Result<Self, Failure> {
        let listener = source.listen(&GROUPS, muffler::filter(source.protocol))?;
        let muffler = Muffler::of(&listener, source.protocol).map_err(|error| failure(&error))?;
        source.sent.is_heard_through(&muffler);
        let (notices, state) = (Notices::new(source), State::Subscribed(listener));
        Ok(Ear { notices, state, muffler, is_nearby: false })
    }

    /// Neighbours come and go with every packet, so that only who declares some hears of them.
    pub(crate) fn attend(&mut self, desired: &DesiredState) -> Result<(), Failure> {
        self.notices.declared = desired.len();
        self.notices.neighbours = neighbour::declared(desired);
        if self.notices.neighbours.is_empty() || self.is_nearby {
            return Ok(());
        }
        let joined = match &self.state {
            State::Subscribed(listener) => listener.join(Group(RTNLGRP_NEIGH)),
            State::Waiting(listener) => listener.join(Group(RTNLGRP_NEIGH)),
            State::Deaf => Err(Error::Dead),
        };
        self.is_nearby = true;
        joined.map_err(|error| failure(&error))
    }

    /// Events name links by their numbers.
    pub(crate) fn know(&mut self, links: &Links) {
        self.notices.links = links.clone();
    }

    /// A look begins. If something was kept out of the queue, only one at everything makes it good.
    pub(crate) fn uncover(
        &mut self,
        focus: &Focus<Key>,
        shadow: &mut Option<Shadow>,
    ) -> Result<(), Error> {
        if self.muffler.take_off()? && *focus != Focus::All {
            self.notices.take(Event::Lost, shadow);
        }
        Ok(())
    }

    /// Takes in what is in the queue, without waiting. What it gives cause to look at is not lost: it
    /// is the next hint.
    pub(crate) fn drain(&mut self, shadow: &mut Option<Shadow>) -> Result<(), Error> {
        let Ear { notices, state, .. } = self;
        for _ in 0..MOST_AT_ONCE {
            let mut each = |event: Event<'_>| notices.take(event, shadow);
            let was_there = match state {
                State::Subscribed(listener) => listener.receive(&mut each)?,
                State::Waiting(listener) => listener.receive_now(&mut each)?,
                State::Deaf => return Err(Error::Dead),
            };
            if !was_there {
                notices.all_is_heard();
                break;
            }
        }
        Ok(())
    }

    /// The next hint. Nothing is lost if it is dropped while it waits.
    pub(crate) async fn hint(&mut self, shadow: &mut Option<Shadow>) -> Result<Hint<Key>, Failure> {
        loop {
            self.drain(shadow).map_err(|error| failure(&error))?;
            if let Some(hint) = self.notices.hint() {
                return Ok(hint);
            }
            self.wait(shadow).await.map_err(|error| failure(&error))?;
        }
    }

    async fn wait(&mut self, shadow: &mut Option<Shadow>) -> Result<(), Error> {
        if let State::Subscribed(_) = self.state
            && let State::Subscribed(listener) = std::mem::replace(&mut self.state, State::Deaf)
        {
            self.state = State::Waiting(AsyncListener::new(listener)?);
        }
        let Ear { notices, state, .. } = self;
        match state {
            State::Waiting(listener) => {
                listener.receive(&mut |event| notices.take(event, shadow)).await
            }
            State::Subscribed(_) | State::Deaf => Err(Error::Dead),
        }
    }
}
