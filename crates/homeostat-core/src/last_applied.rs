//! The last applied desired state in compact form: it distinguishes "config changed" from "drifted".

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write as _};
use std::sync::Arc;

use serde::Serialize;

use crate::desired::{Desired, Slot};
use crate::explain::Cause;

/// A digest of one desired state: 40 bits of its key, 24 bits of its object.
///
/// It only labels causes, so a rare collision costs a wrong word in a plan, nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint(u64);

const OBJECT_BITS: u32 = 24;

impl Fingerprint {
    fn of<D: Desired>(desired: &D, slot: Slot) -> Self {
        Self::from_parts(desired.key_print(&desired.key(slot)), desired.object_print(slot))
    }

    fn from_parts(key: u64, object: u64) -> Self {
        Fingerprint((key << OBJECT_BITS) | (object ^ (object >> 32)) & ((1 << OBJECT_BITS) - 1))
    }

    /// The digest of a one-line text.
    pub fn of_text(text: &impl fmt::Display) -> u64 {
        let mut hash = Fnv::EMPTY;
        let _ = write!(hash, "{text}");
        hash.0
    }

    /// The digest of a serialized object. One that cannot be serialized digests as its readable
    /// part: a collision costs a wrong word.
    pub fn of_object(object: &impl Serialize) -> u64 {
        let mut hash = Fnv::EMPTY;
        let _ = serde_json::to_writer(&mut hash, object);
        hash.0
    }

    /// The key's bits alone, by which a print is found whatever its object was.
    fn bare<D: Desired>(desired: &D, key: &D::Key) -> Self {
        Self::from_parts(desired.key_print(key), 0)
    }

    fn without_object(self) -> Self {
        Fingerprint(self.0 >> OBJECT_BITS << OBJECT_BITS)
    }
}

/// The fingerprints of the desired state that was last applied, sorted: eight bytes a desired state. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastApplied {
    prints: Arc<Vec<Fingerprint>>,
}

impl LastApplied {
    /// Takes the fingerprints of a desired state.
    pub fn of<D: Desired>(desired: &D) -> Self {
        let mut prints: Vec<_> =
            (0..desired.len()).map(|index| Fingerprint::of(desired, Slot::at(index))).collect();
        prints.sort_unstable();
        LastApplied { prints: Arc::new(prints) }
    }

    /// Why the object in `slot` has to be written: the desired state is new, or the target drifted from it.
    pub fn cause_of<D: Desired>(&self, desired: &D, slot: Slot) -> Cause {
        match self.prints.binary_search(&Fingerprint::of(desired, slot)) {
            Ok(_) => Cause::Drift,
            Err(_) => Cause::Config,
        }
    }

    /// Why an owned object that is not declared is there: its declaration was dropped (config), or it
    /// appeared by itself (drift).
    pub fn cause_of_removal<D: Desired>(&self, desired: &D, key: &D::Key) -> Cause {
        let bare = Fingerprint::bare(desired, key);
        match self.prints.binary_search_by_key(&bare, |print| print.without_object()) {
            Ok(_) => Cause::Config,
            Err(_) => Cause::Drift,
        }
    }

    /// The fingerprints after `desired` was applied, but for some keys: of those the former ones stay.
    /// `last` is what [`LastApplied::of`] gives for `desired`.
    #[must_use]
    pub fn advanced<D: Desired>(
        &self,
        desired: &D,
        last: Self,
        but_for: &BTreeSet<D::Key>,
    ) -> Self {
        if but_for.is_empty() {
            return last;
        }
        let kept: BTreeSet<_> = but_for.iter().map(|key| Fingerprint::bare(desired, key)).collect();
        let is_kept = |print: &&Fingerprint| kept.contains(&print.without_object());
        let new = last.prints.iter().filter(|print| !is_kept(print));
        let former = self.prints.iter().filter(is_kept);
        let mut prints: Vec<_> = new.chain(former).copied().collect();
        prints.sort_unstable();
        LastApplied { prints: Arc::new(prints) }
    }

    /// The stored form.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.prints.iter().flat_map(|print| print.0.to_le_bytes()).collect()
    }

    /// Reads the stored form; `None` when the length cannot be right.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut prints: Vec<_> =
            words.iter().map(|word| Fingerprint(u64::from_le_bytes(*word))).collect();
        prints.sort_unstable();
        rest.is_empty().then(|| LastApplied { prints: Arc::new(prints) })
    }
}

