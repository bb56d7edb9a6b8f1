//! A store in memory with the faults of real ones, for tests and simulations. Its time is that of the runtime.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use homeostat_core::outcome::Later;
use homeostat_core::{Failure, Retry};
use homeostat_kit::store::{Revision, Snapshot, StoreWatch, WatchEvent};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::error::Error;
use crate::store::{
    Committed, Entry, Keys, Lease, LeaseId, Renewal, Status, Store, Transaction, Watching, Write,
};

/// A store in memory. Clones are the same store.
#[derive(Clone, Default)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Changes whenever a watch may have something to say.
    stirred: watch::Sender<u64>,
}

/// A call of the store, as the caller that decides about faults sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are called as the methods of the store")]
pub enum Call {
    List,
    Watch,
    Commit,
    Grant,
    Renew,
    Revoke,
    Status,
}

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The answer comes late.
    Delay(Duration),
    /// The request does not arrive.
    Unreachable,
    /// The request is done, and the answer is lost.
    LostAnswer,
    /// The answer is lost, and the request is done only after this time.
    LateRequest(Duration),
    /// The store has no leader; reads fail, too.
    NoLeader,
    /// Writes and grants are refused.
    NoSpace,
}

/// What a store held at one moment.
#[derive(Clone)]
pub struct Backup(State);

type Faults = Box<dyn FnMut(Call) -> Fault + Send>;

#[derive(Clone, Default)]
struct State {
    revision: Revision,
    entries: BTreeMap<String, Entry>,
    history: Vec<(Revision, String, Option<Entry>)>,
    compacted: Revision,
    leases: BTreeMap<LeaseId, Lived>,
    next_lease: i64,
    /// Watches of former epochs are broken.
    epoch: u64,
    /// Watches of former epochs say nothing.
    muted: u64,
    faults: Arc<Mutex<Option<Faults>>>,
}

#[derive(Clone, Copy)]
struct Lived {
    time_to_live: Duration,
    ends: Instant,
}

impl MemoryStore {
    /// Empty.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for each call what goes wrong with it.
    pub fn set_faults(&self, faults: impl FnMut(Call) -> Fault + Send + 'static) {
        let place = Arc::clone(&self.state().faults);
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(faults));
    }

    /// Nothing goes wrong any more.
    pub fn clear_faults(&self) {
        let place = Arc::clone(&self.state().faults);
        *place.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Forgets what was before the present.
    pub fn compact(&self) {
        let mut state = self.state();
        state.compacted = state.revision;
        drop(state);
        self.stir();
    }

    /// All open watches fail, as when a member is restarted.
    pub fn break_watches(&self) {
        self.state().epoch += 1;
        self.stir();
    }

    /// All open watches say nothing any more and do not fail: servers had such bugs.
    pub fn mute_watches(&self) {
        let mut state = self.state();
        state.muted = state.epoch + 1;
        state.epoch += 1;
    }

    /// Ends a lease before its time, as a server does whose leader had been asleep.
    pub fn expire(&self, lease: LeaseId) {
        self.state().end_lease(lease);
        self.stir();
    }

    /// All leases that there are.
    #[must_use]
    pub fn leases(&self) -> Vec<LeaseId> {
        self.state().leases.keys().copied().collect()
    }

    /// What it holds.
    #[must_use]
    pub fn backup(&self) -> Backup {
        Backup(self.state().clone())
    }

    /// Goes back to what it held then. Revisions go back, too, and open watches fail.
    pub fn restore(&self, Backup(backup): &Backup) {
        let mut state = self.state();
        let epoch = state.epoch + 1;
        *state = State { epoch, ..backup.clone() };
        let now = Instant::now();
        for lease in state.leases.values_mut() {
            lease.ends = now + lease.time_to_live;
        }
        drop(state);
        self.stir();
    }

    /// Every change that was ever made, in order, for judges.
    #[must_use]
    pub fn history(&self) -> Vec<(Revision, String, Option<Entry>)> {
        self.state().history.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.expire_leases(Instant::now());
        state
    }

    fn stir(&self) {
        self.shared.stirred.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn fault(&self, call: Call) -> Fault {
        let place = Arc::clone(&self.state().faults);
        let mut faults = place.lock().unwrap_or_else(PoisonError::into_inner);
        faults.as_mut().map_or(Fault::None, |faults| faults(call))
    }

    /// Does a request as its fault says.
    async fn request<T: Send + 'static>(
        &self,
        call: Call,
        run: impl FnOnce(&mut State) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let run = {
            let store = self.clone();
            move || {
                let answer = run(&mut store.state());
                store.stir();
                answer
            }
        };
        let is_read = matches!(call, Call::List | Call::Watch | Call::Status);
        let lost = || {
            let why = "a fault of the test".to_owned();
            if is_read { Error::Unreachable { why } } else { Error::InDoubt { why } }
        };
        match self.fault(call) {
            Fault::Delay(time) => {
                sleep(time).await;
                run()
            }
            Fault::Unreachable => Err(Error::Unreachable { why: "a fault of the test".to_owned() }),
            Fault::LostAnswer => {
                // The answer is what is lost.
                let _ = run();
                Err(lost())
            }
            Fault::LateRequest(time) => {
                tokio::spawn(async move {
                    sleep(time).await;
                    let _ = run();
                });
                Err(lost())
            }
            Fault::NoLeader => Err(Error::NoLeader),
            Fault::NoSpace if matches!(call, Call::Commit | Call::Grant) => Err(Error::NoSpace),
            Fault::None | Fault::NoSpace => run(),
        }
    }
}

