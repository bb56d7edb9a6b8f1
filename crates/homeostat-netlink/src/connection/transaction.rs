//! Commits messages of nftables all together or not at all.

use super::chunk::{Chunk, Room};
use crate::batch::stamp;
use crate::uapi::{
    NFNL_BATCH_GENID, NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END, NFNL_SUBSYS_NFTABLES, NLMSG_ERROR,
    nlmsghdr,
};
use crate::{Batch, Message, Messages, Refusal, Result};

/// The result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transacted {
    Done,
    /// Nothing was changed.
    Refused {
        /// The index of the message that was refused; none, if it was the transaction itself.
        place: Option<usize>,
        refusal: Refusal,
    },
    /// The answer was lost. Either all of it was done or nothing; only a read can show it.
    Unknown,
}

/// The answers to a transaction so far.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) is_done: bool,
    pub(super) is_lossy: bool,
    /// The first refusal is the cause; later ones are its consequences.
    pub(super) refused: Option<(usize, Refusal)>,
}

/// The messages between `NFNL_MSG_BATCH_BEGIN` and `NFNL_MSG_BATCH_END`.
pub(super) fn framed(batch: &Batch, generation: Option<u32>) -> Result<Batch> {
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

/// The length of `NFNL_MSG_BATCH_END`.
const END_LEN: usize = size_of::<nlmsghdr>() + 4;

/// Numbers all messages, and requests an ack for the last one inside.
///
/// Quirk `no-ack-for-the-end` (Linux 6.1): `NFNL_MSG_BATCH_END` is never acknowledged, whatever its flags; a
/// message inside is, on all kernels.
pub(super) fn number(framed: &mut Batch, seq: u32) -> Option<Chunk> {
    let end_at = framed.bytes().len().checked_sub(END_LEN)?;
    let (inside, end) = framed.bytes_mut().split_at_mut_checked(end_at)?;
    let mut chunk = Chunk::number(inside, 0, seq, Room::UNLIMITED)?;
    chunk.count += 1;
    stamp(end, chunk.last_seq(), |flags| flags);
    Some(chunk)
}

impl Answers {
    pub(super) fn take(
        &mut self,
        messages: Messages<'_>,
        chunk: &Chunk,
        echoes: &mut dyn FnMut(Option<usize>, Message<'_>),
    ) -> Result<()> {
        for message in messages {
            let message = message?;
            let index = chunk.index_of(message.seq);
            if message.kind != NLMSG_ERROR && (index.is_some() || message.seq == 0) {
                // NFNL_MSG_BATCH_BEGIN has index 0 of the chunk.
                echoes(index.and_then(|index| index.checked_sub(1)), message);
            }
            let Some(index) = index.filter(|_| message.kind == NLMSG_ERROR) else { continue };
            match Refusal::of_error(&message)? {
                Some(refusal) => self.refuse(index, refusal),
                None => self.is_done |= index + 2 == chunk.count,
            }
        }
        Ok(())
    }

    fn refuse(&mut self, index: usize, refusal: Refusal) {
        if self.refused.as_ref().is_none_or(|(first, _)| index < *first) {
            self.refused = Some((index, refusal));
        }
    }

    /// One refusal undoes the whole transaction, so it counts even if other answers were lost.
    pub(super) fn result(self, count: usize) -> Transacted {
        match self.refused {
            Some((index, refusal)) => {
                let place = index.checked_sub(1).filter(|index| index + 2 < count);
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
    use crate::uapi::NLM_F_ACK;

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
        assert_eq!(number(&mut framed, 40).unwrap().count, 5);
        let messages: Vec<Message<'_>> =
            Messages::new(framed.bytes()).collect::<Result<_, _>>().unwrap();
        let acks: Vec<_> = messages.iter().map(|one| one.flags & NLM_F_ACK != 0).collect();
        assert_eq!(acks, [false, false, false, true, false]);
        assert!(messages.iter().map(|one| one.seq).eq(40..45));
    }

    #[test]
    fn the_first_refusal_is_the_cause_even_if_answers_were_lost() {
        let mut answers = Answers { is_done: true, is_lossy: true, ..Answers::default() };
        answers.refuse(3, refusal());
        answers.refuse(2, refusal());
        answers.refuse(4, refusal());
        let expected = Transacted::Refused { place: Some(1), refusal: refusal() };
        assert_eq!(answers.result(6), expected);
    }

    #[test]
    fn a_refused_begin_or_end_refuses_the_transaction_itself() {
        for place in [0, 5] {
            let mut answers = Answers::default();
            answers.refuse(place, refusal());
            let expected = Transacted::Refused { place: None, refusal: refusal() };
            assert_eq!(answers.result(6), expected);
        }
    }

    #[test]
    fn without_an_answer_the_result_is_unknown() {
        assert_eq!(Answers::default().result(3), Transacted::Unknown);
    }
}
