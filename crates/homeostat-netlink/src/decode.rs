//! Reads messages and attributes out of bytes. Tolerant: nothing in the bytes can make it panic or read past the end.

use std::ffi::CStr;

use crate::uapi::{NLA_F_NESTED, NLA_F_NET_BYTEORDER, nlattr, nlmsghdr};

/// What is wrong with bytes that should be netlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A message says it is shorter than its header or longer than what arrived.
    #[error("a message's length does not fit what arrived")]
    Message,
    /// A message is too short for the fixed part that its type begins with.
    #[error("a message is too short for its type")]
    Payload,
    /// An attribute says it is shorter than its header or longer than what holds it.
    #[error("an attribute's length does not fit its message")]
    Attr,
    /// An attribute has not the size of the value that its type says it holds.
    #[error("attribute {kind} has {len} bytes, which does not fit its type")]
    Value {
        /// The attribute's type.
        kind: u16,
        /// The bytes that it has.
        len: usize,
    },
}

/// Names a netlink socket within its namespace; zero is the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u32);

impl Port {
    /// The kernel's own port.
    pub const KERNEL: Self = Self(0);
}

/// One netlink message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What the payload is: `RTM_NEWROUTE`, ...
    pub kind: u16,
    /// The `NLM_F_*` flags.
    pub flags: u16,
    /// The sequence number of the request that it answers or that caused it.
    pub seq: u32,
    /// The socket whose request caused it.
    pub port: Port,
    /// What follows the header.
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// The fixed part of the payload (`struct rtmsg`, ...) and the attributes after it.
    pub fn split<const FIXED: usize>(&self) -> Result<(&'a [u8; FIXED], Attrs<'a>), Malformed> {
        let (fixed, rest) = self.payload.split_first_chunk().ok_or(Malformed::Payload)?;
        // Attributes begin aligned; every fixed part but those of unusual families is already.
        let padding = FIXED.next_multiple_of(ALIGN) - FIXED;
        Ok((fixed, Attrs::new(rest.get(padding..).unwrap_or_default())))
    }
}

pub(crate) const ALIGN: usize = 4;
const MESSAGE_HEADER: usize = size_of::<nlmsghdr>();
const ATTR_HEADER: usize = size_of::<nlattr>();

/// The messages of one datagram. Ends after the first malformed one.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = take_message(self.rest);
        self.rest = taken.map_or(&[], |(_, rest)| rest);
        Some(taken.map(|(message, _)| message).ok_or(Malformed::Message))
    }
}

fn take_message(bytes: &[u8]) -> Option<(Message<'_>, &[u8])> {
    let header = bytes.first_chunk::<MESSAGE_HEADER>()?;
    let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, p0, p1, p2, p3] = *header;
    let len = usize::try_from(u32::from_ne_bytes([l0, l1, l2, l3])).ok()?;
    let payload = bytes.get(MESSAGE_HEADER..len)?;
    let message = Message {
        kind: u16::from_ne_bytes([k0, k1]),
        flags: u16::from_ne_bytes([f0, f1]),
        seq: u32::from_ne_bytes([s0, s1, s2, s3]),
        port: Port(u32::from_ne_bytes([p0, p1, p2, p3])),
        payload,
    };
    Some((message, after(bytes, len)))
}

/// What follows an object of `len` bytes; the last object may lack its padding.
fn after(bytes: &[u8], len: usize) -> &[u8] {
    len.checked_next_multiple_of(ALIGN).and_then(|next| bytes.get(next..)).unwrap_or_default()
}

/// One attribute. Accessors interpret its bytes as the type that the caller expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr<'a> {
    /// The type, without the two flag bits.
    pub kind: u16,
    /// Whether the sender marked it as holding attributes; many families do not.
    pub is_nested: bool,
    /// Whether the sender marked it as big-endian; most families do not.
    pub is_big_endian: bool,
    /// The bytes, without padding.
    pub value: &'a [u8],
}

impl<'a> Attr<'a> {
    /// The value as exactly `LEN` bytes.
    pub fn array<const LEN: usize>(&self) -> Result<[u8; LEN], Malformed> {
        self.value.try_into().map_err(|_| self.misfit())
    }

    /// The value as one byte.
    pub fn u8(&self) -> Result<u8, Malformed> {
        self.array().map(u8::from_ne_bytes)
    }

    /// The value as a number in host order.
    pub fn u16(&self) -> Result<u16, Malformed> {
        self.array().map(u16::from_ne_bytes)
    }

    /// The value as a number in host order.
    pub fn u32(&self) -> Result<u32, Malformed> {
        self.array().map(u32::from_ne_bytes)
    }

    /// The value as a number in network order.
    pub fn be16(&self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    /// The value as a number in network order.
    pub fn be32(&self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// The value as text, up to its NUL.
    pub fn str(&self) -> Result<&'a str, Malformed> {
        let text = CStr::from_bytes_until_nul(self.value).map_err(|_| self.misfit())?;
        text.to_str().map_err(|_| self.misfit())
    }

    /// The attributes inside, whether it is marked as nested or not.
    #[must_use]
    pub fn attrs(&self) -> Attrs<'a> {
        Attrs::new(self.value)
    }

    fn misfit(&self) -> Malformed {
        Malformed::Value { kind: self.kind, len: self.value.len() }
    }
}

/// The attributes in a payload or inside another attribute. Ends after the first that is malformed.
#[derive(Clone, Debug)]
pub struct Attrs<'a> {
    rest: &'a [u8],
}

impl<'a> Attrs<'a> {
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The first attribute of this type.
    pub fn first(mut self, kind: u16) -> Result<Option<Attr<'a>>, Malformed> {
        self.find(|attr| attr.is_ok_and(|attr| attr.kind == kind) || attr.is_err()).transpose()
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Result<Attr<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = take_attr(self.rest);
        self.rest = taken.map_or(&[], |(_, rest)| rest);
        Some(taken.map(|(attr, _)| attr).ok_or(Malformed::Attr))
    }
}

fn take_attr(bytes: &[u8]) -> Option<(Attr<'_>, &[u8])> {
    let [l0, l1, k0, k1] = *bytes.first_chunk::<ATTR_HEADER>()?;
    let len = usize::from(u16::from_ne_bytes([l0, l1]));
    let value = bytes.get(ATTR_HEADER..len)?;
    let kind = u16::from_ne_bytes([k0, k1]);
    let attr = Attr {
        kind: kind & !(NLA_F_NESTED | NLA_F_NET_BYTEORDER),
        is_nested: kind & NLA_F_NESTED != 0,
        is_big_endian: kind & NLA_F_NET_BYTEORDER != 0,
        value,
    };
    Some((attr, after(bytes, len)))
}

#[cfg(test)]
mod tests;
