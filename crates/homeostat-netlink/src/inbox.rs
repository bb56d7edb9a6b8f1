//! The receive buffer. Grows, up to a limit, when a datagram does not fit.

use std::time::Duration;

use crate::socket::Received;
use crate::{Messages, Result, Socket};

/// The result of one receive.
#[derive(Debug)]
pub(crate) enum Incoming<'a> {
    /// One datagram.
    Messages(Messages<'a>),
    /// A datagram that did not fit. The buffer has grown for the next one unless it is at its limit.
    Truncated(Truncated),
    /// The queue was full and messages were dropped.
    Lost,
    /// Nothing arrived in time.
    Nothing,
}

/// A datagram that did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truncated {
    pub(crate) needed: usize,
    /// The size of the buffer.
    pub(crate) room: usize,
    /// Whether the buffer has grown to `needed`.
    pub(crate) has_grown: bool,
}

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

    /// Receives one datagram; waits for it up to `timeout`.
    pub(crate) fn receive(&mut self, socket: &Socket, timeout: Duration) -> Result<Incoming<'_>> {
        // Most answers are queued when `send` returns: trying first saves a poll.
        let mut received = socket.receive(&mut self.buffer)?;
        if received == Received::Nothing && !timeout.is_zero() && socket.wait(timeout)? {
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

    /// How many bytes have been received so far.
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
