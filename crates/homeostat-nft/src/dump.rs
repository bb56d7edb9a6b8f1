//! Reads tables from the kernel, whole. Start at [`heads`] and [`table`].
//!
//! The kernel lists chains, rules, sets, elements, objects and flowtables separately. They are decoded one message
//! each, and rules are put together with the anonymous sets and chains that they refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use homeostat_netlink::uapi::{
    NFT_CHAIN_BINDING, NFT_MSG_GETCHAIN, NFT_MSG_GETFLOWTABLE, NFT_MSG_GETGEN, NFT_MSG_GETOBJ,
    NFT_MSG_GETRULE, NFT_MSG_GETSET, NFT_MSG_GETSETELEM, NFT_MSG_GETTABLE, NFT_OBJECT_COUNTER,
    NFT_OBJECT_QUOTA, NFT_SET_ANONYMOUS, NFT_SET_CONCAT, NFT_SET_EVAL, NFT_SET_INTERVAL,
    NFT_SET_MAP, NFT_SET_OBJECT, NFT_SET_TIMEOUT, NFTA_CHAIN_FLAGS, NFTA_CHAIN_HANDLE,
    NFTA_CHAIN_HOOK, NFTA_CHAIN_NAME, NFTA_CHAIN_POLICY, NFTA_CHAIN_TYPE, NFTA_CHAIN_USERDATA,
    NFTA_FLOWTABLE_FLAGS, NFTA_FLOWTABLE_HOOK, NFTA_FLOWTABLE_NAME, NFTA_GEN_ID, NFTA_OBJ_DATA,
    NFTA_OBJ_NAME, NFTA_OBJ_TYPE, NFTA_OBJ_USERDATA, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS,
    NFTA_RULE_HANDLE, NFTA_RULE_USERDATA, NFTA_SET_DATA_LEN, NFTA_SET_DATA_TYPE, NFTA_SET_DESC,
    NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_LIST_SET, NFTA_SET_EXPR, NFTA_SET_EXPRESSIONS,
    NFTA_SET_FLAGS, NFTA_SET_GC_INTERVAL, NFTA_SET_KEY_LEN, NFTA_SET_KEY_TYPE, NFTA_SET_NAME,
    NFTA_SET_OBJ_TYPE, NFTA_SET_POLICY, NFTA_SET_TIMEOUT, NFTA_SET_USERDATA, NFTA_TABLE_FLAGS,
    NFTA_TABLE_HANDLE, NFTA_TABLE_NAME, NFTA_TABLE_USERDATA, NLM_F_ECHO,
};
use homeostat_netlink::{Attrs, Batch, Connection, Dumped, Errno, Malformed, Message};

use crate::elements::{Collected, Elements, Layout, targets};
use crate::error::Error;
use crate::expression::{Becomes, Counts, Reference, Rewriting, rewrite_into, volatile};
use crate::key::{Family, Key};
use crate::mark::Words;
use crate::model::{Chain, Handle, Inside, ObjectId, Rule, RuleBytes, Set, Stateful, Table};
use crate::wire::{Tlvs, be32, be64, message_type, name, only, text};

/// In every message of nftables the first attribute is the name of the table.
pub(crate) const TABLE_NAME: u16 = NFTA_TABLE_NAME;

/// The generation of the ruleset: each commit by anybody moves it.
pub(crate) type Generation = u32;

/// A table without its content.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) key: Key,
    pub(crate) handle: Handle,
    pub(crate) flags: u32,
    pub(crate) words: Words,
}

impl Table {
    /// One with nothing in it.
    pub(crate) fn empty(head: &Head) -> Self {
        Table {
            key: head.key.clone(),
            handle: head.handle,
            flags: head.flags,
            comment: head.words.comment.clone(),
            chains: BTreeMap::new(),
            sets: BTreeMap::new(),
            objects: BTreeMap::new(),
            flowtables: BTreeMap::new(),
            texts: BTreeMap::new(),
            script: None,
        }
    }
}

