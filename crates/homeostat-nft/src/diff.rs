//! The ops that make a table as declared. Pure. Start at [`table`].
//!
//! Rules that stay keep their handles and counters; a rule that replaces another one takes over its counters. Sets
//! get the smallest difference; a set that is created again keeps the elements that packets put there.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use homeostat_netlink::uapi::NFT_TABLE_F_DORMANT;

use crate::edit_script::kept;
use crate::elements::{Difference, Elements, MEANING, UnitAt, reduced};
use crate::expression::counts;
use crate::model::{Chain, Handle, Hook, Part, Rule, Set, Table};
use crate::object::DeclaredBefore;
use crate::plan::{ElementFrom, Op};

/// The ops that turn what was seen into the desired state; none if it agrees.
pub(crate) fn table(desired: &Table, seen: Option<(&Table, &DeclaredBefore)>) -> Vec<Op> {
    match seen {
        Some((seen, before)) => update(desired, seen, before, &BTreeSet::new()),
        None => create(desired, None),
    }
}

/// The same for a table that was seen, where a table before it in the text creates chains of these hooks: chains of
/// this table that have them are created again behind those.
pub(crate) fn update(
    desired: &Table,
    seen: &Table,
    before: &DeclaredBefore,
    hooks: &BTreeSet<Hook>,
) -> Vec<Op> {
    // Quirk `comments-of-tables-stay` (Linux 6.18): the kernel ignores another comment of a table that is there.
    if desired.comment != seen.comment {
        return recreate(desired, Some((seen, before)));
    }
    let seen_parts = seen.parts();
    let is_changed = |part: &&Part| desired.definition(part) != seen.definition(part);
    // What is no longer declared, or cannot change in place: whatever refers to it must be deleted first.
    let mut deleted: BTreeSet<Part> = seen_parts.iter().filter(is_changed).cloned().collect();
    keep_order_of_hooks(desired, seen, hooks, &mut deleted);
    let mut sets = SetEdit::all(desired, seen, before, &deleted);
    let is_closed = |edit: &&SetEdit<'_>| {
        let set = seen.sets.get(edit.name);
        set.is_some_and(Set::is_constant) && (edit.delete.len() + edit.add.len()) > 0
    };
    let closed: Vec<_> =
        sets.iter().filter(is_closed).map(|edit| Part::Set(edit.name.to_owned())).collect();
    if !closed.is_empty() {
        deleted.extend(closed);
        sets = SetEdit::all(desired, seen, before, &deleted);
    }
    let is_created = |part: &Part| deleted.contains(part) || !seen.has(part);
    let chains = ChainEdit::all(desired, seen, &deleted);
    let mut ops = Vec::new();
    for chain in &chains {
        chain.delete(&mut ops);
    }
    ops.extend(sets.iter().filter_map(SetEdit::delete));
    // What refers to a part is deleted before it: sets lead to chains and objects.
    let parts = seen_parts.into_iter().rev();
    ops.extend(parts.filter(|part| deleted.contains(part)).map(Op::Delete));
    ops.extend(desired.parts().into_iter().filter(is_created).map(Op::Create));
    ops.extend(sets.into_iter().filter_map(SetEdit::add));
    for (name, chain) in &desired.chains {
        let former = seen.chains.get(name).filter(|_| !is_created(&Part::Chain(name.clone())));
        if former.is_some_and(|former| former.policy != chain.policy) {
            ops.push(Op::SetPolicy(name.clone()));
        }
    }
    for chain in &chains {
        chain.add(&mut ops);
    }
    if (desired.flags ^ seen.flags) & NFT_TABLE_F_DORMANT == 0 {
        return ops;
    }
    let has_hook = |table: &Table, part: &Part| match part {
        Part::Chain(name) => table.chains.get(name).is_some_and(|chain| chain.policy.is_some()),
        _ => false,
    };
    let moves_hook = |op: &Op| match op {
        Op::Delete(part) => has_hook(seen, part),
        Op::Create(part) => has_hook(desired, part),
        _ => false,
    };
    // Quirk `dormant-moves-alone` (Linux 6.18): a transaction that puts a table to sleep or wakes it cannot add or
    // delete chains with a hook as well (EINVAL).
    if ops.iter().any(moves_hook) {
        return recreate(desired, Some((seen, before)));
    }
    ops.insert(0, Op::SetFlags);
    ops
}

