//! Knobs: `[sysctl]`, a link's `sysctl`, and `[cgroups]`.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use homeostat_document::{Document, Scope as Section, Settings, SourceSettings, Span};
use homeostat_engine::book::holdings;
use homeostat_engine::{Bound, Ownership, Pages, Place as LedgerPlace, Section as Stated};
use homeostat_knobs::{Builder, HostWide, Key, KeyError, Knobs, Place, Roots, Wish, WishError};
use serde::Serialize;

use crate::failure::{Misfit, Misfits};
use crate::registry::{Bind, Binding, Lists, Registered};
use crate::scope::{Reach, Scope};

/// Knobs in the registry.
pub(crate) const REGISTERED: Registered =
    Registered { name: NAME, settings, check, bind, wait, remote: None };

const NAME: &str = <Knobs as homeostat_engine::Source>::NAME;

fn settings(all: &Settings) -> &SourceSettings {
    &all.knobs
}

/// One knob of a document.
struct Declared<'a> {
    key: Result<Key, KeyError>,
    value: &'a str,
    adopt: bool,
    span: Span,
}

fn declared(section: &Section) -> impl Iterator<Item = Declared<'_>> {
    let sysctls = section.sysctl.iter().flatten().map(|knob| Declared {
        key: Key::sysctl(&knob.key),
        value: &knob.value,
        adopt: knob.adopt,
        span: knob.key.span,
    });
    let links = section.links.iter().flatten().flat_map(|link| {
        link.sysctl.iter().flatten().map(|knob| Declared {
            key: Key::link_sysctl(link.name.as_str(), &knob.key),
            value: &knob.value,
            adopt: knob.adopt,
            span: knob.key.span,
        })
    });
    let groups = section.cgroups.iter().flatten().flat_map(|group| {
        group.limits.iter().map(|limit| Declared {
            key: Key::cgroup(&group.path, &limit.key),
            value: &limit.value,
            adopt: group.adopt || limit.adopt,
            span: limit.key.span,
        })
    });
    sysctls.chain(links).chain(groups)
}

fn add(builder: Builder, knob: &Declared<'_>) -> Result<Builder, WishError> {
    let builder = builder.knob(knob.key.clone()?, knob.value)?;
    Ok(if knob.adopt { builder.adopting() } else { builder })
}

fn check(section: &Section, _lists: Lists, misfits: &mut Misfits<'_>) {
    for knob in declared(section) {
        if let Err(error) = add(Wish::builder(), &knob) {
            misfits.push(knob.span, &error.to_string(), error.help());
        }
    }
}

fn wish(section: &Section) -> Result<Wish, WishError> {
    declared(section).try_fold(Wish::builder(), |builder, knob| add(builder, &knob))?.build()
}

fn wait(_document: &Document, section: &Section) -> Vec<String> {
    declared(section).filter_map(|knob| Some(knob.key.ok()?.to_string())).collect()
}

fn is_stated(section: &Section) -> bool {
    let of_links = section.links.iter().flatten().any(|link| link.sysctl.is_some());
    section.sysctl.is_some() || section.cgroups.is_some() || of_links
}

/// A knob of the whole host must not be reached from a smaller scope.
fn refuse_host_wide(binding: &Binding<'_>, section: &Section) -> Result<(), Misfit> {
    let here = match binding.scope.reach {
        Reach::Host => return Ok(()),
        Reach::Namespace => "a network namespace",
        Reach::Sandbox => "the sandbox",
    };
    let mut misfits = Misfits::in_document(binding.document);
    for knob in declared(section) {
        if let Some(key) = knob.key.ok().filter(Key::is_host_wide) {
            let message = format!("`{key}` belongs to the whole host, not to {here}");
            let help = "only knobs under `net` exist once per namespace";
            misfits.push(knob.span, &message, Some(help));
        }
    }
    misfits.into_result()
}

fn bind(binding: &Binding<'_>) -> Bind {
    let stated = binding.section.is_some_and(is_stated);
    let place = binding.place(NAME);
    if !stated && binding.pages.page(&place)?.records.is_empty() {
        return Ok(None);
    }
    if let Some(section) = binding.section {
        refuse_host_wide(binding, section)?;
    }
    let wish = binding.section.map(wish).transpose()?.unwrap_or_default();
    let section = if stated { Stated::Stated } else { Stated::Missing };
    let config = binding.config(settings, section);
    let source = source(binding.scope).with_others(others(binding.pages, &place)?);
    let ownership = Ownership::Checkpoint;
    let nothing = Some(Arc::new(Wish::default()));
    let bound = Bound { source, wish: Arc::new(wish), ownership, config, place, nothing };
    Ok(Some(Box::new(bound)))
}

/// What other owners of this state directory hold: a knob can be kept by one of them only.
fn others(pages: &dyn Pages, place: &LedgerPlace) -> Result<BTreeMap<Key, String>> {
    let others = pages.others(place)?.into_iter();
    Ok(others.filter_map(|(owner, key)| Some((key.parse().ok()?, owner))).collect())
}

/// Where the ledger files the knobs of a scope.
pub(crate) fn place(owner: &str, scope: &Scope) -> LedgerPlace {
    scope.place(owner, NAME)
}

/// The knobs of a scope on the real machine.
fn source(scope: &Scope) -> Knobs {
    let refused = |what: &str| HostWide::Refused {
        why: format!("{what} has only `net` knobs of its own; this one belongs to the whole host"),
    };
    let host_wide = match scope.reach {
        Reach::Host => HostWide::Allowed,
        Reach::Namespace => refused("a network namespace"),
        Reach::Sandbox => refused("a sandbox"),
    };
    let place = Place::In(Arc::clone(&scope.netns));
    let knobs = Knobs::new(Roots::of_the_system(), place).with_host_wide(host_wide);
    knobs.behind(scope.gate.clone())
}

/// Which knobs are shown beside the owned ones.
#[derive(Clone, Copy)]
pub(crate) enum Extent {
    /// Those that people set most.
    Common,
    /// All of the network namespace.
    All,
}

/// Observed values, in the sections of a document.
#[derive(Default, Serialize)]
pub(crate) struct Shown {
    /// By key.
    pub(crate) sysctl: BTreeMap<String, String>,
    /// By group and file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) cgroups: BTreeMap<String, BTreeMap<String, String>>,
}

/// What is observed: the owned knobs, and others.
pub(crate) fn show(
    place: &LedgerPlace,
    scope: &Scope,
    (pages, extent): (&dyn Pages, Extent),
) -> Result<Shown> {
    let knobs = source(scope);
    let owned = holdings::<Knobs>(pages, place)?.records.into_keys();
    let others = match extent {
        Extent::Common => knobs.common()?,
        Extent::All => knobs.all()?,
    };
    let mut shown = Shown::default();
    for (key, value) in others.into_iter().chain(knobs.values(owned)?) {
        let value = value.as_str().to_owned();
        match &key {
            Key::Sysctl(path) => shown.sysctl.insert(path.to_string(), value),
            Key::Cgroup(file) => {
                let group = shown.cgroups.entry(file.group().to_owned()).or_default();
                group.insert(file.file().to_owned(), value)
            }
        };
    }
    Ok(shown)
}
