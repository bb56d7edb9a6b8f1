//! Notices about files, on their directories: partial, and only ever a reason to look. A file that a process keeps open is
//! announced when it is closed; one whose directory is missing, not at all.
//!
//! Where the kernel says which process was there (`fanotify.rs`), that is used; else inotify.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::{future, io};

use homeostat_core::{Failure, Hint, Retry};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::exclusive::Exclusive;
use crate::fanotify::Fanotify;
use crate::key::{FilePath, Key};
use crate::place::Root;
use crate::sys::{Waiting, register};

/// The watched directories. Where the system offers neither way, there are no hints.
#[derive(Debug)]
pub(crate) struct Hints {
    fanotify: Option<Subscription<Fanotify>>,
    inotify: Option<Subscription<Inotify>>,
}

/// The keys in a directory, each with whether its content is secret.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_name: HashMap<String, BTreeMap<Key, bool>>,
    /// The directories, by path, of which everything else counts, too.
    exclusive: Vec<(FilePath, Exclusive)>,
}

impl Names {
    /// All that is declared in the directory.
    pub(crate) fn all(&self) -> BTreeSet<(Key, bool)> {
        let all = self.by_name.values().flatten();
        all.map(|(key, is_secret)| (key.clone(), *is_secret)).collect()
    }

    /// What a name means; nothing, if no file of the set has it.
    pub(crate) fn of(&self, name: &str) -> BTreeSet<(Key, bool)> {
        if let Some(keys) = self.by_name.get(name) {
            return keys.iter().map(|(key, is_secret)| (key.clone(), *is_secret)).collect();
        }
        let others = self.exclusive.iter().filter(|(_, exclusive)| !exclusive.spares(name));
        let others = others.filter_map(|(above, _)| format!("{above}/{name}").parse().ok());
        others.map(|path| (Key::File(path), false)).collect()
    }

    pub(crate) fn extend(&mut self, other: Names) {
        for (name, keys) in other.by_name {
            self.by_name.entry(name).or_default().extend(keys);
        }
        self.exclusive.extend(other.exclusive);
    }
}

#[derive(Debug)]
struct Inotify {
    queue: Arc<OwnedFd>,
    /// By the kernel's number for a watch.
    watched: HashMap<i32, Names>,
}

/// Notices read in one go; what is left comes with the next hint.
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
        Hints {
            fanotify: Fanotify::open().ok().map(Subscription::new),
            inotify: Inotify::open().ok().map(Subscription::new),
        }
    }

    /// No subscription: for a reader that is never asked for hints.
    pub(crate) fn none() -> Self {
        Hints { fanotify: None, inotify: None }
    }

    /// Watches the directories of `keys`, each with whether it is secret, and all of exclusive ones, and no others. Watching one twice is harmless, and
    /// puts a watch on a directory that was made again.
    pub(crate) fn watch<'a>(
        &mut self,
        root: &mut Root,
        keys: impl Iterator<Item = (&'a Key, bool)>,
        exclusive: &'a BTreeMap<FilePath, Exclusive>,
    ) {
        let mut directories: BTreeMap<&str, (Arc<OwnedFd>, Names)> = BTreeMap::new();
        for (key, is_secret) in keys {
            let Some(path) = key.path() else { continue };
            // What cannot be watched is looked at by the next resync.
            let Ok(directory) = root.parent(path) else { continue };
            let (above, name) = path.split();
            let (_, names) = directories.entry(above).or_insert((directory, Names::default()));
            names.by_name.entry(name.to_owned()).or_default().insert(key.clone(), is_secret);
        }
        for (path, exclusive) in exclusive {
            let Ok(directory) = root.directory(path) else { continue };
            let entry = directories.entry(path.as_str());
            let (_, names) = entry.or_insert((directory, Names::default()));
            names.exclusive.push((path.clone(), exclusive.clone()));
        }
        let mut marked = Vec::new();
        if let Some(Subscription { source, .. }) = &mut self.fanotify {
            source.begin();
            directories.retain(|_, (directory, names)| match source.add(directory) {
                Ok(own) => {
                    own.extend(std::mem::take(names));
                    marked.push(Arc::clone(directory));
                    false
                }
                Err(_) => true,
            });
            source.end(marked.iter().map(|directory| &**directory));
        }
        if let Some(Subscription { source, .. }) = &mut self.inotify {
            source.watch(directories.into_values());
        }
    }

    /// The next hint; never, where there is no way to get one. Cancel-safe: nothing is read before it is handed over.
    pub(crate) async fn next(&mut self) -> Result<Hint<Key>, Failure> {
        let Hints { fanotify, inotify } = self;
        let fanotify = async {
            match fanotify {
                Some(one) => one.next(|one| &one.queue, Fanotify::read).await,
                None => future::pending().await,
            }
        };
        let inotify = async {
            match inotify {
                Some(one) => one.next(|one| &one.queue, Inotify::read).await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            hint = fanotify => hint,
            hint = inotify => hint,
        }
    }
}

/// A queue that can be waited for.
#[derive(Debug)]
struct Subscription<T> {
    source: T,
    /// The queue, registered with the runtime; only waiting for hints needs one.
    waiting: Option<Waiting>,
}

impl<T> Subscription<T> {
    fn new(source: T) -> Self {
        Subscription { source, waiting: None }
    }

    async fn next(
        &mut self,
        queue: impl Fn(&T) -> &Arc<OwnedFd>,
        read: impl Fn(&T) -> io::Result<Option<Hint<Key>>>,
    ) -> Result<Hint<Key>, Failure> {
        let Subscription { source, waiting } = self;
        let waiting = match waiting {
            Some(waiting) => waiting,
            none => {
                if tokio::runtime::Handle::try_current().is_err() {
                    let error = "hints about files can be waited for in a tokio runtime only";
                    return Err(Failure::new(error, Retry::Never));
                }
                none.insert(register(queue(source)).map_err(|error| dead(&error))?)
            }
        };
        loop {
            let mut ready = waiting.readable().await.map_err(|error| dead(&error))?;
            match ready.try_io(|_| read(source)) {
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

impl Inotify {
    fn open() -> io::Result<Self> {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Inotify { queue: Arc::new(queue), watched: HashMap::new() })
    }

    fn watch(&mut self, directories: impl Iterator<Item = (Arc<OwnedFd>, Names)>) {
        let mut current = HashMap::new();
        for (directory, names) in directories {
            // The very directory that was found, whatever its path leads to by now.
            let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
            if let Ok(watch) = inotify::add_watch(&self.queue, &link, FLAGS) {
                current.insert(watch, names);
            }
        }
        for watch in self.watched.keys().filter(|watch| !current.contains_key(watch)) {
            // It may be gone with its directory already.
            let _ = inotify::remove_watch(&self.queue, *watch);
        }
        self.watched = current;
    }

    /// Everything in the queue as one hint.
    fn read(&self) -> io::Result<Option<Hint<Key>>> {
        let mut keys = Vec::new();
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.queue, &mut space);
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
            let Some(names) = self.watched.get(&event.wd()) else { continue };
            match event.file_name().map(|name| name.to_string_lossy()) {
                Some(name) => {
                    keys.extend(names.of(&name).into_iter().map(|(key, _)| key));
                }
                // The directory itself went, or changed.
                None => keys.extend(names.all().into_iter().map(|(key, _)| key)),
            }
        }
        Ok((!keys.is_empty()).then(|| Hint::keys(keys)))
    }
}
