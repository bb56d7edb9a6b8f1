//! The subscription to the kernel's events. `events` has what an event means.
//!
//! A filter in the kernel keeps out of the queue what we need not know. While our own writer creates very many
//! routes, their echoes alone would make the queue overflow: then the filter drops them too, and the next
//! observation has to read everything, as it does after so many writes.
//!
//! Quirk `our-port-on-what-goes-along` (Linux 6.18): deleting a primary address sends a DELADDR with
//! our port for each secondary one that went with it, so the port alone makes no echo.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use homeostat_core::{Failure, Focus, Hint};
use homeostat_netlink::uapi::{
    NLM_F_REPLACE, RTM_DELROUTE, RTM_NEWROUTE, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE,
    RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV6_RULE, RTNLGRP_LINK,
    RTNLGRP_NEIGH, RTNLGRP_NEXTHOP, RTNLGRP_TUNNEL,
};
use homeostat_netlink::{AsyncListener, Error, Event, Filter, Group, Instruction, Listener, Port};

use crate::address::AddressKey;
use crate::desired::DesiredState;
use crate::events::DirtyKeys;
use crate::key::Key;
use crate::number::Protocol;
use crate::observe::failure;
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

/// How many datagrams are read at once, so that a flood of events cannot delay an observation without end. The rest
/// is read with the next one.
const MOST_AT_ONCE: usize = 1 << 20;

pub(crate) struct Subscription {
    pub(crate) dirty: DirtyKeys,
    listener: AsyncListener,
    echo_filter: Arc<EchoFilter>,
    /// Whether the last read left nothing in the queue.
    pub(crate) is_drained: bool,
    has_neighbours: bool,
    has_vnis: bool,
}

impl Subscription {
    pub(crate) fn open(source: &Rtnl) -> Result<Self, Failure> {
        let listener = source.listen(&GROUPS, Filter::new(program(source.protocol)))?;
        let echo_filter =
            EchoFilter::of(&listener, source.protocol).map_err(|error| failure(&error))?;
        source.own_writes.set_filter(&echo_filter);
        let (dirty, listener) = (DirtyKeys::new(source), AsyncListener::new(listener));
        Ok(Subscription {
            dirty,
            listener,
            echo_filter,
            has_neighbours: false,
            has_vnis: false,
            is_drained: false,
        })
    }

    /// Joins the group of neighbours and forwarding entries once some are declared: they come and go with every packet.
    pub(crate) fn set_desired(&mut self, desired: &Arc<DesiredState>) -> Result<(), Failure> {
        if self.dirty.desired.is(desired) {
            return Ok(());
        }
        self.dirty.desired = Arc::clone(desired);
        if !self.has_vnis && desired.links().any(|(_, link)| link.kind.vnis().is_some()) {
            self.has_vnis = true;
            // Kernels before 5.18 have no such group, and refuse such links.
            let _ = self.listener.join(Group(RTNLGRP_TUNNEL));
        }
        let mut keys = desired.others.iter().map(|declared| &declared.key);
        if self.has_neighbours || !keys.any(|key| matches!(key, Key::Neighbour(_) | Key::Fdb(_))) {
            return Ok(());
        }
        self.has_neighbours = true;
        self.listener.join(Group(RTNLGRP_NEIGH)).map_err(|error| failure(&error))
    }

    /// Receives our own echoes again before an observation. If some were dropped, only a full one is complete.
    pub(crate) fn unmute(&mut self, focus: &Focus<Key>) -> Result<(), Error> {
        if self.echo_filter.unmute()? && *focus != Focus::All {
            self.dirty.take(Event::Lost);
        }
        Ok(())
    }

    /// Reads the queue without waiting. Keys that events name are kept for the next hint.
    pub(crate) fn drain(&mut self) -> Result<(), Error> {
        let Subscription { dirty, listener, is_drained, .. } = self;
        *is_drained = false;
        for _ in 0..MOST_AT_ONCE {
            if !listener.receive_now(&mut |event| dirty.take(event))? {
                dirty.source.own_writes.forget_deleted();
                *is_drained = true;
                break;
            }
        }
        Ok(())
    }

    /// The next hint. Nothing is lost if it is dropped while it waits.
    pub(crate) async fn hint(&mut self) -> Result<Hint<Key>, Failure> {
        loop {
            self.drain().map_err(|error| failure(&error))?;
            if let Some(hint) = self.dirty.hint() {
                return Ok(hint);
            }
            let Subscription { dirty, listener, .. } = self;
            let received = listener.receive(&mut |event| dirty.take(event)).await;
            received.map_err(|error| failure(&error))?;
        }
    }
}

/// Where a message has its type, its flags, the port of who caused it, and the prefix length and the protocol of a route.
const KIND_AT: u32 = 4;
const FLAGS_AT: u32 = 6;
const PORT_AT: u32 = 12;
const PREFIX_LEN_AT: u32 = 16 + 1;
const PROTOCOL_AT: u32 = 16 + 5;

