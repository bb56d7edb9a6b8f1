//! The reader of the source: dumps what there is, kind by kind, and reports each object as it comes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homeostat_core::{Failure, Focus, Hint, Owner, Records, Retry, See, Seen, Snapshot, View};
use homeostat_netlink::uapi::RTA_TABLE;
use homeostat_netlink::{
    Batch, Connection, Dumped, Errno, Error, Family, Malformed, Message, MessageWriter,
};

use crate::address::AddressMarks;
use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::kinds::LinkKind;
use crate::link::model::{Field, Link};
use crate::link::namespaces::OtherNamespaces;
use crate::link::observe::{KnownLinks, MayLose};
use crate::link::{self, IfIndex, LinkName};
use crate::moment::{Beyond, Extent, Moment};
use crate::number::{Protocol, Table};
use crate::object::Object;
use crate::route::gateways::Gateways;
use crate::route::observe::{ALL_IPV6, EVERYTHING};
use crate::shadow::Shadow;
use crate::source::Rtnl;
use crate::subscription::Subscription;
use crate::unused::{Kind, UnusedKinds};
use crate::{address, fdb, neighbour, nexthop, route, rule, snapshot};

/// Observes one network namespace, and receives hints of changes in it.
pub struct Reader {
    source: Rtnl,
    connection: Option<Connection>,
    /// None, if the reader was opened without hints.
    subscription: Option<Subscription>,
    /// The bytes that former connections received.
    received: u64,
}

impl Reader {
    /// The subscription exists before the first observation, so that no change is missed between the two.
    pub(crate) fn open(source: Rtnl, subscription: Option<Subscription>) -> Result<Self, Failure> {
        let connection = Some(source.connect()?);
        Ok(Reader { source, connection, subscription, received: 0 })
    }

    pub(crate) fn look(
        &mut self,
        view: &View<'_, Rtnl>,
        see: &mut See<'_, Key, Object>,
    ) -> Result<Moment, Failure> {
        self.catch_up(view)?;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.source.connect()?,
        };
        // An observation that fails leaves no shadow: it may have removed keys from it that it did not read.
        let left_out = self.left_out(view);
        let shadow = self.shadow_for(view);
        let known_links =
            self.subscription.as_mut().and_then(|subscription| subscription.dirty.take_links());
        let source = &self.source;
        let mut look = Observation {
            connection: &mut connection,
            source,
            view,
            see,
            shadow,
            known_links,
            left_out,
            ours: BTreeSet::new(),
        };
        let moment = look.run();
        let (shadow, known_links) = (look.shadow.take(), look.known_links.take());
        let Observation { left_out, ours, .. } = look;
        if moment.is_err() {
            // The connection may be in the middle of an answer.
            self.received += connection.received_bytes();
        } else {
            self.connection = Some(connection);
        }
        let moment = moment.map_err(|error| failure(&error))?;
        if let Some(subscription) = &mut self.subscription {
            subscription.dirty.shadow = shadow;
            subscription.dirty.set_links(known_links);
            if *view.focus == Focus::All && left_out.is_empty() {
                subscription.dirty.unused = UnusedKinds::after_all(view, &ours);
            }
        }
        Ok(moment)
    }

    /// How many bytes the kernel has sent for observations. Observing a few keys costs the same
    /// however many routes and links there are.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.received + self.connection.as_ref().map_or(0, Connection::received_bytes)
    }

    /// Reads the events that are queued: after the observation they would be stale.
    fn catch_up(&mut self, view: &View<'_, Rtnl>) -> Result<(), Failure> {
        let Some(subscription) = &mut self.subscription else { return Ok(()) };
        subscription.set_desired(view.desired)?;
        subscription.unmute(view.focus).map_err(|error| failure(&error))?;
        if view.is_caught_up && subscription.is_drained {
            return Ok(());
        }
        subscription.drain().map_err(|error| failure(&error))
    }

    /// The kinds that an observation may leave out. None without a shadow: events may have been missed.
    fn left_out(&mut self, view: &View<'_, Rtnl>) -> BTreeSet<Kind> {
        match &mut self.subscription {
            Some(Subscription { dirty, .. })
                if *view.focus == Focus::All
                    && dirty
                        .shadow
                        .as_ref()
                        .is_some_and(|shadow| shadow.desired().is(view.desired)) =>
            {
                dirty.unused.for_look()
            }
            _ => BTreeSet::new(),
        }
    }

    /// A full observation begins a new shadow, a focused one uses that of its desired state. Without a subscription
    /// there is none.
    fn shadow_for(&mut self, view: &View<'_, Rtnl>) -> Option<Shadow> {
        // The former one is dropped first: two would take twice the memory.
        let former = self.subscription.as_mut()?.dirty.shadow.take();
        match view.focus {
            Focus::All => {
                // The kernel announces every change of a rule, and an observation may leave them out.
                let rules = former.and_then(|former| former.rules);
                let mut new = Shadow::new(Arc::clone(view.desired), self.source.protocol);
                new.rules = rules;
                Some(new)
            }
            Focus::Keys(_) => former.filter(|shadow| shadow.desired().is(view.desired)),
        }
    }
}

