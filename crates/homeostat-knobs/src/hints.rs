//! Notices about knobs, by inotify: partial, and only ever a reason to look.
//!
//! Quirk `coupled-changes-are-silent` (Linux 6.18): `inotifywait -m /proc/sys/net/ipv4/conf/lo/forwarding`
//! reports writes to that file through the same mount, but nothing of `echo 1 >
//! /proc/sys/net/ipv4/ip_forward`, which changes it too. Files that do not exist yet (knobs of a
//! link to come) cannot be watched at all: procfs announces nothing new.

use std::collections::{BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::{future, io};

use homeostat_core::{Failure, Focus, Hint, Retry};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::key::Key;
use crate::observe::find_file;
use crate::source::Knobs;
use crate::sys::{Waiting, register};

/// The watched files. Where the system offers no inotify, there are no hints.
#[derive(Debug)]
pub(crate) struct Hints {
    queue: Option<Arc<OwnedFd>>,
    watched: HashMap<Watch, Key>,
    /// The queue, registered with the runtime; only waiting for hints needs one.
    waiting: Option<Waiting>,
}

/// The kernel's number for a watch; never used twice in one queue.
type Watch = i32;

/// Events read in one go; what is left comes with the next hint.
const MOST_EVENTS: usize = 4096;

impl Hints {
    pub(crate) fn open() -> Self {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        Hints { queue: queue.map(Arc::new), watched: HashMap::new(), waiting: None }
    }

    /// Watches `keys`. A full look drops the watches of all others; adding one twice is harmless,
    /// and puts a watch on the new file of a link that was made again.
    pub(crate) fn watch(&mut self, knobs: &Knobs, keys: &BTreeSet<Key>, focus: &Focus<Key>) {
        let Some(queue) = &self.queue else { return };
        let mut current = HashMap::new();
        for key in keys {
            // A file that cannot be watched is read by the next resync.
            let Ok(Ok(file)) = find_file(knobs, key) else { continue };
            let flags = WatchFlags::MODIFY | WatchFlags::DONT_FOLLOW;
            if let Ok(watch) = inotify::add_watch(queue, file.path(), flags) {
                current.insert(watch, key.clone());
            }
        }
        if *focus == Focus::All {
            let stale = self.watched.keys().filter(|watch| !current.contains_key(watch));
            for watch in stale {
                // It may be gone with its file already.
                let _ = inotify::remove_watch(queue, *watch);
            }
            self.watched.clear();
        }
        self.watched.extend(current);
    }

    /// The next hint; never, where there is no inotify. Cancel-safe: nothing is read before it is
    /// handed over.
    pub(crate) async fn next(&mut self) -> Result<Hint<Key>, Failure> {
        let Some(queue) = &self.queue else { return future::pending().await };
        let waiting = match &mut self.waiting {
            Some(waiting) => waiting,
            none => {
                if tokio::runtime::Handle::try_current().is_err() {
                    let error = "hints about knobs can be waited for in a tokio runtime only";
                    return Err(Failure::new(error, Retry::Never));
                }
                none.insert(register(queue).map_err(|error| dead(&error))?)
            }
        };
        loop {
            let mut ready = waiting.readable().await.map_err(|error| dead(&error))?;
            match ready.try_io(|queue| read(queue.get_ref(), &mut self.watched)) {
                Ok(Ok(Some(hint))) => return Ok(hint),
                Ok(Err(error)) => return Err(dead(&error)),
                // Nothing about what is watched now, or nothing at all.
                Ok(Ok(None)) | Err(_) => {}
            }
        }
    }
}

fn dead(error: &io::Error) -> Failure {
    Failure::new(format!("cannot wait for hints about knobs: {error}"), Retry::Soon)
}

/// Everything in the queue as one hint.
fn read(queue: &OwnedFd, watched: &mut HashMap<Watch, Key>) -> io::Result<Option<Hint<Key>>> {
    let mut keys = BTreeSet::new();
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(queue, &mut space);
    for _ in 0..MOST_EVENTS {
        let event = match reader.next() {
            Ok(event) => event,
            Err(Errno::AGAIN) if keys.is_empty() => return Err(io::ErrorKind::WouldBlock.into()),
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        };
        if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
            return Ok(Some(Hint::Lost));
        }
        // A file that went (with its link) is a change, too.
        let key = if event.events().contains(ReadFlags::IGNORED) {
            watched.remove(&event.wd())
        } else {
            watched.get(&event.wd()).cloned()
        };
        keys.extend(key);
    }
    Ok((!keys.is_empty()).then(|| Hint::keys(keys)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;
    use crate::source::Roots;
    use crate::sysfs::Sysfs;

    /// How many watches the kernel holds for us.
    fn held(hints: &Hints) -> usize {
        let queue = hints.queue.as_ref().unwrap().as_raw_fd();
        let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{queue}")).unwrap();
        text.lines().filter(|line| line.starts_with("inotify wd:")).count()
    }

    #[test]
    fn watches_of_a_former_desired_state_are_dropped_by_a_full_look_only() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("net")).unwrap();
        let keys = ["net/a", "net/b", "net/c"].map(|path| {
            std::fs::write(root.path().join(path), "0").unwrap();
            Key::sysctl(path).unwrap()
        });
        let roots = Roots {
            sysctl: root.path().to_owned(),
            sysfs: Sysfs::Directory(root.path().to_owned()),
            cgroup: None,
            systemd: false,
        };
        let (knobs, mut hints) = (Knobs::new(roots, None), Hints::open());
        let [a, b, c] = keys;
        hints.watch(&knobs, &BTreeSet::from([a, b.clone()]), &Focus::All);
        assert_eq!(held(&hints), 2);
        let focus = BTreeSet::from([c.clone()]);
        hints.watch(&knobs, &focus, &Focus::Keys(focus.clone()));
        assert_eq!(held(&hints), 3);
        hints.watch(&knobs, &BTreeSet::from([b, c]), &Focus::All);
        assert_eq!(held(&hints), 2);
    }
}
