//! What a node keeps on its disk: what it has accepted, the documents of that, and a hold.
//!
//! `fleet/OWNER/hold.json` is the hold of this machine. `fleet/OWNER/FLEET/accepted.json` is the [`Progress`], and
//! `documents/SHA256/` beside it has a document: `manifest.json`, whose hash is the name, and its `files`. A document is
//! written beside its place and renamed, so it is there whole or not at all. Whoever loads one compares all files with the
//! manifest first: what was signed is applied, or nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, anyhow};
use homeostat_document::Document;
use homeostat_fleet::chunks::Manifest;
use homeostat_fleet::node::Progress;
use homeostat_fleet::records::Record as _;
use homeostat_fleet::{Digest, Name};
use serde::{Deserialize, Serialize};

use super::settings::FleetSettings;
use crate::confirmed::{
    make_directory, nothing_declared, read_json, sync_directory, write_bytes, write_file,
    write_json,
};
use crate::daemon::clock::Stamp;
use crate::failure::helped;
use crate::provider::understand;
use crate::registry::READER;

const DIRECTORY: &str = "fleet";
const ACCEPTED: &str = "accepted.json";
const DOCUMENTS: &str = "documents";
const HOLD: &str = "hold.json";
const MANIFEST: &str = "manifest.json";
const FILES: &str = "files";
/// The names of documents that are being written begin with this.
const NEW: &str = ".new-";

#[derive(Clone, Debug)]
pub(super) struct Kept {
    directory: PathBuf,
    holds: Holds,
    /// How many users each document has that must stay.
    users: Arc<Mutex<BTreeMap<Digest, usize>>>,
}

/// As long as it exists, a document is not deleted.
pub(super) struct InUse {
    document: Digest,
    users: Arc<Mutex<BTreeMap<Digest, usize>>>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut users = lock(&self.users);
        if let Some(count) = users.get_mut(&self.document) {
            *count -= 1;
            if *count == 0 {
                users.remove(&self.document);
            }
        }
    }
}

/// Who panicked with it had not begun to change it.
fn lock(users: &Mutex<BTreeMap<Digest, usize>>) -> MutexGuard<'_, BTreeMap<Digest, usize>> {
    users.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a document cannot be loaded.
#[derive(Debug)]
pub(super) enum Unloadable {
    /// It is not here as it was signed. It can be fetched again.
    NotHere(anyhow::Error),
    /// This is what was signed, and it cannot be used.
    Unusable(anyhow::Error),
}

impl From<Unloadable> for anyhow::Error {
    fn from(why: Unloadable) -> Self {
        match why {
            Unloadable::NotHere(error) | Unloadable::Unusable(error) => error,
        }
    }
}

impl Kept {
    pub(super) fn of(state_dir: &Path, owner: &str, fleet: &Name) -> Self {
        let holds = Holds::of(state_dir, owner);
        let directory = holds.directory.join(fleet.as_str());
        Kept { directory, holds, users: Arc::default() }
    }

    pub(super) fn hold(&self) -> Option<Hold> {
        self.holds.current()
    }

