//! A table and what is in it, as the kernel dumps it.
//!
//! Equality is about what a desired state can say: handles, and what packets change, do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use homeostat_netlink::uapi::*;
use homeostat_netlink::{Attrs, Malformed};

use crate::dump::Head;
use crate::elements::{Edits, Elements, Layout, UnitAt, targets};
use crate::expression::counts;
use crate::key::Key;
use crate::rule_lines::RuleText;
use crate::wire::{Tlvs, be32, text};

/// The kernel's number for something in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handle(pub(crate) u64);

/// A whole table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) key: Key,
    pub(crate) handle: Handle,
    pub(crate) flags: u32,
    /// The user's own words, without our mark.
    pub(crate) comment: String,
    pub(crate) chains: BTreeMap<String, Chain>,
    pub(crate) sets: BTreeMap<String, Set>,
    pub(crate) objects: BTreeMap<ObjectId, Stateful>,
    pub(crate) flowtables: BTreeMap<String, Box<[u8]>>,
    /// The text of rules, where it was asked for.
    pub(crate) texts: BTreeMap<Handle, RuleText>,
    /// How it is written if its bytes cannot be carried.
    pub(crate) script: Option<Arc<Script>>,
}

/// A table as a text that `nft` loads whole.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) program: OsString,
    pub(crate) text: String,
}

impl Table {
    /// One with nothing in it.
    pub(crate) fn empty(head: &Head) -> Self {
        Table {
            key: head.key.clone(),
            handle: head.handle,
            flags: head.flags,
            comment: head.comment.text.clone(),
            chains: BTreeMap::new(),
            sets: BTreeMap::new(),
            objects: BTreeMap::new(),
            flowtables: BTreeMap::new(),
            texts: BTreeMap::new(),
            script: None,
        }
    }

    /// Its named parts, in an order in which they can be created: objects and flowtables, then chains, then sets, each
    /// in the order in which they were created.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let objects = in_order(&self.objects, |object| object.handle).map(Part::Object);
        let flowtables = self.flowtables.keys().cloned().map(Part::Flowtable);
        let chains = in_order(&self.chains, |chain| chain.handle).map(Part::Chain);
        let sets = in_order(&self.sets, |set| set.handle).map(Part::Set);
        objects.chain(flowtables).chain(chains).chain(sets).collect()
    }

    /// What a named part is, without what can change in place; nothing if it is not there.
    pub(crate) fn definition(&self, part: &Part) -> Option<&[u8]> {
        Some(match part {
            Part::Set(name) => &self.sets.get(name)?.definition,
            Part::Chain(name) => &self.chains.get(name)?.definition,
            Part::Object(id) => &self.objects.get(id)?.definition,
            Part::Flowtable(name) => self.flowtables.get(name)?,
        })
    }

    pub(crate) fn has(&self, part: &Part) -> bool {
        self.definition(part).is_some()
    }

    /// The rules of a chain; none if it is not there.
    pub(crate) fn rules(&self, chain: &str) -> &[Rule] {
        self.chains.get(chain).map_or(&[], |chain| &chain.rules)
    }

    /// The hooks of its chains.
    pub(crate) fn hooks(&self) -> impl Iterator<Item = Hook> {
        self.chains.values().filter_map(Chain::hook)
    }

    /// Whether packets may run through chains of both tables in an order that matters.
    pub(crate) fn shares_hooks(&self, other: &Self) -> bool {
        self.key.family.shares_hooks(other.key.family)
            && self.hooks().any(|hook| other.hooks().any(|other| hook == other))
    }

    /// Whether anything in it holds these bytes.
    pub(crate) fn mentions(&self, bytes: &[u8]) -> bool {
        self.chains.values().flat_map(|chain| &chain.rules).any(|rule| rule.mentions(bytes))
            || self.sets.values().any(|set| set.elements.mention(bytes))
    }

    /// Whether parts of it disappear with a device, or with the program that owns it: that is not announced, and
    /// changes no generation.
    pub(crate) fn may_change_silently(&self) -> bool {
        let is_owned = self.flags & NFT_TABLE_F_OWNER != 0;
        is_owned || !self.flowtables.is_empty() || self.chains.values().any(Chain::has_devices)
    }

    /// Whether packets and time have left something in it that no text brings back.
    pub(crate) fn holds_what_packets_left(&self) -> bool {
        self.sets.values().any(|set| set.is_moving() || set.elements.count())
            || !self.objects.is_empty()
            || self.chains.values().any(|chain| chain.rules.iter().any(Rule::counts))
    }

    /// Whether a chain or a flowtable of it hooks into a link of this name.
    pub(crate) fn hooks_into(&self, link: &str) -> bool {
        let chains = self.chains.values().map(|chain| (HookKind::Chain, &chain.definition));
        let flowtables = self.flowtables.values().map(|bytes| (HookKind::Flowtable, bytes));
        chains.chain(flowtables).any(|(kind, bytes)| kind.devices(bytes).contains(link))
    }
}

