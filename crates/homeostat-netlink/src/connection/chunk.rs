//! Splits a batch into sends whose answers fit into the receive buffer. Pure.

use crate::ReceiveBuffer;
use crate::batch::stamp;
use crate::uapi::{NLM_F_ACK, NLM_F_ECHO};

/// Quirk `256-answers` (Linux 6.18): a default receive buffer of 212,992 bytes holds 256 acks or errors. The
/// kernel drops further answers to the same send with ENOBUFS, although it has processed the messages.
const ANSWER_COST: usize = 832;
const MOST_UNFORCED: usize = 256;
/// A reply carries a whole object. For a link the kernel allocates more than four times as much as for an ack.
const REPLY_COST: usize = 8 * ANSWER_COST;

/// What fits into one send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    bytes: usize,
    cost: usize,
}

impl Room {
    /// For transactions, which cannot be split.
    pub(crate) const UNLIMITED: Self = Self { bytes: usize::MAX, cost: usize::MAX };

    /// At most `bytes` per send, and as many messages as `buffer` can hold answers to.
    pub(crate) fn new(bytes: usize, buffer: ReceiveBuffer) -> Self {
        let unforced = buffer.bytes.min(MOST_UNFORCED * ANSWER_COST);
        // A forced buffer is large: a quarter of it is left empty for kernels that allocate more per answer.
        let forced = buffer.bytes / 4 * 3;
        Self { bytes, cost: if buffer.is_forced { forced } else { unforced } }
    }
}

/// Messages that are sent at once: bytes `start..end` of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) first_seq: u32,
    pub(crate) count: usize,
}

impl Chunk {
    /// Numbers the messages from `start` on, as many as fit but at least one, and requests an ack for the last
    /// only: errors are sent without a request, and since the kernel works in order, that ack is for the others too.
    pub(crate) fn number(bytes: &mut [u8], start: usize, seq: u32, room: Room) -> Option<Self> {
        let mut chunk = Self { start, end: start, first_seq: seq, count: 0 };
        let mut last = start;
        let mut cost = 0_usize;
        while let Some((len, flags)) = bytes.get(chunk.end..).and_then(peek) {
            cost = cost.saturating_add(cost_of(flags));
            let end = chunk.end.saturating_add(len);
            let is_full = end - start > room.bytes || cost > room.cost;
            if is_full && chunk.count > 0 {
                break;
            }
            last = chunk.end;
            stamp(bytes.get_mut(last..)?, chunk.seq_after(), |flags| flags & !NLM_F_ACK);
            chunk.end = end;
            chunk.count += 1;
        }
        stamp(bytes.get_mut(last..)?, chunk.last_seq(), |flags| flags | NLM_F_ACK);
        (chunk.count > 0).then_some(chunk)
    }

    pub(crate) fn last_seq(&self) -> u32 {
        self.seq_after().wrapping_sub(1)
    }

    /// The index within the chunk of the message with this sequence number.
    pub(crate) fn index_of(&self, seq: u32) -> Option<usize> {
        let index = usize::try_from(seq.wrapping_sub(self.first_seq)).ok()?;
        (index < self.count).then_some(index)
    }

    #[expect(clippy::cast_possible_truncation, reason = "sequence numbers wrap")]
    fn seq_after(&self) -> u32 {
        self.first_seq.wrapping_add(self.count as u32)
    }
}

fn cost_of(flags: u16) -> usize {
    if flags & NLM_F_ECHO == 0 { ANSWER_COST } else { REPLY_COST }
}

