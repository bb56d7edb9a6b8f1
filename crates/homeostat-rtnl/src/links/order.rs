//! Which link comes before which: parents before what stands on them, masters before their slaves.

use crate::key::Key;
use crate::link::LinkName;
use crate::links::field::{Field, Setting};
use crate::links::wish::WishedLinks;

/// Deeper than links can be stacked: who is deeper refers to himself in a circle.
const DEEPEST: usize = 32;

/// How many wished links have to be there before the one of this name.
pub(crate) fn depth(wish: &WishedLinks, name: LinkName) -> usize {
    below(wish, name, DEEPEST)
}

fn below(wish: &WishedLinks, name: LinkName, left: usize) -> usize {
    let Some(maker) = wish.maker_of(name).filter(|_| left > 0) else { return 0 };
    let parent = maker.link.parent.as_ref().filter(|parent| parent.namespace.is_none());
    let others = parent.map(|parent| parent.name).into_iter().chain(maker.link.master);
    1 + others.map(|other| below(wish, other, left - 1)).max().unwrap_or(0)
}

/// The same for the step of a key; a field comes after its link.
pub(crate) fn depth_of_key(wish: &WishedLinks, key: &Key) -> usize {
    match key {
        Key::Link(name) => depth(wish, *name),
        Key::LinkField(name, field) => {
            let master = wish.fields.iter().find(|wish| wish.name == *name && wish.field == *field);
            let master = master.filter(|_| *field == Field::Master).map(|wish| &wish.setting);
            let master = match master {
                Some(Setting::Text(master)) => master.parse().ok(),
                _ => None,
            };
            1 + depth(wish, *name).max(master.map_or(0, |master| depth(wish, master)))
        }
        _ => 0,
    }
}
