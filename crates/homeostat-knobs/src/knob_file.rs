//! Finds, reads and writes one file below a root, and never leaves that root.
//!
//! Every part of a path is opened by itself, so that what is missing is known exactly. Links are followed in sysfs
//! only, where each device has several paths, and never to another file system. Nothing is ever created.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, readlinkat, statat};
use rustix::io::Errno;

/// What is at a path.
#[derive(Debug)]
pub(crate) enum Found {
    File(KnobFile),
    /// Something that cannot be a knob.
    Other(&'static str),
    Missing(Missing),
}

/// Where a path ends too early.
#[derive(Debug)]
pub(crate) struct Missing {
    /// How many parts of the path do exist.
    pub(crate) depth: usize,
    /// What is there instead of the first part that does not.
    pub(crate) siblings: Vec<String>,
}

/// A file that was found.
#[derive(Debug)]
pub(crate) struct KnobFile {
    dir: OwnedFd,
    name: String,
    mode: Mode,
}

/// Looks for the file at `path` below `root`.
pub(crate) fn find(root: impl AsFd, path: &str) -> io::Result<Found> {
    let mut dir = open_dir(root, Path::new("."), OFlags::empty())?;
    let mut parts: Vec<&str> = path.split('/').collect();
    let name = parts.pop().unwrap_or_default();
    for (depth, part) in parts.iter().enumerate() {
        dir = match open_dir(&dir, Path::new(part), OFlags::NOFOLLOW) {
            Ok(next) => next,
            Err(Errno::NOENT) => return Ok(missing(&dir, depth)),
            Err(error) => return Err(error.into()),
        };
    }
    found(dir, name, parts.len())
}

/// The same in sysfs, where directories may be links to others below the root.
pub(crate) fn find_in_sysfs(root: impl AsFd, path: &str) -> io::Result<Found> {
    let mut walk = Walk::from(open_dir(root, Path::new("."), OFlags::empty())?)?;
    let mut parts: Vec<&str> = path.split('/').collect();
    let name = parts.pop().unwrap_or_default();
    for (depth, part) in parts.iter().enumerate() {
        match walk.enter(part)? {
            Entered::Directory => {}
            Entered::Nothing => return Ok(missing(walk.here(), depth)),
            Entered::Other(what) => return Ok(Found::Other(what)),
        }
    }
    found(walk.into_here(), name, parts.len())
}

/// Where a path has led: the directories from the root on. `openat2` would do this in one call, but systemd's
/// `RestrictSUIDSGID` denies it.
struct Walk {
    root: OwnedFd,
    below: Vec<OwnedFd>,
    device: u64,
    links: u8,
}

enum Entered {
    Directory,
    Nothing,
    Other(&'static str),
}

impl Walk {
    /// As many links as the kernel follows in one path.
    const MOST_LINKS: u8 = 40;
    const OUTSIDE: Entered = Entered::Other("in another file system than sysfs");

    fn from(root: OwnedFd) -> io::Result<Self> {
        let device = fstat(&root)?.st_dev;
        Ok(Walk { root, below: Vec::new(), device, links: 0 })
    }

    fn here(&self) -> &OwnedFd {
        self.below.last().unwrap_or(&self.root)
    }

    fn into_here(mut self) -> OwnedFd {
        self.below.pop().unwrap_or(self.root)
    }

    fn enter(&mut self, part: &str) -> io::Result<Entered> {
        match open_dir(self.here(), Path::new(part), OFlags::NOFOLLOW) {
            // Another mount is cgroupfs, debugfs or tracefs.
            Ok(next) if fstat(&next)?.st_dev != self.device => Ok(Walk::OUTSIDE),
            Ok(next) => {
                self.below.push(next);
                Ok(Entered::Directory)
            }
            Err(Errno::NOENT) => Ok(Entered::Nothing),
            Err(Errno::NOTDIR | Errno::LOOP) => self.follow(part),
            Err(error) => Err(error.into()),
        }
    }

