//! The requests of nexthops, rules and neighbours.

use homeostat_core::Outcome;

use super::{Aim, Pen};
use crate::desired::Declared;
use crate::encode::{NoLink, Put};
use crate::key::Key;
use crate::model::Object;
use crate::step::{Update, Way};

/// Whether they were written, or what becomes of the step.
pub(crate) type Written = Result<(), Outcome<Object>>;

impl Pen<'_> {
    pub(super) fn put_other(&mut self, desired: &Declared, (put, aim): (Put, Aim)) -> Written {
        let encoded = match (&desired.key, &desired.object) {
            (Key::Nexthop(id), Object::Nexthop(nexthop)) => {
                self.encoder.put_nexthop(*id, nexthop, put)
            }
            (Key::Rule(key), Object::Rule(rule)) => return self.update_rule(key, rule),
            (Key::Neighbour(key), Object::Neighbour(neighbour)) => {
                // What the kernel learned by itself is in nobody's way.
                let put = if self.moment.learned.contains(key) { Put::Replace } else { put };
                self.encoder.put_neighbour(key, *neighbour, put)
            }
            _ => return Ok(()),
        };
        self.note(encoded, aim)
    }

    pub(super) fn update_other(&mut self, desired: &Declared, update: &Update) -> Written {
        match (&desired.key, &desired.object) {
            (Key::Nexthop(id), _) if update.way == Way::Anew => {
                let gone = self.encoder.delete_nexthop(*id);
                self.note(Ok(gone), Aim::GoneForNow)?;
                self.put_other(desired, (Put::Create, Aim::There))
            }
            _ => self.put_other(desired, (Put::Replace, Aim::There)),
        }
    }

    pub(super) fn delete_other(&mut self, key: &Key) -> Written {
        let encoded = match key {
            Key::Nexthop(id) => Ok(self.encoder.delete_nexthop(*id)),
            Key::Rule(key) => return self.delete_rule(key),
            Key::Neighbour(key) => self.encoder.delete_neighbour(key),
            _ => return Ok(()),
        };
        match encoded {
            // What was on the link went with it.
            Err(NoLink(_)) => Err(Outcome::Applied { now: None }),
            encoded => self.note(encoded, Aim::Gone),
        }
    }
}
