//! Reads tables from the kernel, whole. Start at [`heads`] and [`table`].
//!
//! The kernel lists chains, rules, sets, elements, objects and flowtables separately. They are decoded one message
//! each, and rules are put together with the anonymous sets and chains that they refer to.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_netlink::uapi::*;
use homeostat_netlink::{Attrs, Batch, Connection, Dumped, Errno, Malformed};

use crate::elements::{Collected, Elements, Layout};
use crate::error::Error;
use crate::expression::{Becomes, Counts, Rewriting, rewrite_data, rewrite_into, volatile};
use crate::key::{Family, Key};
use crate::mark::Comment;
use crate::model::{Chain, Handle, Inside, ObjectId, Part, Rule, RuleBytes, Set, Stateful, Table};
use crate::wire::{Tlvs, be32, be64, message_type, name, only, text};

/// In every message of nftables the first attribute is the name of the table.
pub(crate) const TABLE_NAME: u16 = NFTA_TABLE_NAME;

/// The generation of the ruleset: every commit changes it.
pub(crate) type Generation = u32;

/// A table without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) key: Key,
    pub(crate) handle: Handle,
    pub(crate) flags: u32,
    pub(crate) comment: Comment,
}

/// The generation that the ruleset has.
pub(crate) fn generation(connection: &mut Connection) -> Result<Generation, Error> {
    let mut request = Batch::new();
    let mut message = request.message(message_type(NFT_MSG_GETGEN), NLM_F_ECHO);
    message.fixed(&[0; 4]);
    message.finish()?;
    let mut answer = Err(Malformed::Payload);
    connection.ask(&mut request, &mut |message| {
        answer = message
            .split::<4>()
            .and_then(|(_, attrs)| be32(&attrs, NFTA_GEN_ID)?.ok_or(Malformed::Payload));
    })?;
    answer.map_err(|source| Error::Malformed { what: "the generation", source })
}

/// All tables, without their content.
pub(crate) fn heads(connection: &mut Connection) -> Result<Vec<Head>, Error> {
    heads_in(connection, &mut InParts::default())
}

pub(crate) fn heads_in(
    connection: &mut Connection,
    in_parts: &mut InParts,
) -> Result<Vec<Head>, Error> {
    let all = List { message: NFT_MSG_GETTABLE, family: Family(0), names: &[], what: "tables" };
    all.dump(connection, in_parts, |heads: &mut Vec<_>, family, attrs| {
        heads.push(decode_head(family, attrs)?);
        Ok(())
    })
}

/// Which lists may have come in several parts.
///
/// Quirk `lists-continued-by-counting` (Linux 6.18): for each part of a list the kernel passes over as many entries as
/// it had come to with the last one. Entries that a transaction has prepared count, and stop counting when it is
/// refused: an entry that did not change is passed over or listed twice then, and neither the generation nor a flag
/// shows it. In a list over all tables, a commit to another table does the same.
#[derive(Debug, Default)]
pub(crate) struct InParts {
    /// A list over all tables, or over all of a family.
    pub(crate) over_tables: bool,
    pub(crate) rules: bool,
    elements: bool,
}

impl InParts {
    /// Whether an entry may have been passed over that has to be there. An element that is declared and passed over is
    /// added again, which changes nothing; one that is listed twice is noticed.
    pub(crate) fn may_lack(&self) -> bool {
        self.over_tables || self.rules
    }

    /// Whether an entry may have been passed over that should not be there.
    pub(crate) fn may_hide(&self) -> bool {
        self.may_lack() || self.elements
    }

    /// Lists up to this length come in one part: the kernel fills 32 KiB before it begins the next one.
    const MOST: u64 = 16 << 10;

    fn note(&mut self, message: u16, bytes: u64) {
        match message {
            _ if bytes <= Self::MOST => {}
            NFT_MSG_GETRULE => self.rules = true,
            NFT_MSG_GETSET | NFT_MSG_GETSETELEM => self.elements = true,
            _ => self.over_tables = true,
        }
    }
}

pub(crate) fn decode_head(family: Family, attrs: &Attrs<'_>) -> Result<Head, Malformed> {
    let userdata = attrs.clone().first(NFTA_TABLE_USERDATA)?;
    Ok(Head {
        key: Key { family, name: name(attrs, NFTA_TABLE_NAME)? },
        handle: Handle(be64(attrs, NFTA_TABLE_HANDLE)?.unwrap_or_default()),
        flags: be32(attrs, NFTA_TABLE_FLAGS)?.unwrap_or_default(),
        comment: userdata.map_or_else(Comment::default, |attr| Comment::read(attr.value)),
    })
}

