//! The network: `[links]` with their addresses, `[[routes]]`, and what else rtnetlink keeps.

mod addresses;
mod routes;

use std::sync::Arc;

use anyhow::{Result, anyhow};
use homeostat_document::{Scope as Section, Settings, SourceSettings, Span};
use homeostat_engine::{Bound, Desired as _, Ownership, Section as Stated, Slot};
use homeostat_rtnl::{Builder, Protocol, Rtnl, Wish};

use crate::context::Context;
use crate::failure::Misfits;
use crate::registry::{Bind, Binding, Registered};
use crate::scope::Scope;

/// The network in the registry.
pub(crate) const REGISTERED: Registered = Registered { name: NAME, settings, check, bind, wait };

const NAME: &str = <Rtnl as homeostat_engine::Source>::NAME;

fn settings(all: &Settings) -> &SourceSettings {
    &all.rtnl
}

/// Where an entry stands, and why it cannot be.
type Fault = (Span, anyhow::Error);

/// Wishes for everything in the section, and tells of every entry that cannot be.
fn fill(section: &Section, builder: &mut Builder, fault: &mut dyn FnMut(Fault)) {
    addresses::fill(section, builder, fault);
    routes::fill(section, builder, fault);
}

fn check(section: &Section, misfits: &mut Misfits<'_>) {
    fill(section, &mut Wish::builder(), &mut |(span, error)| {
        misfits.push(span, &format!("{error:#}"), None);
    });
}

fn wish(section: &Section) -> Result<Wish> {
    let (mut builder, mut first) = (Wish::builder(), None);
    fill(section, &mut builder, &mut |(_, error)| {
        first.get_or_insert(error);
    });
    match first {
        Some(error) => Err(error),
        None => Ok(builder.build()?),
    }
}

fn wait(section: &Section) -> Vec<String> {
    let wish = wish(section).unwrap_or_default();
    (0..wish.len()).map(|index| wish.key(Slot::at(index)).to_string()).collect()
}

/// Whether the section says anything of the network. A link that has only knobs does not.
fn is_stated(section: &Section) -> bool {
    let says = |link: &homeostat_document::Link| link.sysctl.is_none() || link.addresses.is_some();
    let links = section.links.as_ref().is_some_and(|all| all.is_empty() || all.iter().any(says));
    links
        || section.routes.is_some()
        || section.rules.is_some()
        || section.neighbours.is_some()
        || section.nexthops.is_some()
}

/// The marks are in the kernel, so there is something to look for in every scope.
fn bind(binding: &Binding<'_>) -> Bind {
    let stated = binding.section.is_some_and(is_stated);
    let wish = binding.section.map(wish).transpose()?.unwrap_or_default();
    let section = if stated { Stated::Stated } else { Stated::Missing };
    let config = binding.config(settings, section);
    let source = source(binding.context, binding.scope)?;
    let (ownership, place) = (Ownership::Marked, binding.place(NAME));
    Ok(Some(Box::new(Bound { source, wish: Arc::new(wish), ownership, config, place })))
}

fn source(context: &Context, scope: &Scope) -> Result<Rtnl> {
    let number = context.mark.number();
    let protocol = Protocol::new(number).ok_or_else(|| anyhow!("protocol {number} is not free"))?;
    Ok(Rtnl::of(Arc::clone(&scope.netns)).with_protocol(protocol))
}
