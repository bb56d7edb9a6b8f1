//! Turns changes into steps, and says what cannot be one. Pure.

use homeostat_core::{Change, ChangeList, Desired as _, Draft, Owner, Slot, Taken, WaitsOn};

use crate::key::{Key, LinkName};
use crate::model::{DesiredState, Object, Side};
use crate::observe::Moment;
use crate::snapshot::Copied;
use crate::source::Qdiscs;
use crate::step::{Delete, GiveBack, How, Place, Step, Update};

/// The steps for all changes.
pub(crate) fn draft(
    desired: &DesiredState,
    moment: &Moment,
    changes: ChangeList<Key, Object>,
) -> Draft<Qdiscs> {
    let mut drafting = Drafting { desired, moment, draft: Draft::default() };
    for change in changes {
        drafting.take(change);
    }
    drafting.draft
}

struct Drafting<'a> {
    desired: &'a DesiredState,
    moment: &'a Moment,
    draft: Draft<Qdiscs>,
}

impl Drafting<'_> {
    fn take(&mut self, change: Change<Key, Object>) {
        match change {
            Change::Create { slot } => {
                if let Some(place) = self.place(slot) {
                    self.draft.steps.push(Step::Create { slot, place });
                }
            }
            Change::Update { slot, before, adopts } => self.update(slot, before, adopts),
            // What is on a link is there with its link.
            Change::Delete { key, before } | Change::Release { key, before, .. } => {
                let Some(link) = self.moment.links.get(&key.link).copied() else { return };
                let takes = self.filters(&key);
                self.draft.steps.push(Step::Delete(Box::new(Delete { key, link, before, takes })));
            }
            Change::GiveBack { key, before, taken } => {
                let Some(link) = self.moment.links.get(&key.link).copied() else { return };
                // An ingress stays, with the filters of others.
                let is_root = matches!(before.side, Side::Root(_));
                let takes = if is_root { self.filters(&key) } else { Vec::new() };
                let copied = Copied::parse(&taken.snapshot).filter(|_| is_root);
                let original = taken.original;
                let step = GiveBack { key, link, before, original, copied, takes };
                self.draft.steps.push(Step::GiveBack(Box::new(step)));
            }
        }
    }

    fn update(&mut self, slot: Slot, before: Object, adopts: Option<Owner>) {
        let Some(place) = self.place(slot) else { return };
        let (key, wanted) = self.desired.at(slot);
        let how = match (&wanted.side, &before.side) {
            (Side::Root(_), Side::Root(_)) if adopts.is_some() => How::Over,
            (Side::Root(wanted), Side::Root(seen)) if wanted.can_change(seen) => How::InPlace,
            (Side::Ingress(_), Side::Ingress(_)) => {
                How::Redirect { clears: self.moment.redirected.contains(&key.link) }
            }
            _ => How::Again,
        };
        let takes = if how == How::Again { self.filters(key) } else { Vec::new() };
        let is_restorable =
            matches!(how, How::Redirect { .. }) || self.moment.restorable.contains(key);
        let update = Update { slot, place, before, adopts, how, takes, is_restorable };
        self.draft.steps.push(Step::Update(Box::new(update)));
    }

    /// Where a declared side is written; it waits for links that are absent.
    fn place(&mut self, slot: Slot) -> Option<Place> {
        let (key, wanted) = self.desired.at(slot);
        let target = match &wanted.side {
            Side::Ingress(ingress) => ingress.redirect.as_ref(),
            Side::Root(_) => None,
        };
        let absent = |name: &&LinkName| !self.moment.links.contains_key(*name);
        if let Some(missing) = std::iter::once(&key.link).chain(target).find(absent) {
            let on = WaitsOn::link(missing.as_str());
            let is_optional = self.desired.is_optional(missing);
            let on = if is_optional { on.optional() } else { on };
            self.draft.wait(self.desired.key(slot), on);
            return None;
        }
        let number = |name: &LinkName| self.moment.links.get(name).copied();
        Some(Place { link: number(&key.link)?, to: target.and_then(number) })
    }

    fn filters(&self, key: &Key) -> Vec<Taken> {
        self.moment.filters.get(key).cloned().unwrap_or_default()
    }
}
