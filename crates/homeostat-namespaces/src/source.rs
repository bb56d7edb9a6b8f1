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
#[derive(Clone, Debug)]
pub struct Namespaces {
    pub(crate) mark: Mark,
    tables: BTreeMap<Key, BTreeSet<OwnTable>>,
}

/// A table of nftables without our mark that is ours all the same: it was taken over, and the kernel lets
/// nobody mark it.
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
        self.tables.entry(namespace).or_default().extend(tables);
        self
    }

    /// By what things inside of a namespace are known for ours.
    pub(crate) fn signs(&self, namespace: &Key) -> Signs<'_> {
        Signs { mark: &self.mark, tables: self.tables.get(namespace) }
    }
}

/// What tells ours from others'.
#[derive(Clone, Copy)]
pub(crate) struct Signs<'a> {
    pub(crate) mark: &'a Mark,
    tables: Option<&'a BTreeSet<OwnTable>>,
}

impl Signs<'_> {
    pub(crate) fn is_own(&self, table: &OwnTable) -> bool {
        self.tables.is_some_and(|tables| tables.contains(table))
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
        Ok(Reader::new(self.clone()))
    }

    fn is_same(&self, other: &Self) -> bool {
        // A namespace without such tables is as one that is not listed.
        let tables = |source: &Self| {
            let listed = source.tables.iter().filter(|(_, tables)| !tables.is_empty());
            listed.map(|(key, tables)| (key.clone(), tables.clone())).collect::<Vec<_>>()
        };
        self.mark == other.mark && tables(self) == tables(other)
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Writer, Failure> {
        Ok(Writer::new(self.clone()))
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
