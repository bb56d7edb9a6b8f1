//! Watches files for changes, so that nothing has to be polled.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use inotify::{EventStream, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::time::Instant;

use crate::referenced_files::directory;

/// Some directories in which something may change. One that is not there yet is watched from when
/// it comes, if it is in another one that is watched.
pub(crate) struct Watch {
    /// Files and directories whose place may change, as that of a link's target.
    paths: Vec<PathBuf>,
    directories: BTreeSet<PathBuf>,
    /// More directories, in which only these names matter.
    names: BTreeMap<PathBuf, HashSet<OsString>>,
    watches: Watches,
    /// Watched directories in which only these names matter.
    narrow: HashMap<WatchDescriptor, HashSet<OsString>>,
    stream: EventStream<[u8; 4096]>,
    noise: Option<Noise>,
}

/// Changes that came one after another.
#[derive(Clone, Copy)]
struct Noise {
    since: Instant,
    /// When it will have been quiet for long enough, or noisy for too long.
    due: Instant,
}

/// Changes may go on for this many quiet periods before the file is read: another file in the same directory
/// that never stops changing must not hide a change for good.
const LONGEST_NOISE: u32 = 10;

impl Noise {
    /// Something changed now.
    fn extended(before: Option<Self>, now: Instant, quiet: Duration) -> Self {
        let since = before.map_or(now, |noise| noise.since);
        Noise { since, due: (now + quiet).min(since + quiet * LONGEST_NOISE) }
    }
}

/// Where namespaces have their names.
const NAMESPACES: &str = "/run/netns";

/// The events of a file that is written, replaced, created or removed.
const CHANGES: WatchMask = WatchMask::CLOSE_WRITE
    .union(WatchMask::CREATE)
    .union(WatchMask::DELETE)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::MOVED_TO);

impl Watch {
    /// Watches these directories, too.
    pub(crate) fn add_directories(&mut self, directories: BTreeSet<PathBuf>) {
        self.directories.extend(directories);
        // What cannot be watched is read with the next reload.
        let _ = self.add().and_then(|()| self.add_places());
    }

    /// Where namespaces have their names; the directory comes with the first of them. None matters
    /// until [`watch_files`](Self::watch_files) says which.
    pub(crate) fn namespaces() -> Result<Self> {
        let mut watch = Self::documents(Vec::new())?;
        watch.names.insert(NAMESPACES.into(), HashSet::new());
        watch.watch_files(std::iter::empty());
        Ok(watch)
    }

    /// From here on every namespace that has a name matters.
    pub(crate) fn watch_all_namespaces(&mut self) {
        self.add_directories([PathBuf::from(NAMESPACES)].into());
    }

    /// From here on these files matter, and no others.
    pub(crate) fn watch_files<'a>(&mut self, files: impl Iterator<Item = &'a Path>) {
        self.names.values_mut().for_each(HashSet::clear);
        // The directory itself comes with the first name.
        for file in files.chain([Path::new(NAMESPACES)]) {
            if let Some(name) = file.file_name() {
                self.names.entry(directory(file)).or_default().insert(name.to_owned());
            }
        }
        // A file that cannot be watched is found when the document is bound again.
        let _ = self.add();
    }

    /// The directories that documents are in: an editor may put another file in the place of one.
    pub(crate) fn documents(paths: Vec<PathBuf>) -> Result<Self> {
        let inotify = Inotify::init().context("cannot watch files")?;
        let watches = inotify.watches();
        let stream = inotify.into_event_stream([0; 4096]).context("cannot watch files")?;
        let mut watch = Watch {
            paths,
            directories: BTreeSet::new(),
            names: BTreeMap::new(),
            watches,
            narrow: HashMap::new(),
            stream,
            noise: None,
        };
        watch.add().and_then(|()| watch.add_places()).context("cannot watch files")?;
        Ok(watch)
    }

    /// Adding what is watched already changes nothing.
    fn add(&mut self) -> std::io::Result<()> {
        for directory in self.directories.iter().filter(|directory| directory.is_dir()) {
            let watched = self.watches.add(directory, CHANGES)?;
            self.narrow.remove(&watched);
        }
        let is_narrow = |directory: &&PathBuf| !self.directories.contains(*directory);
        let names = self.names.iter().filter(|(directory, _)| is_narrow(directory));
        for (directory, names) in names.filter(|(directory, _)| directory.is_dir()) {
            let watched = self.watches.add(directory, CHANGES)?;
            self.narrow.insert(watched, names.clone());
        }
        Ok(())
    }

    /// The same for where the paths lead to now: a whole directory may have been put in the place of
    /// another, and a link may lead elsewhere.
    fn add_places(&mut self) -> std::io::Result<()> {
        let ends: BTreeSet<_> = self.paths.iter().flat_map(|path| ends(path)).collect();
        let places = ends.iter().map(|end| if end.is_dir() { end.clone() } else { directory(end) });
        let places: BTreeSet<_> = places.filter(|place| place.is_dir()).collect();
        for around in places.iter().filter_map(|place| std::path::absolute(place).ok()) {
            if let Some(name) = around.file_name() {
                let watched = self.watches.add(directory(&around), CHANGES)?;
                self.narrow.entry(watched).or_default().insert(name.to_owned());
            }
        }
        self.directories.extend(places);
        self.add()
    }

    fn is_about_us(&self, watched: &WatchDescriptor, name: Option<&OsStr>) -> bool {
        let names = self.narrow.get(watched);
        names.is_none_or(|names| name.is_none_or(|name| names.contains(name)))
    }

    /// Waits for a change after which nothing changes for some time. Nothing is lost if it is
    /// dropped while it waits.
    pub(crate) async fn changed(&mut self, quiet: Duration) {
        loop {
            let next = self.stream.next();
            let event = match self.noise {
                None => Ok(next.await),
                Some(noise) => tokio::time::timeout_at(noise.due, next).await,
            };
            let Ok(event) = event else {
                self.noise = None;
                // What cannot be watched is read with the next reload.
                let _ = self.add_places();
                return;
            };
            let Some(event) = event else { return std::future::pending().await };
            let is_idle =
                event.is_ok_and(|event| !self.is_about_us(&event.wd, event.name.as_deref()));
            if is_idle {
                continue;
            }
            self.noise = Some(Noise::extended(self.noise, Instant::now(), quiet));
            // A file that cannot be watched is found by the resync.
            let _ = self.add();
        }
    }
}

/// What is at a path, and where it and everything in it leads to.
fn ends(path: &Path) -> Vec<PathBuf> {
    let mut ends = vec![path.to_owned()];
    if let Ok(entries) = std::fs::read_dir(path) {
        let links = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_symlink());
        ends.extend(links.filter(|link| !link.is_dir()));
    }
    let real: Vec<_> = ends.iter().filter_map(|end| std::fs::canonicalize(end).ok()).collect();
    ends.extend(real);
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noise_that_never_ends_is_looked_into_all_the_same() {
        let (start, quiet) = (Instant::now(), Duration::from_secs(1));
        let mut noise = Noise::extended(None, start, quiet);
        assert_eq!(noise.due, start + quiet);
        for tenths in 1..200 {
            noise = Noise::extended(Some(noise), start + quiet / 10 * tenths, quiet);
        }
        assert_eq!(noise.due, start + quiet * LONGEST_NOISE);
    }
}
