//! Turns changes of links into steps, in the order in which links can be. Pure.

mod fields;
mod renew;
mod wait;

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::{
    Change, ChangeList, Desired as _, Failure, Owner, Pending, Refused, Retry, Slot, Taken,
};

use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::LinkName;
use crate::links::cascade::{self, IPV6_MIN_MTU, Loss};
use crate::links::desired::DesiredLink;
use crate::links::field::{Field, Setting};
use crate::links::kinds::LinkKind;
use crate::links::model::Link;
use crate::links::normalize::changes_in_place;
use crate::links::order::{depth, depth_of_key};
use crate::links::step::{Act, Cycle, LinkStep};
use crate::model::Object;
use crate::moment::Moment;

/// What becomes of links in this pass.
#[derive(Default)]
pub(crate) struct LinkPlan {
    pub(crate) steps: Vec<LinkStep>,
    pub(crate) pending: Vec<Pending<Key>>,
    pub(crate) refused: Vec<Refused<Key>>,
    /// Links that are made, so that others may rest on them.
    made: BTreeSet<LinkName>,
    /// Links that go and are made again: what was on them is lost.
    pub(crate) renewed: BTreeSet<LinkName>,
}

impl LinkPlan {
    /// Whether a link will be there when addresses and routes have their turn.
    pub(crate) fn will_have(&self, moment: &Moment, link: LinkName) -> bool {
        self.made.contains(&link)
            || moment.links.index(link).is_some() && !self.renewed.contains(&link)
    }
}

/// The steps for all changes of links; other changes are passed over.
pub(crate) fn draft(
    desired: &DesiredState,
    moment: &Moment,
    changes: &ChangeList<Key, Object>,
) -> LinkPlan {
    let mut drafting = Drafting {
        desired,
        moment,
        links: BTreeMap::new(),
        fields: BTreeMap::new(),
        plan: LinkPlan::default(),
    };
    for slot in changes.creates().iter().filter(|slot| desired.is_link(**slot)) {
        drafting.take(&Change::Create { slot: *slot });
    }
    for change in changes.others() {
        drafting.take(change);
    }
    drafting.renew();
    drafting.put_links();
    drafting.put_fields();
    drafting.finish()
}

/// What a step does to a link that may cost others something.
#[derive(Default)]
struct Effects {
    /// It goes down, for a moment at least.
    falls: bool,
    mac_changes: bool,
    /// Its MTU afterwards, if that is another one, or new to a bridge.
    mtu: Option<u32>,
    /// The bridge, bond or VRF that it is put into.
    joins: Option<LinkName>,
}

impl Effects {
    /// What changing a link of ours does.
    fn of_change(declared: &Link, before: &Link, cycle: Cycle) -> Self {
        let joins = declared.master.filter(|master| before.master != Some(*master));
        let mtu = declared.mtu.or(before.mtu);
        let falls = declared.up == Some(false) || cycle == Cycle::DownFirst;
        Effects {
            falls: falls && before.up == Some(true),
            mac_changes: declared.mac.is_some() && declared.mac != before.mac,
            mtu: mtu.filter(|_| mtu != before.mtu || joins.is_some()),
            joins,
        }
    }
}

/// What a link needs.
enum Need {
    Make,
    Change { before: Box<Link>, adopts: Option<Owner> },
    MakeAgain { before: Box<Link> },
}

struct Drafting<'a> {
    desired: &'a DesiredState,
    moment: &'a Moment,
    links: BTreeMap<LinkName, Need>,
    /// Fields that are written, with what is there.
    fields: BTreeMap<(LinkName, Field), Option<Setting>>,
    plan: LinkPlan,
}

