//! Makes one tree of several files. Sections are joined, lists of routes and the like are strung
//! together, and anything else that is written twice is an error with both places.

use std::collections::HashMap;

use crate::diagnostic::Diagnostic;
use crate::entries::twice;
use crate::node::{Entry, Node, Value};

/// How two values with the same name are joined.
enum Join {
    /// Field by field.
    Tables,
    /// One after the other.
    Lists,
    /// Not at all.
    Never,
}

/// Adds `more` to `into`; both are whole documents.
pub(crate) fn merge(into: &mut Node, more: Node, found: &mut Vec<Diagnostic>) {
    match (&mut into.value, more.value) {
        (Value::Table(into), Value::Table(more)) => {
            merge_tables(into, more, &mut Vec::new(), found);
        }
        // A document that is no table is refused when it is read.
        (Value::Table(_), other) => *into = Node::new(other, more.span),
        _ => {}
    }
}

fn merge_tables(
    into: &mut Vec<Entry>,
    more: Vec<Entry>,
    path: &mut Vec<String>,
    found: &mut Vec<Diagnostic>,
) {
    let there = into.iter().enumerate().map(|(at, (key, _))| (key.value.clone(), at));
    let there: HashMap<String, usize> = there.collect();
    for (key, node) in more {
        let same = there.get(&key.value).and_then(|at| into.get_mut(*at));
        let Some((first, there)) = same else {
            into.push((key, node));
            continue;
        };
        path.push(key.value.clone());
        if !join(there, node, path, found) {
            found.push(twice(&key.value, key.span, first.span));
        }
        path.pop();
    }
}

/// Joins what can be joined; whether it could.
fn join(there: &mut Node, node: Node, path: &mut Vec<String>, found: &mut Vec<Diagnostic>) -> bool {
    match (how(path), &mut there.value, node.value) {
        (Join::Tables, Value::Table(into), Value::Table(more)) => {
            merge_tables(into, more, path, found);
            true
        }
        (Join::Lists, Value::List(into), Value::List(more)) => {
            into.extend(more);
            true
        }
        _ => false,
    }
}

/// The fields of a link are joined; what is inside of one field (a peer, a list of addresses) is
/// written in one place.
fn how(path: &[String]) -> Join {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let inside = match path.as_slice() {
        ["namespaces", _, inside @ ..] => inside,
        whole => whole,
    };
    match inside {
        []
        | [
            "namespaces" | "links" | "sysctl" | "nftables" | "cgroups" | "settings" | "proxmox"
            | "guests",
        ]
        | ["links" | "cgroups" | "settings" | "guests", _]
        | ["links", _, "sysctl"]
        | ["guests", _, "config"] => Join::Tables,
        ["routes" | "rules" | "neighbours" | "nexthops"] => Join::Lists,
        _ => Join::Never,
    }
}
