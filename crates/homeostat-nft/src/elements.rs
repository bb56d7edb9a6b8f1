//! The elements of a set, sorted and in one buffer: a million of them are a normal case.
//!
//! A *unit* is what is added and deleted as one: an element, or the two ends of an interval. Elements come from the
//! kernel in any order ([`Collected`]), and change one by one ([`Edits`]); then only the units around a change are
//! taken apart and joined again.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use homeostat_netlink::uapi::*;
use homeostat_netlink::{Attr, Attrs, Malformed};

use crate::expression::{Becomes, Counts, Rewriting, rewrite, rewrite_one};
use crate::wire::{Tlvs, be32, only, padded};

/// The place of a unit in its list.
pub(crate) type UnitAt = u32;

/// Sorted units.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elements {
    /// Units one after the other, without what packets and time change.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    /// As dumped, where packets or time change something.
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

    /// Whether packets or time change any of them.
    pub(crate) fn count(&self) -> bool {
        !self.whole.is_empty()
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
        self.bytes.get(self.start(at)..self.start(at + 1)).unwrap_or_default()
    }

    /// Where a unit begins.
    fn start(&self, at: UnitAt) -> usize {
        let before = at.checked_sub(1).and_then(|before| self.ends.get(before as usize));
        before.map_or(0, |end| *end as usize)
    }

    /// Whether a unit only ends what nothing begins: the gap before the first interval.
    pub(crate) fn is_gap(&self, at: UnitAt) -> bool {
        Attrs::new(self.unit(at)).next().and_then(Result::ok).is_some_and(|one| is_end(&one))
    }

    /// A unit as it was dumped, with its counts and the time that it has left.
    pub(crate) fn dumped(&self, at: UnitAt) -> &[u8] {
        self.whole.get(&at).map_or(self.unit(at), |bytes| bytes)
    }

    /// A unit as it can be added again, with its counters and the time that it has left.
    pub(crate) fn adding(&self, at: UnitAt) -> Result<Cow<'_, [u8]>, Malformed> {
        Ok(match self.whole.get(&at) {
            Some(dumped) => Cow::Owned(rewritten(dumped, Counts::Kept)?.into_vec()),
            None => Cow::Borrowed(self.unit(at)),
        })
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
        let mut ours = self.count_alike(other);
        let (mut theirs, mut tries) = (ours, TRIES);
        let (our_end, their_end) = (self.places().end, other.places().end);
        while ours < our_end || theirs < their_end {
            let order = match (ours < our_end, theirs < their_end) {
                (true, true) => order(self.unit(ours), other.unit(theirs)),
                (true, false) => Ordering::Less,
                (false, _) => Ordering::Greater,
            };
            let difference = match order {
                Ordering::Less => Difference::Missing(ours),
                Ordering::Greater => Difference::Extra(theirs),
                Ordering::Equal => Difference::Changed(ours, theirs),
            };
            ours += u32::from(order.is_le());
            theirs += u32::from(order.is_ge());
            if let Difference::Changed(a, b) = difference {
                let (a, b) = (self.unit(a), other.unit(b));
                if a == b || same(a, b) {
                    continue;
                }
            }
            found(difference);
            if tries > 0
                && self.bytes.get(self.start(ours)..) == other.bytes.get(other.start(theirs)..)
            {
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
}

/// After so many differences the next one is not expected to be the last.
const TRIES: u32 = 16;

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

/// What names a unit: this deletes it.
pub(crate) const KEY: &[u16] = &[NFTA_SET_ELEM_KEY, NFTA_SET_ELEM_KEY_END, NFTA_SET_ELEM_FLAGS];

/// What a key leads to, with its flags: all that is asked of an element whose time runs.
pub(crate) const MEANING: &[u16] = &[
    NFTA_SET_ELEM_KEY,
    NFTA_SET_ELEM_KEY_END,
    NFTA_SET_ELEM_FLAGS,
    NFTA_SET_ELEM_DATA,
    NFTA_SET_ELEM_OBJREF,
];

/// A unit with only these attributes.
pub(crate) fn reduced(unit: &[u8], kinds: &[u16]) -> Result<Box<[u8]>, Malformed> {
    let mut out = Tlvs::default();
    for element in Attrs::new(unit) {
        let element = element?;
        out.put(element.kind, &only(element.attrs(), kinds)?);
    }
    Ok(out.into_bytes())
}

/// A unit without these attributes.
pub(crate) fn stripped(unit: &[u8], kinds: &[u16]) -> Result<Box<[u8]>, Malformed> {
    let mut out = Tlvs::default();
    for element in Attrs::new(unit) {
        let (element, mut rest) = (element?, Tlvs::default());
        for attr in element.attrs() {
            let attr = attr?;
            if !kinds.contains(&attr.kind) {
                rest.copy(&attr);
            }
        }
        out.put(element.kind, &rest.into_vec());
    }
    Ok(out.into_bytes())
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
    let key = key_bytes(element, NFTA_SET_ELEM_KEY);
    (key, !is_end(element), key_bytes(element, NFTA_SET_ELEM_KEY_END))
}

/// The bytes of the key of an element, or of the end of its range.
pub(crate) fn key_bytes<'a>(element: &Attr<'a>, kind: u16) -> &'a [u8] {
    let attr = element.attrs().first(kind).ok().flatten();
    let value = attr.and_then(|attr| attr.attrs().first(NFTA_DATA_VALUE).ok().flatten());
    value.map_or(&[], |value| value.value)
}