/// The generation that the ruleset has.
pub(crate) fn generation(connection: &mut Connection) -> Result<Generation, Error> {
    let mut request = Batch::new();
    let mut message = request.message(message_type(NFT_MSG_GETGEN), NLM_F_ECHO);
    message.fixed(&[0; 4]);
    message.finish()?;
    let mut told = Err(Malformed::Payload);
    connection.ask(&mut request, &mut |message| {
        told = message
            .split::<4>()
            .and_then(|(_, attrs)| be32(&attrs, NFTA_GEN_ID)?.ok_or(Malformed::Payload));
    })?;
    told.map_err(|source| Error::Malformed { what: "the generation", source })
}

/// All tables, without their content.
pub(crate) fn heads(connection: &mut Connection) -> Result<Vec<Head>, Error> {
    let all = Ask { message: NFT_MSG_GETTABLE, family: Family(0), names: &[] };
    list(connection, &all, "tables", |family, attrs| decode_head(family, attrs).map(Some))
}

/// What a message tells of a table itself.
pub(crate) fn decode_head(family: Family, attrs: &Attrs<'_>) -> Result<Head, Malformed> {
    let userdata = attrs.clone().first(NFTA_TABLE_USERDATA)?;
    Ok(Head {
        key: Key { family, name: name(attrs, NFTA_TABLE_NAME)? },
        handle: Handle(be64(attrs, NFTA_TABLE_HANDLE)?.unwrap_or_default()),
        flags: be32(attrs, NFTA_TABLE_FLAGS)?.unwrap_or_default(),
        words: userdata.map_or_else(Words::default, |attr| Words::read(attr.value)),
    })
}

/// A table with everything in it.
pub(crate) fn table(connection: &mut Connection, head: &Head) -> Result<Table, Error> {
    let key = &head.key;
    let ask = |message| Ask { message, family: key.family, names: &[] };
    let here = [(TABLE_NAME, key.name.as_str())];
    let inside = |message| Ask { names: &here, ..ask(message) };
    // Chains are listed for the whole family, whatever table is asked for.
    let chains = list(connection, &ask(NFT_MSG_GETCHAIN), "chains", |_, attrs| {
        if name(attrs, TABLE_NAME)? == key.name { decode_chain(attrs).map(Some) } else { Ok(None) }
    })?;
    let rules = raw_rules(connection, &inside(NFT_MSG_GETRULE))?;
    let mut sets = BTreeMap::new();
    let bare =
        list(connection, &inside(NFT_MSG_GETSET), "sets", |_, attrs| decode_set(attrs).map(Some))?;
    for (name, mut set) in bare {
        if !set.is_data() {
            set.elements = elements(connection, key, &name, set.layout())?;
        }
        set.note_references();
        sets.insert(name, set);
    }
    let objects = list(connection, &inside(NFT_MSG_GETOBJ), "objects", |_, attrs| {
        decode_object(attrs).map(Some)
    })?;
    let flowtables = flowtables(connection, &inside(NFT_MSG_GETFLOWTABLE))?;
    let loose = Unassembled { chains, rules, sets };
    let malformed = |source| Error::Malformed { what: "rules", source };
    let (chains, sets) = loose.assembled().map_err(malformed)?;
    Ok(Table {
        chains,
        sets,
        objects: objects.into_iter().collect(),
        flowtables: flowtables.into_iter().collect(),
        ..Table::empty(head)
    })
}

type Flowtable = (String, Box<[u8]>);

/// A kernel that was built without flowtables has none.
fn flowtables(connection: &mut Connection, ask: &Ask<'_>) -> Result<Vec<Flowtable>, Error> {
    let listed = list(connection, ask, "flowtables", |_, attrs| decode_flowtable(attrs).map(Some));
    match listed {
        Err(Error::Netlink(error)) if error.errno() == Some(Errno::OPNOTSUPP) => Ok(Vec::new()),
        listed => listed,
    }
}

