//! Reads tables that are declared, marked as ours or recorded, and no others.
//!
//! A look at a few tables is answered by the shadow as far as it can; only the rest is read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use homeostat_core::{
    Desired as _, Failure, Focus, Hint, Original, Owner, Records, See, Seen, Snapshot, View,
};
use homeostat_netlink::{Connection, Errno, Family};
use tokio::time::Instant;

use crate::diff;
use crate::dump::{self, Generation, Head, InParts};
use crate::error::Error;
use crate::hints::{LinkNotifications, Notifications};
use crate::key::Key;
use crate::listing;
use crate::model::{Hook, Set, Table};
use crate::object::{DeclaredBefore, Object};
use crate::plan::{Op, created_hooks};
use crate::shadow::State;
use crate::source::{Nft, Wording};

/// What a look learned.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The generation that the ruleset had before the look.
    pub(crate) generation: Generation,
    was_read: bool,
    /// Those of the tables that are ours. Some that are as declared must be changed for others.
    pub(crate) ours: BTreeMap<Key, Object>,
}

impl Moment {
    fn new(generation: Generation, was_read: bool) -> Self {
        Moment { generation, was_read, ours: BTreeMap::new() }
    }

    /// Whether tables were read for it; else the notifications of the kernel were enough.
    #[must_use]
    pub fn was_read(&self) -> bool {
        self.was_read
    }
}

/// Observes tables, and waits for hints.
pub struct Reader {
    source: Nft,
    connection: Connection,
    notifications: Notifications,
    /// How many refused transactions of the source it has reacted to.
    refused: u64,
    rest: Rest,
}

/// The time after a reading of everything in which looks at everything are answered by the shadow as far as it can.
///
/// A ruleset of a few thousand rules is read at each resync. A large one would keep the kernel busy: a set of 100,000
/// intervals is listed in more than half a second (Linux 6.18).
///
/// A reading in parts may have passed over what should not be there, so that the rest begins only when two readings in a
/// row lead to the same plan.
#[derive(Debug)]
struct Rest {
    until: Instant,
    /// What the last reading has found and how long it took, while no other one has found the same.
    unconfirmed: Option<(Found, Duration)>,
}

impl Rest {
    /// How many times as long as a reading the rest after it is.
    const TIMES: u32 = 200;
    const LONGEST: Duration = Duration::from_mins(5);

    fn new(now: Instant) -> Self {
        Rest { until: now, unconfirmed: None }
    }

    /// The rest after a reading of so long.
    fn after(
        &mut self,
        reading: &Reading,
        took: Duration,
        is_alike: impl Fn(&Found, &Found) -> bool,
        now: Instant,
    ) -> Self {
        let former = self.unconfirmed.take();
        let former = former.filter(|(former, _)| is_alike(former, &reading.found));
        if former.is_none() && reading.may_hide {
            return Rest { until: now, unconfirmed: Some((reading.found.clone(), took)) };
        }
        let took = took + former.map_or(Duration::ZERO, |(_, took)| took);
        Self::new(now + took.saturating_mul(Self::TIMES).min(Self::LONGEST))
    }

    fn is_over(&self, now: Instant) -> bool {
        self.until <= now
    }
}

/// How often a ruleset that changes meanwhile is read before the look fails.
const TRIES: u32 = 8;

/// How often the shadow is asked again because of a commit that came meanwhile.
const SHADOW_TRIES: u32 = 3;

type Found = Vec<(Head, Object)>;

/// One reading of the tables.
struct Reading {
    /// The generation that the ruleset had before.
    generation: Generation,
    found: Found,
    /// Whether it is certain that no commit changed these tables meanwhile.
    is_certain: bool,
    /// Whether something may be there that it does not show.
    may_hide: bool,
}

