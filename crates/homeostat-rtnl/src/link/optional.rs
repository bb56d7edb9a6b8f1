//! Links that may be absent: what waits on one of them alone counts as converged. Pure.

use homeostat_core::{Draft, Finding, WaitsOn};

use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::model::Link;
use crate::source::Rtnl;

/// Marks the waits for links that may be absent, and for those that cannot be made without them.
pub(crate) fn mark_waits(draft: &mut Draft<Rtnl>, desired: &DesiredState) {
    let mut absent = desired.optional.clone();
    let mut has_grown = !absent.is_empty();
    while std::mem::take(&mut has_grown) {
        for (key, finding) in &mut draft.findings {
            let Finding::Pending { on } = finding else { continue };
            let WaitsOn::Link { name, namespace } = &*on else { continue };
            let waited_for = name.parse().ok().map(|name| (namespace.clone(), name));
            let link = match key {
                Key::Link(name) => Some(*name),
                _ => None,
            };
            let is_itself = link.is_some_and(|name| desired.is_optional(name));
            if !is_itself && !waited_for.is_some_and(|link| absent.contains(&link)) {
                continue;
            }
            *on = on.clone().optional();
            let made = link.and_then(|name| desired.link(name));
            let end = made.and_then(Link::peer_here);
            for name in link.into_iter().chain(end) {
                has_grown |= absent.insert((None, name));
            }
        }
    }
}