/// In which order chains of one hook and priority run depends on the order in which they were created, and `nft -f`
/// creates them in the order of the text. So those behind a chain that is created are created again, too.
fn keep_order_of_hooks(
    desired: &Table,
    seen: &Table,
    hooks: &BTreeSet<Hook>,
    deleted: &mut BTreeSet<Part>,
) {
    let mut last: BTreeMap<_, _> = hooks.iter().map(|hook| (*hook, Handle(u64::MAX))).collect();
    for part in desired.parts() {
        let Part::Chain(name) = &part else { continue };
        let Some(hook) = desired.chains.get(name).and_then(Chain::hook) else { continue };
        let former = seen.chains.get(name).filter(|_| !deleted.contains(&part));
        let last = last.entry(hook).or_insert(Handle::default());
        match former {
            Some(chain) if chain.handle > *last => *last = chain.handle,
            _ => *last = Handle(u64::MAX),
        }
        if former.is_some() && *last == Handle(u64::MAX) {
            deleted.insert(part);
        }
    }
}

/// Deletes the table and creates it as declared, with the counters and the data of the one that was seen.
pub(crate) fn recreate(desired: &Table, seen: Option<(&Table, &DeclaredBefore)>) -> Vec<Op> {
    [vec![Op::DeleteTable], create(desired, seen)].concat()
}

fn create(desired: &Table, seen: Option<(&Table, &DeclaredBefore)>) -> Vec<Op> {
    let mut ops = vec![Op::CreateTable];
    ops.extend(desired.parts().into_iter().map(Op::Create));
    for (name, set) in &desired.sets {
        let former = seen.and_then(|(seen, before)| Some((seen.sets.get(name)?, before)));
        ops.extend(SetEdit::created(name, set, desired, former).add());
    }
    for (name, chain) in &desired.chains {
        let former = seen.map_or(&[][..], |(seen, _)| seen.rules(name));
        ChainEdit { name, seen: former, desired: &chain.rules, kept: None }.add(&mut ops);
    }
    ops
}

/// The changes of the rules of one chain.
struct ChainEdit<'a> {
    name: &'a str,
    seen: &'a [Rule],
    desired: &'a [Rule],
    /// Rules that stay, by their places in both; nothing if the chain itself goes.
    kept: Option<Vec<(usize, usize)>>,
}

