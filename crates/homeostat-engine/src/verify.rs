//! A second look at what was written: never a return code alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use educe::Educe;
use homeostat_core::{
    Action, Change, Changes, Desired, Failure, Finding, Focus, Kind, Outcome, Owner, Plan, Retry,
    Source, Step, Tally, WaitsOn, most_keys,
};

use crate::run::StepResults;

/// Beyond this many keys one full look is cheaper than many single ones. A focused pass never has more keys than this.
const SINGLE_LOOKS: usize = 1000;

/// What the second look showed beside the outcomes.
#[derive(Educe)]
#[educe(Default)]
pub(crate) struct Shown<K> {
    /// Keys that were written and are not there.
    pub(crate) absent: Vec<K>,
    /// Keys whose answer was lost and that are as declared.
    pub(crate) through: Vec<K>,
    /// What the target calls the objects that were made.
    pub(crate) identities: BTreeMap<K, String>,
}

/// Where to look again, if anywhere.
pub(crate) fn second_look<S: Source>(
    plan: &Plan<S>,
    results: &StepResults<S::Object>,
    disturbed: &BTreeSet<S::Key>,
    focus: &Focus<S::Key>,
) -> Option<Focus<S::Key>> {
    let most = match focus {
        Focus::All => SINGLE_LOOKS,
        Focus::Keys(_) => most_keys(plan.desired.len()),
    };
    let unverified: usize = results.unverified.iter().map(ExactSizeIterator::len).sum();
    if unverified > most {
        return Some(Focus::All);
    }
    let written = results.keys(plan).map(|(key, _)| key);
    let keys: BTreeSet<S::Key> = written.chain(disturbed.iter().cloned()).collect();
    (!keys.is_empty()).then_some(Focus::Keys(keys))
}

/// The keys that the target may have changed along with our steps.
pub(crate) fn disturbed<S: Source>(plan: &Plan<S>, tally: &Tally<S::Object>) -> BTreeSet<S::Key> {
    let mut keys = BTreeSet::new();
    for (at, step) in plan.steps.iter().enumerate() {
        if tally.is_good(at) {
            step.disturbs(&plan.desired, &mut |key| {
                keys.insert(key);
            });
        }
    }
    keys
}

/// Compares the second look with what the steps claimed, and corrects the claims.
pub(crate) fn correct<S: Source>(
    plan: &mut Plan<S>,
    results: &mut StepResults<S::Object>,
    disturbed: &BTreeSet<S::Key>,
    left: &Changes<S::Key, S::Object>,
) -> Shown<S::Key> {
    let desired = Arc::clone(&plan.desired);
    let mut objections = objections(&*desired, left);
    let through = applied_after_all(plan, results, &objections);
    drop_explained(plan, &results.tally, &mut objections);
    let identities = left.identities.clone();
    if objections.is_empty() {
        return Shown { absent: Vec::new(), through, identities };
    }
    // Only now, and only for the few keys that matter, are steps looked up by key.
    let steps = results.keys(plan).filter(|(key, _)| objections.contains_key(key));
    let steps: BTreeMap<S::Key, usize> = steps.collect();
    let absent = left.list.creates().iter().map(|slot| desired.key(*slot));
    let absent = absent.filter(|key| steps.contains_key(key)).collect();
    for (key, at) in steps {
        let removes = plan.steps.get(at).is_some_and(|step| step.action() == Action::Delete);
        match objections.remove(&key) {
            // Ours is gone, and another owner has taken its place.
            Some(Objection::Conflict(_)) if removes => {}
            Some(objection) => results.tally.revise(at, objection.outcome(&*desired)),
            None => {}
        }
    }
    for key in objections.into_keys().filter(|key| disturbed.contains(key)) {
        plan.wait(key, WaitsOn::NextPass);
    }
    Shown { absent, through, identities }
}

