//! Writes ops as messages of one transaction. Sends nothing. Start at [`Encoder::op`].

use homeostat_netlink::uapi::{
    NFT_CHAIN_BINDING, NFT_MSG_DELCHAIN, NFT_MSG_DELFLOWTABLE, NFT_MSG_DELOBJ, NFT_MSG_DELRULE,
    NFT_MSG_DELSET, NFT_MSG_DELSETELEM, NFT_MSG_DELTABLE, NFT_MSG_NEWCHAIN, NFT_MSG_NEWFLOWTABLE,
    NFT_MSG_NEWOBJ, NFT_MSG_NEWRULE, NFT_MSG_NEWSET, NFT_MSG_NEWSETELEM, NFT_MSG_NEWTABLE,
    NFTA_CHAIN_FLAGS, NFTA_CHAIN_ID, NFTA_CHAIN_NAME, NFTA_CHAIN_POLICY, NFTA_FLOWTABLE_NAME,
    NFTA_OBJ_DATA, NFTA_OBJ_NAME, NFTA_OBJ_TYPE, NFTA_RULE_CHAIN, NFTA_RULE_CHAIN_ID,
    NFTA_RULE_EXPRESSIONS, NFTA_RULE_HANDLE, NFTA_RULE_POSITION, NFTA_RULE_USERDATA,
    NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_LIST_SET, NFTA_SET_ELEM_LIST_SET_ID, NFTA_SET_ID,
    NFTA_SET_NAME, NFTA_TABLE_FLAGS, NFTA_TABLE_HANDLE, NFTA_TABLE_USERDATA, NLM_F_APPEND,
    NLM_F_CREATE, NLM_F_EXCL,
};
use homeostat_netlink::{Attrs, Batch, Malformed, MessageWriter};

use crate::dump::TABLE_NAME;
use crate::expression::{Becomes, Counts, NAMELESS, Reference, Rewriting, counts, rewrite};
use crate::key::Key;
use crate::mark::Mark;
use crate::model::{Handle, Inside, ObjectId, Rule, Set, Stateful, Table};
use crate::plan::{From, Op};
use crate::wire::{Tlvs, message_type};

/// An act could not be written: what it is about is not there, or is too long.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unwritable {
    #[error("the plan speaks of `{0}`, which is not there")]
    Missing(String),
    #[error("it does not fit a message")]
    TooLong(#[from] homeostat_netlink::Error),
    #[error("what the kernel told is malformed")]
    Malformed(#[from] Malformed),
}

type Written = Result<(), Unwritable>;

/// Elements that go into one message: a list is measured by sixteen bits.
const LIST_ROOM: usize = 48 << 10;

const MAKE: u16 = NLM_F_CREATE | NLM_F_EXCL;

/// Writes what is done to one table.
pub(crate) struct Encoder<'a> {
    pub(crate) batch: &'a mut Batch,
    /// The last number that was given to something made in this transaction.
    pub(crate) last_id: &'a mut u32,
    pub(crate) key: &'a Key,
    pub(crate) mark: &'a Mark,
    pub(crate) desired: Option<&'a Table>,
    pub(crate) seen: Option<&'a Table>,
    /// Flags that every message of the table has.
    pub(crate) flags: u16,
}