impl homeostat_core::Reader<Rtnl> for Reader {
    async fn observe(
        &mut self,
        view: &View<'_, Rtnl>,
        see: &mut See<'_, Key, Object>,
    ) -> Result<Moment, Failure> {
        self.look(view, see)
    }

    async fn snapshots(
        &mut self,
        keys: &BTreeSet<Key>,
    ) -> Result<BTreeMap<Key, Snapshot>, Failure> {
        let mut connection = self.source.connect()?;
        let taken = snapshot::take(&mut connection, keys, &self.source.former);
        let mut taken = taken.map_err(|error| failure(&error))?;
        taken.extend(self.source.sysctls(keys)?);
        Ok(taken)
    }

    async fn snapshots_along(
        &mut self,
        taken: &BTreeSet<Key>,
    ) -> Result<BTreeMap<Key, Snapshot>, Failure> {
        let mut connection = self.source.connect()?;
        let along = snapshot::take_along(&mut connection, taken, self.source.protocol);
        along.map_err(|error| failure(&error))
    }

    async fn hint(&mut self) -> Result<Hint<Key>, Failure> {
        match &mut self.subscription {
            Some(subscription) => subscription.hint().await,
            None => std::future::pending().await,
        }
    }
}

/// Why an observation failed.
pub(crate) fn failure(error: &Error) -> Failure {
    let retry = if matches!(error, Error::Torn { .. }) { Retry::Now } else { Retry::Soon };
    Failure::from_error(error, retry)
}

/// With more keys than this, a dump costs less than asking for each.
pub(crate) const MOST_LOOKUPS: usize = 256;

/// With more links than this, a dump of all VLANs costs less than asking for those of each.
const MOST_VLAN_LOOKUPS: usize = 8;

/// One observation while it runs.
pub(crate) struct Observation<'a, 'v> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) source: &'a Rtnl,
    pub(crate) view: &'a View<'v, Rtnl>,
    pub(crate) see: &'a mut See<'v, Key, Object>,
    pub(crate) shadow: Option<Shadow>,
    /// The links, if every change since the last dump was announced.
    known_links: Option<KnownLinks>,
    /// Kinds that are not dumped.
    left_out: BTreeSet<Kind>,
    /// Kinds of which one is ours.
    ours: BTreeSet<Kind>,
}

impl Observation<'_, '_> {
    fn run(&mut self) -> Result<Moment, Error> {
        let address_marks = self.source.address_marks;
        let mut moment = Moment { address_marks, ..Moment::default() };
        self.links(&mut moment)?;
        self.gateways(&mut moment)?;
        match self.view.focus {
            Focus::All => {
                let address_goes = address::observe_all(self, &mut moment)?;
                // What other owners lose with a link or an address has to be known.
                if !self.left_out.is_empty()
                    && (address_goes || MayLose::of_all(&moment, self.view).anything())
                {
                    self.left_out.clear();
                }
                if !self.left_out.contains(&Kind::Nexthop) {
                    nexthop::observe_all(self, &mut moment)?;
                }
                route::observe::all(self, &mut moment)?;
                if !self.left_out.contains(&Kind::Rule) {
                    rule::observe_all(self, &mut moment)?;
                }
                if !self.left_out.contains(&Kind::Neighbour) {
                    neighbour::observe_all(self, &mut moment)?;
                }
                fdb::observe_all(self, &mut moment)?;
            }
            Focus::Keys(keys) => self.some(&mut moment, keys)?,
        }
        Ok(moment)
    }

