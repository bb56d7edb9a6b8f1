//! The kernel's echo of a small edit, which saves reading the whole table again.
//!
//! A transaction under the generation that was observed finds the table as it was seen, so that the echoes
//! (`NLM_F_ECHO`) show the rest. An unexpected echo is no failure: the table is looked at again. Start at
//! [`is_small`] and [`Echoes::confirm`].

use std::collections::BTreeMap;

use homeostat_netlink::uapi::*;
use homeostat_netlink::{Attrs, Malformed, Message};

use crate::dump::{Parts, TABLE_NAME};
use crate::elements::{Collected, Elements};
use crate::key::Family;
use crate::model::{Handle, Set};
use crate::plan::{ElementFrom, Op};
use crate::step::Step;
use crate::wire::{be32, be64, nft_message, text};

/// Beyond this, the answers cost as much as another look.
const MOST: usize = 1000;

/// Whether the kernel's words on each message are few, and enough to know what became of the table.
pub(crate) fn is_small(step: &Step) -> bool {
    let is_edit = step.desired.is_some() && step.seen.is_some() && step.adopts.is_none();
    let add = |sum: usize, op| Some(sum + size(step, op)?).filter(|sum| *sum <= MOST);
    is_edit && step.script().is_none() && step.ops.iter().try_fold(0, add).is_some()
}

/// How many messages the kernel echoes for an op, if they show its result.
fn size(step: &Step, op: &Op) -> Option<usize> {
    match op {
        Op::DeleteRule { .. } | Op::SetPolicy(_) => Some(1),
        // The echo does not say the names of anonymous sets and chains.
        Op::AddRule { chain, at, .. } => {
            let rule = step.desired.as_ref()?.rules(chain).get(*at)?;
            rule.inside.is_empty().then_some(1)
        }
        Op::DeleteElements { units, .. } => Some(units.len()),
        Op::AddElements { units, .. } => {
            units.iter().all(|from| matches!(from, ElementFrom::Desired(_))).then_some(units.len())
        }
        _ => None,
    }
}

/// The step and the op that an echo of elements belongs to: it has no sequence number.
pub(crate) fn about(steps: &[Step], message: &Message<'_>) -> Option<(usize, usize)> {
    let ([family, ..], attrs) = message.split::<4>().ok()?;
    let (table, name) =
        (text(&attrs, TABLE_NAME).ok()?, text(&attrs, NFTA_SET_ELEM_LIST_SET).ok()?);
    let is_here = |step: &Step| step.key.family == Family(*family) && step.key.name == table;
    let at = steps.iter().position(is_here)?;
    let is_meant = |op: &Op| match op {
        Op::AddElements { set, .. } => nft_message(message) == NFT_MSG_NEWSETELEM && set == name,
        Op::DeleteElements { set, .. } => nft_message(message) == NFT_MSG_DELSETELEM && set == name,
        _ => false,
    };
    Some((at, steps.get(at)?.ops.iter().position(is_meant)?))
}

/// The echoes of one step, by op.
#[derive(Debug, Default)]
pub(crate) struct Echoes(BTreeMap<usize, Vec<Echo>>);

/// The type and the attributes of a message.
type Echo = (u16, Box<[u8]>);

impl Echoes {
    /// Takes one echo of an op.
    pub(crate) fn record(&mut self, op: usize, message: &Message<'_>) {
        // The commit itself is echoed, too.
        let kind = nft_message(message);
        if kind != NFT_MSG_NEWGEN {
            let attrs = message.payload.get(4..).unwrap_or_default();
            self.0.entry(op).or_default().push((kind, attrs.into()));
        }
    }

    /// Whether the echoes show that everything is as the step meant it.
    pub(crate) fn confirm(&self, step: &Step) -> bool {
        let mut places = ImpliedPlaces::default();
        let mut shows = |(at, op): (usize, &Op)| {
            let echoes = self.0.get(&at);
            echoes.is_some_and(|echoes| confirms(step, op, echoes, &mut places).unwrap_or(false))
        };
        is_small(step) && step.ops.iter().enumerate().all(&mut shows) && places.agree(step)
    }
}

