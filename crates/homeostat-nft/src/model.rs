//! A table and what is in it, as the kernel dumps it.
//!
//! Equality is about what a desired state can say: handles, and what packets change, do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use homeostat_netlink::uapi::{
    NFT_TABLE_F_OWNER, NFTA_CHAIN_HOOK, NFTA_FLOWTABLE_HOOK, NFTA_FLOWTABLE_HOOK_DEVS,
    NFTA_HOOK_DEV, NFTA_HOOK_DEVS,
};
use homeostat_netlink::{Attrs, Malformed};

use crate::elements::Elements;
use crate::expression::Reference;
use crate::key::Key;
use crate::rule_lines::Words;
use crate::wire::{Tlvs, text};

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
    /// Rules in words, where somebody asked for them.
    pub(crate) texts: BTreeMap<Handle, Words>,
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
    /// Whether anything in it holds these bytes.
    pub(crate) fn mentions(&self, bytes: &[u8]) -> bool {
        let rules = self.chains.values().flat_map(|chain| &chain.rules);
        let sets = self.sets.values();
        rules.into_iter().any(|rule| rule.mentions(bytes))
            || sets.into_iter().any(|set| set.elements.mention(bytes))
    }

    /// Whether anything of it goes with a device, or with the program that owns it: nobody is told of that,
    /// and no generation moves.
    pub(crate) fn may_go_unheard(&self) -> bool {
        let is_owned = self.flags & NFT_TABLE_F_OWNER != 0;
        is_owned || !self.flowtables.is_empty() || self.chains.values().any(Chain::has_devices)
    }

    /// Whether a chain or a flowtable of it hooks into a link of this name.
    pub(crate) fn hooks_into(&self, link: &str) -> bool {
        let chains = self.chains.values().map(|chain| (Hooking::Chain, &chain.definition));
        let flowtables = self.flowtables.values().map(|bytes| (Hooking::Flowtable, bytes));
        chains.chain(flowtables).any(|(kind, bytes)| kind.links(bytes).contains(link))
    }
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
    pub(crate) references: BTreeSet<Reference>,
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
    pub(crate) fn new<E>(
        dumped: &[u8],
        userdata: Option<&[u8]>,
        rewrite: impl FnOnce(&mut Tlvs) -> Result<(), E>,
    ) -> Result<Self, E> {
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

    fn expressions(&self) -> &[u8] {
        self.all.get(..self.expressions).unwrap_or_default()
    }

    fn userdata(&self) -> Option<&[u8]> {
        self.all.get(self.expressions..self.userdata).filter(|_| self.has_userdata)
    }

    /// As dumped, where that is more.
    fn dumped(&self) -> Option<&[u8]> {
        self.all.get(self.userdata..).filter(|bytes| !bytes.is_empty())
    }
}

/// Something that lives and dies with its rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Inside {
    Set(Set),
    Chain(Vec<Rule>),
}

impl Rule {
    /// The expressions as they were dumped.
    pub(crate) fn whole(&self) -> &[u8] {
        self.bytes.dumped().unwrap_or(self.expressions())
    }

    /// The expressions for comparing: without counts and without the kernel's own names.
    pub(crate) fn expressions(&self) -> &[u8] {
        self.bytes.expressions()
    }

    /// What userspace keeps with it: comments, mostly.
    pub(crate) fn userdata(&self) -> Option<&[u8]> {
        self.bytes.userdata()
    }

    fn mentions(&self, bytes: &[u8]) -> bool {
        let holds = self.expressions().windows(bytes.len()).any(|window| window == bytes);
        holds
            || self.inside.iter().any(|inside| match inside {
                Inside::Set(set) => set.elements.mention(bytes),
                Inside::Chain(rules) => rules.iter().any(|rule| rule.mentions(bytes)),
            })
    }

    /// All that it refers to, also from inside.
    pub(crate) fn refers_to(&self, gone: &BTreeSet<Reference>) -> bool {
        !self.references.is_disjoint(gone)
            || self.inside.iter().any(|inside| match inside {
                Inside::Set(set) => set.references.iter().any(|to| gone.contains(to)),
                Inside::Chain(rules) => rules.iter().any(|rule| rule.refers_to(gone)),
            })
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.expressions() == other.expressions()
            && self.userdata() == other.userdata()
            && self.inside == other.inside
    }
}

impl Eq for Rule {}

impl Hash for Rule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expressions().hash(state);
        self.userdata().hash(state);
        self.inside.hash(state);
    }
}

/// A set or a map.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    /// Types, flags, size, timeout, comment.
    pub(crate) definition: Box<[u8]>,
    pub(crate) flags: u32,
    /// What an element looks like: only between equal ones elements can be carried over.
    pub(crate) shape: Box<[u8]>,
    pub(crate) elements: Elements,
    /// The name that the user gave to a meter, which lives and dies with its rule nevertheless.
    pub(crate) meter: Option<String>,
    /// What elements lead to.
    pub(crate) references: BTreeSet<Reference>,
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

/// Objects of two types may share a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectId {
    pub(crate) kind: u32,
    pub(crate) name: String,
}

/// A named counter, quota, limit, helper.
#[derive(Clone, Debug)]
pub(crate) struct Stateful {
    /// For comparing: without counts.
    pub(crate) definition: Box<[u8]>,
    /// As dumped.
    pub(crate) dumped: Box<[u8]>,
    /// What packets have changed.
    pub(crate) counts: Box<[u8]>,
}

/// `NFTA_DEVICE_NAME`: what a list of links is made of.
const DEVICE_NAME: u16 = 1;

/// What hooks into links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hooking {
    Chain,
    Flowtable,
}

impl Hooking {
    /// The names of the links; none where the attributes are not understood.
    pub(crate) fn links(self, attrs: &[u8]) -> BTreeSet<&str> {
        self.read(attrs).unwrap_or_default()
    }

    fn read(self, attrs: &[u8]) -> Result<BTreeSet<&str>, Malformed> {
        let (hook, many) = match self {
            Hooking::Chain => (NFTA_CHAIN_HOOK, NFTA_HOOK_DEVS),
            Hooking::Flowtable => (NFTA_FLOWTABLE_HOOK, NFTA_FLOWTABLE_HOOK_DEVS),
        };
        let mut names = BTreeSet::new();
        let Some(hook) = Attrs::new(attrs).first(hook)? else { return Ok(names) };
        // A flowtable has its list under the number by which a chain has one name.
        if self == Hooking::Chain {
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
        let check = |kind: Hooking, attrs: Tlvs, expected: &[&str]| {
            let bytes = attrs.into_bytes();
            assert_eq!(kind.links(&bytes).into_iter().collect::<Vec<_>>(), expected);
        };
        check(Hooking::Chain, nested(NFTA_CHAIN_HOOK, one), &["eth0"]);
        check(Hooking::Chain, nested(NFTA_CHAIN_HOOK, list(NFTA_HOOK_DEVS)), &["eth0", "eth1"]);
        let devices = nested(NFTA_FLOWTABLE_HOOK, list(NFTA_FLOWTABLE_HOOK_DEVS));
        check(Hooking::Flowtable, devices, &["eth0", "eth1"]);
        check(Hooking::Chain, Tlvs::default(), &[]);
        assert!(Hooking::Chain.links(&[8, 0]).is_empty(), "malformed");
    }
}