/// The names of parts in the order of their handles.
fn in_order<N: Clone, P>(
    parts: &BTreeMap<N, P>,
    handle: impl Fn(&P) -> Handle,
) -> impl Iterator<Item = N> {
    let mut parts: Vec<_> = parts.iter().collect();
    parts.sort_by_key(|(_, part)| handle(part));
    parts.into_iter().map(|(name, _)| name.clone())
}

/// Where packets enter a chain. In which order chains of one hook and priority run depends on the order in which they
/// were created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hook {
    number: u32,
    priority: u32,
}

/// A chain that has a name.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) handle: Handle,
    /// Hook, type, flags, comment: what cannot change in place.
    pub(crate) definition: Box<[u8]>,
    pub(crate) policy: Option<u32>,
    pub(crate) rules: Vec<Rule>,
}

impl Chain {
    /// Whether it exists only as long as the rule that jumps to it.
    pub(crate) fn is_anonymous(&self) -> bool {
        let flags = be32(&Attrs::new(&self.definition), NFTA_CHAIN_FLAGS).ok().flatten();
        flags.is_some_and(|flags| flags & NFT_CHAIN_BINDING != 0)
    }

    /// Its hook, if it has one.
    pub(crate) fn hook(&self) -> Option<Hook> {
        let hook = Attrs::new(&self.definition).first(NFTA_CHAIN_HOOK).ok()??.attrs();
        let number = be32(&hook, NFTA_HOOK_HOOKNUM).ok()??;
        Some(Hook { number, priority: be32(&hook, NFTA_HOOK_PRIORITY).ok()?? })
    }

    /// Whether it hooks into devices.
    pub(crate) fn has_devices(&self) -> bool {
        let hook = Attrs::new(&self.definition).first(NFTA_CHAIN_HOOK).ok().flatten();
        let is_device = |kind: u16| kind == NFTA_HOOK_DEV || kind == NFTA_HOOK_DEVS;
        hook.is_some_and(|hook| hook.attrs().flatten().any(|attr| is_device(attr.kind)))
    }
}

/// A rule, with everything that has no name of its own inside.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) handle: Handle,
    pub(crate) bytes: RuleBytes,
    /// Sets and chains without names, in the order in which the rule refers to them.
    pub(crate) inside: Vec<Inside>,
    pub(crate) references: BTreeSet<Part>,
}

/// The bytes of a rule in one piece: there may be many thousands of them.
#[derive(Clone, Debug)]
pub(crate) struct RuleBytes {
    /// For comparing, then for userspace, then as dumped.
    all: Vec<u8>,
    expressions: usize,
    userdata: usize,
    has_userdata: bool,
}

