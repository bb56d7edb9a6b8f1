//! Watches for namespaces that come and go: by their files, by mounts, and by the processes that they are those of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::FutureExt as _;
use futures_util::future::select_all;
use homeostat_netns::Place;
use homeostat_registry::ScopePlace;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::sys::register;
use crate::watch::Watch;

/// How long names must have been left alone before they are looked at.
const QUIET: Duration = Duration::from_millis(20);

/// What the kernel reports every mount by.
const MOUNTS: &str = "/proc/self/mountinfo";

/// The places of namespaces that matter to the daemon, and what has become of them.
///
/// Quirk `mounts-send-no-event` (Linux 6.18): `ip netns add` makes a file and mounts the namespace on it some time
/// later. inotify has an event for the file, and none for the mount: `inotifywait -m /run/netns` prints nothing for
/// `unshare --net=/run/netns/NAME true` where the file was there before. So mounts are watched, too.
pub(super) struct NamespaceWatch {
    watch: Watch,
    mounts: AsyncFd<OwnedFd>,
    /// What was at each path before the daemon last looked; `Unseen` where it was not asked.
    seen: BTreeMap<PathBuf, Seen>,
    processes: BTreeMap<u32, AsyncFd<OwnedFd>>,
    /// Processes that have ended.
    ended: BTreeSet<u32>,
    /// Whether one of them ended before it was watched.
    is_due: bool,
    names: Names,
    /// What was at every name, while all of them matter.
    at_names: BTreeMap<PathBuf, Seen>,
}

/// Which namespaces matter, of those that have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Those at the places that are watched.
    These,
    /// All of them: a pattern may match any.
    All,
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Unseen,
    Nothing,
    /// Device and inode.
    File(u64, u64),
}

impl Seen {
    fn at(path: &Path) -> Self {
        std::fs::metadata(path).map_or(Seen::Nothing, |file| Seen::File(file.dev(), file.ino()))
    }
}

impl NamespaceWatch {
    /// Listens from here on.
    pub(super) fn open() -> Result<Self> {
        let mounts = File::open(MOUNTS)
            .and_then(|mounts| register(mounts.into(), Interest::PRIORITY))
            .context("cannot watch mounts")?;
        let (seen, processes, ended, is_due, at_names) = Default::default();
        let (watch, names) = (Watch::namespaces()?, Names::These);
        Ok(NamespaceWatch { watch, mounts, seen, processes, ended, is_due, names, at_names })
    }

    /// From here on these places matter, and no others. What became of them since the last
    /// [`changed`](Self::changed) ended is still reported.
    pub(super) fn watch_places(&mut self, places: &[ScopePlace], names: Names) {
        if names != self.names && names == Names::All {
            self.watch.watch_all_namespaces();
            // Whatever came before.
            self.is_due = true;
        }
        self.names = names;
        let mut paths = BTreeSet::new();
        let mut pids = BTreeSet::new();
        for place in places {
            match place {
                ScopePlace::PidFile(path) => {
                    paths.insert(path.clone());
                }
                // Their files come and go with the process; no event is sent.
                ScopePlace::At(Place::OfPid(_)) => {}
                ScopePlace::At(place) => {
                    paths.insert(place.path());
                }
            }
            if let Some(Place::OfPid(pid)) = place.now() {
                pids.insert(pid);
            }
        }
        if !paths.iter().eq(self.seen.keys()) {
            self.watch.watch_files(paths.iter().map(PathBuf::as_path));
            let before = std::mem::take(&mut self.seen);
            let seen = |path: PathBuf| {
                let seen = before.get(&path).copied().unwrap_or(Seen::Unseen);
                (path, seen)
            };
            self.seen = paths.into_iter().map(seen).collect();
        }
        self.processes.retain(|pid, _| pids.contains(pid));
        self.ended.retain(|pid| pids.contains(pid));
        for pid in pids {
            if self.processes.contains_key(&pid) || self.ended.contains(&pid) {
                continue;
            }
            match open_process(pid) {
                Some(process) => {
                    self.processes.insert(pid, process);
                }
                None => self.is_due |= self.ended.insert(pid),
            }
        }
    }

    /// Whether a process has ended that was watched.
    pub(super) fn has_ended(&self, pid: u32) -> bool {
        self.ended.contains(&pid)
    }

    /// Waits until a namespace may have come or gone. Nothing is lost if it is dropped while it waits.
    pub(super) async fn changed(&mut self) {
        while !std::mem::take(&mut self.is_due) {
            tokio::select! {
                () = self.watch.changed(QUIET) => {
                    // A file may name the same number for another process.
                    self.ended.clear();
                    break;
                }
                pid = first_to_end(&self.processes) => {
                    self.processes.remove(&pid);
                    self.ended.insert(pid);
                    break;
                }
                // A descriptor that fails says nothing more.
                Ok(mut mounted) = self.mounts.ready(Interest::PRIORITY) => {
                    // Mounts come in groups. It stays ready until it is cleared.
                    tokio::time::sleep(QUIET).await;
                    mounted.clear_ready();
                    let is_changed = self.seen.iter().any(|(path, seen)| *seen != Seen::at(path));
                    if is_changed || self.at_names != self.names.look() {
                        break;
                    }
                }
            }
        }
        // Before the caller looks: what comes in between is looked at twice, and never not at all.
        self.seen.iter_mut().for_each(|(path, seen)| *seen = Seen::at(path));
        self.at_names = self.names.look();
    }
}

impl Names {
    /// What is at every name, if all of them matter.
    fn look(self) -> BTreeMap<PathBuf, Seen> {
        if self == Names::These {
            return BTreeMap::new();
        }
        // A directory that cannot be read is reported when the document is bound.
        let names = homeostat_netns::names().unwrap_or_default();
        let paths = names.into_iter().map(|name| name.path());
        paths.map(|path| (path.clone(), Seen::at(&path))).collect()
    }
}

fn open_process(pid: u32) -> Option<AsyncFd<OwnedFd>> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let process = pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
    register(process, Interest::READABLE).ok()
}

/// Waits for the end of one of some processes.
async fn first_to_end(processes: &BTreeMap<u32, AsyncFd<OwnedFd>>) -> u32 {
    let ends = processes.iter().map(|(pid, process)| {
        // An error, and readable, both mean that nothing more comes of it.
        process.readable().map(move |_| *pid).boxed()
    });
    // Without processes none ends.
    select_all(ends.chain([std::future::pending().boxed()])).await.0
}
