//! Turns changes into steps. Pure.

use homeostat_core::{Change, ChangeList, Draft, Failure, Finding, Owner, Retry, Slot, WaitsOn};

use crate::api::ConfigChange;
use crate::mark;
use crate::model::{DesiredState, Guest, Key, Run};
use crate::normalize;
use crate::observe::{Facts, Moment};
use crate::source::Guests;
use crate::step::{Expects, Power, Release, Set, Step, Unmark};

/// Drafts the steps for all changes, and lists options that are pending.
pub(crate) fn draft(
    source: &Guests,
    desired: &DesiredState,
    moment: &Moment,
    changes: ChangeList<Key, Guest>,
) -> Draft<Guests> {
    let mut draft = Draft::default();
    for change in changes {
        match change {
            Change::Create { slot } => draft.refuse(*desired.at(slot).0, absent()),
            Change::Update { slot, before, adopts } => {
                let key = *desired.at(slot).0;
                if let Some(facts) = moment.guests.get(&key) {
                    let difference = Difference { slot, before, adopts, facts };
                    draft.steps.extend(difference.steps(source, desired));
                }
            }
            Change::Delete { key, before } => {
                draft.steps.push(release(key, before, None, moment.guests.get(&key)));
            }
            Change::Release { key, before, restore } => {
                draft.steps.push(release(key, before, restore, moment.guests.get(&key)));
            }
        }
    }
    let pending = pending(desired, moment, &draft.steps);
    draft.findings.extend(pending);
    draft
}

/// Removes our mark from a guest that is no longer declared, and restores its original values where that is declared.
/// Without the mark it may be another guest with the same number, and nothing is written.
fn release(key: Key, before: Guest, restore: Option<Guest>, facts: Option<&Facts>) -> Step {
    let ours = facts.and_then(|facts| Some((facts, facts.mark.as_ref()?, facts.digest.clone()?)));
    let write = ours.map(|(facts, mark, digest)| {
        let originals = restore.map(|original| original.options).unwrap_or_default();
        let tags = mark::tags_without(originals.get("tags").map(String::as_str), &facts.tags, mark);
        let mut change = ConfigChange::default();
        let options = originals.iter().filter(|(option, _)| *option != "tags");
        let changed = options.filter(|(option, value)| before.options.get(*option) != Some(value));
        let values = changed.map(|(option, value)| (option.clone(), value.clone()));
        for (option, value) in values.chain([("tags".to_owned(), tags)]) {
            change.put(option, value);
        }
        Unmark { place: facts.place.clone(), change, digest }
    });
    Step::Release(Release { key, before, write })
}

fn absent() -> Failure {
    Failure::new("there is no such guest", Retry::OnChange)
        .with_help("make it first: guests are never made or destroyed here")
}

/// Options that are set and take effect with the next start: reported, not written again.
fn pending(desired: &DesiredState, moment: &Moment, steps: &[Step]) -> Vec<(Key, Finding)> {
    let restarts = |key: &Key| {
        steps.iter().any(|step| matches!(step, Step::Power(power) if power.place.vmid == key.0))
    };
    let guests = moment.guests.iter().filter(|(key, facts)| {
        !facts.pending.is_empty() && desired.wanted(key).is_some() && !restarts(key)
    });
    let pending = guests.map(|(key, facts)| {
        let on =
            format!("a restart of the guest, for `{}` to take effect", facts.pending.join("`, `"));
        (*key, Finding::Pending { on: WaitsOn::Condition(on) })
    });
    pending.collect()
}

struct Difference<'a> {
    slot: Slot,
    before: Guest,
    adopts: Option<Owner>,
    facts: &'a Facts,
}

impl Difference<'_> {
    fn steps(self, source: &Guests, desired: &DesiredState) -> Vec<Step> {
        let set = self.set(source, desired);
        let power = self.power(desired, set.as_ref());
        let steps = [set.map(Step::Set), power.map(Step::Power)];
        steps.into_iter().flatten().collect()
    }

    /// Only declared options are written, and only if the configuration could be read.
    fn set(&self, source: &Guests, desired: &DesiredState) -> Option<Set> {
        let (key, wanted) = desired.at(self.slot);
        let digest = self.facts.digest.clone()?;
        if !wanted.is_configured() {
            return None;
        }
        let (claims, known) = (self.facts.mark.is_none(), self.facts.mark.clone());
        let mark = known.unwrap_or_else(|| mark::make(&source.owner, key.0, &digest));
        let differing = desired.differing(self.slot, &self.before);
        let mut change = ConfigChange::default();
        for option in differing.iter().filter(|option| **option != "tags") {
            let value = wanted.options.get(*option).map(String::as_str).unwrap_or_default();
            if value.is_empty() {
                change.deletes.push((*option).to_owned());
                continue;
            }
            let seen = self.before.options.get(*option).map(String::as_str).unwrap_or_default();
            let written = normalize::written(wanted.kind, option, (value, seen));
            change.sets.push(((*option).to_owned(), written));
        }
        if claims || differing.contains(&"tags") {
            let declared = wanted.options.get("tags").map(String::as_str);
            change.sets.push(("tags".to_owned(), mark::tags(declared, &self.facts.tags, &mark)));
        }
        let (slot, place, before) = (self.slot, self.facts.place.clone(), self.before.clone());
        let adopts = self.adopts.clone();
        let is_needed = !change.is_empty();
        is_needed.then_some(Set { slot, place, before, change, digest, claims, adopts })
    }

    fn power(&self, desired: &DesiredState, set: Option<&Set>) -> Option<Power> {
        let wanted = desired.at(self.slot).1;
        let to = wanted.run?;
        if self.before.run? == to {
            return None;
        }
        let expects = self.expects(to, set);
        let (slot, place, before) = (self.slot, self.facts.place.clone(), self.before.clone());
        Some(Power { slot, place, before, to, stop: wanted.stop, expects })
    }

    /// A start comes after the change of options, which may add our mark.
    fn expects(&self, to: Run, set: Option<&Set>) -> Expects {
        let written = set.filter(|_| to == Run::Running).and_then(|set| {
            let tags = set.change.sets.iter().find(|(name, _)| name == "tags")?;
            normalize::tags(&tags.1).into_iter().find(|tag| mark::is_mark(tag))
        });
        match (written.or_else(|| self.facts.mark.clone()), &self.facts.digest) {
            (Some(mark), _) => Expects::Mark(mark),
            (None, Some(digest)) => Expects::Digest(digest.clone()),
            (None, None) => Expects::Name(self.facts.name.clone()),
        }
    }
}
