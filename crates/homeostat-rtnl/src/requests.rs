//! The requests that one step is made of. Sends nothing. `link::apply` writes the steps of links.

use std::collections::BTreeSet;

use homeostat_core::{Failure, Outcome, Retry, Slot, WaitsOn};
use homeostat_netlink::uapi::NLM_F_CREATE;

use crate::address::cascade::Cascade;
use crate::desired::{At, DesiredState};
use crate::key::Key;
use crate::message::{Encoded, Encoder, NoLink, Put};
use crate::moment::Moment;
use crate::object::Object;
use crate::route::gateways::no_gateway;
use crate::rule::Leaving;
use crate::step::{Delete, GiveBack, Phase, Step, Update};
use crate::subscription::OwnWrites;
use crate::{address, fdb, neighbour, nexthop, route, rule, snapshot};

/// What one message of a batch is for.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// The number of the step.
    pub(crate) step: usize,
    pub(crate) goal: Goal,
}

/// Which answer of the kernel makes the step a success.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The object was created or replaced.
    Create,
    /// The same, or it exists: only the very same object of ours can be in its way, or the step creates what may
    /// have been lost and was not.
    Ensure,
    /// Any: the request is beside the step itself.
    Any,
    /// The object was deleted, or did not exist.
    Delete,
    /// The same; the next request of the step creates it again.
    Recreate,
}

/// Whether the requests of a step were written, or else what becomes of the step.
pub(crate) type Written = Result<(), Outcome<Object>>;

/// Writes the requests of one step.
pub(crate) struct RequestWriter<'a> {
    pub(crate) encoder: Encoder<'a>,
    pub(crate) requests: &'a mut Vec<Request>,
    pub(crate) step: usize,
    pub(crate) moment: &'a Moment,
    /// The rules of the moment that were deleted since, or moved behind all others of their priority.
    pub(crate) moved: &'a mut BTreeSet<usize>,
    pub(crate) own_writes: &'a OwnWrites,
}

