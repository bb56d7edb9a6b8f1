//! Reads tables that are declared, marked as ours or recorded, and no others.
//!
//! A look at a few tables is answered by the shadow as far as it can; only the rest is read.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::{
    Desired as _, Failure, Focus, Hint, Original, Owner, Records, See, Seen, View,
};
use homeostat_netlink::{Connection, Family};

use crate::dump::{self, Generation, Head};
use crate::error::Error;
use crate::hints::{Ear, Links};
use crate::key::Key;
use crate::model::Table;
use crate::object::{Former, Object};
use crate::shadow::Known;
use crate::source::{Nft, Wording};
use crate::{diff, plan as op};

/// What one look learned beside the tables.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The generation that the ruleset had before the look.
    pub(crate) generation: Generation,
    /// Whether tables were read for it; else what was told of commits was enough.
    pub(crate) was_read: bool,
}

impl Moment {
    /// Whether tables were read for it. Else what the kernel told of commits was enough.
    #[must_use]
    pub fn was_read(&self) -> bool {
        self.was_read
    }
}

/// The eyes of the source.
pub struct Reader {
    source: Nft,
    connection: Connection,
    ear: Ear,
    /// How many refusals of transactions it knows of.
    refusals: u64,
}

/// How often a moving ruleset is read before it is given up.
const TRIES: u32 = 8;

type Found = Vec<(Head, Object)>;

/// What was found, and between which generations.
struct Reading {
    before: Generation,
    found: Found,
    after: Generation,
}

/// Reads until nothing moved meanwhile. Every commit by anybody moves the generation, so that two equal
/// readings in a row count as whole, too. What could not be read to its end is read again.
fn whole(mut read: impl FnMut() -> Result<Option<Reading>, Error>) -> Result<Reading, Error> {
    let mut former: Option<Found> = None;
    for _ in 0..TRIES {
        let Some(reading) = read()? else { continue };
        let stood_still = reading.before == reading.after;
        if stood_still || former.as_ref().is_some_and(|former| are_equal(former, &reading.found)) {
            return Ok(reading);
        }
        former = Some(reading.found);
    }
    Err(Error::Moving { tries: TRIES })
}

impl Reader {
    pub(crate) fn open(source: Nft) -> Result<Self, Error> {
        // The subscription stands before the first look.
        let ear = Ear::open(&source)?;
        Self::with(ear, source)
    }

    /// One that hears nothing: while nobody listens, the kernel tells nobody of large commits.
    pub(crate) fn open_deaf(source: Nft) -> Result<Self, Error> {
        Self::with(Ear::deaf(&source), source)
    }

    fn with(ear: Ear, source: Nft) -> Result<Self, Error> {
        let connection = source.connect(Family::Netfilter)?;
        let refusals = source.refusals.count();
        Ok(Reader { source, connection, ear, refusals })
    }

    fn look(&mut self, view: &View<'_, Nft>) -> Result<(Moment, Found), Error> {
        if let Some(recalled) = self.recall(view)? {
            return Ok(recalled);
        }
        let whole = whole(|| {
            let before = dump::generation(&mut self.connection)?;
            // Quirk `counted-before-done` (Linux 6.18): a commit moves the generation first, and changes
            // policies, names, flags and concatenated intervals one after the other then.
            self.connection.await_commit()?;
            let found = match self.read(view) {
                // A table that went between two lists.
                Err(Error::Netlink(error)) if is_absence(&error) => return Ok(None),
                found => found?,
            };
            let after = dump::generation(&mut self.connection)?;
            Ok(Some(Reading { before, found, after }))
        })?;
        self.remember(view, &whole);
        Ok((Moment { generation: whole.before, was_read: true }, whole.found))
    }

    fn read(&mut self, view: &View<'_, Nft>) -> Result<Found, Error> {
        let heads = dump::heads(&mut self.connection)?;
        let heads: Vec<_> =
            heads.into_iter().filter(|head| self.is_of_interest(view, head)).collect();
        let mut found = Vec::new();
        for head in heads {
            let mut table = dump::table(&mut self.connection, &head)?;
            if self.source.wording == Wording::Listed && differs(view, &table) {
                table.texts = self.source.texts(&head.key);
            }
            let object = self.object(view, &head, Arc::new(table));
            found.push((head, object));
        }
        Ok(found)
    }

    /// A table that was looked at, with what the ledger knows of it.
    fn object(&self, view: &View<'_, Nft>, head: &Head, table: Arc<Table>) -> Object {
        let is_marked = self.owner(head, view.records) == Owner::Ours;
        Object::looked_at(table, former(view.records, &head.key), is_marked)
    }

    fn is_of_interest(&self, view: &View<'_, Nft>, head: &Head) -> bool {
        let is_ours = head.words.mark.as_ref() == Some(&self.source.mark);
        let is_known = is_taken_over(view.records, &head.key);
        let is_declared = view.desired.slot(&head.key, None).is_some();
        view.focus.covers(&head.key) && (is_ours || is_known || is_declared)
    }

