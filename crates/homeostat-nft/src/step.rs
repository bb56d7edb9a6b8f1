//! One table of a transaction, and how it explains itself: line by line, in nft's own words.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::{Action, Line, Owner, Slot, Summary};
use serde_json::{Value, json};

use crate::desired::DesiredState;
use crate::expression::names;
use crate::key::Key;
use crate::model::{Rule, Script, Table};
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
    /// The text that is loaded in place of its acts.
    pub(crate) fn script(&self) -> Option<&Script> {
        self.desired.as_ref().and_then(|desired| desired.script.as_deref())
    }

    /// One that does nothing yet.
    pub(crate) fn new(key: Key, action: Action) -> Self {
        let (slot, ops, desired, seen, adopts, notes) = (None, vec![], None, None, None, vec![]);
        Step { key, slot, action, ops, desired, seen, adopts, notes }
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
                let said = line.note.take().into_iter().chain([std::mem::take(&mut notes)]);
                line.note = Some(said.collect::<Vec<_>>().join("; "));
            }
            tell(line);
        });
    }
}

impl Step {
    /// Tells every line. What goes only to be made again is one line.
    fn lines(&self, tell: &mut dyn FnMut(Line)) {
        if let Some(owner) = &self.adopts {
            let note = format!("taken over from {owner}; its comment cannot carry our mark");
            tell(Line { note: Some(note), ..self.line(Action::Update, "") });
        }
        if self.script().is_some() && !self.ops.is_empty() {
            return self.whole(tell);
        }
        let remade = Remade::of(&self.ops);
        for (at, _) in self.ops.iter().enumerate() {
            if let Some(line) = self.explained(at, &remade) {
                tell(line);
            }
        }
    }

    /// A table that `nft` loads whole.
    fn whole(&self, tell: &mut dyn FnMut(Line)) {
        let why = "loaded whole by `nft -f`, because it cannot be carried as bytes";
        let (action, note) = match self.seen {
            Some(_) => (Action::Replace, format!("{why}; counters and data of sets begin anew")),
            None => (Action::Create, why.to_owned()),
        };
        let after = self.script().map(|script| json!(script.text));
        tell(Line { note: Some(note), after, ..self.line(action, "") });
    }

    /// The key of the part of a table that an act is about, with what it says of it.
    pub(crate) fn describe(&self, at: usize) -> String {
        let remade = Remade::default();
        let line = self.ops.get(at).and_then(|_| self.explained(at, &remade));
        let Some(line) = line else { return self.key.to_string() };
        let told = line.after.or(line.before);
        match told.as_ref().and_then(|told| told[RULE].as_str()) {
            Some(rule) => format!("{}: {rule}", line.key),
            None => line.key,
        }
    }

    fn line(&self, action: Action, part: &str) -> Line {
        let space = if part.is_empty() { "" } else { " " };
        let key = format!("{}{space}{part}", self.key);
        Line { action, key, before: None, after: None, note: None }
    }

    fn explained(&self, at: usize, remade: &Remade) -> Option<Line> {
        let op = self.ops.get(at)?;
        let make = |what: &str, name: &str| {
            let part = format!("{what} {name}");
            let again = remade.parts.contains(&part);
            self.line(if again { Action::Replace } else { Action::Create }, &part)
        };
        let drop = |what: &str, name: &str| {
            let part = format!("{what} {name}");
            (!remade.parts.contains(&part)).then(|| self.line(Action::Delete, &part))
        };
        Some(match op {
            Op::DropTable if self.desired.is_some() => return None,
            Op::DropTable => self.line(Action::Delete, ""),
            Op::MakeTable if self.seen.is_some() => self.line(Action::Replace, ""),
            Op::MakeTable => self.line(Action::Create, ""),
            Op::SetFlags => self.flags(),
            // The line of the chain says it.
            Op::FlushChain(_) => return None,
            Op::DropRule { chain, at } => return self.rule_gone(chain, *at, remade),
            // Of two acts on one set the second one says both.
            Op::DropElements { set, .. } if remade.elements.contains(set) => return None,
            Op::DropElements { set, .. } | Op::AddElements { set, .. } => {
                return self.elements(set, remade);
            }
            Op::DropSet(name) => return drop(word(self.seen.as_deref(), name), name),
            Op::DropChain(name) => return drop("chain", name),
            Op::DropObject(id) => return drop(object_word(id.kind), &id.name),
            Op::DropFlowtable(name) => return drop("flowtable", name),
            Op::MakeObject(id) => make(object_word(id.kind), &id.name),
            Op::MakeFlowtable(name) => make("flowtable", name),
            Op::MakeChain(name) => make("chain", name),
            Op::MakeSet(name) => {
                let line = make(word(self.desired.as_deref(), name), name);
                Line { after: self.element_changes(name), ..line }
            }
            Op::SetPolicy(name) => self.policy(name),
            Op::AddRule { chain, at, replaces, .. } => self.rule_comes(chain, *at, *replaces),
        })
    }

    fn flags(&self) -> Line {
        let flags = |table: &Option<std::sync::Arc<Table>>| {
            table.as_ref().map(|table| json!({ "flags": table.flags }))
        };
        let (before, after) = (flags(&self.seen), flags(&self.desired));
        Line { before, after, ..self.line(Action::Update, "") }
    }

    fn policy(&self, name: &str) -> Line {
        let policy = |table: &Option<std::sync::Arc<Table>>| {
            let chain = table.as_ref().and_then(|table| table.chains.get(name));
            let policy = chain.and_then(|chain| chain.policy);
            policy.map(|policy| json!({ "policy": if policy == 0 { "drop" } else { "accept" } }))
        };
        let (before, after) = (policy(&self.seen), policy(&self.desired));
        Line { before, after, ..self.line(Action::Update, &format!("chain {name}")) }
    }