/// Drops events of foreign routes, of which a routing daemon causes thousands a second, except those that may have
/// replaced a route of ours, and those of default routes, whose gateway a declared route may follow.
const fn program(ours: Protocol) -> [Instruction; 11] {
    let (new, del) = (Filter::host_u16(RTM_NEWROUTE), Filter::host_u16(RTM_DELROUTE));
    [
        Instruction::load_u16(KIND_AT),
        Instruction::if_equal(new, 1, 0),
        Instruction::if_equal(del, 0, 6),
        Instruction::load_u8(PROTOCOL_AT),
        Instruction::if_equal(ours.0 as u32, 4, 0),
        Instruction::load_u16(FLAGS_AT),
        Instruction::if_any_bit(Filter::host_u16(NLM_F_REPLACE), 2, 0),
        Instruction::load_u8(PREFIX_LEN_AT),
        Instruction::if_equal(0, 0, 1),
        Instruction::keep(),
        Instruction::discard(),
    ]
}

/// The part before that program that drops the routes of our own writer.
const fn mute_program(ours: Protocol, writer: Port) -> [Instruction; 8] {
    [
        Instruction::load_u16(KIND_AT),
        Instruction::if_equal(Filter::host_u16(RTM_NEWROUTE), 0, 6),
        Instruction::load_u8(PROTOCOL_AT),
        Instruction::if_equal(ours.0 as u32, 0, 4),
        Instruction::load_u32(PORT_AT),
        Instruction::if_equal(Filter::host_u32(writer.0), 0, 2),
        Instruction::load_u16(FLAGS_AT),
        // Past the program, to its end.
        Instruction::if_any_bit(Filter::host_u16(NLM_F_REPLACE), 0, 10),
    ]
}

/// The filter of one subscription, for its reader and for the writer beside it.
#[derive(Debug)]
pub(crate) struct EchoFilter {
    socket: OwnedFd,
    ours: Protocol,
    is_on: AtomicBool,
    /// Whether an event may have been dropped since it was switched on.
    has_dropped: AtomicBool,
}

impl EchoFilter {
    pub(crate) fn of(listener: &Listener, ours: Protocol) -> Result<Arc<Self>, Error> {
        let socket = listener.as_fd().try_clone_to_owned();
        let socket = socket.map_err(|source| Error::Open { source })?;
        let [is_on, has_dropped] = [false; 2].map(AtomicBool::new);
        Ok(Arc::new(EchoFilter { socket, ours, is_on, has_dropped }))
    }

    /// Drops the echoes of a writer. Returns whether some were dropped before.
    pub(crate) fn mute(&self, writer: Port) -> bool {
        let program = [&mute_program(self.ours, writer)[..], &program(self.ours)].concat();
        // Set before the filter: from the first dropped event on, an observation has to be a full one.
        self.is_on.store(true, Ordering::SeqCst);
        let had_dropped = self.has_dropped.swap(true, Ordering::SeqCst);
        // Without the filter the queue may overflow, which the kernel reports.
        let _ = Filter::new(program).attach(&self.socket);
        had_dropped
    }

    /// The kernel refused all routes, so there was no echo to drop.
    pub(crate) fn dropped_nothing(&self) {
        self.has_dropped.store(false, Ordering::SeqCst);
    }

    /// Receives echoes again. Returns whether some were dropped.
    pub(crate) fn unmute(&self) -> Result<bool, Error> {
        if !self.is_on.load(Ordering::SeqCst) {
            return Ok(false);
        }
        Filter::new(program(self.ours)).attach(&self.socket)?;
        self.is_on.store(false, Ordering::SeqCst);
        Ok(self.has_dropped.swap(false, Ordering::SeqCst))
    }
}

/// What the writer of a source did, as far as the reader needs it to recognize echoes.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    ports: BTreeSet<Port>,
    deleted: BTreeSet<AddressKey>,
    /// Of the reader that was opened last. An open socket would keep its namespace alive.
    echo_filter: Weak<EchoFilter>,
}

impl OwnWrites {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection of the writer.
    pub(crate) fn add_port(&self, port: Port) {
        self.notes().ports.insert(port);
    }

    pub(crate) fn set_filter(&self, echo_filter: &Arc<EchoFilter>) {
        self.notes().echo_filter = Arc::downgrade(echo_filter);
    }

    /// Drops the echoes of a writer's connection that is about to create many routes. Returns the filter if it
    /// has dropped nothing before, so that the writer can take it back if the kernel creates none of them.
    pub(crate) fn mute_echoes(&self, port: Port) -> Option<Arc<EchoFilter>> {
        let echo_filter = self.notes().echo_filter.upgrade()?;
        let had_dropped = echo_filter.mute(port);
        (!had_dropped).then_some(echo_filter)
    }

    /// An address is about to be deleted.
    pub(crate) fn add_deleted(&self, key: AddressKey) {
        self.notes().deleted.insert(key);
    }

    /// Whether a request of ours caused an event: directly, or by what the kernel deleted along.
    pub(crate) fn is_ours(&self, port: Port) -> bool {
        self.notes().ports.contains(&port)
    }

    /// Whether we asked for the deletion of this address.
    pub(crate) fn take_deleted(&self, key: &AddressKey) -> bool {
        self.notes().deleted.remove(key)
    }

    /// Called when every echo was read: the kernel queues events before it answers their request.
    pub(crate) fn forget_deleted(&self) {
        self.notes().deleted.clear();
    }
}
