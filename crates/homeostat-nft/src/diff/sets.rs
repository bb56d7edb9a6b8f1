//! Elements of sets and maps: the smallest difference, and what a set that is made again keeps.

use super::Fate;
use crate::declared::Former;
use crate::elements::{Difference, Elements, UnitAt, meaning, targets};
use crate::expression::Reference;
use crate::model::{Set, Table};
use crate::op::{From, Op};

/// What becomes of the elements of one set.
pub(super) struct Edit {
    set: String,
    drop: Vec<UnitAt>,
    add: Vec<From>,
}

impl Edit {
    pub(super) fn dropped(&self) -> Option<Op> {
        let (set, units) = (self.set.clone(), self.drop.clone());
        (!units.is_empty()).then_some(Op::DropElements { set, units })
    }

    pub(super) fn added(self) -> Option<Op> {
        let (set, units) = (self.set, self.add);
        (!units.is_empty()).then_some(Op::AddElements { set, units })
    }
}

/// How much of a set's content is the desired state's business.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Exactly the declared elements.
    Exact,
    /// The declared elements must be there; others come and go by themselves.
    AtLeast,
    /// None of it: it is data.
    Data,
}

fn content(desired: &Set) -> Content {
    match desired {
        desired if desired.elements.is_empty() => Content::Data,
        desired if desired.is_moving() => Content::AtLeast,
        _ => Content::Exact,
    }
}

/// The elements of a table that is made.
pub(super) fn all(desired: &Table) -> impl Iterator<Item = Op> {
    desired.sets.iter().filter_map(|(name, set)| {
        let add = set.elements.places().map(From::DesiredState).collect();
        Edit { set: name.clone(), drop: Vec::new(), add }.added()
    })
}

/// What becomes of the elements of each declared set.
pub(super) fn edits(desired: &Table, (seen, former): (&Table, &Former), fate: &Fate) -> Vec<Edit> {
    let edit = |(name, set): (&String, &Set)| {
        let is_gone = fate.gone.contains(&Reference::Set(name.clone()));
        let pair = |seen| Pair { desired: set, seen, goes: Goes { name, former } };
        let mut edit = match seen.sets.get(name) {
            Some(before) if !is_gone => changed(&pair(before), desired, fate),
            Some(before) if is_compatible(set, before) => made_again(&pair(before), desired),
            _ => Edit {
                set: String::new(),
                drop: Vec::new(),
                add: set.elements.places().map(From::DesiredState).collect(),
            },
        };
        edit.set.clone_from(name);
        edit
    };
    desired.sets.iter().map(edit).collect()
}

fn is_compatible(desired: &Set, seen: &Set) -> bool {
    desired.shape == seen.shape && desired.layout() == seen.layout()
}

/// A set that is declared and was seen.
struct Pair<'a> {
    desired: &'a Set,
    seen: &'a Set,
    goes: Goes<'a>,
}

/// Which elements go although they would be data.
struct Goes<'a> {
    name: &'a str,
    former: &'a Former,
}

impl Pair<'_> {
    /// Whether an element that is not declared goes: a former text declared it, or all of them are the
    /// desired state's business.
    fn loses(&self, at: UnitAt) -> bool {
        let Goes { name, former } = self.goes;
        content(self.desired) == Content::Exact || former.has(name, &self.seen.elements, at)
    }
}

fn changed(pair: &Pair<'_>, table: &Table, fate: &Fate) -> Edit {
    let (mut drop, mut add) = (Vec::new(), Vec::new());
    let seen = pair.seen;
    compare(pair, |difference| match difference {
        Difference::Missing(ours) => add.push(From::DesiredState(ours)),
        Difference::Extra(theirs) if pair.loses(theirs) => drop.push(theirs),
        Difference::Extra(_) => {}
        Difference::Changed(ours, theirs) => {
            drop.push(theirs);
            add.push(From::DesiredState(ours));
        }
    });
    // What leads to a chain or an object that is made again has to let go of it for a moment.
    if !seen.references.is_disjoint(&fate.gone) {
        drop.sort_unstable();
        for at in seen.elements.places() {
            let leads = leads_to(seen, at, |to| fate.gone.contains(to));
            if leads && let Err(place) = drop.binary_search(&at) {
                drop.insert(place, at);
                let comes_back = !leads_to(seen, at, |to| !super::has(table, to));
                add.extend(comes_back.then_some(From::Seen(at)));
            }
        }
    }
    Edit { set: String::new(), drop, add }
}

fn compare(pair: &Pair<'_>, found: impl FnMut(Difference)) {
    let (ours, theirs): (&Elements, &Elements) = (&pair.desired.elements, &pair.seen.elements);
    match content(pair.desired) {
        Content::Data if pair.goes.former.is_empty() => {}
        Content::Data | Content::Exact => ours.compare(theirs, |_, _| false, found),
        Content::AtLeast => ours.compare(theirs, |a, b| meaning(a) == meaning(b), found),
    }
}

/// A set that is made again has the declared elements, with the counts that they had, and its data.
fn made_again(pair: &Pair<'_>, desired: &Table) -> Edit {
    let mut add = Vec::new();
    let (set, before) = (pair.desired, pair.seen);
    let (ours, theirs) = (&set.elements, &before.elements);
    let mut fresh = Vec::new();
    let mut stale = Vec::new();
    ours.compare(
        theirs,
        |_, _| false,
        |difference| match difference {
            Difference::Missing(ours) => fresh.push(ours),
            Difference::Extra(theirs) if pair.loses(theirs) => stale.push(theirs),
            Difference::Extra(_) => {}
            Difference::Changed(ours, theirs) => {
                fresh.push(ours);
                stale.push(theirs);
            }
        },
    );
    let is_stale = |at: &UnitAt| stale.binary_search(at).is_ok();
    let still_leads = |at: &UnitAt| !leads_to(before, *at, |to| !super::has(desired, to));
    let stays = theirs.places().filter(|at| !is_stale(at) && still_leads(at));
    add.extend(stays.map(From::Seen));
    add.extend(fresh.into_iter().map(From::DesiredState));
    Edit { set: String::new(), drop: Vec::new(), add }
}

/// Whether an element leads to something of which `is_so` holds.
fn leads_to(set: &Set, at: UnitAt, is_so: impl Fn(&Reference) -> bool) -> bool {
    let (chain, object) = targets(set.elements.unit(at));
    set.references.iter().any(|to| {
        let is_meant = match to {
            Reference::Chain(name) => chain == Some(name),
            Reference::Object(_, name) => object == Some(name),
            Reference::Set(_) | Reference::Flowtable(_) => false,
        };
        is_meant && is_so(to)
    })
}