fn is_end(element: &Attr<'_>) -> bool {
    let flags = be32(&element.attrs(), NFTA_SET_ELEM_FLAGS).ok().flatten();
    flags.is_some_and(|flags| flags & NFT_SET_ELEM_INTERVAL_END != 0)
}

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
    /// Takes the elements of one message.
    pub(crate) fn take(&mut self, list: &[u8]) -> Result<(), Malformed> {
        let (mut at, base) = (0, self.bytes.len());
        for element in Attrs::new(list) {
            let element = element?;
            let len = padded(&element);
            let place = Place::of(&element)?;
            self.places.push(Place { start: short(base + at)?, len: short(len)?, ..place });
            at += len;
        }
        self.bytes.extend_from_slice(list);
        // The last one may lack its padding.
        self.bytes.resize(base + at, 0);
        Ok(())
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
        let mut sorted = Elements {
            bytes: Vec::with_capacity(self.bytes.len()),
            ends: Vec::with_capacity(places.len()),
            ..Elements::default()
        };
        let mut places = places.iter().peekable();
        while let Some(first) = places.next() {
            let end = match layout {
                Layout::Ends if !first.is_end => places.next_if(|next| next.is_end),
                _ => None,
            };
            let start = sorted.bytes.len();
            for place in std::iter::once(first).chain(end) {
                sorted.bytes.extend_from_slice(self.element(place));
            }
            // What packets or time change is kept apart.
            if !first.is_steady || end.is_some_and(|end| !end.is_steady) {
                let dumped = sorted.bytes.split_off(start);
                sorted.bytes.extend_from_slice(&rewritten(&dumped, Counts::Masked)?);
                sorted.whole.insert(short(sorted.ends.len())?, dumped.into());
            }
            sorted.ends.push(short(sorted.bytes.len())?);
        }
        Ok((sorted, is_once))
    }
}

fn short(number: usize) -> Result<u32, Malformed> {
    u32::try_from(number).map_err(|_| Malformed::Message)
}

/// A unit with or without what packets and time change, but never with what the kernel does not take.
///
/// Quirk `ends-dumped-with-time` (Linux 6.18): in a set of intervals with a timeout the end of an interval is
/// dumped with the time that it has left, and refused with EINVAL when it carries it.
fn rewritten(unit: &[u8], counts: Counts<'_>) -> Result<Box<[u8]>, Malformed> {
    let how = &mut Rewriting { refer: &mut |_| Becomes::Named, counts };
    let mut out = Tlvs::default();
    for element in Attrs::new(unit) {
        let element = element?;
        let is_end = is_end(&element);
        out.nest(&element, |out| {
            for attr in element.attrs() {
                let attr = attr?;
                match (attr.kind, counts) {
                    (NFTA_SET_ELEM_TIMEOUT | NFTA_SET_ELEM_EXPIRATION, _) if is_end => {}
                    (NFTA_SET_ELEM_EXPIRATION, Counts::Masked) => {}
                    (NFTA_SET_ELEM_EXPR, _) => {
                        out.nest(&attr, |out| rewrite_one(attr.value, how, out))?;
                    }
                    (NFTA_SET_ELEM_EXPRESSIONS, _) => {
                        out.put(attr.kind, &rewrite(attr.value, how)?);
                    }
                    _ => out.copy(&attr),
                }
            }
            Ok(())
        })?;
    }
    Ok(out.into_bytes())
}

