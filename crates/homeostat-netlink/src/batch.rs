//! Writes messages one after the other into one reusable buffer. Sends nothing.

use crate::decode::ALIGN;
use crate::uapi::{NLA_F_NESTED, NLM_F_REQUEST, nlattr, nlmsghdr};
use crate::{Error, Result};

/// Requests to be sent together. Cleared, it keeps its memory for the next ones.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    count: usize,
}

const ATTR_HEADER: usize = size_of::<nlattr>();
const FLAGS_AT: usize = std::mem::offset_of!(nlmsghdr, nlmsg_flags);
const SEQ_AT: usize = std::mem::offset_of!(nlmsghdr, nlmsg_seq);

impl Batch {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a message. It becomes part of the batch only with [`MessageWriter::finish`].
    pub fn message(&mut self, kind: u16, flags: u16) -> MessageWriter<'_> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&0_u32.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 8]);
        MessageWriter { batch: self, start, too_long: None }
    }

    /// Removes all messages and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The encoded messages. [`Connection`](crate::Connection) sets sequence numbers and ack flags.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds the messages of another batch at the end.
    pub fn append(&mut self, other: &Batch) {
        self.bytes.extend_from_slice(&other.bytes);
        self.count = self.count.saturating_add(other.count);
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn patch<const LEN: usize>(&mut self, at: usize, value: [u8; LEN]) {
        if let Some(place) = self.bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *place = value;
        }
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0);
    }
}

/// Sets the sequence number and the flags of the message that `message` begins with.
pub(crate) fn stamp(message: &mut [u8], seq: u32, flags: impl FnOnce(u16) -> u16) {
    if let Some(place) = message.get_mut(FLAGS_AT..).and_then(<[u8]>::first_chunk_mut::<2>) {
        *place = flags(u16::from_ne_bytes(*place)).to_ne_bytes();
    }
    if let Some(place) = message.get_mut(SEQ_AT..).and_then(<[u8]>::first_chunk_mut::<4>) {
        *place = seq.to_ne_bytes();
    }
}

/// Writes one message: its fixed part first, then attributes. Dropped unfinished, it leaves the batch unchanged.
#[derive(Debug)]
pub struct MessageWriter<'a> {
    batch: &'a mut Batch,
    start: usize,
    too_long: Option<u16>,
}

impl MessageWriter<'_> {
    /// Appends bytes as they are and pads them: the fixed part of the message, or a struct inside a nested attribute.
    pub fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.batch.bytes.extend_from_slice(bytes);
        self.batch.pad();
        self
    }

    pub fn attr(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.attr_with_end(kind, value, &[])
    }

    fn attr_with_end(&mut self, kind: u16, value: &[u8], end: &[u8]) -> &mut Self {
        // Checked before it is copied, since a value may have megabytes.
        let Some(len) = attr_len(ATTR_HEADER.saturating_add(value.len() + end.len())) else {
            return self.refuse(kind);
        };
        self.batch.bytes.extend_from_slice(&len.to_ne_bytes());
        self.batch.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.batch.bytes.extend_from_slice(value);
        self.fixed(end)
    }

    /// Appends an attribute without a value.
    pub fn attr_flag(&mut self, kind: u16) -> &mut Self {
        self.attr(kind, &[])
    }

    /// Appends a one-byte attribute.
    pub fn attr_u8(&mut self, kind: u16, value: u8) -> &mut Self {
        self.attr(kind, &[value])
    }

    /// Appends a number in host order.
    pub fn attr_u16(&mut self, kind: u16, value: u16) -> &mut Self {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// Appends a number in host order.
    pub fn attr_u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// Appends a number in network order.
    pub fn attr_be16(&mut self, kind: u16, value: u16) -> &mut Self {
        self.attr(kind, &value.to_be_bytes())
    }

    /// Appends a number in network order.
    pub fn attr_be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attr(kind, &value.to_be_bytes())
    }

    /// Appends text and a NUL.
    pub fn attr_str(&mut self, kind: u16, text: &str) -> &mut Self {
        self.attr_with_end(kind, text.as_bytes(), &[0])
    }

    /// Appends an attribute that holds what `inside` writes, with `NLA_F_NESTED`.
    pub fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Self)) -> &mut Self {
        self.enclose(kind, kind | NLA_F_NESTED, inside)
    }

    /// Appends an attribute that holds what `inside` writes, without `NLA_F_NESTED`, as older families expect.
    pub fn nest_unmarked(&mut self, kind: u16, inside: impl FnOnce(&mut Self)) -> &mut Self {
        self.enclose(kind, kind, inside)
    }

    /// Adds the message to the batch, unless an attribute was too long.
    pub fn finish(mut self) -> Result<()> {
        let len = u32::try_from(self.batch.bytes.len().saturating_sub(self.start)).ok();
        let (None, Some(len)) = (self.too_long, len) else {
            return Err(Error::TooLong { kind: self.too_long.unwrap_or_default() });
        };
        self.batch.patch(self.start, len.to_ne_bytes());
        self.batch.count = self.batch.count.saturating_add(1);
        self.start = self.batch.bytes.len();
        Ok(())
    }

    fn enclose(&mut self, kind: u16, marked: u16, inside: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.batch.bytes.len();
        self.attr(marked, &[]);
        inside(self);
        match attr_len(self.batch.bytes.len().saturating_sub(start)) {
            Some(len) => self.batch.patch(start, len.to_ne_bytes()),
            None => return self.refuse(kind),
        }
        self
    }

    fn refuse(&mut self, kind: u16) -> &mut Self {
        self.too_long.get_or_insert(kind);
        self
    }
}