    /// Enters what a link points at. Links of sysfs are relative.
    fn follow(&mut self, part: &str) -> io::Result<Entered> {
        let target = match readlinkat(self.here(), part, Vec::new()) {
            Ok(target) => target,
            Err(Errno::INVAL) => return Ok(Entered::Other("below a file")),
            Err(error) => return Err(error.into()),
        };
        self.links += 1;
        if self.links > Walk::MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        let Ok(target) = target.to_str() else { return Ok(Walk::OUTSIDE) };
        if target.starts_with('/') {
            return Ok(Walk::OUTSIDE);
        }
        for part in target.split('/') {
            let entered = match part {
                ".." if self.below.pop().is_none() => Walk::OUTSIDE,
                "" | "." | ".." => Entered::Directory,
                part => self.enter(part)?,
            };
            if !matches!(entered, Entered::Directory) {
                return Ok(entered);
            }
        }
        Ok(Entered::Directory)
    }
}

/// What has this name in the directory.
fn found(dir: OwnedFd, name: &str, depth: usize) -> io::Result<Found> {
    let stat = match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(missing(&dir, depth)),
        Err(error) => return Err(error.into()),
    };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let mode = Mode::from_raw_mode(stat.st_mode);
            Found::File(KnobFile { dir, name: name.to_owned(), mode })
        }
        FileType::Directory => Found::Other("a directory"),
        FileType::Symlink => Found::Other("a symbolic link"),
        _ => Found::Other("not a regular file"),
    })
}

/// Opens the directory below which everything is.
pub(crate) fn open_root(root: &Path) -> io::Result<OwnedFd> {
    Ok(open_dir(CWD, root, OFlags::empty())?)
}

fn open_dir(dir: impl AsFd, path: &Path, extra: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | extra;
    openat(dir, path, flags, Mode::empty())
}

fn missing(dir: &OwnedFd, depth: usize) -> Found {
    // The names only help; failing to read them must not hide what is missing.
    Found::Missing(Missing { depth, siblings: names(dir).unwrap_or_default() })
}

