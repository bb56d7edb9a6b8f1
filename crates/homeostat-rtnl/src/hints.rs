//! Hears of changes. A route of ours that changed is named; a link or an address that changed may
//! have taken routes along in silence, so that everything is looked at again.
//!
//! Quirk `routes-go-silently` (Linux 6.18): IPv4 routes that are lost with their link or with the
//! last address of it are not announced; the event of the link or address is all that comes.

use std::collections::BTreeSet;

use homeostat_core::{Failure, Hint};
use homeostat_netlink::uapi::{
    NLM_F_REPLACE, RTM_DELNEIGH, RTM_DELROUTE, RTM_DELRULE, RTM_NEWNEIGH, RTM_NEWROUTE,
    RTM_NEWRULE, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_IFADDR,
    RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV6_RULE, RTNLGRP_LINK, RTNLGRP_NEIGH, RTNLGRP_NEXTHOP,
};
use homeostat_netlink::{
    AsyncListener, Error, Event, Filter, Group, Instruction, Listener, Message,
};

use crate::decode::{self, Names};
use crate::key::Key;
use crate::link::Links;
use crate::neighbour::{self, NeighbourKey};
use crate::number::Protocol;
use crate::rule;
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

/// A subscription. It waits on a runtime only once somebody asks for hints.
pub(crate) struct Ear {
    protocol: Protocol,
    nearby: Nearby,
    state: State,
}

enum State {
    Subscribed(Listener),
    Waiting(AsyncListener),
    Deaf,
}

impl Ear {
    pub(crate) fn open(source: &Rtnl) -> Result<Self, Failure> {
        let listener = source.listen(&GROUPS, filter(source.protocol))?;
        let (nearby, state) = (Nearby::default(), State::Subscribed(listener));
        Ok(Ear { protocol: source.protocol, nearby, state })
    }

    /// The next hint. Nothing is lost if it is dropped while it waits.
    pub(crate) async fn hint(&mut self) -> Result<Hint<Key>, Failure> {
        let protocol = self.protocol;
        self.wait().map_err(|error| crate::observe::failure(&error))?;
        let Ear { nearby, state, .. } = self;
        let State::Waiting(listener) = state else {
            return Err(crate::observe::failure(&Error::Dead));
        };
        loop {
            let mut heard = Heard::default();
            let take = &mut |event: Event<'_>| heard.take(event, protocol, nearby);
            let received = listener.receive(take).await;
            received.map_err(|error| crate::observe::failure(&error))?;
            if let Some(hint) = heard.hint() {
                return Ok(hint);
            }
        }
    }

    /// Neighbours come and go with every packet, so that only who wishes some hears of them.
    pub(crate) fn attend(&mut self, wish: &Wish) -> Result<(), Failure> {
        self.nearby.wished = neighbour::wished(wish);
        if self.nearby.wished.is_empty() || self.nearby.is_joined {
            return Ok(());
        }
        let joined = match &self.state {
            State::Subscribed(listener) => listener.join(Group(RTNLGRP_NEIGH)),
            State::Waiting(listener) => listener.join(Group(RTNLGRP_NEIGH)),
            State::Deaf => Err(Error::Dead),
        };
        self.nearby.is_joined = true;
        joined.map_err(|error| crate::observe::failure(&error))
    }

    /// Events name links by their numbers.
    pub(crate) fn know(&mut self, links: &Links) {
        if self.nearby.is_joined {
            self.nearby.links = links.clone();
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

/// What is known about the neighbours that matter.
#[derive(Default)]
struct Nearby {
    links: Links,
    wished: BTreeSet<NeighbourKey>,
    is_joined: bool,
}

impl Nearby {
    /// The neighbour that an event is about, if it is wished or ours.
    fn key(&self, message: &Message<'_>, ours: Protocol) -> Option<Key> {
        let (key, protocol) = neighbour::event(message, &self.links)?;
        (self.wished.contains(&key) || protocol == ours).then_some(Key::Neighbour(key))
    }
}

/// What one datagram told.
#[derive(Default)]
struct Heard {
    keys: Vec<Key>,
    is_lost: bool,
}

impl Heard {
    fn take(&mut self, event: Event<'_>, ours: Protocol, nearby: &Nearby) {
        match event {
            Event::Message(message) if is_route(&message) => {
                self.keys.extend(route_key(&message, ours));
            }
            Event::Message(message) if is_rule(&message) => self.keys.extend(rule_keys(&message)),
            Event::Message(message) if is_neighbour(&message) => {
                self.keys.extend(nearby.key(&message, ours));
            }
            // A link, an address or a nexthop may have taken others along.
            Event::Message(_) | Event::Lost => self.is_lost = true,
        }
    }

    fn hint(self) -> Option<Hint<Key>> {
        match self {
            Heard { is_lost: true, .. } => Some(Hint::Lost),
            Heard { keys, .. } if keys.is_empty() => None,
            Heard { keys, .. } => Some(Hint::Keys(keys)),
        }
    }
}

fn is_route(message: &Message<'_>) -> bool {
    matches!(message.kind, RTM_NEWROUTE | RTM_DELROUTE)
}

fn is_rule(message: &Message<'_>) -> bool {
    matches!(message.kind, RTM_NEWRULE | RTM_DELRULE)
}

fn is_neighbour(message: &Message<'_>) -> bool {
    matches!(message.kind, RTM_NEWNEIGH | RTM_DELNEIGH)
}

/// The keys that a rule may stand on: a wish without a priority is fulfilled at any.
fn rule_keys(message: &Message<'_>) -> impl Iterator<Item = Key> {
    let key = rule::decode(message).ok().flatten().map(|seen| seen.key);
    key.into_iter().flat_map(|key| [key.into(), key.anywhere().into()])
}

/// The route that an event is about, if it is ours or may have been put in the place of ours.
fn route_key(message: &Message<'_>, ours: Protocol) -> Option<Key> {
    let seen = decode::route(message, &mut Names::new(&Links::default())).ok().flatten()?;
    let is_theft = message.kind == RTM_NEWROUTE && message.flags & NLM_F_REPLACE != 0;
    (seen.protocol == ours || is_theft).then_some(Key::Route(seen.key))
}