impl Encoder<'_> {
    /// Writes one act, in as many messages as it takes.
    pub(crate) fn op(&mut self, op: &Op) -> Written {
        match op {
            Op::DropTable => self.drop_table(),
            Op::MakeTable => self.make_table(),
            Op::SetFlags => self.set_flags(),
            Op::FlushChain(name) => self.named(NFT_MSG_DELRULE, 0, (NFTA_RULE_CHAIN, name), &[]),
            Op::DropRule { chain, at } => self.drop_rule(chain, *at),
            Op::DropElements { set, units } => self.drop_elements(set, units),
            Op::DropSet(name) => self.named(NFT_MSG_DELSET, 0, (NFTA_SET_NAME, name), &[]),
            Op::DropChain(name) => self.named(NFT_MSG_DELCHAIN, 0, (NFTA_CHAIN_NAME, name), &[]),
            Op::DropObject(id) => self.drop_object(id),
            Op::DropFlowtable(name) => {
                self.named(NFT_MSG_DELFLOWTABLE, 0, (NFTA_FLOWTABLE_NAME, name), &[])
            }
            Op::MakeObject(id) => self.make_object(id),
            Op::MakeFlowtable(name) => {
                let made = self.declared()?.flowtables.get(name).ok_or_else(|| missing(name))?;
                let made = made.clone();
                self.named(NFT_MSG_NEWFLOWTABLE, MAKE, (NFTA_FLOWTABLE_NAME, name), &made)
            }
            Op::MakeChain(name) => self.make_chain(name),
            Op::SetPolicy(name) => self.set_policy(name),
            Op::MakeSet(name) => {
                let desired = self.declared()?;
                let set = desired.sets.get(name).ok_or_else(|| missing(name))?;
                self.make_set(name, set).map(|_| ())
            }
            Op::AddElements { set, units } => self.add_elements(set, units),
            Op::AddRule { chain, at, before, replaces } => {
                self.add_rule(chain, *at, *before, *replaces)
            }
        }
    }

    fn message(&mut self, message: u16, flags: u16) -> MessageWriter<'_> {
        let mut writer = self.batch.message(message_type(message), flags | self.flags);
        writer.fixed(&[self.key.family.0, 0, 0, 0]);
        put_name(&mut writer, TABLE_NAME, &self.key.name);
        writer
    }

    /// A message about something that has a name, with more attributes.
    fn named(&mut self, message: u16, flags: u16, name: (u16, &str), more: &[u8]) -> Written {
        let mut message = self.message(message, flags);
        put_name(&mut message, name.0, name.1);
        message.fixed(more);
        Ok(message.finish()?)
    }

    fn drop_table(&mut self) -> Written {
        let handle = self.observed()?.handle;
        let mut message = self.batch.message(message_type(NFT_MSG_DELTABLE), 0);
        message.fixed(&[self.key.family.0, 0, 0, 0]);
        // By its number: a table that took its name meanwhile is somebody else's.
        message.attr(NFTA_TABLE_HANDLE, &handle.0.to_be_bytes());
        Ok(message.finish()?)
    }

    fn make_table(&mut self) -> Written {
        let table = self.declared()?;
        let (flags, userdata) = (table.flags, self.mark.userdata(&table.comment));
        let mut message = self.message(NFT_MSG_NEWTABLE, MAKE);
        message.attr_be32(NFTA_TABLE_FLAGS, flags).attr(NFTA_TABLE_USERDATA, &userdata);
        Ok(message.finish()?)
    }

    fn set_flags(&mut self) -> Written {
        let flags = self.declared()?.flags;
        let mut message = self.message(NFT_MSG_NEWTABLE, 0);
        message.attr_be32(NFTA_TABLE_FLAGS, flags);
        Ok(message.finish()?)
    }

    fn drop_rule(&mut self, chain: &str, at: usize) -> Written {
        let rules = self.observed()?.chains.get(chain).map(|chain| &chain.rules);
        let rule = rules.and_then(|rules| rules.get(at)).ok_or_else(|| missing(chain))?;
        let handle = rule.handle.0.to_be_bytes();
        let mut message = self.message(NFT_MSG_DELRULE, 0);
        put_name(&mut message, NFTA_RULE_CHAIN, chain);
        message.attr(NFTA_RULE_HANDLE, &handle);
        Ok(message.finish()?)
    }

    fn drop_object(&mut self, id: &ObjectId) -> Written {
        let mut kind = Tlvs::default();
        kind.put(NFTA_OBJ_TYPE, &id.kind.to_be_bytes());
        self.named(NFT_MSG_DELOBJ, 0, (NFTA_OBJ_NAME, &id.name), &kind.into_bytes())
    }

    /// An object that is made again carries on its counts.
    fn make_object(&mut self, id: &ObjectId) -> Written {
        let object = self.declared()?.objects.get(id).ok_or_else(|| missing(&id.name))?;
        let former = self.seen.and_then(|seen| seen.objects.get(id));
        let mut attrs = Tlvs::default();
        attrs.put(NFTA_OBJ_TYPE, &id.kind.to_be_bytes());
        match former {
            Some(former) if !former.counts.is_empty() => counted(object, former, &mut attrs)?,
            _ => Attrs::new(&object.dumped).try_for_each(|attr| attr.map(|a| attrs.copy(&a)))?,
        }
        self.named(NFT_MSG_NEWOBJ, MAKE, (NFTA_OBJ_NAME, &id.name), &attrs.into_bytes())
    }

    fn make_chain(&mut self, name: &str) -> Written {
        let desired = self.declared()?;
        let chain = desired.chains.get(name).ok_or_else(|| missing(name))?;
        let mut message = self.message(NFT_MSG_NEWCHAIN, MAKE);
        put_name(&mut message, NFTA_CHAIN_NAME, name);
        message.fixed(&chain.definition);
        if let Some(policy) = chain.policy {
            message.attr_be32(NFTA_CHAIN_POLICY, policy);
        }
        Ok(message.finish()?)
    }

    fn set_policy(&mut self, name: &str) -> Written {
        let desired = self.declared()?;
        let policy = desired.chains.get(name).and_then(|chain| chain.policy);
        let mut message = self.message(NFT_MSG_NEWCHAIN, 0);
        put_name(&mut message, NFTA_CHAIN_NAME, name);
        message.attr_be32(NFTA_CHAIN_POLICY, policy.ok_or_else(|| missing(name))?);
        Ok(message.finish()?)
    }

    /// Makes a set without elements and tells its number in this transaction.
    fn make_set(&mut self, name: &str, set: &Set) -> Result<u32, Unwritable> {
        let id = self.next_id();
        let mut message = self.message(NFT_MSG_NEWSET, MAKE);
        put_name(&mut message, NFTA_SET_NAME, name);
        message.fixed(&set.definition).attr_be32(NFTA_SET_ID, id);
        message.finish()?;
        Ok(id)
    }

    /// Makes a set that has no name, with its elements.
    fn make_nameless_set(&mut self, set: &Set) -> Result<u32, Unwritable> {
        let name = set.meter.as_deref().unwrap_or(NAMELESS);
        let id = self.make_set(name, set)?;
        let units = set.elements.places().map(|at| set.elements.dumped(at).into());
        self.elements(NFT_MSG_NEWSETELEM, &Whose { name, id: Some(id) }, units)?;
        Ok(id)
    }

    fn drop_elements(&mut self, name: &str, units: &[u32]) -> Written {
        let seen = self.observed()?.sets.get(name).ok_or_else(|| missing(name))?;
        let elements = &seen.elements;
        let units: Result<Vec<_>, _> = units.iter().map(|at| elements.deleting(*at)).collect();
        self.elements(NFT_MSG_DELSETELEM, &Whose { name, id: None }, units?.into_iter())
    }

    fn add_elements(&mut self, name: &str, units: &[From]) -> Written {
        let desired = self.desired.and_then(|desired| desired.sets.get(name));
        let seen = self.seen.and_then(|seen| seen.sets.get(name));
        let unit = |from: &From| -> Option<Box<[u8]>> {
            match from {
                From::DesiredState(at) => desired.map(|set| set.elements.dumped(*at).into()),
                From::Seen(at) => seen.map(|set| set.elements.dumped(*at).into()),
            }
        };
        let units = units.iter().filter_map(unit);
        self.elements(NFT_MSG_NEWSETELEM, &Whose { name, id: None }, units)
    }

    /// Elements in as many messages as their length asks for.
    fn elements(
        &mut self,
        message: u16,
        whose: &Whose<'_>,
        units: impl Iterator<Item = Box<[u8]>>,
    ) -> Written {
        let flags = if message == NFT_MSG_NEWSETELEM { NLM_F_CREATE } else { 0 };
        let mut list: Vec<u8> = Vec::new();
        for unit in units {
            if !list.is_empty() && list.len() + unit.len() > LIST_ROOM {
                self.element_list((message, flags), whose, &list)?;
                list.clear();
            }
            list.extend_from_slice(&unit);
        }
        if list.is_empty() { Ok(()) } else { self.element_list((message, flags), whose, &list) }
    }

    fn element_list(
        &mut self,
        (message, flags): (u16, u16),
        whose: &Whose<'_>,
        list: &[u8],
    ) -> Written {
        let mut message = self.message(message, flags);
        put_name(&mut message, NFTA_SET_ELEM_LIST_SET, whose.name);
        if let Some(id) = whose.id {
            message.attr_be32(NFTA_SET_ELEM_LIST_SET_ID, id);
        }
        message.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |inside| _ = inside.fixed(list));
        Ok(message.finish()?)
    }

    fn next_id(&mut self) -> u32 {
        *self.last_id = self.last_id.wrapping_add(1);
        *self.last_id
    }
}

