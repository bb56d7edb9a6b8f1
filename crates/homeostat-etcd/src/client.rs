//! The client: which member is asked, for how long, and what its answers mean.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use homeostat_core::outcome::Later;
use homeostat_store::{
    Committed, Entry, Error, Guard, Keys, Lease, LeaseId, Renewal, Revision, Snapshot, Status,
    Store, Transaction, Watching, Write,
};
use prost::Message;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::connection::{CallError, Connection};
use crate::endpoint::{Config, Endpoint};
use crate::error::{Effect, Next, next};
use crate::messages::{
    CompactionRequest, CompactionResponse, Compare, CompareTarget, CompareValue,
    DeleteRangeRequest, KeyValue, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseRevokeResponse, Operation, PutRequest,
    RangeRequest, RangeResponse, RequestOp, ResponseHeader, StatusRequest, StatusResponse,
    TxnRequest, TxnResponse,
};
use crate::reconnect::Reconnect;
use crate::watch::EtcdWatch;

/// How many entries are listed by one call.
const PAGE: i64 = 500;
/// How often a list begins again whose revision was compacted meanwhile.
const LISTS: u32 = 3;
/// Before a member is asked again that refused for a change of rights.
const MOMENT: Duration = Duration::from_millis(20);

/// A store in etcd. It has one connection, to one member; another member is asked when that one fails.
pub struct EtcdStore {
    config: Config,
    link: Mutex<Link>,
}

struct Link {
    /// In the order in which they are asked.
    members: Vec<Endpoint>,
    /// Which of them is asked.
    chosen: usize,
    connection: Option<Arc<Connection>>,
    reconnect: Reconnect,
    not_before: Option<Instant>,
    leaderless: Option<Leaderless>,
}

/// The member knows no leader, and so did others before it.
#[derive(Clone, Copy)]
struct Leaderless {
    /// When another member is asked.
    until: Instant,
    /// How many members knew none before.
    before: u32,
}

