//! One write, and how it explains itself. Pure.

use homeostat_core::{Action, Line, Owner, Reversibility, Slot};
use serde_json::json;

use crate::key::{Aspect, Key};
use crate::model::{DesiredState, State};

pub(crate) const LOST_BY_A_STOP: &str = "what the program had in memory";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes a value what is declared.
    Set { slot: Slot, before: State, adopts: Option<Owner>, phase: u8 },
    /// Releases a value that is no longer declared; `restore` is its original, where that is to come back.
    Release { key: Key, before: State, restore: Option<bool> },
}

impl Step {
    /// The value and what it shall be; nothing, if nothing is written.
    pub(crate) fn write<'a>(&'a self, desired: &'a DesiredState) -> Option<(&'a Key, bool)> {
        match self {
            Step::Set { slot, .. } => {
                let (key, wanted) = desired.at(*slot);
                Some((key, wanted.value))
            }
            Step::Release { key, restore, .. } => restore.map(|value| (key, value)),
        }
    }

    pub(crate) fn before(&self) -> &State {
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

/// A unit is stopped before it is masked, and can be enabled and started only after it is unmasked.
pub(crate) fn phase(aspect: Aspect, value: bool) -> u8 {
    match (aspect, value) {
        (Aspect::Active, false) => 0,
        (Aspect::Enabled, false) => 1,
        (Aspect::Masked, _) => 2,
        (Aspect::Enabled, true) => 3,
        (Aspect::Active, true) => 4,
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

    /// One phase for each kind of change: the writer runs the jobs of a phase side by side.
    fn phase(&self) -> u8 {
        match self {
            Step::Set { phase, .. } => *phase,
            Step::Release { restore: None, .. } => 0,
            Step::Release { key, restore: Some(value), .. } => phase(key.aspect, *value),
        }
    }

    /// Masking changes what can be said of the other values.
    fn disturbs(&self, desired: &DesiredState, disturb: &mut dyn FnMut(Key)) {
        let key = self.key_in(desired);
        let others = Aspect::ALL.into_iter().filter(|aspect| *aspect != key.aspect);
        let others = others.map(|aspect| key.with(aspect));
        others.filter(|key| desired.wanted(key).is_some()).for_each(disturb);
    }

    fn reversibility(&self, desired: &DesiredState) -> Reversibility {
        match self.write(desired) {
            Some((key, false)) if key.aspect == Aspect::Active => {
                Reversibility::Compensable(LOST_BY_A_STOP.into())
            }
            _ => Reversibility::Reversible,
        }
    }

    fn is_recorded(&self) -> bool {
        true
    }

    fn explain(&self, desired: &DesiredState, emit: &mut dyn FnMut(Line)) {
        let note = match self {
            Step::Set { adopts: Some(owner), .. } => Some(format!("taken over from {owner}")),
            Step::Set { adopts: None, .. } => None,
            Step::Release { restore: Some(_), .. } => {
                Some("released, original restored".to_owned())
            }
            Step::Release { restore: None, .. } => Some("released, it stays as it is".to_owned()),
        };
        let action = homeostat_core::Step::action(self);
        emit(Line {
            before: Some(json!(self.before())),
            after: self.write(desired).map(|(_, value)| json!(value)),
            note,
            ..Line::new(action, self.key_in(desired).to_string())
        });
    }
}
