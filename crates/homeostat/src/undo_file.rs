//! The undo list of a trial, on disk: objects of other owners that went as a side effect, one line each. And what goes
//! along with a rollback.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use homeostat_engine::{Control, Failure, LedgerKey, Restored, Retry, Snapshot, Taking, UndoList};
use homeostat_registry::Recorded;
use serde::{Deserialize, Serialize};

use crate::wire::{NamedKey, NotRestored};

/// Where a trial records what it takes from others.
#[derive(Debug)]
pub(crate) struct UndoFile {
    path: PathBuf,
    known: Mutex<BTreeSet<(String, String, String)>>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct TakenObject {
    pub(crate) source: String,
    pub(crate) scope: String,
    pub(crate) key: String,
    /// None, if it did not go after all.
    pub(crate) snapshot: Option<Snapshot>,
    #[serde(default)]
    pub(crate) taking: Taking,
}

impl UndoFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        UndoFile { path, known: Mutex::default() }
    }

    fn write<'a>(
        &self,
        of: &LedgerKey,
        objects: impl Iterator<Item = (&'a String, Option<&'a Snapshot>)>,
        taking: Taking,
    ) -> Result<(), Failure> {
        let mut lines = String::new();
        for (key, snapshot) in objects {
            let line = TakenObject {
                source: of.source.clone(),
                scope: of.scope.clone(),
                key: key.clone(),
                snapshot: snapshot.cloned(),
                taking,
            };
            let line = serde_json::to_string(&line);
            lines += &line.map_err(|error| Failure::from_error(&error, Retry::Never))?;
            lines.push('\n');
        }
        if lines.is_empty() {
            return Ok(());
        }
        // A full disk may have cut the line before: it must not take the next one along.
        self.append(&format!("\n{lines}")).map_err(|error| {
            let error = format!("cannot write {}: {error}", self.path.display());
            Failure::new(error, Retry::Soon)
        })
    }

    fn append(&self, lines: &str) -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path)?;
        file.write_all(lines.as_bytes())?;
        file.sync_data()?;
        // The file itself may be new.
        self.path.parent().map_or(Ok(()), |directory| fs::File::open(directory)?.sync_all())
    }
}

impl UndoList for UndoFile {
    fn record(
        &self,
        of: &LedgerKey,
        taken: &[(String, Snapshot)],
        taking: Taking,
    ) -> Result<(), Failure> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let name = |key: &String| (of.source.clone(), of.scope.clone(), key.clone());
        let new = taken.iter().filter(|(key, _)| !known.contains(&name(key)));
        self.write(of, new.map(|(key, snapshot)| (key, Some(snapshot))), taking)?;
        known.extend(taken.iter().map(|(key, _)| name(key)));
        Ok(())
    }

    fn strike(&self, of: &LedgerKey, kept: &[String]) -> Result<(), Failure> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(of, kept.iter().map(|key| (key, None)), Taking::Along)?;
        // Another step may take it.
        known.retain(|(source, scope, key)| {
            (source, scope) != (&of.source, &of.scope) || !kept.contains(key)
        });
        Ok(())
    }
}

/// What was recorded and went. A line that a crash has cut was never acted upon.
pub(crate) fn read(path: &Path) -> Vec<TakenObject> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut taken = BTreeMap::new();
    for line in text.lines() {
        let Ok(object) = serde_json::from_str::<TakenObject>(line) else { continue };
        let name = (object.source.clone(), object.scope.clone(), object.key.clone());
        match object.snapshot {
            Some(_) => _ = taken.entry(name).or_insert(object),
            None => _ = taken.remove(&name),
        }
    }
    taken.into_values().collect()
}

/// What sources may need to know to make objects again as they were.
pub(crate) fn recorded(path: &Path) -> Arc<Vec<Recorded>> {
    let recorded = read(path).into_iter().filter_map(
        |TakenObject { source, scope, key, snapshot, .. }| {
            Some(Recorded { source, scope, key, snapshot: snapshot? })
        },
    );
    Arc::new(recorded.collect())
}

/// The results for the objects on an undo list.
#[derive(Default)]
pub(crate) struct Undone {
    /// The objects that could not be restored.
    pub(crate) lost: Vec<NotRestored>,
    /// Our own that were gone meanwhile.
    pub(crate) again: Vec<NamedKey>,
    /// What others have made again meanwhile, which stays as it is.
    pub(crate) left: Vec<NamedKey>,
}

/// Makes objects again that a trial took away, and puts right what is around them.
pub(crate) async fn restore(taken: &[TakenObject], loops: &[Arc<dyn Control>]) -> Undone {
    let mut undone = Undone::default();
    let turns: BTreeSet<u8> = taken.iter().map(|one| one.taking.turn()).collect();
    for turn in turns {
        let now: Vec<_> = taken.iter().filter(|one| one.taking.turn() == turn).cloned().collect();
        for control in loops {
            restore_in(&now, &**control, &mut undone).await;
        }
    }
    undone
}

