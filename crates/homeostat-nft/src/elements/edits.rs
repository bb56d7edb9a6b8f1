//! Elements that come and go one by one, as the kernel tells of them.
//!
//! Only the units around what changed are taken apart and joined again: a set may have a million.

use std::collections::BTreeMap;
use std::ops::Range;

use homeostat_netlink::{Attr, Attrs, Malformed};

use super::{Collected, Elements, Layout, Rank, rank, rank_of};
use crate::tlv::Tlvs;

/// What became of single elements. The last word on each counts.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    told: BTreeMap<OwnRank, Option<Box<[u8]>>>,
}

type OwnRank = (Vec<u8>, bool, Vec<u8>);

fn own((key, is_start, key_end): Rank<'_>) -> OwnRank {
    (key.to_vec(), is_start, key_end.to_vec())
}

fn borrowed((key, is_start, key_end): &OwnRank) -> Rank<'_> {
    (key, *is_start, key_end)
}

impl Edits {
    /// Elements that came, or are others than they were.
    pub(crate) fn came(&mut self, list: &[u8]) -> Result<(), Malformed> {
        self.take(list, |element| {
            let mut bytes = Tlvs::default();
            bytes.copy(element);
            Some(bytes.into_bytes())
        })
    }

    /// Elements that went.
    pub(crate) fn went(&mut self, list: &[u8]) -> Result<(), Malformed> {
        self.take(list, |_| None)
    }

    fn take(
        &mut self,
        list: &[u8],
        becomes: impl Fn(&Attr<'_>) -> Option<Box<[u8]>>,
    ) -> Result<(), Malformed> {
        for element in Attrs::new(list) {
            let element = element?;
            self.told.insert(own(rank_of(&element)), becomes(&element));
        }
        Ok(())
    }

    /// From the first to the last place that they are about.
    fn span(&self) -> Option<(Rank<'_>, Rank<'_>)> {
        let (first, _) = self.told.first_key_value()?;
        let (last, _) = self.told.last_key_value()?;
        Some((borrowed(first), borrowed(last)))
    }
}

impl Elements {
    /// Makes them as they were told; whether everything that went was there before.
    pub(crate) fn edit(&mut self, edits: &Edits, layout: Layout) -> Result<bool, Malformed> {
        let Some(span) = edits.span() else { return Ok(true) };
        let window = self.window(span);
        let (mut around, mut gone) = (Collected::default(), 0);
        for at in window.clone() {
            for element in Attrs::new(self.dumped(at)) {
                let element = element?;
                match edits.told.get(&own(rank_of(&element))) {
                    Some(None) => gone += 1,
                    Some(Some(_)) => {}
                    None => around.take_one(&element)?,
                }
            }
        }
        let came = edits.told.values().flatten();
        came.into_iter().try_for_each(|element| around.take(element))?;
        let went = edits.told.values().filter(|told| told.is_none()).count();
        self.splice(window, around.sorted(layout)?)?;
        Ok(gone == went)
    }

    /// The units that can look different after an edit in this span: one more on each side, since what
    /// ends an interval may join or leave its neighbour.
    fn window(&self, (first, last): (Rank<'_>, Rank<'_>)) -> Range<u32> {
        let begin = self.count_up_to(first).saturating_sub(2);
        let end = (self.count_up_to(last) + 1).min(self.places().end);
        begin..end
    }

    /// How many units do not begin after this place.
    fn count_up_to(&self, place: Rank<'_>) -> u32 {
        let Range { start: mut low, end: mut high } = self.places();
        while low < high {
            let middle = low + (high - low) / 2;
            if rank(self.unit(middle)) <= place { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn splice(&mut self, window: Range<u32>, with: Elements) -> Result<(), Malformed> {
        let start_of = |at: u32| match at.checked_sub(1) {
            Some(before) => self.ends.get(before as usize).copied().unwrap_or_default(),
            None => 0,
        };
        let (start, end) = (start_of(window.start), start_of(window.end));
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
    use homeostat_netlink::uapi::{
        NFT_SET_ELEM_INTERVAL_END, NFTA_DATA_VALUE, NFTA_LIST_ELEM, NFTA_SET_ELEM_EXPIRATION,
        NFTA_SET_ELEM_FLAGS, NFTA_SET_ELEM_KEY, NFTA_SET_ELEM_TIMEOUT,
    };
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
            let mut told = Edits::default();
            for ((key, is_start), becomes) in edits {
                if let Some(time) = becomes {
                    after.insert((key, is_start), time);
                    told.came(&element(key, !is_start, time)).unwrap();
                } else {
                    after.remove(&(key, is_start));
                    told.went(&element(key, !is_start, 0)).unwrap();
                }
            }
            let mut edited = elements(&before, layout);
            edited.edit(&told, layout).unwrap();
            let whole = elements(&after, layout);
            prop_assert_eq!(shown(&edited), shown(&whole));
            prop_assert_eq!(edited, whole);
        }
    }

    #[test]
    fn what_went_without_having_been_there_is_noticed() {
        let mut known = elements(&Known::from([((1, true), 0)]), Layout::Single);
        for (key, expected) in [(1, true), (2, false)] {
            let mut told = Edits::default();
            told.went(&element(key, false, 0)).unwrap();
            assert_eq!(known.edit(&told, Layout::Single).unwrap(), expected);
        }
        assert!(known.is_empty());
    }
}
