//! The ops that make a table as declared. Pure. Start at [`table`].
//!
//! Rules that stay keep their handles and counters; a rule that replaces another one takes over its counters. Sets
//! get the smallest difference; a set that is made again keeps the elements that packets put there.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use homeostat_netlink::uapi::NFT_TABLE_F_DORMANT;

use crate::edit_script::kept;
use crate::elements::{Difference, Elements, UnitAt, meaning, targets};
use crate::expression::{Reference, counts};
use crate::model::{Chain, Handle, ObjectId, Rule, Set, Table};
use crate::object::Former;
use crate::plan::{From, Op};

/// The acts that turn what was seen into the desired state; none if it agrees.
pub(crate) fn table(desired: &Table, seen: Option<(&Table, &Former)>) -> Vec<Op> {
    match seen {
        Some((seen, former)) => changed(desired, seen, former),
        None => made(desired),
    }
}

/// What has a name and goes, or goes to be made again.
struct Fate {
    /// Everything whose users must let go of it first.
    gone: BTreeSet<Reference>,
}

fn changed(desired: &Table, seen: &Table, former: &Former) -> Vec<Op> {
    let fate = Fate::of(desired, seen);
    let mut ops = Vec::new();
    let rules = Scripts::of(desired, seen, &fate);
    rules.drop(&mut ops);
    let sets = element_edits(desired, (seen, former), &fate);
    ops.extend(sets.iter().filter_map(Edit::dropped));
    drop_named(seen, &fate, &mut ops);
    make_named(desired, |to| fate.gone.contains(to) || !has(seen, to), &mut ops);
    ops.extend(sets.into_iter().filter_map(Edit::added));
    for (name, chain) in &desired.chains {
        let is_kept = !fate.gone.contains(&Reference::Chain(name.clone()));
        let before = seen.chains.get(name).filter(|_| is_kept);
        if before.is_some_and(|before| before.policy != chain.policy) {
            ops.push(Op::SetPolicy(name.clone()));
        }
    }
    rules.add(&mut ops);
    if (desired.flags ^ seen.flags) & NFT_TABLE_F_DORMANT == 0 {
        return ops;
    }
    if fate.hooks_move(desired, seen) {
        made_again(desired)
    } else {
        [vec![Op::SetFlags], ops].concat()
    }
}

/// Quirk `dormant-moves-alone` (Linux 6.18): a transaction that puts a table to sleep or wakes it cannot
/// add or delete chains with a hook as well (EINVAL), so that the table is made again.
pub(crate) fn made_again(desired: &Table) -> Vec<Op> {
    [vec![Op::DropTable], made(desired)].concat()
}

fn made(desired: &Table) -> Vec<Op> {
    let mut ops = vec![Op::MakeTable];
    make_named(desired, |_| true, &mut ops);
    ops.extend(all_elements(desired));
    all_rules(desired, &mut ops);
    ops
}

impl Fate {
    /// What is no longer declared, and what cannot change in place.
    fn of(desired: &Table, seen: &Table) -> Self {
        let mut gone = BTreeSet::new();
        let chains = differing(&seen.chains, &desired.chains, |a, b| a.definition == b.definition);
        gone.extend(chains.map(|name| Reference::Chain(name.clone())));
        let sets = differing(&seen.sets, &desired.sets, |a, b| a.definition == b.definition);
        gone.extend(sets.map(|name| Reference::Set(name.clone())));
        let objects =
            differing(&seen.objects, &desired.objects, |a, b| a.definition == b.definition);
        gone.extend(objects.map(|id| Reference::Object(id.kind, id.name.clone())));
        let flowtables = differing(&seen.flowtables, &desired.flowtables, |a, b| a == b);
        gone.extend(flowtables.map(|name| Reference::Flowtable(name.clone())));
        Fate { gone }
    }

    /// Whether chains with a hook come or go.
    fn hooks_move(&self, desired: &Table, seen: &Table) -> bool {
        let goes = |name: &String| self.gone.contains(&Reference::Chain(name.clone()));
        let comes = |name: &String| goes(name) || !seen.chains.contains_key(name);
        seen.chains.iter().any(|(name, chain)| chain.policy.is_some() && goes(name))
            || desired.chains.iter().any(|(name, chain)| chain.policy.is_some() && comes(name))
    }
}

/// The keys of what was seen and is not, or not like this, in the desired state.
fn differing<'a, K: Ord, T>(
    seen: &'a BTreeMap<K, T>,
    desired: &'a BTreeMap<K, T>,
    same: impl Fn(&T, &T) -> bool + 'a,
) -> impl Iterator<Item = &'a K> {
    let stays = move |key: &K, one: &T| desired.get(key).is_some_and(|other| same(one, other));
    seen.iter().filter(move |(key, one)| !stays(key, one)).map(|(key, _)| key)
}

fn has(table: &Table, to: &Reference) -> bool {
    match to {
        Reference::Set(name) => table.sets.contains_key(name),
        Reference::Chain(name) => table.chains.contains_key(name),
        Reference::Flowtable(name) => table.flowtables.contains_key(name),
        Reference::Object(kind, name) => {
            table.objects.contains_key(&ObjectId { kind: *kind, name: name.clone() })
        }
    }
}

