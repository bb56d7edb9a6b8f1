//! Fields of links that are only configured: written, or given up.

use homeostat_core::{Desired as _, Pending, WaitsOn};

use super::{Drafting, Effects, name_in};
use crate::key::Key;
use crate::link::LinkName;
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
        let effects = restore.as_ref().map(|value| self.effects_of(*name, *field, value));
        let (takes, touches) = self.loss(*name, &effects.unwrap_or_default());
        let (key, before) = (key.clone(), Some(Object::Setting(before.clone())));
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
            let Some(declared) = self.desired.links.field(name, field) else { continue };
            let master = name_in(&declared.setting).filter(|_| field == Field::Master);
            let mut needed = std::iter::once(name).chain(master);
            let absent = needed.find(|link| !self.plan.will_have(self.moment, *link));
            if let Some(link) = absent {
                self.plan.pending.push(Pending { key, on: WaitsOn::Link(link.to_string()) });
                continue;
            }
            let is_up = self.moment.table.get(name).is_some_and(SeenLink::is_up);
            let must_fall = master.is_some_and(|master| self.wants_it_down(master)) && is_up;
            let cycle = if must_fall { Cycle::DownFirst } else { Cycle::Stay };
            let mut effects = self.effects_of(name, field, &declared.setting);
            effects.falls |= must_fall;
            let (takes, touches) = self.loss(name, &effects);
            let before = before.filter(|_| !self.plan.renewed.contains(&name));
            let before = before.map(|setting| Object::Setting(setting.into()));
            let slot = self.desired.slot(&key, None);
            let act = Act::Set(cycle);
            self.plan.steps.push(LinkStep { key, slot, before, act, adopts: None, takes, touches });
        }
    }

    /// What writing a field does.
    fn effects_of(&self, name: LinkName, field: Field, value: &Setting) -> Effects {
        let seen = self.moment.table.get(name);
        let mut effects = Effects::default();
        match (field, value) {
            (Field::Up, Setting::Flag(false)) => {
                effects.falls = seen.is_some_and(SeenLink::is_up);
            }
            (Field::Mtu, Setting::Number(mtu)) => {
                effects.mtu = Some(*mtu);
                let master = self.desired.links.field(name, Field::Master);
                effects.joins = master.and_then(|master| name_in(&master.setting));
            }
            (Field::Mac, _) => effects.mac_changes = true,
            (Field::Master, _) => {
                effects.joins = name_in(value);
                let mtu = self.desired.links.mtu(name).or(seen.and_then(|seen| seen.link.mtu));
                effects.mtu = mtu.filter(|_| effects.joins.is_some());
            }
            _ => {}
        }
        effects
    }
}
