//! Directories in which nothing is but what is declared: `exclusive`. What others put there is declared to be absent. Its
//! content is kept, and returns when the directory is not exclusive any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use homeostat_core::{Action, Failure, Finding, HeldBy, Retry, View, WaitsOn};
use homeostat_kit::finished_files::Unfinished;
use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::Errno;

use crate::key::{FilePath, Key};
use crate::look;
use crate::model::{Object, Other};
use crate::packages::Packages;
use crate::place::{Obstacle, Root, file_type, open_file};
use crate::source::{Files, Shrinking};

/// That a directory has nothing but what is declared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusive {
    /// Names that stay, no matter who made them: `*` stands for any text.
    pub except: Vec<String>,
}

/// Names that dpkg gives to files while it works, and to those that it leaves to people.
const OF_DPKG: [&str; 4] = [".dpkg-new", ".dpkg-tmp", ".dpkg-old", ".dpkg-dist"];

/// More are not moved away at once.
const MOST: usize = 10;

impl Exclusive {
    /// Whether a name is nobody's business. Hidden files are those of editors, and of a swap that is under way; programs
    /// that read a whole directory leave them out.
    pub(crate) fn spares(&self, name: &str) -> bool {
        name.starts_with('.')
            || OF_DPKG.iter().any(|end| name.ends_with(end))
            || self.except.iter().any(|pattern| is_like(pattern, name))
    }
}

fn is_like(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.into_iter().any(|at| name.get(at..).is_some_and(|name| is_like(rest, name)))
        }),
    }
}

/// What is, or was, in exclusive directories beside what is declared.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Undeclared {
    /// Where nothing shall be.
    pub(crate) absent: BTreeSet<FilePath>,
    /// What stays for now, and why.
    pub(crate) stays: BTreeMap<Key, Finding>,
    /// Whether dpkg is at work: it makes files before it says that they are its own.
    pub(crate) waits_for_packages: bool,
}

impl Undeclared {
    /// Looks into the exclusive directories of a set.
    pub(crate) fn find(
        files: &Files,
        packages: &mut Packages,
        view: &View<'_, Files>,
    ) -> Result<Self, Failure> {
        let mut found = Undeclared::default();
        let directories = view.desired.exclusive();
        if directories.is_empty() {
            return Ok(found);
        }
        let mut root = Root::open(&files.root).map_err(|error| {
            let path = files.root.display();
            Failure::new(format!("{path} cannot be opened: {error}"), Retry::Soon)
        })?;
        packages.read(&files.root, directories.keys());
        for (path, exclusive) in directories {
            found.add_moved(view, path, exclusive);
            let listed = match root.directory(path) {
                Ok(directory) => match list(&directory) {
                    Ok(names) => Ok((directory, names)),
                    Err(error) => Err(Failure::soon(&error)),
                },
                Err(Obstacle::Missing(_)) => continue,
                Err(obstacle) => Err(obstacle.failure()),
            };
            match listed {
                Ok((directory, names)) => {
                    let look = LookInside { files, packages, view, path, exclusive };
                    look.sort(&directory, names, &mut found);
                }
                Err(failure) => {
                    let key = Key::Directory(path.clone());
                    found.stays.insert(key, Finding::refused(failure));
                }
            }
        }
        Ok(found)
    }

    /// What was moved away before is not to return.
    fn add_moved(&mut self, view: &View<'_, Files>, path: &FilePath, exclusive: &Exclusive) {
        for (key, record) in view.records {
            let Key::File(file) = key else { continue };
            let (above, name) = file.split();
            let is_inside = above == path.as_str() && !exclusive.spares(name);
            if record.wrote == Object::Nothing && is_inside && view.desired.wanted(key).is_none() {
                self.absent.insert(file.clone());
            }
        }
    }
}

/// A look into one directory.
struct LookInside<'a> {
    files: &'a Files,
    packages: &'a Packages,
    view: &'a View<'a, Files>,
    path: &'a FilePath,
    exclusive: &'a Exclusive,
}

/// What an entry is, if it is not declared.
enum Stranger {
    /// A file that can be moved away.
    File,
    /// It stays for now.
    Stays(Finding),
    /// It is none of ours: a directory, or a file of a package.
    Spared,
}

