//! One write to a knob, and how it explains itself. Pure.

use homeostat_core::{Action, Line, Owner, Slot};

use crate::coupling::{is_general, phase, rewrites};
use crate::key::Key;
use crate::model::{DesiredState, Value};
use crate::normalize::Form;

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make a knob hold what is declared.
    Set {
        /// The desired state.
        slot: Slot,
        /// What it holds.
        before: Value,
        /// Why it is written.
        why: Why,
        /// Its place in the order.
        phase: u8,
    },
    /// Give a knob up.
    Release {
        /// The knob.
        key: Key,
        /// What it holds.
        before: Value,
        /// What to put back.
        restore: Option<Value>,
    },
}

/// Why a knob is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is not as declared.
    Differs,
    /// It is taken over from this owner.
    Adopts(Owner),
    /// It is as declared, but an earlier step for this other knob will rewrite it.
    Rewritten {
        /// The other knob.
        by: Key,
    },
}

impl Step {
    /// The knob, without a copy.
    pub(crate) fn key_in<'a>(&'a self, desired: &'a DesiredState) -> &'a Key {
        match self {
            Step::Set { slot, .. } => desired.at(*slot).0,
            Step::Release { key, .. } => key,
        }
    }

    /// Whether anything is written: what is only given up stays as it is.
    pub(crate) fn writes(&self) -> bool {
        match self {
            Step::Set { .. } => true,
            Step::Release { .. } => self.restores().is_some(),
        }
    }

    /// Whether the knob holds something else afterwards.
    pub(crate) fn changes(&self) -> bool {
        match self {
            Step::Set { .. } => true,
            Step::Release { before, .. } => self.restores().is_some_and(|value| value != *before),
        }
    }

    /// What a release puts back. What was never set cannot be unset again.
    pub(crate) fn restores(&self) -> Option<Value> {
        match self {
            Step::Release { key, before, restore: Some(original) } => {
                let value = original.restoring(key, before);
                (!value.is_unset() || is_clearable(key)).then_some(value)
            }
            _ => None,
        }
    }

    fn note(&self) -> Option<String> {
        match self {
            Step::Set { why: Why::Differs, .. } => None,
            Step::Set { why: Why::Adopts(owner), .. } => Some(format!("taken over from {owner}")),
            Step::Set { why: Why::Rewritten { by }, .. } => {
                Some(format!("written again, since `{by}` rewrites it"))
            }
            Step::Release { restore, .. } => Some(match (restore, self.restores()) {
                (_, Some(_)) => "released, original restored".to_owned(),
                (Some(_), None) => "released, the value stays: it cannot be unset".to_owned(),
                (None, None) => "released, the value stays".to_owned(),
            }),
        }
    }
}

/// Lists can be emptied by writing nothing; other knobs take no empty text.
fn is_clearable(key: &Key) -> bool {
    matches!(Form::of(key), Form::Ranges | Form::Text)
}

impl homeostat_core::Step<DesiredState> for Step {
    fn key(&self, desired: &DesiredState) -> Key {
        self.key_in(desired).clone()
    }

    fn action(&self) -> Action {
        match self {
            Step::Set { .. } => Action::Update,
            Step::Release { .. } => Action::Delete,
        }
    }

    fn phase(&self) -> u8 {
        match self {
            Step::Set { phase, .. } => *phase,
            Step::Release { key, .. } => phase(key),
        }
    }

    fn disturbs(&self, desired: &DesiredState, disturb: &mut dyn FnMut(Key)) {
        let key = self.key_in(desired);
        if self.writes() && is_general(key) {
            let others = desired.iter().map(|(other, _)| other);
            others.filter(|other| rewrites(key, other)).cloned().for_each(disturb);
        }
    }

    fn is_recorded(&self) -> bool {
        true
    }

    fn explain(&self, desired: &DesiredState, tell: &mut dyn FnMut(Line)) {
        let json = |value: &Value| serde_json::Value::from(value.as_str());
        let (before, after) = match self {
            Step::Set { slot, before, .. } => (before, Some(json(&desired.at(*slot).1.value))),
            Step::Release { before, .. } => (before, self.restores().as_ref().map(json)),
        };
        tell(Line {
            action: homeostat_core::Step::action(self),
            key: self.key_in(desired).to_string(),
            before: Some(json(before)),
            after,
            note: self.note(),
        });
    }
}