fn raw_rules(connection: &mut Connection, ask: &Ask<'_>) -> Result<RawRules, Error> {
    let (mut rules, mut failed) = (RawRules::default(), Ok(()));
    connection.dump(&mut ask.request()?, &mut |dumped| match dumped {
        Dumped::Restart => rules.clear(),
        Dumped::Object(message) if failed.is_ok() => {
            failed = message.split::<4>().and_then(|(_, attrs)| rules.take(attrs));
        }
        Dumped::Object(_) => {}
    })?;
    failed.map(|()| rules).map_err(|source| Error::Malformed { what: "rules", source })
}

fn elements(
    connection: &mut Connection,
    key: &Key,
    set: &str,
    layout: Layout,
) -> Result<Elements, Error> {
    let names = [(TABLE_NAME, key.name.as_str()), (NFTA_SET_ELEM_LIST_SET, set)];
    let ask = Ask { message: NFT_MSG_GETSETELEM, family: key.family, names: &names };
    told_once(layout, || collected(connection, &ask))
}

/// How often a set is listed whose elements change their places.
const LISTS: u32 = 8;

/// Lists elements until each of them is told once.
///
/// Quirk `elements-told-twice` (Linux 6.18): a large set that was just filled moves its elements to a larger
/// table in the background. A list that is made meanwhile has some of them twice and lacks as many others, and
/// neither the generation nor a flag tells of it.
fn told_once(
    layout: Layout,
    mut list: impl FnMut() -> Result<Collected, Error>,
) -> Result<Elements, Error> {
    let mut former = None;
    for _ in 0..LISTS {
        let (elements, is_whole) = list()?
            .sorted_and_judged(layout)
            .map_err(|source| Error::Malformed { what: "elements", source })?;
        // What is told twice in the same way again is so.
        if is_whole || former.as_ref() == Some(&elements) {
            return Ok(elements);
        }
        former = Some(elements);
    }
    Err(Error::Moving { tries: LISTS })
}

fn collected(connection: &mut Connection, ask: &Ask<'_>) -> Result<Collected, Error> {
    let mut collected = Collected::default();
    let mut failed = Ok(());
    connection.dump(&mut ask.request()?, &mut |dumped| match dumped {
        Dumped::Restart => collected.clear(),
        Dumped::Object(message) if failed.is_ok() => {
            failed = message.split::<4>().and_then(|(_, attrs)| {
                let list = attrs.first(NFTA_SET_ELEM_LIST_ELEMENTS)?;
                list.map_or(Ok(()), |list| collected.take(list.value))
            });
        }
        Dumped::Object(_) => {}
    })?;
    failed.map(|()| collected).map_err(|source| Error::Malformed { what: "elements", source })
}

/// What to list.
struct Ask<'a> {
    message: u16,
    family: Family,
    names: &'a [(u16, &'a str)],
}

impl Ask<'_> {
    fn request(&self) -> Result<Batch, Error> {
        let mut request = Batch::new();
        let mut message = request.message(message_type(self.message), 0);
        message.fixed(&[self.family.0, 0, 0, 0]);
        for (kind, name) in self.names {
            message.attr(*kind, &[name.as_bytes(), &[0]].concat());
        }
        message.finish()?;
        Ok(request)
    }
}

/// Lists everything of a kind; a restarted list begins anew.
fn list<T>(
    connection: &mut Connection,
    ask: &Ask<'_>,
    what: &'static str,
    decode: impl Fn(Family, &Attrs<'_>) -> Result<Option<T>, Malformed>,
) -> Result<Vec<T>, Error> {
    let decode = |message: &Message<'_>| {
        let ([family, ..], attrs) = message.split::<4>()?;
        decode(Family(*family), &attrs)
    };
    let mut found = Vec::new();
    let mut failed = None;
    connection.dump(&mut ask.request()?, &mut |dumped| match dumped {
        Dumped::Restart => found.clear(),
        Dumped::Object(message) => match decode(&message) {
            Ok(one) => found.extend(one),
            Err(source) => failed = Some(source),
        },
    })?;
    failed.map_or(Ok(found), |source| Err(Error::Malformed { what, source }))
}

