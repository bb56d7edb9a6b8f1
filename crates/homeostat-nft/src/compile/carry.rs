//! Tries whether tables can be written as the bytes that they were dumped as.
//!
//! All but very few can. It is tried in the scratch namespace, where nothing can be harmed: each table is
//! made again from its bytes, and must come out equal.

use std::collections::BTreeSet;

use homeostat_netlink::{Batch, Connection, Family, Transacted};

use super::CompileError;
use super::scratch::Scratch;
use crate::declared::Former;
use crate::diff;
use crate::dump;
use crate::encode::{Encoder, Unwritable};
use crate::error::Error;
use crate::key::Key;
use crate::mark::Mark;
use crate::model::Table;

/// Elements of one set are alike: so many of them are tried.
const ENOUGH: usize = 256;

/// The tables that cannot be carried. The scratch is not what it was after it.
pub(super) fn uncarried(
    scratch: &Scratch<'_>,
    tables: &[Table],
) -> Result<BTreeSet<Key>, CompileError> {
    let mut connection =
        scratch.connect(Family::Netfilter).map_err(|error| CompileError::kernel(&error))?;
    try_all(&mut connection, tables).map_err(|error| CompileError::kernel(&error))
}

fn try_all(connection: &mut Connection, tables: &[Table]) -> Result<BTreeSet<Key>, Error> {
    let tried: Vec<Table> = tables.iter().map(small).collect();
    let mut uncarried = BTreeSet::new();
    loop {
        let rest: Vec<_> = tried.iter().filter(|one| !uncarried.contains(&one.key)).collect();
        if let Some(refused) = make_again(connection, &rest)? {
            uncarried.insert(refused);
            continue;
        }
        uncarried.extend(changed(connection, &rest)?);
        return Ok(uncarried);
    }
}

fn small(table: &Table) -> Table {
    let mut table = table.clone();
    table.sets.values_mut().for_each(|set| set.elements.truncate(ENOUGH));
    table
}

/// Makes the tables again in one transaction; tells the one that was refused.
fn make_again(connection: &mut Connection, tables: &[&Table]) -> Result<Option<Key>, Error> {
    let (mut batch, mut places, mut last_id) = (Batch::new(), Vec::new(), 0);
    for table in tables {
        if write(table, &mut batch, &mut last_id).is_err() {
            return Ok(Some(table.key.clone()));
        }
        places.resize(batch.count(), &table.key);
    }
    if places.is_empty() {
        return Ok(None);
    }
    Ok(match connection.transact(&batch, None)? {
        Transacted::Refused { place, .. } => {
            let key = place.and_then(|place| places.get(place)).or(places.first());
            key.map(|key| (*key).clone())
        }
        Transacted::Done | Transacted::Unknown => None,
    })
}

fn write(table: &Table, batch: &mut Batch, last_id: &mut u32) -> Result<(), Unwritable> {
    let mark = Mark::new("");
    let (desired, seen) = (Some(table), Some(table));
    let (key, flags) = (&table.key, 0);
    let mut encoder = Encoder { batch, last_id, key, mark: &mark, desired, seen, flags };
    diff::made_again(table).iter().try_for_each(|op| encoder.op(op))
}

/// The tables that came out otherwise.
fn changed(connection: &mut Connection, tables: &[&Table]) -> Result<Vec<Key>, Error> {
    let heads = dump::heads(connection)?;
    let mut changed = Vec::new();
    for table in tables {
        let head = heads.iter().find(|head| head.key == table.key);
        let seen = head.map(|head| dump::table(connection, head)).transpose()?;
        let none = Former::default();
        let is_equal = seen.is_some_and(|seen| diff::table(table, Some((&seen, &none))).is_empty());
        if !is_equal {
            changed.push(table.key.clone());
        }
    }
    Ok(changed)
}
