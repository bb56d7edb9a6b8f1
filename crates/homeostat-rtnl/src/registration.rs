//! How a program binds the network: `[links]` with their addresses, `[[routes]]`, and what else rtnetlink keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homeostat_core::{Desired as _, Failure, Owner, Ownership, Retry, Slot, StepKind, Undo};
use homeostat_document::{Document, Scope as Section, Section as _};
use homeostat_netns::Netns;
use homeostat_registry::{
    BindResult, Binding, Connection, DocumentPlace, Error, Mark, MissingSections, Registration,
    Scope, Shown, former_marks,
};

use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::LinkName;
use crate::number::Protocol;
use crate::other_programs::take_kept_by_others;
use crate::section::{self, Links, Neighbours, Nexthops, Routes, Rules, route_files};
use crate::source::Rtnl;
use crate::step::LINK_DATA;

/// What steps do, and how each kind is undone.
const STEP_KINDS: &[StepKind] = &[
    StepKind::new(
        "a route, rule, address, neighbour or nexthop is made, changed or deleted",
        Undo::FormerDesired,
    ),
    StepKind::new("an object of another owner is taken over, or deleted along", Undo::Record),
    StepKind::new("a link is made", Undo::FormerDesired),
    StepKind::new("a link is changed", Undo::Record),
    StepKind::losing("a link is deleted", Undo::Aside, LINK_DATA),
    StepKind::losing(
        "a link is made again, because its kind or a fixed option changes",
        Undo::Aside,
        LINK_DATA,
    ),
    StepKind::losing(
        "the same, while something declared needs its VLAN id, network id, tunnel ends or parent",
        Undo::MadeAgain,
        LINK_DATA,
    ),
    StepKind::losing(
        "a link of another owner goes along with such a one",
        Undo::Never,
        "that link",
    ),
];

/// The network, for a list of sources.
pub const REGISTRATION: Registration = Registration {
    resolve: section::resolve,
    warnings: section::warnings,
    waiting,
    namespaces: |section| section::namespaces(section).map(ToOwned::to_owned).collect(),
    files: |_, section, named| {
        named.files.extend(route_files(section).map(|list| list.path.value.clone()));
    },
    show: |binding, extent| {
        let mut found = source(binding)?.list()?;
        let mut shown = Shown::default();
        if !extent.kept_by_others {
            shown.kept_by_others = take_kept_by_others(&mut found);
        }
        shown.sections = section::show(&found);
        Ok(shown)
    },
    steps: STEP_KINDS,
    carries: |key, connection| key.parse().is_ok_and(|key| carries(&key, connection)),
    ..Registration::new(section::SECTIONS, bind)
};

/// Whether a connection has this address, or takes this link or route; a route that is as long as the one in use, or
/// longer, decides in its place.
fn carries(key: &Key, connection: &Connection) -> bool {
    let Connection { local, remote, route } = connection;
    let is_link = |link: &LinkName| route.as_ref().is_some_and(|way| way.link == link.as_str());
    match key {
        Key::Address(address) => address.ip == *local,
        Key::Route(route_key) => {
            let least = route.as_ref().map_or(0, |way| way.prefix_len);
            route_key.dst.contains(*remote) && route_key.dst.prefix_len() >= least
        }
        Key::Link(link)
        | Key::LinkField(link, _)
        | Key::LinkSysctls(link, _)
        | Key::AddressOrder(link)
        | Key::Ports(link) => is_link(link),
        Key::Neighbour(neighbour) => is_link(&neighbour.link),
        Key::Nexthop(_) | Key::Rule(_) => false,
    }
}

/// The keys that wait for a namespace that is not there.
fn waiting(document: &Document, section: &Section) -> Vec<String> {
    let desired = section::desired(document, section).unwrap_or_default();
    (0..desired.len()).map(|index| desired.key(Slot::at(index)).to_string()).collect()
}

/// The marks are in the kernel, so there is something to look for in every scope.
fn bind(binding: &Binding<'_>) -> BindResult {
    let desired = binding.section.map(|section| section::desired(binding.document, section));
    let desired = desired.transpose()?.unwrap_or_default();
    refuse_leaving_behind(binding, &desired)?;
    let missing = binding.missing(|place| missing(binding, place));
    // What other owners of this state directory hold. A field of a link can be kept by one of them only; all else
    // carries its mark in the kernel.
    let others = binding.pages.others(&binding.ledger_key())?.into_iter();
    let others = others.filter_map(|(owner, key)| Some((key.parse().ok()?, owner)));
    let fields = others.filter(|(key, _)| matches!(key, Key::LinkField(..)));
    let source =
        source(binding)?.with_namespaces(namespaces(binding)?).with_others(fields.collect());
    let former = former_marks(binding)?.into_iter();
    let source = source.with_former_protocols(former.filter_map(|Mark(it)| Protocol::new(it)));
    let source = source.with_former_links(binding.recorded());
    Ok(vec![binding.bound(source, desired, Ownership::Marked, missing)])
}