/// A step whose answer was lost, and whose key is as declared, went through.
fn applied_after_all<S: Source>(
    plan: &Plan<S>,
    results: &mut StepResults<S::Object>,
    objections: &Objections<'_, S::Key, S::Object>,
) -> Vec<S::Key> {
    let lost =
        results.tally.others().filter(|(_, outcome)| matches!(outcome, Outcome::Unknown { .. }));
    let lost = lost.filter_map(|(at, _)| Some((at, plan.steps.get(at)?.key(&plan.desired))));
    let through: Vec<_> = lost.filter(|(_, key)| !objections.contains_key(key)).collect();
    for (at, _) in &through {
        results.tally.revise(*at, Outcome::Applied { now: None });
    }
    through.into_iter().map(|(_, key)| key).collect()
}

/// What the second look has against a key. Put into words only for the keys that we wrote.
enum Objection<'a, K, O> {
    Absent,
    Change(&'a Change<K, O>),
    Conflict(&'a Owner),
    Unknown(&'a str),
}

type Objections<'a, K, O> = BTreeMap<K, Objection<'a, K, O>>;

impl<K, O> Objection<'_, K, O> {
    fn outcome<D: Desired<Key = K, Object = O>>(&self, desired: &D) -> Outcome<O> {
        match self {
            Objection::Absent => Outcome::Unkept(not_there()),
            Objection::Change(change) => Outcome::Unkept(not_kept(desired, change)),
            Objection::Conflict(owner) => Outcome::Conflict { owner: (*owner).clone() },
            Objection::Unknown(why) => Outcome::Unknown { why: (*why).to_owned() },
        }
    }
}

fn objections<'a, D: Desired>(
    desired: &D,
    left: &'a Changes<D::Key, D::Object>,
) -> Objections<'a, D::Key, D::Object> {
    // The record of a release goes only after this look: that it is still there is what it means.
    let changes = left.list.others().iter().filter(|change| match change {
        Change::Release { restore, before, .. } => restore.as_ref().is_some_and(|o| o != before),
        _ => true,
    });
    let changes = changes.map(|change| (change.key(desired), Objection::Change(change)));
    let findings = left.findings.iter().filter_map(|(key, finding)| match finding {
        Finding::Conflict { owner, .. } => Some((key.clone(), Objection::Conflict(owner))),
        Finding::Unknown { why } => Some((key.clone(), Objection::Unknown(why))),
        _ => None,
    });
    let absent = left.list.creates().iter().map(|slot| (desired.key(*slot), Objection::Absent));
    absent.chain(changes).chain(findings).collect()
}

/// Drops objections that a failed or missing step already explains, and keys that were unreadable before.
fn drop_explained<S: Source>(
    plan: &Plan<S>,
    tally: &Tally<S::Object>,
    objections: &mut Objections<'_, S::Key, S::Object>,
) {
    if objections.is_empty() {
        return;
    }
    let bad = tally.others().filter(|(_, outcome)| !outcome.is_good());
    for step in bad.filter_map(|(at, _)| plan.steps.get(at)) {
        objections.remove(&step.key(&plan.desired));
    }
    for (key, finding) in &plan.findings {
        let is_explained = match finding.kind() {
            Kind::Unknown => matches!(objections.get(key), Some(Objection::Unknown(_))),
            // What is withdrawn may have a step of its own: that it goes.
            Kind::Withdrawn => {
                !matches!(objections.get(key), Some(Objection::Change(Change::Delete { .. })))
            }
            kind => matches!(kind, Kind::Held | Kind::Pending | Kind::Optional | Kind::Parked),
        };
        if is_explained {
            objections.remove(key);
        }
    }
}

fn not_there() -> Failure {
    Failure::new("the write was accepted, but the object is not there", Retry::Soon)
}

fn not_kept<D: Desired>(desired: &D, change: &Change<D::Key, D::Object>) -> Failure {
    let text = |object: &D::Object| desired.shown(object);
    let error = match change {
        Change::Create { .. } => return not_there(),
        Change::Update { before, slot, .. } => format!(
            "the write was accepted, but the target holds {} in place of {}",
            text(before),
            text(&desired.object(*slot))
        ),
        Change::Delete { .. } => "the removal was accepted, but the object is still there".into(),
        Change::Release { .. } | Change::GiveBack { .. } => {
            "the write was accepted, but the original is not back".into()
        }
    };
    Failure::new(error, Retry::Soon)
}
