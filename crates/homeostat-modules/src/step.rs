//! One write, and how it explains itself. Pure.

use homeostat_core::{Action, Line, Reversibility, Slot};
use serde_json::json;

use crate::key::Key;
use crate::model::{DesiredState, State};

/// What a rollback leaves.
pub(crate) const STAYS: &str = "nothing; it stays loaded until the next boot";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Load {
        slot: Slot,
    },
    /// Releases a module that is no longer declared. Nothing is written.
    Leave {
        key: Key,
        before: State,
    },
}

impl homeostat_core::Step<DesiredState> for Step {
    fn key(&self, desired: &DesiredState) -> Key {
        match self {
            Step::Load { slot } => desired.at(*slot).clone(),
            Step::Leave { key, .. } => key.clone(),
        }
    }

    fn slot(&self) -> Option<Slot> {
        match self {
            Step::Load { slot } => Some(*slot),
            Step::Leave { .. } => None,
        }
    }

    fn action(&self) -> Action {
        match self {
            Step::Load { .. } => Action::Update,
            Step::Leave { .. } => Action::Delete,
        }
    }

    fn reversibility(&self, _: &DesiredState) -> Reversibility {
        match self {
            Step::Load { .. } => Reversibility::Compensable(STAYS.into()),
            Step::Leave { .. } => Reversibility::Reversible,
        }
    }

    fn is_recorded(&self) -> bool {
        true
    }

    fn explain(&self, desired: &DesiredState, emit: &mut dyn FnMut(Line)) {
        let action = homeostat_core::Step::action(self);
        let line = Line::new(action, homeostat_core::Step::key(self, desired).to_string());
        emit(match self {
            Step::Load { .. } => Line {
                before: Some(json!(State::NotLoaded)),
                after: Some(json!(State::Loaded)),
                ..line
            },
            Step::Leave { before, .. } => Line {
                before: Some(json!(before)),
                note: Some("released, it stays as it is".to_owned()),
                ..line
            },
        });
    }
}
