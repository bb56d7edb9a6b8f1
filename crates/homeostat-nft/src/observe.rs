//! Reads tables that are declared, marked as ours or recorded, and no others.
//!
//! A look at a few tables is answered by the shadow as far as it can; only the rest is read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use homeostat_core::{
    Desired as _, Failure, Focus, Hint, Original, Owner, Records, See, Seen, View,
};
use homeostat_netlink::{Connection, Errno, Family};

use crate::diff;
use crate::dump::{self, Generation, Head};
use crate::error::Error;
use crate::hints::{LinkNotifications, Notifications};
use crate::key::Key;
use crate::model::Table;
use crate::object::{DeclaredBefore, Object};
use crate::shadow::State;
use crate::source::{Nft, Wording};

/// What a look learned beside the tables.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The generation that the ruleset had before the look.
    pub(crate) generation: Generation,
    was_read: bool,
}

impl Moment {
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
}

/// How often a ruleset that changes meanwhile is read before the look fails.
const TRIES: u32 = 8;

/// How often the shadow is asked again because of a commit that came meanwhile.
const SHADOW_TRIES: u32 = 3;

type Found = Vec<(Head, Object)>;

/// What was found, and between which generations.
struct Reading {
    before: Generation,
    found: Found,
    after: Generation,
}

/// Reads until nothing was committed meanwhile. Every commit changes the generation, so that two equal
/// readings in a row count as consistent, too. What could not be read to its end is read again.
fn consistent(mut read: impl FnMut() -> Result<Option<Reading>, Error>) -> Result<Reading, Error> {
    let mut former: Option<Found> = None;
    for _ in 0..TRIES {
        let Some(reading) = read()? else { continue };
        let is_equal = |former: &Found| {
            let (one, other) = (former.iter(), reading.found.iter());
            one.map(|(head, object)| (&head.key, object))
                .eq(other.map(|(head, object)| (&head.key, object)))
        };
        if reading.before == reading.after || former.as_ref().is_some_and(is_equal) {
            return Ok(reading);
        }
        former = Some(reading.found);
    }
    Err(Error::Moving { tries: TRIES })
}

impl Reader {
    /// The subscriptions are open before the first look.
    pub(crate) fn open(source: Nft, notifications: Notifications) -> Result<Self, Error> {
        let connection = source.connect(Family::Netfilter)?;
        let refused = source.refused.load(Ordering::Relaxed);
        Ok(Reader { source, connection, notifications, refused })
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
        let reading = consistent(|| {
            let before = dump::generation(&mut self.connection)?;
            // Quirk `counted-before-done` (Linux 6.18): a commit changes the generation first, and then
            // policies, names, flags and concatenated intervals one after the other.
            self.connection.await_commit()?;
            let Some(found) = present(self.read(view))? else { return Ok(None) };
            let after = dump::generation(&mut self.connection)?;
            Ok(Some(Reading { before, found, after }))
        })?;
        self.restart_shadow(view, &reading);
        Ok((Moment { generation: reading.before, was_read: true }, reading.found))
    }

