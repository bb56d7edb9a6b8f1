//! What has to be made again because something below it is.

use homeostat_core::Owner;

use super::{Drafting, Need, name_in};
use crate::link::LinkName;
use crate::links::cascade::{self, Loss};
use crate::links::field::Field;

impl Drafting<'_> {
    /// What goes with links that are made again is made again too. Where somebody else would lose
    /// something, a guard may hold the step: then nothing is made ready for what may not happen.
    pub(super) fn renew(&mut self) {
        let again = self.links.iter().filter(|(_, need)| matches!(need, Need::MakeAgain { .. }));
        let certain = again.map(|(name, _)| *name).filter(|name| {
            !cascade::takes_foreign(&cascade::takes(self.moment, *name, Loss::Gone))
        });
        let certain: Vec<LinkName> = certain.collect();
        for name in certain {
            let going = cascade::going_with(&self.moment.table, name);
            for other in going.iter().filter(|other| **other != name) {
                if self.desired.links.link(*other).is_some() {
                    self.links.insert(*other, Need::Make);
                }
            }
            self.plan.renewed.extend(going);
        }
        self.enslave_again();
    }

    /// Links that stay lose a master that is made again, and so do fields.
    fn enslave_again(&mut self) {
        let renewed = &self.plan.renewed;
        let is_lost = |master: Option<LinkName>| master.is_some_and(|name| renewed.contains(&name));
        for declared in
            self.desired.links.made.iter().filter(|desired| is_lost(desired.link.master))
        {
            let seen =
                self.moment.table.get(declared.name).filter(|seen| seen.owner == Owner::Ours);
            if let Some(seen) = seen.filter(|seen| !renewed.contains(&seen.name)) {
                let before = Box::new(seen.link.clone());
                let change = Need::Change { before, adopts: None };
                self.links.entry(declared.name).or_insert(change);
            }
        }
        for declared in &self.desired.links.fields {
            let is_master = declared.field == Field::Master && is_lost(name_in(&declared.setting));
            if renewed.contains(&declared.name) || is_master {
                let seen = self.moment.table.get(declared.name);
                let before = seen.map(|seen| seen.setting(declared.field));
                self.fields.entry((declared.name, declared.field)).or_insert(before);
            }
        }
    }
}
