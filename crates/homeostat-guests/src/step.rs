//! One write to a guest, and its explanation. Pure.

use homeostat_core::{Action, Dispatch, Line, Owner, Parking, Reversibility, Slot};
use serde_json::{Map, Value, json};

use crate::api::{ConfigWrite, Place};
use crate::desired::DesiredState;
use crate::model::{Guest, Run, Stop, Vmid};

#[derive(Clone, Debug)]
pub enum Step {
    /// Sets options, and adds our mark.
    Set(Set),
    /// Starts or stops a guest.
    Power(Power),
    /// Releases a guest: our mark is removed, and original values are restored where that is declared.
    Release(Release),
}

#[derive(Clone, Debug)]
pub struct Release {
    pub(crate) key: Vmid,
    pub(crate) before: Guest,
    /// The write that removes our mark; none, if the guest has no mark of ours.
    pub(crate) write: Option<ConfigWrite>,
}

#[derive(Clone, Debug)]
pub struct Set {
    pub(crate) slot: Slot,
    pub(crate) before: Guest,
    pub(crate) write: ConfigWrite,
    /// Whether it adds our mark.
    pub(crate) claims: bool,
    /// The owner that it is taken from.
    pub(crate) adopts: Option<Owner>,
}

/// A start or a stop.
#[derive(Clone, Debug)]
pub struct Power {
    pub(crate) slot: Slot,
    pub(crate) place: Place,
    pub(crate) before: Guest,
    pub(crate) to: Run,
    pub(crate) stop: Stop,
    /// Checked right before the write.
    pub(crate) expects: Expects,
}

/// How a guest is recognized as the one that was planned for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expects {
    /// By our mark, with its generation.
    Mark(String),
    /// By its configuration, if it has no mark.
    Digest(String),
    /// By its name, if it has no mark and its configuration cannot be read.
    Name(String),
    /// By its number alone.
    Number,
}

impl Power {
    /// The verb of the API.
    pub(crate) fn verb(&self) -> &'static str {
        match (self.to, self.stop) {
            (Run::Running, _) => "start",
            (Run::Stopped, Stop::Immediate) => "stop",
            (Run::Stopped, Stop::Graceful(_) | Stop::Shutdown(_)) => "shutdown",
        }
    }

    pub(crate) fn parameters(&self) -> Vec<(String, String)> {
        let (timeout, is_forced) = match (self.to, self.stop) {
            (Run::Running, _) | (_, Stop::Immediate) => return Vec::new(),
            (Run::Stopped, Stop::Graceful(timeout)) => (timeout, "1"),
            (Run::Stopped, Stop::Shutdown(timeout)) => (timeout, "0"),
        };
        // The API takes whole seconds; rounding down could give zero.
        let timeout = timeout.as_millis().div_ceil(1000).to_string();
        vec![("forceStop".to_owned(), is_forced.to_owned()), ("timeout".to_owned(), timeout)]
    }

    /// What the journal records of it.
    pub(crate) fn dispatch(&self) -> Dispatch {
        let mut parameters = format!("{}/status/{}", self.place.path(), self.verb());
        for (name, value) in self.parameters() {
            parameters = format!("{parameters} {name}={value}");
        }
        let precondition = match &self.expects {
            Expects::Mark(text) | Expects::Digest(text) | Expects::Name(text) => Some(text.clone()),
            Expects::Number => None,
        };
        Dispatch { kind: self.verb().to_owned(), parameters, precondition }
    }
}

/// What the journal records of a write. Values may be secrets: the journal gets only a hash of them.
fn dispatch_of(write: &ConfigWrite, kind: &str) -> Dispatch {
    let options = format!("{:?}", write.options);
    let hash = ring::digest::digest(&ring::digest::SHA256, options.as_bytes());
    let hash = hash.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    let parameters = format!("{}/config {hash:016x}", write.place.path());
    Dispatch { kind: kind.to_owned(), parameters, precondition: Some(write.digest.clone()) }
}

impl homeostat_core::Step<DesiredState> for Step {
    fn key(&self, _desired: &DesiredState) -> Vmid {
        match self {
            Step::Set(set) => set.write.place.vmid,
            Step::Power(power) => power.place.vmid,
            Step::Release(release) => release.key,
        }
    }

