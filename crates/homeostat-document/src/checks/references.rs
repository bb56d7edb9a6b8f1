//! Masters, parents and peers: what links say of each other.

use std::collections::HashMap;

use super::Named;
use super::twins::Twins;
use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::kinds::{Kind, KindName};
use crate::links::{Link, LinkRef};
use crate::name::HOST;
use crate::span::Spanned;

/// Links by scope and name.
type Links<'d> = HashMap<(&'d str, &'d str), &'d Link>;

pub(super) fn check(scopes: &[Named<'_>], checker: &mut Checker) {
    let all = || scopes.iter().flat_map(|one| links(one).map(move |link| (one.name, link)));
    let by_name: Links<'_> =
        all().map(|(scope, link)| ((scope, link.name.as_str()), link)).collect();
    let mut ends = Twins::new();
    for (scope, link) in all() {
        check_master(scope, link, &by_name, checker);
        check_parent(scope, link, checker);
        if let Some(peer) = link.peer() {
            let end = (namespace(peer, scope), peer.name.as_str());
            let what = || format!("the end `{}` of a veth pair", peer.name.value);
            ends.see(end, peer.name.span, checker, what);
            check_other_end(link, peer, by_name.get(&end), checker);
        }
    }
}

fn links<'d>(one: &Named<'d>) -> impl Iterator<Item = &'d Link> + use<'d> {
    one.scope.links.iter().flatten()
}

fn namespace<'d>(link: &'d LinkRef, here: &'d str) -> &'d str {
    link.namespace.as_ref().map_or(here, |name| name.as_str())
}

/// A master that we make must be of a kind that can be one.
fn check_master(scope: &str, link: &Link, links: &Links<'_>, checker: &mut Checker) {
    let Some(master) = &link.master else { return };
    let kind = links.get(&(scope, master.as_str())).and_then(|master| master.kind.as_ref());
    let Some(kind) = kind.filter(|kind| !can_lead(kind)) else { return };
    let message = format!("a link of kind `{}` cannot be a master", kind.name());
    let wrong = Diagnostic::new(master.span, message).also(kind.span, "its kind is here");
    checker.report(wrong.help("a master is a bridge, a bond or a vrf"));
}

fn can_lead(kind: &Spanned<Kind>) -> bool {
    matches!(kind.name(), KindName::Bridge | KindName::Bond | KindName::Vrf)
}

/// Scopes read one way: a namespace may stand on a link of the host, nobody on one of a namespace.
fn check_parent(scope: &str, link: &Link, checker: &mut Checker) {
    let Some(parent) = &link.parent else { return };
    let Some(place) = parent.namespace.as_ref() else { return };
    if place.as_str() != HOST && place.as_str() != scope {
        let message = "a parent is in the same namespace or on the host";
        checker.report(Diagnostic::new(place.span, message).help("write `namespace = \"host\"`"));
    }
}

/// The scope that authors a pair owns both ends: the other end is only configured.
fn check_other_end(link: &Link, peer: &LinkRef, other: Option<&&Link>, checker: &mut Checker) {
    let Some(other) = other.filter(|other| !std::ptr::eq(**other, link)) else { return };
    // If each claims to make the other, the one that is written later is wrong.
    let earlier = other.name.span < link.name.span && other.peer().is_some();
    if let Some(kind) = other.kind.as_ref().filter(|_| !earlier) {
        let message =
            format!("`{}` is made as the other end of `{}`", peer.name.value, link.name.value);
        let both =
            Diagnostic::new(kind.span, message).also(peer.name.span, "the pair is made here");
        checker.report(both.help("leave out `kind` and `peer` here"));
    }
}
