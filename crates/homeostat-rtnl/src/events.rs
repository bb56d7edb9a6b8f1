//! What events mean: for the shadow, and as hints. An event that leaves everything as it is declared is
//! no hint, whatever caused it; our own writes are such.
//!
//! Quirk `routes-go-silently` (Linux 6.18): IPv4 routes that are lost with their link or with the
//! last address of it are not announced; the event of the link or address is all that comes.
//!
//! Quirk `a-bridge-tells-of-ports-as-of-links` (Linux 6.18): `ip link set va nomaster` sends a message
//! that a link was deleted, of the family of bridges: only the port was, and the link still exists.
//!
//! Quirk `a-port-is-a-process` (Linux 6.18): the kernel names the first netlink socket of a process by
//! the number of the process, and libraries count further ones in the bits above it. A socket whose
//! number is negative got any that was free. It is a likely name, no proof: the process may be gone,
//! or count in a PID namespace of its own.
//!
//! Quirk `a-link-that-is-down-says-little` (Linux 6.18): `ip link set br0 alias mine` sends nothing while
//! `br0` is down. The next full observation finds it.

use std::sync::Arc;

use homeostat_core::{Agreement, Desired as _, Hint, HintedKeys, most_keys};
use homeostat_netlink::uapi::{
    NLM_F_REPLACE, RTM_DELADDR, RTM_DELLINK, RTM_DELNEIGH, RTM_DELNEXTHOP, RTM_DELROUTE,
    RTM_DELRULE, RTM_DELTUNNEL, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH, RTM_NEWNEXTHOP,
    RTM_NEWROUTE, RTM_NEWRULE, RTM_NEWTUNNEL,
};
use homeostat_netlink::{Event, Malformed, Message, Port};

use crate::address::{self, AddressMarks, SeenAddress};
use crate::desired::{DesiredState, LinkSet};
use crate::key::Key;
use crate::link::model::Field;
use crate::link::observe::KnownLinks;
use crate::link::{self, LinkName};
use crate::message::LinkNames;
use crate::number::Protocol;
use crate::object::Object;
use crate::observe::foreign;
use crate::route::gateways::concerned_by;
use crate::route::message::SeenRoute;
use crate::route::{self, is_touched_by};
use crate::rule::RuleKey;
use crate::shadow::{MarkedRoute, RouteEvent, Shadow};
use crate::source::Rtnl;
use crate::unused::{Kind, UnusedKinds};
use crate::{fdb, neighbour, nexthop, rule};

/// The keys that events named and that no hint has handed out yet.
pub(crate) struct DirtyKeys {
    links: KnownLinks,
    /// Whether no event was lost since the last observation.
    links_are_current: bool,
    pub(crate) desired: Arc<DesiredState>,
    /// What is known of routes; none before the first full observation, and after events were lost.
    pub(crate) shadow: Option<Shadow>,
    /// What looks at everything may leave out.
    pub(crate) unused: UnusedKinds,
    pub(crate) source: Rtnl,
    keys: HintedKeys<Key>,
    culprit: Culprit,
    is_lost: bool,
}

impl DirtyKeys {
    pub(crate) fn new(source: &Rtnl) -> Self {
        DirtyKeys {
            links: KnownLinks::default(),
            links_are_current: false,
            desired: Arc::default(),
            shadow: None,
            unused: UnusedKinds::default(),
            source: source.clone(),
            keys: HintedKeys::default(),
            culprit: Culprit::default(),
            is_lost: false,
        }
    }

    pub(crate) fn take(&mut self, event: Event<'_>) {
        let taken = match event {
            Event::Lost => {
                self.shadow = None;
                self.links_are_current = false;
                Ok(false)
            }
            // Only a look at everything can help, which reads all routes: a hundred thousand events may be queued.
            Event::Message(Message { kind: RTM_NEWROUTE | RTM_DELROUTE, .. })
                if self.is_lost && self.shadow.is_none() =>
            {
                return;
            }
            Event::Message(message) => self.message(&message),
        };
        self.is_lost |=
            !matches!(taken, Ok(true)) || self.keys.len() > most_keys(self.desired.len());
    }

