//! What events mean: for the shadow, and as hints. An event that leaves everything as it is declared is
//! no hint, whoever caused it; our own writes are such.
//!
//! Quirk `routes-go-silently` (Linux 6.18): IPv4 routes that are lost with their link or with the
//! last address of it are not announced; the event of the link or address is all that comes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homeostat_core::{Agreement, Desired as _, Hint, most_keys};
use homeostat_netlink::uapi::{
    NLM_F_REPLACE, RTM_DELADDR, RTM_DELLINK, RTM_DELNEIGH, RTM_DELNEXTHOP, RTM_DELROUTE,
    RTM_DELRULE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH, RTM_NEWNEXTHOP, RTM_NEWROUTE, RTM_NEWRULE,
};
use homeostat_netlink::{Event, Malformed, Message, Port};

use crate::address::address_agrees;
use crate::decode::{self, Names, SeenAddress, SeenRoute};
use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::Links;
use crate::marks::AddressMarks;
use crate::model::Object;
use crate::neighbour::{self, NeighbourKey};
use crate::nexthop;
use crate::number::Protocol;
use crate::route::is_touched_by;
use crate::rule;
use crate::sent::Sent;
use crate::shadow::{News, Shadow, Sight};
use crate::source::Rtnl;

mod culprit;
mod link;

use culprit::Culprit;

/// What was heard and not yet handed on.
pub(crate) struct Notices {
    /// Where the links are.
    pub(crate) links: Links,
    /// The neighbours that matter.
    pub(crate) neighbours: BTreeSet<NeighbourKey>,
    /// How much is declared: beyond a part of it, one look at everything is cheaper.
    pub(crate) declared: usize,
    protocol: Protocol,
    owner: String,
    address_marks: AddressMarks,
    sent: Arc<Sent>,
    /// What needs a look, with who gave cause for it.
    keys: BTreeMap<Key, Option<Arc<str>>>,
    culprit: Culprit,
    is_lost: bool,
}

impl Notices {
    pub(crate) fn new(source: &Rtnl) -> Self {
        Notices {
            links: Links::default(),
            neighbours: BTreeSet::new(),
            declared: 0,
            protocol: source.protocol,
            owner: source.owner().to_owned(),
            address_marks: source.address_marks,
            sent: Arc::clone(&source.sent),
            keys: BTreeMap::new(),
            culprit: Culprit::default(),
            is_lost: false,
        }
    }

    /// Takes one event.
    pub(crate) fn take(&mut self, event: Event<'_>, shadow: &mut Option<Shadow>) {
        let taken = match event {
            Event::Lost => {
                *shadow = None;
                Ok(false)
            }
            Event::Message(message) => self.message(&message, shadow),
        };
        self.is_lost |= !matches!(taken, Ok(true)) || self.keys.len() > most_keys(self.declared);
    }

    /// Every event of our own writes so far was taken.
    pub(crate) fn all_is_heard(&mut self) {
        self.sent.is_heard();
    }

    /// What there is to look at, once: one hint for each who gave cause for it.
    pub(crate) fn hint(&mut self) -> Option<Hint<Key>> {
        if std::mem::take(&mut self.is_lost) {
            self.keys.clear();
            return Some(Hint::Lost);
        }
        let who = self.keys.first_key_value()?.1.clone();
        let of_one = self.keys.extract_if(.., |_, other| *other == who);
        let keys = of_one.map(|(key, _)| key).collect();
        Some(match who {
            Some(who) => Hint::By { who, keys },
            None => Hint::Keys(keys),
        })
    }

    /// A key needs a look, because of the event that is being taken.
    fn name(&mut self, key: Key) {
        let who = self.culprit.name();
        let named = self.keys.entry(key).or_default();
        // Who was told once stays told: a later event about the key may name nobody.
        *named = who.or(named.take());
    }

