//! Which kinds of objects a look at everything may leave out. Pure.
//!
//! Most scopes declare links, addresses and routes only. Their looks need not dump the other kinds each time: the kernel
//! walks the neighbours of all namespaces for the dump of one (Linux 6.18).

use std::collections::BTreeSet;

use homeostat_core::View;

use crate::key::Key;
use crate::source::Rtnl;

/// A kind that a look at everything may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Nexthop,
    Rule,
    Neighbour,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Nexthop, Kind::Rule, Kind::Neighbour];

    pub(crate) fn of(key: &Key) -> Option<Self> {
        match key {
            Key::Nexthop(_) => Some(Kind::Nexthop),
            Key::Rule(_) => Some(Kind::Rule),
            Key::Neighbour(_) => Some(Kind::Neighbour),
            _ => None,
        }
    }
}

/// The kinds of which nothing is declared or recorded and nothing was ours at their last dump, and of which no event has
/// announced one of ours since.
#[derive(Debug, Default)]
pub(crate) struct UnusedKinds {
    kinds: BTreeSet<Kind>,
    /// How many looks at everything have left them out.
    looks: u32,
}

impl UnusedKinds {
    /// How many looks in a row leave a kind out. The kernel does not announce proxy neighbours, and others are
    /// received only where some are declared: a stray one is found by the look after these.
    pub(crate) const MOST_LOOKS: u32 = 9;

    /// What a look learned that has dumped every kind: of which kinds something is ours.
    pub(crate) fn after_all(view: &View<'_, Rtnl>, ours: &BTreeSet<Kind>) -> Self {
        let declared = view.desired.others.iter().map(|declared| &declared.key);
        let used = declared.chain(view.records.keys()).filter_map(Kind::of);
        let used: BTreeSet<Kind> = used.chain(ours.iter().copied()).collect();
        let kinds = Kind::ALL.into_iter().filter(|kind| !used.contains(kind)).collect();
        UnusedKinds { kinds, looks: 0 }
    }

    /// The kinds that the look at everything that begins may leave out. None, if it is time to dump all.
    pub(crate) fn for_look(&mut self) -> BTreeSet<Kind> {
        if self.looks == Self::MOST_LOOKS {
            *self = Self::default();
        }
        self.looks += 1;
        self.kinds.clone()
    }

    /// There is one of ours.
    pub(crate) fn is_used(&mut self, kind: Kind) {
        self.kinds.remove(&kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_left_out_until_it_is_used_or_time_is_over() {
        let mut unused = UnusedKinds { kinds: Kind::ALL.into(), looks: 0 };
        assert_eq!(unused.for_look(), Kind::ALL.into());
        unused.is_used(Kind::Rule);
        for _ in 1..UnusedKinds::MOST_LOOKS {
            assert_eq!(unused.for_look(), [Kind::Nexthop, Kind::Neighbour].into());
        }
        assert!(unused.for_look().is_empty());
    }
}