    fn read(&mut self, view: &View<'_, Nft>) -> Result<Found, Error> {
        let mut found = Vec::new();
        for head in dump::heads(&mut self.connection)? {
            if !self.is_of_interest(view, &head) {
                continue;
            }
            let mut table = dump::table(&mut self.connection, &head)?;
            if self.source.wording == Wording::Listed
                && desired_table(view, &head.key).is_some_and(|desired| {
                    !diff::table(&desired, Some((&table, &DeclaredBefore::default()))).is_empty()
                })
            {
                table.texts = self.source.texts(&head.key);
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
            None => Owner::foreign("somebody else"),
        }
    }

    /// The tables as they are at the kernel's present generation. Only those are read of which the shadow knows too
    /// little. Nothing, if everything has to be read.
    fn answer_from_shadow(
        &mut self,
        view: &View<'_, Nft>,
    ) -> Result<Option<(Moment, Found)>, Error> {
        let Focus::Keys(keys) = view.focus else { return Ok(None) };
        if self.source.wording == Wording::Listed || !self.notifications.is_open() {
            return Ok(None);
        }
        let refused = self.source.refused.load(Ordering::Relaxed);
        if refused != std::mem::replace(&mut self.refused, refused) {
            return Ok(None);
        }
        for _ in 0..SHADOW_TRIES {
            self.notifications.catch_up();
            let Some(generation) = self.notifications.commits.shadow.generation() else {
                return Ok(None);
            };
            let (mut found, unknown) = self.look_up(view, keys);
            let was_read = !unknown.is_empty();
            let focus = Focus::Keys(unknown.clone());
            let view = View { focus: &focus, ..*view };
            let read = if was_read { present(self.read(&view))? } else { Some(Found::new()) };
            let Some(read) = read else { continue };
            if dump::generation(&mut self.connection)? == generation {
                self.store_in_shadow(unknown, &read);
                found.extend(read);
                return Ok(Some((Moment { generation, was_read }, found)));
            }
        }
        Ok(None)
    }

    /// What the shadow knows of these tables, and those of which it knows too little.
    fn look_up(&self, view: &View<'_, Nft>, keys: &BTreeSet<Key>) -> (Found, BTreeSet<Key>) {
        let (mut found, mut unknown) = (Found::new(), BTreeSet::new());
        for key in keys {
            match self.notifications.commits.shadow.lookup(key) {
                Some(State::Absent) => {}
                Some(State::Present(copy)) if !self.is_of_interest(view, &copy.head) => {}
                Some(State::Present(copy)) if !copy.table.may_change_silently() => {
                    let object = self.object(view, &copy.head, Arc::clone(&copy.table));
                    // Counters that a change would take over are not announced.
                    let takes_over = |desired: Arc<Table>| {
                        object.ops(&desired).iter().any(|op| op.carries_counters(&copy.table))
                    };
                    if desired_table(view, key).is_some_and(takes_over) {
                        unknown.insert(key.clone());
                    } else {
                        found.push((copy.head.clone(), object));
                    }
                }
                _ => _ = unknown.insert(key.clone()),
            }
        }
        (found, unknown)
    }

    /// Lets the shadow begin with what a look has shown, if nothing was committed meanwhile.
    fn restart_shadow(&mut self, view: &View<'_, Nft>, reading: &Reading) {
        if !self.notifications.is_open() {
            return;
        }
        if reading.before != reading.after {
            return self.notifications.commits.shadow.discard();
        }
        self.notifications.commits.shadow.restart(reading.before);
        let expected = view.desired.keys().into_iter().chain(view.records.keys().cloned());
        let expected = expected.filter(|key| view.focus.covers(key)).collect();
        self.store_in_shadow(expected, &reading.found);
    }

    /// Those of the expected tables that were not found are absent.
    fn store_in_shadow(&mut self, expected: BTreeSet<Key>, found: &Found) {
        let shadow = &mut self.notifications.commits.shadow;
        for key in expected {
            shadow.store(key, None);
        }
        for (head, object) in found {
            shadow.store(head.key.clone(), object.table.as_ref().map(|table| (head, table)));
        }
    }
}

/// Whether the ledger says that a table without a mark is ours. The record of a table that we created proves nothing
/// about another one without the mark: the kernel removes it from no table.
pub(crate) fn is_taken_over(records: &Records<Key, Object>, key: &Key) -> bool {
    records.get(key).is_some_and(|record| {
        record.identity.is_some() || matches!(record.original, Original::Was(_))
    })
}

fn desired_table(view: &View<'_, Nft>, key: &Key) -> Option<Arc<Table>> {
    let slot = view.desired.slot(key, None)?;
    view.desired.compiled().table(slot).cloned()
}

/// What was read; nothing if a table was deleted between two lists.
fn present(read: Result<Found, Error>) -> Result<Option<Found>, Error> {
    match read {
        Err(Error::Netlink(error)) if error.errno() == Some(Errno::NOENT) => Ok(None),
        read => read.map(Some),
    }
}

impl homeostat_core::Reader<Nft> for Reader {
    async fn observe(
        &mut self,
        view: &View<'_, Nft>,
        see: &mut See<'_, Key, Object>,
    ) -> Result<Moment, Failure> {
        self.resolve(view).await?;
        let (moment, found) = self.look(view)?;
        let seen = found.iter().map(|(head, _)| head.key.clone());
        let records = view.records.keys().cloned();
        self.notifications.watch(view.desired.keys().into_iter().chain(seen).chain(records));
        for (head, object) in found {
            let owner = self.owner(&head, view.records);
            see(Seen::Present { key: head.key, object, owner });
        }
        Ok(moment)
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

    /// Reads these one after the other, each with its flags: how many were needed, and which counted.
    fn check(
        readings: &[Option<(u32, Generation, Generation)>],
        expected: Result<(usize, u32), u32>,
    ) {
        let mut reads = 0;
        let result = consistent(|| {
            let reading = readings[reads % readings.len()];
            reads += 1;
            Ok(reading.map(|(flags, before, after)| Reading { before, found: found(flags), after }))
        });
        let result = match result {
            Ok(reading) => Ok((reads, reading.found[0].0.flags)),
            Err(Error::Moving { tries }) => Err(tries),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(result, expected, "{readings:?}");
    }

    #[test]
    fn two_equal_dumps_in_a_row_count_as_consistent() {
        check(&[Some((0, 1, 1))], Ok((1, 0)));
        check(&[Some((0, 1, 2)), Some((0, 2, 3))], Ok((2, 0)));
        check(&[Some((0, 1, 2)), Some((4, 2, 3)), Some((4, 3, 4))], Ok((3, 4)));
        check(&[Some((0, 1, 2)), Some((4, 2, 3)), Some((0, 4, 4))], Ok((3, 0)));
        check(&[Some((0, 1, 2)), None, Some((0, 3, 4))], Ok((3, 0)));
        // One that is another each time is never consistent, however often it is read.
        check(&[Some((0, 1, 2)), Some((4, 2, 3))], Err(TRIES));
        check(&[None], Err(TRIES));
    }
}