impl State {
    fn expire_leases(&mut self, now: Instant) {
        while let Some(lease) =
            self.leases.iter().find(|(_, lived)| lived.ends <= now).map(|(lease, _)| *lease)
        {
            self.end_lease(lease);
        }
    }

    fn end_lease(&mut self, lease: LeaseId) {
        if self.leases.remove(&lease).is_none() {
            return;
        }
        let bound = self.entries.iter().filter(|(_, entry)| entry.lease == Some(lease));
        let keys: Vec<_> = bound.map(|(key, _)| key.clone()).collect();
        if !keys.is_empty() {
            self.revision += 1;
        }
        for key in keys {
            self.set(key, None);
        }
    }

    /// At the present revision.
    fn set(&mut self, key: String, entry: Option<Entry>) {
        match &entry {
            Some(entry) => _ = self.entries.insert(key.clone(), entry.clone()),
            None if self.entries.remove(&key).is_none() => return,
            None => {}
        }
        self.history.push((self.revision, key, entry));
    }

    fn commit(&mut self, transaction: Transaction) -> Result<Committed, Error> {
        let Transaction { guards, writes } = transaction;
        let mut written: Vec<_> = writes.iter().map(Write::key).collect();
        written.sort_unstable();
        if written.windows(2).any(|pair| matches!(pair, [one, other] if one == other)) {
            return Err(Error::Refused { why: "a key is written twice".to_owned() });
        }
        if !guards.iter().all(|guard| guard.holds(self.entries.get(guard.key()))) {
            let held = |key: &str| Some((key.to_owned(), self.entries.get(key)?.clone()));
            let current = guards.iter().filter_map(|guard| held(guard.key())).collect();
            return Ok(Committed::Refused { revision: self.revision, current });
        }
        for write in &writes {
            if let Write::Put { lease: Some(lease), .. } = write
                && !self.leases.contains_key(lease)
            {
                return Err(Error::LeaseGone { lease: *lease });
            }
        }
        let has_effect = |write: &Write| match write {
            Write::Put { .. } => true,
            Write::Delete { key } => self.entries.contains_key(key),
        };
        if !writes.iter().any(has_effect) {
            return Ok(Committed::Done { revision: self.revision });
        }
        self.revision += 1;
        for write in writes {
            match write {
                Write::Put { key, value, lease } => {
                    let created = self.entries.get(&key).map_or(self.revision, |it| it.created);
                    let entry = Entry { value, created, modified: self.revision, lease };
                    self.set(key, Some(entry));
                }
                Write::Delete { key } => self.set(key, None),
            }
        }
        Ok(Committed::Done { revision: self.revision })
    }

    fn grant(&mut self, time_to_live: Duration) -> Lease {
        self.next_lease += 1;
        let id = LeaseId(self.next_lease);
        self.leases.insert(id, Lived { time_to_live, ends: Instant::now() + time_to_live });
        Lease::new(id, time_to_live)
    }

