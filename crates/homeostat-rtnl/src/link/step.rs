//! One write to a link or to a field of one, and how it explains itself. Pure.

use homeostat_core::{Action, Line, Owner, Slot, Taken};
use serde_json::Value;

use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::LinkName;
use crate::link::model::Setting;
use crate::object::{Object, explained};
use crate::step::Phase;

/// One write to a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStep {
    /// The link, or a field of it.
    pub key: Key,
    /// The desired state, if it is declared.
    pub slot: Option<Slot>,
    /// What is there.
    pub before: Option<Object>,
    /// What is done.
    pub act: Act,
    /// Whose it was, if it is taken over.
    pub adopts: Option<Owner>,
    /// What goes along.
    pub takes: Vec<Taken>,
    /// The links whose addresses and routes may be others afterwards.
    pub touches: Vec<LinkName>,
}

/// What is done to a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// It is made.
    Create,
    /// It is changed while it is there.
    Update(Cycle),
    /// It is taken away and made again.
    Replace,
    /// It gets what could not be set before others were there.
    Finish,
    /// It goes.
    Delete,
    /// A field of it is written.
    Set(Cycle),
    /// A field of it is given up.
    Release {
        /// What is put back.
        restore: Option<Setting>,
    },
}

/// Whether a link has to be down for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cycle {
    /// It stays as it is.
    Stay,
    /// It is set down before, and up again if it is declared so.
    DownFirst,
}

impl LinkStep {
    /// What happens to the key.
    #[must_use]
    pub fn action(&self) -> Action {
        match self.act {
            Act::Create => Action::Create,
            // The field of a link that is made in the same pass.
            Act::Set(_) if self.before.is_none() => Action::Create,
            Act::Update(_) | Act::Finish | Act::Set(_) => Action::Update,
            Act::Replace => Action::Replace,
            Act::Delete | Act::Release { .. } => Action::Delete,
        }
    }

    /// Its turn.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.act {
            Act::Delete => Phase::DeleteLinks,
            _ => Phase::PutLinks,
        }
    }

    pub(crate) fn explain(&self, desired: &DesiredState, tell: &mut dyn FnMut(Line)) {
        let restored = match &self.act {
            Act::Release { restore: Some(restore) } => {
                Some(Object::Setting(restore.clone().into()))
            }
            _ => None,
        };
        let declared = self.slot.map(|slot| homeostat_core::Desired::object(desired, slot));
        let after = declared.or(restored).as_ref().map(explained);
        let before =
            self.before.as_ref().map(explained).map(|before| shown(before, after.as_ref()));
        let (action, key) = (self.action(), self.key.to_string());
        tell(Line { action, key, before, after, note: self.note(), text: None });
    }

    fn note(&self) -> Option<String> {
        if let Some(owner) = &self.adopts {
            return Some(format!("taken over from {owner}"));
        }
        Some(match &self.act {
            Act::Release { restore: Some(_) } => "released, original restored".to_owned(),
            Act::Release { restore: None } => "released, the value stays".to_owned(),
            Act::Update(Cycle::DownFirst) | Act::Set(Cycle::DownFirst) => {
                "it is down for a moment".to_owned()
            }
            Act::Finish => "once its links are there".to_owned(),
            _ => return None,
        })
    }

    /// Names declared keys that may be others afterwards.
    pub(crate) fn disturbs(&self, desired: &DesiredState, disturb: &mut dyn FnMut(Key)) {
        if self.touches.is_empty() {
            return;
        }
        desired.on_links(|link| self.touches.contains(&link), disturb);
        // Fields go with a link that goes along, such as the other end of a pair.
        let fields = self.touches.iter().flat_map(|link| desired.fields_of(*link));
        fields.filter(|key| *key != self.key).for_each(disturb);
    }
}

/// The part of a link that the desired state speaks of: the kernel tells of every option that there is.
fn shown(before: Value, after: Option<&Value>) -> Value {
    let Value::Object(fields) = before else { return before };
    let is_declared = |name: &str| after.is_some_and(|after| after.get(name).is_some());
    let told = fields.into_iter().filter(|(name, _)| name == "kind" || is_declared(name));
    Value::Object(told.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_desired_state_speaks_of_is_shown_of_what_is_there() {
        let before = json!({ "kind": "bridge", "mtu": 1500, "stp": false, "up": true });
        let after = json!({ "kind": "bridge", "mtu": 1400 });
        let expected = json!({ "kind": "bridge", "mtu": 1500 });
        assert_eq!(shown(before.clone(), Some(&after)), expected);
        assert_eq!(shown(before, None), json!({ "kind": "bridge" }));
        assert_eq!(shown(json!(1500), Some(&json!(1400))), json!(1500));
    }
}
