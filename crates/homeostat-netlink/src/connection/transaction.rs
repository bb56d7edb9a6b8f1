//! Commits messages of nftables all together or not at all.

use std::time::Duration;

use super::Connection;
use super::chunk::{Chunk, Room};
use crate::batch::stamp;
use crate::inbox::Incoming;
use crate::uapi::{
    NFNL_BATCH_GENID, NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END, NFNL_SUBSYS_NFTABLES, NLM_F_ACK,
    NLMSG_ERROR,
};
use crate::{Batch, Error, Message, Messages, Refusal, Result};

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transacted {
    /// All of it was done.
    Done,
    /// Nothing of it was done.
    Refused {
        /// The place of the message that was refused; none, if it was the transaction itself.
        place: Option<usize>,
        /// Why.
        refusal: Refusal,
    },
    /// The answer was lost. All of it was done or nothing: look.
    Unknown,
}

/// What was heard of a transaction so far.
#[derive(Debug, Default)]
struct Heard {
    is_done: bool,
    is_lossy: bool,
    /// Only the first refusal is a cause; what follows it fails because of it.
    refused: Option<(usize, Refusal)>,
}

impl Connection {
    /// Commits the messages of `batch` in one send, if the ruleset still has this `generation`; without one,
    /// whatever it has. A batch without messages is done.
    pub fn transact(&mut self, batch: &Batch, generation: Option<u32>) -> Result<Transacted> {
        self.transact_told(batch, generation, &mut |_, _| {})
    }