impl<'a> ChainEdit<'a> {
    /// Those of all chains that are not as declared.
    fn all(desired: &'a Table, seen: &'a Table, deleted: &BTreeSet<Part>) -> Vec<Self> {
        let names: BTreeSet<&String> = seen.chains.keys().chain(desired.chains.keys()).collect();
        let edit = |name: &'a String| {
            let both = seen.chains.get(name).zip(desired.chains.get(name));
            let is_same = both.is_some_and(|(seen, desired)| seen.rules == desired.rules);
            if is_same && deleted.is_empty() {
                return None;
            }
            let (seen, desired) = (seen.rules(name), desired.rules(name));
            let may_stay = |at: usize| seen.get(at).is_some_and(|rule| !rule.refers_to(deleted));
            let stays = both.is_some() && !deleted.contains(&Part::Chain(name.clone()));
            let kept = stays.then(|| kept(seen, desired, may_stay));
            Some(ChainEdit { name, seen, desired, kept })
        };
        names.into_iter().filter_map(edit).collect()
    }

    fn kept(&self) -> &[(usize, usize)] {
        self.kept.as_deref().unwrap_or_default()
    }

    /// The rules of a chain that goes are flushed before anything else goes: they may refer to it.
    fn delete(&self, ops: &mut Vec<Op>) {
        let chain = || self.name.to_owned();
        if self.kept.is_some() {
            ops.extend(self.going().map(|at| Op::DeleteRule { chain: chain(), at }));
        } else if !self.seen.is_empty() {
            ops.push(Op::FlushChain(chain()));
        }
    }

    fn add(&self, ops: &mut Vec<Op>) {
        let former = self.former();
        let mut kept = self.kept().iter().peekable();
        for at in 0..self.desired.len() {
            if kept.next_if(|(_, desired)| *desired == at).is_some() {
                continue;
            }
            let before = kept.peek().and_then(|(seen, _)| self.seen.get(*seen));
            let before = before.map(|rule| rule.handle);
            let replaces = former.get(&at).copied();
            ops.push(Op::AddRule { chain: self.name.to_owned(), at, before, replaces });
        }
    }

    fn going(&self) -> impl Iterator<Item = usize> {
        without(self.seen.len(), self.kept().iter().map(|(seen, _)| *seen))
    }

    fn coming(&self) -> impl Iterator<Item = usize> {
        without(self.desired.len(), self.kept().iter().map(|(_, desired)| *desired))
    }

    /// Which rule that goes each rule that comes stands for: an equal one that moved, else the one at the same
    /// place.
    fn former(&self) -> HashMap<usize, usize> {
        let mut former = HashMap::new();
        let mut moved: HashMap<&Rule, VecDeque<usize>> = HashMap::new();
        for at in self.going() {
            if let Some(rule) = self.seen.get(at) {
                moved.entry(rule).or_default().push_back(at);
            }
        }
        let mut taken = BTreeSet::new();
        for at in self.coming() {
            let rule = self.desired.get(at).and_then(|rule| moved.get_mut(rule));
            if let Some(from) = rule.and_then(VecDeque::pop_front) {
                former.insert(at, from);
                taken.insert(from);
            }
        }
        // Between two rules that stay, what goes and what comes is paired in order.
        let (mut seen_at, mut desired_at) = (0, 0);
        let end = (self.seen.len(), self.desired.len());
        for (seen_next, desired_next) in self.kept().iter().copied().chain([end]) {
            let going = (seen_at..seen_next).filter(|at| !taken.contains(at));
            let coming: Vec<_> =
                (desired_at..desired_next).filter(|at| !former.contains_key(at)).collect();
            let pairs = coming.into_iter().zip(going);
            former.extend(pairs.filter(|(desired, seen)| self.count_alike(*desired, *seen)));
            (seen_at, desired_at) = (seen_next + 1, desired_next + 1);
        }
        former
    }

    /// Whether one rule reads as the other one, changed: both have as many counters.
    fn count_alike(&self, desired: usize, seen: usize) -> bool {
        let count = |rules: &[Rule], at: usize| {
            rules.get(at).and_then(|rule| counts(rule.whole()).ok()).map(|counts| counts.len())
        };
        count(self.desired, desired) == count(self.seen, seen)
    }
}

/// The places up to `end` that are not kept.
fn without(end: usize, kept: impl Iterator<Item = usize>) -> impl Iterator<Item = usize> {
    let mut kept = kept.peekable();
    (0..end).filter(move |at| kept.next_if_eq(at).is_none())
}

/// The changes of the elements of one set.
struct SetEdit<'a> {
    name: &'a str,
    delete: Vec<UnitAt>,
    add: Vec<ElementFrom>,
}

impl<'a> SetEdit<'a> {
    /// Those of all declared sets.
    fn all(
        desired: &'a Table,
        seen: &Table,
        before: &DeclaredBefore,
        deleted: &BTreeSet<Part>,
    ) -> Vec<Self> {
        let edit = |(name, set): (&'a String, &'a Set)| match seen.sets.get(name) {
            Some(seen) if !deleted.contains(&Part::Set(name.clone())) => {
                SetPair { name, desired: set, seen, before }.updated(desired, deleted)
            }
            former => Self::created(name, set, desired, former.map(|seen| (seen, before))),
        };
        desired.sets.iter().map(edit).collect()
    }

    /// Fills a set that is created, in the place of another one or not.
    fn created(
        name: &'a str,
        set: &Set,
        table: &Table,
        former: Option<(&Set, &DeclaredBefore)>,
    ) -> Self {
        // Only between equal types elements can be carried over.
        let is_alike = |seen: &Set| set.shape == seen.shape && set.layout() == seen.layout();
        if let Some((seen, before)) = former.filter(|(seen, _)| is_alike(seen)) {
            return SetPair { name, desired: set, seen, before }.recreated(table);
        }
        let add = set.elements.places().map(ElementFrom::Desired).collect();
        SetEdit { name, delete: Vec::new(), add }
    }

