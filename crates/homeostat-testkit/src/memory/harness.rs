//! The source in memory, ready for the law suite.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use homeostat_engine::{Ownership, Table};

use super::source::{Behaviour, Flaw, Memory};
use super::target::{Faults, Mark, Target};
use crate::laws::{Ability, DesiredState, Disturbance, Fault, Harness, Meter};

/// The harness of [`Memory`].
pub struct Bench<M> {
    target: Target,
    ownership: Ownership,
    flaw: Option<Flaw>,
    kind: Kind,
    behaviour: PhantomData<fn() -> M>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Objects that are created and deleted.
    Objects,
    /// Values that always exist.
    Values,
}

impl<M: Behaviour> Bench<M> {
    /// With marks in the target if `ownership` is by marks, else without.
    #[must_use]
    pub fn new(ownership: Ownership) -> Self {
        Bench {
            target: Target::default(),
            ownership,
            flaw: None,
            kind: Kind::Objects,
            behaviour: PhantomData,
        }
    }

    /// With values that always exist and belong to nobody.
    #[must_use]
    pub fn of_values() -> Self {
        Bench { kind: Kind::Values, ..Self::new(Ownership::Checkpoint) }
    }

    /// With a broken source.
    #[must_use]
    pub fn flawed(flaw: Flaw) -> Self {
        Bench { flaw: Some(flaw), ..Self::new(Ownership::Marked) }
    }

    /// With a broken source over a target that cannot hold marks.
    #[must_use]
    pub fn flawed_without_marks(flaw: Flaw) -> Self {
        Bench { flaw: Some(flaw), ..Self::new(Ownership::Checkpoint) }
    }
}

impl<M: Behaviour> Harness for Bench<M> {
    type Source = Memory<M>;

    fn reset(&mut self) {
        self.target = Target::default();
        if self.kind == Kind::Values {
            for key in ["web", "web/a", "web/b", "web/c"] {
                self.target.add(key, "original", Mark::Foreign);
            }
        }
    }

    fn source(&self) -> Memory<M> {
        let target = self.target.clone();
        let source = match (self.kind, &self.ownership) {
            (Kind::Values, _) => Memory::values(target),
            (Kind::Objects, Ownership::Marked) => Memory::marked(target),
            (Kind::Objects, _) => Memory::unmarked(target),
        };
        source.with(self.flaw)
    }

    fn ownership(&self) -> Ownership {
        self.ownership.clone()
    }

    fn desired(&self, which: DesiredState) -> Table<String, String> {
        let pairs: &[_] = match which {
            DesiredState::First => &[("web", "one"), ("web/a", "two"), ("web/b", "three")],
            DesiredState::Second => &[("web", "other"), ("web/b", "three"), ("web/c", "four")],
            DesiredState::Nothing => &[],
        };
        let owned = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Table::new(owned).unwrap_or_default()
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        self.target.snapshot()
    }

    fn meter(&self) -> Meter {
        let target = self.target.clone();
        Arc::new(move || target.writes())
    }

    fn disturb(&mut self, how: Disturbance<'_, String>) -> Ability {
        match how {
            Disturbance::Remove(_) | Disturbance::Occupy(_) if self.kind == Kind::Values => {
                return Ability::Unable;
            }
            Disturbance::Remove(key) => self.target.remove(key),
            Disturbance::Alter(key) => self.target.alter(key, "altered"),
            Disturbance::Stranger => self.target.add("stranger", "theirs", Mark::Foreign),
            Disturbance::Occupy(key) => self.target.add(key, "theirs", Mark::Foreign),
        }
        Ability::Done
    }

    fn inject(&mut self, fault: Fault<'_, String>) -> Ability {
        self.target.faults(|faults| match fault {
            Fault::Blind => faults.blind = true,
            Fault::Unreadable(key) => _ = faults.unreadable.insert(key.clone()),
            Fault::Refuse(key) => _ = faults.refused.insert(key.clone()),
        });
        Ability::Done
    }

    fn mend(&mut self) {
        self.target.faults(|faults| *faults = Faults::default());
    }
}
