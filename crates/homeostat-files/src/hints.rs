//! Notices about files, by inotify on their directories: partial, and only ever a reason to look. A file that a process
//! keeps open is announced when it is closed; one whose directory is missing, not at all.

use std::collections::{BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::{future, io};

use homeostat_core::{Failure, Hint, Retry};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::key::Key;
use crate::place::Root;
use crate::sys::{Waiting, register};

/// The watched directories. Where the system offers no inotify, there are no hints.
#[derive(Debug)]
pub(crate) struct Hints {
    queue: Option<Arc<OwnedFd>>,
    watched: Watched,
    /// The queue, registered with the runtime; only waiting for hints needs one.
    waiting: Option<Waiting>,
}

/// The keys in a directory, by their names, under the kernel's number for its watch.
type Watched = HashMap<i32, HashMap<String, BTreeSet<Key>>>;

/// Events read in one go; what is left comes with the next hint.
const MOST_EVENTS: usize = 4096;

const FLAGS: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::ONLYDIR);

impl Hints {
    pub(crate) fn open() -> Self {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        Hints { queue: queue.map(Arc::new), watched: HashMap::new(), waiting: None }
    }

    /// No subscription: for a reader that is never asked for hints.
    pub(crate) fn none() -> Self {
        Hints { queue: None, watched: HashMap::new(), waiting: None }
    }

    /// Watches the directories of `keys`, and no others. Adding one twice is harmless, and puts a watch on a directory
    /// that was made again.
    pub(crate) fn watch<'a>(&mut self, root: &mut Root, keys: impl Iterator<Item = &'a Key>) {
        let Some(queue) = &self.queue else { return };
        let mut current = Watched::new();
        for key in keys {
            let Some(path) = key.path() else { continue };
            // What cannot be watched is looked at by the next resync.
            let Ok(directory) = root.parent(path) else { continue };
            // The very directory that was found, whatever its path leads to by now.
            let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
            if let Ok(watch) = inotify::add_watch(queue, &link, FLAGS) {
                let names = current.entry(watch).or_default();
                names.entry(path.split().1.to_owned()).or_default().insert(key.clone());
            }
        }
        for watch in self.watched.keys().filter(|watch| !current.contains_key(watch)) {
            // It may be gone with its directory already.
            let _ = inotify::remove_watch(queue, *watch);
        }
        self.watched = current;
    }

    /// The next hint; never, where there is no inotify. Cancel-safe: nothing is read before it is handed over.
    pub(crate) async fn next(&mut self) -> Result<Hint<Key>, Failure> {
        let Some(queue) = &self.queue else { return future::pending().await };
        let waiting = match &mut self.waiting {
            Some(waiting) => waiting,
            none => {
                if tokio::runtime::Handle::try_current().is_err() {
                    let error = "hints about files can be waited for in a tokio runtime only";
                    return Err(Failure::new(error, Retry::Never));
                }
                none.insert(register(queue).map_err(|error| dead(&error))?)
            }
        };
        loop {
            let mut ready = waiting.readable().await.map_err(|error| dead(&error))?;
            match ready.try_io(|queue| read(queue.get_ref(), &self.watched)) {
                Ok(Ok(Some(hint))) => return Ok(hint),
                Ok(Err(error)) => return Err(dead(&error)),
                // Nothing about what is watched now, or nothing at all.
                Ok(Ok(None)) | Err(_) => {}
            }
        }
    }
}

fn dead(error: &io::Error) -> Failure {
    Failure::new(format!("cannot wait for hints about files: {error}"), Retry::Soon)
}

/// Everything in the queue as one hint.
fn read(queue: &OwnedFd, watched: &Watched) -> io::Result<Option<Hint<Key>>> {
    let mut keys = BTreeSet::new();
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(queue, &mut space);
    for nth in 0..MOST_EVENTS {
        let event = match reader.next() {
            Ok(event) => event,
            Err(Errno::AGAIN) if nth == 0 => return Err(io::ErrorKind::WouldBlock.into()),
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        };
        if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
            return Ok(Some(Hint::Lost));
        }
        let Some(names) = watched.get(&event.wd()) else { continue };
        match event.file_name().map(|name| name.to_string_lossy()) {
            Some(name) => keys.extend(names.get(&*name).into_iter().flatten().cloned()),
            // The directory itself went, or changed.
            None => keys.extend(names.values().flatten().cloned()),
        }
    }
    Ok((!keys.is_empty()).then(|| Hint::keys(keys)))
}