/// Reads until no commit has changed the tables meanwhile. Commits to other tables do not matter: two readings in a row
/// that lead to the same plan are as certain. What could not be read to its end is read again.
fn consistent(
    mut read: impl FnMut() -> Result<Option<Reading>, Error>,
    is_alike: impl Fn(&Found, &Found) -> bool,
) -> Result<Reading, Error> {
    let mut former: Option<Found> = None;
    for _ in 0..TRIES {
        let Some(reading) = read()? else { continue };
        let is_same = |former: &Found| is_alike(former, &reading.found);
        if reading.is_certain || former.as_ref().is_some_and(is_same) {
            return Ok(reading);
        }
        former = Some(reading.found);
    }
    Err(Error::Moving { tries: TRIES })
}

/// Whether two readings show the same tables with the same differences from the desired state. What packets and other
/// programs put into sets that are theirs to fill does not matter.
fn leads_to_the_same_plan(view: &View<'_, Nft>, one: &Found, other: &Found) -> bool {
    let is_alike = |((head, object), (other_head, other)): (&(Head, Object), &(Head, Object))| {
        let ops = |desired: Arc<Table>| object.ops(&desired) == other.ops(&desired);
        head == other_head && desired_table(view, &head.key).is_none_or(ops)
    };
    one.len() == other.len() && one.iter().zip(other).all(is_alike)
}

impl Reader {
    /// The subscriptions are open before the first look.
    pub(crate) fn open(source: Nft, notifications: Notifications) -> Result<Self, Error> {
        let connection = source.connect(Family::Netfilter)?;
        let refused = source.refused.load(Ordering::Relaxed);
        Ok(Reader { source, connection, notifications, refused, rest: Rest::new(Instant::now()) })
    }

    /// A look at everything reads everything again only after this time. For tests.
    pub fn read_again_after(&mut self, rest: Duration) {
        self.rest = Rest::new(Instant::now() + rest);
    }

    /// Calls this before each request of a look, and before each part of an answer. For tests, in which others commit
    /// just then.
    pub fn before_each_call(&mut self, run: impl FnMut() + Send + 'static) {
        self.connection.before_each_call(run);
    }

    /// Compiles the desired state for the links that are there now, if it names any.
    async fn resolve(&mut self, view: &View<'_, Nft>) -> Result<(), Failure> {
        if view.desired.input().is_none() {
            self.notifications.links = None;
            return Ok(());
        }
        let links = match self.notifications.links.take() {
            Some(links) => links,
            None => LinkNotifications::open(&self.source, view.desired)?,
        };
        let links = self.notifications.links.insert(links);
        if *view.focus == Focus::All || links.have_changed() {
            let present = links.list(view.desired)?;
            view.desired.resolve(&present).await?;
            // Which links it names is known only now.
            links.watch(view.desired, &present);
        }
        Ok(())
    }

    fn look(&mut self, view: &View<'_, Nft>) -> Result<(Moment, Found), Error> {
        if let Some(answer) = self.answer_from_shadow(view)? {
            return Ok(answer);
        }
        let is_alike = |one: &Found, other: &Found| leads_to_the_same_plan(view, one, other);
        let began = Instant::now();
        let reading = consistent(|| self.read_once(view), is_alike)
            .inspect_err(|_| self.notifications.commits.shadow.discard())?;
        if *view.focus == Focus::All {
            self.rest = self.rest.after(&reading, began.elapsed(), is_alike, Instant::now());
        }
        Ok((Moment::new(reading.generation, true), reading.found))
    }

