//! Finds the directory of a path without following links, and refuses one that others could change under us.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use homeostat_core::{Failure, Retry};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::key::FilePath;

/// Why a path cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Obstacle {
    #[error("the directory {0} is missing")]
    Missing(String),
    #[error("{0} is a symbolic link")]
    Symlink(String),
    #[error("{0} is not a directory")]
    NotADirectory(String),
    #[error("others than root can write to the directory {0}")]
    Exposed(String),
    #[error("{path} cannot be opened: {error}")]
    Failed { path: String, error: String },
}

impl Obstacle {
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Obstacle::Missing(path) => Some(format!(
                "declare it in `directories` of the set, or let the package that it belongs to make it: {path}"
            )),
            Obstacle::Symlink(_) => {
                Some("write the path to which the link leads: links are not followed".to_owned())
            }
            Obstacle::NotADirectory(_) | Obstacle::Failed { .. } => None,
            Obstacle::Exposed(path) => Some(format!(
                "others who can write there could put another file in place of this one: `chmod go-w {path}`, \
                 owned by root or by the \
                 user that the file belongs to (`owner`)"
            )),
        }
    }

    pub(crate) fn failure(&self) -> Failure {
        let retry = match self {
            Obstacle::Failed { .. } => Retry::Soon,
            _ => Retry::OnChange,
        };
        Failure::new(self.to_string(), retry).with_known_help(self.help())
    }
}

/// The directory below which all paths are.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    directory: Arc<OwnedFd>,
    /// Directories that were opened, or why not, by path. For one look or one write.
    known: HashMap<String, Result<Opened, Obstacle>>,
    /// Users that what is on a path belongs to: they may have the directories above it, too.
    owners: HashMap<String, u32>,
}

#[derive(Clone, Debug)]
struct Opened {
    directory: Arc<OwnedFd>,
    /// Users other than root that this directory, or one above it, belongs to.
    owners: BTreeSet<u32>,
}

impl Root {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = Arc::new(rustix::fs::open(path, flags, Mode::empty())?);
        let (known, owners) = (HashMap::new(), HashMap::new());
        Ok(Root { path: path.to_owned(), directory, known, owners })
    }

    /// Where a path of a set is on this machine, for people and for other programs.
    pub(crate) fn display(&self, path: &str) -> String {
        let below = Path::new(path).strip_prefix("/").unwrap_or(Path::new(path));
        self.path.join(below).display().to_string()
    }

    /// What is on a path belongs to this user. So may the directories above it: he could change it anyway.
    pub(crate) fn let_own(&mut self, path: &FilePath, user: u32) {
        self.owners.insert(path.as_str().to_owned(), user);
    }

    /// The directory that holds a path.
    pub(crate) fn parent(&mut self, path: &FilePath) -> Result<Arc<OwnedFd>, Obstacle> {
        self.open_for(path, path.split().0)
    }

    /// The directory on a path.
    pub(crate) fn directory(&mut self, path: &FilePath) -> Result<Arc<OwnedFd>, Obstacle> {
        self.open_for(path, path.as_str())
    }

    fn open_for(&mut self, path: &FilePath, directory: &str) -> Result<Arc<OwnedFd>, Obstacle> {
        let Opened { directory: opened, owners } = self.walk(directory)?;
        let owner = self.owners.get(path.as_str());
        if owners.iter().any(|other| Some(other) != owner) {
            return Err(Obstacle::Exposed(self.display(directory)));
        }
        Ok(opened)
    }

    /// Forgets what was opened at a path, since it was just made or removed.
    pub(crate) fn forget(&mut self, path: &FilePath) {
        self.known.remove(path.as_str());
    }

    /// Opens a directory, each part of its path in turn.
    fn walk(&mut self, path: &str) -> Result<Opened, Obstacle> {
        if path == "/" {
            let directory = Arc::clone(&self.directory);
            return Ok(Opened { directory, owners: BTreeSet::new() });
        }
        if let Some(known) = self.known.get(path) {
            return known.clone();
        }
        let at = path.rfind('/').unwrap_or_default();
        let (above, name) = (if at == 0 { "/" } else { &path[..at] }, &path[at + 1..]);
        let opened = self.walk(above).and_then(|Opened { directory, mut owners }| {
            let opened = open_directory(&directory, name);
            let opened = opened.map_err(|errno| self.obstacle(path, errno))?;
            let stat = fstat(&opened).map_err(|errno| self.obstacle(path, errno))?;
            if is_exposed(&stat) {
                return Err(Obstacle::Exposed(self.display(path)));
            }
            if stat.st_uid != 0 && stat.st_uid != geteuid().as_raw() {
                owners.insert(stat.st_uid);
            }
            Ok(Opened { directory: Arc::new(opened), owners })
        });
        self.known.insert(path.to_owned(), opened.clone());
        opened
    }

    fn obstacle(&self, path: &str, errno: Errno) -> Obstacle {
        let path = self.display(path);
        match errno {
            Errno::NOENT => Obstacle::Missing(path),
            Errno::LOOP => Obstacle::Symlink(path),
            Errno::NOTDIR => Obstacle::NotADirectory(path),
            errno => Obstacle::Failed { path, error: io::Error::from(errno).to_string() },
        }
    }
}

