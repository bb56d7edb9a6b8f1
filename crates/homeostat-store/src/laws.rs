//! The laws of a [`Store`] as checks that run against any implementation.
//!
//! [`all`] runs every named check, [`replay`] a random sequence of writes that is compared with a model of its own. Both
//! work below a prefix that nobody else uses, over two handles of the same store: what one writes the other must see.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use homeostat_kit::store::{Revision, WatchEvent};
use proptest::prelude::*;

use crate::clock::Clock;
use crate::error::Error;
use crate::store::{
    Committed, Entry, Guard, Keys, Lease, LeaseId, Renewal, Store, Transaction, Watching, Write,
};
use crate::term::{Candidate, Predecessor};

/// A law that a store broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("law {law} of stores is broken: {how}")]
pub struct Broken {
    /// Its number.
    pub law: u8,
    /// What happened.
    pub how: String,
}

/// Two handles of one store, and a part of it that nobody else uses.
#[derive(Clone)]
pub struct Stage {
    /// One handle.
    pub one: Arc<dyn Store>,
    /// Another handle, such as a client of another member.
    pub other: Arc<dyn Store>,
    /// All keys are below it.
    pub prefix: String,
    /// The time that passes for the leases of the store.
    pub clock: Arc<dyn Clock>,
    /// The shortest time to live that the store grants.
    pub shortest: Duration,
}

type Checked = Result<(), Broken>;

fn broken(law: u8, how: impl Display) -> Broken {
    Broken { law, how: how.to_string() }
}

/// A call that must not fail.
fn made<T>(law: u8, answer: Result<T, Error>) -> Result<T, Broken> {
    answer.map_err(|error| broken(law, format_args!("a call failed: {error}")))
}

fn holds(law: u8, claim: bool, how: impl Display) -> Checked {
    if claim { Ok(()) } else { Err(broken(law, how)) }
}

/// Checks the laws by examples.
pub async fn all(stage: &Stage) -> Checked {
    stage.at("seen").what_was_written_is_seen_by_all().await?;
    stage.at("whole").transactions_are_whole().await?;
    stage.at("guards").guards_guard().await?;
    stage.at("watch").watches_tell_everything_in_order().await?;
    stage.at("leases").leases_end().await?;
    stage.at("counter").nothing_is_lost_among_writers().await?;
    stage.at("terms").terms_follow_each_other().await
}