/// A table with everything in it.
pub(crate) fn table(
    connection: &mut Connection,
    head: &Head,
    in_parts: &mut InParts,
) -> Result<Table, Error> {
    let Key { family, name: table } = &head.key;
    let here = [(TABLE_NAME, table.as_str())];
    let list = |message, what| List { message, family: *family, names: &here, what };
    let mut parts = Parts::default();
    let chains = List { names: &[], ..list(NFT_MSG_GETCHAIN, "chains") };
    parts.chains = chains.dump(connection, in_parts, |chains: &mut BTreeMap<_, _>, _, attrs| {
        // Chains are listed for the whole family, whatever table is asked for.
        if text(attrs, TABLE_NAME)? == table {
            chains.extend([decode_chain(attrs)?]);
        }
        Ok(())
    })?;
    let sets = list(NFT_MSG_GETSET, "sets");
    parts.sets = sets.dump(connection, in_parts, |sets: &mut BTreeMap<_, _>, _, attrs| {
        sets.extend([decode_set(attrs)?]);
        Ok(())
    })?;
    for (name, set) in &mut parts.sets {
        if !set.is_data() {
            let names = [here[0], (NFTA_SET_ELEM_LIST_SET, name.as_str())];
            let list = List { names: &names, ..list(NFT_MSG_GETSETELEM, "elements") };
            set.elements = listed_once(set.layout(), || {
                list.dump(connection, in_parts, |elements: &mut Collected, _, attrs| {
                    let list = attrs.clone().first(NFTA_SET_ELEM_LIST_ELEMENTS)?;
                    list.map_or(Ok(()), |list| elements.take(list.value))
                })
            })?;
        }
        set.note_references();
    }
    let rules = list(NFT_MSG_GETRULE, "rules");
    parts.rules = rules.dump(connection, in_parts, |rules: &mut RulesByChain, _, attrs| {
        let chain = text(attrs, NFTA_RULE_CHAIN)?;
        let rule = parts.decode_rule(attrs)?;
        match rules.get_mut(chain) {
            Some(rules) => rules.push(rule),
            None => _ = rules.insert(chain.to_owned(), vec![rule]),
        }
        Ok(())
    })?;
    let objects = list(NFT_MSG_GETOBJ, "objects");
    let objects =
        objects.dump(connection, in_parts, |objects: &mut BTreeMap<_, _>, _, attrs| {
            objects.extend([decode_object(attrs)?]);
            Ok(())
        })?;
    let flowtables = list(NFT_MSG_GETFLOWTABLE, "flowtables");
    let flowtables =
        flowtables.dump(connection, in_parts, |flowtables: &mut BTreeMap<_, _>, _, attrs| {
            let definition = only(attrs.clone(), &[NFTA_FLOWTABLE_HOOK, NFTA_FLOWTABLE_FLAGS])?;
            flowtables.insert(name(attrs, NFTA_FLOWTABLE_NAME)?, definition);
            Ok(())
        });
    let flowtables = match flowtables {
        // A kernel that was built without flowtables has none.
        Err(Error::Netlink(error)) if error.errno() == Some(Errno::OPNOTSUPP) => BTreeMap::new(),
        flowtables => flowtables?,
    };
    let Parts { mut chains, mut sets, mut rules } = parts;
    chains.retain(|_, chain| !chain.is_anonymous());
    for (name, chain) in &mut chains {
        chain.rules = take_rules(name, &mut rules);
    }
    sets.retain(|_, set| !set.is_anonymous());
    Ok(Table { chains, sets, objects, flowtables, ..Table::empty(head) })
}

/// How often a set is listed whose elements change their places.
const LISTS: u32 = 8;

/// Lists elements until each of them is listed once.
///
/// Quirk `elements-listed-twice` (Linux 6.18): a large set that was just filled moves its elements to a larger
/// table in the background. A list that is made meanwhile has some of them twice and lacks as many others, and
/// neither the generation nor a flag shows it.
fn listed_once(
    layout: Layout,
    mut list: impl FnMut() -> Result<Collected, Error>,
) -> Result<Elements, Error> {
    let mut former = None;
    for _ in 0..LISTS {
        let (elements, is_whole) = list()?
            .sorted_and_judged(layout)
            .map_err(|source| Error::Malformed { what: "elements", source })?;
        // A second equal listing is believed.
        if is_whole || former.as_ref() == Some(&elements) {
            return Ok(elements);
        }
        former = Some(elements);
    }
    Err(Error::Moving { tries: LISTS })
}

struct List<'a> {
    message: u16,
    family: Family,
    names: &'a [(u16, &'a str)],
    /// For errors.
    what: &'static str,
}

