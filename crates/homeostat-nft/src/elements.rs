//! The elements of a set, sorted and close together: a million of them are a normal case.
//!
//! A *unit* is what is added and deleted as one: an element, or the two ends of an interval.

mod collected;
mod edits;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use homeostat_netlink::uapi::{
    NFT_SET_ELEM_INTERVAL_END, NFTA_DATA_VALUE, NFTA_DATA_VERDICT, NFTA_SET_ELEM_DATA,
    NFTA_SET_ELEM_FLAGS, NFTA_SET_ELEM_KEY, NFTA_SET_ELEM_KEY_END, NFTA_SET_ELEM_OBJREF,
    NFTA_VERDICT_CHAIN,
};
use homeostat_netlink::{Attr, Attrs, Malformed};

use crate::tlv::{Tlvs, be32, only};

pub(crate) use collected::Collected;
pub(crate) use edits::Edits;

/// The place of a unit in its list.
pub(crate) type UnitAt = u32;

/// Sorted units.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elements {
    /// Units one after the other, without what packets and time change.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    /// As dumped, where that is more.
    whole: BTreeMap<UnitAt, Box<[u8]>>,
}

/// How the ends of intervals are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Each element stands alone, ranges included.
    Single,
    /// An interval is two elements, one of which only ends it.
    Ends,
}

impl PartialEq for Elements {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.ends == other.ends
    }
}

impl Eq for Elements {}

impl Hash for Elements {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl Elements {
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether any of them holds these bytes.
    pub(crate) fn mention(&self, bytes: &[u8]) -> bool {
        self.bytes.windows(bytes.len()).any(|window| window == bytes)
    }

    /// Leaves out all but the first so many.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.ends.truncate(count);
        let end = self.ends.last().map_or(0, |end| *end as usize);
        self.bytes.truncate(end);
        self.whole.retain(|at, _| (*at as usize) < count);
    }

    /// All places, in order.
    pub(crate) fn places(&self) -> Range<UnitAt> {
        0..u32::try_from(self.ends.len()).unwrap_or(u32::MAX)
    }

    /// A unit for comparing.
    pub(crate) fn unit(&self, at: UnitAt) -> &[u8] {
        let at = at as usize;
        let end = |at: usize| self.ends.get(at).map_or(0, |end| *end as usize);
        let start = at.checked_sub(1).map_or(0, end);
        self.bytes.get(start..end(at)).unwrap_or_default()
    }

    /// Whether a unit only ends what nothing begins: the gap before the first interval.
    pub(crate) fn is_gap(&self, at: UnitAt) -> bool {
        Attrs::new(self.unit(at)).next().and_then(Result::ok).is_some_and(|one| is_end(&one))
    }

    /// A unit as it was dumped, with its counts and the time that it has left.
    pub(crate) fn dumped(&self, at: UnitAt) -> &[u8] {
        self.whole.get(&at).map_or(self.unit(at), |bytes| bytes)
    }

    /// What deletes a unit.
    pub(crate) fn deleting(&self, at: UnitAt) -> Result<Box<[u8]>, Malformed> {
        let mut out = Tlvs::default();
        for element in Attrs::new(self.unit(at)) {
            let element = element?;
            let kinds = [NFTA_SET_ELEM_KEY, NFTA_SET_ELEM_KEY_END, NFTA_SET_ELEM_FLAGS];
            out.put(element.kind, &only(element.attrs(), &kinds)?);
        }
        Ok(out.into_bytes())
    }

    /// What differs from `other`, unit by unit. `same` is asked about two units of one key whose
    /// bytes differ.
    pub(crate) fn compare(
        &self,
        other: &Self,
        same: impl Fn(&[u8], &[u8]) -> bool,
        mut found: impl FnMut(Difference),
    ) {
        // Most sets are as declared, or differ in one place.
        if self == other {
            return;
        }
        let same_so_far = self.count_alike(other);
        let (mut ours, mut theirs) = (self.places(), other.places());
        (ours.start, theirs.start) = (same_so_far, same_so_far);
        let (mut ours, mut theirs) = (ours.peekable(), theirs.peekable());
        let mut tries = TRIES;
        while let Some(next) = next(self, other, &mut ours, &mut theirs) {
            let is_difference = match next {
                Difference::Changed(a, b) => {
                    let (a, b) = (self.unit(a), other.unit(b));
                    a != b && !same(a, b)
                }
                Difference::Missing(_) | Difference::Extra(_) => true,
            };
            if !is_difference {
                continue;
            }
            found(next);
            if tries > 0 && self.rest(ours.peek()) == other.rest(theirs.peek()) {
                return;
            }
            tries = tries.saturating_sub(1);
        }
    }

