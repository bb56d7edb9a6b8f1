//! Waits until a path leads to something else, without polling.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use homeostat_kit::finished_files::QUIET;
use inotify::{EventStream, Inotify, WatchMask, Watches};
use rustix::fs::Stat;
use tokio::time::Instant;

pub(crate) struct Watch {
    path: PathBuf,
    /// Whether the files in it matter, too.
    is_directory: bool,
    /// Nothing if the kernel has no more to give.
    inotify: Option<(Watches, EventStream<[u8; 4096]>)>,
    /// What was there when it was last added: the path, and what is in it if that matters.
    seen: Vec<Option<Seen>>,
}

/// Two looks at a file that are the same found the same content.
#[derive(PartialEq)]
struct Seen {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

/// Names that come and go.
const NAMES: WatchMask = WatchMask::CREATE
    .union(WatchMask::DELETE)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::MOVED_TO)
    .union(WatchMask::MASK_ADD);

/// The same, and files that are written, or may be read from now on.
const CHANGES: WatchMask = NAMES.union(WatchMask::CLOSE_WRITE).union(WatchMask::ATTRIB);

impl Watch {
    pub(crate) fn file(path: &Path) -> Self {
        let inotify = Inotify::init().and_then(|inotify| {
            let watches = inotify.watches();
            Ok((watches, inotify.into_event_stream([0; 4096])?))
        });
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Watch { path, is_directory: false, inotify: inotify.ok(), seen: Vec::new() }
    }

    /// A directory with the files in it.
    pub(crate) fn directory(path: &Path) -> Self {
        Watch { is_directory: true, ..Self::file(path) }
    }

    /// Watches the directories in which the path and what it leads to are, and all that are above: each of them may be
    /// replaced. What is watched already stays so.
    pub(crate) fn add(&mut self) {
        self.seen = self.look();
        let Some((watches, _)) = &mut self.inotify else { return };
        let target = std::fs::canonicalize(&self.path).ok();
        for path in [Some(&self.path), target.as_ref()].into_iter().flatten() {
            let inside = Some(path.as_path()).filter(|_| self.is_directory);
            let above = path.ancestors().skip(2).map(|directory| (directory, NAMES));
            let around =
                inside.into_iter().chain(path.parent()).map(|directory| (directory, CHANGES));
            for (directory, mask) in above.chain(around) {
                // What is not there cannot be watched, and is announced by what is above.
                let _ = watches.add(directory, mask);
            }
        }
    }

    /// Waits for another content, for so long at most. Dropping the future loses nothing.
    pub(crate) async fn changed(&mut self, pause: Option<Duration>) {
        // Without events, files are looked at from time to time.
        let pause = pause.or(self.inotify.is_none().then_some(QUIET));
        let until = pause.map(|pause| Instant::now() + pause);
        loop {
            let event = async {
                match &mut self.inotify {
                    Some((_, stream)) => stream.next().await.is_some(),
                    None => std::future::pending().await,
                }
            };
            let timer = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                is_open = event => if !is_open {
                    self.inotify = None;
                    return;
                },
                () = timer => return,
            }
            if self.look() != self.seen {
                return;
            }
        }
    }

    fn look(&self) -> Vec<Option<Seen>> {
        let mut looked = vec![seen(&self.path)];
        if self.is_directory {
            let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
            let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            paths.sort();
            looked.extend(paths.iter().map(|path| seen(path)));
        }
        looked
    }
}

fn seen(path: &Path) -> Option<Seen> {
    let Stat { st_dev, st_ino, st_size, st_mtime, st_mtime_nsec, st_ctime, st_ctime_nsec, .. } =
        rustix::fs::stat(path).ok()?;
    Some(Seen {
        device: st_dev,
        inode: st_ino,
        size: st_size,
        modified: (st_mtime, st_mtime_nsec),
        changed: (st_ctime, st_ctime_nsec),
    })
}