    /// False, if only a look at everything tells what changed.
    fn message(
        &mut self,
        message: &Message<'_>,
        shadow: &mut Option<Shadow>,
    ) -> Result<bool, Malformed> {
        let is_ours = self.sent.is_ours(message.port);
        self.culprit.is_at(if is_ours { Port::KERNEL } else { message.port });
        match message.kind {
            RTM_NEWROUTE | RTM_DELROUTE => {
                if let Some(seen) = decode::route(message, &mut Names::new(&self.links))? {
                    self.route(message, seen, shadow);
                }
                Ok(true)
            }
            RTM_NEWADDR | RTM_DELADDR => {
                // The link may have come after the last look.
                let index = decode::address_index(message)?;
                let Some(seen) = decode::address(message, &self.links)? else { return Ok(true) };
                Ok(self.address(message, &seen, shadow) && self.links.knows(index))
            }
            RTM_NEWLINK | RTM_DELLINK => self.link(message, shadow),
            RTM_NEWRULE | RTM_DELRULE => {
                self.rule(message, shadow.as_ref())?;
                Ok(true)
            }
            RTM_NEWNEIGH | RTM_DELNEIGH => {
                self.neighbour(message, shadow.as_ref());
                Ok(true)
            }
            RTM_NEWNEXTHOP | RTM_DELNEXTHOP => self.nexthop(message, shadow),
            _ => Ok(false),
        }
    }

    /// The keys that a rule may stand on: a desired state without a priority is fulfilled at any.
    fn rule(&mut self, message: &Message<'_>, shadow: Option<&Shadow>) -> Result<(), Malformed> {
        let Some(seen) = rule::decode(message)? else { return Ok(()) };
        let keys: [Key; 2] = [seen.key.into(), seen.key.anywhere().into()];
        let should_be =
            |desired: &DesiredState| keys.iter().any(|key| desired.slot(key, None).is_some());
        if !self.is_echo(message, RTM_NEWRULE, shadow, should_be) {
            for key in keys {
                self.name(key);
            }
        }
        Ok(())
    }

    /// The neighbour that an event is about, if it is declared or ours.
    fn neighbour(&mut self, message: &Message<'_>, shadow: Option<&Shadow>) {
        let Some((key, protocol)) = neighbour::event(message, &self.links) else { return };
        let (matters, key) = (self.neighbours.contains(&key), Key::Neighbour(key));
        let should_be = |desired: &DesiredState| desired.slot(&key, None).is_some();
        let is_echo = self.is_echo(message, RTM_NEWNEIGH, shadow, should_be);
        if !is_echo && (matters || protocol == self.protocol) {
            self.name(key);
        }
    }

    fn nexthop(
        &mut self,
        message: &Message<'_>,
        shadow: &mut Option<Shadow>,
    ) -> Result<bool, Malformed> {
        let Some(seen) = nexthop::decode(message, &self.links)? else { return Ok(true) };
        let key = Key::Nexthop(seen.id);
        let is_going = message.kind == RTM_DELNEXTHOP;
        let is_known = !is_going || doubt(shadow, |shadow| nexthop::doubt(seen.id, shadow));
        if seen.protocol != self.protocol && !is_going {
            self.culprit.marks(seen.protocol);
        }
        let object = Object::Nexthop(seen.nexthop);
        let should_be = |desired: &DesiredState| {
            let slot = desired.slot(&key, None);
            slot.is_some_and(|slot| desired.compare(slot, &object) == Agreement::Agrees)
        };
        if !self.is_echo(message, RTM_NEWNEXTHOP, shadow.as_ref(), should_be) {
            self.name(key);
        }
        Ok(is_known)
    }

    /// Whether we did it, and it came out as the desired state has it: there, or gone.
    fn is_echo(
        &self,
        message: &Message<'_>,
        made: u16,
        shadow: Option<&Shadow>,
        should_be: impl Fn(&DesiredState) -> bool,
    ) -> bool {
        let is_right = |shadow: &Shadow| should_be(shadow.desired()) == (message.kind == made);
        self.sent.is_ours(message.port) && shadow.is_some_and(is_right)
    }

