//! Hears of changes to files, so that nothing has to be polled.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use inotify::{EventStream, Inotify, WatchMask, Watches};
use tokio::time::Instant;

use super::beside::{Beside, directory};

/// Some directories in which something may change. One that is not there yet is watched from when
/// it comes, if it is in another one that is watched.
pub(super) struct Watch {
    directories: BTreeSet<PathBuf>,
    watches: Watches,
    stream: EventStream<[u8; 4096]>,
    /// When what has changed will have been quiet for long enough.
    due: Option<Instant>,
}

/// What may become of a file that is written, replaced, made or removed.
const CHANGES: WatchMask = WatchMask::CLOSE_WRITE
    .union(WatchMask::CREATE)
    .union(WatchMask::DELETE)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::MOVED_TO);

impl Watch {
    /// The directories that documents, and the files that they name, are in: an editor may put
    /// another file in the place of one.
    pub(super) fn documents(paths: &[PathBuf], beside: &Beside) -> Result<Self> {
        let directory = |path: &PathBuf| if path.is_dir() { path.clone() } else { directory(path) };
        Self::of(paths.iter().map(directory).chain(beside.directories()).collect())
    }

    /// Watches these directories, too.
    pub(super) fn attend(&mut self, directories: BTreeSet<PathBuf>) {
        self.directories.extend(directories);
        // What cannot be watched is read when somebody asks for it.
        let _ = self.add();
    }

    /// Where namespaces have their names; the directory comes with the first of them.
    pub(super) fn namespaces() -> Result<Self> {
        Self::of(["/run", "/run/netns"].map(|path| Path::new(path).to_owned()).into())
    }

    fn of(directories: BTreeSet<PathBuf>) -> Result<Self> {
        let inotify = Inotify::init().context("cannot watch files")?;
        let watches = inotify.watches();
        let stream = inotify.into_event_stream([0; 4096]).context("cannot watch files")?;
        let mut watch = Watch { directories, watches, stream, due: None };
        watch.add().context("cannot watch files")?;
        Ok(watch)
    }

    /// Adding what is watched already changes nothing.
    fn add(&mut self) -> std::io::Result<()> {
        for directory in self.directories.iter().filter(|directory| directory.is_dir()) {
            self.watches.add(directory, CHANGES)?;
        }
        Ok(())
    }

    /// Waits for a change after which nothing changes for some time. Nothing is lost if it is
    /// dropped while it waits.
    pub(super) async fn changed(&mut self, quiet: Duration) {
        loop {
            let next = self.stream.next();
            let event = match self.due {
                None => Ok(next.await),
                Some(due) => tokio::time::timeout_at(due, next).await,
            };
            let Ok(event) = event else {
                self.due = None;
                return;
            };
            if event.is_none() {
                return std::future::pending().await;
            }
            self.due = Some(Instant::now() + quiet);
            // What cannot be watched is found by the resync.
            let _ = self.add();
        }
    }
}
