//! The files that a document names (lists of routes, rulesets and what they include, a token), and whether
//! they are as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use homeostat_document::Document;
use homeostat_kit::finished_files::Unfinished;
use homeostat_registry::NamedFiles;

use crate::registry;

/// What the files that a document names looked like at some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReferencedFiles {
    looks: BTreeMap<PathBuf, Option<Look>>,
    /// Where more of them may come.
    more: BTreeSet<PathBuf>,
}

/// What distinguishes two versions of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl ReferencedFiles {
    /// What they look like. To be asked before they are read: a change in between is seen later.
    pub(crate) fn of(document: &Document) -> Self {
        let mut named = NamedFiles::default();
        for (_, scope) in document.scopes() {
            for source in registry::SOURCES {
                (source.files)(document, scope, &mut named);
            }
        }
        let NamedFiles { files, directories: more } = named;
        let look = |path: PathBuf| {
            // Nothing for a file that is not there.
            let look = std::fs::metadata(&path).ok().map(|file| Look {
                inode: (file.dev(), file.ino()),
                size: file.size(),
                changed: (file.ctime(), file.ctime_nsec()),
            });
            (path, look)
        };
        ReferencedFiles { looks: files.into_iter().map(look).collect(), more }
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.looks.keys().map(PathBuf::as_path)
    }

    /// Refuses files that are not as they were, or that a process has open for writing: what was read of them may be
    /// half of what is meant.
    pub(crate) fn check_unchanged(&self, document: &Document) -> Result<()> {
        if let Some(open) = Unfinished::find_open(self.paths()) {
            return Err(open.failure().into());
        }
        let now = Self::of(document);
        if *self == now {
            return Ok(());
        }
        let is_changed = |path: &&PathBuf| self.looks.get(*path) != now.looks.get(*path);
        let changed = now.looks.keys().chain(self.looks.keys()).find(is_changed);
        let path = changed.map_or_else(PathBuf::new, Clone::clone);
        Err(Unfinished::changed(path).failure().into())
    }

    /// The directories that they are in; of links, those of what they lead to, too; and where one that is
    /// not there would come.
    pub(crate) fn directories(&self) -> BTreeSet<PathBuf> {
        let files = self.looks.keys();
        let real = files.clone().filter_map(|path| std::fs::canonicalize(path).ok());
        let of_files = files.cloned().chain(real).map(|path| directory(&path));
        let mut all: BTreeSet<_> = of_files.chain(self.more.iter().cloned()).collect();
        all.extend(all.clone().iter().filter_map(|missing| above(missing)));
        all
    }
}

/// The nearest directory above one that is not there.
fn above(missing: &Path) -> Option<PathBuf> {
    let mut around = (!missing.is_dir()).then(|| directory(missing))?;
    while !around.is_dir() && around.parent().is_some() {
        around = directory(&around);
    }
    Some(around)
}

/// The directory that a file is in.
pub(crate) fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_was_written_again_or_is_gone_looks_different() {
        let directory = tempfile::tempdir().unwrap();
        let text = "[[routes]]\nfrom-file = \"bgp.routes\"\n[namespaces.blue]\n\
                    routes = [{ from-file = \"more/blue.routes\" }]\n";
        let path = directory.path().join("host.toml");
        std::fs::write(&path, text).unwrap();
        let list = directory.path().join("bgp.routes");
        std::fs::write(&list, "10.0.0.0/8 via 10.9.9.9\n").unwrap();
        let document = registry::READER.load(&[path]).unwrap();
        let before = ReferencedFiles::of(&document);
        assert_eq!(before, ReferencedFiles::of(&document));
        let directories = [directory.path().to_owned(), directory.path().join("more")];
        assert_eq!(before.directories(), directories.into());
        std::fs::write(&list, "10.0.0.0/9 via 10.9.9.9\n").unwrap();
        let written = ReferencedFiles::of(&document);
        assert_ne!(before, written);
        std::fs::remove_file(&list).unwrap();
        assert_ne!(written, ReferencedFiles::of(&document));
    }

    #[test]
    fn a_token_that_was_replaced_looks_different() {
        let directory = tempfile::tempdir().unwrap();
        let text = "[proxmox]\nendpoint = \"https://pve\"\ntoken-file = \"pve.token\"\n";
        let path = directory.path().join("host.toml");
        std::fs::write(&path, text).unwrap();
        let document = registry::READER.load(&[path]).unwrap();
        let before = ReferencedFiles::of(&document);
        assert_eq!(before.directories(), [directory.path().to_owned()].into());
        std::fs::write(directory.path().join("pve.token"), "keeper@pve!a=b").unwrap();
        assert_ne!(before, ReferencedFiles::of(&document));
    }
}