/// The set that elements are about.
struct Whose<'a> {
    name: &'a str,
    id: Option<u32>,
}

impl<'a> Encoder<'a> {
    fn declared(&self) -> Result<&'a Table, Unwritable> {
        self.desired.ok_or_else(|| missing(&self.key.to_string()))
    }

    fn observed(&self) -> Result<&'a Table, Unwritable> {
        self.seen.ok_or_else(|| missing(&self.key.to_string()))
    }
}

fn missing(name: &str) -> Unwritable {
    Unwritable::Missing(name.to_owned())
}

fn put_name(message: &mut MessageWriter<'_>, kind: u16, name: &str) {
    message.attr(kind, &[name.as_bytes(), &[0]].concat());
}

/// An object with the counts of its former self.
fn counted(object: &Stateful, former: &Stateful, out: &mut Tlvs) -> Result<(), Malformed> {
    for attr in Attrs::new(&object.definition) {
        let attr = attr?;
        if attr.kind != NFTA_OBJ_DATA {
            out.copy(&attr);
            continue;
        }
        out.nest(&attr, |out| {
            let all = attr.attrs().chain(Attrs::new(&former.counts));
            all.into_iter().try_for_each(|one| one.map(|one| out.copy(&one)))
        })?;
    }
    Ok(())
}

