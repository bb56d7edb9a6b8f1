//! One write: a name made or taken away, and how it explains itself. Pure.

use homeostat_core::{Action, Desired as _, Line, Parking, Reversibility, Slot, Taken, WaitsOn};

use crate::key::Key;
use crate::model::{DesiredState, Namespace};

/// What goes with a namespace.
pub(crate) const INSIDE: &str = "programs in it, and the links in it that are not declared";

/// What stands where a namespace is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// Nothing.
    Free,
    /// The empty file that an attempt of ours left when it was interrupted.
    Leftover,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Make a namespace.
    Create {
        /// The desired state.
        slot: Slot,
        /// What stands there.
        ground: Ground,
    },
    /// Take away the empty file that an attempt of ours left when it was interrupted.
    Clear {
        /// The name of the namespace that was to be made.
        key: Key,
    },
    /// Take a namespace away.
    Delete {
        /// Its name.
        key: Key,
        /// Which one was seen.
        before: Namespace,
        /// What is inside and not ours.
        takes: Vec<Taken>,
    },
}

impl homeostat_core::Step<DesiredState> for Step {
    fn key(&self, desired: &DesiredState) -> Key {
        match self {
            Step::Create { slot, .. } => desired.key(*slot),
            Step::Clear { key } | Step::Delete { key, .. } => key.clone(),
        }
    }

    fn slot(&self) -> Option<Slot> {
        match self {
            Step::Create { slot, .. } => Some(*slot),
            Step::Clear { .. } | Step::Delete { .. } => None,
        }
    }

    fn action(&self) -> Action {
        match self {
            Step::Create { .. } => Action::Create,
            Step::Clear { .. } | Step::Delete { .. } => Action::Delete,
        }
    }

    fn takes(&self) -> &[Taken] {
        match self {
            Step::Create { .. } | Step::Clear { .. } => &[],
            Step::Delete { takes, .. } => takes,
        }
    }

    fn reversibility(&self, _desired: &DesiredState) -> Reversibility {
        match self {
            Step::Create { .. } | Step::Clear { .. } => Reversibility::Reversible,
            Step::Delete { .. } => {
                Reversibility::Irreversible(format!("{INSIDE}, do not return").into())
            }
        }
    }

    /// A namespace keeps its name, and so everything inside.
    fn parking(&self) -> Option<Parking<Self>> {
        matches!(self, Step::Delete { .. }).then_some(Parking::Nothing)
    }

    fn is_recorded(&self) -> bool {
        true
    }

    fn explain(&self, desired: &DesiredState, emit: &mut dyn FnMut(Line)) {
        let note = match self {
            Step::Create { ground: Ground::Free, .. } => None,
            Step::Create { ground: Ground::Leftover, .. } => Some("over an interrupted attempt"),
            Step::Clear { .. } => Some("what an interrupted attempt left"),
            Step::Delete { .. } => Some("with all that is ours inside"),
        };
        let key = self.key(desired);
        let is_made = matches!(self, Step::Create { .. });
        let made = is_made.then(|| WaitsOn::Namespace(key.name().to_string()));
        emit(Line {
            note: note.map(str::to_owned),
            provides: made.into_iter().collect(),
            ..Line::new(self.action(), key.to_string())
        });
    }
}
