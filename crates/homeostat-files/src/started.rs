//! Which process has read which files, for a program that reads them only when it starts and cannot be asked.
//!
//! A note says when the files of a generation were in place, and how to know that nobody has touched them since. A process that
//! started later has read them; so has one of a later boot. Times are counted from the boot, since clocks are set.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::process;

/// What is known of a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) generation: String,
    boot: String,
    /// When its files were in place, in ticks since the boot.
    at: u64,
    files: BTreeMap<String, Option<Signature>>,
    /// A process that has read them, and when it started. It has read them, whatever becomes of the files.
    process: Option<(i32, u64)>,
}

/// Changes with each write, rename and change of attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Signature {
    inode: u64,
    changed: (i64, i64),
}

impl Note {
    /// Of files that are in place now. A process that starts in the same tick could have read them before: [`next_tick`] must
    /// pass first.
    pub(crate) fn now(generation: &str, files: impl Iterator<Item = String>) -> Self {
        Note {
            generation: generation.to_owned(),
            boot: boot(),
            at: ticks(),
            files: files.map(|path| (path.clone(), Signature::of(&path))).collect(),
            process: None,
        }
    }

    pub(crate) fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let temporary = path.with_extension("new");
        fs::write(&temporary, serde_json::to_vec(self)?)?;
        fs::rename(temporary, path)
    }

    /// Whether a process has read these files.
    pub(crate) fn is_read_by(&self, pid: Pid) -> bool {
        let Some(started) = process::started(pid) else { return false };
        if self.process == Some((pid.as_raw_pid(), started)) && self.boot == boot() {
            return true;
        }
        let is_later = self.boot != boot() || started > self.at;
        is_later && self.files.iter().all(|(path, known)| Signature::of(path) == *known)
    }

    /// The same, with a process that has read the files, so that they may be restored without it.
    pub(crate) fn of_process(self, pid: Pid) -> Self {
        let started = process::started(pid);
        Note { process: started.map(|started| (pid.as_raw_pid(), started)), ..self }
    }

    /// The same, after its files were written again by us.
    pub(crate) fn with_files_of_now(self) -> Self {
        let files = self.files.into_keys().map(|path| (path.clone(), Signature::of(&path)));
        Note { files: files.collect(), at: ticks(), boot: boot(), ..self }
    }
}

impl Signature {
    fn of(path: &str) -> Option<Self> {
        let about = fs::symlink_metadata(path).ok()?;
        Some(Signature { inode: about.ino(), changed: (about.ctime(), about.ctime_nsec()) })
    }
}

/// Waits until a process that starts has a later start than now.
pub(crate) fn next_tick() {
    let now = ticks();
    while ticks() <= now + 1 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// As the kernel counts the starts of processes.
fn ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, nanoseconds) = (
        u64::try_from(now.tv_sec).unwrap_or_default(),
        u64::try_from(now.tv_nsec).unwrap_or_default(),
    );
    let per_second = rustix::param::clock_ticks_per_second();
    seconds * per_second + nanoseconds * per_second / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_read_what_was_there_before_it_started_and_was_not_touched_since() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("file");
        fs::write(&path, "one").unwrap();
        let files = || std::iter::once(path.display().to_string());
        let own = rustix::process::getpid();
        let note = Note::now("one", files());
        assert!(!note.is_read_by(own), "it is older than the note");
        let earlier = Note { at: 0, ..note.clone() };
        assert!(earlier.is_read_by(own));
        let before = Note { boot: "another".to_owned(), ..note.clone() };
        assert!(before.is_read_by(own), "of another boot");
        fs::write(&path, "two").unwrap();
        assert!(!earlier.is_read_by(own) && !before.is_read_by(own), "somebody was there");
        let certain = note.of_process(own);
        assert!(certain.is_read_by(own), "it has read them, whatever they are now");
        certain.write(&temp.path().join("note")).unwrap();
        assert_eq!(Note::read(&temp.path().join("note")), Some(certain.clone()));
        assert!(certain.with_files_of_now().is_read_by(own));
    }
}
