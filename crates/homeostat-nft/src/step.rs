//! One table of a transaction, and how it explains itself: line by line, in nft's own words.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::{Action, Line, Owner, Parking, Reversibility, Slot, Summary, Taking};
use homeostat_netlink::uapi::*;
use serde::Serialize;
use serde_json::json;

use crate::desired::DesiredState;
use crate::diff;
use crate::element_text::element_changes;
use crate::expression::names;
use crate::key::Key;
use crate::model::{Part, Rule, Script, Table};
use crate::object::DeclaredBefore;
use crate::plan::Op;
use crate::rule_lines::RuleText;

/// What no text says of a table.
pub(crate) const TABLE_DATA: &str = "its counters and the elements that packets have added";

/// What others may feel of a table that drops what it does not accept.
const CUTS: &str = "connections that it does not accept are cut, also open ones";

/// The policy of a chain, as the kernel numbers verdicts.
const DROP: u32 = 0;

/// Everything that a transaction does to one table.
#[derive(Clone, Debug)]
pub struct Step {
    pub(crate) key: Key,
    pub(crate) slot: Option<Slot>,
    pub(crate) action: Action,
    pub(crate) ops: Vec<Op>,
    pub(crate) desired: Option<Arc<Table>>,
    pub(crate) seen: Option<Arc<Table>>,
    /// What the ledger says was declared in the table that was seen.
    pub(crate) declared_before: DeclaredBefore,
    pub(crate) adopts: Option<Owner>,
    /// How it goes back to its former owner, if it was taken over.
    pub(crate) gives_back: Option<GiveBack>,
    /// Whether a listing of it is recorded before, so that it can be made again.
    pub(crate) is_listed: bool,
    /// What a reader of the plan should know of how the text was understood.
    pub(crate) notes: Vec<String>,
}

/// How a table that was taken over goes back to its former owner.
#[derive(Clone, Debug)]
pub(crate) enum GiveBack {
    /// It is loaded as it was.
    Whole(Arc<Script>),
    /// Another program has changed it since: it stays as it is.
    AsItIs,
}

impl Step {
    /// One that does nothing yet.
    pub(crate) fn new(key: Key, action: Action) -> Self {
        let declared_before = DeclaredBefore::default();
        let (slot, ops, desired, seen, notes) = (None, vec![], None, None, vec![]);
        let (adopts, gives_back, is_listed) = (None, None, false);
        Step {
            key,
            slot,
            action,
            ops,
            desired,
            seen,
            declared_before,
            adopts,
            gives_back,
            is_listed,
            notes,
        }
    }

    /// The same table, deleted and created as declared; none if that is what it does, or if there is no table.
    pub(crate) fn recreated(&self) -> Option<Self> {
        let (desired, seen) = (self.desired.as_ref()?, self.seen.as_ref()?);
        let ops = diff::recreate(desired, Some((seen, &self.declared_before)));
        (ops != self.ops).then(|| Step { ops, ..self.clone() })
    }

    /// Whether it loses what packets have left in the table.
    fn loses_data(&self) -> bool {
        let is_deleted = self.ops.contains(&Op::DeleteTable) || self.script().is_some();
        let counts = self.seen.as_deref().is_some_and(Table::holds_what_packets_left);
        is_deleted && counts && self.gives_back.is_none()
    }

    /// The text that is loaded in place of its ops.
    pub(crate) fn script(&self) -> Option<&Script> {
        match &self.gives_back {
            Some(GiveBack::Whole(script)) => Some(script),
            _ => self.desired.as_ref().and_then(|desired| desired.script.as_deref()),
        }
    }

    /// The part of the table that an op is about, and the rule, if it is about one.
    pub(crate) fn describe(&self, op: usize) -> String {
        let Some(op) = self.ops.get(op) else { return self.key.to_string() };
        let rule = match op {
            Op::DeleteRule { chain, at } => self.seen_rule(chain, *at),
            Op::AddRule { chain, at, .. } => self.desired_rule(chain, *at),
            _ => None,
        };
        let line = self.explain_op(op, &Repeated::default());
        let part = line.map_or_else(|| self.key.to_string(), |line| line.key);
        match rule {
            Some(rule) => format!("{part}: {}", rule.rule),
            None => part,
        }
    }

