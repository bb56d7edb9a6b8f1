//! The source: whose links, and what ties its parts to the contract.

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat_core::{ChangeList, Coverage, Draft, Fails, Failure, ScopeLock, Source};
use homeostat_netlink::{Connection, Family, Group, Listener, Options};
use homeostat_netns::Netns;

use crate::apply::Writer;
use crate::hints::OwnPorts;
use crate::kernel::{Kernel, failure};
use crate::key::Key;
use crate::model::{DesiredState, Object};
use crate::observe::{Moment, Reader};
use crate::plan;
use crate::step::Step;

/// The queues of the links of one network namespace.
#[derive(Clone, Debug)]
pub struct Qdiscs {
    netns: Option<Arc<Netns>>,
    /// Sides that other owners hold, each with its owner: they are foreign to us.
    pub(crate) others: Arc<BTreeMap<Key, String>>,
    pub(crate) own_ports: Arc<OwnPorts>,
}

impl Qdiscs {
    /// Those of the calling thread's namespace.
    #[must_use]
    pub fn here() -> Self {
        Qdiscs { netns: None, others: Arc::default(), own_ports: Arc::default() }
    }

    /// Those of another namespace, which is kept alive by this.
    #[must_use]
    pub fn of(netns: Arc<Netns>) -> Self {
        Qdiscs { netns: Some(netns), ..Self::here() }
    }

    /// Says which sides of links other owners keep, with the owner of each.
    #[must_use]
    pub fn with_others(mut self, others: BTreeMap<Key, String>) -> Self {
        self.others = Arc::new(others);
        self
    }

    pub(crate) fn connect(&self) -> Result<Connection, Failure> {
        let connection = match &self.netns {
            Some(netns) => Connection::open_in(netns, Family::Route),
            None => Connection::open(Family::Route),
        };
        let connection = connection.map_err(|error| failure(&error))?;
        self.own_ports.add(connection.socket().port());
        Ok(connection)
    }

    pub(crate) fn kernel(&self) -> Result<Kernel, Failure> {
        self.connect().map(Kernel)
    }

    pub(crate) fn listen(&self, groups: &[Group]) -> Result<Listener, Failure> {
        let options = Options::for_events();
        let listener = match &self.netns {
            Some(netns) => Listener::open_in(netns, Family::Route, groups, &options),
            None => Listener::open(Family::Route, groups, &options),
        };
        listener.map_err(|error| failure(&error))
    }
}

impl Source for Qdiscs {
    const NAME: &'static str = "qdisc";
    const FAILS: Fails = Fails::Independent;
    const COVERAGE: Coverage = Coverage::All;

    type Key = Key;
    type Object = Object;
    type Desired = DesiredState;
    type Step = Step;
    type Moment = Moment;
    type Reader = Reader;
    type Writer = Writer;

    fn reader(&self) -> Result<Reader, Failure> {
        Reader::new(self.clone())
    }

    fn reader_without_hints(&self) -> Result<Reader, Failure> {
        Reader::without_hints(self.clone())
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
        changes: ChangeList<Key, Object>,
    ) -> Draft<Self> {
        plan::draft(desired, moment, changes)
    }
}
