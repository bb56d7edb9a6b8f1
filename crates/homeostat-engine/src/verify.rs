//! A second look at what was written: never a return code alone.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::{
    Change, Changes, Desired, Failure, Focus, Outcome, Pending, Plan, Retry, Source, Step, Tally,
};

use crate::config::Order;
use crate::run::Ran;

/// Beyond this many keys one full look is cheaper than many single ones.
const SINGLE_LOOKS: usize = 1000;

/// What has to be looked at again.
pub(crate) struct Doubts<K> {
    /// Where to look.
    pub(crate) focus: Focus<K>,
    /// Applied steps, by key.
    steps: BTreeMap<K, usize>,
    /// Keys that the target may have changed along with our steps.
    disturbed: BTreeSet<K>,
}

/// Which keys need a second look, if any.
pub(crate) fn doubts<S: Source>(plan: &Plan<S>, ran: &Ran<S::Object>) -> Option<Doubts<S::Key>> {
    let disturbed = disturbed(plan, &ran.tally);
    let count: usize = ran.unverified.iter().map(ExactSizeIterator::len).sum();
    if count == 0 && disturbed.is_empty() {
        return None;
    }
    let mut steps = BTreeMap::new();
    for at in ran.unverified.iter().cloned().flatten() {
        if let Some(step) = plan.steps.get(at) {
            steps.insert(step.key(&plan.wish), at);
        }
    }
    let keys = steps.keys().chain(&disturbed).cloned().collect();
    let focus = if count > SINGLE_LOOKS { Focus::All } else { Focus::Keys(keys) };
    Some(Doubts { focus, steps, disturbed })
}

fn disturbed<S: Source>(plan: &Plan<S>, tally: &Tally<S::Object>) -> BTreeSet<S::Key> {
    let mut keys = BTreeSet::new();
    for (at, step) in plan.steps.iter().enumerate() {
        if tally.is_good(at) {
            step.disturbs(&plan.wish, &mut |key| {
                keys.insert(key);
            });
        }
    }
    keys
}

impl<K: Ord + Clone + std::fmt::Display> Doubts<K> {
    /// The order for the second look.
    pub(crate) fn order<'a, S: Source<Key = K>>(&self, order: &Order<'a, S>) -> Order<'a, S> {
        order.about(self.focus.clone())
    }

    /// Compares the second look with what the steps claimed, and puts the claims right.
    pub(crate) fn settle<S: Source<Key = K>>(
        self,
        plan: &mut Plan<S>,
        tally: &mut Tally<S::Object>,
        left: &Changes<K, S::Object>,
    ) {
        for change in &left.list {
            let key = change.key(&*plan.wish);
            if let Some(at) = self.steps.get(&key) {
                tally.revise(*at, Outcome::Failed(not_kept(&*plan.wish, change)));
            } else if self.disturbed.contains(&key) {
                let on = "the next pass: it changed along with another step".to_owned();
                plan.pending.push(Pending { key, on });
            }
        }
        for conflict in &left.conflicts {
            if let Some(at) = self.steps.get(&conflict.key) {
                tally.revise(*at, Outcome::Conflict { owner: conflict.owner.clone() });
            }
        }
        for (key, why) in &left.unknown {
            if let Some(at) = self.steps.get(key) {
                tally.revise(*at, Outcome::Unknown { why: why.clone() });
            }
        }
    }
}

fn not_kept<D: Desired>(wish: &D, change: &Change<D::Key, D::Object>) -> Failure {
    let text = |object: &D::Object| serde_json::to_string(object).unwrap_or_default();
    let error = match change {
        Change::Create { .. } => "the write was accepted, but the object is not there".to_owned(),
        Change::Update { before, slot, .. } => format!(
            "the write was accepted, but the target holds {} in place of {}",
            text(before),
            text(&wish.object(*slot))
        ),
        Change::Delete { .. } | Change::Release { .. } => {
            "the removal was accepted, but the object is still there".to_owned()
        }
    };
    Failure::new(error, Retry::Soon)
}
