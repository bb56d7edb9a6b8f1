//! Looks at the neighbours. What the kernel learned by itself counts as absent.

use std::collections::BTreeSet;

use homeostat_core::Owner;
use homeostat_netlink::uapi::{NTF_PROXY, RTM_GETNEIGH};
use homeostat_netlink::{Batch, Error};

use crate::desired::DesiredState;
use crate::key::Key;
use crate::model::Object;
use crate::moment::Moment;
use crate::neighbour::NeighbourKey;
use crate::neighbour::decode::{Nature, SeenNeighbour, neighbour};
use crate::observe::{Look, foreign, request_for};

impl Look<'_, '_> {
    pub(crate) fn neighbours(&mut self, moment: &mut Moment) -> Result<(), Error> {
        // Proxy entries are told only to who asks for them.
        for flags in [0, NTF_PROXY] {
            let mut request = Batch::new();
            let fixed = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, flags, 0];
            request_for(&mut request, RTM_GETNEIGH, &fixed, None)?;
            let links = &moment.links;
            let found = self.collect(&mut request, |message| neighbour(message, links))?;
            for seen in &found {
                self.neighbour(seen, moment);
            }
        }
        Ok(())
    }

    fn neighbour(&mut self, seen: &SeenNeighbour, moment: &mut Moment) {
        let SeenNeighbour { key, neighbour, protocol, nature } = *seen;
        let owner = match nature {
            Nature::Learned => {
                moment.learned.insert(key);
                return;
            }
            Nature::LearnedElsewhere => Owner::foreign("a program that learns neighbours"),
            Nature::Derived => Owner::Kernel,
            Nature::Told if protocol == self.source.protocol => Owner::Ours,
            Nature::Told => foreign(protocol),
        };
        moment.foreign.note_neighbour(key, &owner);
        self.hand_on(Key::Neighbour(key), Object::Neighbour(neighbour), owner);
    }
}

/// The neighbours that are declared.
pub(crate) fn declared(desired: &DesiredState) -> BTreeSet<NeighbourKey> {
    let keys = desired.others.iter().filter_map(|desired| match desired.key {
        Key::Neighbour(key) => Some(key),
        _ => None,
    });
    keys.collect()
}