impl RequestWriter<'_> {
    pub(crate) fn write(&mut self, desired: &DesiredState, step: &Step) -> Written {
        match step {
            Step::Create { slot, phase: Phase::PutAgain, .. } => {
                self.put(desired, *slot, Put::Create, Goal::Ensure)
            }
            Step::Create { slot, .. } => self.put(desired, *slot, Put::Create, Goal::Create),
            Step::Update(update) => self.update(desired, update),
            Step::Delete(delete) => self.delete(desired, delete),
            Step::GiveBack(step) => self.give_back(desired, step),
            Step::Link(_) => Ok(()),
        }
    }

    fn put(&mut self, desired: &DesiredState, slot: Slot, put: Put, goal: Goal) -> Written {
        let encoded = match desired.at(slot) {
            Some(At::Route(packed, template)) => {
                let (key, route) = (packed.key(), &template.route);
                let Some(link) = route.rare.gateway_of else {
                    let encoded = route::message::put(&mut self.encoder, &key, route, put);
                    return self.add(encoded, goal);
                };
                let Some(route) = self.moment.gateways.resolve(&key, route) else {
                    return Err(Outcome::Pending { on: no_gateway(link) });
                };
                route::message::put(&mut self.encoder, &key, &route, put)
            }
            Some(At::Other(other)) => match (&other.key, &other.object) {
                (Key::Address(key), Object::Address(address)) => {
                    address::put(&mut self.encoder, key, address, put)
                }
                (Key::Nexthop(id), Object::Nexthop(nexthop)) => {
                    nexthop::put(&mut self.encoder, *id, nexthop, put)
                }
                (Key::Rule(key), Object::Rule(rule)) => return rule::put(self, desired, key, rule),
                (Key::Neighbour(key), Object::Neighbour(neighbour)) => {
                    // An entry that the kernel learned by itself counts as absent.
                    let put = if self.moment.learned.contains(key) { Put::Replace } else { put };
                    neighbour::put(&mut self.encoder, key, *neighbour, put)
                }
                (Key::Fdb(key), Object::Fdb(entry)) => {
                    let replaces = fdb::is_replacing(key, self.moment, desired);
                    let put = if replaces { Put::Replace } else { put };
                    fdb::put(&mut self.encoder, key, entry, put)
                }
                _ => return Ok(()),
            },
            None => {
                return Err(Outcome::Failed(Failure::new(
                    "nothing is declared under this key",
                    Retry::Never,
                )));
            }
        };
        self.add(encoded, goal)
    }

    fn update(&mut self, desired: &DesiredState, update: &Update) -> Written {
        let Some(cascade) = &update.recreate else {
            return self.put(desired, update.slot, Put::Replace, Goal::Create);
        };
        let gone = match desired.other_at(update.slot).map(|declared| &declared.key) {
            Some(Key::Address(key)) => {
                self.own_writes.add_deleted(*key);
                address::delete(&mut self.encoder, key)
            }
            Some(Key::Nexthop(id)) => Ok(nexthop::delete(&mut self.encoder, *id)),
            _ => return Ok(()),
        };
        self.add(gone, Goal::Recreate)?;
        self.put(desired, update.slot, Put::Create, Goal::Create)?;
        self.put_again(desired, cascade)
    }

    /// Creates again what the kernel deleted along. The observation after the pass says whether it exists.
    fn put_again(&mut self, desired: &DesiredState, cascade: &Cascade) -> Written {
        let mut again = cascade.again.iter();
        again.try_for_each(|slot| self.put(desired, *slot, Put::Create, Goal::Any))
    }

    fn delete(&mut self, desired: &DesiredState, delete: &Delete) -> Written {
        let encoded = match (&delete.key, &*delete.before) {
            (Key::Address(key), _) => {
                self.own_writes.add_deleted(*key);
                address::delete(&mut self.encoder, key)
            }
            (Key::Route(key), Object::Route(before)) => {
                route::message::delete(&mut self.encoder, key, before)
            }
            (Key::Nexthop(id), _) => Ok(nexthop::delete(&mut self.encoder, *id)),
            (Key::Rule(key), _) => {
                let leaving = if delete.is_rest { Leaving::Others } else { Leaving::All };
                return rule::delete(self, key, leaving);
            }
            (Key::Neighbour(key), _) => neighbour::delete(&mut self.encoder, key),
            (Key::Fdb(key), Object::Fdb(before)) => fdb::delete(&mut self.encoder, key, before),
            _ => return Ok(()),
        };
        if encoded.is_err() {
            // Without its link, the object does not exist either.
            return Err(Outcome::Applied { now: None });
        }
        self.add(encoded, Goal::Delete)?;
        delete.cascade.as_ref().map_or(Ok(()), |cascade| self.put_again(desired, cascade))
    }

    fn give_back(&mut self, desired: &DesiredState, step: &GiveBack) -> Written {
        // A rule cannot be changed in place: ours is deleted once the former one exists.
        if let Key::Rule(key) = &step.key {
            let back = snapshot::put_back(&mut self.encoder, &step.copied, NLM_F_CREATE);
            self.add(back, Goal::Create)?;
            return rule::delete(self, key, Leaving::Others);
        }
        let Some(cascade) = &step.recreate else {
            let back = snapshot::put_back(&mut self.encoder, &step.copied, Put::Replace.flags());
            return self.add(back, Goal::Create);
        };
        let gone = match &step.key {
            Key::Address(key) => {
                self.own_writes.add_deleted(*key);
                address::delete(&mut self.encoder, key)
            }
            Key::Nexthop(id) => Ok(nexthop::delete(&mut self.encoder, *id)),
            Key::Neighbour(key) => neighbour::delete(&mut self.encoder, key),
            _ => return Ok(()),
        };
        self.add(gone, Goal::Recreate)?;
        let back = snapshot::put_back(&mut self.encoder, &step.copied, Put::Create.flags());
        self.add(back, Goal::Create)?;
        self.put_again(desired, cascade)
    }

    pub(crate) fn add(&mut self, encoded: Encoded, goal: Goal) -> Written {
        match encoded {
            Ok(Ok(())) => {
                self.requests.push(Request { step: self.step, goal });
                Ok(())
            }
            Ok(Err(error)) => Err(Outcome::Failed(Failure::from_error(&error, Retry::Never))),
            Err(NoLink(link)) => Err(Outcome::Pending { on: WaitsOn::link(link.to_string()) }),
        }
    }
}
