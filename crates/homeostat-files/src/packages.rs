//! Which files belong to Debian packages: they are never moved away.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

use rustix::process::{Flock, FlockType, fcntl_getlk};

use crate::key::FilePath;

/// The files of packages in some directories. Without dpkg there are none.
#[derive(Debug, Default)]
pub(crate) struct Packages {
    read: Option<Signature>,
    paths: HashSet<String>,
    are_changing: bool,
}

/// What changes whenever a package is installed or removed, and for what it was read.
#[derive(Debug, PartialEq, Eq)]
struct Signature {
    directories: BTreeSet<String>,
    changed: [Option<SystemTime>; 2],
}

/// Lists of the files of packages, a file each.
const LISTS: &str = "var/lib/dpkg/info";
/// Configuration that packages make by a script (ucf).
const BY_SCRIPTS: &str = "var/lib/ucf/registry";
/// Is locked as long as dpkg works.
const LOCK: &str = "var/lib/dpkg/lock";

impl Packages {
    /// Reads them again, if a package has changed.
    pub(crate) fn read<'a>(
        &mut self,
        root: &Path,
        directories: impl Iterator<Item = &'a FilePath>,
    ) {
        // A file that dpkg makes while its lists are read is not in them.
        self.are_changing = is_locked(&root.join(LOCK));
        let changed = [LISTS, BY_SCRIPTS]
            .map(|path| fs::metadata(root.join(path)).and_then(|about| about.modified()).ok());
        let directories = directories.map(|path| merged(path.as_str())).collect();
        let signature = Signature { directories, changed };
        if self.read.as_ref() == Some(&signature) {
            return;
        }
        self.paths.clear();
        let mut add = |path: &str| {
            let path = merged(path);
            let above = path.rsplit_once('/').map(|(above, _)| above).unwrap_or_default();
            if signature.directories.contains(above) {
                self.paths.insert(path);
            }
        };
        for entry in fs::read_dir(root.join(LISTS)).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|end| end == "list") {
                let list = fs::read(entry.path()).unwrap_or_default();
                String::from_utf8_lossy(&list).lines().for_each(&mut add);
            }
        }
        let registry = fs::read_to_string(root.join(BY_SCRIPTS)).unwrap_or_default();
        registry.lines().filter_map(|line| line.split_once(char::is_whitespace)).for_each(
            |(_, path)| {
                add(path.trim());
            },
        );
        self.read = Some(signature);
    }

    pub(crate) fn have(&self, file: &FilePath) -> bool {
        self.paths.contains(&merged(file.as_str()))
    }

    /// Whether dpkg is at work: it makes files before they are on a list.
    pub(crate) fn are_changing(&self) -> bool {
        self.are_changing
    }
}

/// Lists may name `/lib/a` what is `/usr/lib/a`.
fn merged(path: &str) -> String {
    const MOVED: [&str; 4] = ["/bin/", "/sbin/", "/lib/", "/lib64/"];
    let is_moved = MOVED.iter().any(|start| path.starts_with(start));
    if is_moved { format!("/usr{path}") } else { path.to_owned() }
}

fn is_locked(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let wanted = Flock::from(FlockType::WriteLock);
    fcntl_getlk(&file, &wanted).is_ok_and(|holder| holder.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_packages_are_known_by_their_lists() {
        let root = tempfile::tempdir().unwrap();
        let lists = root.path().join(LISTS);
        fs::create_dir_all(&lists).unwrap();
        fs::create_dir_all(root.path().join("var/lib/ucf")).unwrap();
        fs::write(lists.join("a.list"), "/.\n/etc\n/etc/conf.d\n/etc/conf.d/a\n/lib/x/b\n")
            .unwrap();
        fs::write(lists.join("a.md5sums"), "/etc/conf.d/no\n").unwrap();
        fs::write(root.path().join(BY_SCRIPTS), "pkg\t/etc/conf.d/script\n").unwrap();
        let directories = ["/etc/conf.d", "/usr/lib/x"].map(|path| path.parse().unwrap());
        let mut packages = Packages::default();
        packages.read(root.path(), directories.iter());
        for (path, expected) in [
            ("/etc/conf.d/a", true),
            ("/etc/conf.d/script", true),
            ("/usr/lib/x/b", true),
            ("/etc/conf.d/no", false),
            ("/etc/conf.d/b", false),
        ] {
            assert_eq!(packages.have(&path.parse().unwrap()), expected, "{path}");
        }
        assert!(!packages.are_changing());
    }
}
