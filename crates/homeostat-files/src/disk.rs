//! The system calls that change a disk, each one a point at which a process may die.

use std::fmt;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, Gid, Mode as Bits, OFlags, RenameFlags, Uid, XattrFlags, fchmod, fchown, fgetxattr,
    flistxattr, fsetxattr, fsync, mkdirat, openat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use crate::model::Mode;

/// Is called after each system call that changes something, with its name.
pub type Tap = Arc<dyn Fn(&'static str) + Send + Sync>;

/// What changes a disk.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub(crate) tap: Option<Tap>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}

impl Disk {
    fn call<T>(&self, name: &'static str, result: rustix::io::Result<T>) -> io::Result<T> {
        let value = result?;
        if let Some(tap) = &self.tap {
            tap(name);
        }
        Ok(value)
    }

    /// A new file that only we can read.
    pub(crate) fn create(&self, directory: impl AsFd, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        self.call("create", openat(directory, name, flags, Bits::RUSR | Bits::WUSR))
    }

    pub(crate) fn set_owner(
        &self,
        file: impl AsFd,
        owner: Option<u32>,
        group: Option<u32>,
    ) -> io::Result<()> {
        if owner.is_none() && group.is_none() {
            return Ok(());
        }
        let (owner, group) = (owner.map(Uid::from_raw), group.map(Gid::from_raw));
        self.call("chown", fchown(file, owner, group))
    }

    pub(crate) fn set_mode(&self, file: impl AsFd, mode: Mode) -> io::Result<()> {
        self.call("chmod", fchmod(file, Bits::from_raw_mode(u32::from(mode.0))))
    }

    /// Gives a file the labels, access lists and other extended attributes of another.
    pub(crate) fn copy_attributes(&self, from: impl AsFd, to: impl AsFd) -> io::Result<()> {
        for name in extended(&from)? {
            let mut value = Vec::with_capacity(MOST_OF_AN_ATTRIBUTE);
            match fgetxattr(&from, &name, rustix::buffer::spare_capacity(&mut value)) {
                // Gone meanwhile, or not ours to read.
                Err(Errno::NODATA | Errno::ACCESS) => continue,
                read => read?,
            };
            self.call("setxattr", fsetxattr(&to, &name, &value, XattrFlags::empty()))?;
        }
        Ok(())
    }

    pub(crate) fn write(&self, file: OwnedFd, content: &[u8]) -> io::Result<()> {
        let mut file = std::fs::File::from(file);
        file.write_all(content)?;
        self.call("write", Ok(()))?;
        self.sync(&file)
    }

    pub(crate) fn sync(&self, file: impl AsFd) -> io::Result<()> {
        self.call("fsync", fsync(file))
    }

    /// Exchanges two entries of a directory.
    pub(crate) fn exchange(&self, directory: impl AsFd, one: &str, two: &str) -> io::Result<()> {
        let directory = directory.as_fd();
        self.call("exchange", renameat_with(directory, one, directory, two, RenameFlags::EXCHANGE))
    }

    /// Renames, if nothing has the new name.
    pub(crate) fn rename(&self, directory: impl AsFd, from: &str, to: &str) -> io::Result<()> {
        let directory = directory.as_fd();
        self.call("rename", renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE))
    }

    /// Renames over whatever has the new name.
    pub(crate) fn replace(&self, directory: impl AsFd, from: &str, to: &str) -> io::Result<()> {
        let directory = directory.as_fd();
        self.call("replace", renameat_with(directory, from, directory, to, RenameFlags::empty()))
    }

    /// Removes an entry, if it is there.
    pub(crate) fn unlink(&self, directory: impl AsFd, name: &str) -> io::Result<()> {
        match unlinkat(directory, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            result => self.call("unlink", result),
        }
    }

    pub(crate) fn make_directory(&self, above: impl AsFd, name: &str) -> io::Result<()> {
        self.call("mkdir", mkdirat(above, name, Bits::RWXU))
    }

    pub(crate) fn remove_directory(&self, above: impl AsFd, name: &str) -> io::Result<()> {
        self.call("rmdir", unlinkat(above, name, AtFlags::REMOVEDIR))
    }
}

/// The kernel allows no more.
const MOST_OF_AN_ATTRIBUTE: usize = 64 * 1024;

fn extended(file: impl AsFd) -> io::Result<Vec<String>> {
    let mut names = Vec::with_capacity(MOST_OF_AN_ATTRIBUTE);
    match flistxattr(file, rustix::buffer::spare_capacity(&mut names)) {
        // A file system without any.
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        listed => listed?,
    };
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.filter_map(|name| String::from_utf8(name.to_vec()).ok()).collect())
}
