//! One write, and how it explains itself. Pure.

use std::collections::BTreeSet;

use homeostat_core::{Action, Line, Owner, Reversibility, Slot, Taken};
use serde_json::{Map, Value};

use crate::key::{Key, LinkName};
use crate::model::{ClassId, DesiredState, Object, Root, Side};
use crate::snapshot::Copied;

/// What no message brings back.
pub(crate) const FILTERS: &str = "filters that others have put there";
pub(crate) const UNCOPIED: &str = "the qdisc of the other owner, which cannot be copied";

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Makes what is declared where there is nothing.
    Create { slot: Slot, place: Place },
    /// Makes what is there as it is declared.
    Update(Box<Update>),
    /// Deletes what is ours and not declared; the kernel's default returns.
    Delete(Box<Delete>),
    /// Gives back what was taken over.
    GiveBack(Box<GiveBack>),
}

/// Where something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the link.
    pub link: u32,
    /// The number of the link that everything is sent to.
    pub to: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    pub slot: Slot,
    pub place: Place,
    pub before: Object,
    /// Whose it was, if it is taken over.
    pub adopts: Option<Owner>,
    pub how: How,
    /// Filters of others that go along.
    pub takes: Vec<Taken>,
    /// Whether what is taken over can be given back.
    pub is_restorable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Only what differs is sent.
    InPlace,
    /// It is deleted, and made again.
    Again,
    /// It replaces what another owner has there.
    Over,
    /// Our filter is put in the place of the one that is there, or where there is none.
    Redirect {
        /// Whether one of ours is there.
        clears: bool,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    pub key: Key,
    pub link: u32,
    pub before: Object,
    pub takes: Vec<Taken>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GiveBack {
    pub key: Key,
    pub link: u32,
    pub before: Object,
    /// What its former owner had there.
    pub original: Object,
    /// The same in full; an ingress stays, and only our filter goes.
    pub(crate) copied: Option<Copied>,
    pub takes: Vec<Taken>,
}

impl Step {
    fn key_in<'a>(&'a self, desired: &'a DesiredState) -> &'a Key {
        match self {
            Step::Create { slot, .. } => desired.at(*slot).0,
            Step::Update(update) => desired.at(update.slot).0,
            Step::Delete(delete) => &delete.key,
            Step::GiveBack(step) => &step.key,
        }
    }

    fn before(&self) -> Option<&Object> {
        match self {
            Step::Create { .. } => None,
            Step::Update(update) => Some(&update.before),
            Step::Delete(delete) => Some(&delete.before),
            Step::GiveBack(step) => Some(&step.before),
        }
    }

    fn after(&self, desired: &DesiredState) -> Option<Object> {
        match self {
            Step::Create { slot, .. } => Some(Object::new(desired.at(*slot).1.side.clone())),
            Step::Update(update) => Some(Object::new(desired.at(update.slot).1.side.clone())),
            Step::Delete(_) => None,
            Step::GiveBack(step) => Some(step.original.clone()),
        }
    }

    fn note(&self) -> Option<String> {
        match self {
            Step::Create { .. } => None,
            Step::Update(update) => match (&update.adopts, update.how) {
                (Some(owner), _) => Some(format!("taken over from {owner}")),
                (None, How::Again) => Some("what waits in it is lost".to_owned()),
                (None, _) => None,
            },
            Step::Delete(_) => Some("the kernel's default returns".to_owned()),
            Step::GiveBack(_) => Some("given back to its former owner".to_owned()),
        }
    }

    /// The link that it is about.
    pub(crate) fn link<'a>(&'a self, desired: &'a DesiredState) -> &'a LinkName {
        &self.key_in(desired).link
    }
}

impl homeostat_core::Step<DesiredState> for Step {
    fn key(&self, desired: &DesiredState) -> Key {
        self.key_in(desired).clone()
    }

    fn slot(&self) -> Option<Slot> {
        match self {
            Step::Create { slot, .. } => Some(*slot),
            Step::Update(update) => Some(update.slot),
            Step::Delete(_) | Step::GiveBack(_) => None,
        }
    }

    fn action(&self) -> Action {
        match self {
            Step::Create { .. } => Action::Create,
            Step::Update(update) if update.how == How::Again => Action::Replace,
            Step::Update(_) => Action::Update,
            Step::Delete(_) | Step::GiveBack(_) => Action::Delete,
        }
    }

    fn takes(&self) -> &[Taken] {
        match self {
            Step::Create { .. } => &[],
            Step::Update(update) => &update.takes,
            Step::Delete(delete) => &delete.takes,
            Step::GiveBack(step) => &step.takes,
        }
    }

    fn reversibility(&self, _desired: &DesiredState) -> Reversibility {
        if let Some(taken) = self.takes().first() {
            return Reversibility::Irreversible(
                format!("{FILTERS} are lost, such as `{}`", taken.key).into(),
            );
        }
        match self {
            Step::Update(update) if update.adopts.is_some() && !update.is_restorable => {
                Reversibility::Irreversible(format!("{UNCOPIED}, is lost").into())
            }
            _ => Reversibility::Reversible,
        }
    }

    fn is_recorded(&self) -> bool {
        true
    }

    fn explain(&self, desired: &DesiredState, emit: &mut dyn FnMut(Line)) {
        let (before, after) = (self.before(), self.after(desired));
        emit(Line {
            before: before.map(|before| before.words_beside(after.as_ref())),
            after: after.as_ref().map(Object::words),
            note: self.note(),
            text: classes_text(before, after.as_ref()),
            ..Line::new(self.action(), self.key_in(desired).to_string())
        });
    }
}

/// How classes change, a line each; nothing, if there are none before and after.
fn classes_text(before: Option<&Object>, after: Option<&Object>) -> Option<String> {
    let [before, after] = [before, after].map(|object| match object.map(|object| &object.side) {
        Some(Side::Root(root)) => Some(root),
        _ => None,
    });
    let classes = |root: Option<&Root>| root.map(|root| root.classes.clone()).unwrap_or_default();
    let (seen, wanted) = (classes(before), classes(after));
    if seen.is_empty() && wanted.is_empty() {
        return None;
    }
    let qdisc = |root: &Root| pairs(&root.qdisc.words());
    let mut text = match (before.map(qdisc), after.map(qdisc)) {
        (Some(before), Some(after)) if before == after => after,
        (Some(before), Some(after)) => format!("{before} -> {after}"),
        (before, after) => before.or(after).unwrap_or_default(),
    };
    let ids: BTreeSet<&ClassId> = seen.keys().chain(wanted.keys()).collect();
    for id in ids {
        let line = match (seen.get(id), wanted.get(id)) {
            (None, Some(class)) => format!("+ class {id} {}", pairs(&class.words())),
            (Some(_), None) => format!("- class {id}"),
            (Some(before), Some(after)) if !after.agrees(before) || !after.leaf_agrees(before) => {
                let (before, after) = (before.words_beside(after), after.words());
                format!("~ class {id} {} -> {}", pairs(&before), pairs(&after))
            }
            _ => continue,
        };
        text = format!("{text}\n{line}");
    }
    Some(text)
}

/// Fields and their values in one line.
fn pairs(words: &Map<String, Value>) -> String {
    let pair = |(name, value): (&String, &Value)| match value {
        Value::Object(inner) => format!("{name} {}", pairs(inner)),
        Value::String(text) => format!("{name} {text}"),
        other => format!("{name} {other}"),
    };
    words.iter().map(pair).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_of_classes_is_a_line_for_each() {
        let object = |words: Value| Object::try_from(words).unwrap();
        let before = object(json!({ "kind": "htb", "default": "20", "classes": {
            "1": { "rate": "100mbit", "quantum": 1000 },
            "10": { "parent": "1", "rate": "20mbit", "quantum": 1000,
                "qdisc": { "kind": "pfifo", "limit": 10 } },
            "99": { "rate": "1mbit" } } }));
        let after = object(json!({ "kind": "htb", "default": "20", "classes": {
            "1": { "rate": "100mbit" },
            "10": { "parent": "1", "rate": "30mbit", "qdisc": { "kind": "pfifo", "limit": 10 } },
            "20": { "parent": "1", "rate": "80mbit" } } }));
        let text = classes_text(Some(&before), Some(&after)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "kind htb default 20");
        assert!(lines[1].starts_with("~ class 10 rate 20mbit "), "{text}");
        assert!(lines[1].contains(" -> rate 30mbit "), "{text}");
        assert_eq!(lines[2], "+ class 20 rate 80mbit parent 1");
        assert_eq!(lines[3..], ["- class 99"]);
        assert_eq!(classes_text(None, None), None);
    }
}
