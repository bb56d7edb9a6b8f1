//! Matches the answers to one send with its messages. Does no I/O.

use std::time::Duration;

use super::chunk::Chunk;
use crate::inbox::Incoming;
use crate::uapi::{NLMSG_ERROR, NLMSG_MIN_TYPE};
use crate::{Error, Message, Refusal, Result};

/// What became of one message.
#[derive(Debug)]
pub enum Answer<'a> {
    /// The kernel sent this back about it: the object as installed, or what was asked for. More may follow.
    Reply(Message<'a>),
    /// It was done.
    Done,
    /// It was not done, and this is why.
    Refused(Refusal),
    /// The answer was lost. It may have been done or not: look.
    Unknown,
}

/// How far the answers to one send have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The last message is not answered yet.
    Waiting,
    /// Something was lost, perhaps that very answer: what is left is in the queue already.
    Draining,
    /// The last message is answered, and nothing was lost.
    Whole,
    /// Nothing more will come, and something was lost.
    Partial,
}

/// One send that waits for its answers.
#[derive(Debug)]
pub(super) struct Exchange<'a> {
    chunk: &'a Chunk,
    timeout: Duration,
    refused: &'a mut Vec<(usize, Refusal)>,
    stage: Stage,
}

impl<'a> Exchange<'a> {
    /// Waits for the answers to `chunk`; keeps refusals in `refused`.
    pub(super) fn new(
        chunk: &'a Chunk,
        timeout: Duration,
        refused: &'a mut Vec<(usize, Refusal)>,
    ) -> Self {
        Self { chunk, timeout, refused, stage: Stage::Waiting }
    }

    /// Whether nothing more is to be waited for.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Whole | Stage::Partial)
    }

    /// How long to wait for the next answer.
    pub(super) fn patience(&self) -> Duration {
        if self.stage == Stage::Draining { Duration::ZERO } else { self.timeout }
    }

    /// Takes in what was received.
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
        // Another number: a late answer to something that was given up.
        let Some(place) = self.chunk.place(message.seq) else { return Ok(()) };
        match message.kind {
            NLMSG_ERROR => self.take_verdict(place, &message)?,
            NLMSG_MIN_TYPE.. => answers(place, Answer::Reply(message)),
            _ => {}
        }
        Ok(())
    }

    fn take_verdict(&mut self, place: usize, message: &Message<'_>) -> Result<()> {
        let refusal = Refusal::of_error(message)?;
        self.refused.extend(refusal.map(|refusal| (place, refusal)));
        if place + 1 == self.chunk.count {
            let is_lossy = self.stage == Stage::Draining;
            self.stage = if is_lossy { Stage::Partial } else { Stage::Whole };
        }
        Ok(())
    }

    /// Answers for every message: what was refused by name, the others done, or unknown if anything was lost.
    pub(super) fn settle(self, answers: &mut dyn FnMut(usize, Answer<'_>)) {
        // The kernel answers in order and once. Should it ever not, no refusal may pass for done.
        self.refused.sort_by_key(|(place, _)| *place);
        self.refused.dedup_by_key(|(place, _)| *place);
        let mut refused = self.refused.drain(..).peekable();
        for place in 0..self.chunk.count {
            let answer = match refused.next_if(|(refused, _)| *refused == place) {
                Some((_, refusal)) => Answer::Refused(refusal),
                None if self.stage == Stage::Whole => Answer::Done,
                None => Answer::Unknown,
            };
            answers(place, answer);
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

    /// The bytes of a verdict on the message at `place`.
    fn verdict(place: u32, status: i32) -> Vec<u8> {
        let mut batch = Batch::new();
        let mut message = batch.message(NLMSG_ERROR, 0);
        message.fixed(&status.to_ne_bytes()).fixed(&[0; 16]);
        message.finish().unwrap();
        crate::batch::stamp(batch.bytes_mut(), u32::MAX.wrapping_add(place), |flags| flags);
        // The request that the verdict quotes is as long as its header.
        batch.bytes_mut()[20..24].copy_from_slice(&16_u32.to_ne_bytes());
        batch.bytes().to_vec()
    }

    /// The final answers, one letter each, after these verdicts and that.
    fn settled(verdicts: &[(u32, i32)], then: Option<Incoming<'_>>) -> (String, bool) {
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
        for (place, status) in verdicts {
            let bytes = verdict(*place, *status);
            exchange.take(Incoming::Messages(Messages::new(&bytes)), &mut note).unwrap();
        }
        let is_over = exchange.is_over();
        exchange.settle(&mut note);
        (answers, is_over)
    }

    #[test]
    fn the_ack_of_the_last_speaks_for_all_that_were_not_refused() {
        assert_eq!(settled(&[(3, 0)], None), ("dddd".into(), true));
        assert_eq!(settled(&[(1, -22), (3, 0)], None), ("dxdd".into(), true));
        assert_eq!(settled(&[(0, -22), (3, -22)], None), ("xddx".into(), true));
    }

    #[test]
    fn refusals_out_of_order_or_twice_never_pass_for_done() {
        assert_eq!(settled(&[(2, -22), (0, -22), (2, -22), (3, 0)], None), ("xdxd".into(), true));
    }

    #[test]
    fn without_the_answer_of_the_last_the_others_are_unknown() {
        assert_eq!(settled(&[(1, -22)], None), ("?x??".into(), false));
    }

    #[test]
    fn a_loss_makes_unknown_what_was_not_refused_even_with_the_last_ack() {
        let lost = || Some(Incoming::Lost);
        assert_eq!(settled(&[(1, -22), (3, 0)], lost()), ("?x??".into(), true));
        let cut = Some(Incoming::Truncated(TRUNCATED));
        assert_eq!(settled(&[(3, 0)], cut), ("????".into(), true));
    }

    #[test]
    fn late_answers_to_something_else_are_passed_over() {
        assert_eq!(settled(&[(4, -22), (u32::MAX, -22)], None), ("????".into(), false));
    }

    #[test]
    fn silence_is_a_timeout_but_the_end_of_the_queue_after_a_loss() {
        let mut refused = Vec::new();
        let mut exchange = Exchange::new(&CHUNK, TIMEOUT, &mut refused);
        assert_eq!(exchange.patience(), TIMEOUT);
        let timeout = exchange.take(Incoming::Nothing, &mut |_, _| {}).unwrap_err();
        assert!(matches!(timeout, Error::Timeout(TIMEOUT)));
        exchange.take(Incoming::Lost, &mut |_, _| {}).unwrap();
        assert_eq!(exchange.patience(), Duration::ZERO);
        exchange.take(Incoming::Nothing, &mut |_, _| {}).unwrap();
        assert!(exchange.is_over());
    }
}