    fn renew(&mut self, lease: LeaseId) -> Renewal {
        match self.leases.get_mut(&lease) {
            Some(lived) => {
                lived.ends = Instant::now() + lived.time_to_live;
                Renewal::Lasts(lived.time_to_live)
            }
            None => Renewal::Gone,
        }
    }
}

impl Store for MemoryStore {
    fn list(&self, keys: Keys) -> Later<'_, Result<Snapshot<String, Entry>, Error>> {
        Box::pin(self.request(Call::List, move |state| {
            let within = state.entries.iter().filter(|(key, _)| keys.contain(key));
            let values = within.map(|(key, entry)| (key.clone(), entry.clone())).collect();
            Ok(Snapshot { revision: state.revision, values })
        }))
    }

    fn watch(&self, keys: Keys, after: Revision) -> Later<'_, Result<Watching, Error>> {
        let store = self.clone();
        Box::pin(self.request(Call::Watch, move |state| {
            let next = state.history.partition_point(|(revision, ..)| *revision <= after);
            let start = if after > state.revision {
                Start::Regressed
            } else if after < state.compacted {
                Start::Compacted
            } else {
                Start::At(next)
            };
            let stirred = store.shared.stirred.subscribe();
            Ok(Box::new(MemoryWatch { epoch: state.epoch, store, keys, start, stirred })
                as Watching)
        }))
    }

    fn commit(&self, transaction: Transaction) -> Later<'_, Result<Committed, Error>> {
        Box::pin(self.request(Call::Commit, |state| state.commit(transaction)))
    }

    fn grant(&self, time_to_live: Duration) -> Later<'_, Result<Lease, Error>> {
        Box::pin(self.request(Call::Grant, move |state| Ok(state.grant(time_to_live))))
    }

    fn renew(&self, lease: LeaseId) -> Later<'_, Result<Renewal, Error>> {
        Box::pin(self.request(Call::Renew, move |state| Ok(state.renew(lease))))
    }

    fn revoke(&self, lease: LeaseId) -> Later<'_, Result<(), Error>> {
        Box::pin(self.request(Call::Revoke, move |state| {
            state.end_lease(lease);
            Ok(())
        }))
    }

    fn status(&self) -> Later<'_, Result<Status, Error>> {
        Box::pin(self.request(Call::Status, |state| {
            Ok(Status::new("memory", env!("CARGO_PKG_VERSION"), state.revision))
        }))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("revision", &self.state().revision).finish()
    }
}

/// Where a watch goes on.
enum Start {
    /// At this change of the history.
    At(usize),
    Compacted,
    Regressed,
}

struct MemoryWatch {
    store: MemoryStore,
    keys: Keys,
    epoch: u64,
    start: Start,
    stirred: watch::Receiver<u64>,
}

impl MemoryWatch {
    /// What it says now, or when to look again at the latest.
    fn poll(&mut self) -> Result<Result<WatchEvent<String, Entry>, Failure>, Option<Instant>> {
        let state = self.store.state();
        if self.epoch < state.muted {
            return Err(None);
        }
        if self.epoch != state.epoch {
            return Ok(Err(Failure::new("the watch was broken off", Retry::Soon)));
        }
        let next = match &mut self.start {
            Start::Compacted => return Ok(Ok(WatchEvent::Compacted)),
            Start::Regressed => return Ok(Ok(WatchEvent::Regressed)),
            Start::At(next) => next,
        };
        while let Some((revision, key, entry)) = state.history.get(*next) {
            *next += 1;
            if self.keys.contain(key) {
                let (key, value) = (key.clone(), entry.clone());
                return Ok(Ok(WatchEvent::Changed { revision: *revision, key, value }));
            }
        }
        Err(state.leases.values().map(|lived| lived.ends).min())
    }
}

impl StoreWatch<String, Entry> for MemoryWatch {
    fn next(&mut self) -> Later<'_, Result<WatchEvent<String, Entry>, Failure>> {
        Box::pin(async {
            loop {
                self.stirred.mark_unchanged();
                let until = match self.poll() {
                    Ok(event) => return event,
                    Err(until) => until,
                };
                let expiry = async {
                    match until {
                        Some(until) => sleep_until(until).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    // It ends with the store, which this watch has a clone of.
                    _ = self.stirred.changed() => {}
                    () = expiry => {}
                }
            }
        })
    }
}