/// Changes of single elements. The last change of each counts.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    /// The elements that were added or changed; nothing for one that was deleted.
    by_rank: BTreeMap<OwnRank, Option<Box<[u8]>>>,
}

type OwnRank = (Vec<u8>, bool, Vec<u8>);

fn own((key, is_start, key_end): Rank<'_>) -> OwnRank {
    (key.to_vec(), is_start, key_end.to_vec())
}

impl Edits {
    /// Takes the elements of one message: they were added, or changed, or deleted.
    pub(crate) fn take(&mut self, message: u16, list: &[u8]) -> Result<(), Malformed> {
        for element in Attrs::new(list) {
            let element = element?;
            let added = (message == NFT_MSG_NEWSETELEM).then(|| copied(&element));
            self.by_rank.insert(own(rank_of(&element)), added);
        }
        Ok(())
    }
}

fn copied(element: &Attr<'_>) -> Box<[u8]> {
    let mut bytes = Tlvs::default();
    bytes.copy(element);
    bytes.into_bytes()
}

impl Elements {
    /// Adds and deletes elements; false if one that was deleted was not there.
    pub(crate) fn edit(&mut self, edits: &Edits, layout: Layout) -> Result<bool, Malformed> {
        let ends = edits.by_rank.first_key_value().zip(edits.by_rank.last_key_value());
        let Some(((first, _), (last, _))) = ends else { return Ok(true) };
        // One more on each side can look different: what ends an interval may join or leave its neighbour.
        let end = (self.count_up_to(last) + 1).min(self.places().end);
        let window = self.count_up_to(first).saturating_sub(2)..end;
        let (mut around, mut gone) = (Collected::default(), 0);
        for at in window.clone() {
            for element in Attrs::new(self.dumped(at)) {
                let element = element?;
                match edits.by_rank.get(&own(rank_of(&element))) {
                    Some(None) => gone += 1,
                    Some(Some(_)) => {}
                    None => around.take(&copied(&element))?,
                }
            }
        }
        let came = edits.by_rank.values().flatten();
        came.into_iter().try_for_each(|element| around.take(element))?;
        let went = edits.by_rank.values().filter(|edit| edit.is_none()).count();
        self.splice(window, around.sorted(layout)?)?;
        Ok(gone == went)
    }