/// Length and flags of the message that `bytes` begin with.
fn peek(bytes: &[u8]) -> Option<(usize, u16)> {
    let [l0, l1, l2, l3, _, _, f0, f1] = *bytes.first_chunk::<8>()?;
    let len = usize::try_from(u32::from_ne_bytes([l0, l1, l2, l3])).ok()?;
    (len <= bytes.len()).then_some((len, u16::from_ne_bytes([f0, f1])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uapi::NLM_F_REQUEST;
    use crate::{Batch, Message, Messages};

    const DEFAULT: ReceiveBuffer = ReceiveBuffer { bytes: 212_992, is_forced: false };

    fn batch(count: usize, flags: u16) -> Batch {
        let mut batch = Batch::new();
        for _ in 0..count {
            batch.message(24, flags).finish().unwrap();
        }
        batch
    }

    /// The sizes of the chunks that `batch` falls into.
    fn chunks(batch: &mut Batch, room: Room) -> Vec<usize> {
        let (mut start, mut seq, mut sizes) = (0, 1, Vec::new());
        while let Some(chunk) = Chunk::number(batch.bytes_mut(), start, seq, room) {
            (start, seq) = (chunk.end, chunk.last_seq().wrapping_add(1));
            sizes.push(chunk.count);
        }
        sizes
    }

    fn messages(batch: &Batch) -> Vec<Message<'_>> {
        Messages::new(batch.bytes()).collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn no_more_than_256_answers_are_risked_on_an_unforced_buffer() {
        let room = Room::new(128 << 10, DEFAULT);
        assert_eq!(chunks(&mut batch(600, 0), room), [256, 256, 88]);
        let larger = ReceiveBuffer { bytes: 425_984, ..DEFAULT };
        assert_eq!(chunks(&mut batch(600, 0), Room::new(128 << 10, larger)), [256, 256, 88]);
        let smaller = ReceiveBuffer { bytes: 2304, ..DEFAULT };
        assert_eq!(chunks(&mut batch(5, 0), Room::new(128 << 10, smaller)), [2, 2, 1]);
    }

    #[test]
    fn a_forced_buffer_leaves_the_bytes_of_a_send_as_the_limit() {
        let forced = ReceiveBuffer { bytes: 8 << 20, is_forced: true };
        assert_eq!(chunks(&mut batch(10_000, 0), Room::new(64 << 10, forced)), [4096, 4096, 1808]);
    }

    #[test]
    fn replies_take_more_room_than_acks() {
        assert_eq!(
            chunks(&mut batch(100, NLM_F_ECHO), Room::new(128 << 10, DEFAULT)),
            [32, 32, 32, 4]
        );
    }

    #[test]
    fn a_message_larger_than_a_send_goes_alone() {
        let mut batch = batch(1, 0);
        let mut large = batch.message(24, 0);
        large.fixed(&[0; 400]);
        large.finish().unwrap();
        batch.message(24, 0).finish().unwrap();
        assert_eq!(chunks(&mut batch, Room::new(100, DEFAULT)), [1, 1, 1]);
    }

    #[test]
    fn only_the_last_of_a_send_asks_for_an_ack() {
        let mut batch = batch(5, NLM_F_ACK);
        assert_eq!(chunks(&mut batch, Room::new(48, DEFAULT)), [3, 2]);
        let acks: Vec<_> =
            messages(&batch).iter().map(|message| message.flags & NLM_F_ACK != 0).collect();
        assert_eq!(acks, [false, false, true, false, true]);
        assert!(messages(&batch).iter().all(|message| message.flags & NLM_F_REQUEST != 0));
    }

    #[test]
    fn numbers_follow_each_other_across_the_wrap() {
        let mut batch = batch(4, 0);
        let room = Room::new(128 << 10, DEFAULT);
        let chunk = Chunk::number(batch.bytes_mut(), 0, u32::MAX - 1, room).unwrap();
        let numbers: Vec<_> = messages(&batch).iter().map(|message| message.seq).collect();
        assert_eq!(numbers, [u32::MAX - 1, u32::MAX, 0, 1]);
        assert_eq!(
            numbers.iter().map(|seq| chunk.index_of(*seq)).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(2), Some(3)]
        );
        assert_eq!((chunk.index_of(2), chunk.index_of(u32::MAX - 2)), (None, None));
    }

    #[test]
    fn an_empty_batch_has_no_chunk() {
        assert!(chunks(&mut Batch::new(), Room::new(100, DEFAULT)).is_empty());
    }
}
