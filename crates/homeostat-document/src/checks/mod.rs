//! What is wrong between entries that are each fine: twins, references, wishes that fight.

mod ipv6;
mod knobs;
mod references;
mod twins;

pub(crate) use twins::RouteKey;

use crate::checker::Checker;
use crate::document::{Document, Scope};
use crate::name::{HOST, NamespaceName};

/// A scope with its name, as peers and parents call it.
#[derive(Clone, Copy)]
struct Named<'d> {
    name: &'d str,
    scope: &'d Scope,
}

/// Reports every mistake that needs more than one entry to be seen.
pub(crate) fn check(document: &Document, checker: &mut Checker) {
    let scopes = document.scopes().map(|(name, scope)| {
        let name = name.map_or(HOST, NamespaceName::as_str);
        Named { name, scope }
    });
    let scopes: Vec<Named<'_>> = scopes.collect();
    for one in &scopes {
        twins::check(one.scope, checker);
        knobs::check(one.scope, checker);
        ipv6::check(one.scope, checker);
    }
    references::check(&scopes, checker);
}
