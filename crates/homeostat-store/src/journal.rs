//! A journal of writes that must not be sent twice, kept in the store: whoever leads next goes on with it.
//!
//! Each record has a key of its own, by its number. Every batch is one transaction, or a few for a large one, which
//! stands on the term of its writer and on the batch before it. So a batch that is sent again does nothing, and one
//! that arrives after a later one, or after the election of another machine, is refused.
//!
//! ```text
//!   PREFIX/head         which batch was the last one
//!   PREFIX/record/7     {"record": {...}, "previous_task": "..."}
//! ```

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use homeostat_core::outcome::Later;
use homeostat_kit::engine::journal::{
    Batch, Clock, Entry as Numbered, Fact, Intent, Journal, JournalError, Record, Repeat,
    Store as Records,
};
use homeostat_kit::store::Revision;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::error::Error;
use crate::held::Held;
use crate::store::{Committed, Guard, Keys, Store, Transaction};

/// What a transaction may have: etcd takes 128 writes and 1.5 MiB.
const MOST_WRITES: usize = 100;
const MOST_BYTES: usize = 512 * 1024;
/// Before a batch is sent again whose answer was lost.
const PAUSE: Duration = Duration::from_millis(200);

/// Opens the journal below a prefix for the term that is held: everything that the machines before have written is in
/// it, and nothing that they send from here on. It is written by tasks of the runtime of the caller.
///
/// A record is written only while the term is held, by the local clock too; and a step that must not be repeated is
/// begun only when nothing of a predecessor can arrive any more ([`Held::check`]). If it is not, the step is refused,
/// and nothing is sent.
pub async fn open_journal(
    store: Arc<dyn Store>,
    prefix: impl Into<String>,
    held: Held,
    clock: Clock,
) -> Result<Journal, JournalError> {
    let mut journal = StoreJournal {
        store,
        prefix: prefix.into(),
        held,
        head: None,
        batches: 0,
        opening: 0,
        leftovers: Vec::new(),
        is_lost: false,
    };
    let entries = journal.open().await?;
    let prefix = journal.prefix.clone();
    Journal::over_network(Handle::current(), journal, &entries, clock)
        .map_err(|illegal| damaged(&prefix, illegal))
}

struct StoreJournal {
    store: Arc<dyn Store>,
    prefix: String,
    held: Held,
    /// When the head was last written.
    head: Option<Revision>,
    /// The number of the last batch of this opening.
    batches: u64,
    /// Distinguishes the openings of a term.
    opening: Revision,
    /// Records of steps whose other records are gone: a deletion was interrupted.
    leftovers: Vec<i64>,
    /// It is not known whether the last batch was written, or it was written by another: nothing more is.
    is_lost: bool,
}

/// A record as it is stored.
#[derive(Deserialize, Serialize)]
struct Stored {
    record: Record,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous_task: Option<String>,
}

impl StoreJournal {
    /// Reads everything, and makes what was sent before and has not arrived impossible.
    async fn open(&mut self) -> Result<Vec<Numbered>, JournalError> {
        loop {
            let listed = self.store.list(Keys::Below(format!("{}/", self.prefix))).await;
            let listed = listed.map_err(|error| self.failed(&error))?;
            self.head = listed.values.get(&self.head_key()).map(|head| head.modified);
            self.opening = listed.revision;
            let id = self.next_id();
            match self.store.commit(self.transaction(&id)).await {
                Ok(Committed::Done { revision }) => self.head = Some(revision),
                Ok(Committed::Refused { current, .. }) => {
                    let term = self.held.term().guard();
                    if !term.holds(current.get(term.key())) {
                        return Err(not_held("another machine was elected"));
                    }
                    // An earlier try of this commit, or another opening of this term, was made meanwhile.
                    continue;
                }
                Err(error) if error.is_in_doubt() && self.held.is_held() => {
                    sleep(PAUSE).await;
                    continue;
                }
                Err(error) => return Err(self.failed(&error)),
            }
            let mut entries = Vec::new();
            for (key, entry) in &listed.values {
                let Some(number) = key.strip_prefix(&self.record_prefix()) else { continue };
                let number: i64 = number.parse().map_err(|error| damaged(&self.prefix, error))?;
                let stored: Stored = serde_json::from_slice(&entry.value).map_err(|error| {
                    damaged(&self.prefix, format_args!("record {number}: {error}"))
                })?;
                let Stored { record, previous_task } = stored;
                entries.push(Numbered { number, record, previous_task });
            }
            entries.sort_by_key(|entry| entry.number);
            return Ok(self.without_leftovers(entries));
        }
    }

    /// Old steps are deleted from their first record on, and not always in one transaction.
    fn without_leftovers(&mut self, entries: Vec<Numbered>) -> Vec<Numbered> {
        let mut begun = BTreeSet::new();
        let (kept, leftovers) = entries.into_iter().partition(|entry: &Numbered| {
            if let Fact::Intent(_) = entry.record.fact {
                begun.insert(entry.record.id);
            }
            begun.contains(&entry.record.id)
        });
        let leftovers: Vec<Numbered> = leftovers;
        self.leftovers = leftovers.iter().map(|entry| entry.number).collect();
        kept
    }

