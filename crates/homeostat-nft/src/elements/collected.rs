//! Elements as they come from the kernel, in any order, sorted and joined to units.
//!
//! Each element is read once, when it comes; what its place in the order depends on is kept beside it.

use std::cmp::Ordering;

use homeostat_netlink::uapi::{
    NFT_SET_ELEM_INTERVAL_END, NFTA_DATA_VALUE, NFTA_SET_ELEM_EXPIRATION, NFTA_SET_ELEM_EXPR,
    NFTA_SET_ELEM_EXPRESSIONS, NFTA_SET_ELEM_FLAGS, NFTA_SET_ELEM_KEY, NFTA_SET_ELEM_TIMEOUT,
};
use homeostat_netlink::{Attr, Attrs, Malformed};

use super::{Elements, Layout, is_end, rank};
use crate::expression::{Becomes, Counts, Rewriting, masked, rewrite};
use crate::tlv::{Tlvs, only, padded};

/// Elements that are not yet sorted.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

/// Where an element is, and what decides where it goes.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// How the key begins: most keys differ here.
    key: u64,
    start: u32,
    len: u32,
    is_end: bool,
    /// Whether neither packets nor time change anything of it, and it can be sent as it is.
    is_steady: bool,
}

impl Place {
    fn of(element: &Attr<'_>) -> Result<Self, Malformed> {
        let mut place = Place { key: 0, start: 0, len: 0, is_end: false, is_steady: true };
        let mut has_time = false;
        for attr in element.attrs() {
            let attr = attr?;
            match attr.kind {
                NFTA_SET_ELEM_KEY => place.key = beginning(&attr)?,
                NFTA_SET_ELEM_FLAGS => place.is_end = attr.be32()? & NFT_SET_ELEM_INTERVAL_END != 0,
                NFTA_SET_ELEM_EXPIRATION | NFTA_SET_ELEM_EXPR | NFTA_SET_ELEM_EXPRESSIONS => {
                    place.is_steady = false;
                }
                NFTA_SET_ELEM_TIMEOUT => has_time = true,
                _ => {}
            }
        }
        place.is_steady &= !(place.is_end && has_time);
        Ok(place)
    }
}

/// The first bytes of a key. A shorter key is filled up: all keys of a set are of one length.
fn beginning(key: &Attr<'_>) -> Result<u64, Malformed> {
    let value = key.attrs().first(NFTA_DATA_VALUE)?.map_or(&[][..], |value| value.value);
    let mut first = [0; 8];
    first.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
    Ok(u64::from_be_bytes(first))
}

impl Collected {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    /// Takes the elements of one message.
    pub(crate) fn take(&mut self, list: &[u8]) -> Result<(), Malformed> {
        let (mut at, base) = (0, self.bytes.len());
        for element in Attrs::new(list) {
            let element = element?;
            let len = padded(&element);
            let short = |len: usize| u32::try_from(len).map_err(|_| Malformed::Message);
            let place = Place::of(&element)?;
            self.places.push(Place { start: short(base + at)?, len: short(len)?, ..place });
            at += len;
        }
        self.bytes.extend_from_slice(list);
        // The last one may lack its padding.
        self.bytes.resize(base + at, 0);
        Ok(())
    }

    /// Takes one more.
    pub(super) fn take_one(&mut self, element: &Attr<'_>) -> Result<(), Malformed> {
        let mut one = Tlvs::default();
        one.copy(element);
        self.take(&one.into_bytes())
    }

    fn element(&self, place: &Place) -> &[u8] {
        let start = place.start as usize;
        self.bytes.get(start..start + place.len as usize).unwrap_or_default()
    }

    fn order(&self, a: &Place, b: &Place) -> Ordering {
        a.key.cmp(&b.key).then_with(|| rank(self.element(a)).cmp(&rank(self.element(b))))
    }

    /// Sorts them and joins the two ends of each interval.
    pub(crate) fn sorted(self, layout: Layout) -> Result<Elements, Malformed> {
        self.sorted_and_judged(layout).map(|(sorted, _)| sorted)
    }

