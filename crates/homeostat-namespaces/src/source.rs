//! The source: whose namespaces, and what ties its parts to the contract.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::{ChangeList, Coverage, Draft, Fails, Failure, ScopeLock, Source};

use crate::apply::Writer;
use crate::key::Key;
use crate::mark::Mark;
use crate::model::{DesiredState, Namespace};
use crate::observe::{Moment, Reader};
use crate::plan;
use crate::step::Step;

/// The named network namespaces of the caller's `/run/netns`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespaces {
    pub(crate) mark: Mark,
    /// No set is empty.
    tables: BTreeMap<Key, BTreeSet<OwnTable>>,
}

/// A table of nftables without our mark that is ours all the same: it was taken over, and the kernel does
/// not let it be marked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnTable {
    /// Its family and name, as `nft` writes them: `table inet filter`.
    pub name: String,
    /// The kernel's number for it, which another of the same name has not.
    pub handle: u64,
}

impl Namespaces {
    /// The namespaces of one owner, who marks what is inside with this.
    #[must_use]
    pub fn new(mark: Mark) -> Self {
        Namespaces { mark, tables: BTreeMap::new() }
    }

    /// Knows which unmarked tables inside of a namespace are ours.
    #[must_use]
    pub fn owning(mut self, namespace: Key, tables: impl IntoIterator<Item = OwnTable>) -> Self {
        let mut tables = tables.into_iter().peekable();
        if tables.peek().is_some() {
            self.tables.entry(namespace).or_default().extend(tables);
        }
        self
    }

    /// Whether an unmarked table inside of a namespace is ours.
    pub(crate) fn owns(&self, namespace: &Key, table: &OwnTable) -> bool {
        self.tables.get(namespace).is_some_and(|tables| tables.contains(table))
    }
}

impl Source for Namespaces {
    const NAME: &'static str = "namespaces";
    const FAILS: Fails = Fails::Independent;
    const COVERAGE: Coverage = Coverage::None;

    type Key = Key;
    type Object = Namespace;
    type Desired = DesiredState;
    type Step = Step;
    type Moment = Moment;
    type Reader = Reader;
    type Writer = Writer;

    fn reader(&self) -> Result<Reader, Failure> {
        Ok(Reader { source: self.clone() })
    }

    fn is_same(&self, other: &Self) -> bool {
        self == other
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Writer, Failure> {
        Ok(Writer { source: self.clone() })
    }

    fn plan(
        &self,
        desired: &DesiredState,
        moment: &Moment,
        changes: ChangeList<Key, Namespace>,
    ) -> Draft<Self> {
        plan::draft(desired, moment, changes)
    }
}
