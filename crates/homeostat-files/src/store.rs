//! What a source keeps in the state directory: the key of its digests, the originals of files, the set that was good last,
//! and what a swap is about to do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use homeostat_render::Shrunk;
use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, DigestKey, random_name};
use crate::disk::Disk;
use crate::key::Key;
use crate::model::{Content, DesiredState, FileObject, GoodFile, Object};
use crate::programs::haproxy::ServerName;

const KEY: &str = "key";
const SWAP: &str = "swap.json";
const BLOBS: &str = "blobs";
const REFUSED: &str = "refused.json";
const GOOD: &str = "good.json";
const LEAVING: &str = "leaving.json";
const MOVED: &str = "moved.json";
/// What is being written; only one process writes a set.
const UNFINISHED: &str = ".unfinished";

/// The part of a state directory that all sets of an owner share. Only root may read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    directory: PathBuf,
    key: DigestKey,
}

impl Store {
    /// Reads the key; where there is none yet, a new one is used, and written with the first set that is.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let key = match fs::read(directory.join(KEY)) {
            Ok(bytes) => DigestKey::from_bytes(&bytes)
                .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "it is not a key"))?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                DigestKey::generate().ok_or_else(|| io::Error::other("no random numbers"))?
            }
            Err(error) => return Err(error),
        };
        Ok(Store { directory: directory.to_owned(), key })
    }

    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    #[must_use]
    pub fn digests(&self) -> &DigestKey {
        &self.key
    }

    /// The part of one set, for writing.
    pub(crate) fn set(&self, name: &str, disk: &Disk) -> io::Result<SetStore> {
        let path = self.directory.join("sets").join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(path.join(BLOBS))?;
        self.write_key(disk)?;
        Ok(SetStore { at: open(&path)?, blobs: open(&path.join(BLOBS))?, disk: disk.clone(), path })
    }

    fn write_key(&self, disk: &Disk) -> io::Result<()> {
        if self.is_key_written()? {
            return Ok(());
        }
        let at = open(&self.directory)?;
        // Several sets may be opened at once, so each tries with a name of its own.
        let random = random_name().ok_or_else(|| io::Error::other("no random numbers"))?;
        let temporary = format!(".key-{random}");
        disk.write(disk.create(&at, &temporary)?, self.key.bytes())?;
        if let Err(error) = disk.rename(&at, &temporary, KEY) {
            disk.unlink(&at, &temporary)?;
            return if self.is_key_written()? { Ok(()) } else { Err(error) };
        }
        disk.sync(&at)
    }

    fn is_key_written(&self) -> io::Result<bool> {
        match fs::read(self.directory.join(KEY)) {
            Ok(bytes) if bytes == self.key.bytes() => Ok(true),
            Ok(_) => Err(io::Error::other("another process has just made another key")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Where it is noted which files the program of a set was started with.
    pub(crate) fn note(&self, set: &str) -> PathBuf {
        self.directory.join("sets").join(set).join("started.json")
    }

    /// The servers that were taken out of work because they are not declared any more.
    pub(crate) fn leaving(&self, set: &str) -> BTreeSet<ServerName> {
        read_leaving(&self.directory.join("sets").join(set))
    }

    /// Files of others that were moved away from exclusive directories, by path.
    pub(crate) fn moved(&self, set: &str) -> BTreeMap<String, FileObject> {
        read_moved(&self.directory.join("sets").join(set))
    }

    /// What of a set its program did not take over, and why.
    pub(crate) fn refused(&self, set: &str) -> Option<(String, String)> {
        let text = fs::read(self.directory.join("sets").join(set).join(REFUSED)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// The set that was good last; nothing, if none is known.
    pub(crate) fn good(&self, set: &str) -> Option<LastGood> {
        let text = fs::read(self.directory.join("sets").join(set).join(GOOD)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// The contents of the set that was good last, as far as they can be read.
    pub(crate) fn good_files(&self, set: &str, good: &LastGood) -> BTreeMap<Key, GoodFile> {
        let files = good.files.iter().filter_map(|(path, file)| {
            let content = Content::new(self.blob(set, &file.digest).ok()??);
            Some((Key::File(path.parse().ok()?), GoodFile { digest: file.digest.clone(), content }))
        });
        files.collect()
    }

    /// A content that was kept; nothing, if it was not.
    pub(crate) fn blob(&self, set: &str, digest: &Digest) -> io::Result<Option<Vec<u8>>> {
        let path = self.directory.join("sets").join(set).join(BLOBS).join(digest.as_str());
        match fs::read(path) {
            Ok(content) if self.key.digest(&content) == *digest => Ok(Some(content)),
            Ok(_) => Err(io::Error::new(ErrorKind::InvalidData, "the copy is damaged")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A set that its program has taken over, or that was written if nobody can be asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastGood {
    pub(crate) generation: Option<String>,
    /// By path.
    pub(crate) files: BTreeMap<String, LastGoodFile>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastGoodFile {
    pub(crate) digest: Digest,
    pub(crate) lines: usize,
}

/// What is kept of one set.
#[derive(Debug)]
pub(crate) struct SetStore {
    path: PathBuf,
    at: OwnedFd,
    blobs: OwnedFd,
    disk: Disk,
}

impl SetStore {
    /// Keeps a content; it is on the disk when this returns.
    pub(crate) fn keep(&self, digest: &Digest, content: &[u8]) -> io::Result<()> {
        if self.path.join(BLOBS).join(digest.as_str()).exists() {
            return Ok(());
        }
        self.write(&self.blobs, digest.as_str(), content)
    }

    /// Keeps a set as the one that was good last, with its contents.
    pub(crate) fn write_good(&self, desired: &DesiredState) -> io::Result<()> {
        let generation = desired.generation().map(|(_, generation)| generation.to_owned());
        let mut good = LastGood { generation, files: BTreeMap::new() };
        let mut contents = Vec::new();
        for (key, wanted) in desired.iter() {
            if let (Key::File(path), Object::File(file), Some(content)) =
                (key, &wanted.object, &wanted.content)
            {
                let (digest, lines) = (file.digest.clone(), Shrunk::lines(content.bytes()));
                contents.push((digest.clone(), content.clone()));
                good.files.insert(path.to_string(), LastGoodFile { digest, lines });
            }
        }
        if self.read_good().as_ref() == Some(&good) {
            return Ok(());
        }
        for (digest, content) in contents {
            self.keep(&digest, content.bytes())?;
        }
        self.write(&self.at, GOOD, &serde_json::to_vec(&good)?)
    }

    fn read_good(&self) -> Option<LastGood> {
        serde_json::from_slice(&fs::read(self.path.join(GOOD)).ok()?).ok()
    }

    /// Drops all contents but these, and those of the set that was good last.
    pub(crate) fn retain(&self, is_needed: impl Fn(&str) -> bool) -> io::Result<()> {
        let good = self.read_good().unwrap_or_default();
        let moved = read_moved(&self.path);
        let is_moved = |name: &str| moved.values().any(|file| file.digest.as_str() == name);
        let is_good = |name: &str| good.files.values().any(|file| file.digest.as_str() == name);
        let is_needed = |name: &str| is_needed(name) || is_good(name) || is_moved(name);
        for entry in fs::read_dir(self.path.join(BLOBS))? {
            let name = entry?.file_name();
            if let Some(name) = name.to_str().filter(|name| !is_needed(name)) {
                self.disk.unlink(&self.blobs, name)?;
            }
        }
        Ok(())
    }

    /// Records what a swap is about to do; it is on the disk when this returns.
    pub(crate) fn write_swap(&self, swap: &impl Serialize) -> io::Result<()> {
        self.write(&self.at, SWAP, &serde_json::to_vec(swap)?)
    }

    /// Remembers what was refused, and why, until something else is.
    pub(crate) fn write_refused(&self, identity: &str, why: &str) -> io::Result<()> {
        self.write(&self.at, REFUSED, &serde_json::to_vec(&(identity, why))?)
    }

    pub(crate) fn write_moved(&self, moved: &BTreeMap<String, FileObject>) -> io::Result<()> {
        self.write(&self.at, MOVED, &serde_json::to_vec(moved)?)
    }

    pub(crate) fn leaving(&self) -> BTreeSet<ServerName> {
        read_leaving(&self.path)
    }

    /// Remembers which servers leave: one that is declared again must work again, and one that an operator has taken out of
    /// work must not.
    pub(crate) fn write_leaving(&self, servers: &BTreeSet<ServerName>) -> io::Result<()> {
        self.write(&self.at, LEAVING, &serde_json::to_vec(servers)?)
    }

    /// What a swap was about to do when its process died.
    pub(crate) fn read_swap<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        match fs::read(self.path.join(SWAP)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The swap is over.
    pub(crate) fn clear_swap(&self) -> io::Result<()> {
        self.disk.unlink(&self.at, SWAP)?;
        self.disk.sync(&self.at)
    }

    fn write(&self, at: &OwnedFd, name: &str, content: &[u8]) -> io::Result<()> {
        // A process that died may have left it.
        self.disk.unlink(at, UNFINISHED)?;
        self.disk.write(self.disk.create(at, UNFINISHED)?, content)?;
        self.disk.replace(at, UNFINISHED, name)?;
        self.disk.sync(at)
    }
}

fn read_leaving(set: &Path) -> BTreeSet<ServerName> {
    let text = fs::read(set.join(LEAVING)).ok();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

fn read_moved(set: &Path) -> BTreeMap<String, FileObject> {
    let text = fs::read(set.join(MOVED)).ok();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

fn open(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Mode::empty())?)
}