impl RuleBytes {
    /// Puts them together: `rewrite` writes what is compared.
    pub(crate) fn new(
        dumped: &[u8],
        userdata: Option<&[u8]>,
        rewrite: impl FnOnce(&mut Tlvs) -> Result<(), Malformed>,
    ) -> Result<Self, Malformed> {
        let more = userdata.unwrap_or_default();
        let mut out = Tlvs::with_room(2 * dumped.len() + more.len());
        rewrite(&mut out)?;
        let mut all = out.into_vec();
        let (expressions, userdata_end) = (all.len(), all.len() + more.len());
        let is_all = all == dumped;
        all.extend_from_slice(more);
        if is_all {
            all.shrink_to_fit();
        } else {
            all.extend_from_slice(dumped);
        }
        Ok(RuleBytes { all, expressions, userdata: userdata_end, has_userdata: userdata.is_some() })
    }
}

/// An anonymous set or chain: it exists only as long as its rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Inside {
    Set(Set),
    Chain(Vec<Rule>),
}

impl Rule {
    /// The expressions as they were dumped.
    pub(crate) fn whole(&self) -> &[u8] {
        let dumped = self.bytes.all.get(self.bytes.userdata..).filter(|bytes| !bytes.is_empty());
        dumped.unwrap_or(self.expressions())
    }

    /// The expressions for comparing: without counts and without the kernel's own names.
    pub(crate) fn expressions(&self) -> &[u8] {
        self.bytes.all.get(..self.bytes.expressions).unwrap_or_default()
    }

    /// What userspace keeps with it: comments, mostly.
    pub(crate) fn userdata(&self) -> Option<&[u8]> {
        let userdata = self.bytes.all.get(self.bytes.expressions..self.bytes.userdata);
        userdata.filter(|_| self.bytes.has_userdata)
    }

    /// Two rules are equal if these are.
    fn compared(&self) -> (&[u8], Option<&[u8]>, &[Inside]) {
        (self.expressions(), self.userdata(), &self.inside)
    }

    /// Whether packets change something in it.
    pub(crate) fn counts(&self) -> bool {
        counts(self.whole()).is_ok_and(|all| !all.is_empty())
            || self.inside.iter().any(|inside| match inside {
                Inside::Set(set) => set.elements.count(),
                Inside::Chain(rules) => rules.iter().any(Rule::counts),
            })
    }

    fn mentions(&self, bytes: &[u8]) -> bool {
        self.expressions().windows(bytes.len()).any(|window| window == bytes)
            || self.inside.iter().any(|inside| match inside {
                Inside::Set(set) => set.elements.mention(bytes),
                Inside::Chain(rules) => rules.iter().any(|rule| rule.mentions(bytes)),
            })
    }

    /// All that it refers to, also from inside.
    pub(crate) fn refers_to(&self, gone: &BTreeSet<Part>) -> bool {
        !self.references.is_disjoint(gone)
            || self.inside.iter().any(|inside| match inside {
                Inside::Set(set) => set.references.iter().any(|to| gone.contains(to)),
                Inside::Chain(rules) => rules.iter().any(|rule| rule.refers_to(gone)),
            })
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.compared() == other.compared()
    }
}

impl Eq for Rule {}

impl Hash for Rule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.compared().hash(state);
    }
}

/// A set or a map.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub(crate) handle: Handle,
    /// Types, flags, size, timeout, comment.
    pub(crate) definition: Box<[u8]>,
    pub(crate) flags: u32,
    /// What an element looks like: only between equal ones elements can be carried over.
    pub(crate) shape: Box<[u8]>,
    pub(crate) elements: Elements,
    /// The name of a meter: the user gave it, but the set exists only as long as its rule.
    pub(crate) meter: Option<String>,
    /// What elements lead to.
    pub(crate) references: BTreeSet<Part>,
}