    /// Every line. What is deleted only to be created again is one line.
    fn lines(&self, each: &mut dyn FnMut(Line)) {
        if let Some(owner) = &self.adopts {
            let note = format!("taken over from {owner}; its comment cannot carry our mark");
            each(Line { note: Some(note), ..self.line(Action::Update, "") });
        }
        match &self.gives_back {
            Some(GiveBack::Whole(script)) => {
                let note = "given back to its former owner, with the counters and elements of \
                    the moment when it was taken over";
                let (note, after) = (Some(note.to_owned()), Some(json!(script.text)));
                return each(Line { note, after, ..self.line(Action::Delete, "") });
            }
            Some(GiveBack::AsItIs) => {
                let note = "left to its former owner as it is, since it was changed meanwhile";
                let note = Some(note.to_owned());
                return each(Line { note, ..self.line(Action::Delete, "") });
            }
            None => {}
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

    /// Whether what a chain of it does not accept is dropped, and was not before.
    fn drops_anew(&self) -> bool {
        let drops = |table: &Table, name: &String| {
            let is_awake = table.flags & NFT_TABLE_F_DORMANT == 0;
            is_awake && table.chains.get(name).is_some_and(|chain| chain.policy == Some(DROP))
        };
        self.desired.as_deref().is_some_and(|desired| {
            desired.chains.keys().any(|name| {
                let dropped = self.seen.as_deref().is_some_and(|seen| drops(seen, name));
                drops(desired, name) && !dropped
            })
        })
    }

    fn line(&self, action: Action, part: &str) -> Line {
        let space = if part.is_empty() { "" } else { " " };
        let key = format!("{}{space}{part}", self.key);
        Line::new(action, key)
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
                let (after, text) = match part {
                    Part::Set(name) => element_changes(self, name).unzip(),
                    _ => (None, None),
                };
                Line { after, text, ..self.line(action, &text_of(part, desired)) }
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
                let (after, text) = element_changes(self, set).unzip();
                Line { after, text, ..self.line(Action::Update, &text_of(&part, desired)) }
            }
            Op::SetPolicy(name) => {
                let policy = |table: &Table| {
                    let policy = table.chains.get(name)?.policy?;
                    Some(json!({ "policy": if policy == DROP { "drop" } else { "accept" } }))
                };
                let (before, after) = (seen.and_then(policy), desired.and_then(policy));
                Line { before, after, ..self.line(Action::Update, &format!("chain {name}")) }
            }
            Op::DeleteRule { chain, at } if repeated.replaced.contains(&(chain, *at)) => {
                return None;
            }
            Op::DeleteRule { chain, at } => {
                self.rule_line(Action::Delete, chain, Some(self.seen_rule(chain, *at)?), None)
            }
            Op::AddRule { chain, at, replaces, .. } => {
                let rule = desired?.rules(chain).get(*at);
                let former = replaces.and_then(|at| seen?.rules(chain).get(at));
                let is_moved = former.is_some() && former == rule;
                let (action, note) = match former {
                    Some(_) if is_moved => (Action::Update, Some("moves to")),
                    Some(_) => (Action::Update, None),
                    None => (Action::Create, Some("at")),
                };
                let before = replaces.filter(|_| !is_moved);
                let before = before.and_then(|at| self.seen_rule(chain, at));
                let after = self.desired_rule(chain, *at);
                let note = note.map(|how| format!("{how} place {}", at + 1));
                let notes =
                    note.into_iter().chain(after.iter().filter_map(|rule| rule.place.clone()));
                // Of a table that is created whole, the order of the lines says as much.
                let notes = notes.filter(|_| seen.is_some());
                let note = notes.reduce(|note, place| format!("{note}; {place}"));
                Line { note, ..self.rule_line(action, chain, before, after) }
            }
        })
    }

    fn rule_line(
        &self,
        action: Action,
        chain: &str,
        before: Option<ShownRule>,
        after: Option<ShownRule>,
    ) -> Line {
        let rules = before.iter().chain(&after).map(|shown| shown.rule.clone());
        let text = rules.reduce(|before, after| format!("{before} -> {after}"));
        let (before, after) = (before.map(|rule| json!(rule)), after.map(|rule| json!(rule)));
        Line { before, after, text, ..self.line(action, &format!("chain {chain}")) }
    }

    fn desired_rule(&self, chain: &str, at: usize) -> Option<ShownRule> {
        let desired = self.desired.as_deref()?;
        Some(ShownRule::new(desired, desired.rules(chain).get(at)?))
    }

    /// A rule that was seen: in the words of an equal one of the desired state, else by what it is made of.
    fn seen_rule(&self, chain: &str, at: usize) -> Option<ShownRule> {
        let seen = self.seen.as_deref()?;
        let rule = seen.rules(chain).get(at)?;
        let equal = self.desired.as_deref().and_then(|desired| {
            let mut rules = desired.chains.values().flat_map(|chain| &chain.rules);
            rules.find(|declared| *declared == rule).map(|declared| (desired, declared))
        });
        let (table, rule) = equal.unwrap_or((seen, rule));
        Some(ShownRule::new(table, rule))
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

    fn reversibility(&self, _desired: &DesiredState) -> Reversibility {
        if self.loses_data() && !self.is_listed {
            return Reversibility::Irreversible(format!("{TABLE_DATA} are lost").into());
        }
        Reversibility::Reversible
    }

    /// A table that leaves becomes dormant: its hooks end, and all that is in it stays. One that is made again under its
    /// name is listed before.
    fn parking(&self) -> Option<Parking<Self>> {
        if self.desired.is_some() && self.adopts.is_none() && self.loses_data() && !self.is_listed {
            return Some(Parking::Instead(Step { is_listed: true, ..self.clone() }));
        }
        let seen = self.seen.as_ref().filter(|_| self.ops == [Op::DeleteTable])?;
        if self.desired.is_some() || self.gives_back.is_some() {
            return None;
        }
        if seen.flags & NFT_TABLE_F_DORMANT != 0 {
            return Some(Parking::Nothing);
        }
        let dormant = Table { flags: seen.flags | NFT_TABLE_F_DORMANT, ..Table::clone(seen) };
        let (ops, desired) = (vec![Op::SetFlags], Some(Arc::new(dormant)));
        Some(Parking::By(Step { action: Action::Update, ops, desired, ..self.clone() }))
    }

    fn records(&self, _desired: &DesiredState, record: &mut dyn FnMut(Key, Taking)) {
        if self.is_listed {
            record(self.key.clone(), Taking::Itself);
        }
    }

    /// Which elements were declared must be known when they no longer are.
    fn is_recorded(&self) -> bool {
        let sets = self.desired.iter().flat_map(|desired| desired.sets.values());
        sets.into_iter().any(|set| !set.elements.is_empty())
    }

    fn count(&self, summary: &mut Summary) {
        self.lines(&mut |line| summary.count(line.action));
    }

    fn explain(&self, _desired: &DesiredState, each: &mut dyn FnMut(Line)) {
        let mut notes: Vec<_> = self.notes.iter().map(String::as_str).collect();
        notes.extend(self.drops_anew().then_some(CUTS));
        let mut notes = notes.join("; ");
        self.lines(&mut |mut line| {
            if !notes.is_empty() {
                let all = line.note.take().into_iter().chain([std::mem::take(&mut notes)]);
                line.note = Some(all.collect::<Vec<_>>().join("; "));
            }
            each(line);
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
        Part::Object(id) => {
            (OBJECT_TYPES.get(id.kind as usize).copied().unwrap_or("object"), &id.name)
        }
        Part::Set(name) => {
            let set = table.and_then(|table| table.sets.get(name));
            let is_map = set.is_some_and(|set| set.flags & (NFT_SET_MAP | NFT_SET_OBJECT) != 0);
            (if is_map { "map" } else { "set" }, name)
        }
    };
    format!("{kind} {name}")
}

/// By their number in the kernel.
const OBJECT_TYPES: [&str; 11] = [
    "object",
    "counter",
    "quota",
    "ct helper",
    "limit",
    "connlimit",
    "tunnel",
    "ct timeout",
    "secmark",
    "ct expectation",
    "synproxy",
];

/// A rule in a plan.
#[derive(Serialize)]
struct ShownRule {
    /// The user's own line where it is known, else as `nft` lists it, else the names of its expressions.
    rule: String,
    /// As `nft` lists it.
    normalized: String,
    /// The file and the line that it comes from.
    place: Option<String>,
}

impl ShownRule {
    fn new(table: &Table, rule: &Rule) -> Self {
        let RuleText { listed, source } =
            table.texts.get(&rule.handle).cloned().unwrap_or_default();
        let normalized = if listed.is_empty() {
            format!("handle {} ({})", rule.handle.0, names(rule.whole()).join(", "))
        } else {
            listed
        };
        let (rule, place) = source.map(|source| (source.text, source.place)).unzip();
        ShownRule { rule: rule.unwrap_or_else(|| normalized.clone()), normalized, place }
    }
}
