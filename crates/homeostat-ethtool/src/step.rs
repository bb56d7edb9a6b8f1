//! One write, and how it explains itself. Pure.

use homeostat_core::{Action, Line, Owner, Reversibility, Slot};

use crate::key::Key;
use crate::model::{DesiredState, Value};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes a setting what is declared.
    Set { slot: Slot, before: Value, adopts: Option<Owner> },
    /// Releases a setting that is no longer declared; `restore` is its original, where that is to come back.
    Release { key: Key, before: Value, restore: Option<Value> },
}

impl Step {
    /// What is written; nothing, if nothing is.
    pub(crate) fn write<'a>(&'a self, desired: &'a DesiredState) -> Option<(&'a Key, &'a Value)> {
        match self {
            Step::Set { slot, .. } => {
                let (key, wanted) = desired.at(*slot);
                Some((key, &wanted.value))
            }
            Step::Release { key, restore, .. } => restore.as_ref().map(|value| (key, value)),
        }
    }

    pub(crate) fn before(&self) -> &Value {
        match self {
            Step::Set { before, .. } | Step::Release { before, .. } => before,
        }
    }

    fn key_in<'a>(&'a self, desired: &'a DesiredState) -> &'a Key {
        match self {
            Step::Set { slot, .. } => desired.at(*slot).0,
            Step::Release { key, .. } => key,
        }
    }
}

impl homeostat_core::Step<DesiredState> for Step {
    fn key(&self, desired: &DesiredState) -> Key {
        self.key_in(desired).clone()
    }

    fn slot(&self) -> Option<Slot> {
        match self {
            Step::Set { slot, .. } => Some(*slot),
            Step::Release { .. } => None,
        }
    }

    fn action(&self) -> Action {
        match self {
            Step::Set { .. } => Action::Update,
            Step::Release { .. } => Action::Delete,
        }
    }

    fn reversibility(&self, _: &DesiredState) -> Reversibility {
        Reversibility::Reversible
    }

    /// Features need each other, and drivers count queues together.
    fn disturbs(&self, desired: &DesiredState, disturb: &mut dyn FnMut(Key)) {
        if let Some((key, _)) = self.write(desired) {
            desired.beside(key).cloned().for_each(disturb);
        }
    }

    fn is_recorded(&self) -> bool {
        true
    }

    fn explain(&self, desired: &DesiredState, emit: &mut dyn FnMut(Line)) {
        let key = self.key_in(desired);
        let written = self.write(desired);
        let said = match self {
            Step::Set { adopts: Some(owner), .. } => Some(format!("taken over from {owner}")),
            Step::Set { adopts: None, .. } => None,
            Step::Release { restore: Some(_), .. } => {
                Some("released, original restored".to_owned())
            }
            Step::Release { restore: None, .. } => Some("released, the value stays".to_owned()),
        };
        let may_restart = written.is_some() && key.setting.group().may_restart();
        let effect = may_restart.then(|| "the link may be down for a moment".to_owned());
        let note: Vec<String> = said.into_iter().chain(effect).collect();
        let action = homeostat_core::Step::action(self);
        emit(Line {
            before: Some(self.before().json()),
            after: written.map(|(_, value)| value.json()),
            note: (!note.is_empty()).then(|| note.join("; ")),
            ..Line::new(action, key.to_string())
        });
    }
}