async fn restore_in(taken: &[TakenObject], control: &dyn Control, undone: &mut Undone) {
    let of = control.ledger_key();
    let is_here = |one: &&TakenObject| one.source == of.source && one.scope == of.scope;
    let here = taken.iter().filter(is_here);
    let here: Vec<_> =
        here.filter_map(|one| Some((one.key.clone(), one.snapshot.clone()?))).collect();
    if here.is_empty() {
        return;
    }
    let own = taken.iter().filter(is_here).filter(|one| one.taking == Taking::Itself);
    let own: BTreeSet<String> = own.map(|one| one.key.clone()).collect();
    let restored = match control.restore(here).await {
        Ok(restored) => restored,
        Err(refused) => {
            let failure = Failure::from_error(&refused, Retry::Never);
            vec![(of.source.clone(), Restored::Failed(failure))]
        }
    };
    for (key, restored) in restored {
        let (source, scope) = (of.source.clone(), of.scope.clone());
        match restored {
            Restored::Failed(failure) => undone.lost.push(NotRestored {
                source,
                scope,
                key,
                kind: "lost".to_owned(),
                reason: Some(failure.error),
            }),
            _ if own.contains(&key) => undone.again.push(NamedKey { source, scope, key }),
            Restored::There => undone.left.push(NamedKey { source, scope, key }),
            Restored::Back => {}
        }
    }
}

/// What others lose by a rollback that may take things along.
#[derive(Debug, Default)]
pub(crate) struct WentAlong(Mutex<BTreeMap<NamedKey, Snapshot>>);

impl WentAlong {
    /// Makes again what does not need the objects of the trial, such as a route that was there before it, and returns the
    /// rest.
    pub(crate) async fn restore(&self, loops: &[Arc<dyn Control>]) -> Vec<NamedKey> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let taken = all.into_iter().map(|(NamedKey { source, scope, key }, snapshot)| {
            let (snapshot, taking) = (Some(snapshot), Taking::Along);
            TakenObject { source, scope, key, snapshot, taking }
        });
        let Undone { lost, .. } = restore(&taken.collect::<Vec<_>>(), loops).await;
        let lost = lost.into_iter();
        lost.map(|NotRestored { source, scope, key, .. }| NamedKey { source, scope, key }).collect()
    }
}

fn named(of: &LedgerKey, key: &str) -> NamedKey {
    let (source, scope) = (of.source.clone(), of.scope.clone());
    NamedKey { source, scope, key: key.to_owned() }
}

impl UndoList for WentAlong {
    fn record(
        &self,
        of: &LedgerKey,
        taken: &[(String, Snapshot)],
        taking: Taking,
    ) -> Result<(), Failure> {
        if taking == Taking::Along {
            let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            keys.extend(taken.iter().map(|(key, snapshot)| (named(of, key), snapshot.clone())));
        }
        Ok(())
    }

    fn strike(&self, of: &LedgerKey, kept: &[String]) -> Result<(), Failure> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for key in kept {
            keys.remove(&named(of, key));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> LedgerKey {
        LedgerKey::new("default", "rtnl", "host").with_identity("1")
    }

    #[test]
    fn the_first_record_of_an_object_stands_and_a_cut_line_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("undo");
        let list = UndoFile::new(path.clone());
        let of = host();
        let taken = |text: &str| vec![("route 10.0.0.0/8".to_owned(), Snapshot(text.to_owned()))];
        list.record(&of, &taken("before"), Taking::Along).unwrap();
        list.record(&of, &taken("later"), Taking::Along).unwrap();
        let mut torn = fs::read_to_string(&path).unwrap();
        torn += "{\"source\":\"rt";
        fs::write(&path, torn).unwrap();
        let read = read(&path);
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].snapshot, Some(Snapshot("before".to_owned())));
    }

    #[test]
    fn what_is_recorded_after_a_cut_line_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("undo");
        let (list, of) = (UndoFile::new(path.clone()), host());
        let taken = |key: &str| vec![(key.to_owned(), Snapshot("before".to_owned()))];
        list.record(&of, &taken("route 10.0.0.0/8"), Taking::Along).unwrap();
        // As by a disk that was full.
        let mut torn = fs::read_to_string(&path).unwrap();
        torn += "{\"source\":\"rt";
        fs::write(&path, torn).unwrap();
        list.record(&of, &taken("route 11.0.0.0/8"), Taking::Along).unwrap();
        list.record(&of, &taken("route 12.0.0.0/8"), Taking::Along).unwrap();
        let keys: Vec<_> = read(&path).into_iter().map(|taken| taken.key).collect();
        assert_eq!(keys, ["route 10.0.0.0/8", "route 11.0.0.0/8", "route 12.0.0.0/8"]);
    }

    #[test]
    fn what_did_not_go_is_struck_off_and_may_be_taken_later() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("undo");
        let (list, of) = (UndoFile::new(path.clone()), host());
        let taken = |text: &str| vec![("route 10.0.0.0/8".to_owned(), Snapshot(text.to_owned()))];
        list.record(&of, &taken("before"), Taking::Along).unwrap();
        list.strike(&of, &["route 10.0.0.0/8".to_owned()]).unwrap();
        assert_eq!(read(&path), []);
        list.record(&of, &taken("later"), Taking::Along).unwrap();
        assert_eq!(read(&path)[0].snapshot, Some(Snapshot("later".to_owned())));
    }
}
