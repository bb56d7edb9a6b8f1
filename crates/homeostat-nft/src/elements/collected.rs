//! Elements as they come from the kernel: sorted, joined to units, and without what time changes.

use std::ops::Range;

use homeostat_netlink::uapi::{
    NFTA_SET_ELEM_EXPIRATION, NFTA_SET_ELEM_EXPR, NFTA_SET_ELEM_EXPRESSIONS, NFTA_SET_ELEM_FLAGS,
    NFTA_SET_ELEM_KEY, NFTA_SET_ELEM_TIMEOUT,
};
use homeostat_netlink::{Attr, Attrs, Malformed};

use super::{Elements, Layout, is_end, rank};
use crate::expression::{Becomes, Counts, Rewriting, masked, rewrite};
use crate::tlv::{Tlvs, only, padded};

/// Elements as they come from the kernel, in any order.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    bytes: Vec<u8>,
    places: Vec<Range<u32>>,
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
            let next = at + padded(&element?);
            let place = |at: usize| u32::try_from(base + at).map_err(|_| Malformed::Message);
            self.places.push(place(at)?..place(next)?);
            at = next;
        }
        self.bytes.extend_from_slice(list);
        // The last one may lack its padding.
        self.bytes.resize(base + at, 0);
        Ok(())
    }

    fn element(&self, place: &Range<u32>) -> &[u8] {
        self.bytes.get(place.start as usize..place.end as usize).unwrap_or_default()
    }

    /// Sorts them and joins the two ends of each interval.
    pub(crate) fn sorted(mut self, layout: Layout) -> Result<Elements, Malformed> {
        let mut places = std::mem::take(&mut self.places);
        places.sort_by(|a, b| rank(self.element(a)).cmp(&rank(self.element(b))));
        let mut sorted = Elements::default();
        let mut places = places.iter().peekable();
        while let Some(first) = places.next() {
            let begins = rank(self.element(first)).1;
            let end = match layout {
                Layout::Ends if begins => places.next_if(|next| !rank(self.element(next)).1),
                _ => None,
            };
            let end = end.map_or(&[][..], |end| self.element(end));
            sorted.push(&[self.element(first), end].concat())?;
        }
        Ok(sorted)
    }
}

impl Elements {
    fn push(&mut self, dumped: &[u8]) -> Result<(), Malformed> {
        let at = u32::try_from(self.ends.len()).map_err(|_| Malformed::Message)?;
        let bare = bare_ends(dumped)?;
        let dumped = bare.as_deref().unwrap_or(dumped);
        if is_steady(dumped)? {
            self.bytes.extend_from_slice(dumped);
        } else {
            self.bytes.extend_from_slice(&steady(dumped)?);
            self.whole.insert(at, dumped.into());
        }
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
