//! Dumps: lists of all objects of a kind. A dump is complete or an error, never silently partial.

use std::time::Duration;

use crate::inbox::Truncated;
use crate::uapi::{NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_MIN_TYPE, NLMSG_OVERRUN};
use crate::{Error, Message, Messages, Refusal, Result};

/// A part of a dump. It is valid only once [`Connection::dump`](super::Connection::dump) has returned without an error.
#[derive(Clone, Copy, Debug)]
pub enum Dumped<'a> {
    Object(Message<'a>),
    /// A change interrupted the dump: discard everything received so far.
    Restart,
}

/// The state of one attempt.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) seq: u32,
    pub(super) is_over: bool,
    /// A change came while it was made.
    pub(super) is_interrupted: bool,
    pub(super) is_incomplete: bool,
    pub(super) truncated: Option<Truncated>,
}

impl Progress {
    /// The kernel queues the next part while one is received, so after a truncated part no wait is needed.
    pub(super) fn timeout(&self, timeout: Duration) -> Duration {
        if self.truncated.is_some() { Duration::ZERO } else { timeout }
    }

    pub(super) fn take(
        &mut self,
        messages: Messages<'_>,
        each: &mut dyn FnMut(Dumped<'_>),
    ) -> Result<()> {
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
    use crate::uapi::NLMSG_NOOP;
    use crate::{Batch, Port};

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
