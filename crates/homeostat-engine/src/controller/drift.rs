//! Which steps of a plan mend drift, and whose work they undo. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homeostat_core::{Action, Cause, Focus, HintedKeys, Key, Plan, Source, Step as _};

use super::open::OpenKey;

/// Who changed a key: as hints said before this pass, or before the first pass that left the key open.
pub(super) fn culprit<K: Key>(
    key: &K,
    hinted: &HintedKeys<K>,
    open: &BTreeMap<K, OpenKey>,
) -> Option<Arc<str>> {
    hinted.get(key).cloned().flatten().or_else(|| open.get(key)?.by.clone())
}

/// What left the desired state since the last pass.
pub(super) struct Drift<K> {
    /// How many steps mend what a hint named, or what depends on that.
    pub(super) by_hint: usize,
    /// How many steps mend what only a full look found.
    pub(super) by_resync: usize,
    /// Keys that another program removed or changed, with who did it; not those that were lost along with another key.
    pub(super) undone: Vec<(K, Option<Arc<str>>)>,
}

/// Finds the drift that a plan mends. `was_open`: keys already known as not declared; they are not counted again.
pub(super) fn find<S: Source>(
    plan: &Plan<S>,
    focus: &Focus<S::Key>,
    hinted: &HintedKeys<S::Key>,
    was_open: impl Fn(&S::Key) -> bool,
) -> Drift<S::Key> {
    let drifted = plan.steps.iter().filter(|step| plan.cause(step) == Cause::Drift);
    let drifted: Vec<&S::Step> =
        drifted.filter(|step| !was_open(&step.key(&plan.desired))).collect();
    // The dependants of a key that a hint named were found by that hint, too.
    let is_hinted =
        |step: &&&S::Step| *focus != Focus::All || hinted.contains_key(&step.key(&plan.desired));
    let by_hint = drifted.iter().filter(is_hinted).count();
    let by_resync = drifted.len() - by_hint;
    let undone = if by_hint > 0 { undone(plan, &drifted, hinted) } else { Vec::new() };
    Drift { by_hint, by_resync, undone }
}

/// The hinted keys that depend on nothing else that was lost.
fn undone<S: Source>(
    plan: &Plan<S>,
    drifted: &[&S::Step],
    hinted: &HintedKeys<S::Key>,
) -> Vec<(S::Key, Option<Arc<str>>)> {
    let created = drifted.iter().filter(|step| step.action() == Action::Create);
    let gone: BTreeSet<S::Key> = created.map(|step| step.key(&plan.desired)).collect();
    let mut undone = Vec::new();
    for step in drifted {
        let key = step.key(&plan.desired);
        let Some(who) = hinted.get(&key) else { continue };
        let mut follows = false;
        step.needs(&plan.desired, &mut |need| {
            follows |= hinted.contains_key(&need) || gone.contains(&need);
        });
        if !follows {
            undone.push((key, who.clone()));
        }
    }
    undone
}
