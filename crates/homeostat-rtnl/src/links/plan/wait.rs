//! What links wait for, and names that are taken.

use homeostat_core::{Failure, Retry, WaitsOn};

use super::{Drafting, Need};
use crate::links::desired::DesiredLink;
use crate::links::model::LinkRef;

impl Drafting<'_> {
    /// What a link waits for.
    pub(super) fn blocker(&self, declared: &DesiredLink) -> Option<WaitsOn> {
        let is_there = |name| self.plan.will_have(self.moment, name);
        let master = declared.link.master.filter(|master| !is_there(*master));
        let master = master.map(|master| WaitsOn::Link(master.to_string()));
        let parent = || declared.link.parent.as_ref().and_then(|parent| self.absent(parent));
        let space = || {
            let space = declared.peer()?.namespace.as_deref()?;
            self.moment.elsewhere.get(space).is_none().then(|| WaitsOn::Namespace(space.to_owned()))
        };
        master.or_else(parent).or_else(space)
    }

    /// What is missing of a link, here or elsewhere.
    fn absent(&self, link: &LinkRef) -> Option<WaitsOn> {
        let name = link.name;
        match link.namespace.as_deref() {
            Some(space) if !self.moment.elsewhere.is_here(Some(space)) => {
                match self.moment.elsewhere.get(space) {
                    None => Some(WaitsOn::Namespace(space.to_owned())),
                    Some(found) if found.has(name) => None,
                    Some(_) => Some(WaitsOn::Link(format!("{name} in namespace {space}"))),
                }
            }
            _ => (!self.plan.will_have(self.moment, name)).then(|| WaitsOn::Link(name.to_string())),
        }
    }

    /// The kernel says only that something exists, not which end.
    pub(super) fn taken_name(&self, declared: &DesiredLink, need: &Need) -> Option<Failure> {
        let peer = declared.peer().filter(|_| matches!(need, Need::Make))?;
        let name = peer.name;
        let there = peer.namespace.as_deref().and_then(|space| self.moment.elsewhere.get(space));
        let is_taken = match there.filter(|space| !space.is_here) {
            Some(space) => space.has(name),
            None => self.moment.links.index(name).is_some() && !self.plan.renewed.contains(&name),
        };
        let words = || format!("the name `{name}` of its other end is taken there");
        is_taken.then(|| Failure::new(words(), Retry::OnChange).with_help("rename one of the two"))
    }
}
