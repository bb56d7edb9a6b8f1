//! Turns changes into steps, and says what cannot be one. Pure.

use homeostat_core::{
    Change, ChangeList, Desired as _, Draft, Failure, Owner, Retry, Slot, WaitsOn,
};

use crate::key::{Aspect, Key};
use crate::model::{DesiredState, State};
use crate::observe::Moment;
use crate::source::Services;
use crate::step::{Step, phase};

/// The steps for all changes.
pub(crate) fn draft(
    desired: &DesiredState,
    moment: &Moment,
    changes: ChangeList<Key, State>,
) -> Draft<Services> {
    let mut drafting = Drafting { desired, moment, draft: Draft::default() };
    for change in changes {
        drafting.take(change);
    }
    drafting.draft
}

struct Drafting<'a> {
    desired: &'a DesiredState,
    moment: &'a Moment,
    draft: Draft<Services>,
}

impl Drafting<'_> {
    fn take(&mut self, change: Change<Key, State>) {
        match change {
            Change::Create { slot } => self.wait_for_unit(self.desired.key(slot)),
            Change::Update { slot, before, adopts } => self.set(slot, before, adopts),
            Change::Release { key, before, restore, .. } => {
                let restore = match restore {
                    Some(State::Is(value)) if before != State::Is(value) => Some(value),
                    // It is as it was, or what it was cannot be set: `static`, or halfway.
                    _ => None,
                };
                self.draft.steps.push(Step::Release { key, before, restore });
            }
            // A value cannot be deleted, only released.
            Change::Delete { key, before } | Change::GiveBack { key, before, .. } => {
                self.draft.steps.push(Step::Release { key, before, restore: None });
            }
        }
    }

    /// A unit is never made: it comes with its package, or as a file.
    fn wait_for_unit(&mut self, key: Key) {
        let on = if self.moment.has_systemd {
            format!("the unit {}, which is not installed", key.unit)
        } else {
            "systemd, which does not run here".to_owned()
        };
        self.draft.wait(key, WaitsOn::Condition(on));
    }

    fn set(&mut self, slot: Slot, before: State, adopts: Option<Owner>) {
        let (key, wanted) = self.desired.at(slot);
        let key = key.clone();
        if key.aspect != Aspect::Masked && wanted.value && self.moment.masked.contains(&key.unit) {
            return self.unmask_first(key);
        }
        match (key.aspect, &before) {
            (Aspect::Enabled, State::Neither(state)) if !can_be_set(state) => {
                let failure = cannot_be_enabled(state);
                return self.draft.refuse(key, failure);
            }
            (Aspect::Active, State::Neither(state)) => {
                let on = WaitsOn::Task(format!("of systemd: {} is {state}", key.unit));
                return self.draft.wait(key, on);
            }
            (Aspect::Active, _)
                if wanted.value && self.moment.ends_by_itself.contains(&key.unit) =>
            {
                let failure = ends_by_itself(&key);
                return self.draft.refuse(key, failure);
            }
            _ => {}
        }
        let phase = phase(key.aspect, wanted.value);
        self.draft.steps.push(Step::Set { slot, before, adopts, phase });
    }

    /// A masked unit can be neither enabled nor started. If the mask shall go, the next look finds that it went.
    fn unmask_first(&mut self, key: Key) {
        let mask = key.with(Aspect::Masked);
        if self.desired.wanted(&mask).is_some_and(|wanted| !wanted.value) {
            self.draft.wait(key, WaitsOn::Key(mask.to_string()));
            return;
        }
        let failure = Failure::new(format!("{} is masked", key.unit), Retry::OnChange);
        self.draft.refuse(key, failure.with_help("declare `masked = false` to have it unmasked"));
    }
}

/// Whether `systemctl enable` works in this state: yes if it is enabled until the next boot only, no without an
/// `[Install]` section.
fn can_be_set(state: &str) -> bool {
    matches!(state, "enabled-runtime" | "linked" | "linked-runtime" | "indirect")
}

fn cannot_be_enabled(state: &str) -> Failure {
    let failure = Failure::new(
        format!("its unit file is `{state}`: it cannot be enabled or disabled"),
        Retry::OnChange,
    );
    failure.with_help(match state {
        "static" => "it has no [Install] section: other units start it; leave `enabled` out",
        "alias" => "declare the unit that it stands for",
        "generated" => "a generator makes it at each boot: change what that reads",
        _ => "leave `enabled` out",
    })
}

fn ends_by_itself(key: &Key) -> Failure {
    let text = format!(
        "{} ends when its work is done (Type=oneshot without RemainAfterExit): it is never active for long",
        key.unit
    );
    Failure::new(text, Retry::OnChange)
        .with_help("leave `active` out, and let a timer or another unit start it")
}
