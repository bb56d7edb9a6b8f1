//! Turns changes into steps, and says what cannot be one. Pure.

use homeostat_core::{
    Change, ChangeList, Desired as _, Draft, Failure, Owner, Retry, Slot, WaitsOn,
};

use crate::key::Key;
use crate::model::{DesiredState, Value};
use crate::observe::Moment;
use crate::source::Ethtool;
use crate::step::Step;

/// The steps for all changes.
pub(crate) fn draft(
    desired: &DesiredState,
    moment: &Moment,
    changes: ChangeList<Key, Value>,
) -> Draft<Ethtool> {
    let mut drafting = Drafting { desired, moment, draft: Draft::default() };
    for change in changes {
        drafting.take(change);
    }
    drafting.draft
}

struct Drafting<'a> {
    desired: &'a DesiredState,
    moment: &'a Moment,
    draft: Draft<Ethtool>,
}

impl Drafting<'_> {
    fn take(&mut self, change: Change<Key, Value>) {
        match change {
            Change::Create { slot } => self.cannot(self.desired.key(slot)),
            Change::Update { slot, before, adopts } => self.set(slot, before, adopts),
            Change::Release { key, before, restore, .. } => {
                let restore = restore.filter(|original| *original != before);
                self.draft.steps.push(Step::Release { key, before, restore });
            }
            // A setting cannot be deleted, only released.
            Change::Delete { key, before } | Change::GiveBack { key, before, .. } => {
                self.draft.steps.push(Step::Release { key, before, restore: None });
            }
        }
    }

    /// A setting is never made: its link is waited for, or it is refused.
    fn cannot(&mut self, key: Key) {
        let Some(absence) = self.moment.absent.get(&key) else {
            return self.draft.wait(key, WaitsOn::Condition("a look at it".to_owned()));
        };
        match absence.waits_on(&key) {
            Some(on) if self.desired.is_optional(&key.link) => {
                self.draft.wait(key, WaitsOn::optional(on));
            }
            Some(on) => self.draft.wait(key, on),
            None => {
                let failure = absence.failure(&key);
                self.draft.refuse(key, failure);
            }
        }
    }

    fn set(&mut self, slot: Slot, before: Value, adopts: Option<Owner>) {
        let (key, wanted) = self.desired.at(slot);
        if let Some(failure) = self.impossible(key, &wanted.value, &before) {
            self.draft.refuse(key.clone(), failure);
            return;
        }
        self.draft.steps.push(Step::Set { slot, before, adopts });
    }

    /// Why the driver cannot do it, if that can be told beforehand.
    fn impossible(&self, key: &Key, wanted: &Value, before: &Value) -> Option<Failure> {
        let limits = self.moment.limits.get(key)?;
        let link = &key.link;
        let refusal = |text: String| Failure::new(text, Retry::OnChange);
        match (wanted, limits.most, &limits.modes) {
            (Value::Switch(_), ..) if limits.is_fixed && !wanted.agrees(before) => {
                let word = if before.json() == false { "off" } else { "on" };
                let text = format!("it is fixed: the driver of `{link}` keeps it {word}");
                Some(refusal(text).with_help("leave it out"))
            }
            (Value::Number(number), Some(most), _) if *number > most => {
                let text =
                    format!("`{number}` is too large: the driver of `{link}` has at most {most}");
                Some(refusal(text).with_help(format!("write {most} or less")))
            }
            (Value::Words(words), _, Some(modes)) => {
                let missing = words.difference(modes).next()?;
                let has: Vec<&str> = modes.iter().map(String::as_str).collect();
                let text = format!("the driver of `{link}` has no mode `{missing}`");
                Some(refusal(text).with_help(match has.as_slice() {
                    [] => "it has none".to_owned(),
                    has => format!("it has {}", has.join(", ")),
                }))
            }
            _ => None,
        }
    }
}
