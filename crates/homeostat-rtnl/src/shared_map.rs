//! A sorted map whose clones share what they have in common: a clone, and a change after it, cost the same however
//! large the map is. An observation hands a plan all links and addresses this way, while events go on to change them.

use std::collections::BTreeMap;
use std::ops::RangeFrom;
use std::sync::Arc;

/// With fewer changes than this beside a shared part, that part is not copied.
const FEWEST_CHANGES: usize = 64;

/// A map from keys to values. While a clone shares `base`, changes are kept beside it.
#[derive(Debug)]
pub(crate) struct SharedMap<K, V> {
    base: Arc<BTreeMap<K, V>>,
    /// What is different from `base`; none for what was removed.
    changed: BTreeMap<K, Option<V>>,
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        SharedMap { base: Arc::default(), changed: BTreeMap::new() }
    }
}

impl<K: Clone, V: Clone> Clone for SharedMap<K, V> {
    fn clone(&self) -> Self {
        SharedMap { base: Arc::clone(&self.base), changed: self.changed.clone() }
    }
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        match self.changed.get(key) {
            Some(changed) => changed.as_ref(),
            None => self.base.get(key),
        }
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.change(key, Some(value));
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let former = self.get(key).cloned()?;
        self.change(key.clone(), None);
        Some(former)
    }

    /// All entries from a key on, in order.
    pub(crate) fn range(&self, from: RangeFrom<K>) -> impl Iterator<Item = (&K, &V)> {
        let changed = self.changed.range(from.clone()).peekable();
        merged(self.base.range(from).peekable(), changed)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        merged(self.base.iter().peekable(), self.changed.iter().peekable())
    }

    fn change(&mut self, key: K, value: Option<V>) {
        self.changed.insert(key, value);
        // After this many changes, copying the shared part costs little per change.
        let is_due = self.changed.len() > FEWEST_CHANGES.max(self.base.len() / FEWEST_CHANGES);
        if is_due {
            Arc::make_mut(&mut self.base);
        }
        if let Some(base) = Arc::get_mut(&mut self.base) {
            for (key, value) in std::mem::take(&mut self.changed) {
                match value {
                    Some(value) => _ = base.insert(key, value),
                    None => _ = base.remove(&key),
                }
            }
        }
    }
}

/// The entries of both, in order; of two with one key, the changed one counts.
fn merged<'a, K: Ord + 'a, V: 'a>(
    mut base: std::iter::Peekable<impl Iterator<Item = (&'a K, &'a V)>>,
    mut changed: std::iter::Peekable<impl Iterator<Item = (&'a K, &'a Option<V>)>>,
) -> impl Iterator<Item = (&'a K, &'a V)> {
    std::iter::from_fn(move || {
        loop {
            let Some((next, _)) = changed.peek() else { return base.next() };
            if let Some(entry) = base.next_if(|(key, _)| key < next) {
                return Some(entry);
            }
            base.next_if(|(key, _)| key == next);
            if let Some((key, Some(value))) = changed.next() {
                return Some((key, value));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(map: &SharedMap<u32, u32>) -> Vec<(u32, u32)> {
        map.iter().map(|(key, value)| (*key, *value)).collect()
    }

    #[test]
    fn a_clone_keeps_what_it_had() {
        let mut map = SharedMap::default();
        (0..6).for_each(|key| map.insert(key, key));
        let clone = map.clone();
        map.insert(2, 20);
        map.insert(9, 90);
        assert_eq!(map.remove(&3), Some(3));
        assert_eq!(map.remove(&3), None);
        assert_eq!(entries(&clone), (0..6).map(|key| (key, key)).collect::<Vec<_>>());
        assert_eq!(entries(&map), [(0, 0), (1, 1), (2, 20), (4, 4), (5, 5), (9, 90)]);
        let from: Vec<u32> = map.range(3..).map(|(key, _)| *key).collect();
        assert_eq!(from, [4, 5, 9]);
        assert_eq!((map.get(&2), map.get(&3), clone.get(&3)), (Some(&20), None, Some(&3)));
    }

    /// Compares with a plain map, with and without a clone beside it, through more changes than are kept beside the
    /// shared part.
    #[test]
    fn changes_are_those_of_a_plain_map() {
        let (mut map, mut plain) = (SharedMap::default(), BTreeMap::new());
        let (mut clone, mut number) = (None, 1_u32);
        for round in 0..2000 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = number >> 24;
            if number & 0x10000 == 0 {
                assert_eq!(map.remove(&key), plain.remove(&key));
            } else {
                map.insert(key, round);
                plain.insert(key, round);
            }
            if round % 300 == 0 {
                clone = Some((map.clone(), plain.clone()));
            } else if round % 500 == 0 {
                clone = None;
            }
            let expected: Vec<_> = plain.iter().map(|(key, value)| (*key, *value)).collect();
            assert_eq!(entries(&map), expected);
            if let Some((map, plain)) = &clone {
                assert!(map.iter().eq(plain.iter()));
            }
        }
    }
}