    /// The same, and hands on what the kernel tells of messages with `NLM_F_ECHO`, each with the place of
    /// the message that it is about. It is told before the verdict, and means nothing without a good one.
    ///
    /// Quirk `elements-told-without-number` (Linux 6.18): what is told of elements has the sequence number
    /// zero, so that it comes without a place.
    pub fn transact_told(
        &mut self,
        batch: &Batch,
        generation: Option<u32>,
        told: &mut dyn FnMut(Option<usize>, Message<'_>),
    ) -> Result<Transacted> {
        if self.is_dead {
            return Err(Error::Dead);
        }
        if batch.is_empty() {
            return Ok(Transacted::Done);
        }
        let mut framed = framed(batch, generation)?;
        let Some(chunk) = Chunk::number(framed.bytes_mut(), 0, self.next_seq, Room::UNLIMITED)
        else {
            return Ok(Transacted::Done);
        };
        self.next_seq = chunk.last_seq().wrapping_add(1);
        let last = ask_for_ack(&mut framed);
        self.socket.make_send_room(framed.bytes().len());
        self.socket.send(framed.bytes())?;
        let heard = self.hear(&chunk, last, told)?;
        Ok(heard.verdict(chunk.count))
    }

    /// Waits until no transaction of anybody is under way: a commit that has moved the generation is done then.
    /// One without messages changes nothing and moves no generation, but has to wait for its turn.
    pub fn await_commit(&mut self) -> Result<()> {
        if self.is_dead {
            return Err(Error::Dead);
        }
        // Nothing in it asks for an answer: when it is sent it had its turn. Whoever may not begin a transaction
        // may ask for nothing else either, and is told so then.
        self.socket.send(framed(&Batch::new(), None)?.bytes())
    }

    /// The kernel has queued every answer when `send` returns.
    fn hear(
        &mut self,
        chunk: &Chunk,
        last: usize,
        told: &mut dyn FnMut(Option<usize>, Message<'_>),
    ) -> Result<Heard> {
        let mut heard = Heard::default();
        loop {
            let is_over = heard.is_done || heard.is_lossy || heard.refused.is_some();
            let patience = if is_over { Duration::ZERO } else { self.limits.timeout };
            match self.inbox.receive(&self.socket, patience)? {
                Incoming::Messages(messages) => heard.take(messages, (chunk, last), told)?,
                Incoming::Lost | Incoming::Truncated(_) => heard.is_lossy = true,
                Incoming::Nothing if is_over => return Ok(heard),
                Incoming::Nothing => return Err(Error::Timeout(self.limits.timeout)),
            }
        }
    }
}

/// The messages between the marks of a transaction.
fn framed(batch: &Batch, generation: Option<u32>) -> Result<Batch> {
    let [high, low] = NFNL_SUBSYS_NFTABLES.to_be_bytes();
    let mut framed = Batch::new();
    let mut begin = framed.message(NFNL_MSG_BATCH_BEGIN, 0);
    begin.fixed(&[0, 0, high, low]);
    if let Some(generation) = generation {
        begin.attr_be32(NFNL_BATCH_GENID, generation);
    }
    begin.finish()?;
    framed.append(batch);
    let mut end = framed.message(NFNL_MSG_BATCH_END, 0);
    end.fixed(&[0, 0, high, low]);
    end.finish()?;
    Ok(framed)
}

/// Asks for the ack of the last message inside, and says which that is.
///
/// Quirk `no-ack-for-the-end` (Linux 6.1): the mark that ends a transaction is never acknowledged,
/// whatever its flags; a message inside is, on all kernels.
fn ask_for_ack(framed: &mut Batch) -> usize {
    let count = framed.count();
    let bytes = framed.bytes_mut();
    let last = count.saturating_sub(2);
    let mut at = 0;
    for place in 0..count {
        let Some(message) = bytes.get_mut(at..) else { break };
        let Some(len) = message.first_chunk::<4>().map(|len| u32::from_ne_bytes(*len)) else {
            break;
        };
        at = at.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
        let Some(seq) = message.get(8..12).and_then(|seq| seq.first_chunk()).copied() else {
            break;
        };
        let is_last = place == last;
        stamp(message, u32::from_ne_bytes(seq), |flags| {
            if is_last { flags | NLM_F_ACK } else { flags & !NLM_F_ACK }
        });
    }
    last
}

impl Heard {
    fn take(
        &mut self,
        messages: Messages<'_>,
        (chunk, last): (&Chunk, usize),
        told: &mut dyn FnMut(Option<usize>, Message<'_>),
    ) -> Result<()> {
        for message in messages {
            let message = message?;
            let place = chunk.place(message.seq);
            if message.kind != NLMSG_ERROR && (place.is_some() || message.seq == 0) {
                // The mark that begins the transaction stands before all messages.
                told(place.and_then(|place| place.checked_sub(1)), message);
            }
            let Some(place) = place.filter(|_| message.kind == NLMSG_ERROR) else { continue };
            match Refusal::of_error(&message)? {
                Some(refusal) => self.refuse(place, refusal),
                None => self.is_done |= place == last,
            }
        }
        Ok(())
    }

    fn refuse(&mut self, place: usize, refusal: Refusal) {
        if self.refused.as_ref().is_none_or(|(first, _)| place < *first) {
            self.refused = Some((place, refusal));
        }
    }

    /// A refusal is the end of it, also if other answers were lost: one is enough to undo all.
    fn verdict(self, count: usize) -> Transacted {
        match self.refused {
            Some((place, refusal)) => {
                let place = place.checked_sub(1).filter(|place| place + 2 < count);
                Transacted::Refused { place, refusal }
            }
            None if self.is_done => Transacted::Done,
            None => Transacted::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Errno;

    fn refusal() -> Refusal {
        Refusal { errno: Errno::BUSY, text: None, offset: None }
    }

    #[test]
    fn only_the_last_message_inside_asks_for_an_ack() {
        let mut inside = Batch::new();
        for _ in 0..3 {
            inside.message(0x0a00, 0).finish().unwrap();
        }
        let mut framed = framed(&inside, Some(7)).unwrap();
        assert_eq!(ask_for_ack(&mut framed), 3);
        let messages: Vec<Message<'_>> =
            Messages::new(framed.bytes()).collect::<Result<_, _>>().unwrap();
        let acks: Vec<_> = messages.iter().map(|one| one.flags & NLM_F_ACK != 0).collect();
        assert_eq!(acks, [false, false, false, true, false]);
    }

    #[test]
    fn the_first_refusal_is_the_cause_and_a_loss_hides_it_not() {
        let mut heard = Heard { is_done: true, is_lossy: true, ..Heard::default() };
        heard.refuse(3, refusal());
        heard.refuse(2, refusal());
        heard.refuse(4, refusal());
        let expected = Transacted::Refused { place: Some(1), refusal: refusal() };
        assert_eq!(heard.verdict(6), expected);
    }

    #[test]
    fn a_refused_mark_refuses_the_transaction_itself() {
        for place in [0, 5] {
            let mut heard = Heard::default();
            heard.refuse(place, refusal());
            let expected = Transacted::Refused { place: None, refusal: refusal() };
            assert_eq!(heard.verdict(6), expected);
        }
    }

    #[test]
    fn without_an_answer_nobody_knows() {
        assert_eq!(Heard::default().verdict(3), Transacted::Unknown);
    }
}
