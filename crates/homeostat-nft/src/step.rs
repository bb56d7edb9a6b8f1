//! One table of a transaction, and how it explains itself: line by line, in nft's own words.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::{Action, Line, Owner, Slot, Summary};
use homeostat_netlink::uapi::*;
use serde_json::{Value, json};

use crate::desired::DesiredState;
use crate::element_text::element_changes;
use crate::expression::names;
use crate::key::Key;
use crate::model::{Part, Rule, Script, Table};
use crate::plan::Op;

/// Everything that a transaction does to one table.
#[derive(Clone, Debug)]
pub struct Step {
    pub(crate) key: Key,
    pub(crate) slot: Option<Slot>,
    pub(crate) action: Action,
    pub(crate) ops: Vec<Op>,
    pub(crate) desired: Option<Arc<Table>>,
    pub(crate) seen: Option<Arc<Table>>,
    pub(crate) adopts: Option<Owner>,
    /// What a reader of the plan should know of how the text was understood.
    pub(crate) notes: Vec<String>,
}

impl Step {
    /// One that does nothing yet.
    pub(crate) fn new(key: Key, action: Action) -> Self {
        let (slot, ops, desired, seen, adopts, notes) = (None, vec![], None, None, None, vec![]);
        Step { key, slot, action, ops, desired, seen, adopts, notes }
    }

    /// The text that is loaded in place of its ops.
    pub(crate) fn script(&self) -> Option<&Script> {
        self.desired.as_ref().and_then(|desired| desired.script.as_deref())
    }

    /// The part of the table that an op is about, and the rule, if it is about one.
    pub(crate) fn describe(&self, op: usize) -> String {
        let line = self.ops.get(op).and_then(|op| self.explain_op(op, &Repeated::default()));
        let Some(line) = line else { return self.key.to_string() };
        let value = line.after.or(line.before);
        match value.as_ref().and_then(|value| value[RULE].as_str()) {
            Some(rule) => format!("{}: {rule}", line.key),
            None => line.key,
        }
    }

    /// Every line. What is deleted only to be created again is one line.
    fn lines(&self, each: &mut dyn FnMut(Line)) {
        if let Some(owner) = &self.adopts {
            let note = format!("taken over from {owner}; its comment cannot carry our mark");
            each(Line { note: Some(note), ..self.line(Action::Update, "") });
        }
        if let Some(script) = self.script().filter(|_| !self.ops.is_empty()) {
            let why = "loaded whole by `nft -f`, because it cannot be carried as bytes";
            let (action, note) = match self.seen {
                Some(_) => {
                    (Action::Replace, format!("{why}; counters and data of sets begin anew"))
                }
                None => (Action::Create, why.to_owned()),
            };
            let after = Some(json!(script.text));
            return each(Line { note: Some(note), after, ..self.line(action, "") });
        }
        let repeated = Repeated::of(&self.ops);
        self.ops.iter().filter_map(|op| self.explain_op(op, &repeated)).for_each(each);
    }

    fn line(&self, action: Action, part: &str) -> Line {
        let space = if part.is_empty() { "" } else { " " };
        let key = format!("{}{space}{part}", self.key);
        Line { action, key, before: None, after: None, note: None }
    }

    fn explain_op(&self, op: &Op, repeated: &Repeated<'_>) -> Option<Line> {
        let (desired, seen) = (self.desired.as_deref(), self.seen.as_deref());
        Some(match op {
            Op::DeleteTable if desired.is_some() => return None,
            Op::DeleteTable => self.line(Action::Delete, ""),
            Op::CreateTable if seen.is_some() => self.line(Action::Replace, ""),
            Op::CreateTable => self.line(Action::Create, ""),
            Op::SetFlags => {
                let flags = |table: &Table| json!({ "flags": table.flags });
                let (before, after) = (seen.map(flags), desired.map(flags));
                Line { before, after, ..self.line(Action::Update, "") }
            }
            Op::Delete(part) if repeated.created.contains(part) => return None,
            Op::Delete(part) => self.line(Action::Delete, &text_of(part, seen)),
            Op::Create(part) => {
                let is_replaced = repeated.deleted.contains(part);
                let action = if is_replaced { Action::Replace } else { Action::Create };
                let after = match part {
                    Part::Set(name) => element_changes(self, name),
                    _ => None,
                };
                Line { after, ..self.line(action, &text_of(part, desired)) }
            }
            // The line of the chain says it.
            Op::FlushChain(_) => return None,
            // Of two ops on one set the second one says both; of a set that is created the line of the set.
            Op::DeleteElements { set, .. } if repeated.filled.contains(set.as_str()) => {
                return None;
            }
            Op::DeleteElements { set, .. } | Op::AddElements { set, .. } => {
                let part = Part::Set(set.clone());
                if repeated.created.contains(&part) {
                    return None;
                }
                let after = element_changes(self, set);
                Line { after, ..self.line(Action::Update, &text_of(&part, desired)) }
            }
            Op::SetPolicy(name) => {
                let policy = |table: &Table| {
                    let policy = table.chains.get(name)?.policy?;
                    Some(json!({ "policy": if policy == 0 { "drop" } else { "accept" } }))
                };
                let (before, after) = (seen.and_then(policy), desired.and_then(policy));
                Line { before, after, ..self.line(Action::Update, &format!("chain {name}")) }
            }
            Op::DeleteRule { chain, at } if repeated.replaced.contains(&(chain, *at)) => {
                return None;
            }
            Op::DeleteRule { chain, at } => {
                let before = Some(self.seen_rule(seen?.rules(chain).get(*at)?));
                Line { before, ..self.line(Action::Delete, &format!("chain {chain}")) }
            }
            Op::AddRule { chain, at, replaces, .. } => self.explain_rule(chain, *at, *replaces),
        })
    }

