//! One table as core sees it: its whole content, or what a ledger keeps of it.
//!
//! A ledger keeps a digest of the content and, for each set, prints of the declared elements. When a text no longer
//! has the elements, those that it had are deleted once, and no others.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::diff;
use crate::elements::{KEY, reduced};
use crate::model::{Inside, Rule, Set, Table};
use crate::plan::Op;

/// A table. A ledger keeps a digest of the content, which is enough to distinguish it from others, and which
/// elements were declared.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Object {
    pub(crate) table: Option<Arc<Table>>,
    recorded: Arc<Recorded>,
    /// Of a table that was seen: what the ledger says was declared in it.
    pub(crate) declared_before: DeclaredBefore,
    /// Whether it was seen with our mark.
    pub(crate) is_marked: bool,
    ops: Arc<OnceLock<CachedOps>>,
}

/// A declared table, and the ops that make a table that was seen like it.
type CachedOps = (Arc<Table>, Arc<Vec<Op>>);

/// What a ledger keeps of a table, computed when it is asked for: most tables are compared whole.
#[derive(Debug, Default)]
struct Recorded {
    digest: OnceLock<String>,
    declared: OnceLock<Declared>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    digest: String,
    #[serde(flatten)]
    declared: Declared,
}

impl From<Stored> for Object {
    fn from(Stored { digest, declared }: Stored) -> Self {
        Object::new(None, Recorded { digest: digest.into(), declared: declared.into() })
    }
}

impl From<Object> for Stored {
    fn from(object: Object) -> Self {
        Stored { digest: object.digest().to_owned(), declared: object.declared().clone() }
    }
}

impl Object {
    fn new(table: Option<Arc<Table>>, recorded: Recorded) -> Self {
        let (recorded, declared_before) = (Arc::new(recorded), DeclaredBefore::default());
        Object { recorded, table, declared_before, is_marked: false, ops: Arc::default() }
    }

    /// A table of the desired state: its elements are declared.
    pub(crate) fn desired(table: Arc<Table>) -> Self {
        Object::new(Some(table), Recorded::default())
    }

    /// A table of the kernel: its elements are not declared.
    pub(crate) fn seen(table: Arc<Table>) -> Self {
        let declared = OnceLock::from(Declared::default());
        Object::new(Some(table), Recorded { declared, ..Recorded::default() })
    }

    /// The same, with what the ledger says was declared in it, and whether it has our mark.
    pub(crate) fn observed(table: Arc<Table>, before: DeclaredBefore, is_marked: bool) -> Self {
        Object { declared_before: before, is_marked, ..Object::seen(table) }
    }

    /// The ops that make it as declared. A pass asks several times, and they take long to find in a large table.
    pub(crate) fn ops(&self, desired: &Arc<Table>) -> Arc<Vec<Op>> {
        let ops = || {
            let seen = self.table.as_deref().map(|seen| (seen, &self.declared_before));
            Arc::new(diff::table(desired, seen))
        };
        let (of, cached) = self.ops.get_or_init(|| (Arc::clone(desired), ops()));
        if Arc::ptr_eq(of, desired) { Arc::clone(cached) } else { ops() }
    }

    pub(crate) fn digest(&self) -> &str {
        let table = self.table.as_deref();
        self.recorded.digest.get_or_init(|| table.map(digest).unwrap_or_default())
    }