    /// How many units are alike from the beginning, at least.
    fn count_alike(&self, other: &Self) -> u32 {
        const BLOCK: usize = 4096;
        let blocks = self.bytes.chunks(BLOCK).zip(other.bytes.chunks(BLOCK));
        let bytes = blocks.take_while(|(a, b)| a == b).count() * BLOCK;
        let count = self.ends.partition_point(|end| (*end as usize) <= bytes);
        let is_alike = self.ends.get(..count) == other.ends.get(..count);
        if is_alike { u32::try_from(count).unwrap_or_default() } else { 0 }
    }

    /// The bytes of all units from one on.
    fn rest(&self, from: Option<&UnitAt>) -> &[u8] {
        let start = from.map(|at| at.checked_sub(1).and_then(|at| self.ends.get(at as usize)));
        let start = start.map_or(self.bytes.len(), |end| end.map_or(0, |end| *end as usize));
        self.bytes.get(start..).unwrap_or_default()
    }
}

/// After so many differences the next one is not expected to be the last.
const TRIES: u32 = 16;

type Places = std::iter::Peekable<Range<UnitAt>>;

/// The next units of both, one of each if they have the same key: whether they differ is another matter.
fn next(
    us: &Elements,
    them: &Elements,
    ours: &mut Places,
    theirs: &mut Places,
) -> Option<Difference> {
    let order = match (ours.peek(), theirs.peek()) {
        (None, None) => return None,
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (Some(a), Some(b)) => order(us.unit(*a), them.unit(*b)),
    };
    let our = ours.next_if(|_| order.is_le());
    let their = theirs.next_if(|_| order.is_ge());
    match (our, their) {
        (Some(a), Some(b)) => Some(Difference::Changed(a, b)),
        (Some(a), None) => Some(Difference::Missing(a)),
        (None, Some(b)) => Some(Difference::Extra(b)),
        (None, None) => None,
    }
}

/// One difference between two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    /// The other lacks this unit of ours.
    Missing(UnitAt),
    /// The other has this one, which we lack.
    Extra(UnitAt),
    /// Ours and its, of the same key.
    Changed(UnitAt, UnitAt),
}

/// The chain and the object that a unit refers to.
pub(crate) fn targets(unit: &[u8]) -> (Option<&str>, Option<&str>) {
    let Some(Ok(element)) = Attrs::new(unit).next() else { return (None, None) };
    let data = element.attrs().first(NFTA_SET_ELEM_DATA).ok().flatten();
    let verdict = data.and_then(|data| data.attrs().first(NFTA_DATA_VERDICT).ok().flatten());
    let chain =
        verdict.and_then(|verdict| verdict.attrs().first(NFTA_VERDICT_CHAIN).ok().flatten());
    let object = element.attrs().first(NFTA_SET_ELEM_OBJREF).ok().flatten();
    (chain.and_then(|attr| attr.str().ok()), object.and_then(|attr| attr.str().ok()))
}

/// What a key leads to, with its flags: all that is asked of an element whose time runs.
pub(crate) fn meaning(unit: &[u8]) -> Vec<u8> {
    let mut out = Tlvs::default();
    for element in Attrs::new(unit).flatten() {
        let kinds = [
            NFTA_SET_ELEM_KEY,
            NFTA_SET_ELEM_KEY_END,
            NFTA_SET_ELEM_FLAGS,
            NFTA_SET_ELEM_DATA,
            NFTA_SET_ELEM_OBJREF,
        ];
        out.put(element.kind, &only(element.attrs(), &kinds).unwrap_or_default());
    }
    out.into_bytes().into_vec()
}

/// The order of units is that of the keys that they begin with; an end comes before a beginning.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    if a == b {
        return Ordering::Equal;
    }
    rank(a).cmp(&rank(b))
}

type Rank<'a> = (&'a [u8], bool, &'a [u8]);

fn rank(unit: &[u8]) -> Rank<'_> {
    Attrs::new(unit).next().and_then(Result::ok).map_or((&[], false, &[]), |one| rank_of(&one))
}

fn rank_of<'a>(element: &Attr<'a>) -> Rank<'a> {
    let value = |kind| -> &'a [u8] {
        let attr = element.attrs().first(kind).ok().flatten();
        let value = attr.and_then(|attr| attr.attrs().first(NFTA_DATA_VALUE).ok().flatten());
        value.map_or(&[], |value| value.value)
    };
    (value(NFTA_SET_ELEM_KEY), !is_end(element), value(NFTA_SET_ELEM_KEY_END))
}

fn is_end(element: &Attr<'_>) -> bool {
    let flags = be32(&element.attrs(), NFTA_SET_ELEM_FLAGS).ok().flatten();
    flags.is_some_and(|flags| flags & NFT_SET_ELEM_INTERVAL_END != 0)
}

#[cfg(test)]
mod tests;
