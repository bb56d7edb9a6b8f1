//! What has to be done to make a table as declared. Pure. Start at [`table`].

mod rules;
mod sets;

use std::collections::{BTreeMap, BTreeSet};

use homeostat_netlink::uapi::NFT_TABLE_F_DORMANT;

use crate::declared::Former;
use crate::expression::Reference;
use crate::model::{ObjectId, Table};
use crate::op::Op;

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
    let rules = rules::Scripts::of(desired, seen, &fate);
    rules.drop(&mut ops);
    let sets = sets::edits(desired, (seen, former), &fate);
    ops.extend(sets.iter().filter_map(sets::Edit::dropped));
    drop_named(seen, &fate, &mut ops);
    make_named(desired, |to| fate.gone.contains(to) || !has(seen, to), &mut ops);
    ops.extend(sets.into_iter().filter_map(sets::Edit::added));
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
    ops.extend(sets::all(desired));
    rules::all(desired, &mut ops);
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