    /// Nothing if a table was deleted meanwhile.
    fn read_once(&mut self, view: &View<'_, Nft>) -> Result<Option<Reading>, Error> {
        let generation = dump::generation(&mut self.connection)?;
        // Quirk `counted-before-done` (Linux 6.18): a commit changes the generation first, and then
        // policies, names, flags and concatenated intervals one after the other.
        self.connection.await_commit()?;
        let Some((found, in_parts)) = self.read(view)? else { return Ok(None) };
        let after = dump::generation(&mut self.connection)?;
        let mut is_certain = generation == after;
        if self.notifications.is_open() {
            self.notifications.commits.shadow.restart(generation);
            let expected = view.desired.keys().into_iter().chain(view.records.keys().cloned());
            let expected: BTreeSet<Key> = expected.filter(|key| view.focus.covers(key)).collect();
            is_certain |= self.follow(expected, &found, after)? && !in_parts.over_tables;
        }
        is_certain &= !(in_parts.may_lack() && differ(view, &found));
        let may_hide = in_parts.may_hide();
        Ok(Some(Reading { generation, found, is_certain, may_hide }))
    }

    /// What the kernel lists, and which lists came in parts. Nothing if a table was deleted meanwhile, or if a
    /// transaction was seen that is not committed.
    fn read(&mut self, view: &View<'_, Nft>) -> Result<Option<(Found, InParts)>, Error> {
        let mut in_parts = InParts::default();
        let found = match self.read_tables(view, &mut in_parts) {
            Err(Error::Netlink(error)) if error.errno() == Some(Errno::NOENT) => return Ok(None),
            found => found?,
        };
        // Quirk `flags-before-commit` (Linux 6.18): the flags that a transaction gives a table are listed at once, before
        // it is committed, and even if it is refused. When it is over they are listed as they are.
        self.connection.await_commit()?;
        let heads = dump::heads(&mut self.connection)?;
        let is_there = |(head, _): &(Head, Object)| heads.contains(head);
        Ok(found.iter().all(is_there).then_some((found, in_parts)))
    }

    fn read_tables(
        &mut self,
        view: &View<'_, Nft>,
        in_parts: &mut InParts,
    ) -> Result<Found, Error> {
        let mut found = Vec::new();
        for head in dump::heads_in(&mut self.connection, in_parts)? {
            if !self.is_of_interest(view, &head) {
                continue;
            }
            let mut table = dump::table(&mut self.connection, &head, in_parts)?;
            if self.source.wording == Wording::Listed
                && desired_table(view, &head.key).is_some_and(|desired| {
                    !diff::table(&desired, Some((&table, &DeclaredBefore::default()))).is_empty()
                })
            {
                table.texts = listing::texts(&self.source, &head.key);
            }
            let object = self.object(view, &head, Arc::new(table));
            found.push((head, object));
        }
        Ok(found)
    }

    fn is_of_interest(&self, view: &View<'_, Nft>, head: &Head) -> bool {
        let is_ours = head.comment.mark.as_ref() == Some(&self.source.mark);
        let is_known = is_taken_over(view.records, &head.key);
        let is_declared = view.desired.slot(&head.key, None).is_some();
        view.focus.covers(&head.key) && (is_ours || is_known || is_declared)
    }

    /// A table with what the ledger knows of it.
    fn object(&self, view: &View<'_, Nft>, head: &Head, table: Arc<Table>) -> Object {
        let is_marked = self.owner(head, view.records) == Owner::Ours;
        let record = view.records.get(&head.key);
        let wrote = record.map(|record| record.wrote.clone());
        let settled = record.and_then(|record| record.settled.clone());
        Object::observed(table, DeclaredBefore::new(wrote.into_iter().chain(settled)), is_marked)
    }

    fn owner(&self, head: &Head, records: &Records<Key, Object>) -> Owner {
        match &head.comment.mark {
            Some(mark) if *mark == self.source.mark => Owner::Ours,
            Some(mark) => Owner::Foreign(mark.to_string().into()),
            // A table that was taken over cannot get the mark: the ledger knows.
            None if is_taken_over(records, &head.key) => Owner::Unmarked,
            None => Owner::foreign("another owner"),
        }
    }