/// Sets first: they hold on to chains and objects.
fn drop_named(seen: &Table, fate: &Fate, ops: &mut Vec<Op>) {
    let gone = |to: Reference| fate.gone.contains(&to);
    let sets = seen.sets.keys().filter(|name| gone(Reference::Set((*name).clone())));
    ops.extend(sets.cloned().map(Op::DropSet));
    let chains = seen.chains.keys().filter(|name| gone(Reference::Chain((*name).clone())));
    ops.extend(chains.cloned().map(Op::DropChain));
    let objects =
        seen.objects.keys().filter(|id| gone(Reference::Object(id.kind, id.name.clone())));
    ops.extend(objects.cloned().map(Op::DropObject));
    let flowtables =
        seen.flowtables.keys().filter(|name| gone(Reference::Flowtable((*name).clone())));
    ops.extend(flowtables.cloned().map(Op::DropFlowtable));
}

fn make_named(desired: &Table, is_new: impl Fn(&Reference) -> bool, ops: &mut Vec<Op>) {
    let new_object = |id: &&ObjectId| is_new(&Reference::Object(id.kind, id.name.clone()));
    ops.extend(desired.objects.keys().filter(new_object).cloned().map(Op::MakeObject));
    let new_flowtable = |name: &&String| is_new(&Reference::Flowtable((*name).clone()));
    ops.extend(desired.flowtables.keys().filter(new_flowtable).cloned().map(Op::MakeFlowtable));
    let new_chain = |name: &&String| is_new(&Reference::Chain((*name).clone()));
    ops.extend(desired.chains.keys().filter(new_chain).cloned().map(Op::MakeChain));
    let new_set = |name: &&String| is_new(&Reference::Set((*name).clone()));
    ops.extend(desired.sets.keys().filter(new_set).cloned().map(Op::MakeSet));
}

/// What becomes of the rules of one chain.
struct Script<'a> {
    seen: &'a [Rule],
    desired: &'a [Rule],
    kept: Vec<(usize, usize)>,
}

/// What becomes of the rules of each chain that is not as declared.
struct Scripts<'a> {
    chains: Vec<(&'a str, Option<Script<'a>>)>,
    desired: &'a Table,
    seen: &'a Table,
}

impl<'a> Scripts<'a> {
    fn of(desired: &'a Table, seen: &'a Table, fate: &Fate) -> Self {
        let names: BTreeSet<&String> = seen.chains.keys().chain(desired.chains.keys()).collect();
        let moving = names.into_iter().filter(|name| !is_settled(desired, seen, fate, name));
        let chains =
            moving.map(|name| (name.as_str(), staying(desired, seen, fate, name))).collect();
        Scripts { chains, desired, seen }
    }

    /// Rules that go. Those of a chain that goes are flushed, so that they let go of everything first.
    fn drop(&self, ops: &mut Vec<Op>) {
        for (name, script) in &self.chains {
            let rules = self.seen.chains.get(*name).map_or(&[][..], |chain| &chain.rules);
            match script {
                Some(script) => script.drop(name, ops),
                None if rules.is_empty() => {}
                None => ops.push(Op::FlushChain((*name).to_owned())),
            }
        }
    }

    /// Rules that come.
    fn add(&self, ops: &mut Vec<Op>) {
        for (name, script) in &self.chains {
            let Some(chain) = self.desired.chains.get(*name) else { continue };
            // A chain that is made again carries on the counts of the former one.
            let made = || Script {
                seen: self.seen.chains.get(*name).map_or(&[][..], |before| &before.rules),
                desired: &chain.rules,
                kept: Vec::new(),
            };
            match script {
                Some(script) => script.add(name, ops),
                None => made().add(name, ops),
            }
        }
    }
}

/// All rules of a table that is made.
fn all_rules(desired: &Table, ops: &mut Vec<Op>) {
    for (name, chain) in &desired.chains {
        Script { seen: &[], desired: &chain.rules, kept: Vec::new() }.add(name, ops);
    }
}

/// Whether nothing is to be done to a chain, as to most.
fn is_settled(desired: &Table, seen: &Table, fate: &Fate, name: &str) -> bool {
    let both = seen.chains.get(name).zip(desired.chains.get(name));
    fate.gone.is_empty() && both.is_some_and(|(seen, desired)| seen.rules == desired.rules)
}

fn staying<'a>(desired: &'a Table, seen: &'a Table, fate: &Fate, name: &str) -> Option<Script<'a>> {
    if fate.gone.contains(&Reference::Chain(name.to_owned())) {
        return None;
    }
    let (seen, desired): (&Chain, &Chain) = (seen.chains.get(name)?, desired.chains.get(name)?);
    let (seen, desired) = (&seen.rules, &desired.rules);
    let may_stay = |at: usize| seen.get(at).is_some_and(|rule| !rule.refers_to(&fate.gone));
    Some(Script { seen, desired, kept: kept(seen, desired, may_stay) })
}

