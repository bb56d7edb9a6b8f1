//! The kernel's echo of a small edit, which saves reading the whole table again.
//!
//! A transaction under the generation that was observed finds the table as it was seen, so that the echoes
//! (`NLM_F_ECHO`) show the rest. An unexpected echo is no failure: the table is looked at again. Start at
//! [`is_small`] and [`Echoes::confirm`].

use std::collections::BTreeMap;

use homeostat_netlink::uapi::*;
use homeostat_netlink::{Attrs, Malformed, Message};

use crate::dump::TABLE_NAME;
use crate::elements::Collected;
use crate::expression::{Counts, rewrite_list};
use crate::key::Family;
use crate::model::{Handle, Rule};
use crate::plan::{ElementFrom, Op};
use crate::step::Step;
use crate::wire::{
    DEL_ELEMENTS, DEL_RULE, NEW_CHAIN, NEW_ELEMENTS, NEW_GENERATION, NEW_RULE, be32, be64, text,
};

/// Beyond this, the answers cost as much as another look.
const MOST: usize = 1000;

/// Whether the kernel's words on each message are few, and enough to know what became of the table.
pub(crate) fn is_small(step: &Step) -> bool {
    let is_edit = step.desired.is_some() && step.seen.is_some() && step.adopts.is_none();
    is_edit
        && step.script().is_none()
        && step.ops.iter().map(|op| size(step, op)).try_fold(0, add).is_some()
}

fn add(sum: usize, size: Option<usize>) -> Option<usize> {
    Some(sum + size?).filter(|sum| *sum <= MOST)
}

/// How many messages the kernel echoes for an op, if they show what became of it.
fn size(step: &Step, op: &Op) -> Option<usize> {
    match op {
        Op::DeleteRule { .. } | Op::SetPolicy(_) => Some(1),
        // The echo does not say the names of anonymous sets and chains.
        Op::AddRule { chain, at, .. } => {
            desired_rule(step, chain, *at).filter(|rule| rule.inside.is_empty()).map(|_| 1)
        }
        Op::DeleteElements { units, .. } => Some(units.len()),
        Op::AddElements { units, .. } => {
            units.iter().all(|from| matches!(from, ElementFrom::Desired(_))).then_some(units.len())
        }
        _ => None,
    }
}

fn desired_rule<'a>(step: &'a Step, chain: &str, at: usize) -> Option<&'a Rule> {
    step.desired.as_ref()?.chains.get(chain)?.rules.get(at)
}

/// The step and the op that an echo of elements belongs to: it has no sequence number.
pub(crate) fn about(steps: &[Step], message: &Message<'_>) -> Option<(usize, usize)> {
    let ([family, ..], attrs) = message.split::<4>().ok()?;
    let (table, name) =
        (text(&attrs, TABLE_NAME).ok()?, text(&attrs, NFTA_SET_ELEM_LIST_SET).ok()?);
    let is_here = |step: &Step| step.key.family == Family(*family) && step.key.name == table;
    let at = steps.iter().position(is_here)?;
    let is_meant = |op: &Op| match op {
        Op::AddElements { set, .. } => message.kind == NEW_ELEMENTS && set == name,
        Op::DeleteElements { set, .. } => message.kind == DEL_ELEMENTS && set == name,
        _ => false,
    };
    Some((at, steps.get(at)?.ops.iter().position(is_meant)?))
}

/// The echoes of one step, by op.
#[derive(Debug, Default)]
pub(crate) struct Echoes {
    acts: BTreeMap<usize, Echo>,
}

/// The echo of one op.
#[derive(Debug, Default)]
struct Echo {
    elements: Collected,
    rule: Option<EchoedRule>,
    policy: Option<u32>,
    gone: Option<Handle>,
    is_odd: bool,
}

/// A rule as it was echoed.
#[derive(Debug)]
struct EchoedRule {
    handle: Handle,
    /// The rule before it, unless it is the first or the last.
    after: Option<Handle>,
    expressions: Box<[u8]>,
    userdata: Option<Box<[u8]>>,
}

impl Echoes {
    /// Takes one echo of an op.
    pub(crate) fn record(&mut self, op: usize, message: &Message<'_>) {
        let echo = self.acts.entry(op).or_default();
        let taken = message.split::<4>().and_then(|(_, attrs)| echo.take(message.kind, &attrs));
        echo.is_odd |= taken.is_err();
    }

    /// Whether the echoes show that everything is as the step meant it.
    pub(crate) fn confirm(self, step: &Step) -> bool {
        if !is_small(step) {
            return false;
        }
        let Echoes { mut acts } = self;
        let mut places = RulePlaces::default();
        let mut shows = |(at, op): (usize, &Op)| {
            let echo = acts.remove(&at).filter(|echo| !echo.is_odd);
            echo.is_some_and(|echo| echo.confirms(step, op, &mut places).unwrap_or(false))
        };
        step.ops.iter().enumerate().all(&mut shows) && places.agree(step)
    }
}