    /// The tables as they are at the kernel's present generation. Only those are read of which the shadow knows too
    /// little. Nothing, if everything has to be read.
    fn answer_from_shadow(
        &mut self,
        view: &View<'_, Nft>,
    ) -> Result<Option<(Moment, Found)>, Error> {
        if self.source.wording == Wording::Listed || !self.notifications.is_open() {
            return Ok(None);
        }
        let all;
        let keys = match view.focus {
            Focus::Keys(keys) => keys,
            Focus::All if self.rest.is_over(Instant::now()) => return Ok(None),
            Focus::All => {
                all = self.keys_of_interest(view)?;
                &all
            }
        };
        let refused = self.source.refused.load(Ordering::Relaxed);
        if refused != std::mem::replace(&mut self.refused, refused) {
            return Ok(None);
        }
        for _ in 0..SHADOW_TRIES {
            self.notifications.catch_up();
            let Some(generation) = self.notifications.commits.shadow.generation() else {
                return Ok(None);
            };
            if dump::generation(&mut self.connection)? != generation {
                continue;
            }
            let (found, unknown) = self.look_up(view, keys);
            if unknown.is_empty() {
                return Ok(Some((Moment::new(generation, false), found)));
            }
            let focus = Focus::Keys(unknown.clone());
            let Some((read, in_parts)) = self.read(&View { focus: &focus, ..*view })? else {
                continue;
            };
            let after = dump::generation(&mut self.connection)?;
            if in_parts.over_tables && after != generation
                || in_parts.may_lack() && differ(view, &read)
            {
                return Ok(None);
            }
            let known = keys - &unknown;
            if self.follow(unknown, &read, after)? {
                let (mut found, unknown) = self.look_up(view, &known);
                let generation = self.notifications.commits.shadow.generation();
                if let Some(generation) = generation.filter(|_| unknown.is_empty()) {
                    found.extend(read);
                    return Ok(Some((Moment::new(generation, true), found)));
                }
            }
        }
        Ok(None)
    }

    /// The tables that a look at everything looks at.
    fn keys_of_interest(&mut self, view: &View<'_, Nft>) -> Result<BTreeSet<Key>, Error> {
        let heads = dump::heads(&mut self.connection)?.into_iter();
        let found = heads.filter(|head| self.is_of_interest(view, head)).map(|head| head.key);
        let expected = view.desired.keys().into_iter().chain(view.records.keys().cloned());
        Ok(found.chain(expected).collect())
    }

    /// What the shadow knows of these tables, and those of which it knows too little.
    fn look_up(&self, view: &View<'_, Nft>, keys: &BTreeSet<Key>) -> (Found, BTreeSet<Key>) {
        let (mut found, mut unknown) = (Found::new(), BTreeSet::new());
        // Declared tables, with the hooks of the chains that they create; the others that were seen.
        let mut creating: Vec<(Arc<Table>, BTreeSet<Hook>)> = Vec::new();
        let mut present: Vec<(Arc<Table>, Object)> = Vec::new();
        for key in keys {
            let desired = desired_table(view, key);
            let all_hooks = |desired: Arc<Table>| (Arc::clone(&desired), desired.hooks().collect());
            match self.notifications.commits.shadow.lookup(key) {
                Some(State::Absent) => creating.extend(desired.map(all_hooks)),
                Some(State::Present(copy)) if !self.is_of_interest(view, &copy.head) => {}
                Some(State::Present(copy)) if knows(view, &copy.table) => {
                    let object = self.object(view, &copy.head, Arc::clone(&copy.table));
                    if let Some(desired) = desired {
                        let ops = object.ops(&desired);
                        // Counters that a change would take over are not announced.
                        if ops.iter().any(|op| op.carries_counters(&desired, &copy.table)) {
                            unknown.insert(key.clone());
                        }
                        let hooks = created_hooks(&ops, &desired).collect();
                        creating.push((Arc::clone(&desired), hooks));
                        present.push((desired, object.clone()));
                    }
                    found.push((copy.head.clone(), object));
                }
                _ => {
                    unknown.insert(key.clone());
                    creating.extend(desired.map(all_hooks));
                }
            }
        }
        // Chains of tables behind those are created again, with their counters, and chains of tables behind them.
        present.sort_by_key(|(desired, _)| desired.handle);
        for (desired, object) in present {
            let before = creating.iter().filter(|(one, _)| one.handle < desired.handle);
            let hooks: BTreeSet<Hook> = before
                .filter(|(one, hooks)| !hooks.is_empty() && one.shares_hooks(&desired))
                .flat_map(|(_, hooks)| hooks.iter().copied())
                .collect();
            let Some(seen) = object.table.filter(|_| !hooks.is_empty()) else { continue };
            let ops = diff::update(&desired, &seen, &object.declared_before, &hooks);
            if ops.iter().any(|op| op.carries_counters(&desired, &seen)) {
                unknown.insert(desired.key.clone());
            }
            let hooks = created_hooks(&ops, &desired).collect();
            creating.push((desired, hooks));
        }
        found.retain(|(head, _)| !unknown.contains(&head.key));
        (found, unknown)
    }

