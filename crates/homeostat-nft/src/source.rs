//! The source: whose tables it keeps, in which namespace, and what ties its parts to the contract.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homeostat_core::{ChangeList, Coverage, Draft, Fails, Failure, ScopeLock, Source};
use homeostat_netlink::{Connection, Family, Group, Limits, Listener, Options, Port, Socket};
use homeostat_netns::Netns;

use crate::apply::Writer;
use crate::desired::DesiredState;
use crate::error::Error;
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
    pub(crate) ours: Ports,
    pub(crate) refusals: Refusals,
    pub(crate) wording: Wording,
}

/// How plans speak of rules that the desired state does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wording {
    /// By what they are made of.
    #[default]
    Parts,
    /// As `nft` lists them, which costs a listing of each table that differs: for who plans for people.
    Listed,
}

impl Nft {
    /// Speaks of rules in another way.
    #[must_use]
    pub fn with_wording(self, wording: Wording) -> Self {
        Nft { wording, ..self }
    }

    /// Those of the calling thread's namespace.
    #[must_use]
    pub fn here(mark: Mark) -> Self {
        let (ours, refusals) = (Ports::default(), Refusals::default());
        Nft { netns: None, mark, ours, refusals, wording: Wording::Parts }
    }

    /// Those of another namespace, which is kept alive by this.
    #[must_use]
    pub fn of(netns: Arc<Netns>, mark: Mark) -> Self {
        Nft { netns: Some(netns), ..Self::here(mark) }
    }

    /// Whether any table carries our mark. Where nobody may look, or the kernel has no tables, none does.
    #[must_use]
    pub fn owns_any(&self) -> bool {
        let heads = self.connect(Family::Netfilter).and_then(|mut open| dump::heads(&mut open));
        let is_ours = |head: &dump::Head| head.words.mark.as_ref() == Some(&self.mark);
        heads.is_ok_and(|heads| heads.iter().any(is_ours))
    }

    pub(crate) fn connect(&self, family: Family) -> Result<Connection, Error> {
        let options = Options { receive_buffer: Some(BUFFER), ..Options::default() };
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

    /// Runs something on the source's network.
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

/// Room for an error about every message of a large transaction.
const BUFFER: usize = 8 << 20;

/// How many transactions did not fit what was there. Each is a reason to read what was only told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals(Arc<AtomicU64>);

impl Refusals {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The sockets that our own transactions come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    ours: BTreeSet<u32>,
    /// Of programs that we ran last; numbers of processes come again, so that only a few are kept.
    children: VecDeque<u32>,
}

const CHILDREN: usize = 16;

impl Ports {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, port: Port) {
        self.known().ours.insert(port.0);
    }

    pub(crate) fn remove(&self, port: Port) {
        self.known().ours.remove(&port.0);
    }

    pub(crate) fn add_child(&self, port: Port) {
        let mut known = self.known();
        known.children.push_front(port.0);
        known.children.truncate(CHILDREN);
    }

    pub(crate) fn contain(&self, port: Port) -> bool {
        let known = self.known();
        known.ours.contains(&port.0) || known.children.contains(&port.0)
    }
}

impl Source for Nft {
    const NAME: &'static str = "nft";
    const FAILS: Fails = Fails::Atomic;
    /// All but elements whose time has run out.
    const COVERAGE: Coverage = Coverage::Some;

    type Key = Key;
    type Object = Object;
    type Desired = DesiredState;
    type Step = Step;
    type Moment = Moment;
    type Reader = Reader;
    type Writer = Writer;

    fn reader(&self) -> Result<Reader, Failure> {
        Reader::open(self.clone()).map_err(|error| error.failure())
    }

    fn reader_without_hints(&self) -> Result<Reader, Failure> {
        Reader::open_deaf(self.clone()).map_err(|error| error.failure())
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Writer, Failure> {
        Writer::open(self.clone()).map_err(|error| error.failure())
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
        _moment: &Moment,
        changes: ChangeList<Key, Object>,
    ) -> Draft<Self> {
        plan::draft(desired, changes)
    }
}