impl EtcdStore {
    /// Connects with the first call.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let hash = |endpoint: &Endpoint| {
            let mut hasher = DefaultHasher::new();
            (&config.name, endpoint).hash(&mut hasher);
            hasher.finish()
        };
        let mut members = config.members.clone();
        members.sort_by_key(hash);
        let seed = members.first().map_or(0, hash) ^ u64::from(std::process::id());
        let reconnect = Reconnect::new(config.spread, seed);
        let link = Link {
            members,
            chosen: 0,
            connection: None,
            reconnect,
            not_before: None,
            leaderless: None,
        };
        EtcdStore { link: Mutex::new(link), config }
    }

    /// How it is reached.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Forgets the history before a revision, for all clients of the store.
    pub async fn compact(&self, revision: Revision) -> Result<(), Error> {
        let request = CompactionRequest { revision: signed(revision), physical: true };
        let path = "/etcdserverpb.KV/Compact";
        self.call::<_, CompactionResponse>(path, &request, Effect::Repeatable, None).await?;
        Ok(())
    }

    /// Asks until a member answers, all have failed, or the time is over.
    async fn call<Q: Message, A: Message + Default>(
        &self,
        path: &str,
        request: &Q,
        effect: Effect,
        lease: Option<LeaseId>,
    ) -> Result<A, Error> {
        let lease = lease.unwrap_or(LeaseId(0));
        let until = Instant::now() + self.config.deadline;
        let mut last = None;
        let mut left = self.config.members.len() + 1;
        loop {
            let connection = match timeout_at(until, self.connection()).await {
                Ok(connection) => connection.map_err(|error| last.take().unwrap_or(error))?,
                Err(_) => return Err(last.unwrap_or_else(|| self.late())),
            };
            match connection.call(path, request, self.limit(until)).await {
                Ok(answer) => {
                    let mut link = self.link.lock().await;
                    link.reconnect.succeeded();
                    link.leaderless = None;
                    return Ok(answer);
                }
                Err(error) => match next(error.clone(), effect, lease) {
                    Next::Fail(doubt) => {
                        // A member that says what went wrong can be asked again.
                        let is_answer = matches!(error, CallError::Status { .. });
                        if doubt.is_in_doubt() && !is_answer {
                            self.leave(&connection).await;
                        }
                        return Err(doubt);
                    }
                    Next::Wait(error) => {
                        self.without_leader(&connection).await;
                        return Err(error);
                    }
                    Next::AskAgain(error) if until <= Instant::now() => return Err(error),
                    Next::AskAgain(error) => {
                        last = Some(error);
                        sleep(MOMENT).await;
                    }
                    Next::AskAnother(error) => {
                        self.leave(&connection).await;
                        left -= 1;
                        if left == 0 || until <= Instant::now() {
                            return Err(error);
                        }
                        last = Some(error);
                    }
                },
            }
        }
    }

    /// A member that hangs must leave time for another one.
    fn limit(&self, until: Instant) -> Duration {
        let left = until.saturating_duration_since(Instant::now());
        if self.config.members.len() > 1 { left.min(self.config.deadline / 2) } else { left }
    }

    fn late(&self) -> Error {
        let why = format!("there was no connection within {:.1?}", self.config.deadline);
        Error::Unreachable { why }
    }

    /// The connection, or a new one to the first member that can be reached.
    async fn connection(&self) -> Result<Arc<Connection>, Error> {
        let mut link = self.link.lock().await;
        if let Some(connection) = &link.connection {
            if !connection.is_closed() {
                return Ok(Arc::clone(connection));
            }
            link.lose();
        }
        if let Some(not_before) = link.not_before {
            sleep_until(not_before).await;
        }
        let mut why = "it has no members".to_owned();
        let tries = link.members.len();
        for _ in 0..tries {
            let Some(member) = link.members.get(link.chosen).cloned() else { break };
            let limit = Instant::now() + self.limit(Instant::now() + self.config.deadline);
            let opened =
                timeout_at(limit, Connection::open(&member, self.config.tls.as_ref())).await;
            match opened {
                Ok(Ok(connection)) => {
                    link.connection = Some(Arc::clone(&connection));
                    link.not_before = None;
                    return Ok(connection);
                }
                Ok(Err(error)) => why = format!("{member}: {error}"),
                Err(_) => why = format!("{member}: no connection in time"),
            }
            link.choose_next();
        }
        link.not_before = Some(Instant::now() + link.reconnect.failed());
        Err(Error::Unreachable { why })
    }

    /// Asks another member from now on.
    async fn leave(&self, left: &Arc<Connection>) {
        let mut link = self.link.lock().await;
        if link.connection.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, left)) {
            link.lose();
        }
    }

    /// The member knows no leader. A new connection would cost all members a handshake for each client and mostly tell
    /// the same, so this one stays. After some time another member is asked: this one may be cut off alone.
    async fn without_leader(&self, at: &Arc<Connection>) {
        let mut link = self.link.lock().await;
        let link = &mut *link;
        if !link.connection.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, at)) {
            return;
        }
        let now = Instant::now();
        match link.leaderless {
            Some(Leaderless { until, before }) if now >= until && link.members.len() > 1 => {
                link.connection = None;
                link.choose_next();
                link.not_before = Some(now + link.reconnect.moved());
                let until = now + link.reconnect.patience(before.saturating_add(1));
                link.leaderless = Some(Leaderless { until, before: before.saturating_add(1) });
            }
            Some(_) => {}
            None => {
                let until = now + link.reconnect.patience(0);
                link.leaderless = Some(Leaderless { until, before: 0 });
            }
        }
    }

    async fn pages(
        &self,
        keys: &Keys,
    ) -> Result<Result<Snapshot<String, Entry>, Error>, Compacted> {
        let (mut key, range_end) = range(keys);
        let mut revision = 0;
        let mut values = BTreeMap::new();
        loop {
            let request = RangeRequest { key, range_end: range_end.clone(), limit: PAGE, revision };
            let path = "/etcdserverpb.KV/Range";
            let answer: RangeResponse =
                match self.call(path, &request, Effect::Repeatable, None).await {
                    Ok(answer) => answer,
                    Err(Error::Refused { .. }) if revision != 0 => return Err(Compacted),
                    Err(error) => return Ok(Err(error)),
                };
            if revision == 0 {
                revision = answer.header.as_ref().map_or(0, |header| header.revision);
            }
            let last = answer.kvs.last().map(|kv| kv.key.clone());
            values.extend(answer.kvs.into_iter().map(named));
            match last.filter(|_| answer.more) {
                Some(last) => key = [last, vec![0]].concat(),
                None => return Ok(Ok(Snapshot { revision: unsigned(revision), values })),
            }
        }
    }

    async fn open_watch(&self, keys: Keys, after: Revision) -> Result<Watching, Error> {
        let until = Instant::now() + self.config.deadline;
        let mut last = None;
        for _ in 0..=self.config.members.len() {
            let connection = match timeout_at(until, self.connection()).await {
                Ok(connection) => connection?,
                Err(_) => break,
            };
            let opened = EtcdWatch::open(&connection, &keys, after, self.config.deadline);
            let opened = timeout_at(until, opened).await;
            let error = match opened {
                Ok(Ok(watch)) => return Ok(Box::new(watch)),
                Ok(Err(error)) => error,
                Err(_) => {
                    CallError::NoAnswer { why: format!("{}: no answer", connection.member()) }
                }
            };
            match next(error, Effect::Repeatable, LeaseId(0)) {
                Next::Fail(error) => return Err(error),
                Next::Wait(error) => {
                    self.without_leader(&connection).await;
                    return Err(error);
                }
                Next::AskAgain(error) => {
                    last = Some(error);
                    sleep(MOMENT).await;
                }
                Next::AskAnother(error) => {
                    self.leave(&connection).await;
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| self.late()))
    }
}