/// A chain without its rules.
#[derive(Debug)]
pub(crate) struct ChainHead {
    pub(crate) name: String,
    flags: u32,
    pub(crate) chain: Chain,
}

impl ChainHead {
    /// Whether it lives and dies with the rule that jumps to it.
    pub(crate) fn is_nameless(&self) -> bool {
        self.flags & NFT_CHAIN_BINDING != 0
    }
}

pub(crate) fn decode_chain(attrs: &Attrs<'_>) -> Result<ChainHead, Malformed> {
    let kept = [NFTA_CHAIN_HOOK, NFTA_CHAIN_TYPE, NFTA_CHAIN_FLAGS, NFTA_CHAIN_USERDATA];
    Ok(ChainHead {
        name: name(attrs, NFTA_CHAIN_NAME)?,
        flags: be32(attrs, NFTA_CHAIN_FLAGS)?.unwrap_or_default(),
        chain: Chain {
            handle: Handle(be64(attrs, NFTA_CHAIN_HANDLE)?.unwrap_or_default()),
            definition: only(attrs.clone(), &kept)?,
            policy: be32(attrs, NFTA_CHAIN_POLICY)?,
            rules: Vec::new(),
        },
    })
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
    let counted = match kind {
        NFT_OBJECT_COUNTER => volatile("counter"),
        NFT_OBJECT_QUOTA => volatile("quota"),
        _ => &[],
    };
    let kept = [NFTA_OBJ_DATA, NFTA_OBJ_USERDATA];
    let dumped = only(attrs.clone(), &kept)?;
    let (mut definition, mut counts) = (Tlvs::default(), Box::default());
    for attr in Attrs::new(&dumped) {
        let attr = attr?;
        if attr.kind != NFTA_OBJ_DATA {
            definition.copy(&attr);
            continue;
        }
        counts = only(attr.attrs(), counted)?;
        definition.nest(&attr, |out| {
            let steady = attr
                .attrs()
                .filter(|one| one.as_ref().map_or(true, |one| !counted.contains(&one.kind)));
            steady.into_iter().try_for_each(|one| one.map(|one| out.copy(&one)))
        })?;
    }
    let id = ObjectId { kind, name: name(attrs, NFTA_OBJ_NAME)? };
    Ok((id, Stateful { definition: definition.into_bytes(), dumped, counts }))
}

fn decode_flowtable(attrs: &Attrs<'_>) -> Result<(String, Box<[u8]>), Malformed> {
    let definition = only(attrs.clone(), &[NFTA_FLOWTABLE_HOOK, NFTA_FLOWTABLE_FLAGS])?;
    Ok((name(attrs, NFTA_FLOWTABLE_NAME)?, definition))
}

impl Set {
    /// Whether packets fill it and nobody can name its elements: those of a meter.
    pub(crate) fn is_data(&self) -> bool {
        let both = NFT_SET_ANONYMOUS | NFT_SET_EVAL;
        self.flags & both == both
    }

    /// Whether packets or time change what is in it.
    pub(crate) fn is_moving(&self) -> bool {
        self.flags & (NFT_SET_EVAL | NFT_SET_TIMEOUT) != 0
    }

    pub(crate) fn layout(&self) -> Layout {
        let ends = self.flags & NFT_SET_INTERVAL != 0 && self.flags & NFT_SET_CONCAT == 0;
        if ends { Layout::Ends } else { Layout::Single }
    }

    pub(crate) fn note_references(&mut self) {
        self.references.clear();
        // Elements of a plain set lead nowhere.
        if self.flags & (NFT_SET_MAP | NFT_SET_OBJECT) == 0 {
            return;
        }
        let kind = be32(&Attrs::new(&self.shape), NFTA_SET_OBJ_TYPE).ok().flatten();
        let kind = kind.filter(|_| self.flags & NFT_SET_OBJECT != 0);
        for at in self.elements.places() {
            let (chain, object) = targets(self.elements.unit(at));
            self.references.extend(chain.map(|chain| Reference::Chain(chain.to_owned())));
            let object = object.zip(kind);
            let object = object.map(|(name, kind)| Reference::Object(kind, name.to_owned()));
            self.references.extend(object);
        }
    }
}

