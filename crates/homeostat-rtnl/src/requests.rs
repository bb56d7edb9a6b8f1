//! The requests that one step is made of. Sends nothing.

use std::collections::BTreeSet;

use homeostat_core::{Failure, Outcome, Retry, Slot, WaitsOn};

use crate::address::cascade::Cascade;
use crate::desired::{At, Declared, DesiredState};
use crate::key::Key;
use crate::message::{Encoded, Encoder, NoLink, Put};
use crate::moment::Moment;
use crate::object::Object;
use crate::step::{Delete, Phase, Step, Update, Way};
use crate::subscription::OwnWrites;

/// What one message of a batch is for.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// The number of the step.
    pub(crate) step: usize,
    /// What it is after.
    pub(crate) aim: Aim,
}

/// What makes an answer a good one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
    /// It is there as asked for.
    There,
    /// It is there as asked for, since only the very same object of ours can be in its way.
    Ours,
    /// The same, for what may still be there.
    ThereAgain,
    /// None does: something beside the step itself.
    Extra,
    /// It is gone, whoever was quicker.
    Gone,
    /// It is gone, and what follows makes it again.
    GoneForNow,
}

/// Writes the requests of one step.
pub(crate) struct RequestWriter<'a> {
    pub(crate) encoder: Encoder<'a>,
    pub(crate) requests: &'a mut Vec<Request>,
    pub(crate) step: usize,
    pub(crate) moment: &'a Moment,
    /// The rules of the moment that are gone by now, or behind all others of their priority.
    pub(crate) moved: &'a mut BTreeSet<usize>,
    pub(crate) own_writes: &'a OwnWrites,
}

impl RequestWriter<'_> {
    /// Writes them, or says at once what becomes of the step.
    pub(crate) fn write(
        &mut self,
        desired: &DesiredState,
        step: &Step,
    ) -> Result<(), Outcome<Object>> {
        match step {
            Step::Create { slot, phase: Phase::PutAgain, .. } => {
                self.put(desired, *slot, (Put::Create, Aim::ThereAgain))
            }
            Step::Create { slot, .. } => self.put(desired, *slot, (Put::Create, Aim::There)),
            Step::Update(update) => self.update(desired, update),
            Step::Delete(delete) => self.delete(desired, delete),
            // They have a turn of their own.
            Step::Link(_) => Ok(()),
        }
    }

    fn put(
        &mut self,
        desired: &DesiredState,
        slot: Slot,
        (put, aim): (Put, Aim),
    ) -> Result<(), Outcome<Object>> {
        let encoded = match desired.at(slot) {
            Some(At::Address(desired)) => {
                self.encoder.put_address(&desired.key, &desired.address, put)
            }
            Some(At::Route(row, template)) => {
                self.encoder.put_route(&row.key(), &template.route, put)
            }
            Some(At::Route6(row, template)) => {
                self.encoder.put_route(&row.key(), &template.route, put)
            }
            Some(At::Other(desired)) => return self.put_other(desired, (put, aim)),
            Some(At::Link(_) | At::Field(_)) | None => {
                return Err(Outcome::Failed(Failure::new("it is no desired state", Retry::Never)));
            }
        };
        self.note(encoded, aim)
    }

    fn update(&mut self, desired: &DesiredState, update: &Update) -> Result<(), Outcome<Object>> {
        if let Some(desired) = desired.other_at(update.slot) {
            return self.update_other(desired, update);
        }
        if update.way == Way::InPlace {
            return self.put(desired, update.slot, (Put::Replace, Aim::There));
        }
        let Some(address) = desired.address_at(update.slot) else { return Ok(()) };
        self.own_writes.add_deleted(address.key);
        let gone = self.encoder.delete_address(&address.key);
        self.note(gone, Aim::GoneForNow)?;
        self.put(desired, update.slot, (Put::Create, Aim::There))?;
        self.make_again(desired, &update.cascade)
    }

    /// Whether they are there again is for the second look to say.
    fn make_again(
        &mut self,
        desired: &DesiredState,
        cascade: &Cascade,
    ) -> Result<(), Outcome<Object>> {
        let mut again = cascade.again.iter();
        again.try_for_each(|slot| self.put(desired, *slot, (Put::Create, Aim::Extra)))
    }

    fn delete(&mut self, desired: &DesiredState, delete: &Delete) -> Result<(), Outcome<Object>> {
        let encoded = match (&delete.key, &*delete.before) {
            (Key::Address(key), _) => {
                self.own_writes.add_deleted(*key);
                self.encoder.delete_address(key)
            }
            (Key::Route(key), Object::Route(before)) => self.encoder.delete_route(key, before),
            (Key::Route(_), _) => return Ok(()),
            (key, _) => return self.delete_other(key),
        };
        match encoded {
            // What was on the link went with it.
            Err(NoLink(_)) => Err(Outcome::Applied { now: None }),
            encoded => {
                self.note(encoded, Aim::Gone)?;
                match &delete.cascade {
                    Some(cascade) => self.make_again(desired, cascade),
                    None => Ok(()),
                }
            }
        }
    }

    pub(crate) fn note(&mut self, encoded: Encoded, aim: Aim) -> Result<(), Outcome<Object>> {
        match encoded {
            Ok(Ok(())) => {
                self.requests.push(Request { step: self.step, aim });
                Ok(())
            }
            Ok(Err(error)) => Err(Outcome::Failed(Failure::from_error(&error, Retry::Never))),
            Err(NoLink(link)) => Err(Outcome::Pending { on: WaitsOn::Link(link.to_string()) }),
        }
    }
}

/// Whether they were written, or what becomes of the step.
pub(crate) type Written = Result<(), Outcome<Object>>;

impl RequestWriter<'_> {
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
