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
use crate::section::{self, FdbEntries, Links, Neighbours, Nexthops, Routes, Rules, route_files};
use crate::source::Rtnl;
use crate::step::LINK_DATA;

/// What steps do, and how each kind is undone.
const STEP_KINDS: &[StepKind] = &[
    StepKind::new(
        "a route, rule, address, neighbour, nexthop or forwarding entry is made, changed or deleted",
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
    written: |scope, key| section::written(scope, &key.parse().ok()?),
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
        Key::Fdb(entry) => is_link(&entry.link),
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
    let mut bound = binding.bound(source, desired, Ownership::Marked, missing);
    let conditions = binding.section.map(section::conditions).unwrap_or_default();
    bound.config.conditions = binding.conditions(conditions);
    Ok(vec![bound])
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
    let lists = [Routes::NAME, Rules::NAME, Neighbours::NAME, Nexthops::NAME, FdbEntries::NAME];
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
            Key::Fdb(_) => list(FdbEntries::NAME),
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

#[cfg(test)]
mod tests {
    use homeostat_core::Taken;
    use homeostat_testkit::undoing::{self, Example};

    use super::*;
    use crate::address::Address;
    use crate::address::cascade::Cascade;
    use crate::link::model::{Field, Setting};
    use crate::link::parking::{Aside, Parking};
    use crate::object::Object;
    use crate::step::{Act, Cycle, Delete, LinkStep, Phase, Step, Update};

    const PLAIN: &str = "a route, rule, address, neighbour, nexthop or forwarding entry is made, changed or deleted";
    const TAKEN: &str = "an object of another owner is taken over, or deleted along";
    const MADE: &str = "a link is made";
    const CHANGED: &str = "a link is changed";
    const DELETED: &str = "a link is deleted";
    const AGAIN: &str = "a link is made again, because its kind or a fixed option changes";
    const OCCUPIED: &str =
        "the same, while something declared needs its VLAN id, network id, tunnel ends or parent";
    const FOREIGN: &str = "a link of another owner goes along with such a one";

    fn kind_of(step: &Step) -> &'static str {
        let takes = homeostat_core::Step::<DesiredState>::takes(step);
        let is_taking = takes.iter().any(|taken| taken.owner != Owner::Ours);
        match step {
            Step::GiveBack(_) => TAKEN,
            Step::Update(update) if update.adopts.is_some() => TAKEN,
            Step::Create { .. } | Step::Update(_) | Step::Delete(_) if is_taking => TAKEN,
            Step::Create { .. } | Step::Update(_) | Step::Delete(_) => PLAIN,
            Step::Link(step) => match (&step.act, &step.aside) {
                _ if is_taking => FOREIGN,
                (Act::Create, _) => MADE,
                (Act::Delete | Act::Replace, Aside::Recorded(_)) => OCCUPIED,
                (Act::Delete | Act::Park(_), _) => DELETED,
                (Act::Replace | Act::Succeed(_), _) => AGAIN,
                (
                    Act::Update(_)
                    | Act::UpdatePart(..)
                    | Act::Return { .. }
                    | Act::Finish
                    | Act::GiveBack { .. }
                    | Act::Set(_)
                    | Act::Release { .. },
                    _,
                ) => CHANGED,
            },
        }
    }

    fn link(key: &str, act: Act, aside: Aside) -> LinkStep {
        let (slot, before, adopts, joins, harmless) = (None, None, None, None, None);
        let (takes, touches, alters) = (Vec::new(), Vec::new(), Vec::new());
        let (forgets, records) = (Vec::new(), Vec::new());
        let key = key.parse().unwrap();
        LinkStep {
            key,
            slot,
            before,
            act,
            adopts,
            takes,
            touches,
            alters,
            joins,
            aside,
            forgets,
            records,
            harmless,
        }
    }

    fn address(adopts: Option<Owner>, takes: Vec<Taken>) -> [Step; 2] {
        let key: Key = "address 10.0.0.1/24 dev va".parse().unwrap();
        let before = Object::Address(Address::default());
        let (slot, phase, is_recorded) = (Slot::at(0), Phase::PutAddresses, false);
        let cascade = Cascade { takes, ..Cascade::default() };
        let recreate = (!cascade.takes.is_empty()).then(|| cascade.clone());
        let update = Update { slot, before: before.clone(), adopts, is_recorded, phase, recreate };
        let (before, phase, cascade) =
            (before.into(), Phase::DeleteAddresses, Some(cascade.into()));
        let delete = Delete { key, before, phase, is_rest: false, cascade };
        [Step::Update(update.into()), Step::Delete(delete.into())]
    }

    #[test]
    fn every_step_is_undone_as_the_list_of_its_kinds_says() {
        let other = || Owner::foreign("somebody");
        let mut desired = DesiredState::builder();
        let key = "address 10.0.0.1/24 dev va".parse().unwrap();
        desired.add(key, Object::Address(Address::default())).unwrap();
        let desired = desired.build().unwrap();
        let made =
            Step::Create { slot: Slot::at(0), phase: Phase::PutAddresses, is_recorded: false };
        let along = Taken::new("address 10.0.0.2/24 dev va", other());
        let [adopted, _] = address(Some(other()), Vec::new());
        let plain = address(None, Vec::new()).into_iter().chain([made]);
        let taking = address(None, vec![along]);

        let parked = || Aside::Parked(Parking::default());
        let occupied = || Aside::Recorded(vec!["link va".parse().unwrap()]);
        let of_others = Taken::new("link eth7.1", other());
        let whole = |act, aside| link("link va", act, aside);
        let links = [
            whole(Act::Create, Aside::Not),
            whole(Act::Update(Cycle::Stay), Aside::Not),
            whole(Act::Delete, parked()),
            whole(Act::Replace, parked()),
            whole(Act::Delete, occupied()),
            whole(Act::Replace, occupied()),
            LinkStep { takes: vec![of_others], ..whole(Act::Delete, Aside::Not) },
        ];
        let links = links.into_iter().map(|step| Step::Link(step.into()));
        let field = Key::LinkField("va".parse().unwrap(), Field::Up).to_string();
        let restore = Some(Setting::Flag(true));
        let fields = [Act::Set(Cycle::Stay), Act::Release { restore }];
        let fields = fields.map(|act| Step::Link(link(&field, act, Aside::Not).into()));

        let steps = plain.chain(taking).chain(links);
        let examples = steps.map(|step| Example::new(kind_of(&step), step));
        let examples = examples.chain([Example::adopting(kind_of(&adopted), adopted)]);
        let fields = fields.into_iter().map(|step| Example::on_a_value(kind_of(&step), step));
        undoing::check(STEP_KINDS, &desired, examples.chain(fields)).unwrap();
    }
}
