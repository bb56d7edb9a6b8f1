//! The files of a package, as they will be on the machine, before they are packed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Error;
use crate::program::Program;

pub(crate) struct Stage {
    root: PathBuf,
}

impl Stage {
    /// An empty one; what was in the directory is removed.
    pub(crate) fn new(root: PathBuf) -> Result<Self, Error> {
        if root.exists() {
            fs::remove_dir_all(&root).map_err(Error::file(&root))?;
        }
        make_directories(&root)?;
        Ok(Stage { root })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.root
    }

    /// Copies a file. Programs are stripped; manual pages and changelogs are compressed, as the policy wants it.
    pub(crate) fn add(&self, from: &Path, to: &Path, mode: u32) -> Result<(), Error> {
        let path = self.root.join(to);
        make_directories(path.parent().unwrap_or(&self.root))?;
        let [source, target] = [from, &path].map(|path| path.display().to_string());
        if to.starts_with("usr/bin") {
            Program::new("strip", &["--strip-all", "-o", &target, &source]).read()?;
        } else {
            fs::copy(from, &path).map_err(Error::file(from))?;
        }
        set_mode(&path, mode)?;
        if is_compressed(to) {
            Program::new("gzip", &["-9", "--no-name", &target]).read()?;
        }
        Ok(())
    }

    /// Writes the sums by which `dpkg --verify` finds files that somebody changed.
    pub(crate) fn add_sums(&self) -> Result<(), Error> {
        let script = "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum";
        let sums = Program::new("sh", &["-euc", script]).within(&self.root).read()?;
        self.write("DEBIAN/md5sums", &sums)
    }

    pub(crate) fn write_control(&self, text: &str) -> Result<(), Error> {
        self.write("DEBIAN/control", text)
    }

    fn write(&self, to: &str, text: &str) -> Result<(), Error> {
        let path = self.root.join(to);
        make_directories(path.parent().unwrap_or(&self.root))?;
        fs::write(&path, text).map_err(Error::file(&path))?;
        set_mode(&path, 0o644)
    }

    /// Gives everything one time, in seconds since 1970.
    pub(crate) fn set_times(&self, epoch: u64) -> Result<(), Error> {
        set_times(&self.root, UNIX_EPOCH + Duration::from_secs(epoch))
    }

    /// In bytes.
    pub(crate) fn size(&self) -> Result<u64, Error> {
        size(&self.root.join("usr"))
    }
}

fn is_compressed(to: &Path) -> bool {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    to.starts_with("usr/share/man")
        || (to.starts_with("usr/share/doc") && name.starts_with("changelog"))
}

fn size(place: &Path) -> Result<u64, Error> {
    let mut sum = 0;
    for entry in fs::read_dir(place).map_err(Error::file(place))? {
        let path = entry.map_err(Error::file(place))?.path();
        let metadata = fs::symlink_metadata(&path).map_err(Error::file(&path))?;
        sum += if metadata.is_dir() { size(&path)? } else { metadata.len() };
    }
    Ok(sum)
}

/// What is inside of a directory first: it changes the time of the directory.
fn set_times(place: &Path, time: SystemTime) -> Result<(), Error> {
    if place.is_dir() {
        for entry in fs::read_dir(place).map_err(Error::file(place))? {
            set_times(&entry.map_err(Error::file(place))?.path(), time)?;
        }
    }
    let file = fs::File::open(place).map_err(Error::file(place))?;
    file.set_modified(time).map_err(Error::file(place))
}

/// Whatever the umask is.
fn make_directories(path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_directories(parent)?;
    }
    fs::create_dir(path).map_err(Error::file(path))?;
    set_mode(path, 0o755)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(Error::file(path))
}