    async fn write_batch(&mut self, batch: &Batch) -> Result<(), JournalError> {
        if self.is_lost || !self.held.is_held() {
            return Err(not_held("its term is over"));
        }
        if batch.put.iter().any(must_not_repeat) {
            self.held.check().map_err(not_held)?;
        }
        let mut is_begun = false;
        for writes in self.transactions(batch)? {
            self.commit(writes, is_begun).await?;
            is_begun = true;
        }
        self.leftovers.clear();
        // What is sent after this was written must still be allowed to be sent.
        if batch.put.iter().any(must_not_repeat) && !self.held.is_held() {
            self.is_lost = true;
            return Err(not_held("its term ended meanwhile"));
        }
        Ok(())
    }

    /// The batch as transactions that are small enough: deletes first, from the oldest record on.
    fn transactions(&self, batch: &Batch) -> Result<Vec<Transaction>, JournalError> {
        let mut all = vec![(Transaction::new(), 0)];
        let mut add = |bytes: usize, add: &dyn Fn(Transaction) -> Transaction| {
            if let Some((last, size)) = all.last_mut()
                && last.writes.len() < MOST_WRITES
                && (*size == 0 || *size + bytes <= MOST_BYTES)
            {
                *last = add(std::mem::take(last));
                *size += bytes;
            } else {
                all.push((add(Transaction::new()), bytes));
            }
        };
        let deletes: BTreeSet<i64> = batch.delete.iter().chain(&self.leftovers).copied().collect();
        for number in deletes {
            let key = self.record_key(number);
            add(key.len(), &|transaction| transaction.delete(key.clone()));
        }
        for Numbered { number, record, previous_task } in &batch.put {
            let stored = Stored { record: record.clone(), previous_task: previous_task.clone() };
            let value =
                serde_json::to_vec(&stored).map_err(|error| damaged(&self.prefix, error))?;
            let key = self.record_key(*number);
            add(key.len() + value.len(), &|transaction| {
                transaction.put(key.clone(), value.clone())
            });
        }
        Ok(all.into_iter().map(|(transaction, _)| transaction).collect())
    }

    /// Makes one transaction of a batch. A batch of which a part was written is written to its end, or the term is lost.
    async fn commit(&mut self, writes: Transaction, is_begun: bool) -> Result<(), JournalError> {
        let id = self.next_id();
        let transaction = self.transaction(&id);
        let transaction = Transaction {
            writes: transaction.writes.into_iter().chain(writes.writes).collect(),
            ..transaction
        };
        let mut is_sent = is_begun;
        loop {
            match self.store.commit(transaction.clone()).await {
                Ok(Committed::Done { revision }) => {
                    self.head = Some(revision);
                    return Ok(());
                }
                Ok(Committed::Refused { current, .. }) => {
                    let head = current.get(&self.head_key());
                    // An earlier try of this very transaction was made, and its answer was lost.
                    if let Some(head) = head.filter(|head| head.value == id.as_bytes()) {
                        self.head = Some(head.modified);
                        return Ok(());
                    }
                    self.is_lost = true;
                    return Err(not_held("another machine was elected"));
                }
                Err(error) if !is_sent && !error.is_in_doubt() => return Err(self.failed(&error)),
                Err(error) if !self.held.is_held() => {
                    self.is_lost = true;
                    return Err(self.failed(&error));
                }
                Err(_) => {
                    is_sent = true;
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Stands on the term and on the batch before, and has the id of the next one.
    fn transaction(&self, id: &str) -> Transaction {
        let key = self.head_key();
        let head = match self.head {
            None => Guard::Absent { key: key.clone() },
            Some(since) => Guard::Unmodified { key: key.clone(), since },
        };
        Transaction::new().only_if(self.held.term().guard()).only_if(head).put(key, id)
    }

    fn next_id(&mut self) -> String {
        self.batches += 1;
        format!("{}.{}.{}", self.held.term().revision(), self.opening, self.batches)
    }

    fn head_key(&self) -> String {
        format!("{}/head", self.prefix)
    }

    fn record_prefix(&self) -> String {
        format!("{}/record/", self.prefix)
    }

    fn record_key(&self, number: i64) -> String {
        format!("{}{number}", self.record_prefix())
    }

    fn failed(&self, error: &Error) -> JournalError {
        JournalError::Shared {
            journal: self.prefix.clone(),
            why: error.to_string(),
            help: "see to the store; nothing that must not be repeated is sent until then"
                .to_owned(),
        }
    }
}

impl Records for StoreJournal {
    fn write<'a>(&'a mut self, batch: &'a Batch) -> Later<'a, Result<(), JournalError>> {
        Box::pin(self.write_batch(batch))
    }
}

fn must_not_repeat(entry: &Numbered) -> bool {
    matches!(&entry.record.fact, Fact::Intent(Intent { repeat: Repeat::Hurts, .. }))
}

fn not_held(why: impl Display) -> JournalError {
    let help = "the machine that leads acts on it".to_owned();
    JournalError::NotHeld { why: why.to_string(), help }
}

fn damaged(prefix: &str, why: impl Display) -> JournalError {
    JournalError::Shared {
        journal: prefix.to_owned(),
        why: format!("it is damaged: {why}"),
        help: format!(
            "look at the keys below {prefix}; once no task in them still runs, delete them to begin a new journal"
        ),
    }
}
