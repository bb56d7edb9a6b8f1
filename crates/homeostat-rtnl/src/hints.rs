//! Hears of changes. A route of ours that changed is named; a link or an address that changed may
//! have taken routes along in silence, so that everything is looked at again.
//!
//! Quirk `routes-go-silently` (Linux 6.18): IPv4 routes that are lost with their link or with the
//! last address of it are not announced; the event of the link or address is all that comes.

use homeostat_core::{Failure, Hint};
use homeostat_netlink::uapi::{
    NLM_F_REPLACE, RTM_DELROUTE, RTM_NEWROUTE, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE,
    RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE, RTNLGRP_LINK,
};
use homeostat_netlink::{
    AsyncListener, Error, Event, Filter, Group, Instruction, Listener, Message,
};

use crate::decode::{self, Names};
use crate::key::Key;
use crate::link::Links;
use crate::number::Protocol;
use crate::source::Rtnl;

const GROUPS: [Group; 5] = [
    Group(RTNLGRP_LINK),
    Group(RTNLGRP_IPV4_IFADDR),
    Group(RTNLGRP_IPV6_IFADDR),
    Group(RTNLGRP_IPV4_ROUTE),
    Group(RTNLGRP_IPV6_ROUTE),
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
        Ok(Ear { protocol: source.protocol, state: State::Subscribed(listener) })
    }

    /// The next hint. Nothing is lost if it is dropped while it waits.
    pub(crate) async fn hint(&mut self) -> Result<Hint<Key>, Failure> {
        let protocol = self.protocol;
        let listener = self.waiting().map_err(|error| crate::observe::failure(&error))?;
        loop {
            let mut heard = Heard::default();
            let received = listener.receive(&mut |event| heard.take(event, protocol)).await;
            received.map_err(|error| crate::observe::failure(&error))?;
            if let Some(hint) = heard.hint() {
                return Ok(hint);
            }
        }
    }

    fn waiting(&mut self) -> Result<&mut AsyncListener, Error> {
        if let State::Subscribed(_) = self.state
            && let State::Subscribed(listener) = std::mem::replace(&mut self.state, State::Deaf)
        {
            self.state = State::Waiting(AsyncListener::new(listener)?);
        }
        match &mut self.state {
            State::Waiting(listener) => Ok(listener),
            State::Subscribed(_) | State::Deaf => Err(Error::Dead),
        }
    }
}

/// What one datagram told.
#[derive(Default)]
struct Heard {
    keys: Vec<Key>,
    is_lost: bool,
}

impl Heard {
    fn take(&mut self, event: Event<'_>, ours: Protocol) {
        match event {
            Event::Message(message) if is_route(&message) => {
                self.keys.extend(route_key(&message, ours));
            }
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

/// The route that an event is about, if it is ours or may have been put in the place of ours.
fn route_key(message: &Message<'_>, ours: Protocol) -> Option<Key> {
    let seen = decode::route(message, &mut Names::new(&Links::default())).ok().flatten()?;
    let is_theft = message.kind == RTM_NEWROUTE && message.flags & NLM_F_REPLACE != 0;
    (seen.protocol == ours || is_theft).then_some(Key::Route(seen.key))
}
