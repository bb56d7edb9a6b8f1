//! The buffer that answers and events are received into. Grows when the kernel has more to say at once.

use std::time::Duration;

use crate::socket::Received;
use crate::{Messages, Result, Socket};

/// What one look into a socket's queue brought, as messages.
#[derive(Debug)]
pub(crate) enum Incoming<'a> {
    /// One datagram.
    Messages(Messages<'a>),
    /// A datagram that did not fit. The inbox has room for the next such one unless it is at its limit.
    Truncated(Truncated),
    /// The queue was full and something was dropped.
    Lost,
    /// Nothing came in time.
    Nothing,
}

/// A datagram that did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truncated {
    pub(crate) needed: usize,
    /// The room that there was.
    pub(crate) room: usize,
    /// Whether there is room for such a one from here on.
    pub(crate) has_grown: bool,
}

/// A receive buffer.
#[derive(Debug)]
pub(crate) struct Inbox {
    buffer: Vec<u8>,
    most: usize,
    received: u64,
}

impl Inbox {
    /// A buffer of `room` bytes that may grow up to `most`.
    pub(crate) fn new(room: usize, most: usize) -> Self {
        Self { buffer: vec![0; room], most, received: 0 }
    }

    /// Takes what is in the queue, or waits for it at most `patience`.
    pub(crate) fn receive(&mut self, socket: &Socket, patience: Duration) -> Result<Incoming<'_>> {
        // Most answers are there when `send` returns: looking first saves the second system call.
        let mut received = socket.receive(&mut self.buffer)?;
        if received == Received::Nothing && !patience.is_zero() && socket.wait(patience)? {
            received = socket.receive(&mut self.buffer)?;
        }
        Ok(match received {
            Received::Bytes(len) => {
                self.received += len as u64;
                Incoming::Messages(Messages::new(self.buffer.get(..len).unwrap_or_default()))
            }
            Received::Truncated { needed } => Incoming::Truncated(self.grow(needed)),
            Received::Lost => Incoming::Lost,
            Received::Nothing => Incoming::Nothing,
        })
    }

    /// How many bytes came so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    fn grow(&mut self, needed: usize) -> Truncated {
        let room = self.buffer.len();
        let has_grown = needed <= self.most;
        if has_grown {
            self.buffer.resize(needed.next_power_of_two().min(self.most), 0);
        }
        Truncated { needed, room, has_grown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inbox_grows_to_its_limit_and_no_further() {
        let mut inbox = Inbox::new(16, 1000);
        assert_eq!(inbox.grow(600), Truncated { needed: 600, room: 16, has_grown: true });
        assert_eq!(inbox.buffer.len(), 1000);
        assert_eq!(inbox.grow(1001), Truncated { needed: 1001, room: 1000, has_grown: false });
        assert_eq!(inbox.buffer.len(), 1000);
    }
}
