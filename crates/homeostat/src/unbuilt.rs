//! Parts of the document whose sources are not built in yet: a clear error at plan time.

use homeostat_document::{Document, Scope, Span};

use crate::failure::{Misfit, Misfits};

/// Refuses a document that wishes for what no source can keep.
pub(crate) fn refuse(document: &Document) -> Result<(), Misfit> {
    let mut misfits = Misfits::in_document(document);
    for (_, scope) in document.scopes() {
        for (what, span) in unbuilt(scope) {
            let help = "the network and knobs work in this version";
            misfits.push(span, &format!("{what} are not built in yet"), Some(help));
        }
    }
    misfits.into_result()
}

/// What is wished for and not built in, with its place. An empty list wishes for nothing.
fn unbuilt(scope: &Scope) -> Vec<(&'static str, Span)> {
    let mut found = Vec::new();
    if let Some(nftables) = scope.nftables.as_ref().filter(|nft| nft.ruleset.is_some()) {
        found.push(("nftables", nftables.span));
    }
    found
}
