//! What a node keeps on its disk: what it has accepted, the documents of that, and a hold.
//!
//! `fleet/OWNER/hold.json` is the hold of this machine. `fleet/OWNER/FLEET/accepted.json` is the [`Progress`], and
//! `documents/SHA256/` beside it has the files of a document. A document is written beside its place and renamed, so it is
//! there whole or not at all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use homeostat_document::Document;
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
/// A document that is being written.
const NEW: &str = ".new";

#[derive(Clone, Debug)]
pub(super) struct Kept {
    directory: PathBuf,
    holds: Holds,
}

impl Kept {
    pub(super) fn of(state_dir: &Path, owner: &str, fleet: &Name) -> Self {
        let holds = Holds::of(state_dir, owner);
        Kept { directory: holds.directory.join(fleet.as_str()), holds }
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

    pub(super) fn has(&self, document: &Digest) -> bool {
        self.place(document).is_dir()
    }

    /// Writes the files of a document, whose paths the manifest has checked.
    pub(super) fn write(&self, document: &Digest, files: &[(String, Vec<u8>)]) -> Result<()> {
        let documents = self.directory.join(DOCUMENTS);
        let new = documents.join(NEW);
        let write = || -> io::Result<()> {
            if new.exists() {
                fs::remove_dir_all(&new)?;
            }
            make_directory(&new)?;
            for (path, content) in files {
                let file = new.join(path);
                file.parent().map(make_directory).transpose()?;
                write_file(&file, &mut &**content)?;
            }
            sync_directory(&new)?;
            fs::rename(&new, self.place(document))?;
            sync_directory(&documents)
        };
        write().with_context(|| format!("cannot write a document to {}", documents.display()))
    }

    /// Reads a document.
    pub(super) fn load(&self, document: &Digest) -> Result<Document> {
        let place = self.place(document);
        let is_empty = || Ok::<_, io::Error>(fs::read_dir(&place)?.next().is_none());
        if is_empty().with_context(|| format!("cannot read {}", place.display()))? {
            return nothing_declared();
        }
        let document = understand(READER.load(&[place]))?;
        if FleetSettings::of(&document).is_some() {
            return Err(helped(
                "a document of a fleet cannot have a `[fleet]` of its own",
                "take it out: the machine's own document says which fleet it belongs to",
            ));
        }
        Ok(document)
    }

    /// The files of all documents that are kept, whose chunks need not be fetched.
    pub(super) fn all_files(&self) -> Vec<Vec<u8>> {
        let (mut files, mut directories) = (Vec::new(), vec![self.directory.join(DOCUMENTS)]);
        while let Some(directory) = directories.pop() {
            for path in fs::read_dir(directory).into_iter().flatten().flatten().map(|it| it.path())
            {
                if path.is_dir() {
                    directories.push(path);
                } else {
                    files.extend(fs::read(path).ok());
                }
            }
        }
        files
    }

    /// Deletes all documents but these.
    pub(super) fn forget_others(&self, kept: &[Digest]) {
        let names: Vec<String> = kept.iter().map(Digest::hex).collect();
        let entries = fs::read_dir(self.directory.join(DOCUMENTS)).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| names.iter().all(|name| entry.file_name() != **name)) {
            // One more that is kept does no harm.
            let _ = fs::remove_dir_all(entry.path());
        }
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
