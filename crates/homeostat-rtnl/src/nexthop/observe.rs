//! Looks at the nexthops, and learns which of ours will go and may take others' routes along.

use homeostat_core::{Desired as _, Owner};
use homeostat_netlink::uapi::RTM_GETNEXTHOP;
use homeostat_netlink::{Batch, Error};

use crate::key::Key;
use crate::model::Object;
use crate::moment::Moment;
use crate::nexthop::decode::{SeenNexthop, nexthop};
use crate::nexthop::{Nexthop, NexthopId, is_same_kind};
use crate::observe::{Look, request_for, route_owner};

/// A nexthop that is there.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) id: NexthopId,
    pub(crate) owner: Owner,
    pub(crate) members: Vec<NexthopId>,
}

impl Look<'_, '_> {
    /// Dumps nexthops. Tells whether one of them goes, for good or for a moment: its routes go
    /// along, wherever they are.
    pub(crate) fn nexthops(&mut self, moment: &mut Moment) -> Result<bool, Error> {
        let mut request = Batch::new();
        request_for(&mut request, RTM_GETNEXTHOP, &[0; 8], None)?;
        let links = &moment.links;
        let found = self.collect(&mut request, |message| nexthop(message, links))?;
        let mut goes = false;
        for SeenNexthop { id, nexthop, protocol } in found {
            let owner = route_owner(protocol, self.source.protocol);
            let key = Key::Nexthop(id);
            let is_kept = owner != Owner::Ours || !self.view.focus.covers(&key);
            goes |= !is_kept && !self.stays(&key, &nexthop);
            let members = nexthop.group.iter().map(|member| member.id).collect();
            moment.nexthops.push(Standing { id, owner: owner.clone(), members });
            if let Some(link) = nexthop.dev {
                moment.foreign.note_nexthop(link, id, &owner);
            }
            self.hand_on(key, Object::Nexthop(nexthop), owner);
        }
        Ok(goes)
    }

    fn stays(&self, key: &Key, seen: &Nexthop) -> bool {
        let slot = self.view.desired.slot(key, None);
        let desired = slot.map(|slot| self.view.desired.object(slot));
        matches!(desired, Some(Object::Nexthop(desired)) if is_same_kind(&desired, seen))
    }
}