impl Set {
    /// Whether it exists only as long as its rule.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.flags & NFT_SET_ANONYMOUS != 0
    }

    /// Whether packets fill it and no text can: it belongs to a meter.
    pub(crate) fn is_data(&self) -> bool {
        self.is_anonymous() && self.flags & NFT_SET_EVAL != 0
    }

    /// Whether packets or time change what is in it.
    pub(crate) fn is_moving(&self) -> bool {
        self.flags & (NFT_SET_EVAL | NFT_SET_TIMEOUT) != 0
    }

    /// Whether time deletes this element of it.
    pub(crate) fn expires(&self, unit: &[u8]) -> bool {
        let has = |attrs: Attrs<'_>, kind| matches!(attrs.first(kind), Ok(Some(_)));
        let mut elements = Attrs::new(unit).flatten();
        self.flags & NFT_SET_TIMEOUT != 0
            && (has(Attrs::new(&self.definition), NFTA_SET_TIMEOUT)
                || elements.any(|element| has(element.attrs(), NFTA_SET_ELEM_TIMEOUT)))
    }

    /// What elements of another set of the same type cannot keep in this one: the time that they have left of another
    /// default timeout, timeouts where there are none, the state of other statements.
    pub(crate) fn lost_from(&self, former: &Self, unit: &[u8]) -> Vec<u16> {
        let has_same = |kind| {
            let value = |set: &Self| {
                let attr = Attrs::new(&set.definition).first(kind).ok().flatten();
                attr.map(|attr| attr.value.to_vec())
            };
            value(self) == value(former)
        };
        let mut elements = Attrs::new(unit).flatten();
        let has_timeout =
            elements.any(|one| matches!(one.attrs().first(NFTA_SET_ELEM_TIMEOUT), Ok(Some(_))));
        let mut lost = Vec::new();
        if self.flags & NFT_SET_TIMEOUT == 0 {
            lost.extend([NFTA_SET_ELEM_TIMEOUT, NFTA_SET_ELEM_EXPIRATION]);
        } else if !has_timeout && !has_same(NFTA_SET_TIMEOUT) {
            lost.push(NFTA_SET_ELEM_EXPIRATION);
        }
        if !has_same(NFTA_SET_EXPR) || !has_same(NFTA_SET_EXPRESSIONS) {
            lost.extend([NFTA_SET_ELEM_EXPR, NFTA_SET_ELEM_EXPRESSIONS]);
        }
        lost
    }

    /// Whether its elements cannot change.
    ///
    /// Quirk `constant-sets-are-closed` (Linux 6.18): they can as long as no rule refers to the set, but not in the
    /// transaction that deletes the rule. The set can be deleted and created in that transaction.
    pub(crate) fn is_constant(&self) -> bool {
        self.flags & NFT_SET_CONSTANT != 0
    }

    pub(crate) fn layout(&self) -> Layout {
        let ends = self.flags & NFT_SET_INTERVAL != 0 && self.flags & NFT_SET_CONCAT == 0;
        if ends { Layout::Ends } else { Layout::Single }
    }

    /// Adds and deletes elements; false if one that was deleted was not there.
    pub(crate) fn edit(&mut self, edits: &Edits) -> Result<bool, Malformed> {
        let layout = self.layout();
        let had_all = self.elements.edit(edits, layout)?;
        self.note_references();
        Ok(had_all)
    }

    pub(crate) fn note_references(&mut self) {
        // Elements of a plain set refer to nothing, and there may be a million of them.
        if self.is_map() {
            self.references = self.elements.places().flat_map(|at| self.targets(at)).collect();
        }
    }

    fn is_map(&self) -> bool {
        self.flags & (NFT_SET_MAP | NFT_SET_OBJECT) != 0
    }

    /// The chain or the object that an element leads to.
    pub(crate) fn targets(&self, at: UnitAt) -> impl Iterator<Item = Part> {
        let unit = if self.is_map() { self.elements.unit(at) } else { &[] };
        let (chain, object) = targets(unit);
        let object = object.and_then(|name| {
            let kind = be32(&Attrs::new(&self.shape), NFTA_SET_OBJ_TYPE).ok()??;
            (self.flags & NFT_SET_OBJECT != 0).then(|| ObjectId { kind, name: name.to_owned() })
        });
        let chain = chain.map(|name| Part::Chain(name.to_owned()));
        chain.into_iter().chain(object.map(Part::Object))
    }
}