fn source(binding: &Binding<'_>) -> Result<Rtnl, Error> {
    marked(binding, binding.caller.mark)
}

fn marked(binding: &Binding<'_>, Mark(number): Mark) -> Result<Rtnl, Error> {
    let protocol = Protocol::new(number)
        .ok_or_else(|| Failure::new(format!("protocol {number} is not free"), Retry::Never))?;
    let netns = Arc::clone(&binding.scope.netns);
    Ok(Rtnl::of(netns).with_protocol(protocol).with_owner(&binding.caller.owner))
}

/// With another mark, what carries the former one would be foreign from now on, and nothing would ever remove it.
/// Links carry the owner's name.
fn refuse_leaving_behind(binding: &Binding<'_>, desired: &DesiredState) -> Result<(), Error> {
    for former in former_marks(binding)? {
        let mut left = marked(binding, former)?.list()?;
        left.retain(|one| {
            let slot = desired.slot(&one.key, None);
            let is_adopted = slot.is_some_and(|slot| desired.may_adopt(slot));
            one.owner == Owner::Ours && !one.key.is_link() && !is_adopted
        });
        let Some(first) = left.first() else { continue };
        let (Mark(former), Mark(mark)) = (former, binding.caller.mark);
        return Err(Error::helped(
            format!(
                "in `{}` the owner `{}` has used protocol {former}: with {mark} it would leave {} objects behind, \
                 such as `{}`",
                binding.scope.name,
                binding.caller.owner,
                left.len(),
                first.key
            ),
            format!(
                "take them over with `adopt = true`, or apply once with protocol {former} and without them"
            ),
        ));
    }
    Ok(())
}

/// The namespaces that links refer to, those that exist.
fn namespaces(binding: &Binding<'_>) -> Result<BTreeMap<String, Arc<Netns>>, Error> {
    let mut found = BTreeMap::new();
    for name in binding.section.into_iter().flat_map(section::namespaces) {
        let parsed = name.parse().map_err(|error| Error::failed(&error))?;
        if let Some(netns) = Scope::referred(binding.document, &parsed)? {
            found.insert(name.to_owned(), netns);
        }
    }
    Ok(found)
}

/// Which sections are missing. A link that has only fields of other sources says nothing of links to this
/// one. Addresses are a section of their own only while their link is written: without it they go with the
/// link.
fn missing(binding: &Binding<'_>, place: DocumentPlace) -> MissingSections<Key> {
    let lists = [Routes::NAME, Rules::NAME, Neighbours::NAME, Nexthops::NAME];
    let links = binding.section.and_then(|section| section.get::<Links>());
    let written = links.into_iter().flat_map(|links| &links.0);
    let missing = Missing {
        lists: lists.into_iter().filter(|name| !binding.states(name)).collect(),
        links: !links.is_some_and(Links::is_stated),
        without: written
            .filter(|link| link.addresses.is_none())
            .map(|link| link.name.value)
            .collect(),
        place,
    };
    MissingSections::new(missing, Missing::why)
}

#[derive(PartialEq)]
struct Missing {
    lists: BTreeSet<&'static str>,
    links: bool,
    /// The links that are written without their addresses.
    without: BTreeSet<LinkName>,
    place: DocumentPlace,
}

impl Missing {
    /// Why the removal of a key is held.
    fn why(&self, key: &Key) -> Option<String> {
        let list = |name| self.lists.contains(name).then(|| self.place.missing_list(name));
        match key {
            Key::Route(_) => list(Routes::NAME),
            Key::Rule(_) => list(Rules::NAME),
            Key::Neighbour(_) => list(Neighbours::NAME),
            Key::Nexthop(_) => list(Nexthops::NAME),
            Key::Address(key) if self.without.contains(&key.link) => {
                let link = key.link;
                Some(self.place.missing_list_of("addresses", &[Links::NAME, link.as_str()]))
            }
            Key::LinkSysctls(..) | Key::AddressOrder(_) | Key::Ports(_) => None,
            Key::Link(_) | Key::LinkField(..) | Key::Address(_) => {
                self.links.then(|| self.place.missing_table(&[Links::NAME]))
            }
        }
    }
}