impl Drop for MessageWriter<'_> {
    /// Removes an unfinished message.
    fn drop(&mut self) {
        self.batch.bytes.truncate(self.start);
    }
}

fn attr_len(len: usize) -> Option<u16> {
    u16::try_from(len).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Malformed, Messages};

    fn only_message(batch: &Batch) -> crate::Message<'_> {
        let messages: Vec<_> =
            Messages::new(batch.bytes()).collect::<Result<_, Malformed>>().unwrap();
        assert_eq!(messages.len(), 1);
        messages[0]
    }

    #[test]
    fn a_message_is_header_fixed_part_and_padded_attributes() {
        let mut batch = Batch::new();
        let mut message = batch.message(24, 0x600);
        message.fixed(&[1, 2, 3, 4]).attr_u8(7, 9).attr_be16(8, 0x0102);
        message.finish().unwrap();
        let mut expected = Vec::new();
        expected.extend(36_u32.to_ne_bytes());
        expected.extend(24_u16.to_ne_bytes());
        expected.extend(0x601_u16.to_ne_bytes());
        expected.extend([0; 8]);
        expected.extend([1, 2, 3, 4]);
        expected.extend([5_u16.to_ne_bytes(), 7_u16.to_ne_bytes()].concat());
        expected.extend([9, 0, 0, 0]);
        expected.extend([6_u16.to_ne_bytes(), 8_u16.to_ne_bytes()].concat());
        expected.extend([1, 2, 0, 0]);
        assert_eq!(batch.bytes(), expected);
        assert_eq!(batch.count(), 1);
    }

    #[test]
    fn what_is_nested_reads_back_nested() {
        let mut batch = Batch::new();
        let mut message = batch.message(16, 0);
        message.nest(18, |info| {
            info.attr_str(1, "veth").nest(2, |inner| {
                inner.attr_u32(3, 70_000).attr(4, &u64::MAX.to_ne_bytes());
            });
        });
        message.finish().unwrap();
        let (_, mut attrs) = only_message(&batch).split::<0>().unwrap();
        let info = attrs.next().unwrap().unwrap();
        assert!(info.is_nested && info.kind == 18 && attrs.next().is_none());
        assert_eq!(info.attrs().first(1).unwrap().unwrap().str(), Ok("veth"));
        let inner = info.attrs().first(2).unwrap().unwrap();
        assert_eq!(inner.attrs().first(3).unwrap().unwrap().u32(), Ok(70_000));
        assert_eq!(inner.attrs().first(4).unwrap().unwrap().array(), Ok(u64::MAX.to_ne_bytes()));
    }

    #[test]
    fn an_attribute_that_sixteen_bits_cannot_measure_is_refused_with_its_whole_message() {
        let most = usize::from(u16::MAX) - ATTR_HEADER;
        let mut batch = Batch::new();
        batch.message(16, 0).finish().unwrap();
        for len in [most, most + 1] {
            let mut message = batch.message(17, 0);
            message.attr(5, &vec![0; len]);
            assert_eq!(message.finish().is_ok(), len == most, "{len}");
        }
        let mut message = batch.message(18, 0);
        message.nest(6, |inner| {
            inner.attr(1, &vec![0; 40_000]).attr(2, &vec![0; 40_000]);
        });
        assert!(matches!(message.finish(), Err(Error::TooLong { kind: 6 })));
        assert_eq!(batch.count(), 2);
        assert_eq!(Messages::new(batch.bytes()).count(), 2);
    }

    #[test]
    fn an_unfinished_message_is_not_added() {
        let mut batch = Batch::new();
        batch.message(16, 0).attr_u32(1, 1);
        assert!(batch.is_empty() && batch.bytes().is_empty());
    }

    #[test]
    fn a_cleared_batch_keeps_its_memory() {
        let mut batch = Batch::new();
        batch.message(16, 0).finish().unwrap();
        let room = batch.bytes.capacity();
        batch.clear();
        assert!(batch.is_empty());
        assert_eq!(batch.bytes.capacity(), room);
    }

    #[test]
    fn stamping_changes_number_and_flags_only() {
        let mut batch = Batch::new();
        batch.message(16, 0).finish().unwrap();
        stamp(batch.bytes_mut(), 0x0102_0304, |flags| flags | 4);
        let message = only_message(&batch);
        assert_eq!(
            (message.kind, message.flags, message.seq),
            (16, NLM_F_REQUEST | 4, 0x0102_0304)
        );
    }
}