    fn delete(&self) -> Option<Op> {
        let (set, units) = (self.name.to_owned(), self.delete.clone());
        (!units.is_empty()).then_some(Op::DeleteElements { set, units })
    }

    fn add(self) -> Option<Op> {
        let (set, units) = (self.name.to_owned(), self.add);
        (!units.is_empty()).then_some(Op::AddElements { set, units })
    }
}

/// A set that is declared and was seen.
struct SetPair<'a, 'b> {
    name: &'a str,
    desired: &'b Set,
    seen: &'b Set,
    before: &'b DeclaredBefore,
}

impl<'a> SetPair<'a, '_> {
    /// The units of ours that come, and those of the target that go. `is_missed` is asked about those that the target
    /// lacks, `same` about those that it has otherwise.
    fn compare(
        &self,
        is_missed: impl Fn(&[u8]) -> bool,
        same: impl Fn(&[u8], &[u8]) -> bool,
    ) -> (Vec<UnitAt>, Vec<UnitAt>) {
        let (ours, theirs): (&Elements, &Elements) = (&self.desired.elements, &self.seen.elements);
        // Sets without declared elements, and what packets or time change, hold data.
        let is_exact = !ours.is_empty() && !self.desired.is_moving();
        let (mut come, mut go) = (Vec::new(), Vec::new());
        ours.compare(theirs, same, |difference| match difference {
            Difference::Missing(at) if is_missed(ours.unit(at)) => come.push(at),
            // Data stays, but for what a former text declared.
            Difference::Extra(at) if is_exact || self.before.has(self.name, theirs.unit(at)) => {
                go.push(at);
            }
            Difference::Missing(_) | Difference::Extra(_) => {}
            Difference::Changed(ours, theirs) => {
                come.push(ours);
                go.push(theirs);
            }
        });
        (come, go)
    }

    fn updated(&self, table: &Table, deleted: &BTreeSet<Part>) -> SetEdit<'a> {
        let (come, mut delete) = if self.desired.elements.is_empty() && self.before.is_empty() {
            Default::default()
        } else {
            // An element that expires was added with its text, and is not added again when its time is over.
            let is_added = LazyCell::new(|| self.before.is_of(table));
            let is_missed = |unit: &[u8]| !(self.desired.expires(unit) && *is_added);
            // Timeouts and statements of elements may have changed by themselves, but not by another text.
            self.compare(is_missed, |ours, theirs| {
                self.desired.is_moving()
                    && reduced(ours, MEANING) == reduced(theirs, MEANING)
                    && !self.before.has_otherwise(self.name, ours)
            })
        };
        let mut add: Vec<_> = come.into_iter().map(ElementFrom::Desired).collect();
        // Elements that lead to a part that is created again are deleted and added again.
        if !self.seen.references.is_disjoint(deleted) {
            delete.sort_unstable();
            for at in self.seen.elements.places() {
                let leads = self.seen.targets(at).any(|part| deleted.contains(&part));
                if leads && let Err(place) = delete.binary_search(&at) {
                    delete.insert(place, at);
                    let comes_back = self.seen.targets(at).all(|part| table.has(&part));
                    add.extend(comes_back.then_some(ElementFrom::Seen(at)));
                }
            }
        }
        SetEdit { name: self.name, delete, add }
    }

    /// A set that is created again has the declared elements, with the counters that they had, and its data.
    fn recreated(&self, table: &Table) -> SetEdit<'a> {
        let (come, go) = self.compare(|_| true, |_, _| false);
        let stays = |at: &UnitAt| {
            go.binary_search(at).is_err() && self.seen.targets(*at).all(|part| table.has(&part))
        };
        let stay = self.seen.elements.places().filter(stays).map(ElementFrom::Seen);
        let add = stay.chain(come.into_iter().map(ElementFrom::Desired)).collect();
        SetEdit { name: self.name, delete: Vec::new(), add }
    }
}
