//! How a program binds namespaces: `create = true` in `[namespaces.NAME]`.

use std::collections::BTreeMap;

use homeostat_core::{Ownership, StepKind, Undo};
use homeostat_document::{Checker, Diagnostic, Diagnostics, Document};
use homeostat_netns::Place;
use homeostat_registry::{
    BindResult, Binding, Error, MissingSections, Owned, Reach, Registration, Scope, ScopeCreator,
    missing, scope_name, table,
};

use crate::key::Key;
use crate::mark::{Mark, Protocol};
use crate::model::DesiredState;
use crate::section::{self, is_made, named};
use crate::source::{Namespaces, OwnTable};
use crate::step::INSIDE;

/// What steps do, and how each kind is undone.
const STEP_KINDS: &[StepKind] = &[
    StepKind::new("a namespace is made", Undo::FormerDesired),
    StepKind::losing("a namespace is deleted", Undo::PutOff, INSIDE),
];

/// Namespaces, for a list of sources.
pub const REGISTRATION: Registration = Registration {
    steps: STEP_KINDS,
    scopes: Some(ScopeCreator { creates: is_made, scope: |key| scope_of(&key.parse().ok()?) }),
    ..Registration::new(section::SECTIONS, bind)
};

fn bind(binding: &Binding<'_>) -> BindResult {
    let document = binding.document;
    if binding.scope.reach == Reach::Namespace {
        refuse(document)?;
        return Ok(Vec::new());
    }
    let held = binding.holdings::<Namespaces>()?;
    let declared = named(document, true)?;
    if declared.is_empty() && held.is_empty() {
        return Ok(Vec::new());
    }
    let records = held.records;
    // What the document still names stays, also if it would not be made any more.
    let mut kept = named(document, false)?;
    kept.retain(|key| records.contains_key(key));
    let mark = Mark::new(Protocol(binding.caller.mark.0), &binding.caller.owner);
    let (mut source, mut held) = (Namespaces::new(mark), BTreeMap::new());
    for key in records.into_keys() {
        let owned = owned_inside(binding, &key)?;
        held.extend(why_held(document, &key, &owned).map(|why| (key.clone(), why)));
        // Tables that were taken over carry no mark; the ledger has the kernel's number of each.
        let tables = owned
            .identities
            .into_iter()
            .filter_map(|(name, handle)| Some(OwnTable { name, handle: handle.parse().ok()? }));
        source = source.owning(key, tables);
    }
    let desired = DesiredState::new(declared).keeping(kept);
    let held = MissingSections::new(held, |held, key| held.get(key).cloned());
    Ok(vec![binding.bound(source, desired, Ownership::Checkpoint, held)])
}

/// Names belong to the whole host, so a run about one namespace creates none.
fn refuse(document: &Document) -> Result<(), Diagnostics> {
    let mut checker = Checker::new(document.files.clone());
    for (name, _) in document.namespaces.iter().filter(|(_, scope)| is_made(scope)) {
        let message = format!("`{}` is not made by a run in one namespace", name.value);
        let help = "names belong to the host: run it for the host, or leave `create` out";
        checker.report(Diagnostic::new(name.span, message).help(help));
    }
    checker.into_result()
}

/// Why a namespace of ours is not deleted though the document does not write it: it writes no `[namespaces]` at
/// all, or we own something inside. Any other is an entry like any other.
fn why_held(document: &Document, key: &Key, owned: &Owned) -> Option<String> {
    let section = format!("`{}`", table(&["namespaces", key.name().as_str()]));
    if !document.states_namespaces {
        return Some(missing(&section, "an empty `[namespaces]`"));
    }
    (owned.is_any && !document.states_no_namespaces()).then(|| {
        format!(
            "{section} is missing from the document, and we own something in it; to delete it, empty its \
             sections first"
        )
    })
}

fn owned_inside(binding: &Binding<'_>, key: &Key) -> Result<Owned, Error> {
    // If it cannot be opened, the source itself reports why.
    match scope_of(key).map(|name| Scope::recorded(&name)) {
        Some(Ok(Some(scope))) => Owned::read(binding.pages, &binding.caller.owner, &scope),
        _ => Ok(Owned::default()),
    }
}

/// The name of the scope that a namespace is.
fn scope_of(key: &Key) -> Option<String> {
    scope_name(&Place::Named(key.name().clone())).ok()
}

#[cfg(test)]
mod tests {
    use homeostat_core::{Owner, Slot, Taken};
    use homeostat_testkit::undoing::{self, Example};

    use super::*;
    use crate::model::Namespace;
    use crate::step::{Ground, Step};

    fn kind_of(step: &Step) -> &'static str {
        match step {
            Step::Create { .. } | Step::Clear { .. } => "a namespace is made",
            Step::Delete { .. } => "a namespace is deleted",
        }
    }

    #[test]
    fn every_step_is_undone_as_the_list_of_its_kinds_says() {
        let key: Key = "namespace a".parse().unwrap();
        let lost = Taken::new("link eth7", Owner::foreign("somebody"));
        let (before, takes) = (Namespace::default(), vec![lost]);
        let steps = [
            Step::Create { slot: Slot::at(0), ground: Ground::Free },
            Step::Clear { key: key.clone() },
            Step::Delete { key: key.clone(), before, takes },
        ];
        let examples = steps.map(|step| Example::new(kind_of(&step), step));
        undoing::check(STEP_KINDS, &DesiredState::new([key]), examples).unwrap();
    }
}