/// A table's parts before rules are put together.
#[derive(Debug, Default)]
pub(crate) struct Unassembled {
    pub(crate) chains: Vec<ChainHead>,
    pub(crate) rules: RawRules,
    pub(crate) sets: BTreeMap<String, Set>,
}

type Parts = (BTreeMap<String, Chain>, BTreeMap<String, Set>);

impl Unassembled {
    /// Chains with their rules, and sets, as far as they have names.
    fn assembled(self) -> Result<Parts, Malformed> {
        let assembly = self.assembly();
        let mut chains = BTreeMap::new();
        for bare in &self.chains {
            if !bare.is_nameless() {
                let rules = assembly.rules(&bare.name, DEEPEST)?;
                chains.insert(bare.name.clone(), Chain { rules, ..bare.chain.clone() });
            }
        }
        let mut sets = self.sets;
        sets.retain(|_, set| set.flags & NFT_SET_ANONYMOUS == 0);
        Ok((chains, sets))
    }

    /// The rule that came last, with what lives inside it.
    pub(crate) fn last_rule(&self) -> Result<Rule, Malformed> {
        let last = self.rules.all().last().ok_or(Malformed::Payload)?;
        self.assembly().rule(last, DEEPEST)
    }

    fn assembly(&self) -> Assembly<'_> {
        let mut raw: BTreeMap<&str, Vec<&RawRule>> = BTreeMap::new();
        for rule in self.rules.all() {
            raw.entry(self.rules.chain(rule)).or_default().push(rule);
        }
        let nameless = self.chains.iter().filter(|bare| bare.is_nameless());
        let nameless = nameless.map(|bare| bare.name.as_str()).collect();
        Assembly { bytes: &self.rules, raw, nameless, sets: &self.sets }
    }
}

/// The kernel allows fewer jumps in a row.
const DEEPEST: usize = 32;

struct Assembly<'a> {
    bytes: &'a RawRules,
    raw: BTreeMap<&'a str, Vec<&'a RawRule>>,
    nameless: BTreeSet<&'a str>,
    sets: &'a BTreeMap<String, Set>,
}

impl Assembly<'_> {
    fn rules(&self, chain: &str, depth: usize) -> Result<Vec<Rule>, Malformed> {
        let depth = depth.checked_sub(1).ok_or(Malformed::Payload)?;
        let raw = self.raw.get(chain).map_or(&[][..], |rules| rules);
        raw.iter().map(|rule| self.rule(rule, depth)).collect()
    }

    fn rule(&self, raw: &RawRule, depth: usize) -> Result<Rule, Malformed> {
        let (mut references, mut nameless) = (BTreeSet::new(), Vec::new());
        let refer = &mut |to: Reference| {
            if self.is_nameless(&to) {
                let becomes = self.said(&to);
                nameless.push(to);
                return becomes;
            }
            references.insert(to);
            Becomes::Named
        };
        let (dumped, userdata) = (self.bytes.expressions(raw), self.bytes.userdata(raw));
        let bytes = RuleBytes::new(dumped, userdata, |out| {
            rewrite_into(dumped, &mut Rewriting { refer, counts: Counts::Masked }, out)
        })?;
        let inside = nameless.iter().map(|to| self.inside(to, depth)).collect::<Result<_, _>>()?;
        Ok(Rule { handle: raw.handle, bytes, inside, references })
    }

    fn is_nameless(&self, to: &Reference) -> bool {
        match to {
            Reference::Set(name) => {
                self.sets.get(name).is_some_and(|set| set.flags & NFT_SET_ANONYMOUS != 0)
            }
            Reference::Chain(name) => self.nameless.contains(name.as_str()),
            Reference::Object(..) | Reference::Flowtable(_) => false,
        }
    }

    /// The name of a meter is the user's, all others are the kernel's.
    fn said(&self, to: &Reference) -> Becomes {
        let set = match to {
            Reference::Set(name) => self.sets.get(name),
            _ => None,
        };
        let is_meter = set.is_some_and(|set| set.meter.is_some());
        if is_meter { Becomes::Named } else { Becomes::Blank }
    }

    fn inside(&self, to: &Reference, depth: usize) -> Result<Inside, Malformed> {
        match to {
            Reference::Set(name) => {
                self.sets.get(name).cloned().map(Inside::Set).ok_or(Malformed::Payload)
            }
            Reference::Chain(name) => self.rules(name, depth).map(Inside::Chain),
            Reference::Object(..) | Reference::Flowtable(_) => Err(Malformed::Payload),
        }
    }
}

