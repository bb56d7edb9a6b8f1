//! Hears of changes, keeps the shadow up to date by them, and names the keys that need a look.
//!
//! The subscription is here; what an event means is in `notices`.

use homeostat_core::{Failure, Hint};
use homeostat_netlink::uapi::{
    NLM_F_REPLACE, RTM_DELROUTE, RTM_NEWROUTE, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE,
    RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV6_RULE, RTNLGRP_LINK,
    RTNLGRP_NEIGH, RTNLGRP_NEXTHOP,
};
use homeostat_netlink::{AsyncListener, Error, Filter, Group, Instruction, Listener};

use crate::key::Key;
use crate::link::Links;
use crate::neighbour;
use crate::notices::Notices;
use crate::number::Protocol;
use crate::observe::failure;
use crate::shadow::Shadow;
use crate::source::Rtnl;
use crate::wish::Wish;

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

/// Keeps the churn of foreign routes out of the queue: a routing daemon's thousands a second would
/// cost us for nothing. What may have been put in the place of ours is let through.
fn filter(ours: Protocol) -> Filter {
    let (new, del) = (Filter::host_u16(RTM_NEWROUTE), Filter::host_u16(RTM_DELROUTE));
    Filter::new([
        Instruction::load_u16(KIND_AT),
        Instruction::if_equal(new, 1, 0),
        Instruction::if_equal(del, 0, 4),
        Instruction::load_u8(PROTOCOL_AT),
        Instruction::if_equal(ours.0.into(), 2, 0),
        Instruction::load_u16(FLAGS_AT),
        Instruction::if_any_bit(Filter::host_u16(NLM_F_REPLACE), 0, 1),
        Instruction::keep(),
        Instruction::discard(),
    ])
}

/// Where a message says what it is, how, and whose route it is about.
const KIND_AT: u32 = 4;
const FLAGS_AT: u32 = 6;
const PROTOCOL_AT: u32 = 16 + 5;

/// How many datagrams are taken at once, so that a flood cannot keep a look from beginning. What is
/// left in the queue is heard with the next look.
const MOST_AT_ONCE: usize = 1 << 20;

/// A subscription. It waits on a runtime only once somebody asks for hints.
pub(crate) struct Ear {
    notices: Notices,
    state: State,
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
        let listener = source.listen(&GROUPS, filter(source.protocol))?;
        let (notices, state) = (Notices::new(source), State::Subscribed(listener));
        Ok(Ear { notices, state, is_nearby: false })
    }

    /// Neighbours come and go with every packet, so that only who wishes some hears of them.
    pub(crate) fn attend(&mut self, wish: &Wish) -> Result<(), Failure> {
        self.notices.neighbours = neighbour::wished(wish);
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

    /// Takes in what is in the queue, without waiting. What it gives cause to look at is not lost: it
    /// is the next hint.
    pub(crate) fn drain(&mut self, shadow: &mut Option<Shadow>) -> Result<(), Error> {
        let Ear { notices, state, .. } = self;
        for _ in 0..MOST_AT_ONCE {
            let mut each = |event: homeostat_netlink::Event<'_>| notices.take(event, shadow);
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