/// The history of a list was compacted while it was read.
struct Compacted;

impl Link {
    fn lose(&mut self) {
        self.connection = None;
        self.choose_next();
        self.not_before = Some(Instant::now() + self.reconnect.failed());
    }

    fn choose_next(&mut self) {
        self.chosen = (self.chosen + 1) % self.members.len().max(1);
    }
}

impl Store for EtcdStore {
    fn list(&self, keys: Keys) -> Later<'_, Result<Snapshot<String, Entry>, Error>> {
        Box::pin(async move {
            for _ in 0..LISTS {
                if let Ok(listed) = self.pages(&keys).await {
                    return listed;
                }
            }
            Err(Error::Busy { why: "its history is compacted faster than it is listed".to_owned() })
        })
    }

    fn watch(&self, keys: Keys, after: Revision) -> Later<'_, Result<Watching, Error>> {
        Box::pin(self.open_watch(keys, after))
    }

    fn commit(&self, transaction: Transaction) -> Later<'_, Result<Committed, Error>> {
        Box::pin(async move {
            let lease = transaction.writes.iter().find_map(|write| match write {
                Write::Put { lease, .. } => *lease,
                Write::Delete { .. } => None,
            });
            let request = encoded(transaction);
            let path = "/etcdserverpb.KV/Txn";
            let answer: TxnResponse = self.call(path, &request, Effect::Once, lease).await?;
            let revision = revision(answer.header.as_ref());
            if answer.succeeded {
                return Ok(Committed::Done { revision });
            }
            let ranges = answer.responses.into_iter().filter_map(|response| response.range);
            let current = ranges.flat_map(|range| range.kvs).map(named).collect();
            Ok(Committed::Refused { revision, current })
        })
    }

    fn grant(&self, time_to_live: Duration) -> Later<'_, Result<Lease, Error>> {
        Box::pin(async move {
            // It counts in seconds, and a shorter time than asked for would surprise.
            let seconds = time_to_live.as_secs() + u64::from(time_to_live.subsec_nanos() > 0);
            let request = LeaseGrantRequest { ttl: signed(seconds.max(1)) };
            let path = "/etcdserverpb.Lease/LeaseGrant";
            let answer: LeaseGrantResponse =
                self.call(path, &request, Effect::Repeatable, None).await?;
            let time_to_live = Duration::from_secs(unsigned(answer.ttl));
            Ok(Lease::new(LeaseId(answer.id), time_to_live))
        })
    }

    fn renew(&self, lease: LeaseId) -> Later<'_, Result<Renewal, Error>> {
        Box::pin(async move {
            let request = LeaseKeepAliveRequest { id: lease.0 };
            let path = "/etcdserverpb.Lease/LeaseKeepAlive";
            let answer = self.call(path, &request, Effect::Repeatable, Some(lease)).await;
            match answer {
                Ok(LeaseKeepAliveResponse { ttl: ..=0 }) | Err(Error::LeaseGone { .. }) => {
                    Ok(Renewal::Gone)
                }
                Ok(LeaseKeepAliveResponse { ttl }) => {
                    Ok(Renewal::Lasts(Duration::from_secs(unsigned(ttl))))
                }
                Err(error) => Err(error),
            }
        })
    }

    fn revoke(&self, lease: LeaseId) -> Later<'_, Result<(), Error>> {
        Box::pin(async move {
            let request = LeaseRevokeRequest { id: lease.0 };
            let path = "/etcdserverpb.Lease/LeaseRevoke";
            let answer = self.call(path, &request, Effect::Repeatable, Some(lease)).await;
            match answer {
                Ok(LeaseRevokeResponse {}) | Err(Error::LeaseGone { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    fn status(&self) -> Later<'_, Result<Status, Error>> {
        Box::pin(async move {
            let path = "/etcdserverpb.Maintenance/Status";
            let request = StatusRequest {};
            let answer: StatusResponse =
                self.call(path, &request, Effect::Repeatable, None).await?;
            let link = self.link.lock().await;
            let member = link.connection.as_ref().map(|it| it.member().to_string());
            let revision = revision(answer.header.as_ref());
            let status = Status::new(member.unwrap_or_default(), answer.version, revision);
            Ok(status.with_leader(answer.leader != 0))
        })
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").field("config", &self.config).finish_non_exhaustive()
    }
}

fn encoded(transaction: Transaction) -> TxnRequest {
    let range = |guard: &Guard| {
        let key = guard.key().as_bytes().to_vec();
        let range = RangeRequest { key, range_end: Vec::new(), limit: 0, revision: 0 };
        RequestOp { request: Some(Operation::Range(range)) }
    };
    let compare = |guard: &Guard| {
        let (target, value) = match guard {
            Guard::Absent { .. } => (CompareTarget::Create, CompareValue::CreateRevision(0)),
            Guard::Created { at, .. } => {
                (CompareTarget::Create, CompareValue::CreateRevision(known(*at)))
            }
            Guard::Unmodified { since, .. } => {
                (CompareTarget::Mod, CompareValue::ModRevision(known(*since)))
            }
        };
        let key = guard.key().as_bytes().to_vec();
        Compare { result: 0, target: target.into(), key, value: Some(value) }
    };
    let write = |write: Write| {
        let request = match write {
            Write::Put { key, value, lease } => Operation::Put(PutRequest {
                key: key.into_bytes(),
                value,
                lease: lease.map_or(0, |lease| lease.0),
            }),
            Write::Delete { key } => {
                Operation::DeleteRange(DeleteRangeRequest { key: key.into_bytes() })
            }
        };
        RequestOp { request: Some(request) }
    };
    let Transaction { guards, writes } = transaction;
    TxnRequest {
        compare: guards.iter().map(compare).collect(),
        failure: guards.iter().map(range).collect(),
        success: writes.into_iter().map(write).collect(),
    }
}

/// The first key, and the first that is not one of them any more.
pub(crate) fn range(keys: &Keys) -> (Vec<u8>, Vec<u8>) {
    match keys {
        Keys::One(key) => (key.as_bytes().to_vec(), Vec::new()),
        Keys::Below(prefix) => {
            let mut end = prefix.as_bytes().to_vec();
            // No byte of UTF-8 is 255.
            match end.last_mut() {
                Some(last) => *last = last.saturating_add(1),
                None => return (vec![0], vec![0]),
            }
            (prefix.as_bytes().to_vec(), end)
        }
    }
}

/// A key that is no text is shown as one: nothing of ours has such a name.
pub(crate) fn named(kv: KeyValue) -> (String, Entry) {
    let lease = Some(LeaseId(kv.lease)).filter(|lease| lease.0 != 0);
    let (created, modified) = (unsigned(kv.create_revision), unsigned(kv.mod_revision));
    let key = String::from_utf8_lossy(&kv.key).into_owned();
    (key, Entry::new(kv.value, created, modified).with_lease(lease))
}

pub(crate) fn revision(header: Option<&ResponseHeader>) -> Revision {
    header.map_or(0, |header| unsigned(header.revision))
}

/// For a comparison: an absent key has the revision 0 for etcd, and nothing was ever written at it.
fn known(revision: Revision) -> i64 {
    if revision == 0 { -1 } else { signed(revision) }
}

pub(crate) fn signed(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
