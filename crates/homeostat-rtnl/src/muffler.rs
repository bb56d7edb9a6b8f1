//! What the queue of events is for, as a filter in the kernel; and a muffler for the time in which we
//! make so many routes ourselves that their echoes alone would make it overflow.
//!
//! What is kept out under the muffler is no hint, but the shadow goes by it: the look after it has to
//! be at everything, which it is after so many writes.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use homeostat_netlink::uapi::{NLM_F_REPLACE, RTM_DELROUTE, RTM_NEWROUTE};
use homeostat_netlink::{Error, Filter, Instruction, Listener, Port};

use crate::number::Protocol;

/// Where a message says what it is, how, who caused it, and whose route it is about.
const KIND_AT: u32 = 4;
const FLAGS_AT: u32 = 6;
const PORT_AT: u32 = 12;
const PROTOCOL_AT: u32 = 16 + 5;

/// Keeps the churn of foreign routes out of the queue: a routing daemon's thousands a second would
/// cost us for nothing. What may have been put in the place of ours is let through.
const fn program(ours: Protocol) -> [Instruction; 9] {
    let (new, del) = (Filter::host_u16(RTM_NEWROUTE), Filter::host_u16(RTM_DELROUTE));
    [
        Instruction::load_u16(KIND_AT),
        Instruction::if_equal(new, 1, 0),
        Instruction::if_equal(del, 0, 4),
        Instruction::load_u8(PROTOCOL_AT),
        Instruction::if_equal(ours.0 as u32, 2, 0),
        Instruction::load_u16(FLAGS_AT),
        Instruction::if_any_bit(Filter::host_u16(NLM_F_REPLACE), 0, 1),
        Instruction::keep(),
        Instruction::discard(),
    ]
}

/// What goes before the program to keep out the routes that our own writer makes.
const fn muffled(ours: Protocol, writer: Port) -> [Instruction; 8] {
    [
        Instruction::load_u16(KIND_AT),
        Instruction::if_equal(Filter::host_u16(RTM_NEWROUTE), 0, 6),
        Instruction::load_u8(PROTOCOL_AT),
        Instruction::if_equal(ours.0 as u32, 0, 4),
        Instruction::load_u32(PORT_AT),
        Instruction::if_equal(Filter::host_u32(writer.0), 0, 2),
        Instruction::load_u16(FLAGS_AT),
        // Past the program, to its end.
        Instruction::if_any_bit(Filter::host_u16(NLM_F_REPLACE), 0, 8),
    ]
}

/// The filter of every subscription.
pub(crate) fn filter(ours: Protocol) -> Filter {
    Filter::new(program(ours))
}

/// The filter of one subscription, for its reader and for the writer beside it.
#[derive(Debug)]
pub(crate) struct Muffler {
    socket: OwnedFd,
    ours: Protocol,
    is_on: AtomicBool,
    /// Whether anything may have been kept out since it was put on.
    has_kept: AtomicBool,
}

impl Muffler {
    pub(crate) fn of(listener: &Listener, ours: Protocol) -> Result<Arc<Self>, Error> {
        let socket = listener.as_fd().try_clone_to_owned();
        let socket = socket.map_err(|source| Error::Open { source })?;
        let [is_on, has_kept] = [false; 2].map(AtomicBool::new);
        Ok(Arc::new(Muffler { socket, ours, is_on, has_kept }))
    }

    /// This writer is about to make many routes. Tells whether something was kept out before.
    pub(crate) fn put_on(&self, writer: Port) -> bool {
        let program = [&muffled(self.ours, writer)[..], &program(self.ours)].concat();
        // Said first: from the first message that is kept out, a look has to know of it.
        self.is_on.store(true, Ordering::SeqCst);
        let had_kept = self.has_kept.swap(true, Ordering::SeqCst);
        // Where it cannot be had, the queue overflows, and says so.
        let _ = Filter::new(program).attach(&self.socket);
        had_kept
    }

    /// The kernel refused all routes that were to be made: there was nothing to keep out.
    pub(crate) fn kept_nothing(&self) {
        self.has_kept.store(false, Ordering::SeqCst);
    }

    /// Everything is heard again. Tells whether something was kept out.
    pub(crate) fn take_off(&self) -> Result<bool, Error> {
        if !self.is_on.load(Ordering::SeqCst) {
            return Ok(false);
        }
        filter(self.ours).attach(&self.socket)?;
        self.is_on.store(false, Ordering::SeqCst);
        Ok(self.has_kept.swap(false, Ordering::SeqCst))
    }
}
