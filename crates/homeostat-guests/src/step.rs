//! One write to a guest, and its explanation. Pure.

use homeostat_core::{Action, Dispatch, Line, Owner, Slot};
use serde_json::{Map, Value, json};

use crate::api::{ConfigChange, Place};
use crate::model::{DesiredState, Guest, Key, Run, Stop};

/// One write.
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
    pub(crate) key: Key,
    pub(crate) before: Guest,
    /// None, if the guest has no mark of ours.
    pub(crate) write: Option<Unmark>,
}

/// The write that removes our mark.
#[derive(Clone, Debug)]
pub(crate) struct Unmark {
    pub(crate) place: Place,
    pub(crate) change: ConfigChange,
    /// The digest that the configuration must still have.
    pub(crate) digest: String,
}

#[derive(Clone, Debug)]
pub struct Set {
    pub(crate) slot: Slot,
    pub(crate) place: Place,
    pub(crate) before: Guest,
    pub(crate) change: ConfigChange,
    /// The digest that the configuration must still have.
    pub(crate) digest: String,
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

    pub(crate) fn request(&self) -> String {
        let parameters =
            self.parameters().into_iter().map(|(name, value)| format!(" {name}={value}"));
        format!("{}/status/{}{}", self.place.path(), self.verb(), parameters.collect::<String>())
    }
}

impl Set {
    fn dispatch(&self) -> Dispatch {
        let parameters = fingerprint(&self.place, &self.change);
        Dispatch { kind: "set".to_owned(), parameters, precondition: Some(self.digest.clone()) }
    }
}

impl Release {
    fn dispatch(&self) -> Dispatch {
        let Some(write) = &self.write else { return Dispatch::default() };
        let parameters = fingerprint(&write.place, &write.change);
        let precondition = Some(write.digest.clone());
        Dispatch { kind: "release".to_owned(), parameters, precondition }
    }
}

/// Values may be secrets: the journal gets only a hash of them.
fn fingerprint(place: &Place, ConfigChange { sets, deletes }: &ConfigChange) -> String {
    let change = format!("{sets:?} {deletes:?}");
    let print = ring::digest::digest(&ring::digest::SHA256, change.as_bytes());
    let print = print.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    format!("{}/config {print:016x}", place.path())
}

impl homeostat_core::Step<DesiredState> for Step {
    fn key(&self, _desired: &DesiredState) -> Key {
        match self {
            Step::Set(Set { place, .. }) | Step::Power(Power { place, .. }) => Key(place.vmid),
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

    fn is_recorded(&self) -> bool {
        true
    }

    fn node(&self, _desired: &DesiredState) -> String {
        match self {
            Step::Set(Set { place, .. }) | Step::Power(Power { place, .. }) => place.node.clone(),
            Step::Release(Release { write, .. }) => {
                write.as_ref().map(|write| write.place.node.clone()).unwrap_or_default()
            }
        }
    }

    fn dispatch(&self, _desired: &DesiredState) -> Dispatch {
        let power = match self {
            Step::Power(power) => power,
            Step::Set(set) => return set.dispatch(),
            Step::Release(release) => return release.dispatch(),
        };
        let precondition = match &power.expects {
            Expects::Mark(text) | Expects::Digest(text) | Expects::Name(text) => Some(text.clone()),
            Expects::Number => None,
        };
        let (kind, parameters) = (power.verb().to_owned(), power.request());
        Dispatch { kind, parameters, precondition }
    }

    fn explain(&self, desired: &DesiredState, tell: &mut dyn FnMut(Line)) {
        let key = self.key(desired).to_string();
        let action = self.action();
        let (before, after, note) = match self {
            Step::Set(set) => set.explained(desired),
            Step::Power(power) => {
                (json!({ "run": power.before.run }), Some(json!({ "run": power.to })), None)
            }
            Step::Release(release) => release.explained(),
        };
        tell(Line { action, key, before: Some(before), after, note, text: None });
    }
}

impl Release {
    fn explained(&self) -> (Value, Option<Value>, Option<String>) {
        let restores = |write: &Unmark| write.change.options().any(|name| name != "tags");
        let note = match &self.write {
            None => "given up, nothing is written",
            Some(write) if restores(write) => "given up, originals come back and our mark goes",
            Some(_) => "given up, our mark is taken off",
        };
        (json!({ "run": self.before.run }), None, Some(note.to_owned()))
    }
}

impl Set {
    fn explained(&self, desired: &DesiredState) -> (Value, Option<Value>, Option<String>) {
        let wanted = &desired.at(self.slot).1.options;
        let (mut before, mut after) = (Map::new(), Map::new());
        for name in self.change.options().filter(|name| wanted.contains_key(*name)) {
            let was = self.before.options.get(name).cloned().unwrap_or_default();
            let becomes = wanted.get(name).cloned().unwrap_or_default();
            if was != becomes {
                before.insert(name.clone(), was.into());
                after.insert(name.clone(), becomes.into());
            }
        }
        let adopts = self.adopts.as_ref().map(|owner| format!("taken over from {owner}"));
        let claims = self.claims.then(|| "our mark is put on".to_owned());
        (before.into(), Some(after.into()), adopts.or(claims))
    }
}