    /// The elements that it declares.
    fn declared(&self) -> &Declared {
        let table = self.table.as_deref();
        self.recorded.declared.get_or_init(|| table.map(Declared::of).unwrap_or_default())
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

/// FNV-1a, twice with different beginnings: stable across versions and machines.
struct Fnv([u64; 2]);

impl Default for Fnv {
    fn default() -> Self {
        Fnv([0xcbf2_9ce4_8422_2325, 0x6c62_272e_07bb_0142])
    }
}

impl Fnv {
    fn take_set(&mut self, set: &Set) {
        self.take(&set.definition);
        set.elements.places().for_each(|at| self.take(set.elements.unit(at)));
    }

    fn take(&mut self, bytes: &[u8]) {
        let len = (bytes.len() as u64).to_le_bytes();
        for byte in len.iter().chain(bytes) {
            for (at, sum) in self.0.iter_mut().enumerate() {
                let byte = u64::from(*byte) ^ (at as u64) << 8;
                *sum = (*sum ^ byte).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
    }
}

fn digest(table: &Table) -> String {
    let mut sum = Fnv::default();
    sum.take(&table.flags.to_le_bytes());
    for (name, chain) in &table.chains {
        sum.take(name.as_bytes());
        sum.take(&chain.definition);
        sum.take(&chain.policy.unwrap_or(u32::MAX).to_le_bytes());
        rules(&chain.rules, &mut sum);
    }
    for (name, set) in &table.sets {
        sum.take(name.as_bytes());
        sum.take_set(set);
    }
    for (id, object) in &table.objects {
        sum.take(id.name.as_bytes());
        sum.take(&id.kind.to_le_bytes());
        sum.take(&object.definition);
    }
    for (name, definition) in &table.flowtables {
        sum.take(name.as_bytes());
        sum.take(definition);
    }
    let [high, low] = sum.0;
    format!("{high:016x}{low:016x}")
}

fn rules(rules: &[Rule], sum: &mut Fnv) {
    for rule in rules {
        sum.take(rule.expressions());
        sum.take(rule.userdata().unwrap_or_default());
        for inside in &rule.inside {
            match inside {
                Inside::Set(set) => sum.take_set(set),
                Inside::Chain(inner) => self::rules(inner, sum),
            }
        }
    }
}

/// The declared elements of each set of a table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Declared {
    /// What names the elements.
    #[serde(rename = "declared", default, skip_serializing_if = "BTreeMap::is_empty")]
    keys: BTreeMap<String, Prints>,
    /// The elements with timeout, comment and statements, of sets in which packets or time change those.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    definitions: BTreeMap<String, Prints>,
}

/// Sorted prints: eight bytes an element, so that two of a million elements are never mistaken for
/// each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Prints(Vec<u64>);

impl Declared {
    fn of(table: &Table) -> Self {
        let mut declared = Declared::default();
        for (name, set) in table.sets.iter().filter(|(_, set)| !set.elements.is_empty()) {
            let units = || set.elements.places().map(|at| set.elements.unit(at));
            declared.keys.insert(name.clone(), units().map(key_print).collect());
            if set.is_moving() {
                declared.definitions.insert(name.clone(), units().map(print).collect());
            }
        }
        declared
    }
}

impl FromIterator<u64> for Prints {
    fn from_iter<I: IntoIterator<Item = u64>>(prints: I) -> Self {
        let mut prints: Vec<_> = prints.into_iter().collect();
        prints.sort_unstable();
        Prints(prints)
    }
}

impl Prints {
    fn have(&self, print: u64) -> bool {
        self.0.binary_search(&print).is_ok()
    }
}

/// A print of what names an element. What has no readable key is like no other.
fn key_print(unit: &[u8]) -> u64 {
    print(&reduced(unit, KEY).unwrap_or_default())
}

fn print(bytes: &[u8]) -> u64 {
    let mut sum = Fnv::default();
    sum.take(bytes);
    let Fnv([first, _]) = sum;
    first
}

impl From<Prints> for String {
    fn from(prints: Prints) -> Self {
        let mut text = String::with_capacity(prints.0.len() * DIGITS);
        for print in prints.0 {
            // Writing to a text cannot fail.
            let _ = write!(text, "{print:016x}");
        }
        text
    }
}

const DIGITS: usize = 16;

impl TryFrom<String> for Prints {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let starts = (0..text.len()).step_by(DIGITS);
        let digits = starts.map(|start| text.get(start..start + DIGITS).unwrap_or(""));
        digits.map(|digits| u64::from_str_radix(digits, 16)).collect::<Result<_, _>>().map(Prints)
    }
}

/// What a ledger says was declared: by the last write, and by one before it that a crash left open.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeclaredBefore(Box<[Object]>);

impl DeclaredBefore {
    pub(crate) fn new(recorded: impl Iterator<Item = Object>) -> Self {
        DeclaredBefore(recorded.collect())
    }

    /// Whether the last write declared the same table, and was completed.
    pub(crate) fn is_of(&self, table: &Table) -> bool {
        matches!(&*self.0, [object] if object.digest() == digest(table))
    }

    /// Whether nothing was declared.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|object| object.declared().keys.is_empty())
    }

    /// Whether an element was declared.
    pub(crate) fn has(&self, set: &str, unit: &[u8]) -> bool {
        let has = |print: u64| {
            let mut keys = self.0.iter().filter_map(|object| object.declared().keys.get(set));
            keys.any(|keys| keys.have(print))
        };
        !self.is_empty() && has(key_print(unit))
    }

    /// Whether an element was declared with another timeout, comment or statement.
    pub(crate) fn has_otherwise(&self, set: &str, unit: &[u8]) -> bool {
        let mut all = self.0.iter().filter_map(|object| object.declared().definitions.get(set));
        self.has(set, unit) && all.any(|definitions| !definitions.have(print(unit)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_stores_digest_declared_and_definitions() {
        for text in [
            r#"{"digest":"ab"}"#,
            r#"{"digest":"ab","declared":{"s":"0000000000000001"}}"#,
            r#"{"digest":"ab","declared":{"s":"0000000000000001"},"definitions":{"s":"0000000000000002"}}"#,
        ] {
            let object: Object = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&object).unwrap(), text);
        }
    }

    #[test]
    fn prints_read_back_as_they_were_and_torn_ones_are_refused() {
        let prints = Prints(vec![0, 1, u64::MAX]);
        let text = String::from(prints.clone());
        assert_eq!(text.len(), 48);
        assert_eq!(Prints::try_from(text.clone()), Ok(prints));
        assert!(Prints::try_from(text[1..].to_owned()).is_err());
        assert_eq!(Prints::try_from(String::new()), Ok(Prints::default()));
    }
}
