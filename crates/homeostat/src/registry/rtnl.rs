//! The network: `[links]` with their addresses, `[[routes]]`, and what else rtnetlink keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use homeostat_document::{Document, Scope as Section, Section as _};
use homeostat_engine::{Bound, Desired as _, MissingSections, Ownership, Slot};
use homeostat_netns::Netns;
use homeostat_rtnl::section::{
    self, Links, Neighbours, Nexthops, Refusal, Routes, Rules, route_files,
};
use homeostat_rtnl::{DesiredState, Key, LinkName, Protocol, Rtnl};
use rustix::thread::CapabilitySet;

use crate::context::Context;
use crate::daemon::capabilities::SPACES;
use crate::failure::Misfit;
use crate::missing::Home;
use crate::registry::{Bind, Binding, Registered, Showing, Shown, Start};
use crate::scope::Scope;

/// The network in the registry.
pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    sections: section::SECTIONS,
    resolve: |_, section, lists, checker| section::resolve(section, lists, checker),
    bind,
    wait,
    namespaces: |section| section::namespaces(section).map(ToOwned::to_owned).collect(),
    files: |_, section, named| {
        named.files.extend(route_files(section).map(|list| list.path.value.clone()));
    },
    capabilities: |section| match section::namespaces(section).next() {
        Some(_) => SPACES,
        None => CapabilitySet::empty(),
    },
    show,
    start: Start::Usual,
    remote: None,
};

const NAME: &str = <Rtnl as homeostat_engine::Source>::NAME;

/// The keys that wait for a namespace that is not there.
fn wait(document: &Document, section: &Section) -> Vec<String> {
    let desired = section::desired(document, section).unwrap_or_default();
    (0..desired.len()).map(|index| desired.key(Slot::at(index)).to_string()).collect()
}

fn desired(binding: &Binding<'_>) -> Result<DesiredState> {
    let Some(section) = binding.section else { return Ok(DesiredState::default()) };
    section::desired(binding.document, section).map_err(|refusal| match refusal {
        Refusal::Document(diagnostics) => Misfit::from(diagnostics).into(),
        Refusal::DesiredState(error) => error.into(),
    })
}

/// Which sections are missing. A link that has only fields of other sources says nothing of links to this
/// one. Addresses are a section of their own only while their link is written: without it they go with the
/// link.
fn missing(binding: &Binding<'_>, home: Home) -> MissingSections<Key> {
    let list = |name: &str| (!binding.states(name)).then(|| home.list(name));
    let (routes, rules) = (list(Routes::NAME), list(Rules::NAME));
    let (neighbours, nexthops) = (list(Neighbours::NAME), list(Nexthops::NAME));
    let all = binding.section.and_then(|section| section.get::<Links>());
    let has_links = all.is_some_and(Links::is_stated);
    let links = (!has_links).then(|| home.table(&[Links::NAME]));
    let all = all.into_iter().flat_map(|all| &all.0);
    let without = all.filter(|link| link.addresses.is_none());
    let without: BTreeSet<LinkName> = without.map(|link| link.name.value).collect();
    let missing = Missing { routes, rules, neighbours, nexthops, links, without, home };
    MissingSections::new(missing, Missing::why)
}

/// Why what sections declared is held, where they are missing.
#[derive(PartialEq)]
struct Missing {
    routes: Option<String>,
    rules: Option<String>,
    neighbours: Option<String>,
    nexthops: Option<String>,
    links: Option<String>,
    /// The links that are written without their addresses.
    without: BTreeSet<LinkName>,
    home: Home,
}

impl Missing {
    fn why(&self, key: &Key) -> Option<String> {
        match key {
            Key::Route(_) => self.routes.clone(),
            Key::Rule(_) => self.rules.clone(),
            Key::Neighbour(_) => self.neighbours.clone(),
            Key::Nexthop(_) => self.nexthops.clone(),
            Key::Link(_) | Key::LinkField(..) => self.links.clone(),
            Key::Address(key) => {
                let link = key.link;
                let is_lost = self.without.contains(&link);
                let lost = || self.home.list_of("addresses", &[Links::NAME, link.as_str()]);
                is_lost.then(lost).or_else(|| self.links.clone())
            }
            other => Some(format!("no section of the document is known for `{other}`")),
        }
    }
}

/// The marks are in the kernel, so there is something to look for in every scope.
fn bind(binding: &Binding<'_>) -> Bind {
    let desired = desired(binding)?;
    let config = binding.config(NAME, binding.missing(|home| missing(binding, home)));
    let source = source(binding.context, binding.scope)?;
    let source = source.with_namespaces(namespaces(binding)?);
    let (ownership, place) = (Ownership::Marked, binding.place(NAME));
    let nothing = Some(Arc::new(DesiredState::default()));
    Ok(Some(Box::new(Bound {
        source,
        desired: Arc::new(desired),
        ownership,
        config,
        place,
        nothing,
    })))
}

fn source(context: &Context, scope: &Scope) -> Result<Rtnl> {
    let Context { mark, owner, .. } = context;
    let number = mark.number();
    let protocol = Protocol::new(number).ok_or_else(|| anyhow!("protocol {number} is not free"))?;
    let netns = Arc::clone(&scope.netns);
    Ok(Rtnl::of(netns).with_protocol(protocol).with_owner(owner))
}

/// What is observed of the network, as sections of a document.
fn show(showing: &Showing<'_>) -> Result<Shown> {
    let found = source(showing.context, showing.scope)?.list()?;
    Ok(Shown { sections: section::show(&found), notes: Vec::new() })
}

/// The namespaces that links refer to, those that are there.
fn namespaces(binding: &Binding<'_>) -> Result<BTreeMap<String, Arc<Netns>>> {
    let mut found = BTreeMap::new();
    for name in binding.section.into_iter().flat_map(section::namespaces) {
        if let Some(netns) = Scope::referred(&name.parse()?)? {
            found.insert(name.to_owned(), netns);
        }
    }
    Ok(found)
}