/// Where a rule goes.
enum At<'a> {
    /// Into a chain, before a rule that stays.
    Before(&'a str, Handle),
    /// To the end of a chain.
    End(&'a str),
    /// To the end of a chain without a name.
    EndOf(u32),
}

impl Encoder<'_> {
    fn add_rule(
        &mut self,
        chain: &str,
        at: usize,
        before: Option<Handle>,
        replaces: Option<usize>,
    ) -> Written {
        let desired = self.declared()?.chains.get(chain).map(|chain| &chain.rules);
        let rule = desired.and_then(|rules| rules.get(at)).ok_or_else(|| missing(chain))?;
        let former = self.seen.and_then(|seen| seen.chains.get(chain)).zip(replaces);
        let former = former.and_then(|(seen, at)| seen.rules.get(at));
        let place = before.map_or(At::End(chain), |handle| At::Before(chain, handle));
        self.rule(rule, former, &place)
    }

    fn rule(&mut self, rule: &Rule, former: Option<&Rule>, at: &At<'_>) -> Written {
        let ids: Vec<u32> =
            rule.inside.iter().map(|inside| self.inside(inside)).collect::<Result<_, _>>()?;
        let carried = former.map(|former| counts(former.whole())).transpose()?;
        let mut ids = ids.into_iter();
        let refer = &mut |to: Reference| {
            let made = if rule.references.contains(&to) { None } else { ids.next() };
            made.map_or(Becomes::Named, Becomes::Made)
        };
        let counts = carried.as_deref().map_or(Counts::Kept, Counts::Carried);
        let expressions = rewrite(rule.whole(), &mut Rewriting { refer, counts })?;
        // Quirk `rules-are-prepended` (all kernels): without NLM_F_APPEND a rule comes first.
        let flags = if matches!(at, At::Before(..)) { 0 } else { NLM_F_APPEND };
        let mut message = self.message(NFT_MSG_NEWRULE, NLM_F_CREATE | flags);
        match at {
            At::Before(chain, handle) => {
                put_name(&mut message, NFTA_RULE_CHAIN, chain);
                message.attr(NFTA_RULE_POSITION, &handle.0.to_be_bytes());
            }
            At::End(chain) => put_name(&mut message, NFTA_RULE_CHAIN, chain),
            At::EndOf(id) => _ = message.attr_be32(NFTA_RULE_CHAIN_ID, *id),
        }
        message.nest(NFTA_RULE_EXPRESSIONS, |inside| _ = inside.fixed(&expressions));
        if let Some(userdata) = rule.userdata() {
            message.attr(NFTA_RULE_USERDATA, userdata);
        }
        Ok(message.finish()?)
    }

    fn inside(&mut self, inside: &Inside) -> Result<u32, Unwritable> {
        match inside {
            Inside::Set(set) => self.make_nameless_set(set),
            Inside::Chain(rules) => self.make_nameless_chain(rules),
        }
    }

    /// Quirk `bound-chains-are-closed` (Linux 6.18): no rule can be added to a chain without a name
    /// once a rule jumps to it, so it is filled before.
    fn make_nameless_chain(&mut self, rules: &[Rule]) -> Result<u32, Unwritable> {
        let id = self.next_id();
        let mut message = self.message(NFT_MSG_NEWCHAIN, MAKE);
        message.attr_be32(NFTA_CHAIN_ID, id).attr_be32(NFTA_CHAIN_FLAGS, NFT_CHAIN_BINDING);
        message.finish()?;
        for rule in rules {
            self.rule(rule, None, &At::EndOf(id))?;
        }
        Ok(id)
    }
}