    /// Lets the desired state mean the links that are there now, if it speaks of any.
    async fn resolve(&mut self, view: &View<'_, Nft>) -> Result<(), Failure> {
        if view.desired.recipe().is_none() {
            self.ear.links = None;
            return Ok(());
        }
        let links = match self.ear.links.take() {
            Some(links) => links,
            None => Links::open(&self.source, view.desired).map_err(|error| error.failure())?,
        };
        let links = self.ear.links.insert(links);
        if *view.focus == Focus::All || links.have_moved() {
            let there = links.look(view.desired).map_err(|error| error.failure())?;
            view.desired.resolve(&there).await?;
            // What it means is known only now.
            links.attend(view.desired, &there);
        }
        Ok(())
    }

    fn owner(&self, head: &Head, records: &Records<Key, Object>) -> Owner {
        match &head.words.mark {
            Some(mark) if *mark == self.source.mark => Owner::Ours,
            Some(mark) => Owner::Foreign(mark.to_string().into()),
            // One that was taken over cannot carry the mark: the ledger knows.
            None if is_taken_over(records, &head.key) => Owner::Unmarked,
            None => Owner::foreign("somebody else"),
        }
    }
}

/// Whether the ledger holds a table for ours that carries no mark. The record of one that we made proves
/// nothing about another without the mark: the kernel takes it off no table.
pub(crate) fn is_taken_over(records: &Records<Key, Object>, key: &Key) -> bool {
    records.get(key).is_some_and(|record| {
        record.identity.is_some() || matches!(record.original, Original::Was(_))
    })
}

/// Which elements were declared in a table.
fn former(records: &Records<Key, Object>, key: &Key) -> Former {
    let record = records.get(key);
    let wrote = record.map(|record| record.wrote.clone());
    let before = record.and_then(|record| record.settled.clone());
    Former::new(wrote.into_iter().chain(before))
}

/// Whether a table is not as declared, so that a plan has to speak of its rules.
fn differs(view: &View<'_, Nft>, table: &Table) -> bool {
    let compiled = view.desired.compiled();
    let slot = view.desired.slot(&table.key, None);
    let desired = slot.and_then(|slot| compiled.table(slot));
    desired
        .is_some_and(|desired| !diff::table(desired, Some((table, &Former::default()))).is_empty())
}

fn is_absence(error: &homeostat_netlink::Error) -> bool {
    error.errno() == Some(homeostat_netlink::Errno::NOENT)
}

fn are_equal(one: &Found, other: &Found) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a.0.key == b.0.key && a.1 == b.1)
}

impl homeostat_core::Reader<Nft> for Reader {
    async fn observe(
        &mut self,
        view: &View<'_, Nft>,
        see: &mut See<'_, Key, Object>,
    ) -> Result<Moment, Failure> {
        self.resolve(view).await?;
        let (moment, found) = self.look(view).map_err(|error| error.failure())?;
        let seen = found.iter().map(|(head, _)| head.key.clone());
        let records = view.records.keys().cloned();
        self.ear.attend(view.desired.keys().into_iter().chain(seen).chain(records));
        for (head, object) in found {
            let owner = self.owner(&head, view.records);
            see(Seen::Present { key: head.key, object, owner });
        }
        Ok(moment)
    }

    async fn hint(&mut self) -> Result<Hint<Key>, Failure> {
        self.ear.hint().await.map_err(|error| error.failure())
    }
}

/// How often a commit may come between what was told and what the kernel says of its generation.
const RECALL_TRIES: u32 = 3;

/// What another look at single tables has shown.
type Anew = Vec<(Key, Option<(Head, Object)>)>;

impl Reader {
    /// The tables as they are at the kernel's own generation, if that can be told without reading them all.
    fn recall(&mut self, view: &View<'_, Nft>) -> Result<Option<(Moment, Found)>, Error> {
        let Focus::Keys(keys) = view.focus else { return Ok(None) };
        if self.source.wording == Wording::Listed || !self.ear.is_open() {
            return Ok(None);
        }
        let refusals = self.source.refusals.count();
        if refusals != std::mem::replace(&mut self.refusals, refusals) {
            return Ok(None);
        }
        for _ in 0..RECALL_TRIES {
            self.ear.catch_up();
            let Some(generation) = self.ear.shadow.generation() else { return Ok(None) };
            let (found, unknown) = self.told(view, keys);
            let was_read = !unknown.is_empty();
            let read = match self.read_anew(view, unknown) {
                Err(Error::Netlink(error)) if is_absence(&error) => continue,
                read => read?,
            };
            if dump::generation(&mut self.connection)? == generation {
                self.note(&read);
                let read = read.into_iter().filter_map(|(_, seen)| seen);
                let moment = Moment { generation, was_read };
                return Ok(Some((moment, found.into_iter().chain(read).collect())));
            }
        }
        Ok(None)
    }

