//! Dumps: lists of all objects of a kind. A dump is complete or an error, never silently partial.

use std::time::Duration;

use super::Connection;
use crate::batch::stamp;
use crate::inbox::{Incoming, Truncated};
use crate::uapi::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_MIN_TYPE, NLMSG_OVERRUN,
};
use crate::{Batch, Error, Message, Messages, Refusal, Result};

/// A part of a dump. It is valid only once [`Connection::dump`] has returned without an error.
#[derive(Clone, Copy, Debug)]
pub enum Dumped<'a> {
    Object(Message<'a>),
    /// A change interrupted the dump: discard everything received so far.
    Restart,
}

/// The state of one attempt.
#[derive(Debug, Default)]
struct Progress {
    seq: u32,
    is_over: bool,
    /// A change came while it was made.
    is_interrupted: bool,
    is_incomplete: bool,
    truncated: Option<Truncated>,
}

impl Connection {
    /// Requests all objects that the one message in `request` selects and calls `each` with them.
    ///
    /// A dump that a change interrupted, or that did not fit into the buffer, is read to its end (a request
    /// before that gives EBUSY) and tried again, a limited number of times.
    pub fn dump(&mut self, request: &mut Batch, each: &mut dyn FnMut(Dumped<'_>)) -> Result<()> {
        self.dump_until(request, each, |progress| !progress.is_interrupted)
    }

    /// The same, but a dump that a change interrupted counts. For callers that find out in another way whether the
    /// change concerns them.
    pub fn dump_despite_changes(
        &mut self,
        request: &mut Batch,
        each: &mut dyn FnMut(Dumped<'_>),
    ) -> Result<()> {
        self.dump_until(request, each, |_| true)
    }

    fn dump_until(
        &mut self,
        request: &mut Batch,
        each: &mut dyn FnMut(Dumped<'_>),
        counts: fn(&Progress) -> bool,
    ) -> Result<()> {
        let tries = self.limits.dump_tries.max(1);
        for attempt in 1..=tries {
            if attempt > 1 {
                each(Dumped::Restart);
            }
            let progress = self.dump_once(request, each)?;
            match progress.truncated {
                Some(Truncated { needed, room, has_grown: false }) => {
                    return Err(Error::Truncated { needed, room });
                }
                None if counts(&progress) && !progress.is_incomplete => return Ok(()),
                _ => {}
            }
        }
        Err(Error::Torn { tries })
    }

    fn dump_once(
        &mut self,
        request: &mut Batch,
        each: &mut dyn FnMut(Dumped<'_>),
    ) -> Result<Progress> {
        if self.is_dead {
            return Err(Error::Dead);
        }
        let mut progress = Progress { seq: self.next_seq, ..Progress::default() };
        self.next_seq = self.next_seq.wrapping_add(1);
        stamp(request.bytes_mut(), progress.seq, |flags| flags | NLM_F_DUMP);
        self.before_each_call.run();
        self.socket.send(request.bytes())?;
        let read = self.read_dump(&mut progress, each);
        // After an unfinished dump the kernel answers every further one with EBUSY.
        self.is_dead = !progress.is_over;
        read.map(|()| progress)
    }

    fn read_dump(
        &mut self,
        progress: &mut Progress,
        each: &mut dyn FnMut(Dumped<'_>),
    ) -> Result<()> {
        while !progress.is_over {
            let timeout = progress.timeout(self.limits.timeout);
            self.before_each_call.run();
            match self.inbox.receive(&self.socket, timeout)? {
                Incoming::Messages(messages) => progress.take(messages, each)?,
                Incoming::Truncated(truncated) => progress.truncated = Some(truncated),
                Incoming::Lost => progress.is_incomplete = true,
                // The end may have been in the part that was truncated.
                Incoming::Nothing if progress.truncated.is_some() => progress.is_over = true,
                Incoming::Nothing => return Err(Error::Timeout(self.limits.timeout)),
            }
        }
        Ok(())
    }
}

impl Progress {
    /// The kernel queues the next part while one is received, so after a truncated part no wait is needed.
    fn timeout(&self, timeout: Duration) -> Duration {
        if self.truncated.is_some() { Duration::ZERO } else { timeout }
    }

    fn take(&mut self, messages: Messages<'_>, each: &mut dyn FnMut(Dumped<'_>)) -> Result<()> {
        for message in messages {
            let message = message?;
            if message.seq == self.seq {
                self.take_message(message, each)?;
            }
        }
        Ok(())
    }

    fn take_message(
        &mut self,
        message: Message<'_>,
        each: &mut dyn FnMut(Dumped<'_>),
    ) -> Result<()> {
        self.is_interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
        match message.kind {
            NLMSG_DONE => self.end(Refusal::of_done(&message)),
            NLMSG_ERROR => self.end(Refusal::of_error(&message)?),
            NLMSG_OVERRUN => {
                self.is_incomplete = true;
                Ok(())
            }
            NLMSG_MIN_TYPE.. if !self.is_incomplete && self.truncated.is_none() => {
                each(Dumped::Object(message));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, refusal: Option<Refusal>) -> Result<()> {
        self.is_over = true;
        refusal.map_or(Ok(()), |refusal| Err(Error::Refused(refusal)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Port;
    use crate::uapi::NLMSG_NOOP;

    const SEQ: u32 = 7;
    const OBJECT: u16 = NLMSG_MIN_TYPE;

    fn message(kind: u16, flags: u16) -> Message<'static> {
        Message { kind, flags, seq: SEQ, port: Port::KERNEL, payload: &[0; 4] }
    }

    /// How many objects were reported, and whether the dump was interrupted or incomplete.
    fn read(messages: &[Message<'_>]) -> (usize, bool) {
        let mut progress = Progress { seq: SEQ, ..Progress::default() };
        let mut objects = 0;
        for message in messages {
            assert!(!progress.is_over, "nothing is read after the end");
            progress.take_message(*message, &mut |_| objects += 1).unwrap();
        }
        assert!(progress.is_over);
        (objects, progress.is_interrupted || progress.is_incomplete)
    }

    #[test]
    fn a_dump_ends_with_its_last_message() {
        let objects = [message(OBJECT, 0), message(NLMSG_NOOP, 0), message(OBJECT, 0)];
        assert_eq!(read(&[&objects[..], &[message(NLMSG_DONE, 0)]].concat()), (2, false));
    }

    #[test]
    fn a_dump_is_interrupted_by_the_flag_on_any_message() {
        let torn = message(OBJECT, NLM_F_DUMP_INTR);
        assert_eq!(
            read(&[message(OBJECT, 0), torn, message(OBJECT, 0), message(NLMSG_DONE, 0)]),
            (3, true)
        );
        assert_eq!(read(&[message(OBJECT, 0), message(NLMSG_DONE, NLM_F_DUMP_INTR)]), (1, true));
    }

    #[test]
    fn an_overrun_counts_as_torn() {
        assert_eq!(read(&[message(NLMSG_OVERRUN, 0), message(NLMSG_DONE, 0)]), (0, true));
    }

    #[test]
    fn messages_of_another_dump_are_ignored() {
        let mut batch = Batch::new();
        batch.message(OBJECT, 0).finish().unwrap();
        batch.message(NLMSG_DONE, 0).finish().unwrap();
        let mut progress = Progress { seq: SEQ, ..Progress::default() };
        let messages = Messages::new(batch.bytes());
        progress.take(messages, &mut |_| panic!("not ours")).unwrap();
        assert!(!progress.is_over);
    }

    #[test]
    fn after_a_truncated_part_the_end_is_not_waited_for() {
        let mut progress = Progress::default();
        assert_eq!(progress.timeout(Duration::MAX), Duration::MAX);
        progress.truncated = Some(Truncated { needed: 2, room: 1, has_grown: true });
        assert_eq!(progress.timeout(Duration::MAX), Duration::ZERO);
    }
}
