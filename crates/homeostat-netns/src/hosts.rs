//! A thread whose programs find no host by its name: not in a file, not through any local service.
//!
//! An empty network namespace alone does not do it: `/etc/hosts`, and services behind a socket of the file
//! system, answer there too. Users, groups, services and protocols are found as ever.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};

use crate::sys::{self, Detach};

const HOSTS: &str = "/etc/hosts";
const SWITCH: &str = "/etc/nsswitch.conf";
/// It is asked for hosts before anything else is. Without it, programs look for the rest by themselves.
const CACHE: &str = "/run/nscd/socket";
/// A directory that is everywhere, to make files in: it is covered only while they are made.
const STAGE: &str = "/proc";

/// Forgets all hosts on the calling thread, for good: for threads that end with the program that they start.
///
/// The thread gets a view of the file system of its own, which needs `SYS_ADMIN`. Where it fails, names are
/// found as before.
pub fn forget_hosts() -> io::Result<()> {
    let switch = fs::read_to_string(SWITCH).map(|text| without_hosts(&text));
    sys::detach(Detach::Mounts)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("homeostat", STAGE, "tmpfs", flags, None)?;
    let covered = cover("hosts", "", HOSTS).and_then(|()| match &switch {
        Ok(switch) => cover("switch", switch, SWITCH),
        // Then it is as if it had named files, and servers that cannot be reached.
        Err(_) => Ok(()),
    });
    // What was bound stays.
    unmount(STAGE, UnmountFlags::DETACH)?;
    covered?;
    if Path::new(CACHE).exists() {
        mount_bind("/dev/null", CACHE)?;
    }
    Ok(())
}

/// Puts a text in the place of a file, if that is there.
fn cover(name: &str, text: &str, file: &str) -> io::Result<()> {
    if !Path::new(file).exists() {
        return Ok(());
    }
    let staged = Path::new(STAGE).join(name);
    fs::write(&staged, text)?;
    Ok(mount_bind(&staged, file)?)
}

/// The same switch, with nothing but the (empty) file for hosts.
fn without_hosts(switch: &str) -> String {
    let is_about_hosts =
        |line: &&str| line.split(':').next().is_some_and(|it| it.trim() == "hosts");
    let others = switch.lines().filter(|line| !is_about_hosts(line));
    others.chain(["hosts: files"]).flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_are_looked_up_in_another_way() {
        let switch =
            "passwd: files sss\n hosts : files resolve [!UNAVAIL=return] dns\nservices: db\n";
        assert_eq!(without_hosts(switch), "passwd: files sss\nservices: db\nhosts: files\n");
    }
}
