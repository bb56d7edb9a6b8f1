//! Which link comes before which: parents before what stands on them, masters before their slaves.

use crate::key::Key;
use crate::link::LinkName;
use crate::links::desired::DesiredLinks;
use crate::links::field::{Field, Setting};

/// Deeper than links can be stacked: who is deeper refers to himself in a circle.
const DEEPEST: usize = 32;

/// How many declared links have to be there before the one of this name.
pub(crate) fn depth(desired: &DesiredLinks, name: LinkName) -> usize {
    below(desired, name, DEEPEST)
}

fn below(desired: &DesiredLinks, name: LinkName, left: usize) -> usize {
    let Some(maker) = desired.maker_of(name).filter(|_| left > 0) else { return 0 };
    let parent = maker.link.parent.as_ref().filter(|parent| parent.namespace.is_none());
    let others = parent.map(|parent| parent.name).into_iter().chain(maker.link.master);
    1 + others.map(|other| below(desired, other, left - 1)).max().unwrap_or(0)
}

/// The same for the step of a key; a field comes after its link.
pub(crate) fn depth_of_key(desired: &DesiredLinks, key: &Key) -> usize {
    match key {
        Key::Link(name) => depth(desired, *name),
        Key::LinkField(name, field) => {
            let master = desired
                .fields
                .iter()
                .find(|desired| desired.name == *name && desired.field == *field);
            let master = master.filter(|_| *field == Field::Master).map(|desired| &desired.setting);
            let master = match master {
                Some(Setting::Text(master)) => master.parse().ok(),
                _ => None,
            };
            1 + depth(desired, *name).max(master.map_or(0, |master| depth(desired, master)))
        }
        _ => 0,
    }
}