    fn slot(&self) -> Option<Slot> {
        match self {
            Step::Set(Set { slot, .. }) | Step::Power(Power { slot, .. }) => Some(*slot),
            Step::Release(_) => None,
        }
    }

    fn action(&self) -> Action {
        match self {
            Step::Set(_) | Step::Power(_) => Action::Update,
            Step::Release(_) => Action::Delete,
        }
    }

    /// Options are set before a start, so that they take effect with it, and after a stop, so that none is pending.
    fn phase(&self) -> u8 {
        match self {
            Step::Power(Power { to: Run::Stopped, .. }) => 0,
            Step::Set(_) | Step::Release(_) => 1,
            Step::Power(Power { to: Run::Running, .. }) => 2,
        }
    }

    fn reversibility(&self, _desired: &DesiredState) -> Reversibility {
        match self {
            Step::Set(_) | Step::Release(_) => Reversibility::Reversible,
            Step::Power(Power { to: Run::Running, .. }) => {
                Reversibility::Compensable("the guest is stopped again".into())
            }
            Step::Power(Power { to: Run::Stopped, .. }) => {
                Reversibility::Irreversible("what the guest has in its memory is lost".into())
            }
        }
    }

    /// The run state of a guest is not changed before it is certain.
    fn parking(&self) -> Option<Parking<Self>> {
        matches!(self, Step::Power(_)).then_some(Parking::Nothing)
    }

    fn is_recorded(&self) -> bool {
        true
    }

    fn node(&self, _desired: &DesiredState) -> String {
        let place = match self {
            Step::Set(set) => Some(&set.write.place),
            Step::Power(power) => Some(&power.place),
            Step::Release(release) => release.write.as_ref().map(|write| &write.place),
        };
        place.map(|place| place.node.clone()).unwrap_or_default()
    }

    fn dispatch(&self, _desired: &DesiredState) -> Dispatch {
        match self {
            Step::Set(set) => dispatch_of(&set.write, "set"),
            Step::Power(power) => power.dispatch(),
            Step::Release(Release { write, .. }) => {
                write.as_ref().map(|write| dispatch_of(write, "release")).unwrap_or_default()
            }
        }
    }

    fn explain(&self, desired: &DesiredState, emit: &mut dyn FnMut(Line)) {
        let (before, after, note) = match self {
            Step::Set(set) => {
                let (before, after) = set.differences(desired);
                let adopts = set.adopts.as_ref().map(|owner| format!("taken over from {owner}"));
                let claims = set.claims.then(|| "our mark is put on".to_owned());
                (before.into(), Some(after.into()), adopts.or(claims))
            }
            Step::Power(power) => {
                (json!({ "run": power.before.run }), Some(json!({ "run": power.to })), None)
            }
            Step::Release(Release { before, write, .. }) => {
                let mut options = write.iter().flat_map(|write| &write.options);
                let note = match (write, options.any(|(name, _)| name != "tags")) {
                    (None, _) => "given up, nothing is written",
                    (Some(_), true) => "given up, originals come back and our mark goes",
                    (Some(_), false) => "given up, our mark is taken off",
                };
                (json!({ "run": before.run }), None, Some(note.to_owned()))
            }
        };
        let (action, key) = (self.action(), self.key(desired).to_string());
        emit(Line { before: Some(before), after, note, ..Line::new(action, key) });
    }
}

impl Set {
    /// The declared options that it changes, before and after.
    fn differences(&self, desired: &DesiredState) -> (Map<String, Value>, Map<String, Value>) {
        let wanted = &desired.at(self.slot).1.options;
        let (mut before, mut after) = (Map::new(), Map::new());
        let written = self.write.options.iter().map(|(name, _)| name);
        for (name, becomes) in written.filter_map(|name| wanted.get_key_value(name)) {
            let was = self.before.options.get(name).cloned().unwrap_or_default();
            if was != *becomes {
                before.insert(name.clone(), was.into());
                after.insert(name.clone(), becomes.as_str().into());
            }
        }
        (before, after)
    }
}