/// Nothing but the entry itself is opened: no link is followed, no other name is entered.
const STRICT: ResolveFlags =
    ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::BENEATH);

pub(crate) fn open_directory(above: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(above, name, flags, Mode::empty(), STRICT)
}

/// Opens a file for reading.
pub(crate) fn open_file(directory: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    // A pipe would wait for its other end.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat2(directory, name, flags, Mode::empty(), STRICT)
}

/// Whether others than its owner could replace entries of a directory. In a sticky directory of root nobody can touch
/// what is root's.
fn is_exposed(stat: &Stat) -> bool {
    const GROUP_WRITE: u32 = 0o020;
    const OTHERS_WRITE: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let is_open =
        stat.st_mode & OTHERS_WRITE != 0 || stat.st_mode & GROUP_WRITE != 0 && stat.st_gid != 0;
    let is_sticky = stat.st_mode & STICKY != 0 && stat.st_uid == 0;
    is_open && !is_sticky
}

pub(crate) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn obstacle(root: &Path, path: &str) -> Option<Obstacle> {
        Root::open(root).unwrap().parent(&path.parse().unwrap()).err()
    }

    #[test]
    fn a_path_is_found_without_links_and_where_only_root_writes() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        let at = |name: &str| root.join(name).display().to_string();
        for (name, mode) in [("safe", 0o755), ("open", 0o777), ("sticky", 0o1777)] {
            fs::create_dir(root.join(name)).unwrap();
            fs::set_permissions(root.join(name), Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(root.join("sticky/mine")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        symlink("safe", root.join("link")).unwrap();
        assert_eq!(obstacle(root, "/safe/a"), None);
        assert_eq!(obstacle(root, "/a"), None);
        assert_eq!(obstacle(root, "/sticky/mine/a"), None);
        assert_eq!(obstacle(root, "/gone/a"), Some(Obstacle::Missing(at("gone"))));
        assert_eq!(obstacle(root, "/link/a"), Some(Obstacle::Symlink(at("link"))));
        assert_eq!(obstacle(root, "/file/a"), Some(Obstacle::NotADirectory(at("file"))));
        assert_eq!(obstacle(root, "/open/a"), Some(Obstacle::Exposed(at("open"))));
    }

    #[test]
    fn whoever_a_file_belongs_to_may_have_its_directory() {
        const USER: u32 = 4711;
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("theirs/below")).unwrap();
        std::os::unix::fs::chown(temp.path().join("theirs"), Some(USER), None).unwrap();
        let at = |name: &str| temp.path().join(name).display().to_string();
        let path = "/theirs/below/a".parse().unwrap();
        for (owner, expected) in [
            (Some(USER), None),
            (Some(USER + 1), Some(Obstacle::Exposed(at("theirs/below")))),
            (None, Some(Obstacle::Exposed(at("theirs/below")))),
        ] {
            let mut root = Root::open(temp.path()).unwrap();
            if let Some(owner) = owner {
                root.let_own(&path, owner);
            }
            assert_eq!(root.parent(&path).err(), expected, "{owner:?}");
        }
    }
}