impl PartialEq for Set {
    fn eq(&self, other: &Self) -> bool {
        self.definition == other.definition && self.elements == other.elements
    }
}

impl Eq for Set {}

impl Hash for Set {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.hash(state);
        self.elements.hash(state);
    }
}

/// A part of a table that has a name, by which rules and elements refer to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    Set(String),
    Chain(String),
    Object(ObjectId),
    Flowtable(String),
}

/// Objects of two types may share a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectId {
    pub(crate) kind: u32,
    pub(crate) name: String,
}

/// A named counter, quota, limit, helper.
#[derive(Clone, Debug)]
pub(crate) struct Stateful {
    pub(crate) handle: Handle,
    /// For comparing: without counts.
    pub(crate) definition: Box<[u8]>,
    pub(crate) dumped: Box<[u8]>,
    /// What packets have changed.
    pub(crate) counts: Box<[u8]>,
}

/// `NFTA_DEVICE_NAME`: an entry of a list of links.
const DEVICE_NAME: u16 = 1;

/// What hooks into links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookKind {
    Chain,
    Flowtable,
}

impl HookKind {
    /// The names of the links; none where the attributes are not understood.
    pub(crate) fn devices(self, attrs: &[u8]) -> BTreeSet<&str> {
        self.read_devices(attrs).unwrap_or_default()
    }

    fn read_devices(self, attrs: &[u8]) -> Result<BTreeSet<&str>, Malformed> {
        let (hook, many) = match self {
            HookKind::Chain => (NFTA_CHAIN_HOOK, NFTA_HOOK_DEVS),
            HookKind::Flowtable => (NFTA_FLOWTABLE_HOOK, NFTA_FLOWTABLE_HOOK_DEVS),
        };
        let mut names = BTreeSet::new();
        let Some(hook) = Attrs::new(attrs).first(hook)? else { return Ok(names) };
        // A flowtable has its list under the number by which a chain has one name.
        if self == HookKind::Chain {
            names.insert(text(&hook.attrs(), NFTA_HOOK_DEV)?);
        }
        if let Some(list) = hook.attrs().first(many)? {
            for device in list.attrs() {
                let device = device?;
                names.extend((device.kind == DEVICE_NAME).then(|| device.str()).transpose()?);
            }
        }
        names.remove("");
        Ok(names)
    }
}

#[cfg(test)]
mod hook_tests {
    use homeostat_netlink::uapi::NLA_F_NESTED;

    use super::*;
    use crate::wire::Tlvs;

    fn nested(kind: u16, inside: Tlvs) -> Tlvs {
        let mut out = Tlvs::default();
        out.put(kind | NLA_F_NESTED, &inside.into_bytes());
        out
    }

    fn list(kind: u16) -> Tlvs {
        let mut names = Tlvs::default();
        names.put_name(DEVICE_NAME, "eth0");
        names.put_name(DEVICE_NAME, "eth1");
        nested(kind, names)
    }

    #[test]
    fn one_link_and_lists_of_them_are_found() {
        let mut one = Tlvs::default();
        one.put(1, &[0; 4]);
        one.put_name(NFTA_HOOK_DEV, "eth0");
        let check = |kind: HookKind, attrs: Tlvs, expected: &[&str]| {
            let bytes = attrs.into_bytes();
            assert_eq!(kind.devices(&bytes).into_iter().collect::<Vec<_>>(), expected);
        };
        check(HookKind::Chain, nested(NFTA_CHAIN_HOOK, one), &["eth0"]);
        check(HookKind::Chain, nested(NFTA_CHAIN_HOOK, list(NFTA_HOOK_DEVS)), &["eth0", "eth1"]);
        let devices = nested(NFTA_FLOWTABLE_HOOK, list(NFTA_FLOWTABLE_HOOK_DEVS));
        check(HookKind::Flowtable, devices, &["eth0", "eth1"]);
        check(HookKind::Chain, Tlvs::default(), &[]);
        assert!(HookKind::Chain.devices(&[8, 0]).is_empty(), "malformed");
    }
}
