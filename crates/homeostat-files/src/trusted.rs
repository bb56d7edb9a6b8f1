//! Whether a program may be started: only root can put another one in its place.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use homeostat_core::{Failure, Retry};

/// Links that lead to a program, one after the other.
const MOST_LINKS: usize = 40;

const WRITABLE: &str = "others than root can write to it";

/// Refuses a program that others than root can change or replace. Links are followed, and each directory on the way counts.
pub(crate) fn check(program: &Path) -> io::Result<()> {
    let owners = Owners::read();
    let mut seen = BTreeSet::new();
    let mut at = program.to_owned();
    for _ in 0..MOST_LINKS {
        for above in at.ancestors().skip(1) {
            if seen.insert(above.to_owned()) {
                owners.check(program, above, is_open_directory)?;
            }
        }
        let Ok(target) = fs::read_link(&at) else { break };
        at = at.parent().unwrap_or(Path::new("/")).join(target);
    }
    let real = fs::canonicalize(program)?;
    for above in real.ancestors().skip(1) {
        owners.check(program, above, is_open_directory)?;
    }
    owners.check(program, &real, is_open)
}

/// The same, for who is about to write files that need the program. One that is missing is reported where it is started.
pub(crate) fn check_before(program: &str) -> Result<(), Failure> {
    match check(Path::new(program)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(Failure::new(format!("{program}: {error}"), Retry::OnChange))
        }
        _ => Ok(()),
    }
}

/// The users who may own programs: those that can do everything anyway.
struct Owners {
    ours: u32,
    /// In a user namespace, what belongs to the root outside belongs to nobody that can be named.
    unmapped: Option<u32>,
}

impl Owners {
    fn read() -> Self {
        const NOBODY: u32 = 65534;
        const ALL: [&str; 3] = ["0", "0", "4294967295"];
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let is_whole = map.split_whitespace().eq(ALL);
        let ours = rustix::process::geteuid().as_raw();
        Owners { ours, unmapped: (!is_whole).then_some(NOBODY) }
    }

    fn check(&self, program: &Path, part: &Path, is_open: fn(&Metadata) -> bool) -> io::Result<()> {
        if part.as_os_str().is_empty() {
            return Ok(());
        }
        let found = fs::metadata(part)?;
        let owner = found.uid();
        if owner != 0 && owner != self.ours && Some(owner) != self.unmapped {
            return Err(refused(program, part, &format!("it belongs to the user {owner}")));
        }
        if is_open(&found) { Err(refused(program, part, WRITABLE)) } else { Ok(()) }
    }
}

fn is_open(found: &Metadata) -> bool {
    const GROUP_WRITE: u32 = 0o020;
    const OTHERS_WRITE: u32 = 0o002;
    found.mode() & OTHERS_WRITE != 0 || found.mode() & GROUP_WRITE != 0 && found.gid() != 0
}

/// In a sticky directory of root nobody can touch what is root's.
fn is_open_directory(found: &Metadata) -> bool {
    const STICKY: u32 = 0o1000;
    is_open(found) && !(found.mode() & STICKY != 0 && found.uid() == 0)
}

fn refused(program: &Path, part: &Path, why: &str) -> io::Error {
    let part: PathBuf = part.to_owned();
    let what = if part == program { "it".to_owned() } else { part.display().to_string() };
    let error = format!(
        "it is not started, since others than root could put another program in its place: {why} ({what}): \
         `chown root:root {part}; chmod go-w {part}`",
        part = part.display()
    );
    io::Error::new(io::ErrorKind::PermissionDenied, error)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    #[test]
    fn a_program_that_others_could_replace_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        for directory in ["safe", "open"] {
            fs::create_dir(at(directory)).unwrap();
            fs::copy("/bin/true", at(directory).join("program")).unwrap();
        }
        fs::set_permissions(at("open"), Permissions::from_mode(0o777)).unwrap();
        for (name, mode, owner) in
            [("group", 0o775, 0), ("others", 0o757, 0), ("user", 0o755, 4711)]
        {
            fs::copy("/bin/true", at("safe").join(name)).unwrap();
            fs::set_permissions(at("safe").join(name), Permissions::from_mode(mode)).unwrap();
            chown(at("safe").join(name), Some(owner), Some(4711)).unwrap();
        }
        // A link in a safe place leads out of it, and one in an open place may lead anywhere tomorrow.
        symlink(at("open/program"), at("safe/leads-out")).unwrap();
        symlink(at("safe/program"), at("open/leads-in")).unwrap();
        symlink("program", at("safe/link")).unwrap();
        let said = |name: &str| check(&at(name)).err().map(|error| error.to_string());
        for name in ["safe/program", "safe/link"] {
            assert_eq!(said(name), None, "{name}");
        }
        for (name, why) in [
            ("open/program", WRITABLE),
            ("safe/group", WRITABLE),
            ("safe/others", WRITABLE),
            ("safe/user", "it belongs to the user 4711"),
            ("safe/leads-out", WRITABLE),
            ("open/leads-in", WRITABLE),
        ] {
            assert!(said(name).is_some_and(|said| said.contains(why)), "{name}: {:?}", said(name));
        }
        check(Path::new("/bin/sh")).unwrap();
        assert_eq!(check(&at("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
