//! The same knob twice, however it is spelt and wherever it stands.

use super::twins::Twins;
use crate::checker::Checker;
use crate::document::Scope;
use crate::key::{knob_path, link_knob_path};
use crate::knobs::Knob;

pub(super) fn check(scope: &Scope, checker: &mut Checker) {
    let mut twins = Twins::new();
    for (path, knob) in knobs(scope) {
        let path = path.join("/");
        let what = || format!("the knob `{path}`");
        twins.see(path.clone(), knob.key.span, checker, what);
    }
}

/// Every knob of a scope with its path: those of `[sysctl]`, then those of the links.
pub(super) fn knobs(scope: &Scope) -> impl Iterator<Item = (Vec<String>, &Knob)> {
    let own = scope.sysctl.iter().flatten();
    let own = own.filter_map(|knob| Some((knob_path(&knob.key).ok()?, knob)));
    let of_links = scope.links.iter().flatten().flat_map(|link| {
        let knobs = link.sysctl.iter().flatten();
        let name = link.name.as_str();
        knobs.filter_map(move |knob| Some((link_knob_path(name, &knob.key).ok()?, knob)))
    });
    own.chain(of_links)
}