impl List<'_> {
    /// Lists everything; a restarted list begins anew. Whether commits meanwhile matter, the reader of the table finds
    /// out.
    fn dump<T: Default>(
        &self,
        connection: &mut Connection,
        in_parts: &mut InParts,
        take: impl Fn(&mut T, Family, &Attrs<'_>) -> Result<(), Malformed>,
    ) -> Result<T, Error> {
        let mut request = Batch::new();
        let mut message = request.message(message_type(self.message), 0);
        message.fixed(&[self.family.0, 0, 0, 0]);
        for (kind, name) in self.names {
            message.attr_str(*kind, name);
        }
        message.finish()?;
        let (mut found, mut taken) = (T::default(), Ok(()));
        let before = connection.received_bytes();
        connection.dump_despite_changes(&mut request, &mut |dumped| match dumped {
            Dumped::Restart => (found, taken) = (T::default(), Ok(())),
            Dumped::Object(message) if taken.is_ok() => {
                taken = message
                    .split::<4>()
                    .and_then(|([family, ..], attrs)| take(&mut found, Family(*family), &attrs));
            }
            Dumped::Object(_) => {}
        })?;
        in_parts.note(self.message, connection.received_bytes() - before);
        taken.map(|()| found).map_err(|source| Error::Malformed { what: self.what, source })
    }
}

/// The name of a chain, and the chain without its rules.
pub(crate) fn decode_chain(attrs: &Attrs<'_>) -> Result<(String, Chain), Malformed> {
    let kept = [NFTA_CHAIN_HOOK, NFTA_CHAIN_TYPE, NFTA_CHAIN_FLAGS, NFTA_CHAIN_USERDATA];
    let chain = Chain {
        handle: Handle(be64(attrs, NFTA_CHAIN_HANDLE)?.unwrap_or_default()),
        definition: only(attrs.clone(), &kept)?,
        policy: be32(attrs, NFTA_CHAIN_POLICY)?,
        rules: Vec::new(),
    };
    Ok((name(attrs, NFTA_CHAIN_NAME)?, chain))
}

pub(crate) fn decode_set(attrs: &Attrs<'_>) -> Result<(String, Set), Malformed> {
    let shape = [
        NFTA_SET_KEY_TYPE,
        NFTA_SET_KEY_LEN,
        NFTA_SET_DATA_TYPE,
        NFTA_SET_DATA_LEN,
        NFTA_SET_OBJ_TYPE,
    ];
    let more = [
        NFTA_SET_FLAGS,
        NFTA_SET_POLICY,
        NFTA_SET_DESC,
        NFTA_SET_TIMEOUT,
        NFTA_SET_GC_INTERVAL,
        NFTA_SET_USERDATA,
        NFTA_SET_EXPR,
        NFTA_SET_EXPRESSIONS,
    ];
    let set = Set {
        handle: Handle(be64(attrs, NFTA_SET_HANDLE)?.unwrap_or_default()),
        definition: only(attrs.clone(), &[&shape[..], &more].concat())?,
        flags: be32(attrs, NFTA_SET_FLAGS)?.unwrap_or_default(),
        shape: only(attrs.clone(), &shape)?,
        elements: Elements::default(),
        meter: None,
        references: BTreeSet::new(),
    };
    let name = name(attrs, NFTA_SET_NAME)?;
    let meter = (set.is_data() && !name.starts_with("__")).then(|| name.clone());
    Ok((name, Set { meter, ..set }))
}

pub(crate) fn decode_object(attrs: &Attrs<'_>) -> Result<(ObjectId, Stateful), Malformed> {
    let kind = be32(attrs, NFTA_OBJ_TYPE)?.unwrap_or_default();
    let expression = match kind {
        NFT_OBJECT_COUNTER => "counter",
        NFT_OBJECT_QUOTA => "quota",
        _ => "",
    };
    let (mut definition, mut dumped, mut counts) =
        (Tlvs::default(), Tlvs::default(), Box::default());
    let kept = only(attrs.clone(), &[NFTA_OBJ_DATA, NFTA_OBJ_USERDATA])?;
    for (out, counters) in [(&mut definition, Counts::Masked), (&mut dumped, Counts::Kept)] {
        let how = &mut Rewriting { refer: &mut |_| Becomes::Named, counts: counters };
        out.copy_replacing(Attrs::new(&kept), NFTA_OBJ_DATA, |out, data| {
            counts = only(data.attrs(), volatile(expression))?;
            out.nest(data, |out| rewrite_data(expression, data, how, out))
        })?;
    }
    let id = ObjectId { kind, name: name(attrs, NFTA_OBJ_NAME)? };
    let handle = Handle(be64(attrs, NFTA_OBJ_HANDLE)?.unwrap_or_default());
    let (definition, dumped) = (definition.into_bytes(), dumped.into_bytes());
    Ok((id, Stateful { handle, definition, dumped, counts }))
}