impl Script<'_> {
    fn going(&self) -> impl Iterator<Item = usize> {
        let mut kept = self.kept.iter().map(|(seen, _)| *seen).peekable();
        (0..self.seen.len()).filter(move |at| kept.next_if_eq(at).is_none())
    }

    fn drop(&self, chain: &str, ops: &mut Vec<Op>) {
        ops.extend(self.going().map(|at| Op::DropRule { chain: chain.to_owned(), at }));
    }

    fn add(&self, chain: &str, ops: &mut Vec<Op>) {
        let former = self.former();
        let mut kept = self.kept.iter().peekable();
        for at in 0..self.desired.len() {
            if kept.next_if(|(_, desired)| *desired == at).is_some() {
                continue;
            }
            let before = kept.peek().and_then(|(seen, _)| self.seen.get(*seen));
            ops.push(Op::AddRule {
                chain: chain.to_owned(),
                at,
                before: before.map(|rule: &Rule| -> Handle { rule.handle }),
                replaces: former.get(&at).copied(),
            });
        }
    }

    /// Which rule that goes each one that comes stands for: an equal one that moved, else the one at
    /// the same place.
    fn former(&self) -> HashMap<usize, usize> {
        let mut former = HashMap::new();
        let mut moved: HashMap<&Rule, VecDeque<usize>> = HashMap::new();
        for at in self.going() {
            if let Some(rule) = self.seen.get(at) {
                moved.entry(rule).or_default().push_back(at);
            }
        }
        let mut taken = vec![false; self.seen.len()];
        for at in self.coming() {
            let rule = self.desired.get(at).and_then(|rule| moved.get_mut(rule));
            if let Some(from) = rule.and_then(VecDeque::pop_front) {
                former.insert(at, from);
                taken.iter_mut().skip(from).take(1).for_each(|taken| *taken = true);
            }
        }
        self.pair_by_place(&taken, &mut former);
        former
    }

    fn coming(&self) -> impl Iterator<Item = usize> {
        let mut kept = self.kept.iter().map(|(_, desired)| *desired).peekable();
        (0..self.desired.len()).filter(move |at| kept.next_if_eq(at).is_none())
    }

    /// Between two rules that stay, what goes and what comes is paired in order.
    fn pair_by_place(&self, taken: &[bool], former: &mut HashMap<usize, usize>) {
        let (mut seen_at, mut desired_at) = (0, 0);
        let end = (self.seen.len(), self.desired.len());
        for (seen_next, desired_next) in self.kept.iter().copied().chain([end]) {
            let free = |at: &usize| !taken.get(*at).copied().unwrap_or(true);
            let going = (seen_at..seen_next).filter(free);
            let coming: Vec<_> =
                (desired_at..desired_next).filter(|at| !former.contains_key(at)).collect();
            let pairs = coming.into_iter().zip(going);
            former.extend(pairs.filter(|(desired, seen)| self.are_alike(*desired, *seen)));
            (seen_at, desired_at) = (seen_next + 1, desired_next + 1);
        }
    }

    /// Whether one rule reads as the other one, changed: they count the same way.
    fn are_alike(&self, desired: usize, seen: usize) -> bool {
        let count = |rules: &[Rule], at: usize| {
            rules.get(at).and_then(|rule| counts(rule.whole()).ok()).map(|counts| counts.len())
        };
        count(self.desired, desired) == count(self.seen, seen)
    }
}

/// What becomes of the elements of one set.
struct Edit {
    set: String,
    drop: Vec<UnitAt>,
    add: Vec<From>,
}

impl Edit {
    fn dropped(&self) -> Option<Op> {
        let (set, units) = (self.set.clone(), self.drop.clone());
        (!units.is_empty()).then_some(Op::DropElements { set, units })
    }

    fn added(self) -> Option<Op> {
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
fn all_elements(desired: &Table) -> impl Iterator<Item = Op> {
    desired.sets.iter().filter_map(|(name, set)| {
        let add = set.elements.places().map(From::DesiredState).collect();
        Edit { set: name.clone(), drop: Vec::new(), add }.added()
    })
}

/// What becomes of the elements of each declared set.
fn element_edits(desired: &Table, (seen, former): (&Table, &Former), fate: &Fate) -> Vec<Edit> {
    let edit = |(name, set): (&String, &Set)| {
        let is_gone = fate.gone.contains(&Reference::Set(name.clone()));
        let pair = |seen| Pair { desired: set, seen, goes: Goes { name, former } };
        let mut edit = match seen.sets.get(name) {
            Some(before) if !is_gone => changed_set(&pair(before), desired, fate),
            Some(before) if is_compatible(set, before) => recreated_set(&pair(before), desired),
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

fn changed_set(pair: &Pair<'_>, table: &Table, fate: &Fate) -> Edit {
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
                let comes_back = !leads_to(seen, at, |to| !has(table, to));
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
fn recreated_set(pair: &Pair<'_>, desired: &Table) -> Edit {
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
    let still_leads = |at: &UnitAt| !leads_to(before, *at, |to| !has(desired, to));
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