    fn explain_rule(&self, chain: &str, at: usize, replaces: Option<usize>) -> Line {
        let desired = self.desired.as_deref();
        let rule = desired.and_then(|desired| desired.rules(chain).get(at));
        let former = replaces.zip(self.seen.as_deref());
        let former = former.and_then(|(at, seen)| seen.rules(chain).get(at));
        let after = desired.zip(rule).map(|(table, rule)| rule_value(table, rule));
        let (action, note, before) = match former {
            Some(former) if rule == Some(former) => {
                (Action::Update, Some(format!("moves to place {}", at + 1)), None)
            }
            Some(former) => (Action::Update, None, Some(self.seen_rule(former))),
            None => (Action::Create, Some(format!("at place {}", at + 1)), None),
        };
        let place = after.as_ref().and_then(|rule| rule[PLACE].as_str()).map(str::to_owned);
        // Of a table that is created whole, the order of the lines says as much.
        let notes = note.into_iter().chain(place).filter(|_| self.seen.is_some());
        let note = notes.reduce(|note, place| format!("{note}; {place}"));
        Line { before, after, note, ..self.line(action, &format!("chain {chain}")) }
    }

    /// A rule that was seen: in the words of an equal one of the desired state, else by what it is made of.
    fn seen_rule(&self, rule: &Rule) -> Value {
        let equal = self.desired.as_deref().and_then(|desired| {
            let mut rules = desired.chains.values().flat_map(|chain| &chain.rules);
            rules.find(|declared| *declared == rule).map(|declared| (desired, declared))
        });
        let seen = self.seen.as_deref().map(|seen| (seen, rule));
        equal.or(seen).map_or(Value::Null, |(table, rule)| rule_value(table, rule))
    }
}

impl homeostat_core::Step<DesiredState> for Step {
    fn key(&self, _desired: &DesiredState) -> Key {
        self.key.clone()
    }

    fn slot(&self) -> Option<Slot> {
        self.slot
    }

    fn action(&self) -> Action {
        self.action
    }

    /// Which elements were declared must be known when they no longer are.
    fn is_recorded(&self) -> bool {
        let sets = self.desired.iter().flat_map(|desired| desired.sets.values());
        sets.into_iter().any(|set| !set.elements.is_empty())
    }

    fn count(&self, summary: &mut Summary) {
        self.lines(&mut |line| summary.count(line.action));
    }

    fn explain(&self, _desired: &DesiredState, tell: &mut dyn FnMut(Line)) {
        let mut notes = self.notes.join("; ");
        self.lines(&mut |mut line| {
            if !notes.is_empty() {
                let all = line.note.take().into_iter().chain([std::mem::take(&mut notes)]);
                line.note = Some(all.collect::<Vec<_>>().join("; "));
            }
            tell(line);
        });
    }
}

/// What one line explains although two ops do it.
#[derive(Default)]
struct Repeated<'a> {
    deleted: BTreeSet<&'a Part>,
    created: BTreeSet<&'a Part>,
    /// Rules that others replace, by chain and place.
    replaced: BTreeSet<(&'a String, usize)>,
    /// Sets to which elements are added.
    filled: BTreeSet<&'a str>,
}

impl<'a> Repeated<'a> {
    fn of(ops: &'a [Op]) -> Self {
        let mut repeated = Repeated::default();
        for op in ops {
            _ = match op {
                Op::Delete(part) => repeated.deleted.insert(part),
                Op::Create(part) => repeated.created.insert(part),
                Op::AddRule { chain, replaces: Some(at), .. } => {
                    repeated.replaced.insert((chain, *at))
                }
                Op::AddElements { set, .. } => repeated.filled.insert(set),
                _ => false,
            };
        }
        repeated
    }
}

/// A part as `nft` names it.
fn text_of(part: &Part, table: Option<&Table>) -> String {
    let (kind, name) = match part {
        Part::Chain(name) => ("chain", name),
        Part::Flowtable(name) => ("flowtable", name),
        Part::Object(id) => (object_type(id.kind), &id.name),
        Part::Set(name) => {
            let set = table.and_then(|table| table.sets.get(name));
            let is_map = set.is_some_and(|set| set.flags & (NFT_SET_MAP | NFT_SET_OBJECT) != 0);
            (if is_map { "map" } else { "set" }, name)
        }
    };
    format!("{kind} {name}")
}

fn object_type(kind: u32) -> &'static str {
    match kind {
        1 => "counter",
        2 => "quota",
        3 => "ct helper",
        4 => "limit",
        5 => "connlimit",
        6 => "tunnel",
        7 => "ct timeout",
        8 => "secmark",
        9 => "ct expectation",
        10 => "synproxy",
        _ => "object",
    }
}

/// A rule as people read it: the user's own line where it is known.
const RULE: &str = "rule";
/// The rule as `nft` lists it.
const NORMALIZED: &str = "normalized";
/// The file and the line that it comes from.
const PLACE: &str = "place";

/// A rule as text where that is known, else the names of its expressions.
fn rule_value(table: &Table, rule: &Rule) -> Value {
    let text = table.texts.get(&rule.handle);
    let listed = text.map(|text| text.listed.clone()).filter(|listed| !listed.is_empty());
    let listed = listed.unwrap_or_else(|| {
        format!("handle {} ({})", rule.handle.0, names(rule.whole()).join(", "))
    });
    let source = text.and_then(|text| text.source.as_ref());
    let shown = source.map_or(&listed, |source| &source.text);
    json!({ RULE: shown, NORMALIZED: &listed, PLACE: source.map(|source| &source.place) })
}