    /// What was accepted. One that cannot be read is an error: without it an older generation would be taken again.
    pub(super) fn progress(&self) -> Result<Progress> {
        let path = self.directory.join(ACCEPTED);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Progress::default()),
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        Progress::read(&bytes).map_err(|error| {
            helped(
                format!("{}: {error}", path.display()),
                "it says which generation of the fleet was accepted last: restore it from a backup, or delete it if \
                 older generations may be taken again",
            )
        })
    }

    /// Durable when it returns.
    pub(super) fn write_progress(&self, progress: &Progress) -> Result<()> {
        let write = || {
            make_directory(&self.directory)?;
            write_bytes(&self.directory, ACCEPTED, &progress.write())
        };
        write().with_context(|| {
            format!("cannot record in {} what was accepted", self.directory.display())
        })
    }

    fn place(&self, document: &Digest) -> PathBuf {
        self.directory.join(DOCUMENTS).join(document.hex())
    }

    /// Whether a document is here, without a look at its content.
    pub(super) fn has(&self, document: &Digest) -> bool {
        self.place(document).join(MANIFEST).is_file()
    }

    /// Keeps a document from being deleted, whether it is here yet or not.
    pub(super) fn in_use(&self, document: &Digest) -> InUse {
        *lock(&self.users).entry(*document).or_default() += 1;
        InUse { document: *document, users: Arc::clone(&self.users) }
    }

    /// Writes a document: the bytes of its manifest, which has checked the paths of the files.
    pub(super) fn write(
        &self,
        document: &Digest,
        manifest: &[u8],
        files: &[(String, Vec<u8>)],
    ) -> Result<()> {
        /// Several documents may be written at once.
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let documents = self.directory.join(DOCUMENTS);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let new = documents.join(format!("{NEW}{}-{number}", std::process::id()));
        let place = self.place(document);
        let write = || -> io::Result<()> {
            // A process with this number may have left one.
            remove_if_there(&new)?;
            make_directory(&new.join(FILES))?;
            write_file(&new.join(MANIFEST), &mut &*manifest)?;
            for (path, content) in files {
                let file = new.join(FILES).join(path);
                file.parent().map(make_directory).transpose()?;
                write_file(&file, &mut &**content)?;
            }
            sync_directory(&new.join(FILES))?;
            sync_directory(&new)?;
            // Who writes the same document at the same time writes the same.
            let _alone = lock(&self.users);
            if !self.has(document) {
                remove_if_there(&place)?;
                fs::rename(&new, &place)?;
            }
            sync_directory(&documents)
        };
        let written = write();
        // There is none, unless it was not needed or could not be written.
        let _ = fs::remove_dir_all(&new);
        written.with_context(|| format!("cannot write a document to {}", documents.display()))
    }

    /// Reads a document. One that is not as it was signed is deleted, so that it is fetched again.
    pub(super) fn load(&self, document: &Digest) -> Result<Document, Unloadable> {
        let place = self.place(document);
        let files = match verified(&place, document) {
            Ok(files) => files,
            Err(error) => {
                let _ = fs::remove_dir_all(&place);
                return Err(Unloadable::NotHere(error));
            }
        };
        let read = if files == 0 {
            nothing_declared()
        } else {
            understand(READER.load(&[place.join(FILES)]))
        };
        let document = read.map_err(Unloadable::Unusable)?;
        if FleetSettings::of(&document).is_some() {
            return Err(Unloadable::Unusable(helped(
                "a document of a fleet cannot have a `[fleet]` of its own",
                "take it out: the machine's own document says which fleet it belongs to",
            )));
        }
        Ok(document)
    }

    /// The files of all documents that are kept, whose chunks need not be fetched.
    pub(super) fn all_files(&self) -> Vec<Vec<u8>> {
        let documents = fs::read_dir(self.directory.join(DOCUMENTS)).into_iter().flatten();
        let paths = documents.flatten().flat_map(|it| files_below(&it.path().join(FILES)));
        paths.filter_map(|path| fs::read(path).ok()).collect()
    }

    /// Deletes all documents but these, and but those in use.
    pub(super) fn forget_others(&self, kept: &[Digest]) {
        // Who begins to use one waits for this, and then sees what is left.
        let users = lock(&self.users);
        let names: BTreeSet<String> = kept.iter().chain(users.keys()).map(Digest::hex).collect();
        let entries = fs::read_dir(self.directory.join(DOCUMENTS)).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !names.contains(&name) && !name.starts_with(NEW) {
                // One more that is kept does no harm.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Deletes what a process that ended was writing. Nobody may be writing.
    pub(super) fn forget_unfinished(&self) {
        let entries = fs::read_dir(self.directory.join(DOCUMENTS)).into_iter().flatten().flatten();
        for entry in entries.filter(|it| it.file_name().to_string_lossy().starts_with(NEW)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Compares everything at a place with the signed digest: the manifest, each file, and that there is no other file. Says
/// how many files it has.
fn verified(place: &Path, document: &Digest) -> Result<usize> {
    let path = place.join(MANIFEST);
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let manifest =
        Manifest::of_document(document, &bytes).with_context(|| path.display().to_string())?;
    let directory = place.join(FILES);
    let mut found = files_below(&directory);
    for file in &manifest.files {
        let path = directory.join(&file.path);
        let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if Digest::of(&content) != file.digest {
            return Err(anyhow!("{} is not as it was signed", path.display()));
        }
        found.remove(&path);
    }
    match found.first() {
        None => Ok(manifest.files.len()),
        Some(other) => Err(anyhow!("{} was not signed", other.display())),
    }
}

fn files_below(directory: &Path) -> BTreeSet<PathBuf> {
    let (mut files, mut directories) = (BTreeSet::new(), vec![directory.to_owned()]);
    while let Some(directory) = directories.pop() {
        for path in fs::read_dir(directory).into_iter().flatten().flatten().map(|it| it.path()) {
            if path.is_dir() {
                directories.push(path);
            } else {
                files.insert(path);
            }
        }
    }
    files
}

fn remove_if_there(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Holds new documents of a fleet back on this machine, until it is taken away or its time is over.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Hold {
    pub(crate) reason: String,
    pub(crate) by: String,
    /// Without it, until it is taken away.
    pub(crate) until: Option<String>,
}

/// Where the hold of an owner is.
#[derive(Clone, Debug)]
pub(crate) struct Holds {
    directory: PathBuf,
}

impl Holds {
    pub(crate) fn of(state_dir: &Path, owner: &str) -> Self {
        Holds { directory: state_dir.join(DIRECTORY).join(owner) }
    }

    /// The hold whose time is not over. One that cannot be read holds, too.
    pub(crate) fn current(&self) -> Option<Hold> {
        let hold: Hold = match read_json(&self.directory.join(HOLD)) {
            Ok(hold) => hold,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                let (reason, by) =
                    (format!("the record of the hold cannot be read: {error}"), String::new());
                return Some(Hold { reason, by, until: None });
            }
        };
        let until = hold.until.as_ref().and_then(|until| until.parse::<Stamp>().ok());
        Some(hold).filter(|_| until.is_none_or(|until| until.age().is_zero()))
    }

    /// Durable when it returns.
    pub(crate) fn set(&self, hold: &Hold) -> Result<()> {
        let write = || {
            make_directory(&self.directory)?;
            write_json(&self.directory, HOLD, hold)
        };
        write().with_context(|| format!("cannot write to {}", self.directory.display()))
    }

    /// Whether there was one.
    pub(crate) fn remove(&self) -> Result<bool> {
        match fs::remove_file(self.directory.join(HOLD)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => {
                Err(error).with_context(|| format!("cannot write to {}", self.directory.display()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use homeostat_fleet::chunks::{Packed, pack};

    use super::*;

    fn kept(directory: &Path) -> Kept {
        Kept::of(directory, "test", &"edge".parse().unwrap())
    }

    fn document(value: u64) -> (Packed, Vec<(String, Vec<u8>)>) {
        let text = format!("[sysctl]\n\"net.ipv4.tcp_retries1\" = {value}\n").into_bytes();
        let files = vec![("host.toml".to_owned(), text), ("lists/a".to_owned(), b"a".to_vec())];
        (pack(files.iter().map(|(path, content)| (&**path, &**content)), &[]), files)
    }

    fn written(kept: &Kept, value: u64) -> Digest {
        let (packed, files) = document(value);
        kept.write(&packed.document, &packed.manifest, &files).unwrap();
        packed.document
    }

    #[test]
    fn documents_that_are_written_at_the_same_time_are_all_whole() {
        let directory = tempfile::tempdir().unwrap();
        let kept = kept(directory.path());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let kept = kept.clone();
                scope.spawn(move || {
                    for nth in 0..20 {
                        // Two threads each write the same ones.
                        let digest = written(&kept, (thread % 2) * 100 + nth);
                        kept.load(&digest).unwrap();
                    }
                });
            }
        });
        let documents = fs::read_dir(kept.directory.join(DOCUMENTS)).unwrap();
        assert_eq!(documents.count(), 40, "nothing unfinished is left");
    }

    #[test]
    fn what_is_not_as_it_was_signed_is_not_loaded_and_is_to_be_fetched_again() {
        let directory = tempfile::tempdir().unwrap();
        let kept = kept(directory.path());
        let damages: [fn(&Path); 5] = [
            |place| fs::write(place.join("files/host.toml"), "[sysctl]\n").unwrap(),
            |place| fs::write(place.join("files/lists/a"), "b").unwrap(),
            |place| fs::write(place.join("files/more.toml"), "[sysctl]\n").unwrap(),
            |place| fs::remove_file(place.join("files/lists/a")).unwrap(),
            |place| fs::write(place.join("manifest.json"), "{\"format\":1,\"files\":[]}").unwrap(),
        ];
        for damage in damages {
            let digest = written(&kept, 5);
            kept.load(&digest).unwrap();
            damage(&kept.place(&digest));
            assert!(matches!(kept.load(&digest), Err(Unloadable::NotHere(_))));
            assert!(!kept.has(&digest));
        }
    }

    #[test]
    fn a_document_in_use_is_not_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let kept = kept(directory.path());
        let [good, planned, old] = [1, 2, 3].map(|value| written(&kept, value));
        let (first, second) = (kept.in_use(&planned), kept.in_use(&planned));
        drop(first);
        kept.forget_others(&[good]);
        assert_eq!([good, planned, old].map(|it| kept.has(&it)), [true, true, false]);
        drop(second);
        kept.forget_others(&[good]);
        assert!(!kept.has(&planned));
    }
}
