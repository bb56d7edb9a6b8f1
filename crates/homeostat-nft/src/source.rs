//! The source: whose tables it keeps, in which namespace, and its implementation of the contract.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homeostat_core::{ChangeList, Coverage, Draft, Fails, Failure, ScopeLock, Source};
use homeostat_netlink::{Connection, Family, Group, Limits, Listener, Options, Port, Socket};
use homeostat_netns::Netns;

use crate::apply::Writer;
use crate::desired::DesiredState;
use crate::error::Error;
use crate::hints::Notifications;
use crate::key::Key;
use crate::mark::Mark;
use crate::object::Object;
use crate::observe::{Moment, Reader};
use crate::step::Step;
use crate::{dump, plan};

/// The tables of one network namespace.
#[derive(Clone, Debug)]
pub struct Nft {
    netns: Option<Arc<Netns>>,
    pub(crate) mark: Mark,
    pub(crate) own_ports: OwnPorts,
    /// How many transactions were refused. Each is a reason to read what the shadow says.
    pub(crate) refused: Arc<AtomicU64>,
    pub(crate) wording: Wording,
}

/// How plans describe rules that the desired state does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wording {
    /// By the names of their expressions. Rules of the desired state whose lines are known are described by those alone.
    #[default]
    Parts,
    /// As `nft` lists them, which costs a listing of each table that differs: for plans that people read.
    Listed,
}

/// Room for an error about every message of a large transaction.
const RECEIVE_BUFFER: usize = 8 << 20;

impl Nft {
    /// Those of the calling thread's namespace.
    #[must_use]
    pub fn here(mark: Mark) -> Self {
        let (own_ports, refused) = (OwnPorts::default(), Arc::default());
        Nft { netns: None, mark, own_ports, refused, wording: Wording::Parts }
    }

    /// Those of another namespace, which is kept alive by this.
    #[must_use]
    pub fn of(netns: Arc<Netns>, mark: Mark) -> Self {
        Nft { netns: Some(netns), ..Self::here(mark) }
    }

    #[must_use]
    pub fn with_wording(self, wording: Wording) -> Self {
        Nft { wording, ..self }
    }

    /// Whether any table carries our mark. Where tables cannot be listed, none does.
    #[must_use]
    pub fn owns_any(&self) -> bool {
        let heads = self.connect(Family::Netfilter).and_then(|mut open| dump::heads(&mut open));
        let is_ours = |head: &dump::Head| head.comment.mark.as_ref() == Some(&self.mark);
        heads.is_ok_and(|heads| heads.iter().any(is_ours))
    }

    pub(crate) fn connect(&self, family: Family) -> Result<Connection, Error> {
        let options = Options { receive_buffer: Some(RECEIVE_BUFFER), ..Options::default() };
        let socket = match &self.netns {
            Some(netns) => Socket::open_in(netns, family, &options)?,
            None => Socket::open(family, &options)?,
        };
        Ok(Connection::new(socket, Limits::default()))
    }

    pub(crate) fn listen(&self, family: Family, group: Group) -> Result<Listener, Error> {
        let (groups, options) = ([group], Options::for_events());
        Ok(match &self.netns {
            Some(netns) => Listener::open_in(netns, family, &groups, &options)?,
            None => Listener::open(family, &groups, &options)?,
        })
    }

    /// Runs something in the source's namespace.
    pub(crate) fn run<T: Send>(
        &self,
        task: impl FnOnce() -> T + Send,
    ) -> Result<T, homeostat_netns::Error> {
        match &self.netns {
            Some(netns) => netns.run(task),
            None => Ok(task()),
        }
    }
}

/// The netlink ports from which our own transactions come.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnPorts(Arc<Mutex<PortLists>>);

#[derive(Debug, Default)]
struct PortLists {
    sockets: BTreeSet<u32>,
    /// Process ids of the last programs that we ran, which are their ports. The kernel uses process ids again, so
    /// that only a few are kept.
    children: VecDeque<u32>,
}

const MOST_CHILDREN: usize = 16;

impl OwnPorts {
    fn lists(&self) -> MutexGuard<'_, PortLists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, port: Port) {
        self.lists().sockets.insert(port.0);
    }

    pub(crate) fn remove(&self, port: Port) {
        self.lists().sockets.remove(&port.0);
    }

    pub(crate) fn add_child(&self, port: Port) {
        let mut lists = self.lists();
        lists.children.push_front(port.0);
        lists.children.truncate(MOST_CHILDREN);
    }

    pub(crate) fn contain(&self, port: Port) -> bool {
        let lists = self.lists();
        lists.sockets.contains(&port.0) || lists.children.contains(&port.0)
    }
}

impl Source for Nft {
    const NAME: &'static str = "nft";
    /// All tables are one transaction, but one that is refused does not hold back the others.
    const FAILS: Fails = Fails::Independent;
    /// No event announces an element that expires.
    const COVERAGE: Coverage = Coverage::Some;

    type Key = Key;
    type Object = Object;
    type Desired = DesiredState;
    type Step = Step;
    type Moment = Moment;
    type Reader = Reader;
    type Writer = Writer;

    fn reader(&self) -> Result<Reader, Failure> {
        Ok(Reader::open(self.clone(), Notifications::open(self)?)?)
    }

    fn reader_without_hints(&self) -> Result<Reader, Failure> {
        Ok(Reader::open(self.clone(), Notifications::closed(self))?)
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Writer, Failure> {
        Ok(Writer::open(self.clone())?)
    }

    fn is_same(&self, other: &Self) -> bool {
        let netns = match (&self.netns, &other.netns) {
            (Some(netns), Some(other)) => netns.same_as(other).unwrap_or(false),
            (None, None) => true,
            _ => false,
        };
        netns && self.mark == other.mark && self.wording == other.wording
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
