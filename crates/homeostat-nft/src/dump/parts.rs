//! The parts of a table, one message each, and how rules are put together with what is inside them.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_netlink::uapi::{
    NFT_CHAIN_BINDING, NFT_OBJECT_COUNTER, NFT_OBJECT_QUOTA, NFT_SET_ANONYMOUS, NFT_SET_CONCAT,
    NFT_SET_EVAL, NFT_SET_INTERVAL, NFT_SET_MAP, NFT_SET_OBJECT, NFT_SET_TIMEOUT, NFTA_CHAIN_FLAGS,
    NFTA_CHAIN_HANDLE, NFTA_CHAIN_HOOK, NFTA_CHAIN_NAME, NFTA_CHAIN_POLICY, NFTA_CHAIN_TYPE,
    NFTA_CHAIN_USERDATA, NFTA_FLOWTABLE_FLAGS, NFTA_FLOWTABLE_HOOK, NFTA_FLOWTABLE_NAME,
    NFTA_OBJ_DATA, NFTA_OBJ_NAME, NFTA_OBJ_TYPE, NFTA_OBJ_USERDATA, NFTA_SET_DATA_LEN,
    NFTA_SET_DATA_TYPE, NFTA_SET_DESC, NFTA_SET_EXPR, NFTA_SET_EXPRESSIONS, NFTA_SET_FLAGS,
    NFTA_SET_GC_INTERVAL, NFTA_SET_KEY_LEN, NFTA_SET_KEY_TYPE, NFTA_SET_NAME, NFTA_SET_OBJ_TYPE,
    NFTA_SET_POLICY, NFTA_SET_TIMEOUT, NFTA_SET_USERDATA,
};
use homeostat_netlink::{Attrs, Malformed};

use super::rules::{RawRule, RawRules};
use crate::elements::{Elements, Layout, targets};
use crate::expression::{Becomes, Counts, Reference, Rewriting, rewrite_into, volatile};
use crate::model::{Chain, Handle, Inside, ObjectId, Rule, RuleBytes, Set, Stateful};
use crate::tlv::{Tlvs, be32, be64, name, only};

/// A chain without its rules.
#[derive(Debug)]
pub(crate) struct Bare {
    pub(crate) name: String,
    flags: u32,
    pub(crate) chain: Chain,
}

impl Bare {
    /// Whether it lives and dies with the rule that jumps to it.
    pub(crate) fn is_nameless(&self) -> bool {
        self.flags & NFT_CHAIN_BINDING != 0
    }
}

pub(crate) fn chain(attrs: &Attrs<'_>) -> Result<Bare, Malformed> {
    let kept = [NFTA_CHAIN_HOOK, NFTA_CHAIN_TYPE, NFTA_CHAIN_FLAGS, NFTA_CHAIN_USERDATA];
    Ok(Bare {
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

pub(crate) fn set(attrs: &Attrs<'_>) -> Result<(String, Set), Malformed> {
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

pub(crate) fn object(attrs: &Attrs<'_>) -> Result<(ObjectId, Stateful), Malformed> {
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

pub(super) fn flowtable(attrs: &Attrs<'_>) -> Result<(String, Box<[u8]>), Malformed> {
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
pub(crate) struct Loose {
    pub(crate) chains: Vec<Bare>,
    pub(crate) rules: RawRules,
    pub(crate) sets: BTreeMap<String, Set>,
}

type Parts = (BTreeMap<String, Chain>, BTreeMap<String, Set>);

impl Loose {
    /// Chains with their rules, and sets, as far as they have names.
    pub(super) fn assembled(self) -> Result<Parts, Malformed> {
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