    /// The same, with whether each is there once.
    pub(crate) fn sorted_and_judged(
        mut self,
        layout: Layout,
    ) -> Result<(Elements, bool), Malformed> {
        let mut places = std::mem::take(&mut self.places);
        places.sort_by(|a, b| self.order(a, b));
        let is_once = places.windows(2).all(|pair| match pair {
            [a, b] => a.key != b.key || self.order(a, b).is_ne(),
            _ => true,
        });
        let mut sorted = Elements::with_room(self.bytes.len(), places.len());
        let mut places = places.iter().peekable();
        while let Some(first) = places.next() {
            let end = match layout {
                Layout::Ends if !first.is_end => places.next_if(|next| next.is_end),
                _ => None,
            };
            let is_steady = first.is_steady && end.is_none_or(|end| end.is_steady);
            let parts = [self.element(first), end.map_or(&[][..], |end| self.element(end))];
            if is_steady { sorted.push_steady(parts)? } else { sorted.push_moving(parts)? }
        }
        Ok((sorted, is_once))
    }
}

impl Elements {
    fn with_room(bytes: usize, units: usize) -> Self {
        Elements {
            bytes: Vec::with_capacity(bytes),
            ends: Vec::with_capacity(units),
            ..Elements::default()
        }
    }

    fn push_steady(&mut self, parts: [&[u8]; 2]) -> Result<(), Malformed> {
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.end_unit()
    }

    /// A unit of which packets or time change something: that is kept apart.
    fn push_moving(&mut self, parts: [&[u8]; 2]) -> Result<(), Malformed> {
        let at = u32::try_from(self.ends.len()).map_err(|_| Malformed::Message)?;
        let dumped = parts.concat();
        let dumped = bare_ends(&dumped)?.unwrap_or_else(|| dumped.into());
        if is_steady(&dumped)? {
            self.bytes.extend_from_slice(&dumped);
        } else {
            self.bytes.extend_from_slice(&steady(&dumped)?);
            self.whole.insert(at, dumped);
        }
        self.end_unit()
    }

    fn end_unit(&mut self) -> Result<(), Malformed> {
        self.ends.push(u32::try_from(self.bytes.len()).map_err(|_| Malformed::Message)?);
        Ok(())
    }
}

/// A unit whose ends say no more than they may, where they do.
///
/// Quirk `ends-told-with-time` (Linux 6.18): in a set of intervals with a timeout the end of an interval is
/// told with the time that it has left, and refused with EINVAL when it carries it.
fn bare_ends(unit: &[u8]) -> Result<Option<Box<[u8]>>, Malformed> {
    let says_more = |element: &Attr<'_>| {
        let kinds = [NFTA_SET_ELEM_TIMEOUT, NFTA_SET_ELEM_EXPIRATION];
        kinds.iter().any(|kind| matches!(element.attrs().first(*kind), Ok(Some(_))))
    };
    let mut elements = Attrs::new(unit).flatten();
    if !elements.any(|element| is_end(&element) && says_more(&element)) {
        return Ok(None);
    }
    let mut out = Tlvs::default();
    for element in Attrs::new(unit) {
        let element = element?;
        if is_end(&element) {
            out.put(
                element.kind,
                &only(element.attrs(), &[NFTA_SET_ELEM_KEY, NFTA_SET_ELEM_FLAGS])?,
            );
        } else {
            out.copy(&element);
        }
    }
    Ok(Some(out.into_bytes()))
}

/// Whether neither packets nor time change anything of a unit.
fn is_steady(unit: &[u8]) -> Result<bool, Malformed> {
    const MOVING: [u16; 3] =
        [NFTA_SET_ELEM_EXPIRATION, NFTA_SET_ELEM_EXPR, NFTA_SET_ELEM_EXPRESSIONS];
    for element in Attrs::new(unit) {
        for attr in element?.attrs() {
            if MOVING.contains(&attr?.kind) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// A unit without what packets and time change.
fn steady(unit: &[u8]) -> Result<Box<[u8]>, Malformed> {
    let mut out = Tlvs::default();
    for element in Attrs::new(unit) {
        let element = element?;
        out.nest(&element, |out| element.attrs().try_for_each(|attr| steady_attr(&attr?, out)))?;
    }
    Ok(out.into_bytes())
}

fn steady_attr(attr: &Attr<'_>, out: &mut Tlvs) -> Result<(), Malformed> {
    match attr.kind {
        NFTA_SET_ELEM_EXPIRATION => {}
        NFTA_SET_ELEM_EXPR => out.nest(attr, |out| masked(attr.value, out))?,
        NFTA_SET_ELEM_EXPRESSIONS => {
            let refer = &mut |_| Becomes::Named;
            let how = &mut Rewriting { refer, counts: Counts::Masked };
            out.put(attr.kind, &rewrite(attr.value, how)?);
        }
        _ => out.copy(attr),
    }
    Ok(())
}
