//! What drifted, who told of it, and whether somebody keeps undoing our work.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::pacing::Heal;
use homeostat_core::{Action, Cause, Focus, Plan, Source, Step as _};

use super::Keeper;
use super::event::EventKind;
use super::listen::Named;

impl<S: Source> Keeper<S> {
    /// Learns from what a pass found before it changes anything.
    pub(super) fn note_drift(
        &mut self,
        plan: &Plan<S>,
        focus: &Focus<S::Key>,
        named: &Named<S::Key>,
    ) {
        // What a first look finds was lost while nobody watched.
        if !self.agenda.is_synced() {
            return;
        }
        let drifted = plan.steps.iter().filter(|step| plan.cause(step) == Cause::Drift);
        // What was not as declared before the pass is no news.
        let news = drifted.filter(|step| !self.unsettled.contains_key(&step.key(&plan.desired)));
        let news: Vec<&S::Step> = news.collect();
        // What rests on a key that was named was found by its hint, too.
        let is_told =
            |step: &&&S::Step| *focus != Focus::All || named.contains_key(&step.key(&plan.desired));
        let by_hint = news.iter().filter(is_told).count();
        let counted = [by_hint, news.len() - by_hint].map(|count| count as u64);
        if counted != [0, 0] {
            self.status.send_modify(|status| {
                status.counts.drift_by_hint += counted[0];
                status.counts.drift_by_resync += counted[1];
            });
        }
        if by_hint > 0 {
            self.note_losses(plan, &news, named);
        }
    }

    /// What a hint named, and what rests on nothing else that was lost, somebody undid.
    fn note_losses(&mut self, plan: &Plan<S>, news: &[&S::Step], named: &Named<S::Key>) {
        let made = news.iter().filter(|step| step.action() == Action::Create);
        let gone: BTreeSet<S::Key> = made.map(|step| step.key(&plan.desired)).collect();
        for step in news {
            let key = step.key(&plan.desired);
            let Some(who) = named.get(&key) else { continue };
            let mut follows = false;
            step.needs(&plan.desired, &mut |need| {
                follows |= named.contains_key(&need) || gone.contains(&need);
            });
            if !follows {
                self.note_loss(key, who.clone());
            }
        }
    }

    fn note_loss(&mut self, key: S::Key, who: Option<Arc<str>>) {
        let now = self.now();
        let text = key.to_string();
        let Heal::At(until) = self.agenda.lost(key, who, now) else { return };
        let contended = self.agenda.contended().find(|one| one.key.to_string() == text);
        let culprit = contended.and_then(|one| one.culprit).unwrap_or(UNNAMED).to_owned();
        self.tell(EventKind::Contention { key: text, culprit, pause: until.since(now) });
    }
}

/// Who did it, where the target does not tell.
pub(super) const UNNAMED: &str = "somebody";

/// The named keys that a pass looks at.
pub(super) fn take_named<K: Ord + Clone>(named: &mut Named<K>, focus: &Focus<K>) -> Named<K> {
    match focus {
        Focus::All => std::mem::take(named),
        Focus::Keys(keys) => named.extract_if(.., |key, _| keys.contains(key)).collect(),
    }
}