/// FNV-1a: tiny, and the same on every machine and in every version, as a stored digest must be.
struct Fnv(u64);

impl Fnv {
    const EMPTY: Self = Fnv(0xcbf2_9ce4_8422_2325);
}

impl io::Write for Fnv {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::Table;

    fn desired(pairs: &[(&str, u32)]) -> Table<String, u32> {
        Table::new(pairs.iter().map(|(key, value)| ((*key).to_owned(), *value))).unwrap()
    }

    #[test]
    fn an_unchanged_desired_state_is_drift_and_a_changed_one_is_config() {
        let last = LastApplied::of(&desired(&[("a", 1), ("b", 2)]));
        let new = desired(&[("a", 1), ("b", 3), ("c", 4)]);
        assert_eq!(last.cause_of(&new, Slot(0)), Cause::Drift);
        assert_eq!(last.cause_of(&new, Slot(1)), Cause::Config);
        assert_eq!(last.cause_of(&new, Slot(2)), Cause::Config);
    }

    #[test]
    fn a_dropped_desired_state_is_config_and_an_unasked_object_is_drift() {
        let last = LastApplied::of(&desired(&[("a", 1), ("b", 2)]));
        assert_eq!(last.cause_of_removal(&desired(&[]), &"b".to_owned()), Cause::Config);
        assert_eq!(last.cause_of_removal(&desired(&[]), &"z".to_owned()), Cause::Drift);
    }

    #[test]
    fn what_was_not_applied_keeps_its_former_fingerprint() {
        let last = LastApplied::of(&desired(&[("changed", 1), ("dropped", 1), ("same", 1)]));
        let new = desired(&[("changed", 2), ("fresh", 1), ("same", 1)]);
        let open = ["changed", "dropped", "fresh"].map(str::to_owned).into();
        let advanced = last.advanced(&new, LastApplied::of(&new), &open);
        assert_eq!(advanced, last, "nothing came through");
        assert_eq!(advanced.cause_of(&new, Slot(0)), Cause::Config);
        assert_eq!(advanced.cause_of(&new, Slot(1)), Cause::Config);
        assert_eq!(advanced.cause_of(&new, Slot(2)), Cause::Drift);
        assert_eq!(advanced.cause_of_removal(&new, &"dropped".to_owned()), Cause::Config);
    }

    #[test]
    fn what_was_applied_advances_beside_what_was_not() {
        let last = LastApplied::of(&desired(&[("a", 1), ("b", 1)]));
        let new = desired(&[("a", 2), ("b", 2)]);
        let advanced = last.advanced(&new, LastApplied::of(&new), &["b".to_owned()].into());
        assert_eq!(advanced.cause_of(&new, Slot(0)), Cause::Drift);
        assert_eq!(advanced.cause_of(&new, Slot(1)), Cause::Config);
        assert_eq!(
            advanced.advanced(&new, LastApplied::of(&new), &BTreeSet::new()),
            LastApplied::of(&new)
        );
    }

    #[test]
    fn a_hundred_thousand_open_keys_cost_one_sweep() {
        let keys = (0..100_000u32).map(|nth| (nth.to_string(), nth));
        let many: Table<String, u32> = Table::new(keys).unwrap();
        let open: BTreeSet<String> = many.iter().map(|(key, _)| key.clone()).collect();
        let advanced = LastApplied::default().advanced(&many, LastApplied::of(&many), &open);
        assert_eq!(advanced, LastApplied::default());
    }

    #[test]
    fn the_stored_form_round_trips_and_a_torn_one_is_refused() {
        let last = LastApplied::of(&desired(&[("a", 1), ("b", 2), ("c", 9)]));
        let bytes = last.to_bytes();
        assert_eq!(bytes.len(), 24);
        assert_eq!(LastApplied::from_bytes(&bytes), Some(last));
        assert_eq!(LastApplied::from_bytes(&bytes[..23]), None);
    }

    #[test]
    fn the_digest_of_a_desired_state_never_changes_between_versions() {
        let key = Fingerprint::of_text(&"sysctl net.ipv4.ip_forward");
        let print = Fingerprint::from_parts(key, Fingerprint::of_object(&"1"));
        assert_eq!(format!("{:016x}", print.0), "54cae02cee98caed");
    }
}
