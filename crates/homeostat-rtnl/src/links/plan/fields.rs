//! Fields of links that are only configured: written, or given up.

use homeostat_core::{Desired as _, Pending};

use super::{Drafting, name_in};
use crate::key::Key;
use crate::links::field::{Field, Setting};
use crate::links::step::{Act, Cycle, LinkStep};
use crate::links::table::SeenLink;
use crate::model::Object;

impl Drafting<'_> {
    pub(super) fn release(&mut self, key: &Key, before: &Object, restore: Option<&Object>) {
        let (Key::LinkField(name, field), Object::Setting(before)) = (key, before) else { return };
        let restore = match restore {
            Some(Object::Setting(restore)) if restore != before => Some(restore.setting.clone()),
            _ => None,
        };
        let falls = *field == Field::Up && restore == Some(Setting::Flag(false));
        let (key, before) = (key.clone(), Some(Object::Setting(before.clone())));
        let (takes, touches) = self.loss(*name, falls);
        let act = Act::Release { restore };
        self.plan.steps.push(LinkStep {
            key,
            slot: None,
            before,
            act,
            adopts: None,
            takes,
            touches,
        });
    }

    pub(super) fn put_fields(&mut self) {
        for ((name, field), before) in std::mem::take(&mut self.fields) {
            let key = Key::LinkField(name, field);
            let Some(wished) = self.wish.links.field(name, field) else { continue };
            let master = name_in(&wished.setting).filter(|_| field == Field::Master);
            let mut needed = std::iter::once(name).chain(master);
            let absent = needed.find(|link| !self.plan.will_have(self.moment, *link));
            if let Some(link) = absent {
                self.plan.pending.push(Pending { key, on: format!("link {link}") });
                continue;
            }
            let is_up = self.moment.table.get(name).is_some_and(SeenLink::is_up);
            let joins = master.is_some_and(|master| self.wants_it_down(master)) && is_up;
            let falls = joins || is_up && wished.setting == Setting::Flag(false);
            let cycle = if joins { Cycle::DownFirst } else { Cycle::Stay };
            let (takes, touches) = self.loss(name, falls);
            let before = before.filter(|_| !self.plan.renewed.contains(&name));
            let before = before.map(|setting| Object::Setting(setting.into()));
            let slot = self.wish.slot(&key, None);
            let act = Act::Set(cycle);
            self.plan.steps.push(LinkStep { key, slot, before, act, adopts: None, takes, touches });
        }
    }
}
