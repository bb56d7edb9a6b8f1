//! Writes a set as one. Everything is staged beside its target first; then each target is exchanged with its staged
//! file, and what comes out is compared with what was observed. If anything is not as it was, or fails, all of it goes
//! back. What is about to be done is on the disk before it is done, so that the next process can finish it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use homeostat_core::{Failure, Retry};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::accounts::Accounts;
use crate::digest::{Digest, DigestKey, random_name};
use crate::disk::Disk;
use crate::key::FilePath;
use crate::look::{self, Entry};
use crate::model::{Attributes, Mode, Object};
use crate::place::{Obstacle, Root};
use crate::store::SetStore;

/// One path of a swap.
pub(crate) struct Item<'a> {
    pub(crate) path: &'a FilePath,
    /// What was observed.
    pub(crate) before: &'a Object,
    pub(crate) act: Act<'a>,
}

/// What becomes of a path.
pub(crate) enum Act<'a> {
    Write {
        content: &'a [u8],
        attributes: &'a Attributes,
        is_secret: bool,
        /// Whether what is there must be kept.
        keeps: bool,
    },
    Remove {
        keeps: bool,
    },
    MakeDirectory(&'a Attributes),
    SetDirectory(&'a Attributes),
    RemoveDirectory,
}

/// Why nothing is written, and the number of the item that is to blame.
pub(crate) struct Trouble {
    /// Nothing, if it is the program.
    pub(crate) item: Option<usize>,
    pub(crate) why: Why,
}

pub(crate) enum Why {
    Failed(Failure),
    /// It is not as it was observed.
    Moved,
    /// Something came to be where nothing was.
    Occupied,
}

/// What became of a path that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Written,
    /// A directory that others have files in.
    Left,
}

/// What a swap is about to do.
#[derive(Debug, Serialize, Deserialize)]
struct Intent {
    phase: Phase,
    /// Directories that are made, with their names before they are complete.
    directories: BTreeMap<String, String>,
    entries: Vec<Planned>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Phase {
    /// No target has been touched.
    Staging,
    /// All is staged and checked: targets are being exchanged.
    Exchanging,
}

/// One file of a swap.
#[derive(Debug, Serialize, Deserialize)]
struct Planned {
    path: String,
    /// Its name beside the target.
    staged: String,
    before: Object,
    /// The digest of the new content; nothing, if the file goes.
    after: Option<Digest>,
    /// The number of the user that it belongs to, if it is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<u32>,
}

/// Everything that a swap is made with.
pub(crate) struct Swap<'a> {
    pub(crate) root: Root,
    pub(crate) accounts: Accounts,
    pub(crate) digests: &'a DigestKey,
    pub(crate) store: &'a SetStore,
    pub(crate) disk: &'a Disk,
}

