//! The source: whose links, and what ties its parts to the contract.

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat_core::{ChangeList, Coverage, Draft, Fails, Failure, ScopeLock, Source};
use homeostat_netlink::{Connection, Error, Family};
use homeostat_netns::Netns;

use crate::apply::Writer;
use crate::key::Key;
use crate::model::{DesiredState, Value};
use crate::observe::{Moment, Reader};
use crate::plan;
use crate::step::Step;

/// The links of one namespace.
#[derive(Clone, Debug, Default)]
pub struct Ethtool {
    /// Whose links are meant; without one, those of the calling thread's namespace.
    pub netns: Option<Arc<Netns>>,
    /// Settings that other owners hold, each with its owner: they are foreign to us.
    pub others: BTreeMap<Key, String>,
}

impl Ethtool {
    /// The links of a namespace.
    #[must_use]
    pub fn new(netns: Option<Arc<Netns>>) -> Self {
        Ethtool { netns, others: BTreeMap::new() }
    }

    pub(crate) fn connect(&self) -> Result<Connection, Error> {
        match &self.netns {
            Some(netns) => Connection::open_in(netns, Family::Generic),
            None => Connection::open(Family::Generic),
        }
    }
}

impl Source for Ethtool {
    const NAME: &'static str = "ethtool";
    const FAILS: Fails = Fails::Independent;
    // What a driver changes by itself is not announced.
    const COVERAGE: Coverage = Coverage::Some;

    type Key = Key;
    type Object = Value;
    type Desired = DesiredState;
    type Step = Step;
    type Moment = Moment;
    type Reader = Reader;
    type Writer = Writer;

    fn reader(&self) -> Result<Reader, Failure> {
        Ok(Reader::new(self.clone()))
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Writer, Failure> {
        Ok(Writer { source: self.clone() })
    }

    fn is_same(&self, other: &Self) -> bool {
        let is_same_netns = match (&self.netns, &other.netns) {
            // Namespaces that cannot be compared are different.
            (Some(netns), Some(other)) => netns.same_as(other).unwrap_or(false),
            (netns, other) => netns.is_none() && other.is_none(),
        };
        is_same_netns && self.others == other.others
    }

    fn plan(
        &self,
        desired: &DesiredState,
        moment: &Moment,
        changes: ChangeList<Key, Value>,
    ) -> Draft<Self> {
        plan::draft(desired, moment, changes)
    }
}