    /// How many units do not begin after this place.
    fn count_up_to(&self, (key, is_start, key_end): &OwnRank) -> u32 {
        let place = (&**key, *is_start, &**key_end);
        let Range { start: mut low, end: mut high } = self.places();
        while low < high {
            let middle = low + (high - low) / 2;
            if rank(self.unit(middle)) <= place { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn splice(&mut self, window: Range<u32>, with: Elements) -> Result<(), Malformed> {
        let (start, end) = (short(self.start(window.start))?, short(self.start(window.end))?);
        let shifted = |offset: u32| {
            let grown = u64::from(offset) + with.bytes.len() as u64;
            grown.checked_sub(u64::from(end - start)).and_then(|offset| u32::try_from(offset).ok())
        };
        for offset in self.ends.iter_mut().skip(window.end as usize) {
            *offset = shifted(*offset).ok_or(Malformed::Message)?;
        }
        let count = with.places().end;
        let ends = with.ends.into_iter().map(|end| start + end);
        self.ends.splice(window.start as usize..window.end as usize, ends);
        self.bytes.splice(start as usize..end as usize, with.bytes);
        let after = self.whole.split_off(&window.end);
        drop(self.whole.split_off(&window.start));
        self.whole.extend(with.whole.into_iter().map(|(at, whole)| (window.start + at, whole)));
        let moved =
            after.into_iter().map(|(at, whole)| (at - window.end + window.start + count, whole));
        self.whole.extend(moved);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(key: u32, flags: u32, left: Option<u64>) -> Box<[u8]> {
        let mut value = Tlvs::default();
        value.put(NFTA_DATA_VALUE, &key.to_be_bytes());
        let mut attrs = Tlvs::default();
        attrs.put(NFTA_SET_ELEM_KEY, &value.into_bytes());
        if flags != 0 {
            attrs.put(NFTA_SET_ELEM_FLAGS, &flags.to_be_bytes());
        }
        if let Some(left) = left {
            attrs.put(NFTA_SET_ELEM_TIMEOUT, &1000_u64.to_be_bytes());
            attrs.put(NFTA_SET_ELEM_EXPIRATION, &left.to_be_bytes());
        }
        let mut out = Tlvs::default();
        out.put(NFTA_LIST_ELEM, &attrs.into_bytes());
        out.into_bytes()
    }

    fn start(key: u32) -> Box<[u8]> {
        element(key, 0, None)
    }

    fn end(key: u32) -> Box<[u8]> {
        element(key, NFT_SET_ELEM_INTERVAL_END, None)
    }

    fn elements(layout: Layout, list: &[Box<[u8]>]) -> Elements {
        let mut collected = Collected::default();
        collected.take(&list.concat()).unwrap();
        collected.sorted(layout).unwrap()
    }

    fn differences(ours: &Elements, theirs: &Elements) -> Vec<Difference> {
        let mut found = Vec::new();
        ours.compare(theirs, |_, _| false, |difference| found.push(difference));
        found
    }

    #[test]
    fn the_order_in_which_the_kernel_dumps_them_does_not_matter() {
        let one = elements(Layout::Single, &[start(3), start(1), start(2)]);
        let other = elements(Layout::Single, &[start(2), start(3), start(1)]);
        assert_eq!(one, other);
        assert_eq!(differences(&one, &other), []);
    }

    #[test]
    fn an_interval_is_one_unit_and_neighbours_stay_apart() {
        let list = [end(0), start(10), end(20), start(20), end(30), start(40)];
        let units = elements(Layout::Ends, &list);
        assert_eq!(units.places().len(), 4);
        assert_eq!(units.unit(1), [start(10), end(20)].concat());
        assert_eq!(units.unit(2), [start(20), end(30)].concat());
        assert_eq!(units.unit(3), &*start(40));
    }

    #[test]
    fn a_longer_interval_is_a_changed_one() {
        let ours = elements(Layout::Ends, &[start(10), end(20)]);
        let theirs = elements(Layout::Ends, &[start(10), end(25), start(30), end(40)]);
        assert_eq!(differences(&ours, &theirs), [Difference::Changed(0, 0), Difference::Extra(1)]);
        assert_eq!(&*reduced(theirs.unit(0), KEY).unwrap(), [start(10), end(25)].concat());
    }

    #[test]
    fn the_time_that_is_left_is_no_difference_and_not_lost() {
        let ours = elements(Layout::Single, &[element(1, 0, Some(900))]);
        let theirs = elements(Layout::Single, &[element(1, 0, Some(100))]);
        assert_eq!(ours, theirs);
        assert_eq!(theirs.dumped(0), &*element(1, 0, Some(100)));
    }

    #[test]
    fn missing_and_extra_ones_are_found_by_their_places() {
        let ours = elements(Layout::Single, &[start(1), start(2), start(4)]);
        let theirs = elements(Layout::Single, &[start(2), start(3), start(4), start(5)]);
        let found = differences(&ours, &theirs);
        assert_eq!(found, [Difference::Missing(0), Difference::Extra(1), Difference::Extra(3)]);
    }

    proptest::proptest! {
        #[test]
        fn long_lists_differ_where_their_keys_do(
            ours in proptest::collection::btree_set(0_u32..2000, 0..20),
            theirs in proptest::collection::btree_set(0_u32..2000, 0..20),
        ) {
            // Both have all keys but those.
            let list = |without: &std::collections::BTreeSet<u32>| -> Vec<u32> {
                (0..2000).filter(|key| !without.contains(key)).collect()
            };
            let (our_keys, their_keys) = (list(&ours), list(&theirs));
            let long = |keys: &[u32]| {
                elements(Layout::Single, &keys.iter().map(|key| start(*key)).collect::<Vec<_>>())
            };
            let found = differences(&long(&our_keys), &long(&their_keys));
            let of = |at: &Difference| match at {
                Difference::Missing(at) => (true, our_keys[*at as usize]),
                Difference::Extra(at) => (false, their_keys[*at as usize]),
                Difference::Changed(..) => panic!("{at:?}"),
            };
            let mut found: Vec<_> = found.iter().map(of).collect();
            found.sort_unstable();
            let extra = ours.difference(&theirs).map(|key| (false, *key));
            let expected: Vec<_> = extra.chain(theirs.difference(&ours).map(|key| (true, *key))).collect();
            proptest::prop_assert_eq!(found, expected);
        }
    }
}

#[cfg(test)]
mod edit_tests {
    use proptest::prelude::*;

    use super::*;

    /// An element of a key; odd values carry the time that they have left, which is kept apart.
    fn element(key: u8, is_end: bool, time: u8) -> Vec<u8> {
        let (mut value, mut inside, mut out) = (Tlvs::default(), Tlvs::default(), Tlvs::default());
        value.put(NFTA_DATA_VALUE, &[key, 0, 0, 0]);
        inside.put(NFTA_SET_ELEM_KEY, &value.into_vec());
        if is_end {
            inside.put(NFTA_SET_ELEM_FLAGS, &NFT_SET_ELEM_INTERVAL_END.to_be_bytes());
        } else if time % 2 == 1 {
            inside.put(NFTA_SET_ELEM_TIMEOUT, &u64::from(time).to_be_bytes());
            inside.put(NFTA_SET_ELEM_EXPIRATION, &u64::from(time).to_be_bytes());
        }
        out.put(NFTA_LIST_ELEM, &inside.into_vec());
        out.into_vec()
    }

    type Known = BTreeMap<(u8, bool), u8>;

    fn elements(known: &Known, layout: Layout) -> Elements {
        let mut collected = Collected::default();
        for ((key, is_start), time) in known {
            collected.take(&element(*key, !is_start, *time)).unwrap();
        }
        collected.sorted(layout).unwrap()
    }

    fn shown(elements: &Elements) -> Vec<(&[u8], &[u8])> {
        elements.places().map(|at| (elements.unit(at), elements.dumped(at))).collect()
    }

    proptest! {
        #[test]
        fn edited_elements_are_what_a_whole_list_would_show(
            before in proptest::collection::btree_map((0_u8..24, any::<bool>()), any::<u8>(), 0..20),
            edits in proptest::collection::vec(((0_u8..24, any::<bool>()), any::<Option<u8>>()), 0..6),
            has_ends in any::<bool>(),
        ) {
            let layout = if has_ends { Layout::Ends } else { Layout::Single };
            let mut after = before.clone();
            let mut edits_made = Edits::default();
            for ((key, is_start), becomes) in edits {
                if let Some(time) = becomes {
                    after.insert((key, is_start), time);
                    edits_made.take(NFT_MSG_NEWSETELEM, &element(key, !is_start, time)).unwrap();
                } else {
                    after.remove(&(key, is_start));
                    edits_made.take(NFT_MSG_DELSETELEM, &element(key, !is_start, 0)).unwrap();
                }
            }
            let mut edited = elements(&before, layout);
            edited.edit(&edits_made, layout).unwrap();
            let whole = elements(&after, layout);
            prop_assert_eq!(shown(&edited), shown(&whole));
            prop_assert_eq!(edited, whole);
        }
    }

    #[test]
    fn what_went_without_having_been_there_is_noticed() {
        let mut known = elements(&Known::from([((1, true), 0)]), Layout::Single);
        for (key, expected) in [(1, true), (2, false)] {
            let mut edits_made = Edits::default();
            edits_made.take(NFT_MSG_DELSETELEM, &element(key, false, 0)).unwrap();
            assert_eq!(known.edit(&edits_made, Layout::Single).unwrap(), expected);
        }
        assert!(known.is_empty());
    }
}