/// Rules that are not yet put together.
#[derive(Debug, Default)]
pub(crate) struct RawRules {
    bytes: Vec<u8>,
    /// The names of chains, as often as the list came to another one.
    chains: Vec<String>,
    rules: Vec<RawRule>,
}

/// Where one of them is.
#[derive(Debug)]
struct RawRule {
    handle: Handle,
    chain: usize,
    expressions: Range<usize>,
    userdata: Option<Range<usize>>,
}

impl RawRules {
    fn clear(&mut self) {
        *self = RawRules::default();
    }

    /// Takes one message.
    pub(crate) fn take(&mut self, attrs: Attrs<'_>) -> Result<(), Malformed> {
        let chain = text(&attrs, NFTA_RULE_CHAIN)?;
        if self.chains.last().is_none_or(|last| last != chain) {
            self.chains.push(chain.to_owned());
        }
        let (chain, expressions) = (self.chains.len() - 1, 0..0);
        let mut rule = RawRule { handle: Handle::default(), chain, expressions, userdata: None };
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_RULE_HANDLE => rule.handle = Handle(u64::from_be_bytes(attr.array()?)),
                NFTA_RULE_EXPRESSIONS => rule.expressions = self.keep(attr.value),
                NFTA_RULE_USERDATA => rule.userdata = Some(self.keep(attr.value)),
                _ => {}
            }
        }
        self.rules.push(rule);
        Ok(())
    }

    /// Leaves out the one that came last.
    pub(crate) fn drop_last(&mut self) {
        self.rules.pop();
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn all(&self) -> &[RawRule] {
        &self.rules
    }

    fn chain(&self, rule: &RawRule) -> &str {
        self.chains.get(rule.chain).map_or("", |name| name)
    }

    fn expressions(&self, rule: &RawRule) -> &[u8] {
        self.bytes.get(rule.expressions.clone()).unwrap_or_default()
    }

    fn userdata(&self, rule: &RawRule) -> Option<&[u8]> {
        rule.userdata.clone().and_then(|place| self.bytes.get(place))
    }
}

#[cfg(test)]
mod tests {
    use homeostat_netlink::uapi::{NFTA_DATA_VALUE, NFTA_LIST_ELEM, NFTA_SET_ELEM_KEY};

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

    /// How many lists it takes, and how many elements are told in the end.
    fn check(lists: &[&[u8]], expected: Option<(usize, usize)>) {
        let mut made = 0;
        let told = told_once(Layout::Single, || {
            made += 1;
            Ok(list(lists[(made - 1) % lists.len()]))
        });
        let told = told.ok().map(|elements| (made, elements.places().len()));
        assert_eq!(told, expected, "{lists:?}");
    }

    #[test]
    fn elements_that_are_told_twice_are_listed_again() {
        check(&[&[1, 2, 3]], Some((1, 3)));
        check(&[&[1, 2, 2], &[3, 1, 2]], Some((2, 3)));
        check(&[&[1, 2, 2], &[1, 1, 3], &[1, 2, 3]], Some((3, 3)));
        // Whatever is so each time is so.
        check(&[&[1, 2, 2]], Some((2, 3)));
        check(&[&[1, 2, 2], &[1, 1, 3]], None);
    }
}
