//! Parts of the document whose sources are not built in yet: a clear error at plan time.

use homeostat_document::{Document, RouteEntry, Scope, Span, Spanned};

use crate::failure::{Misfit, Misfits};

/// Refuses a document that wishes for what no source can keep.
pub(crate) fn refuse(document: &Document) -> Result<(), Misfit> {
    let mut misfits = Misfits::in_document(document);
    for (_, scope) in document.scopes() {
        for (what, span) in unbuilt(scope) {
            let help = "addresses, routes and knobs work in this version";
            misfits.push(span, &format!("{what} are not built in yet"), Some(help));
        }
    }
    misfits.into_result()
}

/// Where an entry speaks of a list of routes, or of a nexthop object.
fn list(entry: &Spanned<RouteEntry>) -> Option<Span> {
    match &entry.value {
        RouteEntry::File(_) => Some(entry.span),
        RouteEntry::One(route) => route.nexthop.map(|nexthop| nexthop.span),
    }
}

/// What is wished for and not built in, with its place. An empty list wishes for nothing.
fn unbuilt(scope: &Scope) -> Vec<(&'static str, Span)> {
    let mut found = Vec::new();
    for link in scope.links.iter().flatten() {
        let span = link.name.span;
        let is_configured = link.up.is_some()
            || link.mtu.is_some()
            || link.mac.is_some()
            || link.master.is_some()
            || link.parent.is_some()
            || link.alias.is_some();
        if link.kind.is_some() || is_configured {
            found.push(("settings of links", span));
        }
    }
    let first = |spans: &mut dyn Iterator<Item = Span>| spans.next();
    let lists = [
        ("lists of routes", first(&mut scope.routes.iter().flatten().filter_map(list))),
        ("rules", first(&mut scope.rules.iter().flatten().map(|rule| rule.span))),
        ("neighbours", first(&mut scope.neighbours.iter().flatten().map(|entry| entry.span))),
        ("nexthops", first(&mut scope.nexthops.iter().flatten().map(|entry| entry.span))),
    ];
    found.extend(lists.into_iter().filter_map(|(what, span)| Some((what, span?))));
    if let Some(nftables) = scope.nftables.as_ref().filter(|nft| nft.ruleset.is_some()) {
        found.push(("nftables", nftables.span));
    }
    found
}
