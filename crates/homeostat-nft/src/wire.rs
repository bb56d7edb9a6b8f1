//! Message types of nftables, and attributes as bytes: copied as they were dumped, left out, or rewritten.

use homeostat_netlink::uapi::*;
use homeostat_netlink::{Attr, Attrs, Malformed, Message};

const ALIGN: usize = 4;
const HEADER: usize = 4;

/// Attributes one after the other.
#[derive(Debug, Default)]
pub(crate) struct Tlvs {
    bytes: Vec<u8>,
}

impl Tlvs {
    /// Nothing yet, with room for so many bytes.
    pub(crate) fn with_room(bytes: usize) -> Self {
        Tlvs { bytes: Vec::with_capacity(bytes) }
    }

    /// Takes an attribute over as it is.
    pub(crate) fn copy(&mut self, attr: &Attr<'_>) {
        self.put(kind(attr), attr.value);
    }

    pub(crate) fn put(&mut self, kind: u16, value: &[u8]) {
        let start = self.begin(kind);
        self.bytes.extend_from_slice(value);
        self.end(start);
    }

    /// Takes attributes over, but for those of one type, in place of which `write` is asked.
    pub(crate) fn copy_replacing(
        &mut self,
        attrs: Attrs<'_>,
        kind: u16,
        mut write: impl FnMut(&mut Self, &Attr<'_>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        for attr in attrs {
            let attr = attr?;
            if attr.kind == kind { write(self, &attr)? } else { self.copy(&attr) }
        }
        Ok(())
    }

    /// Appends text with its NUL.
    pub(crate) fn put_name(&mut self, kind: u16, name: &str) {
        let start = self.begin(kind);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.end(start);
    }

    /// Appends an attribute like `attr` that holds what `inside` writes.
    pub(crate) fn nest(
        &mut self,
        attr: &Attr<'_>,
        inside: impl FnOnce(&mut Self) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let start = self.begin(kind(attr));
        inside(self)?;
        self.end(start);
        Ok(())
    }

    pub(crate) fn into_vec(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn into_bytes(self) -> Box<[u8]> {
        self.bytes.into_boxed_slice()
    }

    fn begin(&mut self, kind: u16) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        start
    }

    /// What grew beyond sixteen bits is refused by the kernel, whatever its length says.
    fn end(&mut self, start: usize) {
        let len = u16::try_from(self.bytes.len().saturating_sub(start)).unwrap_or(u16::MAX);
        if let Some(place) = self.bytes.get_mut(start..).and_then(<[u8]>::first_chunk_mut) {
            *place = len.to_ne_bytes();
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0);
    }
}

/// The type with its two flag bits.
fn kind(attr: &Attr<'_>) -> u16 {
    let nested = if attr.is_nested { NLA_F_NESTED } else { 0 };
    let big_endian = if attr.is_big_endian { NLA_F_NET_BYTEORDER } else { 0 };
    attr.kind | nested | big_endian
}

/// The attributes of these types, as they were dumped.
pub(crate) fn only(attrs: Attrs<'_>, kinds: &[u16]) -> Result<Box<[u8]>, Malformed> {
    let mut kept = Tlvs::default();
    for attr in attrs {
        let attr = attr?;
        if kinds.contains(&attr.kind) {
            kept.copy(&attr);
        }
    }
    Ok(kept.into_bytes())
}

/// How long an attribute is with its header and padding.
pub(crate) fn padded(attr: &Attr<'_>) -> usize {
    (HEADER + attr.value.len()).next_multiple_of(ALIGN)
}

/// The text of the first attribute of this type.
pub(crate) fn name(attrs: &Attrs<'_>, kind: u16) -> Result<String, Malformed> {
    text(attrs, kind).map(str::to_owned)
}

/// The same, borrowed.
pub(crate) fn text<'a>(attrs: &Attrs<'a>, kind: u16) -> Result<&'a str, Malformed> {
    attrs.clone().first(kind)?.map_or(Ok(""), |attr| attr.str())
}

/// The first attribute of this type as a number in network order.
pub(crate) fn be32(attrs: &Attrs<'_>, kind: u16) -> Result<Option<u32>, Malformed> {
    attrs.clone().first(kind)?.map(|attr| attr.be32()).transpose()
}

/// The first attribute of this type as a number in network order.
pub(crate) fn be64(attrs: &Attrs<'_>, kind: u16) -> Result<Option<u64>, Malformed> {
    let attr = attrs.clone().first(kind)?;
    attr.map(|attr| attr.array().map(u64::from_be_bytes)).transpose()
}

/// The type of a message of nftables.
pub(crate) const fn message_type(message: u16) -> u16 {
    NFNL_SUBSYS_NFTABLES << 8 | message
}

/// The `NFT_MSG_*` number of a message; no such number if it is of another subsystem.
pub(crate) fn nft_message(message: &Message<'_>) -> u16 {
    message.kind ^ message_type(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_reads_back_as_it_was() {
        let mut inner = Tlvs::default();
        inner.put_name(1, "a");
        inner.put(2 | NLA_F_NESTED, &[1, 2, 3, 4, 5]);
        let bytes = inner.into_bytes();
        let mut copy = Tlvs::default();
        for attr in Attrs::new(&bytes) {
            copy.copy(&attr.unwrap());
        }
        assert_eq!(copy.into_bytes(), bytes);
        assert_eq!(name(&Attrs::new(&bytes), 1).unwrap(), "a");
        assert_eq!(Attrs::new(&bytes).map(|attr| padded(&attr.unwrap())).sum::<usize>(), 20);
    }

    #[test]
    fn only_the_asked_for_types_are_kept() {
        let mut all = Tlvs::default();
        for kind in 1..5 {
            all.put(kind, &[0; 4]);
        }
        let bytes = all.into_bytes();
        let kept = only(Attrs::new(&bytes), &[2, 4]).unwrap();
        let kinds: Vec<u16> = Attrs::new(&kept).map(|attr| attr.unwrap().kind).collect();
        assert_eq!(kinds, [2, 4]);
    }
}