    /// Lets the shadow follow the expected tables from what a reading has shown that ended at this generation; those
    /// that were not found are absent. Returns whether no commit changed them while they were read.
    fn follow(
        &mut self,
        mut expected: BTreeSet<Key>,
        found: &Found,
        read_at: Generation,
    ) -> Result<bool, Error> {
        let shadow = &mut self.notifications.commits.shadow;
        for key in &expected {
            shadow.store(key.clone(), None, read_at);
        }
        for (head, object) in found {
            let table = object.table.as_ref().map(|table| (head, table));
            shadow.store(head.key.clone(), table, read_at);
            expected.insert(head.key.clone());
        }
        if shadow.generation() != Some(read_at) {
            // A commit that has changed the generation is announced when it is complete.
            self.connection.await_commit()?;
            self.notifications.catch_up();
        }
        Ok(self.notifications.commits.shadow.confirms(expected.iter()))
    }
}

/// Whether the ledger says that a table without a mark is ours. The record of a table that we created proves nothing
/// about another one without the mark: the kernel removes it from no table.
pub(crate) fn is_taken_over(records: &Records<Key, Object>, key: &Key) -> bool {
    records.get(key).is_some_and(|record| {
        record.identity.is_some() || matches!(record.original, Original::Was(_))
    })
}

/// Whether the notifications of the kernel are enough to know a table. What expires is not announced, so that a look at
/// everything must find it.
fn knows(view: &View<'_, Nft>, table: &Table) -> bool {
    let is_moving = *view.focus == Focus::All && table.sets.values().any(Set::is_moving);
    !is_moving && !table.may_change_silently()
}

fn desired_table(view: &View<'_, Nft>, key: &Key) -> Option<Arc<Table>> {
    let slot = view.desired.slot(key, None)?;
    view.desired.compiled().table(slot).cloned()
}

/// Whether more than the elements of these tables is not as declared.
fn differ(view: &View<'_, Nft>, found: &Found) -> bool {
    found.iter().any(|(head, object)| {
        let desired = desired_table(view, &head.key);
        desired.is_some_and(|desired| !object.ops(&desired).iter().all(Op::is_about_elements))
    })
}

impl homeostat_core::Reader<Nft> for Reader {
    async fn observe(
        &mut self,
        view: &View<'_, Nft>,
        see: &mut See<'_, Key, Object>,
    ) -> Result<Moment, Failure> {
        self.resolve(view).await?;
        let (mut moment, found) = self.look(view)?;
        let seen = found.iter().map(|(head, _)| head.key.clone());
        let records = view.records.keys().cloned();
        self.notifications.watch(view.desired.keys().into_iter().chain(seen).chain(records));
        for (head, object) in found {
            let owner = self.owner(&head, view.records);
            if matches!(owner, Owner::Ours | Owner::Unmarked) {
                moment.ours.insert(head.key.clone(), object.clone());
            }
            see(Seen::Present { key: head.key, object, owner });
        }
        Ok(moment)
    }

