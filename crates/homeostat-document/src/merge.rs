//! Makes one tree of several files. Sections are joined, lists of routes and the like are strung
//! together, and anything else that is written twice is an error with both places.

use std::collections::HashMap;

use crate::diagnostic::Diagnostic;
use crate::node::{Entry, Node, Value, twice};
use crate::section::{Join, SourceSections};
use crate::span::{Span, Spanned};

/// Joins whole documents, in order. The work grows with what they hold, not with the square of their number.
pub(crate) fn merge(
    trees: Vec<Node>,
    sources: &'static [SourceSections],
    found: &mut Vec<Diagnostic>,
) -> Node {
    let mut tables = Vec::new();
    for tree in trees {
        match tree.value {
            Value::Table(entries) => tables.push(entries),
            // A document that is no table is refused when it is read.
            other => return Node::new(other, tree.span),
        }
    }
    let entries = Merge { sources, path: Vec::new(), found }.tables(tables);
    Node::new(Value::Table(entries), Span::default())
}

/// A merge under way, and where in the document it is.
struct Merge<'a> {
    sources: &'static [SourceSections],
    path: Vec<String>,
    found: &'a mut Vec<Diagnostic>,
}

impl Merge<'_> {
    fn tables(&mut self, tables: Vec<Vec<Entry>>) -> Vec<Entry> {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut all: Vec<(Spanned<String>, Node, Vec<Entry>)> = Vec::new();
        for (key, node) in tables.into_iter().flatten() {
            if let Some((.., more)) = places.get(&key.value).and_then(|at| all.get_mut(*at)) {
                more.push((key, node));
            } else {
                places.insert(key.value.clone(), all.len());
                all.push((key, node, Vec::new()));
            }
        }
        let joined = all.into_iter().map(|(key, node, more)| {
            if more.is_empty() {
                return (key, node);
            }
            self.path.push(key.value.clone());
            let node = self.join(&key, node, more);
            self.path.pop();
            (key, node)
        });
        joined.collect()
    }

    /// Joins what can be joined; the rest is defined twice.
    fn join(&mut self, first: &Spanned<String>, node: Node, more: Vec<Entry>) -> Node {
        let Node { value, span } = node;
        let mut refuse = |again: &Spanned<String>| {
            self.found.push(twice(&again.value, again.span, first.span));
        };
        let value = match (how(self.sources, &self.path), value) {
            (Join::Tables(_), Value::Table(entries)) => {
                let mut tables = vec![entries];
                for (key, node) in more {
                    match node.value {
                        Value::Table(entries) => tables.push(entries),
                        _ => refuse(&key),
                    }
                }
                Value::Table(self.tables(tables))
            }
            (Join::Lists, Value::List(mut list)) => {
                for (key, node) in more {
                    match node.value {
                        Value::List(items) => list.extend(items),
                        _ => refuse(&key),
                    }
                }
                Value::List(list)
            }
            (_, value) => {
                for (key, _) in &more {
                    refuse(key);
                }
                value
            }
        };
        Node::new(value, span)
    }
}

/// How what is at the present path is joined. The fields of a link are joined; what is inside of one
/// field (a peer, a list of addresses) is written in one place.
fn how(sources: &'static [SourceSections], path: &[String]) -> Join {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let inside = match path.as_slice() {
        ["namespaces", _, inside @ ..] => inside,
        whole => whole,
    };
    let (name, below) = match inside {
        [] | ["namespaces" | "settings"] | ["settings", _] => return Join::Tables(&[]),
        [name, below @ ..] => (name, below),
    };
    let extensions = sources.iter().flat_map(|source| source.extensions);
    if extensions.flat_map(|one| one.joined).any(|joined| matches(joined, inside)) {
        return Join::Tables(&[]);
    }
    let mut sections = sources.iter().flat_map(|source| source.sections);
    match sections.find(|section| section.name == *name).map(|section| section.join) {
        Some(join) if below.is_empty() => join,
        Some(join @ Join::Tables(paths)) if paths.iter().any(|one| matches(one, below)) => join,
        _ => Join::Never,
    }
}

/// Whether a path is as described: `*` is any name.
fn matches(pattern: &str, path: &[&str]) -> bool {
    let parts = pattern.split('/');
    parts.clone().count() == path.len()
        && parts.zip(path).all(|(part, name)| part == "*" || part == *name)
}