impl Echo {
    fn take(&mut self, message: u16, attrs: &Attrs<'_>) -> Result<(), Malformed> {
        match message {
            NEW_CHAIN => self.policy = be32(attrs, NFTA_CHAIN_POLICY)?,
            NEW_RULE => self.rule = Some(EchoedRule::of(attrs)?),
            DEL_RULE => self.gone = be64(attrs, NFTA_RULE_HANDLE)?.map(Handle),
            NEW_ELEMENTS | DEL_ELEMENTS => {
                let list = attrs.clone().first(NFTA_SET_ELEM_LIST_ELEMENTS)?;
                list.map_or(Ok(()), |list| self.elements.take(list.value))?;
            }
            // The commit itself is echoed, too.
            NEW_GENERATION => {}
            _ => self.is_odd = true,
        }
        Ok(())
    }

    fn confirms(self, step: &Step, op: &Op, places: &mut RulePlaces) -> Result<bool, Malformed> {
        let seen = step.seen.as_ref();
        Ok(match op {
            Op::SetPolicy(chain) => {
                let desired = step.desired.as_ref().and_then(|desired| desired.chains.get(chain));
                self.policy.is_some() && self.policy == desired.and_then(|chain| chain.policy)
            }
            Op::DeleteRule { chain, at } => {
                places.gone.entry(chain.clone()).or_default().push(*at);
                let rules = seen.and_then(|seen| seen.chains.get(chain)).map(|chain| &chain.rules);
                let rule = rules.and_then(|rules| rules.get(*at));
                self.gone.is_some() && self.gone == rule.map(|rule| rule.handle)
            }
            Op::AddRule { chain, at, .. } => {
                let (Some(rule), Some(echoed)) = (desired_rule(step, chain, *at), self.rule) else {
                    return Ok(false);
                };
                let is_equal = *echoed.expressions == *rule.expressions()
                    && echoed.userdata.as_deref() == rule.userdata();
                places
                    .made
                    .entry(chain.clone())
                    .or_default()
                    .insert(*at, (echoed.handle, echoed.after));
                is_equal
            }
            Op::DeleteElements { set, units } => {
                let set = seen.and_then(|seen| seen.sets.get(set));
                let told = set.map(|set| self.elements.sorted(set.layout())).transpose()?;
                told.is_some_and(|told| told.places().len() == units.len())
            }
            Op::AddElements { set, units } => {
                let set = step.desired.as_ref().and_then(|desired| desired.sets.get(set));
                let Some(set) = set else { return Ok(false) };
                let told = self.elements.sorted(set.layout())?;
                let mut declared = units.iter().filter_map(|from| match from {
                    ElementFrom::Desired(at) => Some(set.elements.unit(*at)),
                    ElementFrom::Seen(_) => None,
                });
                told.places().len() == units.len()
                    && told.places().all(|at| declared.next() == Some(told.unit(at)))
            }
            _ => false,
        })
    }
}

impl EchoedRule {
    fn of(attrs: &Attrs<'_>) -> Result<Self, Malformed> {
        let bytes = |kind| Ok(attrs.clone().first(kind)?.map(|attr| Box::from(attr.value)));
        let expressions: Box<[u8]> = bytes(NFTA_RULE_EXPRESSIONS)?.unwrap_or_default();
        Ok(EchoedRule {
            handle: Handle(be64(attrs, NFTA_RULE_HANDLE)?.ok_or(Malformed::Payload)?),
            after: be64(attrs, NFTA_RULE_POSITION)?.map(Handle),
            expressions: rewrite_list(&expressions, Counts::Masked)?,
            userdata: bytes(NFTA_RULE_USERDATA)?,
        })
    }
}

/// Where rules of each chain went and came.
#[derive(Debug, Default)]
struct RulePlaces {
    gone: BTreeMap<String, Vec<usize>>,
    made: BTreeMap<String, BTreeMap<usize, (Handle, Option<Handle>)>>,
}

impl RulePlaces {
    /// Whether each rule that came stands behind the one that it was declared behind.
    fn agree(&self, step: &Step) -> bool {
        self.made.iter().all(|(chain, made)| {
            let rules = step.seen.as_ref().and_then(|seen| seen.chains.get(chain));
            let gone = self.gone.get(chain).map_or(&[][..], |gone| gone);
            let rules = rules.iter().flat_map(|chain| chain.rules.iter().enumerate());
            let mut stay = rules.filter(|(at, _)| gone.binary_search(at).is_err());
            let mut before = None;
            let count = step.desired.as_ref().and_then(|desired| desired.chains.get(chain));
            (0..count.map_or(0, |chain| chain.rules.len())).all(|at| {
                let former = before;
                let Some((handle, after)) = made.get(&at) else {
                    before = stay.next().map(|(_, rule)| rule.handle);
                    return before.is_some();
                };
                before = Some(*handle);
                after.is_none() || *after == former
            })
        })
    }
}
