//! Makes one tree of several files. Sections are joined, lists of routes and the like are strung
//! together, and anything else that is written twice is an error with both places.

use std::collections::HashMap;

use crate::diagnostic::Diagnostic;
use crate::node::{Entry, Node, Value, twice};
use crate::section::{Join, SourceSections};

/// Adds `more` to `into`; both are whole documents.
pub(crate) fn merge(
    into: &mut Node,
    more: Node,
    sources: &'static [SourceSections],
    found: &mut Vec<Diagnostic>,
) {
    match (&mut into.value, more.value) {
        (Value::Table(into), Value::Table(more)) => {
            Merge { sources, path: Vec::new(), found }.tables(into, more);
        }
        // A document that is no table is refused when it is read.
        (Value::Table(_), other) => *into = Node::new(other, more.span),
        _ => {}
    }
}

/// A merge under way, and where in the document it is.
struct Merge<'a> {
    sources: &'static [SourceSections],
    path: Vec<String>,
    found: &'a mut Vec<Diagnostic>,
}

impl Merge<'_> {
    fn tables(&mut self, into: &mut Vec<Entry>, more: Vec<Entry>) {
        let there = into.iter().enumerate().map(|(at, (key, _))| (key.value.clone(), at));
        let there: HashMap<String, usize> = there.collect();
        for (key, node) in more {
            let same = there.get(&key.value).and_then(|at| into.get_mut(*at));
            let Some((first, there)) = same else {
                into.push((key, node));
                continue;
            };
            self.path.push(key.value.clone());
            if !self.join(there, node) {
                self.found.push(twice(&key.value, key.span, first.span));
            }
            self.path.pop();
        }
    }

    /// Joins what can be joined; whether it could.
    fn join(&mut self, there: &mut Node, node: Node) -> bool {
        match (self.how(), &mut there.value, node.value) {
            (Join::Tables(_), Value::Table(into), Value::Table(more)) => {
                self.tables(into, more);
                true
            }
            (Join::Lists, Value::List(into), Value::List(more)) => {
                into.extend(more);
                true
            }
            _ => false,
        }
    }

    /// How what is at the present path is joined. The fields of a link are joined; what is inside of one
    /// field (a peer, a list of addresses) is written in one place.
    fn how(&self) -> Join {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let inside = match path.as_slice() {
            ["namespaces", _, inside @ ..] => inside,
            whole => whole,
        };
        let (name, below) = match inside {
            [] | ["namespaces" | "settings"] | ["settings", _] => return Join::Tables(&[]),
            [name, below @ ..] => (name, below),
        };
        let extensions = self.sources.iter().flat_map(|source| source.extensions);
        if extensions.flat_map(|one| one.joined).any(|joined| matches(joined, inside)) {
            return Join::Tables(&[]);
        }
        let mut sections = self.sources.iter().flat_map(|source| source.sections);
        match sections.find(|section| section.name == *name).map(|section| section.join) {
            Some(join) if below.is_empty() => join,
            Some(join @ Join::Tables(paths)) if paths.iter().any(|one| matches(one, below)) => join,
            _ => Join::Never,
        }
    }
}

/// Whether a path is as described: `*` is any name.
fn matches(pattern: &str, path: &[&str]) -> bool {
    let parts = pattern.split('/');
    parts.clone().count() == path.len()
        && parts.zip(path).all(|(part, name)| part == "*" || part == *name)
}
