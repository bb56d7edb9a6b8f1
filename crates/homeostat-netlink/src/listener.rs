//! Receives multicast events. They are hints: events may be lost, and [`Event::Lost`] asks for a resync.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use homeostat_netns::Netns;

use crate::inbox::{Inbox, Incoming};
use crate::{Family, Group, Message, Options, Result, Socket};

/// Events come one or few at a time; a link with many functions may need more room than this.
const ROOM: usize = 64 << 10;
const MOST_ROOM: usize = 1 << 20;

#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A change. Its `port` is the socket whose request caused it, directly or as a side effect.
    Message(Message<'a>),
    /// Events were dropped, and it is unknown which: resync.
    Lost,
}

/// A subscription to multicast groups.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    inbox: Inbox,
}

impl Listener {
    /// Subscribes in the calling thread's namespace. From then on no event is lost without [`Event::Lost`].
    pub fn open(family: Family, groups: &[Group], options: &Options) -> Result<Self> {
        Self::subscribe(Socket::open(family, options)?, groups)
    }

    /// Subscribes in another namespace, and keeps it alive as long as the listener lives.
    pub fn open_in(
        netns: &Netns,
        family: Family,
        groups: &[Group],
        options: &Options,
    ) -> Result<Self> {
        Self::subscribe(Socket::open_in(netns, family, options)?, groups)
    }

    fn subscribe(socket: Socket, groups: &[Group]) -> Result<Self> {
        // The socket has its filter already, so no unfiltered event can be queued.
        groups.iter().try_for_each(|group| socket.join(*group))?;
        Ok(Self { socket, inbox: Inbox::new(ROOM, MOST_ROOM) })
    }

    /// Subscribes to one more group. Earlier events of it are not delivered.
    pub fn join(&self, group: Group) -> Result<()> {
        self.socket.join(group)
    }

    #[must_use]
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Calls `each` with the events of one datagram, without waiting; false if there is none.
    pub fn receive(&mut self, each: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        self.receive_within(Duration::ZERO, each)
    }

    /// Calls `each` with the events of one datagram; false if none arrived in time.
    pub fn receive_within(
        &mut self,
        timeout: Duration,
        each: &mut dyn FnMut(Event<'_>),
    ) -> Result<bool> {
        match self.inbox.receive(&self.socket, timeout)? {
            Incoming::Nothing => return Ok(false),
            Incoming::Messages(messages) => {
                for message in messages {
                    each(Event::Message(message?));
                }
            }
            Incoming::Truncated(_) => each(Event::Lost),
            Incoming::Lost => {
                self.drain()?;
                each(Event::Lost);
            }
        }
        Ok(true)
    }

    /// Quirk `deaf-until-empty` (Linux 6.18): after a loss the kernel silently drops every further event until
    /// the queue has been empty once. So the queue is emptied before the loss is reported: the resync that
    /// follows then misses no event that comes after it.
    fn drain(&mut self) -> Result<()> {
        // A full queue takes no events; the limit is for one that fills again while it is emptied.
        const MOST: usize = 1 << 17;
        for _ in 0..MOST {
            if matches!(self.inbox.receive(&self.socket, Duration::ZERO)?, Incoming::Nothing) {
                break;
            }
        }
        Ok(())
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_fd().as_raw_fd()
    }
}