/// Chains, sets and rules before anonymous chains are put into the rules that jump to them.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Without their rules.
    pub(crate) chains: BTreeMap<String, Chain>,
    pub(crate) sets: BTreeMap<String, Set>,
    pub(crate) rules: RulesByChain,
}

type RulesByChain = BTreeMap<String, Vec<BareRule>>;

/// A rule with its anonymous sets. Its anonymous chains are still empty.
#[derive(Debug)]
pub(crate) struct BareRule {
    rule: Rule,
    /// The names of the anonymous chains, in the order in which the rule refers to them.
    chains: Vec<String>,
}

impl Parts {
    pub(crate) fn decode_rule(&self, attrs: &Attrs<'_>) -> Result<BareRule, Malformed> {
        let (mut references, mut inside, mut chains) = (BTreeSet::new(), Vec::new(), Vec::new());
        let refer = &mut |part: Part| match &part {
            Part::Set(name)
                if let Some(set) = self.sets.get(name).filter(|set| set.is_anonymous()) =>
            {
                inside.push(Inside::Set(set.clone()));
                // The name of a meter is the user's, all others are the kernel's.
                if set.meter.is_some() { Becomes::Named } else { Becomes::Blank }
            }
            Part::Chain(name) if self.chains.get(name).is_some_and(Chain::is_anonymous) => {
                inside.push(Inside::Chain(Vec::new()));
                chains.push(name.clone());
                Becomes::Blank
            }
            _ => {
                references.insert(part);
                Becomes::Named
            }
        };
        let value = |kind| Ok(attrs.clone().first(kind)?.map(|attr| attr.value));
        let dumped = value(NFTA_RULE_EXPRESSIONS)?.unwrap_or_default();
        let bytes = RuleBytes::new(dumped, value(NFTA_RULE_USERDATA)?, |out| {
            rewrite_into(dumped, &mut Rewriting { refer, counts: Counts::Masked }, out)
        })?;
        let handle = Handle(be64(attrs, NFTA_RULE_HANDLE)?.ok_or(Malformed::Payload)?);
        Ok(BareRule { rule: Rule { handle, bytes, inside, references }, chains })
    }
}

impl BareRule {
    /// The whole rule. The rules of its anonymous chains are taken from `rules`: no other rule jumps to them.
    pub(crate) fn complete(self, rules: &mut RulesByChain) -> Rule {
        let BareRule { mut rule, chains } = self;
        let mut chains = chains.iter();
        for inside in &mut rule.inside {
            if let Inside::Chain(inside) = inside
                && let Some(name) = chains.next()
            {
                *inside = take_rules(name, rules);
            }
        }
        rule
    }
}

fn take_rules(chain: &str, rules: &mut RulesByChain) -> Vec<Rule> {
    let bare = rules.remove(chain).unwrap_or_default();
    bare.into_iter().map(|rule| rule.complete(rules)).collect()
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::wire::Tlvs;

    fn list(keys: &[u8]) -> Collected {
        let mut collected = Collected::default();
        for key in keys {
            let (mut value, mut inside, mut out) =
                (Tlvs::default(), Tlvs::default(), Tlvs::default());
            value.put(NFTA_DATA_VALUE, &[*key; 4]);
            inside.put(NFTA_SET_ELEM_KEY, &value.into_vec());
            out.put(NFTA_LIST_ELEM, &inside.into_vec());
            collected.take(&out.into_vec()).unwrap();
        }
        collected
    }

    /// How many lists it takes, and how many elements the last one has.
    fn check(lists: &[&[u8]], expected: Option<(usize, usize)>) {
        let mut made = 0;
        let result = listed_once(Layout::Single, || {
            made += 1;
            Ok(list(lists[(made - 1) % lists.len()]))
        });
        let result = result.ok().map(|elements| (made, elements.places().len()));
        assert_eq!(result, expected, "{lists:?}");
    }

    #[test]
    fn elements_that_are_listed_twice_are_listed_again() {
        check(&[&[1, 2, 3]], Some((1, 3)));
        check(&[&[1, 2, 2], &[3, 1, 2]], Some((2, 3)));
        check(&[&[1, 2, 2], &[1, 1, 3], &[1, 2, 3]], Some((3, 3)));
        // Equal listings are believed.
        check(&[&[1, 2, 2]], Some((2, 3)));
        check(&[&[1, 2, 2], &[1, 1, 3]], None);
    }
}
