//! Turns changes into steps. Pure.

use homeostat_core::{Change, ChangeList, Draft, Failure, Finding, Owner, Retry, Slot, WaitsOn};

use crate::api::ConfigWrite;
use crate::desired::DesiredState;
use crate::mark;
use crate::model::{Guest, Run, Vmid};
use crate::normalize;
use crate::observe::{Facts, Moment};
use crate::source::Guests;
use crate::step::{Expects, Power, Release, Set, Step};

/// Drafts the steps for all changes, and lists options that are pending.
pub(crate) fn draft(
    source: &Guests,
    desired: &DesiredState,
    moment: &Moment,
    changes: ChangeList<Vmid, Guest>,
) -> Draft<Guests> {
    let mut draft = Draft::default();
    for change in changes {
        let key = change.key(desired);
        if let Some(lock) = moment.guests.get(&key).and_then(Facts::lock) {
            let on =
                format!("the end of its lock `{lock}`: the target refuses everything until then");
            draft.wait(key, WaitsOn::Condition(on));
            continue;
        }
        match change {
            Change::Create { .. } => {
                let absent = Failure::new("there is no such guest", Retry::OnChange)
                    .with_help("make it first: guests are never made or destroyed here");
                draft.refuse(key, absent);
            }
            Change::Update { slot, before, adopts } => {
                if let Some(facts) = moment.guests.get(&key) {
                    let difference = Difference { slot, before, adopts, facts };
                    draft.steps.extend(difference.steps(source, desired));
                }
            }
            Change::Delete { key, before } | Change::GiveBack { key, before, .. } => {
                draft.steps.push(release(key, before, None, moment.guests.get(&key)));
            }
            Change::Release { key, before, restore, .. } => {
                draft.steps.push(release(key, before, restore, moment.guests.get(&key)));
            }
        }
    }
    let restarts = |key: &Vmid| {
        let mut steps = draft.steps.iter();
        steps.any(|step| matches!(step, Step::Power(power) if power.place.vmid == *key))
    };
    // Options that are set and take effect with the next start are reported, not written again.
    for (key, Facts { pending, .. }) in &moment.guests {
        if !pending.is_empty() && desired.wanted(key).is_some() && !restarts(key) {
            let options = pending.join("`, `");
            let on = format!("a restart of the guest, for `{options}` to take effect");
            draft.findings.push((*key, Finding::Pending { on: WaitsOn::Condition(on) }));
        }
    }
    draft
}

/// Removes our mark from a guest that is no longer declared, and restores its original values where that is declared.
/// Without the mark it may be another guest with the same number, and nothing is written.
fn release(key: Vmid, before: Guest, restore: Option<Guest>, facts: Option<&Facts>) -> Step {
    let ours = facts.and_then(|facts| Some((facts, facts.mark.as_ref()?, facts.digest.clone()?)));
    let write = ours.map(|(facts, mark, digest)| {
        let originals = restore.map(|original| original.options).unwrap_or_default();
        let tags = mark::tags_without(originals.get("tags").map(String::as_str), &facts.tags, mark);
        let is_changed = |(option, value): &(String, String)| {
            option != "tags" && before.options.get(option) != Some(value)
        };
        let changed = originals.into_iter().filter(is_changed);
        let options = changed.chain([("tags".to_owned(), tags)]).collect();
        ConfigWrite { place: facts.place.clone(), options, digest }
    });
    Step::Release(Release { key, before, write })
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
        let power = self.power(source, desired, set.as_ref());
        set.map(Step::Set).into_iter().chain(power.map(Step::Power)).collect()
    }

    /// Only declared options are written, and only if the configuration could be read.
    fn set(&self, source: &Guests, desired: &DesiredState) -> Option<Set> {
        let (key, wanted) = desired.at(self.slot);
        let digest = self.facts.digest.clone()?;
        if !wanted.is_configured() {
            return None;
        }
        let (claims, known) = (self.facts.mark.is_none(), self.facts.mark.clone());
        let mark = known
            .unwrap_or_else(|| mark::make(&source.owner, source.claimant.as_ref(), *key, &digest));
        let differing = desired.differing(self.slot, &self.before);
        let mut options = Vec::new();
        for option in differing.iter().filter(|option| **option != "tags") {
            let value = wanted.options.get(*option).map(String::as_str).unwrap_or_default();
            let seen = self.before.option(option);
            let written = match value {
                "" => String::new(),
                value => normalize::written(wanted.kind, option, value, seen),
            };
            options.push(((*option).to_owned(), written));
        }
        if claims || differing.contains(&"tags") {
            let declared = wanted.options.get("tags").map(String::as_str);
            options.push(("tags".to_owned(), mark::tags(declared, &self.facts.tags, &mark)));
        }
        if options.is_empty() {
            return None;
        }
        let write = ConfigWrite { place: self.facts.place.clone(), options, digest };
        let (before, adopts) = (self.before.clone(), self.adopts.clone());
        Some(Set { slot: self.slot, before, write, claims, adopts })
    }

    fn power(&self, source: &Guests, desired: &DesiredState, set: Option<&Set>) -> Option<Power> {
        let (key, wanted) = desired.at(self.slot);
        let to = wanted.run?;
        if self.before.run? == to {
            return None;
        }
        let Facts { place, name, digest, mark, .. } = self.facts.clone();
        // A start comes after the change of options, which may add our mark.
        let claims = set.is_some_and(|set| set.claims) && to == Run::Running;
        let added = digest.as_ref().filter(|_| claims);
        let added =
            added.map(|digest| mark::make(&source.owner, source.claimant.as_ref(), *key, digest));
        let expects = match (mark.or(added), digest) {
            (Some(mark), _) => Expects::Mark(mark),
            (None, Some(digest)) => Expects::Digest(digest),
            (None, None) => Expects::Name(name),
        };
        let (slot, before) = (self.slot, self.before.clone());
        Some(Power { slot, place, before, to, stop: wanted.stop, expects })
    }
}
