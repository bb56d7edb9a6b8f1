//! Namespaces of our own: `create = true` in `[namespaces.NAME]`.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use homeostat_document::{Document, Scope as Section, Settings, SourceSettings};
use homeostat_engine::book::holdings;
use homeostat_engine::{Action, Bound, Entry, Explain, Kind, Ownership, Section as Stated};
use homeostat_namespaces::{Key, Mark, Namespaces, OwnTable, Protocol, Wish};
use homeostat_netns::{Name, Place};

use crate::context::{Context, Top};
use crate::failure::{Misfit, Misfits};
use crate::registry::{Bind, Binding, Lists, Registered};
use crate::scope::{Reach, Scope, called};
use crate::sources::nft;

/// Namespaces in the registry.
pub(crate) const REGISTERED: Registered =
    Registered { name: NAME, settings, check, bind, wait, remote: None };

const NAME: &str = <Namespaces as homeostat_engine::Source>::NAME;

fn settings(all: &Settings) -> &SourceSettings {
    &all.namespaces
}

/// A section is about what is inside; that a namespace is wished says only the document.
fn check(_section: &Section, _lists: Lists, _misfits: &mut Misfits<'_>) {}

/// No namespace is inside another.
fn wait(_document: &Document, _section: &Section) -> Vec<String> {
    Vec::new()
}

/// Names belong to the whole host, so a run about one namespace makes none.
pub(crate) fn refuse(context: &Context, document: &Document) -> Result<(), Misfit> {
    let mut misfits = Misfits::in_document(document);
    if matches!(context.top, Top::Netns(_)) {
        for (name, _) in document.namespaces.iter().filter(|(_, namespace)| namespace.create) {
            let message = format!("`{}` is not made by a run with --netns", name.value);
            let help = "leave --netns out: names belong to the host; or leave `create` out";
            misfits.push(name.span, &message, Some(help));
        }
    }
    misfits.into_result()
}

fn bind(binding: &Binding<'_>) -> Bind {
    if binding.scope.reach == Reach::Namespace {
        return Ok(None);
    }
    let (document, place) = (binding.document, binding.place(NAME));
    let owned = holdings::<Namespaces>(binding.pages, &place)?.records;
    let wished = named(document, |create| create)?;
    if wished.is_empty() && owned.is_empty() {
        return Ok(None);
    }
    // What the document still speaks of stays, also if it would not be made any more.
    let kept = named(document, |create| !create)?;
    let kept = kept.into_iter().filter(|key| owned.contains_key(key));
    let stated = if document.states_namespaces { Stated::Stated } else { Stated::Missing };
    let Context { mark, owner, .. } = binding.context;
    let mut source = Namespaces::new(Mark::new(Protocol(mark.number()), owner));
    for key in owned.keys() {
        source = source.owning(key.clone(), taken_over(binding, key)?);
    }
    let bound = Bound {
        source,
        wish: Arc::new(Wish::new(wished).keeping(kept)),
        ownership: Ownership::Checkpoint,
        config: binding.config(settings, stated),
        place,
        nothing: Some(Arc::new(Wish::new(Vec::new()))),
    };
    Ok(Some(Box::new(bound)))
}

/// The tables inside of a namespace that the ledger knows for ours, and that carry no mark.
fn taken_over(binding: &Binding<'_>, key: &Key) -> Result<Vec<OwnTable>> {
    let name = called(&Place::Named(key.name().clone()))?;
    // Whatever keeps it from being opened, the source itself will say.
    let Ok(Some(scope)) = Scope::recorded(&name) else { return Ok(Vec::new()) };
    let tables = nft::taken_over(&scope.place(&binding.context.owner, nft::NAME), binding.pages)?;
    Ok(tables.into_iter().map(|(name, handle)| OwnTable { name, handle }).collect())
}

/// The namespaces of a document whose `create` is as asked for.
fn named(document: &Document, is_asked: fn(bool) -> bool) -> Result<Vec<Key>> {
    let mut keys = Vec::new();
    for (name, namespace) in &document.namespaces {
        if is_asked(namespace.create) {
            keys.extend(Key::new(Name::new(name.as_str())?));
        }
    }
    Ok(keys)
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
