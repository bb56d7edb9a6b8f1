//! Rules in their order: what stays keeps its handle and its counts, what comes may carry counts on.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::Fate;
use crate::edit::kept;
use crate::expression::{Reference, counts};
use crate::model::{Chain, Handle, Rule, Table};
use crate::op::Op;

/// What becomes of the rules of one chain.
struct Script<'a> {
    seen: &'a [Rule],
    desired: &'a [Rule],
    kept: Vec<(usize, usize)>,
}

/// What becomes of the rules of each chain that is not as declared.
pub(super) struct Scripts<'a> {
    chains: Vec<(&'a str, Option<Script<'a>>)>,
    desired: &'a Table,
    seen: &'a Table,
}

impl<'a> Scripts<'a> {
    pub(super) fn of(desired: &'a Table, seen: &'a Table, fate: &Fate) -> Self {
        let names: BTreeSet<&String> = seen.chains.keys().chain(desired.chains.keys()).collect();
        let moving = names.into_iter().filter(|name| !is_settled(desired, seen, fate, name));
        let chains =
            moving.map(|name| (name.as_str(), staying(desired, seen, fate, name))).collect();
        Scripts { chains, desired, seen }
    }

    /// Rules that go. Those of a chain that goes are flushed, so that they let go of everything first.
    pub(super) fn drop(&self, ops: &mut Vec<Op>) {
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
    pub(super) fn add(&self, ops: &mut Vec<Op>) {
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
pub(super) fn all(desired: &Table, ops: &mut Vec<Op>) {
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