impl LookInside<'_> {
    fn sort(&self, directory: &OwnedFd, names: Vec<Option<String>>, found: &mut Undeclared) {
        let mut moved = Vec::new();
        for name in names {
            let file = name.as_ref().and_then(|name| format!("{}/{name}", self.path).parse().ok());
            let (Some(name), Some(file)) = (name, file) else {
                let failure = Failure::new("the name of a file in it is no text", Retry::OnChange);
                let failure = failure.with_help("rename or remove it: the directory is exclusive");
                let key = Key::Directory(self.path.clone());
                found.stays.insert(key, Finding::refused(failure));
                continue;
            };
            let file: FilePath = file;
            if self.exclusive.spares(&name) || self.is_declared(&file) {
                continue;
            }
            match self.stranger(directory, &name, &file) {
                Stranger::File if self.packages.are_changing() => {
                    found.waits_for_packages = true;
                    let on = WaitsOn::Condition("dpkg, which is at work".to_owned());
                    found.stays.insert(Key::File(file.clone()), Finding::Pending { on });
                    found.absent.insert(file);
                }
                Stranger::File => moved.push(file),
                Stranger::Stays(finding) => {
                    found.stays.insert(Key::File(file.clone()), finding);
                    found.absent.insert(file);
                }
                Stranger::Spared => _ = found.absent.remove(&file),
            }
        }
        self.hold_many(moved, found);
    }

    /// What is declared, or was and leaves, is judged as such.
    fn is_declared(&self, file: &FilePath) -> bool {
        let keys = [Key::File(file.clone()), Key::Directory(file.clone())];
        let is_recorded = |key: &Key| {
            self.view.records.get(key).is_some_and(|record| record.wrote != Object::Nothing)
        };
        keys.iter().any(|key| self.view.desired.wanted(key).is_some() || is_recorded(key))
    }

    fn stranger(&self, directory: &OwnedFd, name: &str, file: &FilePath) -> Stranger {
        let refused = |why: String| {
            let failure = Failure::new(why, Retry::OnChange);
            let help = "remove it, or name it in `except` of the directory, which is exclusive";
            Stranger::Stays(Finding::refused(failure.with_help(help)))
        };
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Stranger::Spared,
            Err(errno) => return refused(io::Error::from(errno).to_string()),
        };
        match file_type(&stat) {
            FileType::Directory => Stranger::Spared,
            FileType::Symlink => refused(format!("{} is there", Other::Symlink)),
            FileType::RegularFile if self.packages.have(file) => Stranger::Spared,
            FileType::RegularFile => {
                if u64::try_from(stat.st_size).is_ok_and(|size| size > look::MOST) {
                    return refused(format!("it is larger than {} MiB", look::MOST >> 20));
                }
                let opened = open_file(directory, name).map(File::from);
                let is_written = |file: &File| Unfinished::of_open(file, Path::new(name)).is_some();
                if opened.is_ok_and(|file| is_written(&file)) {
                    let on = "the process that has it open for writing".to_owned();
                    return Stranger::Stays(Finding::Pending { on: WaitsOn::Condition(on) });
                }
                Stranger::File
            }
            _ => refused(format!("{} is there", Other::Special)),
        }
    }

    /// A directory that many others use was declared by mistake, more likely than not.
    fn hold_many(&self, moved: Vec<FilePath>, found: &mut Undeclared) {
        let (count, shrinking) = (moved.len(), self.files.shrinking);
        if let (Shrinking::Hold { option }, true) = (shrinking, count > MOST) {
            let why = format!("{count} files would be moved away; if that is meant, use {option}");
            let (action, by) = (Action::Update, HeldBy::DeleteBudget);
            let held = Finding::Held { action, by, why };
            found.stays.insert(Key::Directory(self.path.clone()), held.clone());
            for file in
                moved.into_iter().filter(|file| found.absent.contains(file)).collect::<Vec<_>>()
            {
                found.stays.insert(Key::File(file), held.clone());
            }
            return;
        }
        found.absent.extend(moved);
    }
}

/// The names in a directory; nothing for one that is no text.
fn list(directory: &OwnedFd) -> io::Result<Vec<Option<String>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_str().ok();
        if !matches!(name, Some("." | "..")) {
            names.push(name.map(str::to_owned));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_and_those_that_are_excepted_stay() {
        let exclusive =
            Exclusive { except: ["root.key", "*.bak", "a*b*"].map(str::to_owned).to_vec() };
        for (name, expected) in [
            (".a.cfg.swp", true),
            ("a.cfg.dpkg-new", true),
            ("root.key", true),
            ("root.key2", false),
            ("x.bak", true),
            (".bak", true),
            ("x.bak~", false),
            ("ab", true),
            ("axbx", true),
            ("xab", false),
            ("a.cfg~", false),
        ] {
            assert_eq!(exclusive.spares(name), expected, "{name}");
        }
    }
}
