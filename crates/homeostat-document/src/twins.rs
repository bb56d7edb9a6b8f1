//! The same key twice.

use std::collections::HashMap;
use std::hash::Hash;

use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::span::Span;

/// Where each key was seen first.
#[derive(Debug)]
pub struct Twins<K> {
    places: HashMap<K, Span>,
}

impl<K> Default for Twins<K> {
    fn default() -> Self {
        Self { places: HashMap::new() }
    }
}

impl<K: Hash + Eq> Twins<K> {
    /// Remembers a key, or reports that it is there already; `what` says what it is the key of.
    pub fn see(&mut self, key: K, span: Span, checker: &mut Checker, what: impl Fn() -> String) {
        match self.places.get(&key) {
            Some(first) => {
                let again = Diagnostic::new(span, format!("{} is declared twice", what()));
                checker.report(again.also(*first, "first declared here"));
            }
            None => drop(self.places.insert(key, span)),
        }
    }
}