    /// Dumps the kinds of the keys where that is cheap. The shadow answers for routes.
    fn some(&mut self, moment: &mut Moment, keys: &BTreeSet<Key>) -> Result<(), Error> {
        moment.extent = Extent::Few;
        let may_lose = MayLose::of(moment, self.view, keys);
        let is_any = |is_one: fn(&Key) -> bool| keys.iter().any(is_one);
        let has_address = may_lose.everything || is_any(|key| matches!(key, Key::Address(_)));
        let address_goes = has_address && address::observe_some(self, moment, keys)?;
        if is_any(|key| matches!(key, Key::Rule(_))) {
            rule::observe_some(self, moment, keys)?;
        }
        // The last address of a link takes foreign neighbours along.
        if may_lose.neighbours || address_goes || !neighbour::observe_some(self, moment, keys)? {
            neighbour::observe_all(self, moment)?;
        }
        fdb::observe_some(self, moment, keys)?;
        let nexthop_goes = if may_lose.ipv6_routes {
            nexthop::observe_all(self, moment)?
        } else {
            nexthop::observe_some(self, moment, keys)?
        };
        // A link, address or nexthop that is deleted may take foreign routes of any table along.
        if may_lose.everything || address_goes || nexthop_goes {
            route::observe::note_foreign(self, moment, EVERYTHING)?;
        } else if may_lose.ipv6_routes {
            route::observe::note_foreign(self, moment, ALL_IPV6)?;
        }
        route::observe::some(self, moment, keys)
    }

    /// Dumps all links, unless the focus is on a few keys and every change of a link since the last dump was
    /// announced: then only the links of these keys are looked up.
    fn links(&mut self, moment: &mut Moment) -> Result<(), Error> {
        let names: Option<BTreeSet<LinkName>> = match self.view.focus {
            Focus::Keys(keys) => Some(keys.iter().filter_map(Key::link).collect()),
            Focus::All => None,
        };
        let names = names.filter(|names| names.len() <= MOST_LOOKUPS);
        let has_link = match self.view.focus {
            Focus::Keys(keys) => keys.iter().any(Key::is_link),
            Focus::All => true,
        };
        if let (Some(names), Some(mut known)) = (names, self.known_links.take()) {
            for name in names {
                // A link that is down changes silently.
                known.refresh(name, link::observe::find(self.connection, name), self.source);
            }
            self.known_links = Some(known);
        } else {
            let read = |message: &Message<'_>| link::message::decode(message).map(Some);
            let mut request = Batch::new();
            link::message::dump(&mut request)?;
            let found = collect_all(self.connection, request, read)?;
            let mut known = KnownLinks::default();
            for seen in &found {
                known.links.insert(seen.name, seen.index);
            }
            for seen in found {
                known.insert(seen, self.source);
            }
            self.known_links = Some(known);
        }
        if let Some(known) = &self.known_links {
            (moment.links, moment.table) = (known.links.clone(), known.table.clone());
        }
        link::matching::find(self.view.desired, moment);
        if has_link {
            self.vlans(moment)?;
            self.wireguard(moment);
            self.vnis(moment)?;
            self.other_namespaces(moment);
            link::observe::report(moment, self.source, self.view, self.see);
            self.look_beyond(moment);
        }
        Ok(())
    }

    /// Looks for the gateways that declared routes follow, unless the shadow knows them.
    fn gateways(&mut self, moment: &mut Moment) -> Result<(), Error> {
        let followed: BTreeSet<LinkName> = self.view.desired.relations.followed_links().collect();
        if followed.is_empty() {
            return Ok(());
        }
        let known = self.shadow.as_mut().and_then(|shadow| shadow.gateways.take());
        moment.gateways = match known.filter(|_| *self.view.focus != Focus::All) {
            Some(gateways) => gateways,
            None => Gateways::observe(self, &moment.links, &followed)?,
        };
        if let Some(shadow) = &mut self.shadow {
            shadow.gateways = Some(moment.gateways.clone());
        }
        Ok(())
    }