fn names(dir: &OwnedFd) -> io::Result<Vec<String>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut names = Vec::new();
    for entry in Dir::new(openat(dir, ".", flags, Mode::empty())?)? {
        if let Ok(name) = entry?.file_name().to_str() {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

impl KnobFile {
    /// Where the file is, for a call that takes no descriptor: valid as long as this is kept.
    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}/{}", self.dir.as_raw_fd(), self.name)
    }

    /// Whether any user may read it.
    pub(crate) fn is_readable(&self) -> bool {
        self.mode.intersects(Mode::RUSR | Mode::RGRP | Mode::ROTH)
    }

    /// Whether any user may write it.
    pub(crate) fn is_writable(&self) -> bool {
        self.mode.intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH)
    }

    /// The whole text.
    pub(crate) fn read(&self) -> io::Result<String> {
        let mut text = Vec::new();
        self.open(OFlags::RDONLY)?.read_to_end(&mut text)?;
        String::from_utf8(text).map_err(|_| io::Error::other("it holds no text"))
    }

    /// Replaces the text with one write, as the kernel wants it.
    pub(crate) fn write(&self, text: &str) -> io::Result<()> {
        // The end of the line makes an empty value a write too, and is what `echo` sends.
        let line = format!("{text}\n");
        // A regular file of a test's tree is cut; the kernel ignores the flag.
        let taken = self.open(OFlags::WRONLY | OFlags::TRUNC)?.write(line.as_bytes())?;
        // Quirk `scalar-takes-the-first` (Linux 6.18): of `1 9 9` a scalar takes two bytes and says
        // so. It is not asked again for the rest; reading back shows the result.
        if taken == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(())
    }

    fn open(&self, access: OFlags) -> io::Result<File> {
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.dir, self.name.as_str(), flags, Mode::empty())?))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn find(root: &Path, path: &str) -> io::Result<Found> {
        super::find(open_root(root)?, path)
    }

    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("net/ipv4")).unwrap();
        fs::write(root.path().join("net/ipv4/ip_forward"), "0\n").unwrap();
        root
    }

    #[test]
    fn a_file_is_read_and_replaced_as_a_whole() {
        let root = tree();
        let Found::File(file) = find(root.path(), "net/ipv4/ip_forward").unwrap() else { panic!() };
        assert!(file.is_readable() && file.is_writable());
        file.write("12345").unwrap();
        file.write("1").unwrap();
        assert_eq!(file.read().unwrap(), "1\n");
    }

    #[test]
    fn what_is_missing_is_known_with_what_is_there_instead() {
        let root = tree();
        for (path, depth, siblings) in [
            ("net/ipv4/ip_forwrd", 2, vec!["ip_forward"]),
            ("net/ipv6/conf/all/forwarding", 1, vec!["ipv4"]),
            ("vm/swappiness", 0, vec!["net"]),
        ] {
            let Found::Missing(missing) = find(root.path(), path).unwrap() else {
                panic!("{path}")
            };
            assert_eq!(missing.depth, depth, "{path}");
            let names: Vec<_> =
                missing.siblings.iter().filter(|name| !name.starts_with('.')).collect();
            assert_eq!(names, siblings.iter().collect::<Vec<_>>(), "{path}");
        }
        assert!(!root.path().join("vm").exists(), "nothing is created");
    }

    #[test]
    fn links_are_not_followed_and_pipes_not_waited_for() {
        let root = tree();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("knob"), "1\n").unwrap();
        symlink(outside.path(), root.path().join("net/out")).unwrap();
        symlink(outside.path().join("knob"), root.path().join("net/knob")).unwrap();
        let pipe = root.path().join("net/pipe");
        rustix::fs::mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        let other = |path: &str| match find(root.path(), path) {
            Ok(Found::Other(what)) => what,
            found => panic!("{path}: {found:?}"),
        };
        assert!(find(root.path(), "net/out/knob").is_err());
        assert_eq!(other("net/knob"), "a symbolic link");
        assert_eq!(other("net/pipe"), "not a regular file");
        assert_eq!(other("net/ipv4"), "a directory");
    }

    #[test]
    fn links_of_sysfs_are_followed_as_far_as_its_root() {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("devices/virtual/eth0");
        fs::create_dir_all(&device).unwrap();
        fs::create_dir_all(root.path().join("class/net")).unwrap();
        fs::write(device.join("threaded"), "0\n").unwrap();
        symlink("../../devices/virtual/eth0", root.path().join("class/net/eth0")).unwrap();
        symlink("../../../", root.path().join("class/out")).unwrap();
        symlink("round", root.path().join("class/round")).unwrap();
        assert!(find_in_sysfs(open_root(root.path()).unwrap(), "class/round/x").is_err());
        let found = |path: &str| find_in_sysfs(open_root(root.path()).unwrap(), path).unwrap();
        let Found::File(file) = found("class/net/eth0/threaded") else { panic!() };
        assert_eq!(file.read().unwrap(), "0\n");
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "0\n");
        for (path, expected) in [
            ("class/out/etc", "in another file system than sysfs"),
            ("class/net/eth0", "a symbolic link"),
            ("devices/virtual", "a directory"),
            ("class/net/eth0/threaded/x", "below a file"),
        ] {
            let Found::Other(what) = found(path) else { panic!("{path}") };
            assert_eq!(what, expected, "{path}");
        }
        for (path, depth, sibling) in
            [("class/net/eth1/threaded", 2, "eth0"), ("class/net/eth0/thread", 3, "threaded")]
        {
            let Found::Missing(missing) = found(path) else { panic!("{path}") };
            assert_eq!(missing.depth, depth, "{path}");
            assert!(missing.siblings.iter().any(|name| name == sibling), "{path}");
        }
    }

    #[test]
    fn the_mode_shows_what_is_for_reading_or_writing_only() {
        let root = tree();
        let path = root.path().join("net/ipv4/ip_forward");
        for (mode, readable, writable) in [(0o200, false, true), (0o444, true, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let found = find(root.path(), "net/ipv4/ip_forward").unwrap();
            let Found::File(file) = found else { panic!() };
            assert_eq!((file.is_readable(), file.is_writable()), (readable, writable));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_an_error() {
        let root = tree();
        fs::write(root.path().join("net/ipv4/ip_forward"), b"\xff\xfe").unwrap();
        let Found::File(file) = find(root.path(), "net/ipv4/ip_forward").unwrap() else { panic!() };
        assert_eq!(file.read().unwrap_err().to_string(), "it holds no text");
    }
}
