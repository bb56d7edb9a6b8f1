//! Namespaces of our own: `create = true` in `[namespaces.NAME]`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Result;
use homeostat_document::{Checker, Diagnostic, Document};
use homeostat_engine::book::holdings;
use homeostat_engine::{Action, Bound, Entry, Explain, Kind, MissingSections, Ownership};
use homeostat_namespaces::section::{self, is_made, named};
use homeostat_namespaces::{DesiredState, Key, Mark, Namespaces, OwnTable, Protocol};
use homeostat_netns::Place;
use rustix::thread::CapabilitySet;

use crate::context::{Context, Top};
use crate::failure::Misfit;
use crate::missing::{missing, table};
use crate::registry::nft;
use crate::registry::{Bind, Binding, Registered, SOURCES, Shown, Start};
use crate::scope::{Reach, Scope, called};

/// Namespaces in the registry.
pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    sections: section::SECTIONS,
    resolve: |_, _, _, _| {},
    bind,
    // No namespace is inside another.
    wait: |_, _| Vec::new(),
    namespaces: |_| Vec::new(),
    files: |_, _, _| {},
    capabilities: |_| CapabilitySet::empty(),
    show: |_| Ok(Shown::default()),
    start: Start::Usual,
    remote: None,
};

const NAME: &str = <Namespaces as homeostat_engine::Source>::NAME;

/// Names belong to the whole host, so a run about one namespace makes none.
pub(crate) fn refuse(context: &Context, document: &Document) -> Result<(), Misfit> {
    let mut checker = Checker::new(document.files.clone());
    if matches!(context.top, Top::Netns(_)) {
        for (name, _) in document.namespaces.iter().filter(|(_, scope)| is_made(scope)) {
            let message = format!("`{}` is not made by a run with --netns", name.value);
            let help = "leave --netns out: names belong to the host; or leave `create` out";
            checker.report(Diagnostic::new(name.span, message).help(help));
        }
    }
    Ok(checker.into_result()?)
}

fn bind(binding: &Binding<'_>) -> Bind {
    if binding.scope.reach == Reach::Namespace {
        return Ok(None);
    }
    let (document, place) = (binding.document, binding.place(NAME));
    let owned = holdings::<Namespaces>(binding.pages, &place)?.records;
    let declared = named(document, true)?;
    if declared.is_empty() && owned.is_empty() {
        return Ok(None);
    }
    // What the document still speaks of stays, also if it would not be made any more.
    let kept = named(document, false)?;
    let kept = kept.into_iter().filter(|key| owned.contains_key(key));
    let Context { mark, owner, .. } = binding.context;
    let mut source = Namespaces::new(Mark::new(Protocol(mark.number()), owner));
    for key in owned.keys() {
        source = source.owning(key.clone(), taken_over(binding, key)?);
    }
    let bound = Bound {
        source,
        desired: Arc::new(DesiredState::new(declared).keeping(kept)),
        ownership: Ownership::Checkpoint,
        config: binding.config(NAME, held(binding, owned.keys())?),
        place,
        nothing: Some(Arc::new(DesiredState::new(Vec::new()))),
    };
    Ok(Some(Box::new(bound)))
}

/// Which namespaces of ours must not go though the document does not write them: all of them, if it writes
/// no `[namespaces]` at all; else those in which we own something. Any other is an entry like any other.
fn held<'a>(
    binding: &Binding<'_>,
    owned: impl Iterator<Item = &'a Key>,
) -> Result<MissingSections<Key>> {
    let document = binding.document;
    if document.states_no_namespaces() {
        return Ok(MissingSections::default());
    }
    let mut held = BTreeMap::new();
    for key in owned {
        if !document.states_namespaces || is_in_use(binding, key)? {
            let section = format!("`{}`", table(&["namespaces", key.name().as_str()]));
            let why = if document.states_namespaces {
                format!(
                    "{section} is missing from the document, and we own something in it; to \
                     delete it, empty its sections first, or use --allow-mass-delete"
                )
            } else {
                missing(&section, "an empty `[namespaces]`")
            };
            held.insert(key.clone(), why);
        }
    }
    Ok(MissingSections::new(held, |held, key| held.get(key).cloned()))
}

/// Whether the ledger says that we own something inside of a namespace, or that something was applied there:
/// what carries a mark in the kernel needs no record.
fn is_in_use(binding: &Binding<'_>, key: &Key) -> Result<bool> {
    let name = called(&Place::Named(key.name().clone()))?;
    // Whatever keeps it from being opened, the source itself will say.
    let Ok(Some(scope)) = Scope::recorded(&name) else { return Ok(false) };
    for source in SOURCES {
        let page = binding.pages.page(&scope.place(&binding.context.owner, source.name))?;
        if !page.records.is_empty() || page.desired.is_some_and(|desired| !desired.is_empty()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The tables inside of a namespace that the ledger knows for ours, and that carry no mark.
fn taken_over(binding: &Binding<'_>, key: &Key) -> Result<Vec<OwnTable>> {
    let name = called(&Place::Named(key.name().clone()))?;
    // Whatever keeps it from being opened, the source itself will say.
    let Ok(Some(scope)) = Scope::recorded(&name) else { return Ok(Vec::new()) };
    let tables = nft::taken_over(&scope.place(&binding.context.owner, nft::NAME), binding.pages)?;
    Ok(tables.into_iter().map(|(name, handle)| OwnTable { name, handle }).collect())
}

/// The scopes that a plan takes away, by their names: what is ours inside needs no plan of its own.
pub(crate) fn going(plan: &dyn Explain) -> Result<BTreeSet<String>> {
    let mut keys = Vec::new();
    plan.explain(Kind::Change, &mut |entry| match entry {
        Entry::Change(line, _) if line.action == Action::Delete => {
            keys.extend(line.key.parse::<Key>().ok());
        }
        _ => {}
    });
    keys.iter().map(|key| called(&Place::Named(key.name().clone()))).collect()
}