    /// What is known of these tables, and those of which too little is.
    fn told(&self, view: &View<'_, Nft>, keys: &BTreeSet<Key>) -> (Found, BTreeSet<Key>) {
        let (mut found, mut unknown) = (Found::new(), BTreeSet::new());
        for key in keys {
            match self.ear.shadow.known(key) {
                Known::Absent => {}
                Known::Held(head, _) if !self.is_of_interest(view, &head) => {}
                Known::Held(_, table) if table.may_go_unheard() => _ = unknown.insert(key.clone()),
                Known::Held(head, table) => {
                    let object = self.object(view, &head, table);
                    if needs_counts(view, key, &object) {
                        unknown.insert(key.clone());
                    } else {
                        found.push((head, object));
                    }
                }
                Known::Nothing => _ = unknown.insert(key.clone()),
            }
        }
        (found, unknown)
    }

    fn read_anew(&mut self, view: &View<'_, Nft>, keys: BTreeSet<Key>) -> Result<Anew, Error> {
        if keys.is_empty() {
            return Ok(Anew::new());
        }
        let focus = Focus::Keys(keys.clone());
        let mut found = self.read(&View { focus: &focus, ..*view })?;
        let of_key = |key: Key| {
            let at = found.iter().position(|(head, _)| head.key == key);
            (key, at.map(|at| found.swap_remove(at)))
        };
        Ok(keys.into_iter().map(of_key).collect())
    }

    fn note(&mut self, read: &Anew) {
        for (key, seen) in read {
            let seen =
                seen.as_ref().and_then(|(head, object)| Some((head, object.table.as_ref()?)));
            self.ear.shadow.know(key.clone(), seen);
        }
    }

    /// Lets the shadow begin with what a look has shown, if nothing moved meanwhile.
    fn remember(&mut self, view: &View<'_, Nft>, reading: &Reading) {
        if !self.ear.is_open() {
            return;
        }
        if reading.before != reading.after {
            return self.ear.shadow.give_up();
        }
        self.ear.shadow.begin(reading.before);
        let expected = view.desired.keys().into_iter().chain(view.records.keys().cloned());
        for key in expected.filter(|key| view.focus.covers(key)) {
            self.ear.shadow.know(key, None);
        }
        for (head, object) in &reading.found {
            self.ear
                .shadow
                .know(head.key.clone(), object.table.as_ref().map(|table| (head, table)));
        }
    }
}

/// Whether a change of this table would carry on counts, which nobody tells of.
fn needs_counts(view: &View<'_, Nft>, key: &Key, object: &Object) -> bool {
    let compiled = view.desired.compiled();
    let desired = view.desired.slot(key, None).and_then(|slot| compiled.table(slot));
    let (Some(desired), Some(table)) = (desired, &object.table) else { return false };
    object.acts(desired).iter().any(|op| op::carries(op, table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Family as TableFamily;
    use crate::mark::Words;
    use crate::model::Handle;

    /// A table that can be told from another by its flags.
    fn found(flags: u32) -> Found {
        let key = Key { family: TableFamily(2), name: "a".to_owned() };
        let head = Head { key, handle: Handle(1), flags, words: Words::default() };
        let table = Arc::new(Table::empty(&head));
        vec![(head, Object::seen(table))]
    }

    /// Reads these one after the other, each with its flags: how many were needed, and which counted.
    fn check(
        readings: &[Option<(u32, Generation, Generation)>],
        expected: Result<(usize, u32), u32>,
    ) {
        let mut reads = 0;
        let told = whole(|| {
            let reading = readings[reads % readings.len()];
            reads += 1;
            Ok(reading.map(|(flags, before, after)| Reading { before, found: found(flags), after }))
        });
        let told = match told {
            Ok(reading) => Ok((reads, reading.found[0].0.flags)),
            Err(Error::Moving { tries }) => Err(tries),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(told, expected, "{readings:?}");
    }

    #[test]
    fn two_equal_dumps_in_a_row_count_as_whole() {
        check(&[Some((0, 1, 1))], Ok((1, 0)));
        check(&[Some((0, 1, 2)), Some((0, 2, 3))], Ok((2, 0)));
        check(&[Some((0, 1, 2)), Some((4, 2, 3)), Some((4, 3, 4))], Ok((3, 4)));
        check(&[Some((0, 1, 2)), Some((4, 2, 3)), Some((0, 4, 4))], Ok((3, 0)));
        check(&[Some((0, 1, 2)), None, Some((0, 3, 4))], Ok((3, 0)));
        // One that is another each time is never whole, however often it is read.
        check(&[Some((0, 1, 2)), Some((4, 2, 3))], Err(TRIES));
        check(&[None], Err(TRIES));
    }
}