/// Whether the echoes of an op show what it was meant to do.
fn confirms(
    step: &Step,
    op: &Op,
    echoes: &[Echo],
    places: &mut ImpliedPlaces,
) -> Result<bool, Malformed> {
    let (Some(desired), Some(seen)) = (&step.desired, &step.seen) else { return Ok(false) };
    let [(kind, attrs), others @ ..] = echoes else { return Ok(false) };
    if others.iter().any(|(other, _)| other != kind) {
        return Ok(false);
    }
    let attrs = Attrs::new(attrs);
    Ok(match (op, *kind) {
        (Op::SetPolicy(chain), NFT_MSG_NEWCHAIN) => {
            let policy = be32(&attrs, NFTA_CHAIN_POLICY)?;
            policy.is_some() && policy == desired.chains.get(chain).and_then(|chain| chain.policy)
        }
        (Op::DeleteRule { chain, at }, NFT_MSG_DELRULE) => {
            places.gone.entry(chain.clone()).or_default().push(*at);
            let handle = be64(&attrs, NFTA_RULE_HANDLE)?.map(Handle);
            handle.is_some() && handle == seen.rules(chain).get(*at).map(|rule| rule.handle)
        }
        (Op::AddRule { chain, at, .. }, NFT_MSG_NEWRULE) => {
            let rule = Parts::default().decode_rule(&attrs)?.complete(&mut BTreeMap::new());
            let after = be64(&attrs, NFTA_RULE_POSITION)?.map(Handle);
            let is_equal = desired.rules(chain).get(*at) == Some(&rule);
            places.made.entry(chain.clone()).or_default().insert(*at, (rule.handle, after));
            is_equal
        }
        (Op::DeleteElements { set, units }, NFT_MSG_DELSETELEM) => {
            let set = seen.sets.get(set);
            let gone = set.map(|set| elements(echoes, set)).transpose()?;
            gone.is_some_and(|gone| gone.places().len() == units.len())
        }
        (Op::AddElements { set, units }, NFT_MSG_NEWSETELEM) => {
            let Some(set) = desired.sets.get(set) else { return Ok(false) };
            let added = elements(echoes, set)?;
            let mut declared = units.iter().filter_map(|from| match from {
                ElementFrom::Desired(at) => Some(set.elements.unit(*at)),
                ElementFrom::Seen(_) => None,
            });
            added.places().len() == units.len()
                && added.places().all(|at| declared.next() == Some(added.unit(at)))
        }
        _ => false,
    })
}

fn elements(echoes: &[Echo], set: &Set) -> Result<Elements, Malformed> {
    let mut elements = Collected::default();
    for (_, attrs) in echoes {
        let list = Attrs::new(attrs).first(NFTA_SET_ELEM_LIST_ELEMENTS)?;
        list.map_or(Ok(()), |list| elements.take(list.value))?;
    }
    elements.sorted(set.layout())
}

/// Where rules of each chain went and came.
#[derive(Debug, Default)]
struct ImpliedPlaces {
    gone: BTreeMap<String, Vec<usize>>,
    /// The handle of each rule that came, and that of the rule before it, unless it is the first or the last.
    made: BTreeMap<String, BTreeMap<usize, (Handle, Option<Handle>)>>,
}

impl ImpliedPlaces {
    /// Whether each rule that came stands behind the one that it was declared behind.
    fn agree(&self, step: &Step) -> bool {
        let (Some(desired), Some(seen)) = (&step.desired, &step.seen) else { return false };
        self.made.iter().all(|(chain, made)| {
            let gone = self.gone.get(chain).map_or(&[][..], |gone| gone);
            let rules = seen.rules(chain).iter().enumerate();
            let mut stay = rules.filter(|(at, _)| gone.binary_search(at).is_err());
            let mut before = None;
            (0..desired.rules(chain).len()).all(|at| {
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
