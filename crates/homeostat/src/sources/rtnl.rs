//! The network: `[links]` with their addresses, `[[routes]]`, and what else rtnetlink keeps.

mod addresses;
mod links;
mod neighbours;
mod nexthops;
mod routes;
mod rules;
mod shown;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use homeostat_document::{Document, Scope as Section, Settings, SourceSettings, Span};
use homeostat_engine::{Bound, Desired as _, Ownership, Section as Stated, Slot};
use homeostat_netns::Netns;
use homeostat_rtnl::{Builder, Protocol, Rtnl, Wish, WishError};

use crate::context::Context;
use crate::failure::{Misfit, Misfits};
use crate::registry::{Bind, Binding, Lists, Registered};
use crate::scope::Scope;

/// The network in the registry.
pub(crate) const REGISTERED: Registered =
    Registered { name: NAME, settings, check, bind, wait, remote: None };

const NAME: &str = <Rtnl as homeostat_engine::Source>::NAME;

fn settings(all: &Settings) -> &SourceSettings {
    &all.rtnl
}

/// Where an entry stands, and why it cannot be.
type Fault = (Span, anyhow::Error);

/// Wishes for everything in the section, and tells of every entry that cannot be.
fn fill(section: &Section, builder: &mut Builder, fault: &mut dyn FnMut(Fault)) {
    links::fill(section, builder, fault);
    addresses::fill(section, builder, fault);
    nexthops::fill(section, builder, fault);
    routes::fill(section, builder, fault);
    rules::fill(section, builder, fault);
    neighbours::fill(section, builder, fault);
}

fn check(section: &Section, lists: Lists, misfits: &mut Misfits<'_>) {
    let mut builder = Wish::builder();
    fill(section, &mut builder, &mut |(span, error)| {
        misfits.push(span, &format!("{error:#}"), None);
    });
    let document = misfits.document;
    if lists == Lists::Read && section.route_files().next().is_some() {
        let read = routes::fill_lists(document, section, &mut builder);
        let built = read.and_then(|()| match builder.build() {
            Err(WishError::Twice(_)) => document.route_twins(section),
            _ => Ok(()),
        });
        if let Err(diagnostics) = built {
            misfits.push_all(&diagnostics);
        }
    }
}

fn wish(document: &Document, section: &Section) -> Result<Wish> {
    let (mut builder, mut first) = (Wish::builder(), None);
    fill(section, &mut builder, &mut |(_, error)| {
        first.get_or_insert(error);
    });
    if let Some(error) = first {
        return Err(error);
    }
    let misfit = |diagnostics| Misfit::of(&diagnostics);
    routes::fill_lists(document, section, &mut builder).map_err(misfit)?;
    let built = builder.build();
    if let Err(WishError::Twice(_)) = built {
        document.route_twins(section).map_err(misfit)?;
    }
    Ok(built?)
}

fn wait(document: &Document, section: &Section) -> Vec<String> {
    let wish = wish(document, section).unwrap_or_default();
    (0..wish.len()).map(|index| wish.key(Slot::at(index)).to_string()).collect()
}

/// Whether the section says anything of the network. A link that has only knobs does not.
fn is_stated(section: &Section) -> bool {
    let links = section.links.as_ref();
    let links = links.is_some_and(|all| all.is_empty() || all.iter().any(links::is_stated));
    links
        || section.routes.is_some()
        || section.rules.is_some()
        || section.neighbours.is_some()
        || section.nexthops.is_some()
}

/// The marks are in the kernel, so there is something to look for in every scope.
fn bind(binding: &Binding<'_>) -> Bind {
    let stated = binding.section.is_some_and(is_stated);
    let wish = binding.section.map(|section| wish(binding.document, section));
    let wish = wish.transpose()?.unwrap_or_default();
    let section = if stated { Stated::Stated } else { Stated::Missing };
    let config = binding.config(settings, section);
    let source = source(binding.context, binding.scope)?;
    let source = source.with_namespaces(namespaces(binding)?);
    let (ownership, place) = (Ownership::Marked, binding.place(NAME));
    let nothing = Some(Arc::new(Wish::default()));
    Ok(Some(Box::new(Bound { source, wish: Arc::new(wish), ownership, config, place, nothing })))
}

fn source(context: &Context, scope: &Scope) -> Result<Rtnl> {
    let Context { mark, owner, .. } = context;
    let number = mark.number();
    let protocol = Protocol::new(number).ok_or_else(|| anyhow!("protocol {number} is not free"))?;
    let netns = Arc::clone(&scope.netns);
    Ok(Rtnl::of(netns).with_protocol(protocol).with_owner(owner))
}

/// What is observed of the network, as sections of a document.
pub(crate) fn show(context: &Context, scope: &Scope) -> Result<shown::Sections> {
    Ok(shown::sections(&source(context, scope)?.everything()?))
}

/// The namespaces that links refer to, those that are there.
fn namespaces(binding: &Binding<'_>) -> Result<BTreeMap<String, Arc<Netns>>> {
    let mut found = BTreeMap::new();
    for name in binding.section.into_iter().flat_map(links::namespaces) {
        if let Some(netns) = Scope::referred(name)? {
            found.insert(name.to_string(), netns);
        }
    }
    Ok(found)
}
