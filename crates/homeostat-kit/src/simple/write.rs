//! The one step of an adapted API: one change, one call.

use homeostat_engine::{Action, Change, Desired, Line, Object, Slot, Step};
use serde_json::Value;

use super::adapted::Witness;

/// One call that writes.
#[derive(Clone, Debug)]
pub struct Write<K, O> {
    pub(super) change: Change<K, O>,
    pub(super) witness: Witness,
}

impl<D: Desired> Step<D> for Write<D::Key, D::Object> {
    fn key(&self, desired: &D) -> D::Key {
        self.change.key(desired)
    }

    fn action(&self) -> Action {
        match self.change {
            Change::Create { .. } => Action::Create,
            Change::Update { .. } => Action::Update,
            Change::Delete { .. } | Change::Release { .. } => Action::Delete,
        }
    }

    fn is_recorded(&self) -> bool {
        self.witness == Witness::Ledger
    }

    fn explain(&self, desired: &D, tell: &mut dyn FnMut(Line)) {
        let (before, after, note) = match &self.change {
            Change::Create { slot } => (None, Some(wanted(desired, *slot)), None),
            Change::Update { slot, before, adopts } => {
                let note = adopts.as_ref().map(|owner| format!("taken over from {owner}"));
                (Some(value(before)), Some(wanted(desired, *slot)), note)
            }
            Change::Delete { before, .. } => (Some(value(before)), None, None),
            Change::Release { before, restore: None, .. } => {
                (Some(value(before)), None, Some("released, the value stays".to_owned()))
            }
            Change::Release { before, restore: Some(original), .. } => {
                let note = "released, the original returns".to_owned();
                (Some(value(before)), Some(value(original)), Some(note))
            }
        };
        let (action, key) = (Step::<D>::action(self), self.change.key(desired).to_string());
        tell(Line { action, key, before, after, note });
    }
}

fn wanted<D: Desired>(desired: &D, slot: Slot) -> Value {
    value(&desired.object(slot))
}

/// An object that cannot be shown is shown as nothing: a plan is for people.
fn value(object: &impl Object) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
