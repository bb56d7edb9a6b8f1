//! Matches the answers to one send with its messages. Does no I/O.

use std::time::Duration;

use super::chunk::Chunk;
use crate::inbox::Incoming;
use crate::uapi::{NLMSG_ERROR, NLMSG_MIN_TYPE};
use crate::{Error, Message, Refusal, Result};

/// The kernel's answer to one message.
#[derive(Debug)]
pub enum Answer<'a> {
    /// The kernel sent this back about it: the object as installed, or what was asked for. More may follow.
    Reply(Message<'a>),
    Done,
    /// It was not done.
    Refused(Refusal),
    /// The answer was lost. It may have been done or not; only a read can show it.
    Unknown,
}

/// How far the answers to one send have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The last message is not answered yet.
    Waiting,
    /// An answer was lost, perhaps the last one. The remaining answers are in the queue already.
    Draining,
    /// The last message is answered, and nothing was lost.
    Whole,
    /// The queue is empty or the last message is answered, but an answer was lost.
    Partial,
}

/// One send and the answers to it so far.
#[derive(Debug)]
pub(super) struct Exchange<'a> {
    chunk: &'a Chunk,
    timeout: Duration,
    refused: &'a mut Vec<(usize, Refusal)>,
    stage: Stage,
}

impl<'a> Exchange<'a> {
    /// Collects refusals in `refused`, so that its memory is reused.
    pub(super) fn new(
        chunk: &'a Chunk,
        timeout: Duration,
        refused: &'a mut Vec<(usize, Refusal)>,
    ) -> Self {
        Self { chunk, timeout, refused, stage: Stage::Waiting }
    }

