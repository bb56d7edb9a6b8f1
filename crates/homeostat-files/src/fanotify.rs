//! Notices about directories that say which process was there (fanotify). They need `CAP_SYS_ADMIN`, and a file system that
//! can tell its directories apart.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use homeostat_core::{Hint, HintedKeys};
use rustix::process::{Pid, getpid};

use crate::hints::Names;
use crate::process::Culprit;
use crate::sys::{self, Handle};

/// A queue of notices, and what it watches.
#[derive(Debug)]
pub(crate) struct Fanotify {
    pub(crate) queue: Arc<OwnedFd>,
    watched: HashMap<Handle, Names>,
    next: HashMap<Handle, Names>,
}

/// Notices read in one go; what is left comes with the next hint.
const MOST_READS: usize = 256;

impl Fanotify {
    pub(crate) fn open() -> io::Result<Self> {
        let queue = Arc::new(sys::fanotify()?);
        Ok(Fanotify { queue, watched: HashMap::new(), next: HashMap::new() })
    }

    /// Begins a list of what is to be watched, and nothing else.
    pub(crate) fn begin(&mut self) {
        self.next.clear();
    }

    /// Adds a directory to the list, and watches it from now on. Adding one twice is harmless.
    pub(crate) fn add(&mut self, directory: &OwnedFd) -> io::Result<&mut Names> {
        let handle = Handle::of(directory)?;
        sys::watch(&self.queue, directory)?;
        Ok(self.next.entry(handle).or_default())
    }

    /// Ends the list. Directories that are not on it any more are given up together, and the others watched anew, before
    /// anybody looks.
    pub(crate) fn end<T: AsFd>(&mut self, directories: impl Iterator<Item = T>) {
        let is_left = self.watched.keys().any(|handle| !self.next.contains_key(handle));
        self.watched = std::mem::take(&mut self.next);
        if is_left {
            sys::watch_nothing(&self.queue);
            for directory in directories {
                // What cannot be watched is looked at by the next resync.
                let _ = sys::watch(&self.queue, directory.as_fd());
            }
        }
    }

    /// Everything in the queue as one hint; nothing, if it is about nothing that is watched.
    pub(crate) fn read(&self) -> io::Result<Option<Hint<crate::key::Key>>> {
        let mut keys = HintedKeys::default();
        let mut buffer = vec![0; 16 << 10];
        for nth in 0..MOST_READS {
            let length = match rustix::io::read(&self.queue, &mut *buffer) {
                Ok(length) => length,
                Err(rustix::io::Errno::AGAIN) if nth > 0 => break,
                Err(error) => return Err(error.into()),
            };
            for notice in Notices(buffer.get(..length).unwrap_or_default()) {
                let Some(notice) = notice else { return Ok(Some(Hint::Lost)) };
                self.take(&notice, &mut keys);
            }
        }
        Ok((!keys.is_empty()).then_some(Hint::Keys(keys)))
    }

    fn take(&self, notice: &Notice<'_>, keys: &mut HintedKeys<crate::key::Key>) {
        let Some(names) = notice.directory.as_ref().and_then(|one| self.watched.get(one)) else {
            return;
        };
        let name = str::from_utf8(notice.name).ok();
        let found: BTreeSet<_> = match name {
            // The directory itself went, or changed.
            None | Some("" | ".") => names.all(),
            Some(name) => names.of(name),
        };
        if found.is_empty() {
            return;
        }
        // Our own writes are no change by others.
        let other = notice.pid.filter(|pid| *pid != getpid());
        let culprit =
            other.zip(notice.process.as_ref()).and_then(|(pid, pidfd)| Culprit::read(pid, pidfd));
        for (key, is_secret) in found {
            // A command may have held the secret.
            let by = culprit.as_ref().map(|culprit| culprit.named(!is_secret));
            keys.add(key, by.map(Arc::from));
        }
    }
}

/// One notice: who did something to which name in which directory.
struct Notice<'a> {
    pid: Option<Pid>,
    /// Nothing, if it has ended.
    process: Option<OwnedFd>,
    directory: Option<Handle>,
    name: &'a [u8],
}

/// The notices in a buffer; `None` says that some were lost.
struct Notices<'a>(&'a [u8]);

/// The length of what each notice begins with.
const HEAD: usize = 24;

impl<'a> Iterator for Notices<'a> {
    type Item = Option<Notice<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::try_from(u32::from_ne_bytes(bytes(self.0, 0)?)).ok()?;
        let one = self.0.get(..length).filter(|one| one.len() >= HEAD)?;
        self.0 = self.0.get(length..)?;
        let mask = u64::from_ne_bytes(bytes(one, 8)?);
        let pid = i32::from_ne_bytes(bytes(one, 20)?);
        let mut notice =
            Notice { pid: Pid::from_raw(pid), process: None, directory: None, name: &[] };
        let mut rest = one.get(usize::from(u16::from_ne_bytes(bytes(one, 6)?))..)?;
        while let [kind, _, low, high, ..] = *rest {
            let length = usize::from(u16::from_ne_bytes([low, high]));
            let Some(record) = rest.get(4..length) else { break };
            rest = rest.get(length..).unwrap_or_default();
            match kind {
                libc::FAN_EVENT_INFO_TYPE_PIDFD => {
                    let raw = bytes(record, 0).map(i32::from_ne_bytes);
                    notice.process = raw.and_then(sys::received);
                }
                libc::FAN_EVENT_INFO_TYPE_DFID_NAME | libc::FAN_EVENT_INFO_TYPE_DFID => {
                    if let Some((handle, name)) = Handle::parse(record) {
                        notice.directory = Some(handle);
                        notice.name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                    }
                }
                _ => {}
            }
        }
        Some((mask & libc::FAN_Q_OVERFLOW == 0).then_some(notice))
    }
}

fn bytes<const N: usize>(buffer: &[u8], at: usize) -> Option<[u8; N]> {
    buffer.get(at..at + N)?.try_into().ok()
}
