//! Which elements a text declared, as prints of their keys: what a ledger remembers of them.
//!
//! When a text no longer has the elements, those that it had are deleted once, and no others.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::elements::{Elements, UnitAt};
use crate::model::Table;
use crate::object::{Fnv, Object};

/// The declared elements of each set of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Declared(BTreeMap<String, Prints>);

/// Sorted prints: eight bytes an element, so that two of a million elements are never mistaken for
/// each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Prints(Vec<u64>);

impl Declared {
    pub(crate) fn of(table: &Table) -> Self {
        let sets = table.sets.iter().filter(|(_, set)| !set.elements.is_empty());
        Declared(sets.map(|(name, set)| (name.clone(), Prints::of(&set.elements))).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has(&self, set: &str, print: u64) -> bool {
        self.0.get(set).is_some_and(|prints| prints.0.binary_search(&print).is_ok())
    }
}

impl Prints {
    fn of(elements: &Elements) -> Self {
        let mut prints: Vec<_> = elements.places().map(|at| print(elements, at)).collect();
        prints.sort_unstable();
        Prints(prints)
    }
}

/// A print of what names an element. What has no readable key is like no other.
fn print(elements: &Elements, at: UnitAt) -> u64 {
    let mut sum = Fnv::default();
    sum.take(&elements.deleting(at).unwrap_or_default());
    sum.first()
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
pub(crate) struct Former(Box<[Object]>);

impl Former {
    pub(crate) fn new(recorded: impl Iterator<Item = Object>) -> Self {
        Former(recorded.filter(|object| !object.declared().is_empty()).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an element was declared.
    pub(crate) fn has(&self, set: &str, elements: &Elements, at: UnitAt) -> bool {
        if self.is_empty() {
            return false;
        }
        let print = print(elements, at);
        self.0.iter().any(|object| object.declared().has(set, print))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
