//! Reads files that are finished, whole and bounded: templates and inputs alike. Only this file opens them.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use homeostat_document::shown;
use homeostat_kit::finished_files::Unfinished;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat, openat2};

use crate::clock;
use crate::error::Error;

/// The largest file that is read.
const MOST_BYTES: u64 = 64 << 20;

type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Reads files. One that a process has open for writing is never read.
#[derive(Clone)]
pub struct FileReader {
    /// If there is one, files must have been left alone for a second, too.
    clock: Option<Clock>,
}

impl FileReader {
    /// For programs that read files whenever they change: a file must have been left alone for a second.
    #[must_use]
    pub fn for_daemon() -> Self {
        Self::with_clock(clock::now)
    }

    /// For programs that a person has started at a moment of their choice.
    #[must_use]
    pub fn once() -> Self {
        FileReader { clock: None }
    }

    /// As for a daemon, with a clock of the caller's.
    #[must_use]
    pub fn with_clock(clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        FileReader { clock: Some(Arc::new(clock)) }
    }

    pub(crate) fn read(&self, path: &Path) -> Result<String, Error> {
        // Opening a pipe would wait for its other end.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(CWD, path, flags, Mode::empty());
        self.read_open(&file.map_err(|errno| unreadable(path, errno.into()))?.into(), path)
    }

    /// Reads a file below a directory; nothing if there is none. No part of its name leads out of the directory, not even
    /// as a symbolic link.
    pub(crate) fn read_below(&self, directory: &Path, name: &str) -> Result<Option<String>, Error> {
        let path = directory.join(name);
        let failed = |errno: rustix::io::Errno| unreadable(&path, errno.into());
        let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let parent = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = open(here, parent, Mode::empty()).map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let below = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match openat2(parent, name, flags, Mode::empty(), below) {
            Ok(file) => self.read_open(&file.into(), &path).map(Some),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(rustix::io::Errno::XDEV) => {
                let outside = io::Error::other(format!("it is not below {}", shown(here)));
                Err(unreadable(&path, outside))
            }
            Err(errno) => Err(failed(errno)),
        }
    }

    /// The names and texts of the files in a directory, sorted. Hidden ones and directories are left out.
    pub(crate) fn read_directory(&self, path: &Path) -> Result<Vec<(String, String)>, Error> {
        let directory = File::open(path).map_err(|error| unreadable(path, error))?;
        let before = self.now();
        let mut files = Vec::new();
        for entry in fs::read_dir(path).map_err(|error| unreadable(path, error))? {
            let entry = entry.map_err(|error| unreadable(path, error))?;
            let name = entry.file_name().into_string().map_err(|name| {
                let why = io::Error::other("its name is no text");
                unreadable(&path.join(name), why)
            })?;
            if !name.starts_with('.') && entry.path().is_file() {
                files.push((name, self.read(&entry.path())?));
            }
        }
        check_finished(&directory, path, before)?;
        files.sort();
        Ok(files)
    }

    fn read_open(&self, file: &File, path: &Path) -> Result<String, Error> {
        let failed = |error| unreadable(path, error);
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("it is no regular file")));
        }
        let before = self.now();
        let mut bytes = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        check_finished(file, path, before)?;
        let name = shown(path);
        if bytes.len() as u64 > MOST_BYTES {
            return Err(Error::TooLarge { name, most: MOST_BYTES });
        }
        text(&name, bytes)
    }

    fn now(&self) -> Option<SystemTime> {
        self.clock.as_ref().map(|clock| clock())
    }
}

/// Judges a file after it was read, as of the time before; without a time, only whether a process has it open.
fn check_finished(file: &File, path: &Path, before: Option<SystemTime>) -> Result<(), Error> {
    let unfinished = match before {
        Some(before) => Unfinished::of(file, path, before),
        None => Unfinished::of_open(file, path),
    };
    unfinished.map_or(Ok(()), |unfinished| Err(Error::being_written(&unfinished)))
}

impl fmt::Debug for FileReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileReader").finish_non_exhaustive()
    }
}

/// The text of bytes that messages call `name`.
pub(crate) fn text(name: &str, bytes: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        let line = before.filter(|byte| **byte == b'\n').count() + 1;
        Error::NotText { name: name.to_owned(), line }
    })
}

fn unreadable(path: &Path, source: io::Error) -> Error {
    Error::Read { path: shown(path), source }
}