    async fn snapshots(
        &mut self,
        keys: &BTreeSet<Key>,
    ) -> Result<BTreeMap<Key, Snapshot>, Failure> {
        let mut snapshots = BTreeMap::new();
        for key in keys {
            snapshots.insert(key.clone(), listing::snapshot(&self.source, key)?);
        }
        Ok(snapshots)
    }

    async fn hint(&mut self) -> Result<Hint<Key>, Failure> {
        Ok(self.notifications.hint().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Family as TableFamily;
    use crate::mark::Comment;
    use crate::model::Handle;

    /// A table that can be distinguished from another by its flags.
    fn found(flags: u32) -> Found {
        let key = Key { family: TableFamily(2), name: "a".to_owned() };
        let head = Head { key, handle: Handle(1), flags, comment: Comment::default() };
        let table = Arc::new(Table::empty(&head));
        vec![(head, Object::seen(table))]
    }

    /// Reads these one after the other, each with its flags and whether it is certain: how many were needed, and which
    /// counted.
    fn check(readings: &[Option<(u32, bool)>], expected: Result<(usize, u32), u32>) {
        let mut reads = 0;
        let read = || {
            let reading = readings[reads % readings.len()];
            reads += 1;
            Ok(reading.map(|(flags, is_certain)| Reading {
                generation: 1,
                found: found(flags),
                is_certain,
                may_hide: false,
            }))
        };
        let result = match consistent(read, is_same_head) {
            Ok(reading) => Ok((reads, reading.found[0].0.flags)),
            Err(Error::Moving { tries }) => Err(tries),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(result, expected, "{readings:?}");
    }

    #[test]
    fn everything_is_read_again_after_two_hundred_times_the_time_that_it_took() {
        let (second, now) = (Duration::from_secs(1), Instant::now());
        assert!(Rest::new(now).is_over(now));
        for (took, rest) in
            [(second / 1000, second / 5), (second, 200 * second), (9 * second, 300 * second)]
        {
            let after = Rest::new(now).after(&reading(0, false), took, is_same_head, now);
            assert!(
                !after.is_over(now + rest - second / 1000) && after.is_over(now + rest),
                "{took:?}"
            );
        }
    }

    fn reading(flags: u32, may_hide: bool) -> Reading {
        Reading { generation: 1, found: found(flags), is_certain: true, may_hide }
    }

    fn is_same_head(one: &Found, other: &Found) -> bool {
        one[0].0 == other[0].0
    }

    #[test]
    fn lists_in_parts_are_read_until_two_readings_in_a_row_are_alike() {
        let (second, now) = (Duration::from_secs(1), Instant::now());
        let mut rest = Rest::new(now);
        for flags in [0, 4, 0] {
            rest = rest.after(&reading(flags, true), second / 2, is_same_head, now);
            assert!(rest.is_over(now), "{flags}");
        }
        let rest = rest.after(&reading(0, true), second / 2, is_same_head, now);
        assert!(!rest.is_over(now + 199 * second) && rest.is_over(now + 200 * second));
        assert!(rest.unconfirmed.is_none(), "it takes memory");
    }

    #[test]
    fn two_equal_readings_in_a_row_count_as_consistent() {
        check(&[Some((0, true))], Ok((1, 0)));
        check(&[Some((0, false)), Some((0, false))], Ok((2, 0)));
        check(&[Some((0, false)), Some((4, false)), Some((4, false))], Ok((3, 4)));
        check(&[Some((0, false)), Some((4, false)), Some((0, true))], Ok((3, 0)));
        check(&[Some((0, false)), None, Some((0, false))], Ok((3, 0)));
        // One that is another each time is never consistent, however often it is read.
        check(&[Some((0, false)), Some((4, false))], Err(TRIES));
        check(&[None], Err(TRIES));
    }
}
