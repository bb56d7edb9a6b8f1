//! Writes ops as messages of one transaction. Sends nothing. Start at [`Encoder::op`].

use std::borrow::Cow;

use homeostat_netlink::uapi::*;
use homeostat_netlink::{Attrs, Batch, Malformed, MessageWriter};

use crate::dump::TABLE_NAME;
use crate::elements::{KEY, UnitAt, reduced, stripped};
use crate::expression::{Becomes, Counts, NAMELESS, Rewriting, counts, rewrite};
use crate::key::Key;
use crate::mark::Mark;
use crate::model::{Handle, Inside, Part, Rule, Set, Stateful, Table};
use crate::plan::{ElementFrom, Op};
use crate::wire::{Tlvs, message_type};

/// An op could not be written: what it is about is not there, or is too long.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unwritable {
    #[error("the plan names `{0}`, which is not there")]
    Missing(String),
    #[error("it does not fit a message")]
    TooLong(#[from] homeostat_netlink::Error),
    #[error("what the kernel dumped is malformed")]
    Malformed(#[from] Malformed),
}

type Written = Result<(), Unwritable>;

/// Elements that go into one message: the length of a list has sixteen bits.
const LIST_ROOM: usize = 48 << 10;

const CREATE: u16 = NLM_F_CREATE | NLM_F_EXCL;

/// Writes what is done to one table.
pub(crate) struct Encoder<'a> {
    pub(crate) batch: &'a mut Batch,
    /// The last id that was given to something created in this transaction.
    pub(crate) last_id: &'a mut u32,
    pub(crate) key: &'a Key,
    pub(crate) mark: &'a Mark,
    pub(crate) desired: Option<&'a Table>,
    pub(crate) seen: Option<&'a Table>,
    /// Flags that every message of the table has.
    pub(crate) flags: u16,
}

