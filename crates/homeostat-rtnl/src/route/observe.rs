//! Looks at routes: all of them in a dump, a few of them by the shadow.

use std::collections::BTreeSet;

use homeostat_core::{Owner, Seen};
use homeostat_netlink::uapi::{RTM_GETROUTE, RTPROT_KERNEL, RTPROT_REDIRECT};
use homeostat_netlink::{Batch, Dumped, Errno, Error, Malformed, Message};

use crate::key::Key;
use crate::message::{AF_INET, AF_INET6, AF_UNSPEC, LinkNames};
use crate::moment::Moment;
use crate::number::{Protocol, Table};
use crate::object::Object;
use crate::observe::{Observation, foreign, request_for, whole};
use crate::route::RouteKey;
use crate::route::message::{SeenRoute, decode};

/// Which routes are dumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    /// `AF_UNSPEC` for all.
    family: u8,
    /// None for all.
    table: Option<Table>,
}

/// IPv4 and IPv6 in one dump. Routes of other families are in it, too, and are left out.
pub(crate) const EVERYTHING: Part = Part { family: AF_UNSPEC, table: None };

pub(crate) const ALL_IPV6: Part = Part { family: AF_INET6, table: None };

pub(crate) fn all(observation: &mut Observation<'_, '_>, moment: &mut Moment) -> Result<(), Error> {
    dump(observation, moment, EVERYTHING, |_| true)
}

/// Learns what foreign routes there are, and hands on none.
pub(crate) fn note_foreign(
    observation: &mut Observation<'_, '_>,
    moment: &mut Moment,
    part: Part,
) -> Result<(), Error> {
    dump(observation, moment, part, |_| false)
}

/// Reports the routes that have some keys; dumps the tables of those that the shadow does not know.
pub(crate) fn some(
    observation: &mut Observation<'_, '_>,
    moment: &mut Moment,
    keys: &BTreeSet<Key>,
) -> Result<(), Error> {
    let keys = keys.iter().filter_map(|key| match key {
        Key::Route(key) => Some(*key),
        _ => None,
    });
    let unknown: BTreeSet<RouteKey> = keys.filter(|key| !recall(observation, key)).collect();
    if let Some(shadow) = &mut observation.shadow {
        for key in &unknown {
            shadow.forget(key);
        }
    }
    let parts = unknown.iter().map(|key| Part {
        family: if key.is_ipv4() { AF_INET } else { AF_INET6 },
        table: Some(key.table),
    });
    let parts: BTreeSet<Part> = parts.collect();
    let is_unknown = |key: &RouteKey| unknown.contains(key);
    parts.into_iter().try_for_each(|part| dump(observation, moment, part, is_unknown))
}

/// Reports what the shadow knows of a key; false, if it does not know.
fn recall(observation: &mut Observation<'_, '_>, key: &RouteKey) -> bool {
    let there = observation.shadow.as_ref().and_then(|shadow| shadow.routes_on(key));
    let Some(there) = there else { return false };
    for marked in there {
        let owner = route_owner(marked.protocol, observation.source.protocol);
        observation.report(Key::Route(*key), Object::Route(marked.route), owner);
    }
    true
}

/// Dumps routes and reports those that are wanted; what is foreign is noted in any case.
fn dump(
    observation: &mut Observation<'_, '_>,
    moment: &mut Moment,
    part: Part,
    is_wanted: impl Fn(&RouteKey) -> bool,
) -> Result<(), Error> {
    let Part { family, table } = part;
    let mut request = Batch::new();
    let fixed = [family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    request_for(&mut request, RTM_GETROUTE, &fixed, table, |_| {})?;
    let Moment { links, foreign, nexthops, gateways, .. } = moment;
    let (mut names, mut bad, mut torn) = (LinkNames::new(links), None, false);
    let Observation { connection, source, view, see, shadow, .. } = observation;
    let mut hand_on = |seen: SeenRoute, owner: Owner| {
        if let Some(shadow) = shadow {
            shadow.add_dumped(&seen.key, &seen.route, seen.protocol);
        }
        let (key, object) = (Key::Route(seen.key), Object::Route(seen.route));
        see(Seen::Present { key, object, owner });
    };
    let mut beside = BesideOurs::default();
    let mut each = |message: Message<'_>| -> Result<(), Malformed> {
        let Some(mut seen) = decode(&message, &mut names)? else { return Ok(()) };
        gateways.put_into_words(view.desired, &seen.key, &mut seen.route);
        let owner = route_owner(seen.protocol, source.protocol);
        if matches!(owner, Owner::Foreign(_)) {
            foreign.note(&seen.key, &seen.route, &owner, nexthops);
        }
        if is_wanted(&seen.key) {
            beside.pass(seen, owner, &mut hand_on);
        }
        Ok(())
    };
    let dumped = connection.dump(&mut request, &mut |dumped| match dumped {
        Dumped::Restart => torn = true,
        // Routes that were passed on cannot be taken back: the look has to begin again.
        Dumped::Object(_) if torn => {}
        Dumped::Object(message) => bad = each(message).err().or(bad),
    });
    beside.finish(&mut hand_on);
    match dumped {
        // A table that was never used has no routes.
        Err(Error::Refused(refusal)) if table.is_some() && refusal.errno == Errno::NOENT => Ok(()),
        Err(error) => Err(error),
        Ok(()) if torn => Err(Error::Torn { tries: 1 }),
        Ok(()) => whole(bad),
    }
}

/// Leaves out what the kernel has made by itself on the key of a route of ours.
///
/// Quirk `the-prefix-of-an-address-twice` (Linux 6.18): the kernel adds the route to the network of an address behind
/// one of the same key: `ip route add 10.0.0.0/24 dev va`, then `ip address add 10.0.0.1/24 dev va`. Routes of one key
/// follow each other in a dump.
#[derive(Default)]
struct BesideOurs {
    ours: Option<RouteKey>,
    kernels: Option<SeenRoute>,
}

impl BesideOurs {
    fn pass(&mut self, seen: SeenRoute, owner: Owner, hand_on: &mut impl FnMut(SeenRoute, Owner)) {
        match owner {
            Owner::Kernel if self.ours == Some(seen.key) => {}
            Owner::Kernel => {
                self.finish(hand_on);
                self.kernels = Some(seen);
            }
            owner => {
                if owner == Owner::Ours {
                    self.ours = Some(seen.key);
                    self.kernels.take_if(|kernels| kernels.key == seen.key);
                }
                hand_on(seen, owner);
            }
        }
    }

    fn finish(&mut self, hand_on: &mut impl FnMut(SeenRoute, Owner)) {
        if let Some(seen) = self.kernels.take() {
            hand_on(seen, Owner::Kernel);
        }
    }
}

pub(crate) fn route_owner(protocol: Protocol, ours: Protocol) -> Owner {
    match protocol {
        protocol if protocol == ours => Owner::Ours,
        Protocol(RTPROT_KERNEL | RTPROT_REDIRECT) => Owner::Kernel,
        protocol => foreign(protocol),
    }
}