impl Stage {
    fn at(&self, name: &str) -> Stage {
        Stage { prefix: format!("{}{name}/", self.prefix), ..self.clone() }
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn keys(&self) -> Keys {
        Keys::Below(self.prefix.clone())
    }

    async fn done(&self, law: u8, transaction: Transaction) -> Result<Revision, Broken> {
        match made(law, self.one.commit(transaction).await)? {
            Committed::Done { revision } => Ok(revision),
            refused @ Committed::Refused { .. } => {
                Err(broken(law, format_args!("a transaction whose guards hold: {refused:?}")))
            }
        }
    }

    async fn what_was_written_is_seen_by_all(&self) -> Checked {
        let (a, b) = (self.key("a"), self.key("b"));
        let first = self.done(1, Transaction::new().put(&a, "1")).await?;
        let second = self.done(1, Transaction::new().put(&a, "2").put(&b, "")).await?;
        holds(4, second > first, "a later change has no greater revision")?;
        for store in [&self.one, &self.other] {
            let listed = made(1, store.list(self.keys()).await)?;
            holds(1, listed.revision >= second, "a list is older than an answer before it")?;
            let expected = BTreeMap::from([
                (a.clone(), Entry::new(b"2".to_vec(), first, second)),
                (b.clone(), Entry::new(Vec::new(), second, second)),
            ]);
            holds(1, listed.values == expected, format_args!("listed {:?}", listed.values))?;
            let one = made(1, store.list(Keys::One(a.clone())).await)?;
            holds(1, one.values.keys().eq([&a]), format_args!("listed {:?}", one.values))?;
        }
        Ok(())
    }

    async fn transactions_are_whole(&self) -> Checked {
        let many =
            (0..50).fold(Transaction::new(), |all, n| all.put(self.key(&n.to_string()), "x"));
        let revision = self.done(3, many).await?;
        let listed = made(3, self.other.list(self.keys()).await)?;
        let is_one = listed.values.values().all(|entry| entry.modified == revision);
        holds(3, is_one && listed.values.len() == 50, "the writes are not of one revision")?;
        let twice = Transaction::new().put(self.key("0"), "a").put(self.key("0"), "b");
        let refused = self.one.commit(twice).await;
        let is_refused = matches!(refused, Err(Error::Refused { .. }));
        holds(3, is_refused, format_args!("a key was written twice: {refused:?}"))?;
        let half = Transaction::new()
            .only_if(Guard::Absent { key: self.key("0") })
            .put(self.key("0"), "changed")
            .put(self.key("new"), "made");
        let refused = made(3, self.one.commit(half).await)?;
        let current = BTreeMap::from_iter(
            listed
                .values
                .get_key_value(&self.key("0"))
                .map(|(key, entry)| (key.clone(), entry.clone())),
        );
        let is_told =
            matches!(&refused, Committed::Refused { current: held, .. } if *held == current);
        holds(3, is_told, format_args!("a guard that does not hold: {refused:?}"))?;
        let after = made(3, self.other.list(self.keys()).await)?;
        holds(3, after.values == listed.values, "a refused transaction was made in part")
    }

    async fn guards_guard(&self) -> Checked {
        let key = self.key("guarded");
        let absent = || Guard::Absent { key: key.clone() };
        let unmodified = |since| Guard::Unmodified { key: key.clone(), since };
        let created = |at| Guard::Created { key: key.clone(), at };
        let first = self.done(3, Transaction::new().only_if(absent()).put(&key, "1")).await?;
        let second =
            self.done(3, Transaction::new().only_if(unmodified(first)).put(&key, "2")).await?;
        for (guard, should) in [
            (absent(), false),
            (unmodified(first), false),
            (unmodified(second), true),
            (created(first), true),
            (created(second), false),
        ] {
            // Without a write, so that nothing changes between them.
            let answer =
                made(3, self.other.commit(Transaction::new().only_if(guard.clone())).await)?;
            let does = matches!(answer, Committed::Done { .. });
            holds(3, does == should, format_args!("{guard:?}: {answer:?}"))?;
        }
        self.done(3, Transaction::new().delete(&key)).await?;
        for guard in [unmodified(second), created(first)] {
            let answer = made(3, self.one.commit(Transaction::new().only_if(guard.clone())).await)?;
            let is_refused = matches!(answer, Committed::Refused { .. });
            holds(3, is_refused, format_args!("{guard:?} of a deleted key: {answer:?}"))?;
        }
        let again = self.done(4, Transaction::new().only_if(absent()).put(&key, "3")).await?;
        let listed = made(4, self.one.list(self.keys()).await)?;
        let is_new = listed.values.get(&key).is_some_and(|entry| entry.created == again);
        holds(4, is_new, "a key that was absent was not created anew")
    }

    async fn watches_tell_everything_in_order(&self) -> Checked {
        let before = made(2, self.one.list(self.keys()).await)?.revision;
        let mut early = made(2, self.other.watch(self.keys(), before).await)?;
        let (a, b, c) = (self.key("a"), self.key("b"), self.key("c"));
        let first = self.done(2, Transaction::new().put(&a, "1").put(&b, "1")).await?;
        let outside = Transaction::new().put(self.prefix.trim_end_matches('/'), "outside");
        self.done(2, outside).await?;
        let second = self.done(2, Transaction::new().delete(&a).put(&c, "1")).await?;
        let one = |created| Some(Entry::new(b"1".to_vec(), created, created));
        let expected = [
            vec![(first, a.clone(), one(first)), (first, b, one(first))],
            vec![(second, a, None), (second, c, one(second))],
        ];
        let mut late = made(2, self.one.watch(self.keys(), before).await)?;
        let mut middle = made(2, self.one.watch(self.keys(), first).await)?;
        for (watch, expected) in
            [(&mut early, &expected[..]), (&mut late, &expected[..]), (&mut middle, &expected[1..])]
        {
            for group in expected {
                // Entries of one transaction come in any order.
                let mut received = Vec::new();
                for _ in group {
                    received.push(next(watch).await?);
                }
                received.sort_by(|one, other| one.1.cmp(&other.1));
                holds(
                    2,
                    received == *group,
                    format_args!("a watch returned {received:?}, not {group:?}"),
                )?;
            }
        }
        Ok(())
    }

    async fn leases_end(&self) -> Checked {
        let (kept, left) = (self.key("kept"), self.key("left"));
        let lease = made(5, self.one.grant(self.shortest).await)?;
        let revoked = made(5, self.one.grant(self.shortest).await)?;
        let put =
            Transaction::new().put_leased(&kept, "", lease.id).put_leased(&left, "", revoked.id);
        let revision = self.done(5, put).await?;
        let mut watch = made(5, self.other.watch(self.keys(), revision).await)?;
        made(5, self.other.revoke(revoked.id).await)?;
        let gone = next(&mut watch).await?;
        holds(5, gone.1 == left && gone.2.is_none(), format_args!("a revoked lease: {gone:?}"))?;
        made(5, self.one.revoke(revoked.id).await)?;
        let renewal = made(5, self.one.renew(revoked.id).await)?;
        holds(5, renewal == Renewal::Gone, "a revoked lease was renewed")?;
        let late = self.one.commit(Transaction::new().put_leased(&left, "", revoked.id)).await;
        let is_refused = late == Err(Error::LeaseGone { lease: revoked.id });
        holds(5, is_refused, format_args!("something was put under a revoked lease: {late:?}"))?;
        // It is renewed for longer than it lasts, and then left alone.
        for _ in 0..4 {
            tokio::time::sleep(lease.time_to_live / 2).await;
            let renewal = made(5, self.other.renew(lease.id).await)?;
            holds(5, renewal != Renewal::Gone, "a lease ended that was renewed in time")?;
        }
        let renewed = self.clock.now();
        let listed = made(5, self.one.list(self.keys()).await)?;
        let is_there = listed.values.get(&kept).is_some_and(|it| it.lease == Some(lease.id));
        holds(5, is_there, "an entry vanished before its lease ended")?;
        let gone = next(&mut watch).await?;
        holds(5, gone.1 == kept && gone.2.is_none(), format_args!("an expired lease: {gone:?}"))?;
        let elapsed = self.clock.now().saturating_sub(renewed);
        // The renewal was sent some time before it was answered, and servers count whole seconds.
        let promised = lease.time_to_live.saturating_sub(Duration::from_secs(1));
        holds(5, elapsed >= promised, format_args!("{lease:?} lasted only {elapsed:?}"))?;
        let renewal = made(5, self.one.renew(lease.id).await)?;
        holds(5, renewal == Renewal::Gone, "an expired lease was renewed")
    }

    /// Several writers count in one key, each by what it has read.
    async fn nothing_is_lost_among_writers(&self) -> Checked {
        let key = self.key("count");
        self.done(3, Transaction::new().put(&key, "0")).await?;
        let count = |store: Arc<dyn Store>| {
            let key = key.clone();
            async move {
                let mut counted = 0;
                while counted < 10 {
                    let listed = made(1, store.list(Keys::One(key.clone())).await)?;
                    let Some(entry) = listed.values.get(&key) else {
                        return Err(broken(1, "a key vanished"));
                    };
                    let number = String::from_utf8_lossy(&entry.value).parse::<u32>();
                    let number = number.map_err(|error| broken(1, error))? + 1;
                    let since = entry.modified;
                    let step = Transaction::new()
                        .only_if(Guard::Unmodified { key: key.clone(), since })
                        .put(&key, number.to_string());
                    if let Committed::Done { .. } = made(3, store.commit(step).await)? {
                        counted += 1;
                    }
                }
                Ok(())
            }
        };
        let (one, other) = (&self.one, &self.other);
        tokio::try_join!(count(one.clone()), count(other.clone()), count(one.clone()))?;
        let listed = made(1, self.other.list(self.keys()).await)?;
        let total = listed.values.get(&key).map(|entry| entry.value.as_slice());
        holds(3, total == Some(b"30"), format_args!("30 steps make {total:?}"))
    }

    async fn terms_follow_each_other(&self) -> Checked {
        let candidate = |store: &Arc<dyn Store>, name: &str| {
            let (store, clock) = (Arc::clone(store), Arc::clone(&self.clock));
            Candidate::new(store, clock, self.key("lead"), name, self.shortest)
        };
        let (a, b) = (candidate(&self.one, "a"), candidate(&self.other, "b"));
        let act = |term: &crate::Term, value: &str| {
            let transaction = Transaction::new().only_if(term.guard());
            self.one.commit(transaction.put(self.key("act"), value))
        };
        let first = made(3, a.elected().await)?;
        holds(3, first.predecessor() == Predecessor::None, "the first term follows another")?;
        holds(3, first.is_held(), "a term is over when it begins")?;
        let leader = made(1, b.leader().await)?;
        holds(1, leader.as_deref() == Some("a"), format_args!("the leader is {leader:?}"))?;
        let acted = made(3, act(&first, "first").await)?;
        holds(3, matches!(acted, Committed::Done { .. }), "the leader could not write")?;
        // Nobody renews the first term: the second begins when its lease has expired.
        let second = made(3, b.elected().await)?;
        holds(3, second.revision() > first.revision(), "a later term has no greater revision")?;
        holds(3, second.predecessor() == Predecessor::Expired, "an expired term was resigned")?;
        holds(5, !first.is_held(), "two terms are held at once")?;
        let late = made(3, act(&first, "late").await)?;
        holds(3, matches!(late, Committed::Refused { .. }), "a former leader could write")?;
        let acted = made(3, act(&second, "second").await)?;
        holds(3, matches!(acted, Committed::Done { .. }), "the second leader could not write")?;
        made(3, second.resign().await)?;
        let third = made(3, a.elected().await)?;
        holds(3, third.predecessor() == Predecessor::Resigned, "a resigned term expired")?;
        // Its end changes nothing for the one that is held now.
        made(3, first.resign().await)?;
        let acted = made(3, act(&third, "third").await)?;
        holds(3, matches!(acted, Committed::Done { .. }), "a former leader ended a term")?;
        made(3, third.resign().await)
    }
}

/// The next change that a watch tells.
async fn next(watch: &mut Watching) -> Result<(Revision, String, Option<Entry>), Broken> {
    loop {
        match watch.next().await {
            Ok(WatchEvent::Changed { revision, key, value }) => return Ok((revision, key, value)),
            Ok(WatchEvent::Progress { .. }) => {}
            Ok(event) => return Err(broken(2, format_args!("a watch could not tell: {event:?}"))),
            Err(failure) => {
                return Err(broken(2, format_args!("a watch failed: {}", failure.error)));
            }
        }
    }
}

/// After the history was compacted, a watch of what was before says so, and a list with a watch after it goes on.
pub async fn compaction(stage: &Stage, compact: impl AsyncFnOnce(Revision)) -> Checked {
    let key = stage.key("compacted");
    let first = stage.done(2, Transaction::new().put(&key, "1")).await?;
    stage.done(2, Transaction::new().put(&key, "2")).await?;
    let last = stage.done(2, Transaction::new().put(&key, "3")).await?;
    compact(last).await;
    let mut old = made(2, stage.one.watch(stage.keys(), first).await)?;
    let event = old.next().await;
    let is_told = matches!(event, Ok(WatchEvent::Compacted));
    holds(2, is_told, format_args!("a watch of what was forgotten said {event:?}"))?;
    let listed = made(1, stage.other.list(stage.keys()).await)?;
    let mut new = made(2, stage.other.watch(stage.keys(), listed.revision).await)?;
    let revision = stage.done(2, Transaction::new().delete(&key)).await?;
    let received = next(&mut new).await?;
    holds(2, received == (revision, key, None), format_args!("after a compaction: {received:?}"))
}

/// A watch after a revision that the store has not reached says that the store went back.
pub async fn regression(stage: &Stage) -> Checked {
    let revision = made(1, stage.one.list(stage.keys()).await)?.revision;
    let mut watch = made(2, stage.one.watch(stage.keys(), revision + 1_000_000).await)?;
    let event = watch.next().await;
    let is_told = matches!(event, Ok(WatchEvent::Regressed));
    holds(2, is_told, format_args!("a watch of the future said {event:?}"))
}

/// A write of a random sequence.
#[derive(Clone, Debug)]
pub struct Act {
    writes: Vec<(u8, Option<u8>)>,
    is_leased: bool,
    guard: Option<(u8, Claim)>,
    revokes: bool,
    by_other: bool,
}

/// What the guard of an act claims of its key.
#[derive(Clone, Copy, Debug)]
enum Claim {
    Absent,
    Unmodified,
    Created,
    /// Since before its last change.
    Older,
}

/// Random sequences of writes.
pub fn acts() -> impl Strategy<Value = Vec<Act>> {
    let claim = prop_oneof![
        Just(Claim::Absent),
        Just(Claim::Unmodified),
        Just(Claim::Created),
        Just(Claim::Older),
    ];
    let writes = prop::collection::vec((0..5_u8, prop::option::weighted(0.7, any::<u8>())), 0..4);
    let guard = prop::option::of((0..5_u8, claim));
    let flags = (any::<bool>(), prop::bool::weighted(0.1), any::<bool>());
    let act = (writes, guard, flags).prop_map(|(mut writes, guard, flags)| {
        writes.sort_unstable();
        writes.dedup_by_key(|(key, _)| *key);
        let (is_leased, revokes, by_other) = flags;
        Act { writes, is_leased, guard, revokes, by_other }
    });
    prop::collection::vec(act, 1..30)
}

/// Makes random writes and compares what the store holds and what its watches tell with a model.
pub async fn replay(stage: &Stage, acts: &[Act]) -> Checked {
    let begun = made(1, stage.one.list(stage.keys()).await)?;
    holds(1, begun.values.is_empty(), "the prefix is not empty")?;
    let mut model = Model::default();
    for act in acts {
        let store = if act.by_other { &stage.other } else { &stage.one };
        if act.is_leased && model.lease.is_none() {
            model.lease = Some(made(5, store.grant(stage.shortest.max(LONG)).await)?);
        }
        if act.revokes
            && let Some(lease) = model.lease.take()
        {
            made(5, store.revoke(lease.id).await)?;
            let revision = made(1, store.list(stage.keys()).await)?.revision;
            model.revoke(lease.id, revision);
        }
        let transaction = model.transaction(stage, act);
        let should = transaction.guards.iter().all(|guard| guard.holds(model.entry(guard.key())));
        match made(3, store.commit(transaction.clone()).await)? {
            Committed::Done { revision } if should => model.take(&transaction.writes, revision),
            Committed::Refused { .. } if !should => {}
            other => return Err(broken(3, format_args!("{transaction:?} gave {other:?}"))),
        }
        let listed = made(1, stage.other.list(stage.keys()).await)?;
        let is_same = listed.values == model.entries;
        let both = format_args!("{:?} is listed, not {:?}", listed.values, model.entries);
        holds(1, is_same, both)?;
    }
    let mut watch = made(2, stage.one.watch(stage.keys(), begun.revision).await)?;
    let mut received = Vec::new();
    for _ in &model.history {
        received.push(next(&mut watch).await?);
    }
    let sorted = |all: &[WatchedEntry]| {
        let mut all = all.to_vec();
        all.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        all
    };
    let is_in_order = received.is_sorted_by_key(|(revision, ..)| *revision);
    holds(2, is_in_order, format_args!("a watch returned no order of revisions: {received:?}"))?;
    let is_same = sorted(&received) == sorted(&model.history);
    holds(2, is_same, format_args!("a watch returned {received:?}, not {:?}", model.history))
}

type WatchedEntry = (Revision, String, Option<Entry>);

/// Longer than a test takes.
const LONG: Duration = Duration::from_mins(10);

#[derive(Default)]
struct Model {
    entries: BTreeMap<String, Entry>,
    history: Vec<WatchedEntry>,
    lease: Option<Lease>,
}

impl Model {
    fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    fn transaction(&self, stage: &Stage, act: &Act) -> Transaction {
        let name = |key: u8| stage.key(&key.to_string());
        let mut transaction = Transaction::new();
        if let Some((key, claim)) = act.guard {
            let (key, entry) = (name(key), self.entry(&name(key)));
            let (created, modified) = entry.map_or((1, 1), |it| (it.created, it.modified));
            transaction = transaction.only_if(match claim {
                Claim::Absent => Guard::Absent { key },
                Claim::Unmodified => Guard::Unmodified { key, since: modified },
                Claim::Created => Guard::Created { key, at: created },
                Claim::Older => Guard::Unmodified { key, since: modified.saturating_sub(1) },
            });
        }
        let lease = self.lease.filter(|_| act.is_leased);
        act.writes.iter().fold(transaction, |all, (key, value)| match (value, lease) {
            (None, _) => all.delete(name(*key)),
            (Some(value), None) => all.put(name(*key), [*value]),
            (Some(value), Some(lease)) => all.put_leased(name(*key), [*value], lease.id),
        })
    }

    fn take(&mut self, writes: &[Write], revision: Revision) {
        for write in writes {
            match write {
                Write::Put { key, value, lease } => {
                    let created = self.entry(key).map_or(revision, |entry| entry.created);
                    let entry = Entry::new(value.clone(), created, revision).with_lease(*lease);
                    self.entries.insert(key.clone(), entry.clone());
                    self.history.push((revision, key.clone(), Some(entry)));
                }
                Write::Delete { key } => self.delete(key, revision),
            }
        }
    }

    fn delete(&mut self, key: &str, revision: Revision) {
        if self.entries.remove(key).is_some() {
            self.history.push((revision, key.to_owned(), None));
        }
    }

    fn revoke(&mut self, lease: LeaseId, revision: Revision) {
        let bound = self.entries.iter().filter(|(_, entry)| entry.lease == Some(lease));
        let keys: Vec<_> = bound.map(|(key, _)| key.clone()).collect();
        for key in &keys {
            self.delete(key, revision);
        }
    }
}