    fn rule_comes(&self, chain: &str, at: usize, replaces: Option<usize>) -> Line {
        let after = rule(self.desired.as_deref(), chain, at);
        let text = after.map(|(table, rule)| text(table, rule));
        let former = replaces.and_then(|at| rule(self.seen.as_deref(), chain, at));
        let part = format!("chain {chain}");
        let (action, note, before) = match (former, after) {
            (Some((_, former)), Some((_, rule))) if former == rule => {
                (Action::Update, Some(format!("moves to place {}", at + 1)), None)
            }
            (Some((table, former)), _) => (Action::Update, None, Some(self.wording(table, former))),
            (None, _) => (Action::Create, Some(format!("at place {}", at + 1)), None),
        };
        let place = text.as_ref().and_then(|text| text[PLACE].as_str()).map(str::to_owned);
        // Of a table that is made whole, the order of the lines says as much.
        let notes = note.into_iter().chain(place).filter(|_| self.seen.is_some());
        let note = notes.reduce(|note, place| format!("{note}; {place}"));
        Line { before, after: text, note, ..self.line(action, &part) }
    }

    fn rule_gone(&self, chain: &str, at: usize, remade: &Remade) -> Option<Line> {
        if remade.rules.contains(&(chain.to_owned(), at)) {
            return None;
        }
        let (table, rule) = rule(self.seen.as_deref(), chain, at)?;
        let before = Some(self.wording(table, rule));
        Some(Line { before, ..self.line(Action::Delete, &format!("chain {chain}")) })
    }

    /// A rule that was seen: in the words of an equal one of the desired state, else by what it is made of.
    fn wording(&self, table: &Table, rule: &Rule) -> Value {
        let chains = self.desired.iter().flat_map(|desired| desired.chains.values());
        let equal = chains.flat_map(|chain| &chain.rules).find(|declared| *declared == rule);
        match (equal, &self.desired) {
            (Some(declared), Some(desired)) => text(desired, declared),
            _ => text(table, rule),
        }
    }

    fn elements(&self, set: &str, remade: &Remade) -> Option<Line> {
        let part = format!("{} {set}", word(self.desired.as_deref(), set));
        // Of a set that is made the line of the set says it.
        if remade.made.contains(&part) {
            return None;
        }
        Some(Line { after: self.element_changes(set), ..self.line(Action::Update, &part) })
    }
}

/// What goes only to be made again.
#[derive(Clone, Default)]
struct Remade {
    parts: BTreeSet<String>,
    made: BTreeSet<String>,
    rules: BTreeSet<(String, usize)>,
    /// Sets to which elements are added as well.
    elements: BTreeSet<String>,
}

impl Remade {
    fn of(ops: &[Op]) -> Self {
        let mut remade = Remade::default();
        let mut gone = BTreeSet::new();
        for op in ops {
            match op {
                Op::DropSet(name) => gone.extend([format!("set {name}"), format!("map {name}")]),
                Op::DropChain(name) => _ = gone.insert(format!("chain {name}")),
                Op::DropObject(id) => {
                    gone.insert(format!("{} {}", object_word(id.kind), id.name));
                }
                Op::DropFlowtable(name) => _ = gone.insert(format!("flowtable {name}")),
                Op::MakeSet(name) => {
                    remade.made.extend([format!("set {name}"), format!("map {name}")]);
                }
                Op::MakeChain(name) => _ = remade.made.insert(format!("chain {name}")),
                Op::MakeObject(id) => {
                    remade.made.insert(format!("{} {}", object_word(id.kind), id.name));
                }
                Op::MakeFlowtable(name) => _ = remade.made.insert(format!("flowtable {name}")),
                Op::AddRule { chain, replaces: Some(at), .. } => {
                    remade.rules.insert((chain.clone(), *at));
                }
                Op::AddElements { set, .. } => _ = remade.elements.insert(set.clone()),
                _ => {}
            }
        }
        remade.parts = gone.intersection(&remade.made).cloned().collect();
        remade
    }
}

fn word(table: Option<&Table>, set: &str) -> &'static str {
    use homeostat_netlink::uapi::{NFT_SET_MAP, NFT_SET_OBJECT};
    let set = table.and_then(|table| table.sets.get(set));
    let is_map = set.is_some_and(|set| set.flags & (NFT_SET_MAP | NFT_SET_OBJECT) != 0);
    if is_map { "map" } else { "set" }
}

/// As `nft` calls the types of objects.
fn object_word(kind: u32) -> &'static str {
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

fn rule<'a>(table: Option<&'a Table>, chain: &str, at: usize) -> Option<(&'a Table, &'a Rule)> {
    let table = table?;
    table.chains.get(chain)?.rules.get(at).map(|rule| (table, rule))
}

/// A rule as people read it: the user's own line where it is known.
const RULE: &str = "rule";
/// The rule as `nft` lists it.
const NORMALIZED: &str = "normalized";
/// The file and the line that it comes from.
const PLACE: &str = "place";

/// A rule in words where they are known, else the names of what it is made of.
fn text(table: &Table, rule: &Rule) -> Value {
    let words = table.texts.get(&rule.handle);
    let listed = words.map(|words| words.listed.clone()).filter(|listed| !listed.is_empty());
    let listed = listed.unwrap_or_else(|| {
        format!("handle {} ({})", rule.handle.0, names(rule.whole()).join(", "))
    });
    let own = words.and_then(|words| words.own.as_ref());
    let shown = own.map_or(&listed, |own| &own.text);
    json!({ RULE: shown, NORMALIZED: &listed, PLACE: own.map(|own| &own.place) })
}