/// Where a rule goes.
enum RulePlace<'a> {
    /// Into a chain, before a rule that stays.
    Before(&'a str, Handle),
    /// To the end of a chain.
    End(&'a str),
    /// To the end of an anonymous chain of this transaction.
    EndOfAnonymous(u32),
}

impl<'a> Encoder<'a> {
    /// Writes one op, in as many messages as it takes.
    pub(crate) fn op(&mut self, op: &Op) -> Written {
        match op {
            Op::DeleteTable => {
                let handle = self.seen()?.handle;
                let mut message = self.batch.message(message_type(NFT_MSG_DELTABLE), 0);
                message.fixed(&[self.key.family.0, 0, 0, 0]);
                // By its handle: a table that took its name meanwhile is not ours.
                message.attr(NFTA_TABLE_HANDLE, &handle.0.to_be_bytes());
                Ok(message.finish()?)
            }
            Op::CreateTable => {
                let table = self.desired()?;
                let userdata = self.mark.userdata(&table.comment);
                let mut message = self.message(NFT_MSG_NEWTABLE, CREATE);
                message.attr_be32(NFTA_TABLE_FLAGS, table.flags);
                message.attr(NFTA_TABLE_USERDATA, &userdata);
                Ok(message.finish()?)
            }
            Op::SetFlags => {
                let flags = self.desired()?.flags;
                let mut message = self.message(NFT_MSG_NEWTABLE, 0);
                message.attr_be32(NFTA_TABLE_FLAGS, flags);
                Ok(message.finish()?)
            }
            Op::Create(part) => self.create(part),
            Op::Delete(part) => self.delete(part),
            Op::SetPolicy(name) => {
                let policy = self.desired()?.chains.get(name).and_then(|chain| chain.policy);
                let policy = policy.ok_or_else(|| missing(name))?;
                self.named(NFT_MSG_NEWCHAIN, 0, NFTA_CHAIN_NAME, name, |message| {
                    message.attr_be32(NFTA_CHAIN_POLICY, policy);
                })
            }
            Op::FlushChain(name) => self.named(NFT_MSG_DELRULE, 0, NFTA_RULE_CHAIN, name, |_| {}),
            Op::DeleteRule { chain, at } => {
                let rule = self.seen()?.rules(chain).get(*at).ok_or_else(|| missing(chain))?;
                self.named(NFT_MSG_DELRULE, 0, NFTA_RULE_CHAIN, chain, |message| {
                    message.attr(NFTA_RULE_HANDLE, &rule.handle.0.to_be_bytes());
                })
            }
            Op::AddRule { chain, at, before, replaces } => {
                let rule = self.desired()?.rules(chain).get(*at).ok_or_else(|| missing(chain))?;
                let former = self.seen.zip(*replaces);
                let former = former.and_then(|(seen, at)| seen.rules(chain).get(at));
                let end = RulePlace::End(chain);
                let place = before.map_or(end, |handle| RulePlace::Before(chain, handle));
                self.rule(rule, former, &place)
            }
            Op::DeleteElements { set, units } => {
                let seen = self.seen()?.sets.get(set).ok_or_else(|| missing(set))?;
                let units = units.iter().map(|at| reduced(seen.elements.unit(*at), KEY));
                self.elements(NFT_MSG_DELSETELEM, set, None, units)
            }
            Op::AddElements { set, units } => {
                let desired = self.desired.and_then(|desired| desired.sets.get(set));
                let seen = self.seen.and_then(|seen| seen.sets.get(set));
                let units = units.iter().filter_map(|from| match from {
                    ElementFrom::Desired(at) => Some(desired?.elements.adding(*at)),
                    ElementFrom::Seen(at) => Some(carried(seen?, *at, desired?)),
                });
                self.elements(NFT_MSG_NEWSETELEM, set, None, units)
            }
        }
    }

    fn create(&mut self, part: &Part) -> Written {
        let desired = self.desired()?;
        match part {
            Part::Object(id) => {
                let object = desired.objects.get(id).ok_or_else(|| missing(&id.name))?;
                let former = self.seen.and_then(|seen| seen.objects.get(id));
                let mut attrs = Tlvs::default();
                match former {
                    Some(former) if !former.counts.is_empty() => {
                        with_counts(object, former, &mut attrs)?;
                    }
                    _ => Attrs::new(&object.dumped).try_for_each(|a| a.map(|a| attrs.copy(&a)))?,
                }
                let attrs = attrs.into_vec();
                self.named(NFT_MSG_NEWOBJ, CREATE, NFTA_OBJ_NAME, &id.name, |message| {
                    message.attr_be32(NFTA_OBJ_TYPE, id.kind).fixed(&attrs);
                })
            }
            Part::Flowtable(name) => {
                let attrs = desired.flowtables.get(name).ok_or_else(|| missing(name))?;
                self.named(NFT_MSG_NEWFLOWTABLE, CREATE, NFTA_FLOWTABLE_NAME, name, |message| {
                    message.fixed(attrs);
                })
            }
            Part::Chain(name) => {
                let chain = desired.chains.get(name).ok_or_else(|| missing(name))?;
                self.named(NFT_MSG_NEWCHAIN, CREATE, NFTA_CHAIN_NAME, name, |message| {
                    message.fixed(&chain.definition);
                    if let Some(policy) = chain.policy {
                        message.attr_be32(NFTA_CHAIN_POLICY, policy);
                    }
                })
            }
            Part::Set(name) => {
                let set = desired.sets.get(name).ok_or_else(|| missing(name))?;
                self.set(name, set).map(|_| ())
            }
        }
    }

    fn delete(&mut self, part: &Part) -> Written {
        let (message, kind, name) = match part {
            Part::Set(name) => (NFT_MSG_DELSET, NFTA_SET_NAME, name),
            Part::Chain(name) => (NFT_MSG_DELCHAIN, NFTA_CHAIN_NAME, name),
            Part::Flowtable(name) => (NFT_MSG_DELFLOWTABLE, NFTA_FLOWTABLE_NAME, name),
            Part::Object(id) => (NFT_MSG_DELOBJ, NFTA_OBJ_NAME, &id.name),
        };
        self.named(message, 0, kind, name, |message| {
            if let Part::Object(id) = part {
                message.attr_be32(NFTA_OBJ_TYPE, id.kind);
            }
        })
    }

    fn message(&mut self, message: u16, flags: u16) -> MessageWriter<'_> {
        let mut writer = self.batch.message(message_type(message), flags | self.flags);
        writer.fixed(&[self.key.family.0, 0, 0, 0]);
        writer.attr_str(TABLE_NAME, &self.key.name);
        writer
    }

    /// A message about something that has a name; `more` writes further attributes.
    fn named(
        &mut self,
        message: u16,
        flags: u16,
        kind: u16,
        name: &str,
        more: impl FnOnce(&mut MessageWriter<'_>),
    ) -> Written {
        let mut message = self.message(message, flags);
        more(message.attr_str(kind, name));
        Ok(message.finish()?)
    }

    /// Creates a set without elements; returns its id in this transaction.
    fn set(&mut self, name: &str, set: &Set) -> Result<u32, Unwritable> {
        let id = self.next_id();
        self.named(NFT_MSG_NEWSET, CREATE, NFTA_SET_NAME, name, |message| {
            message.fixed(&set.definition).attr_be32(NFTA_SET_ID, id);
        })?;
        Ok(id)
    }

    /// Elements in as many messages as their length asks for.
    fn elements<U: AsRef<[u8]>>(
        &mut self,
        message: u16,
        set: &str,
        id: Option<u32>,
        units: impl Iterator<Item = Result<U, Malformed>>,
    ) -> Written {
        let mut list: Vec<u8> = Vec::new();
        for unit in units {
            let unit = unit?;
            if !list.is_empty() && list.len() + unit.as_ref().len() > LIST_ROOM {
                self.element_list(message, set, id, &list)?;
                list.clear();
            }
            list.extend_from_slice(unit.as_ref());
        }
        if list.is_empty() { Ok(()) } else { self.element_list(message, set, id, &list) }
    }

    fn element_list(&mut self, message: u16, set: &str, id: Option<u32>, list: &[u8]) -> Written {
        let flags = if message == NFT_MSG_NEWSETELEM { NLM_F_CREATE } else { 0 };
        self.named(message, flags, NFTA_SET_ELEM_LIST_SET, set, |message| {
            if let Some(id) = id {
                message.attr_be32(NFTA_SET_ELEM_LIST_SET_ID, id);
            }
            message.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |inside| _ = inside.fixed(list));
        })
    }

    /// A rule, after the anonymous sets and chains inside of it.
    fn rule(&mut self, rule: &Rule, former: Option<&Rule>, place: &RulePlace<'_>) -> Written {
        let inside = rule.inside.iter().enumerate().map(|(at, inside)| {
            self.inside(inside, former.and_then(|former| former.inside.get(at)))
        });
        let ids: Vec<u32> = inside.collect::<Result<_, _>>()?;
        let carried = former.map(|former| counts(former.whole())).transpose()?;
        let mut ids = ids.into_iter();
        let refer = &mut |part: Part| {
            let id = if rule.references.contains(&part) { None } else { ids.next() };
            id.map_or(Becomes::Named, Becomes::Created)
        };
        let counts = carried.as_deref().map_or(Counts::Kept, Counts::Carried);
        let expressions = rewrite(rule.whole(), &mut Rewriting { refer, counts })?;
        // Quirk `rules-are-prepended` (all kernels): without NLM_F_APPEND a rule comes first.
        let flags = if matches!(place, RulePlace::Before(..)) { 0 } else { NLM_F_APPEND };
        let mut message = self.message(NFT_MSG_NEWRULE, NLM_F_CREATE | flags);
        match place {
            RulePlace::Before(chain, handle) => {
                message.attr_str(NFTA_RULE_CHAIN, chain);
                message.attr(NFTA_RULE_POSITION, &handle.0.to_be_bytes())
            }
            RulePlace::End(chain) => message.attr_str(NFTA_RULE_CHAIN, chain),
            RulePlace::EndOfAnonymous(id) => message.attr_be32(NFTA_RULE_CHAIN_ID, *id),
        };
        message.nest(NFTA_RULE_EXPRESSIONS, |inside| _ = inside.fixed(&expressions));
        if let Some(userdata) = rule.userdata() {
            message.attr(NFTA_RULE_USERDATA, userdata);
        }
        Ok(message.finish()?)
    }

    /// Creates an anonymous set or chain; returns its id in this transaction.
    fn inside(&mut self, inside: &Inside, former: Option<&Inside>) -> Result<u32, Unwritable> {
        match inside {
            Inside::Set(set) => {
                let set = match former {
                    Some(Inside::Set(former)) if former == set => former,
                    _ => set,
                };
                let name = set.meter.as_deref().unwrap_or(NAMELESS);
                let id = self.set(name, set)?;
                let units = set.elements.places().map(|at| set.elements.adding(at));
                self.elements(NFT_MSG_NEWSETELEM, name, Some(id), units)?;
                Ok(id)
            }
            // Quirk `bound-chains-are-closed` (Linux 6.18): no rule can be added to an anonymous chain once a
            // rule jumps to it, so it is filled before.
            Inside::Chain(rules) => {
                let id = self.next_id();
                let mut message = self.message(NFT_MSG_NEWCHAIN, CREATE);
                message.attr_be32(NFTA_CHAIN_ID, id).attr_be32(NFTA_CHAIN_FLAGS, NFT_CHAIN_BINDING);
                message.finish()?;
                let former: &[Rule] = match former {
                    Some(Inside::Chain(former)) => former,
                    _ => &[],
                };
                for (at, rule) in rules.iter().enumerate() {
                    let former = former.get(at).filter(|former| *former == rule);
                    self.rule(rule, former, &RulePlace::EndOfAnonymous(id))?;
                }
                Ok(id)
            }
        }
    }

    fn next_id(&mut self) -> u32 {
        *self.last_id = self.last_id.wrapping_add(1);
        *self.last_id
    }

    fn desired(&self) -> Result<&'a Table, Unwritable> {
        self.desired.ok_or_else(|| missing(&self.key.to_string()))
    }

    fn seen(&self) -> Result<&'a Table, Unwritable> {
        self.seen.ok_or_else(|| missing(&self.key.to_string()))
    }
}

/// An element that was seen, as another set of its name can have it.
fn carried<'a>(seen: &'a Set, at: UnitAt, desired: &Set) -> Result<Cow<'a, [u8]>, Malformed> {
    let unit = seen.elements.adding(at)?;
    let lost = desired.lost_from(seen, &unit);
    if lost.is_empty() {
        Ok(unit)
    } else {
        stripped(&unit, &lost).map(|unit| unit.into_vec().into())
    }
}

fn missing(name: &str) -> Unwritable {
    Unwritable::Missing(name.to_owned())
}

/// An object with the counters of the one that it replaces.
fn with_counts(object: &Stateful, former: &Stateful, out: &mut Tlvs) -> Result<(), Malformed> {
    out.copy_replacing(Attrs::new(&object.definition), NFTA_OBJ_DATA, |out, data| {
        out.nest(data, |out| {
            let mut all = data.attrs().chain(Attrs::new(&former.counts));
            all.try_for_each(|attr| attr.map(|attr| out.copy(&attr)))
        })
    })
}