    /// Whether no more answers are expected.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Whole | Stage::Partial)
    }

    /// How long to wait for the next answer.
    pub(super) fn timeout(&self) -> Duration {
        if self.stage == Stage::Draining { Duration::ZERO } else { self.timeout }
    }

    pub(super) fn take(
        &mut self,
        incoming: Incoming<'_>,
        answers: &mut dyn FnMut(usize, Answer<'_>),
    ) -> Result<()> {
        match incoming {
            Incoming::Messages(mut messages) => {
                return messages.try_for_each(|message| self.take_message(message?, answers));
            }
            Incoming::Lost | Incoming::Truncated(_) => self.stage = Stage::Draining,
            Incoming::Nothing if self.stage == Stage::Draining => self.stage = Stage::Partial,
            Incoming::Nothing => return Err(Error::Timeout(self.timeout)),
        }
        Ok(())
    }

    fn take_message(
        &mut self,
        message: Message<'_>,
        answers: &mut dyn FnMut(usize, Answer<'_>),
    ) -> Result<()> {
        // Another sequence number: a late answer to a request that timed out.
        let Some(index) = self.chunk.index_of(message.seq) else { return Ok(()) };
        match message.kind {
            NLMSG_ERROR => self.take_status(index, &message)?,
            NLMSG_MIN_TYPE.. => answers(index, Answer::Reply(message)),
            _ => {}
        }
        Ok(())
    }

    fn take_status(&mut self, index: usize, message: &Message<'_>) -> Result<()> {
        let refusal = Refusal::of_error(message)?;
        self.refused.extend(refusal.map(|refusal| (index, refusal)));
        if index + 1 == self.chunk.count {
            let is_lossy = self.stage == Stage::Draining;
            self.stage = if is_lossy { Stage::Partial } else { Stage::Whole };
        }
        Ok(())
    }

    /// Reports on every message: refused; or else done, or unknown if any answer was lost.
    pub(super) fn conclude(self, answers: &mut dyn FnMut(usize, Answer<'_>)) {
        // The kernel answers in order and once. If it ever does not, a refusal must still not be reported as done.
        self.refused.sort_by_key(|(index, _)| *index);
        self.refused.dedup_by_key(|(index, _)| *index);
        let mut refused = self.refused.drain(..).peekable();
        for index in 0..self.chunk.count {
            let answer = match refused.next_if(|(refused, _)| *refused == index) {
                Some((_, refusal)) => Answer::Refused(refusal),
                None if self.stage == Stage::Whole => Answer::Done,
                None => Answer::Unknown,
            };
            answers(index, answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::Truncated;
    use crate::{Batch, Errno, Messages};

    const CHUNK: Chunk = Chunk { start: 0, end: 0, first_seq: u32::MAX, count: 4 };
    const TIMEOUT: Duration = Duration::from_secs(1);
    const TRUNCATED: Truncated = Truncated { needed: 2, room: 1, has_grown: false };

    /// The bytes of an ack or error for the message at `index`.
    fn status_message(index: u32, status: i32) -> Vec<u8> {
        let mut batch = Batch::new();
        let mut message = batch.message(NLMSG_ERROR, 0);
        message.fixed(&status.to_ne_bytes()).fixed(&[0; 16]);
        message.finish().unwrap();
        crate::batch::stamp(batch.bytes_mut(), u32::MAX.wrapping_add(index), |flags| flags);
        // The request that it quotes is as long as its header.
        batch.bytes_mut()[20..24].copy_from_slice(&16_u32.to_ne_bytes());
        batch.bytes().to_vec()
    }

    /// The final answers, one letter each, after `then` and these statuses.
    fn concluded(statuses: &[(u32, i32)], then: Option<Incoming<'_>>) -> (String, bool) {
        let mut refused = Vec::new();
        let mut exchange = Exchange::new(&CHUNK, TIMEOUT, &mut refused);
        let mut answers = String::new();
        let mut note = |_, answer: Answer<'_>| {
            answers.push(match answer {
                Answer::Reply(_) => 'r',
                Answer::Done => 'd',
                Answer::Refused(refusal) => {
                    assert_eq!(refusal.errno, Errno::INVAL);
                    'x'
                }
                Answer::Unknown => '?',
            });
        };
        if let Some(incoming) = then {
            exchange.take(incoming, &mut note).unwrap();
        }
        for (index, status) in statuses {
            let bytes = status_message(*index, *status);
            exchange.take(Incoming::Messages(Messages::new(&bytes)), &mut note).unwrap();
        }
        let is_over = exchange.is_over();
        exchange.conclude(&mut note);
        (answers, is_over)
    }

    #[test]
    fn the_ack_of_the_last_speaks_for_all_that_were_not_refused() {
        assert_eq!(concluded(&[(3, 0)], None), ("dddd".into(), true));
        assert_eq!(concluded(&[(1, -22), (3, 0)], None), ("dxdd".into(), true));
        assert_eq!(concluded(&[(0, -22), (3, -22)], None), ("xddx".into(), true));
    }

    #[test]
    fn refusals_out_of_order_or_twice_never_pass_for_done() {
        assert_eq!(concluded(&[(2, -22), (0, -22), (2, -22), (3, 0)], None), ("xdxd".into(), true));
    }

    #[test]
    fn without_the_answer_of_the_last_the_others_are_unknown() {
        assert_eq!(concluded(&[(1, -22)], None), ("?x??".into(), false));
    }

    #[test]
    fn a_loss_makes_unknown_what_was_not_refused_even_with_the_last_ack() {
        let lost = || Some(Incoming::Lost);
        assert_eq!(concluded(&[(1, -22), (3, 0)], lost()), ("?x??".into(), true));
        let cut = Some(Incoming::Truncated(TRUNCATED));
        assert_eq!(concluded(&[(3, 0)], cut), ("????".into(), true));
    }

    #[test]
    fn late_answers_to_something_else_are_passed_over() {
        assert_eq!(concluded(&[(4, -22), (u32::MAX, -22)], None), ("????".into(), false));
    }

    #[test]
    fn silence_is_a_timeout_but_the_end_of_the_queue_after_a_loss() {
        let mut refused = Vec::new();
        let mut exchange = Exchange::new(&CHUNK, TIMEOUT, &mut refused);
        assert_eq!(exchange.timeout(), TIMEOUT);
        let timeout = exchange.take(Incoming::Nothing, &mut |_, _| {}).unwrap_err();
        assert!(matches!(timeout, Error::Timeout(TIMEOUT)));
        exchange.take(Incoming::Lost, &mut |_, _| {}).unwrap();
        assert_eq!(exchange.timeout(), Duration::ZERO);
        exchange.take(Incoming::Nothing, &mut |_, _| {}).unwrap();
        assert!(exchange.is_over());
    }
}