impl Drafting<'_> {
    fn take(&mut self, change: &Change<Key, Object>) {
        match change {
            Change::Create { slot } => match self.desired.link_key_at(*slot) {
                Some(Key::Link(name)) => _ = self.links.insert(name, Need::Make),
                Some(Key::LinkField(name, field)) => {
                    self.fields.insert((name, field), None);
                }
                _ => {}
            },
            Change::Update { slot, before, adopts } => {
                self.take_update(*slot, before, adopts.as_ref());
            }
            Change::Delete { key: Key::Link(name), before } => self.delete(*name, before),
            Change::Delete { key, before } => self.release(key, before, None),
            Change::Release { key, before, restore } => self.release(key, before, restore.as_ref()),
        }
    }

    fn take_update(&mut self, slot: Slot, before: &Object, adopts: Option<&Owner>) {
        match (self.desired.link_key_at(slot), before) {
            (Some(Key::Link(name)), Object::Link(before)) => {
                self.change(name, before, adopts.cloned());
            }
            (Some(Key::LinkField(name, field)), Object::Setting(before)) => {
                self.fields.insert((name, field), Some(before.setting.clone()));
            }
            _ => {}
        }
    }

    fn change(&mut self, name: LinkName, before: &Link, adopts: Option<Owner>) {
        let Some(declared) = self.desired.links.link(name) else { return };
        let before = Box::new(before.clone());
        let need = match (changes_in_place(&declared.link, &before), adopts) {
            (true, adopts) => Need::Change { before, adopts },
            (false, None) => Need::MakeAgain { before },
            (false, Some(owner)) => {
                let words = format!(
                    "it belongs to {owner} and would have to be made again to be as declared"
                );
                let failure = Failure::new(words, Retry::OnChange).with_help("remove it first");
                self.plan.refused.push(Refused { key: Key::Link(name), failure });
                return;
            }
        };
        self.links.insert(name, need);
    }

    fn delete(&mut self, name: LinkName, before: &Object) {
        let takes = cascade::takes(self.moment, name, Loss::Gone);
        let touches = cascade::going_with(&self.moment.table, name).into_iter().collect();
        let (key, before) = (Key::Link(name), Some(before.clone()));
        let step =
            LinkStep { key, slot: None, before, act: Act::Delete, adopts: None, takes, touches };
        self.plan.steps.push(step);
    }

    /// What goes along with a change of a link, and the links on which something may have gone.
    fn loss(&self, name: LinkName, effects: &Effects) -> (Vec<Taken>, Vec<LinkName>) {
        let Effects { falls, mac_changes, mtu, joins } = *effects;
        let (mut takes, mut touches) = (Vec::new(), BTreeSet::new());
        if falls {
            takes.extend(cascade::takes(self.moment, name, Loss::Down));
            touches.insert(name);
        }
        if let Some(mtu) = mtu.filter(|mtu| *mtu < IPV6_MIN_MTU) {
            let lowered = cascade::lowered_with(&self.moment.table, name, mtu, joins);
            let lost = |link: &LinkName| cascade::lost_on(self.moment, *link, Loss::Ipv6);
            takes.extend(lowered.iter().flat_map(lost));
            touches.extend(lowered);
        }
        if mac_changes {
            takes.extend(cascade::lost_on(self.moment, name, Loss::Mac));
            touches.insert(name);
        }
        let mut named = BTreeSet::new();
        takes.retain(|taken| named.insert(taken.key.clone()));
        (takes, touches.into_iter().collect())
    }

    fn put_links(&mut self) {
        let links = std::mem::take(&mut self.links);
        let mut links: Vec<(LinkName, Need)> = links.into_iter().collect();
        links.sort_by_cached_key(|(name, _)| (depth(&self.desired.links, *name), *name));
        for (name, need) in links {
            let Some(declared) = self.desired.links.link(name) else { continue };
            if let Some(on) = self.blocker(declared) {
                self.plan.pending.push(Pending { key: Key::Link(name), on });
            } else if let Some(failure) = self.taken_name(declared, &need) {
                self.plan.refused.push(Refused { key: Key::Link(name), failure });
            } else {
                self.put_link(declared, need);
            }
        }
    }

    fn put_link(&mut self, declared: &DesiredLink, need: Need) {
        let name = declared.name;
        let is_new = !matches!(need, Need::Change { .. });
        if is_new {
            self.plan.made.insert(name);
            self.plan.made.extend(declared.peer_here());
        }
        let (before, adopts, act) = match need {
            Need::Make => (None, None, Act::Create),
            Need::Change { before, adopts } => {
                let cycle = self.cycle(declared, &before);
                (Some(before), adopts, Act::Update(cycle))
            }
            Need::MakeAgain { before } => (Some(before), None, Act::Replace),
        };
        let (takes, touches) = match (&act, &before) {
            (Act::Replace, _) => {
                let going = cascade::going_with(&self.moment.table, name);
                (cascade::takes(self.moment, name, Loss::Gone), going.into_iter().collect())
            }
            (Act::Update(cycle), Some(before)) => {
                self.loss(name, &Effects::of_change(&declared.link, before, *cycle))
            }
            // A fresh link has nothing to lose, but its bridge may have.
            _ => {
                let (mtu, joins) = (declared.link.mtu, declared.link.master);
                let mtu = mtu.filter(|_| joins.is_some());
                self.loss(name, &Effects { mtu, joins, ..Effects::default() })
            }
        };
        let key = Key::Link(name);
        let (slot, before) = (self.desired.slot(&key, None), before.map(Object::Link));
        let step = LinkStep { key, slot, before, act, adopts, takes, touches };
        self.plan.steps.push(step);
    }

    /// Quirk `bonds-want-it-down` (Linux 6.1): a link that is up cannot be put into a bond, and a bond
    /// that is up keeps its LACP rate. A VRF sets links down and up by itself.
    fn cycle(&self, declared: &DesiredLink, before: &Link) -> Cycle {
        let left = declared.link.kind.left_of(&before.kind);
        let options = matches!(left, Some(LinkKind::Bond(bond)) if bond.needs_down());
        let joins = declared
            .link
            .master
            .filter(|master| before.master != Some(*master) || self.plan.renewed.contains(master));
        let is_up = before.up == Some(true);
        let must_fall =
            is_up && (options || joins.is_some_and(|master| self.wants_it_down(master)));
        if must_fall { Cycle::DownFirst } else { Cycle::Stay }
    }

    fn wants_it_down(&self, master: LinkName) -> bool {
        let declared = self.desired.links.link(master).map(|desired| &desired.link.kind);
        let seen = self.moment.table.get(master).map(|seen| &seen.link.kind);
        let mut kinds = declared.into_iter().chain(seen);
        kinds.any(|kind| matches!(kind, LinkKind::Bond(_) | LinkKind::Vrf(_)))
    }

    /// Puts the steps in order; what a bond prefers is set once it has its links.
    fn finish(mut self) -> LinkPlan {
        let desired = self.desired;
        self.plan.steps.sort_by_cached_key(|step| depth_of_key(&desired.links, &step.key));
        let prefers = |step: &&LinkStep| {
            let made = matches!(step.act, Act::Create | Act::Update(_) | Act::Replace);
            let link = match step.key {
                Key::Link(name) => desired.links.link(name),
                _ => None,
            };
            let primary = link.and_then(|desired| match &desired.link.kind {
                LinkKind::Bond(bond) => bond.primary,
                _ => None,
            });
            made && primary.is_some()
        };
        let last: Vec<LinkStep> = self.plan.steps.iter().filter(prefers).map(finishing).collect();
        self.plan.steps.extend(last);
        self.plan
    }
}

fn finishing(step: &LinkStep) -> LinkStep {
    LinkStep {
        act: Act::Finish,
        adopts: None,
        takes: Vec::new(),
        touches: Vec::new(),
        ..step.clone()
    }
}

/// The link that a text names, if it names one.
fn name_in(setting: &Setting) -> Option<LinkName> {
    match setting {
        Setting::Text(text) => text.parse().ok(),
        _ => None,
    }
}
