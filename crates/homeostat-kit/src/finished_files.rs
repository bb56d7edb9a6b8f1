//! Whether files are finished: no process has them open for writing, and they were left alone for some time. A file
//! that is being written is never a desired state. The daemon judges its documents by this, too.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use homeostat_engine::{Failure, Retry};

use crate::sys::is_open_for_writing;

/// How long files must have been left alone before a daemon reads them: scripts write them in many steps.
pub const QUIET: Duration = Duration::from_secs(1);

/// A file that is being written.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unfinished {
    /// The file.
    pub path: PathBuf,
    /// When it may be finished; nothing while it is open.
    pub due_in: Option<Duration>,
}

impl Unfinished {
    /// Of some files the one that is finished last, if any is not finished. One that cannot be opened is reported by who
    /// reads it.
    #[must_use]
    pub fn find<'a>(files: impl IntoIterator<Item = &'a Path>) -> Option<Self> {
        let now = SystemTime::UNIX_EPOCH + SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let judged = files.into_iter().filter_map(|path| Self::of(&open(path)?, path, now));
        judged.max_by_key(|unfinished| unfinished.due_in.unwrap_or(Duration::MAX))
    }

    /// Whether this open file is unfinished; messages call it `path`. Who judges what was read gives the time before the
    /// first byte was read: what was written since then may be missing from it.
    #[must_use]
    pub fn of(file: &File, path: &Path, now: SystemTime) -> Option<Self> {
        let due_in = if is_open_for_writing(file) { None } else { Some(until_quiet(file, now)?) };
        Some(Unfinished { path: path.to_owned(), due_in })
    }

    /// The same, however long ago the file was written.
    #[must_use]
    pub fn of_open(file: &File, path: &Path) -> Option<Self> {
        is_open_for_writing(file).then(|| Unfinished { path: path.to_owned(), due_in: None })
    }

    /// The first that a process has open for writing, however long ago the others were written.
    #[must_use]
    pub fn find_open<'a>(files: impl IntoIterator<Item = &'a Path>) -> Option<Self> {
        files.into_iter().find_map(|path| Self::of_open(&open(path)?, path))
    }

    /// A file that was changed while it was read.
    #[must_use]
    pub fn changed(path: PathBuf) -> Self {
        Unfinished { path, due_in: Some(QUIET) }
    }

    /// Why it is not read, and when it will be.
    #[must_use]
    pub fn failure(&self) -> Failure {
        // A name may hold control characters.
        let path = self.path.display().to_string();
        let path: String = path
            .chars()
            .map(|c| if c.is_control() { c.escape_unicode().to_string() } else { c.to_string() })
            .collect();
        let (message, help) = match self.due_in {
            None => (
                format!("`{path}` is being written: a process has it open"),
                "it is read when it is closed; replacing a file by rename is always safe",
            ),
            Some(_) => (
                format!("`{path}` is being written"),
                "it is read when it has been left alone for a second",
            ),
        };
        Failure::new(message, Retry::OnChange).with_help(help)
    }
}

fn open(path: &Path) -> Option<File> {
    // Opening a pipe would wait for its other end.
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    File::open(path).ok()
}

/// How long it takes until the file will have been left alone for long enough; nothing if it has been. A time in the future
/// comes from a clock that was set, and says nothing.
fn until_quiet(file: &File, now: SystemTime) -> Option<Duration> {
    let written = file.metadata().and_then(|file| file.modified()).ok()?;
    QUIET.checked_sub(now.duration_since(written).ok()?).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_finished_when_it_is_closed_and_has_been_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        let writer = File::create(&path).unwrap();
        let find = || Unfinished::find([&*path]);
        assert!(find().unwrap().due_in.is_none(), "it is open");
        writer.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(find().unwrap().due_in.is_none(), "it is still open");
        drop(writer);
        // A process that another test starts has the descriptor for a moment, too.
        assert!((0..1_000_000).any(|_| find().is_none()));
        let at = |age: i32| {
            let now = SystemTime::UNIX_EPOCH + SystemTime::UNIX_EPOCH.elapsed().unwrap();
            let step = Duration::from_secs(u64::from(age.unsigned_abs()));
            let written = if age < 0 { now + step } else { now - step };
            File::options().append(true).open(&path).unwrap().set_modified(written).unwrap();
        };
        at(3600);
        assert!((0..1_000_000).any(|_| find().is_none()));
        at(-3600);
        assert!((0..1_000_000).any(|_| find().is_none()), "the clock was set back");
        at(0);
        let due = find().map(|unfinished| unfinished.due_in);
        assert!(due.is_none_or(|due| due.is_none_or(|due| due <= QUIET)));
        assert!(Unfinished::find([&*directory.path().join("none")]).is_none());
    }

    /// Waiting only for the first of two files that are saved one after the other would read the second too early.
    #[test]
    fn of_several_files_the_last_one_to_be_finished_counts() {
        let directory = tempfile::tempdir().unwrap();
        let [document, list] = ["host.toml", "all.routes"].map(|name| directory.path().join(name));
        std::fs::write(&document, "").unwrap();
        let _writer = File::create(&list).unwrap();
        let unfinished = Unfinished::find([&*document, &*list]).unwrap();
        assert_eq!((unfinished.path, unfinished.due_in), (list, None));
    }
}