    /// Asks for the VLANs of the links whose VLANs are declared or recorded: for each, if they are few.
    fn vlans(&mut self, moment: &mut Moment) -> Result<(), Error> {
        let of = |key: &Key| match key {
            Key::LinkField(name, Field::Vlans) => Some(*name),
            _ => None,
        };
        let names: BTreeSet<LinkName> = match self.view.focus {
            Focus::Keys(keys) => keys.iter().filter_map(of).collect(),
            Focus::All => {
                let declared = self.view.desired.fields();
                let declared = declared.filter(|(_, field, _)| *field == Field::Vlans);
                let recorded = self.view.records.keys().filter_map(of);
                declared.map(|(name, ..)| name).chain(recorded).collect()
            }
        };
        let seen = names.iter().filter_map(|name| moment.table.get(*name));
        let held = seen.filter(|seen| moment.table.part_of_bridge(seen).is_some());
        let held: Vec<IfIndex> = held.map(|seen| seen.index).collect();
        if held.len() > MOST_VLAN_LOOKUPS {
            moment.vlans = link::vlans::read(self.connection, None)?;
            return Ok(());
        }
        for index in held {
            match link::vlans::read(self.connection, Some(index)) {
                Ok(found) => moment.vlans.extend(found),
                // It left its bridge a moment ago, or is gone.
                Err(Error::Refused(refusal))
                    if matches!(refusal.errno, Errno::INVAL | Errno::NODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what WireGuard links of the focus are made of. One that cannot be read is unknown.
    fn wireguard(&mut self, moment: &mut Moment) {
        let is_covered = |name: LinkName| self.view.focus.covers(&Key::Link(name));
        let links = moment.table.values().filter(|seen| seen.link.kind.wireguard().is_some());
        let links: Vec<_> = links
            .filter(|seen| is_covered(seen.name))
            .map(|seen| (seen.name, seen.index))
            .collect();
        if links.is_empty() {
            return;
        }
        let mut connection = self.source.connect_to(Family::Generic);
        for (name, index) in links {
            let read = match &mut connection {
                Ok(connection) => link::wireguard::read(connection, index)
                    .map_err(|error| Failure::from_error(&error, Retry::Soon).error),
                Err(failure) => Err(failure.error.clone()),
            };
            let wrote = self.view.records.get(&Key::Link(name)).map(|record| &record.wrote);
            let wrote = match wrote {
                Some(Object::Link(link)) => link.kind.wireguard(),
                _ => None,
            };
            let declared = self.view.desired.link(name).and_then(|link| link.kind.wireguard());
            match read {
                Ok(Some(device)) => {
                    let kind = LinkKind::Wireguard(device.in_words_of(declared, wrote));
                    moment.table.set_kind(name, kind);
                }
                // It is gone by now.
                Ok(None) => {}
                Err(why) => _ = moment.unread.insert(name, why),
            }
        }
    }

    /// Reads the networks of VXLANs of the focus that have lists of them.
    fn vnis(&mut self, moment: &mut Moment) -> Result<(), Error> {
        let is_covered = |name: LinkName| self.view.focus.covers(&Key::Link(name));
        let links = moment.table.values().filter(|seen| seen.link.kind.vnis().is_some());
        let links = links.filter(|seen| is_covered(seen.name));
        let links: Vec<_> =
            links.map(|seen| (seen.name, seen.index, seen.link.kind.clone())).collect();
        for (name, index, mut kind) in links {
            let read = match link::vnis::read(self.connection, index) {
                // It is gone by now.
                Err(Error::Refused(refusal)) if refusal.errno == Errno::NODEV => continue,
                read => read?,
            };
            if let LinkKind::Vxlan(vxlan) = &mut kind {
                vxlan.vnis = Some(read);
            }
            moment.table.set_kind(name, kind);
        }
        Ok(())
    }

    /// Looks at the namespaces of the other ends of pairs that the pass may delete or set down. One that has no name,
    /// or that cannot be looked at, is left out.
    fn look_beyond(&mut self, moment: &mut Moment) {
        // Without marks it is unknown there which addresses are ours.
        if self.source.address_marks == AddressMarks::Ledger {
            return;
        }
        let nsids = link::observe::other_ends(moment, self.view);
        let known = &self.source.namespaces;
        let found = OtherNamespaces::numbered(&nsids, known, self.connection);
        let desired = Arc::new(DesiredState::default());
        let records = Records::new();
        let view = View::new(&Focus::All, &desired, &records);
        for (nsid, (name, netns)) in found {
            let reader = Reader::open(self.source.beside(netns), None);
            if let Ok(there) = reader.and_then(|mut reader| reader.look(&view, &mut |_| {})) {
                moment.beyond.insert(nsid, Beyond { name, moment: Box::new(there) });
            }
        }
    }

    /// Looks at the namespaces that declared links of the focus refer to.
    fn other_namespaces(&mut self, moment: &mut Moment) {
        let desired = self.view.desired;
        let links: Vec<&Link> = match self.view.focus {
            Focus::All => desired.links().map(|(_, link)| link).collect(),
            Focus::Keys(keys) => keys.iter().filter_map(|key| desired.link(key.link()?)).collect(),
        };
        let references = links.iter().flat_map(|link| link.references());
        let names: BTreeSet<&str> =
            references.filter_map(|other| other.namespace.as_deref()).collect();
        if !names.is_empty()
            && let Ok(here) = self.source.netns()
        {
            moment.namespaces =
                OtherNamespaces::look(&names, &self.source.namespaces, &here, self.connection);
        }
    }

    pub(crate) fn report(&mut self, key: Key, object: Object, owner: Owner) {
        if self.view.focus.covers(&key) {
            let is_ours = matches!(owner, Owner::Ours | Owner::Unmarked);
            self.ours.extend(Kind::of(&key).filter(|_| is_ours));
            (self.see)(Seen::Present { key, object, owner });
        }
    }
}

/// Dumps objects that are few, and returns them when the dump is complete: it may be interrupted and restart.
pub(crate) fn collect<T>(
    connection: &mut Connection,
    kind: u16,
    fixed: &[u8],
    read: impl FnMut(&Message<'_>) -> Result<Option<T>, Malformed>,
) -> Result<Vec<T>, Error> {
    let mut request = Batch::new();
    request_for(&mut request, kind, fixed, None, |_| {})?;
    collect_all(connection, request, read)
}

/// The same for a request of any form.
pub(crate) fn collect_all<T>(
    connection: &mut Connection,
    mut request: Batch,
    mut read: impl FnMut(&Message<'_>) -> Result<Option<T>, Malformed>,
) -> Result<Vec<T>, Error> {
    let (mut found, mut bad) = (Vec::new(), None);
    let dumped = connection.dump(&mut request, &mut |dumped| match dumped {
        Dumped::Restart => {
            found.clear();
            bad = None;
        }
        Dumped::Object(message) => match read(&message) {
            Ok(one) => found.extend(one),
            Err(error) => bad = Some(error),
        },
    });
    match dumped {
        // A kernel that was built without a kind has none of it.
        Err(Error::Refused(refusal)) if refusal.errno == Errno::OPNOTSUPP => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok(()) => whole(bad).map(|()| found),
    }
}

pub(crate) fn request_for(
    request: &mut Batch,
    kind: u16,
    fixed: &[u8],
    table: Option<Table>,
    more: impl FnOnce(&mut MessageWriter<'_>),
) -> Result<(), Error> {
    let mut message = request.message(kind, 0);
    message.fixed(fixed);
    if let Some(Table(table)) = table {
        message.attr_u32(RTA_TABLE, table);
    }
    more(&mut message);
    message.finish()
}

/// An object that cannot be read has no key, so it is unknown what is absent.
pub(crate) fn whole(bad: Option<Malformed>) -> Result<(), Error> {
    bad.map_or(Ok(()), |bad| Err(Error::Malformed(bad)))
}

pub(crate) fn foreign(protocol: Protocol) -> Owner {
    match protocol.name() {
        Some(name) => Owner::foreign(name),
        None => Owner::Foreign(Cow::Owned(format!("protocol {}", protocol.0))),
    }
}

/// One object that exists.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedObject {
    pub key: Key,
    pub object: Object,
    pub owner: Owner,
}
