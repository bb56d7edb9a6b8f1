//! Turns changes into steps. Pure.

use homeostat_core::{Change, ChangeList, Draft};

use crate::key::Key;
use crate::model::State;
use crate::source::Modules;
use crate::step::Step;

pub(crate) fn draft(changes: ChangeList<Key, State>) -> Draft<Modules> {
    let mut draft = Draft::default();
    for change in changes {
        match change {
            Change::Update { slot, .. } | Change::Create { slot } => {
                draft.steps.push(Step::Load { slot });
            }
            Change::Release { key, before, .. }
            | Change::Delete { key, before }
            | Change::GiveBack { key, before, .. } => {
                draft.steps.push(Step::Leave { key, before });
            }
        }
    }
    draft
}