impl Swap<'_> {
    /// Writes all items or none, in their order. `check` is asked once everything is staged, and
    /// `take_over` once everything is in place: if it fails, all goes back.
    pub(crate) fn run(
        &mut self,
        items: &[Item<'_>],
        check: impl FnOnce() -> Result<(), Trouble>,
        take_over: impl FnOnce() -> Result<(), Trouble>,
    ) -> Result<Vec<Done>, Trouble> {
        for item in items {
            if let Some(owner) = self.owner(item) {
                self.root.let_own(item.path, owner);
            }
        }
        let files: Vec<(usize, &Item<'_>)> =
            items.iter().enumerate().filter(|(_, item)| item.is_file()).collect();
        let unrecorded = |error: io::Error| {
            let error = format!("what is to be done cannot be recorded: {error}");
            Trouble { item: Some(0), why: Why::Failed(Failure::new(error, Retry::Soon)) }
        };
        let mut intent = self.intent(items, &files).map_err(unrecorded)?;
        if !intent.is_empty() {
            self.store.write_swap(&intent).map_err(unrecorded)?;
        }
        let mut prepared = Vec::new();
        let swapped = self.prepare(items, &intent, &mut prepared).and_then(|()| {
            self.stage(&files, &intent)?;
            check()?;
            if !files.is_empty() {
                intent.phase = Phase::Exchanging;
                self.store.write_swap(&intent).map_err(unrecorded)?;
            }
            self.exchange_all(&files, &intent)?;
            take_over().inspect_err(|_| self.put_back(&intent.entries))
        });
        let cleaned = if intent.is_empty() { Ok(()) } else { self.clean_up(&intent) };
        match swapped {
            Ok(()) => {
                cleaned.map_err(unrecorded)?;
                Ok(self.finish(items))
            }
            Err(trouble) => {
                // What could not be cleaned up is by the next process.
                self.undo_directories(items, &prepared);
                Err(trouble)
            }
        }
    }

    fn intent(&self, items: &[Item<'_>], files: &[(usize, &Item<'_>)]) -> io::Result<Intent> {
        let made = items.iter().filter(|item| matches!(item.act, Act::MakeDirectory(_)));
        let directories = made.map(|item| Ok((item.path.to_string(), staged_name()?)));
        Ok(Intent {
            phase: Phase::Staging,
            directories: directories.collect::<io::Result<_>>()?,
            entries: files.iter().map(|(_, item)| self.planned(item)).collect::<io::Result<_>>()?,
        })
    }

    /// Makes directories and changes their attributes. Notes in `done` what it did.
    fn prepare(
        &mut self,
        items: &[Item<'_>],
        intent: &Intent,
        done: &mut Vec<usize>,
    ) -> Result<(), Trouble> {
        for (at, item) in items.iter().enumerate() {
            let made = match item.act {
                Act::MakeDirectory(attributes) => {
                    let staged = intent.directories.get(item.path.as_str());
                    let staged = staged.map(String::as_str).unwrap_or_default();
                    self.make_directory(item.path, staged, attributes)
                }
                Act::SetDirectory(attributes) => self
                    .directory(item.path)
                    .and_then(|directory| self.set_attributes(&directory, attributes)),
                _ => continue,
            };
            made.map_err(|error| Trouble { item: Some(at), why: self.why(item.path, &error) })?;
            done.push(at);
        }
        Ok(())
    }

    /// Owner and mode are right when the name appears.
    fn make_directory(
        &mut self,
        path: &FilePath,
        staged: &str,
        attributes: &Attributes,
    ) -> io::Result<()> {
        let (above, name) = (self.parent(path)?, path.split().1);
        self.disk.make_directory(&above, staged)?;
        let directory = crate::place::open_directory(&above, staged)?;
        let mode = Some(attributes.mode.unwrap_or(Mode(0o755)));
        self.set_attributes(&directory, &Attributes { mode, ..attributes.clone() })?;
        self.disk.rename(&above, staged, name)?;
        self.root.forget(path);
        self.disk.sync(&above)
    }

    /// Gives what is on a path owner, group and mode; nothing, if nothing is there.
    pub(crate) fn set_attributes_at(
        &mut self,
        path: &FilePath,
        wanted: &Attributes,
    ) -> io::Result<()> {
        if let Some(owner) = wanted.owner.as_ref().and_then(|owner| owner.id) {
            self.root.let_own(path, owner);
        }
        let (directory, name) = (self.parent(path)?, path.split().1);
        let (file, seen) = match look::entry(&directory, name, &self.accounts, None)? {
            Entry::File { attributes, .. } => {
                (crate::place::open_file(&directory, name)?, attributes)
            }
            Entry::Directory(attributes) => {
                (crate::place::open_directory(&directory, name)?, attributes)
            }
            Entry::Absent | Entry::Other(_) => return Ok(()),
        };
        if seen == *wanted {
            return Ok(());
        }
        self.set_attributes(&file, wanted)?;
        self.disk.sync(&file)
    }

    fn set_attributes(&self, file: &OwnedFd, attributes: &Attributes) -> io::Result<()> {
        let Attributes { owner, group, mode } = attributes;
        let owner = owner.as_ref().and_then(|owner| self.accounts.users.number(owner));
        let group = group.as_ref().and_then(|group| self.accounts.groups.number(group));
        self.disk.set_owner(file, owner, group)?;
        mode.map_or(Ok(()), |mode| self.disk.set_mode(file, mode))
    }

    fn undo_directories(&mut self, items: &[Item<'_>], done: &[usize]) {
        for item in done.iter().rev().filter_map(|at| items.get(*at)) {
            // What cannot be undone is as a part of a new try.
            let _ = match item.act {
                Act::MakeDirectory(_) => {
                    let above = self.parent(item.path);
                    above.and_then(|above| self.disk.remove_directory(above, item.path.split().1))
                }
                _ => match (item.before, self.directory(item.path)) {
                    (Object::Directory(before), Ok(directory)) => {
                        self.set_attributes(&directory, before)
                    }
                    _ => Ok(()),
                },
            };
            self.root.forget(item.path);
        }
    }

    /// The number of the user that a path shall belong to, or belongs to if it goes.
    fn owner(&self, item: &Item<'_>) -> Option<u32> {
        let attributes = match &item.act {
            Act::Write { attributes, .. }
            | Act::MakeDirectory(attributes)
            | Act::SetDirectory(attributes) => Some(*attributes),
            Act::Remove { .. } | Act::RemoveDirectory => item.before.attributes(),
        };
        attributes?.owner.as_ref().and_then(|owner| self.accounts.users.number(owner))
    }

    fn planned(&self, item: &Item<'_>) -> io::Result<Planned> {
        let after = match item.act {
            Act::Write { content, .. } => Some(self.digests.digest(content)),
            _ => None,
        };
        Ok(Planned {
            path: item.path.to_string(),
            staged: staged_name()?,
            before: item.before.clone(),
            after,
            owner: self.owner(item),
        })
    }

    fn stage(&mut self, files: &[(usize, &Item<'_>)], intent: &Intent) -> Result<(), Trouble> {
        for ((at, item), planned) in files.iter().zip(&intent.entries) {
            if let Act::Write { content, attributes, is_secret, keeps } = item.act {
                let default = if is_secret { Mode(0o600) } else { Mode(0o644) };
                let staged =
                    self.stage_one(item.path, &planned.staged, content, |seen| Attributes {
                        owner: attributes.owner.clone().or_else(|| seen?.owner.clone()),
                        group: attributes.group.clone().or_else(|| seen?.group.clone()),
                        mode: attributes.mode.or_else(|| seen?.mode).or(Some(default)),
                    });
                let kept = staged.and_then(|()| if keeps { self.keep(item.path) } else { Ok(()) });
                kept.map_err(|error| Trouble {
                    item: Some(*at),
                    why: self.why(item.path, &error),
                })?;
            } else if let Act::Remove { keeps: true } = item.act {
                self.keep(item.path).map_err(|error| Trouble {
                    item: Some(*at),
                    why: self.why(item.path, &error),
                })?;
            }
        }
        Ok(())
    }

    /// Owner, labels and mode come before the content: nobody can read it in between.
    fn stage_one(
        &mut self,
        path: &FilePath,
        staged: &str,
        content: &[u8],
        attributes: impl FnOnce(Option<&Attributes>) -> Attributes,
    ) -> io::Result<()> {
        let (directory, name) = (self.parent(path)?, path.split().1);
        let target = look::entry(&directory, name, &self.accounts, None)?;
        let (seen, labelled) = match target {
            Entry::File { attributes, .. } => {
                (Some(attributes), Some(crate::place::open_file(&directory, name)?))
            }
            _ => (None, None),
        };
        let Attributes { owner, group, mode } = attributes(seen.as_ref());
        let file = self.disk.create(&directory, staged)?;
        self.set_attributes(&file, &Attributes { owner, group, mode: None })?;
        if let Some(labelled) = labelled {
            self.disk.copy_attributes(labelled, &file)?;
        }
        self.set_attributes(&file, &Attributes { mode, ..Attributes::default() })?;
        self.disk.write(file, content)
    }

    /// Keeps what is on a path, before it is replaced.
    fn keep(&mut self, path: &FilePath) -> io::Result<()> {
        let (directory, name) = (self.parent(path)?, path.split().1);
        if !matches!(look::entry(&directory, name, &self.accounts, None)?, Entry::File { .. }) {
            return Ok(());
        }
        let content = look::read(&directory, name)?.content;
        self.store.keep(&self.digests.digest(content.bytes()), content.bytes())
    }

    fn exchange_all(
        &mut self,
        files: &[(usize, &Item<'_>)],
        intent: &Intent,
    ) -> Result<(), Trouble> {
        for (nth, ((at, item), planned)) in files.iter().zip(&intent.entries).enumerate() {
            if let Err(why) = self.exchange(planned) {
                let why = match why {
                    Stopped::Failed(error) => self.why(item.path, &error),
                    Stopped::Moved => Why::Moved,
                };
                self.put_back(intent.entries.get(..nth).unwrap_or_default());
                return Err(Trouble { item: Some(*at), why });
            }
        }
        Ok(())
    }

    /// Puts one staged file in place, or one target aside.
    fn exchange(&mut self, planned: &Planned) -> Result<(), Stopped> {
        let Planned { staged, before, after, .. } = planned;
        let path = planned.path()?;
        let (directory, name) = (self.parent(&path)?, path.split().1);
        match (before, after) {
            (Object::Nothing, Some(_)) => self.disk.rename(&directory, staged, name)?,
            (_, Some(_)) => {
                self.disk.exchange(&directory, staged, name)?;
                if !self.is(&directory, staged, before) {
                    self.disk.exchange(&directory, staged, name)?;
                    return Err(Stopped::Moved);
                }
            }
            (_, None) => {
                self.disk.rename(&directory, name, staged)?;
                if !self.is(&directory, staged, before) {
                    self.disk.rename(&directory, staged, name)?;
                    return Err(Stopped::Moved);
                }
            }
        }
        self.disk.sync(&directory)?;
        Ok(())
    }

    /// Takes exchanges back, the last one first. What others have put there meanwhile stays.
    fn put_back(&mut self, entries: &[Planned]) {
        for planned in entries.iter().rev() {
            let _ = self.put_one_back(planned);
        }
    }

    fn put_one_back(&mut self, planned: &Planned) -> Result<(), Stopped> {
        let Planned { staged, before, after, .. } = planned;
        let path = planned.path()?;
        let (directory, name) = (self.parent(&path)?, path.split().1);
        match (before, after) {
            (Object::Nothing, Some(after)) => {
                self.disk.rename(&directory, name, staged)?;
                if !self.holds(&directory, staged, after) {
                    self.disk.rename(&directory, staged, name)?;
                }
            }
            (_, Some(after)) => {
                self.disk.exchange(&directory, staged, name)?;
                if !self.holds(&directory, staged, after) {
                    self.disk.exchange(&directory, staged, name)?;
                }
            }
            (_, None) => self.disk.rename(&directory, staged, name)?,
        }
        self.disk.sync(&directory)?;
        Ok(())
    }

    /// Whether an entry is what was observed.
    fn is(&self, directory: &OwnedFd, name: &str, expected: &Object) -> bool {
        let now = look::object(directory, name, &self.accounts, self.digests);
        now.is_ok_and(|now| expected.agrees(&now))
    }

    /// Whether an entry is a file with this content.
    fn holds(&self, directory: &OwnedFd, name: &str, content: &Digest) -> bool {
        let now = look::object(directory, name, &self.accounts, self.digests);
        now.is_ok_and(|now| matches!(now, Object::File(file) if file.digest == *content))
    }

    /// Removes what is left beside the targets, and the intent with it.
    fn clean_up(&mut self, intent: &Intent) -> io::Result<()> {
        let mut touched: Vec<Arc<OwnedFd>> = Vec::new();
        for planned in &intent.entries {
            let Ok(path) = planned.path.parse::<FilePath>() else { continue };
            match self.root.parent(&path) {
                Ok(directory) => {
                    self.disk.unlink(&directory, &planned.staged)?;
                    if !touched.iter().any(|known| Arc::ptr_eq(known, &directory)) {
                        touched.push(directory);
                    }
                }
                // With its directory it is gone, too.
                Err(Obstacle::Missing(_)) => {}
                Err(obstacle) => return Err(io::Error::other(obstacle.to_string())),
            }
        }
        for (path, staged) in &intent.directories {
            let path: Result<FilePath, _> = path.parse();
            if let Ok(above) = path.map_err(io::Error::other).and_then(|path| self.parent(&path)) {
                // Where it was renamed there is none.
                let _ = self.disk.remove_directory(above, staged);
            }
        }
        for directory in touched {
            self.disk.sync(&*directory)?;
        }
        self.store.clear_swap()
    }

    /// What a process that died was about to do: finished, if everything was staged and nothing has moved since; else
    /// taken back.
    pub(crate) fn recover(&mut self) -> io::Result<()> {
        let Some(intent) = self.store.read_swap::<Intent>()? else { return Ok(()) };
        for planned in &intent.entries {
            if let (Ok(path), Some(owner)) = (planned.path(), planned.owner) {
                self.root.let_own(&path, owner);
            }
        }
        if intent.phase == Phase::Exchanging && !self.go_on(&intent) {
            let exchanged = intent.entries.iter().filter(|planned| self.is_exchanged(planned));
            let exchanged: Vec<&Planned> = exchanged.collect();
            // Where the first of the old files is gone, all had been exchanged.
            if exchanged.iter().all(|planned| self.can_return(planned)) {
                for planned in exchanged.into_iter().rev() {
                    let _ = self.put_one_back(planned);
                }
            }
        }
        self.clean_up(&intent)
    }

    fn can_return(&mut self, planned: &Planned) -> bool {
        let Ok((directory, _)) = self.place(planned) else { return false };
        planned.before == Object::Nothing || self.is(&directory, &planned.staged, &planned.before)
    }

    fn go_on(&mut self, intent: &Intent) -> bool {
        intent.entries.iter().all(|planned| {
            self.is_exchanged(planned) || self.is_staged(planned) && self.exchange(planned).is_ok()
        })
    }

    fn is_exchanged(&mut self, planned: &Planned) -> bool {
        let Ok((directory, name)) = self.place(planned) else { return false };
        match &planned.after {
            Some(after) => self.holds(&directory, &name, after) && !self.is_staged(planned),
            // What was put aside may have been removed since.
            None => self.is(&directory, &name, &Object::Nothing),
        }
    }

    fn is_staged(&mut self, planned: &Planned) -> bool {
        let Ok((directory, name)) = self.place(planned) else { return false };
        match &planned.after {
            Some(after) => {
                self.holds(&directory, &planned.staged, after)
                    && self.is(&directory, &name, &planned.before)
            }
            None => self.is(&directory, &name, &planned.before),
        }
    }

    fn place(&mut self, planned: &Planned) -> Result<(Arc<OwnedFd>, String), Stopped> {
        let path = planned.path()?;
        Ok((self.parent(&path)?, path.split().1.to_owned()))
    }

    /// Removes directories; what others have put into them keeps them.
    fn finish(&mut self, items: &[Item<'_>]) -> Vec<Done> {
        let mut done = vec![Done::Written; items.len()];
        // What is below goes first.
        for (at, item) in items.iter().enumerate().rev() {
            if matches!(item.act, Act::RemoveDirectory) {
                let above = self.parent(item.path);
                let removed =
                    above.and_then(|above| self.disk.remove_directory(above, item.path.split().1));
                if removed.is_err()
                    && let Some(done) = done.get_mut(at)
                {
                    *done = Done::Left;
                }
            }
        }
        done
    }

    fn parent(&mut self, path: &FilePath) -> io::Result<Arc<OwnedFd>> {
        self.root.parent(path).map_err(|obstacle| io::Error::other(Blocked(obstacle)))
    }

    fn directory(&mut self, path: &FilePath) -> io::Result<Arc<OwnedFd>> {
        self.root.directory(path).map_err(|obstacle| io::Error::other(Blocked(obstacle)))
    }

    /// What an error means for people, with the way out.
    fn why(&self, path: &FilePath, error: &io::Error) -> Why {
        if let Some(Blocked(obstacle)) = error.get_ref().and_then(|error| error.downcast_ref()) {
            return Why::Failed(obstacle.failure());
        }
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        if errno == Some(Errno::EXIST) {
            return Why::Occupied;
        }
        if errno == Some(Errno::NOENT) {
            return Why::Moved;
        }
        let directory = self.root.display(path.split().0);
        let path = self.root.display(path.as_str());
        let failure = |retry| Failure::new(format!("{path}: {error}"), retry);
        Why::Failed(match errno {
            Some(Errno::BUSY) => failure(Retry::OnChange).with_help(format!(
                "a file that is a mount of its own cannot be replaced: mount {directory} in its place"
            )),
            Some(Errno::XDEV) => failure(Retry::OnChange).with_help(format!(
                "{directory} is joined of several file systems that cannot exchange files"
            )),
            Some(Errno::ROFS) => failure(Retry::Soon).with_help(format!(
                "the file system is read-only; for a unit of systemd add `ReadWritePaths={directory}`"
            )),
            Some(Errno::NOSPC | Errno::DQUOT) => {
                failure(Retry::Soon).with_help(format!("make room for another copy in {directory}"))
            }
            Some(Errno::PERM | Errno::ACCESS) => failure(Retry::Soon).with_help(format!(
                "it may be immutable: see `lsattr -d {path} {directory}`"
            )),
            Some(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => failure(Retry::OnChange)
                .with_help("the file system cannot exchange two files at once"),
            _ => failure(Retry::Soon),
        })
    }
}

impl Item<'_> {
    fn is_file(&self) -> bool {
        matches!(self.act, Act::Write { .. } | Act::Remove { .. })
    }
}

impl Intent {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.directories.is_empty()
    }
}

/// Programs that read all files of a directory leave hidden ones out.
fn staged_name() -> io::Result<String> {
    let random = random_name().ok_or_else(|| io::Error::other("no random numbers"))?;
    Ok(format!(".homeostat-{random}"))
}

impl Planned {
    fn path(&self) -> io::Result<FilePath> {
        self.path.parse().map_err(io::Error::other)
    }
}

/// Why an exchange was not made.
enum Stopped {
    Failed(io::Error),
    Moved,
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Stopped::Failed(error)
    }
}

/// An obstacle, on its way through an I/O error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Blocked(Obstacle);