    fn route(&mut self, message: &Message<'_>, seen: SeenRoute, shadow: &mut Option<Shadow>) {
        let replaces = message.flags & NLM_F_REPLACE != 0;
        let news = match message.kind {
            RTM_DELROUTE => News::Went,
            _ if replaces => News::Replaced,
            _ => News::Came,
        };
        let SeenRoute { key, route, protocol } = seen;
        let is_settled = match shadow {
            Some(shadow) => {
                shadow.learn(&key, Sight { route, protocol }, news);
                shadow.is_settled(&key)
            }
            // A theft, or ours: without a shadow nobody knows whether it matters.
            None => protocol != self.protocol && news != News::Replaced,
        };
        if !is_settled {
            if news == News::Replaced && protocol != self.protocol {
                self.culprit.marks(protocol);
            }
            self.name(Key::Route(key));
        }
    }

    fn address(
        &mut self,
        message: &Message<'_>,
        seen: &SeenAddress,
        shadow: &mut Option<Shadow>,
    ) -> bool {
        let is_going = message.kind == RTM_DELADDR;
        let is_echo = self.sent.is_ours(message.port)
            && if is_going {
                self.sent.is_deleted(&seen.key)
            } else {
                shadow.as_ref().is_some_and(|shadow| is_declared(shadow, seen))
            };
        let goes_along =
            |shadow: &mut Shadow| shadow.doubt(|route, _| is_touched_by(route, &seen.key));
        let is_known = !is_going || doubt(shadow, goes_along);
        if !is_echo && self.concerns(seen, shadow.as_ref()) {
            self.name(Key::Address(seen.key));
        }
        is_known
    }

    /// Whether an address is declared, may be ours, or carries something that is declared.
    fn concerns(&self, seen: &SeenAddress, shadow: Option<&Shadow>) -> bool {
        let Some(desired) = shadow.map(Shadow::desired) else { return true };
        let key = Key::Address(seen.key);
        let may_be_ours =
            seen.protocol == self.protocol || self.address_marks == AddressMarks::Ledger;
        let mut carries = false;
        desired.dependants(&key, &mut |_| carries = true);
        may_be_ours || carries || desired.slot(&key, None).is_some()
    }
}

/// A shadow with too many doubts is of no use: then only a look at everything helps, and this is
/// false.
fn doubt(shadow: &mut Option<Shadow>, doubt: impl FnOnce(&mut Shadow) -> bool) -> bool {
    let is_known = shadow.as_mut().is_none_or(doubt);
    if !is_known {
        *shadow = None;
    }
    is_known
}

fn is_declared(shadow: &Shadow, seen: &SeenAddress) -> bool {
    let desired = shadow.desired();
    let slot = desired.slot(&Key::Address(seen.key), None);
    let declared = slot.and_then(|slot| desired.address_at(slot));
    declared.is_some_and(|declared| address_agrees(&declared.address, &seen.address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::DesiredState;

    fn shadow() -> Shadow {
        Shadow::new(Arc::new(DesiredState::default()), Protocol::HOMEOSTAT)
    }

    #[test]
    fn lost_events_ask_for_a_look_at_everything_and_end_what_was_known() {
        let (mut notices, mut shadow) = (Notices::new(&Rtnl::here()), Some(shadow()));
        assert_eq!(notices.hint(), None);
        notices.take(Event::Lost, &mut shadow);
        assert!(shadow.is_none());
        assert_eq!(notices.hint(), Some(Hint::Lost));
        assert_eq!(notices.hint(), None, "said once");
    }

    #[test]
    fn what_cannot_be_read_counts_as_lost() {
        let (mut notices, mut shadow) = (Notices::new(&Rtnl::here()), Some(shadow()));
        let port = homeostat_netlink::Port::KERNEL;
        let message = Message { kind: RTM_NEWROUTE, flags: 0, seq: 0, port, payload: &[2] };
        notices.take(Event::Message(message), &mut shadow);
        assert_eq!(notices.hint(), Some(Hint::Lost));
    }
}