    /// Takes the links for an observation; none, if a dump is needed. Events are understood by their names meanwhile.
    pub(crate) fn take_links(&mut self) -> Option<KnownLinks> {
        let links = self.links.links.clone();
        let is_current = std::mem::take(&mut self.links_are_current);
        let known =
            std::mem::replace(&mut self.links, KnownLinks { links, ..KnownLinks::default() });
        is_current.then_some(known)
    }

    pub(crate) fn set_links(&mut self, known: Option<KnownLinks>) {
        if let Some(known) = known {
            self.links = known;
            self.links_are_current = true;
        }
    }

    /// The keys to look at, handed out once.
    pub(crate) fn hint(&mut self) -> Option<Hint<Key>> {
        let keys = std::mem::take(&mut self.keys);
        if std::mem::take(&mut self.is_lost) {
            return Some(Hint::Lost);
        }
        (!keys.is_empty()).then_some(Hint::Keys(keys))
    }

    /// Adds a key, with the culprit of the current event.
    fn name(&mut self, key: Key) {
        self.keys.add(key, self.culprit.name());
    }

    /// False, if only a full observation can say what changed.
    fn message(&mut self, message: &Message<'_>) -> Result<bool, Malformed> {
        let is_ours = self.source.own_writes.is_ours(message.port);
        self.culprit.is_at(if is_ours { Port::KERNEL } else { message.port });
        match message.kind {
            RTM_NEWROUTE | RTM_DELROUTE => {
                if let Some(seen) =
                    route::message::decode(message, &mut LinkNames::new(&self.links.links))?
                {
                    self.route(message, seen);
                }
                Ok(true)
            }
            RTM_NEWADDR | RTM_DELADDR => {
                let Some(seen) = address::decode(message, &self.links.links)? else {
                    return Ok(true);
                };
                // The link may have been created after the last observation.
                let knows_link = self.links.links.index(seen.key.link).is_some();
                Ok(self.address(message, &seen) && knows_link)
            }
            RTM_NEWLINK | RTM_DELLINK => self.link(message),
            RTM_NEWRULE | RTM_DELRULE => self.rule(message),
            RTM_NEWNEIGH | RTM_DELNEIGH if message.payload.first() == Some(&fdb::AF_BRIDGE) => {
                Ok(self.fdb(message))
            }
            RTM_NEWNEIGH | RTM_DELNEIGH => Ok(self.neighbour(message)),
            RTM_NEWNEXTHOP | RTM_DELNEXTHOP => self.nexthop(message),
            RTM_NEWTUNNEL | RTM_DELTUNNEL => {
                let name = self.links.links.name(link::vnis::of_event(message)?);
                self.name_link(name);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The rule's own key, and that of a declared rule without a priority, which any priority satisfies.
    fn rule(&mut self, message: &Message<'_>) -> Result<bool, Malformed> {
        let Some(seen) = rule::decode(message)? else { return Ok(true) };
        if seen.protocol == self.source.protocol {
            self.unused.is_used(Kind::Rule);
        }
        if let Some(rules) = self.shadow.as_mut().and_then(|shadow| shadow.rules.as_mut()) {
            match message.kind {
                RTM_DELRULE => rules.remove(&seen),
                _ => rules.add(seen),
            }
        }
        let keys = [seen.key, RuleKey { priority: None, ..seen.key }].map(Key::from);
        let should_be =
            |desired: &DesiredState| keys.iter().any(|key| desired.slot(key, None).is_some());
        if !self.is_echo(message, RTM_NEWRULE, should_be) {
            for key in keys {
                self.name(key);
            }
        }
        Ok(true)
    }

    /// The neighbour that an event is about, if it is declared or ours.
    fn neighbour(&mut self, message: &Message<'_>) -> bool {
        let Ok(Some(seen)) = neighbour::decode(message, &self.links.links) else { return true };
        if seen.protocol == self.source.protocol {
            self.unused.is_used(Kind::Neighbour);
        }
        let key = Key::Neighbour(seen.key);
        let is_declared = |desired: &DesiredState| desired.slot(&key, None).is_some();
        let is_echo = self.is_echo(message, RTM_NEWNEIGH, is_declared);
        if !is_echo && (is_declared(&self.desired) || seen.protocol == self.source.protocol) {
            self.name(key);
        }
        true
    }

    /// The declared entry that an event is about, also if a bridge has it on another port by now. The event does not say
    /// who caused it, but that an entry is as it is declared is no hint, whoever made it.
    fn fdb(&mut self, message: &Message<'_>) -> bool {
        let KnownLinks { links, table, .. } = &self.links;
        let Ok(Some(seen)) = fdb::decode(message, links) else { return true };
        let seen = seen.in_words_of(&self.desired, table);
        let declared = self.desired.get(&Key::from(seen.key));
        let is_alike = declared.is_some_and(|one| one.object == Object::Fdb(seen.entry));
        let is_there = message.kind == RTM_NEWNEIGH && seen.nature == fdb::Nature::Static;
        if is_alike && is_there {
            return true;
        }
        let desired = Arc::clone(&self.desired);
        desired.relations.fdb_at(&seen.key.place()).for_each(|key| self.name(key));
        true
    }

    fn nexthop(&mut self, message: &Message<'_>) -> Result<bool, Malformed> {
        let Some(seen) = nexthop::decode(message, &self.links.links)? else { return Ok(true) };
        if seen.protocol == self.source.protocol {
            self.unused.is_used(Kind::Nexthop);
        }
        let key = Key::Nexthop(seen.id);
        let is_going = message.kind == RTM_DELNEXTHOP;
        let is_known =
            !is_going || self.mark_uncertain(|shadow| nexthop::mark_uncertain(seen.id, shadow));
        if seen.protocol != self.source.protocol && !is_going {
            self.culprit.marks(seen.protocol);
        }
        let object = Object::Nexthop(seen.nexthop);
        let should_be = |desired: &DesiredState| {
            let slot = desired.slot(&key, None);
            slot.is_some_and(|slot| desired.compare(slot, &object) == Agreement::Agrees)
        };
        if !self.is_echo(message, RTM_NEWNEXTHOP, should_be) {
            self.name(key);
        }
        Ok(is_known)
    }

    /// Whether our own write caused the event, with the declared result.
    fn is_echo(
        &self,
        message: &Message<'_>,
        made: u16,
        should_be: impl Fn(&DesiredState) -> bool,
    ) -> bool {
        let is_right = |shadow: &Shadow| should_be(shadow.desired()) == (message.kind == made);
        self.source.own_writes.is_ours(message.port) && self.shadow.as_ref().is_some_and(is_right)
    }

    fn route(&mut self, message: &Message<'_>, seen: SeenRoute) {
        let replaces = message.flags & NLM_F_REPLACE != 0;
        let event = match message.kind {
            RTM_DELROUTE => RouteEvent::Removed,
            _ if replaces => RouteEvent::Replaced,
            _ => RouteEvent::Added,
        };
        self.follow_gateways(&seen, replaces);
        let SeenRoute { key, mut route, protocol } = seen;
        if let Some(shadow) = &self.shadow
            && let Some(gateways) = &shadow.gateways
        {
            gateways.put_into_words(shadow.desired(), &key, &mut route);
        }
        let is_settled = match &mut self.shadow {
            Some(shadow) => {
                shadow.apply_event(&key, MarkedRoute { route, protocol }, event);
                shadow.is_settled(&key)
            }
            // Without a shadow it may matter if it is ours, or replaced one of ours.
            None => protocol != self.source.protocol && event != RouteEvent::Replaced,
        };
        if !is_settled {
            if event == RouteEvent::Replaced && protocol != self.source.protocol {
                self.culprit.marks(protocol);
            }
            self.name(Key::Route(key));
        }
    }

    /// Names the routes that follow the gateway of a link, if an event is about a default route there.
    fn follow_gateways(&mut self, seen: &SeenRoute, replaces: bool) {
        let Some(shadow) = &mut self.shadow else { return };
        let desired = Arc::clone(shadow.desired());
        let links = concerned_by(&desired, seen, replaces, self.source.protocol);
        for link in links {
            self.forget_gateways(link);
            let keys = desired.routes_of_all(desired.relations.following(link));
            for key in keys.filter(|key| key.is_ipv4() == seen.key.is_ipv4()) {
                self.name(Key::Route(key));
            }
        }
    }

    /// The gateway of a link may be another now, or gone: routes that follow it are uncertain.
    fn forget_gateways(&mut self, link: LinkName) {
        self.is_lost |= !self.mark_uncertain(|shadow| {
            let desired = Arc::clone(shadow.desired());
            if !desired.relations.follow_gateway_of(link) {
                return true;
            }
            shadow.gateways = None;
            shadow.mark_uncertain(desired.relations.following(link), |_| false)
        });
    }

    fn address(&mut self, message: &Message<'_>, seen: &SeenAddress) -> bool {
        let is_going = message.kind == RTM_DELADDR;
        if let Some(known) = self.shadow.as_mut().and_then(|shadow| shadow.addresses.as_mut()) {
            if is_going {
                known.remove(&seen.key);
            } else {
                known.extend([(seen.key, address::announced(seen, &self.source))]);
            }
        }
        let is_echo = self.source.own_writes.is_ours(message.port)
            && if is_going {
                self.source.own_writes.take_deleted(&seen.key)
            } else {
                self.shadow.as_ref().is_some_and(|shadow| {
                    let declared = shadow.desired().get(&Key::Address(seen.key));
                    let seen = Object::Address(seen.address.clone());
                    declared.is_some_and(|declared| declared.object.agrees(&seen))
                })
            };
        let goes_along = |shadow: &mut Shadow| {
            let desired = Arc::clone(shadow.desired());
            let touched = desired.relations.touched_by(&seen.key, &desired);
            shadow.mark_uncertain(touched, |route| is_touched_by(route, &seen.key))
        };
        let is_known = !is_going || self.mark_uncertain(goes_along);
        if is_going {
            self.forget_gateways(seen.key.link);
        }
        if !is_echo && self.concerns(seen) {
            self.name(Key::Address(seen.key));
        }
        is_known
    }

    /// Whether an address is declared, may be ours, or carries something that is declared.
    fn concerns(&self, seen: &SeenAddress) -> bool {
        let Some(desired) = self.shadow.as_ref().map(Shadow::desired) else { return true };
        let key = Key::Address(seen.key);
        let may_be_ours = seen.protocol == self.source.protocol
            || self.source.address_marks == AddressMarks::Ledger;
        let carries = || desired.relations.touched_by(&seen.key, desired).next().is_some();
        may_be_ours || desired.slot(&key, None).is_some() || carries()
    }

    /// Drops a shadow with too many uncertain routes. Then only a full observation helps, and this is false.
    fn mark_uncertain(&mut self, mark: impl FnOnce(&mut Shadow) -> bool) -> bool {
        let is_known = self.shadow.as_mut().is_none_or(mark);
        if !is_known {
            self.shadow = None;
        }
        is_known
    }

    /// False, if only a full observation can say what changed.
    fn link(&mut self, message: &Message<'_>) -> Result<bool, Malformed> {
        let (index, name) = link::message::index_and_name(message)?;
        if !link::message::is_of_any_family(message)? {
            self.name_link(name);
            return Ok(true);
        }
        let links = &self.links.links;
        let former = links.knows(index).then(|| links.name(index));
        let former = former.filter(|former| *former != name);
        let went = message.kind == RTM_DELLINK;
        if former.is_some()
            && let Some(shadow) = &mut self.shadow
        {
            // It has them under its former name.
            shadow.addresses = None;
        }
        let seen = link::message::decode(message).ok();
        self.links_are_current &= seen.is_some();
        match &seen {
            Some(seen) if !went => self.links.insert(seen.clone(), &self.source),
            _ => self.links.remove(index),
        }
        if !went {
            self.links.links.insert(name, index);
        }
        // Quirk `nexthops-go-with-the-carrier` (Linux 6.18): a link that stays up and loses its
        // carrier loses its nexthops with their routes, and neither is announced (`ip link set vb
        // down` at the other end of a pair). One that has it has lost nothing: every way down is
        // announced on its own.
        let mut is_known = true;
        if went || former.is_some() || !link::message::has_carrier(message)? {
            let links = former.into_iter().chain([name]).collect();
            is_known = self.mark_uncertain(|shadow| {
                let desired = Arc::clone(shadow.desired());
                let carriers = LinkSet::new(&desired, links);
                let templates = carriers.templates(&desired).into_iter();
                let templates = templates.chain(desired.relations.anywhere());
                shadow.mark_uncertain(templates, |route| carriers.may_carry(route))
            });
        }
        for name in former.into_iter().chain([name]) {
            self.forget_gateways(name);
        }
        if let Some(seen) = seen.as_ref().filter(|_| !went) {
            let desired = Arc::clone(&self.desired);
            for (name, _) in desired.matches.iter().filter(|(_, wanted)| wanted.is(seen)) {
                self.name(Key::LinkField(*name, Field::Name));
            }
        }
        let is_marked = seen.is_some_and(|seen| seen.mark() == Some(self.source.owner()));
        for name in former.into_iter().chain([name]) {
            if is_marked {
                self.name(Key::Link(name));
            }
            self.name_link(name);
        }
        Ok(is_known)
    }

    /// Names a link, and what is declared of it, if anything declared has to do with it.
    fn name_link(&mut self, name: LinkName) {
        let Some(desired) = self.shadow.as_ref().map(|shadow| Arc::clone(shadow.desired())) else {
            self.name(Key::Link(name));
            for field in Field::all() {
                self.name(Key::LinkField(name, field));
            }
            return;
        };
        if desired.concerns_link(name) {
            self.name(Key::Link(name));
        }
        desired.fields_of(name).for_each(|key| self.name(key));
    }
}

/// The numbers of processes have this many bits at most.
const PROCESS: u32 = (1 << 22) - 1;

/// Who caused the event that is being taken.
#[derive(Debug, Default)]
struct Culprit {
    port: Port,
    protocol: Option<Protocol>,
    /// The last process that was looked up: a burst usually comes from one process.
    known: Option<(Port, Option<Protocol>, Option<Arc<str>>)>,
}

impl Culprit {
    /// Another event is taken, from the socket of another process.
    fn is_at(&mut self, port: Port) {
        (self.port, self.protocol) = (port, None);
    }

    /// What the event says is there bears this mark, which is not ours.
    fn marks(&mut self, protocol: Protocol) {
        self.protocol = Some(protocol);
    }

    /// Who it may be, for people.
    fn name(&mut self) -> Option<Arc<str>> {
        if let Some((port, protocol, name)) = &self.known
            && (*port, *protocol) == (self.port, self.protocol)
        {
            return name.clone();
        }
        let mark = self.protocol.map(|protocol| foreign(protocol).to_string());
        let words: Vec<String> = mark.into_iter().chain(process(self.port)).collect();
        let name = (!words.is_empty()).then(|| Arc::from(words.join(", ")));
        self.known = Some((self.port, self.protocol, name.clone()));
        name
    }
}

fn process(port: Port) -> Option<String> {
    let is_number = port != Port::KERNEL && i32::try_from(port.0).is_ok();
    let number = is_number.then_some(port.0 & PROCESS)?;
    Some(match std::fs::read_to_string(format!("/proc/{number}/comm")) {
        Ok(name) => format!("process {number} ({})", plain(&name)),
        Err(_) => format!("process {number}"),
    })
}

/// Replaces control characters: process names are untrusted.
fn plain(name: &str) -> String {
    let letters = name.trim_end().chars();
    letters.map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::DesiredState;
    use crate::number::Protocol;

    fn shadow() -> Shadow {
        Shadow::new(Arc::new(DesiredState::default()), Protocol::HOMEOSTAT)
    }

    #[test]
    fn lost_events_ask_for_a_look_at_everything_and_end_what_was_known() {
        let mut dirty = DirtyKeys::new(&Rtnl::here());
        dirty.shadow = Some(shadow());
        assert_eq!(dirty.hint(), None);
        dirty.take(Event::Lost);
        assert!(dirty.shadow.is_none());
        assert_eq!(dirty.hint(), Some(Hint::Lost));
        assert_eq!(dirty.hint(), None, "said once");
    }

    #[test]
    fn events_of_routes_that_were_queued_before_a_loss_are_not_kept() {
        let mut dirty = DirtyKeys::new(&Rtnl::here());
        let port = homeostat_netlink::Port::KERNEL;
        let route = [2, 24, 0, 0, 254, 76, 0, 1, 0, 0, 0, 0, 8, 0, 1, 0, 10, 1, 2, 0];
        let take = |dirty: &mut DirtyKeys| {
            let message = Message { kind: RTM_DELROUTE, flags: 0, seq: 0, port, payload: &route };
            dirty.take(Event::Message(message));
            dirty.keys.len()
        };
        assert_eq!(take(&mut dirty), 1, "without a loss it is named");
        dirty.take(Event::Lost);
        assert_eq!(dirty.hint(), Some(Hint::Lost));
        dirty.take(Event::Lost);
        assert_eq!(take(&mut dirty), 0);
        assert_eq!(dirty.hint(), Some(Hint::Lost));
        assert_eq!(take(&mut dirty), 1, "one that came after the loss was handed out");
    }

    #[test]
    fn what_cannot_be_read_counts_as_lost() {
        let mut dirty = DirtyKeys::new(&Rtnl::here());
        dirty.shadow = Some(shadow());
        let port = homeostat_netlink::Port::KERNEL;
        let message = Message { kind: RTM_NEWROUTE, flags: 0, seq: 0, port, payload: &[2] };
        dirty.take(Event::Message(message));
        assert_eq!(dirty.hint(), Some(Hint::Lost));
    }
}

#[cfg(test)]
mod culprit_tests {
    use super::*;

    #[test]
    fn a_process_that_calls_itself_names_gives_a_terminal_no_orders() {
        assert_eq!(plain("bird\n"), "bird");
        assert_eq!(plain("\u{1b}[2Jbird\n\n"), "?[2Jbird");
        assert_eq!(plain("a\nb"), "a?b");
    }

    fn name(port: u32, protocol: Option<u8>) -> Option<String> {
        let mut culprit = Culprit::default();
        culprit.is_at(Port(port));
        if let Some(number) = protocol {
            culprit.marks(Protocol(number));
        }
        let named = culprit.name();
        assert_eq!(named, culprit.name(), "the second time, too");
        named.map(|name| name.to_string())
    }

    #[test]
    fn the_kernel_itself_and_ports_that_were_just_free_name_no_process() {
        assert_eq!(name(0, None), None);
        assert_eq!(name(u32::MAX - 4096, None), None);
        assert_eq!(name(0, Some(12)), Some("protocol bird".to_owned()));
    }

    #[test]
    fn a_port_is_a_process_also_if_it_has_several() {
        let own = std::process::id();
        let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
        let expected = format!("process {own} ({})", comm.trim_end());
        assert_eq!(name(own, None), Some(expected.clone()));
        assert_eq!(name(own | 3 << 22, None), Some(expected.clone()));
        assert_eq!(name(own, Some(77)), Some(format!("protocol 77, {expected}")));
        assert_eq!(name(PROCESS, None), Some(format!("process {PROCESS}")), "it is gone");
    }
}
