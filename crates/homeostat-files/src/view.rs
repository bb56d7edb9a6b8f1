//! A view of the machine in which a set is already written: the real paths, before the files are there.
//!
//! A thread gets mounts of its own, and a root over which an overlay lies: what is written there is in memory, and gone
//! with the thread. Programs that it starts see the set as it is going to be, and leave nothing behind.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use homeostat_netns::Netns;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::chroot;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_capabilities_secure_bits, set_no_new_privs,
};

use crate::accounts::Accounts;
use crate::key::Key;
use crate::model::{DesiredState, Mode, Object};
use crate::program::{self, Ran};
use crate::programs::Privileges;
use crate::sys;

/// What is different in the view.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    pub(crate) desired: &'a DesiredState,
    /// Paths that are not there any more.
    pub(crate) removed: Vec<Key>,
    pub(crate) netns: Option<Arc<Netns>>,
    /// What the program may do there.
    pub(crate) privileges: Privileges,
}

/// The most that programs may write in a view.
const ROOM: &std::ffi::CStr = c"size=256m,mode=755";

/// File systems that are the kernel's own: they are as they are.
const KERNEL: [&str; 20] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "sysfs",
    "tracefs",
];

/// Of a program that only reads.
const READ: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;

/// Of a program that behaves as it does when it starts.
const START: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID);

impl View<'_> {
    /// Runs a program in the view, in its own time.
    pub(crate) fn run(&self, arguments: &[String]) -> io::Result<Ran> {
        // A thread whose children have processes of their own can start no other thread, so its caller waits for them.
        let running = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("view".to_owned());
            let started = thread.spawn_scoped(scope, || {
                let entered = self.enter();
                entered.map_err(|error| {
                    io::Error::new(error.kind(), format!("the view cannot be made: {error}"))
                })?;
                match self.privileges {
                    Privileges::ReadOnly => program::start_as_nobody(arguments),
                    Privileges::Start => program::start(arguments),
                }
            })?;
            started.join().unwrap_or_else(|_| Err(io::Error::other("it ended without an answer")))
        })?;
        running.finish()
    }

    /// Moves the calling thread into the view for good.
    fn enter(&self) -> io::Result<()> {
        let mounts = Mounts::read()?;
        sys::detach()?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        let base = mounts.free_directory()?;
        let written = base.join("written");
        mount("tmpfs", base, "tmpfs", MountFlags::empty(), Some(ROOM))?;
        fs::create_dir(&written)?;
        let root = base.join("root");
        fs::create_dir(&root)?;
        let mut layers = Layers { written, count: 0 };
        layers.overlay(Path::new("/"), &root)?;
        for one in mounts.0.iter().filter(|one| !one.at.starts_with(base)) {
            layers.add(one, &root);
        }
        if let Some(netns) = &self.netns {
            netns.enter().map_err(io::Error::other)?;
        }
        chroot(&root)?;
        rustix::process::chdir("/")?;
        self.write().map_err(|error| {
            io::Error::new(error.kind(), format!("the set cannot be written there: {error}"))
        })?;
        match self.privileges {
            Privileges::ReadOnly => keep_only_reading(),
            Privileges::Start => keep_only(START),
        }
    }

    /// Writes the set, at its real paths.
    fn write(&self) -> io::Result<()> {
        let accounts = Accounts::read(Path::new("/"));
        for (key, wanted) in self.desired.iter() {
            let Some(path) = key.path() else { continue };
            let path = Path::new(path.as_str());
            let is_new = fs::symlink_metadata(path).is_err();
            match (&wanted.object, &wanted.content) {
                (Object::File(_), Some(content)) => {
                    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
                        fs::remove_file(path)?;
                    }
                    fs::write(path, content.bytes())?;
                }
                (Object::Directory(_), _) if is_new => fs::create_dir(path)?,
                _ => {}
            }
            let Some(attributes) = wanted.object.attributes() else { continue };
            let owner = attributes.owner.as_ref().and_then(|owner| accounts.users.number(owner));
            let group = attributes.group.as_ref().and_then(|group| accounts.groups.number(group));
            chown(path, owner, group)?;
            let default = if wanted.object.is_secret() { Mode(0o600) } else { Mode(0o644) };
            let default = if key.is_directory() { Mode(0o755) } else { default };
            if let Some(mode) = attributes.mode.or(is_new.then_some(default)) {
                fs::set_permissions(path, Permissions::from_mode(u32::from(mode.0)))?;
            }
        }
        for key in &self.removed {
            let Some(path) = key.path() else { continue };
            let path = Path::new(path.as_str());
            // What others have put into a directory keeps it.
            let _ = if key.is_directory() { fs::remove_dir(path) } else { fs::remove_file(path) };
        }
        Ok(())
    }
}

/// Drops all other capabilities, of this thread and of all that it starts.
fn keep_only(allowed: CapabilitySet) -> io::Result<()> {
    bound(allowed);
    let kept = allowed & rustix::thread::capabilities(None)?.permitted;
    clear_ambient_capability_set()?;
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets)?;
    Ok(set_no_new_privs(true)?)
}

/// The program will be another user's, and keeps one capability all the same: the change of the user touches none, and the
/// start of the program drops all but this one, which is ambient.
fn keep_only_reading() -> io::Result<()> {
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    bound(READ);
    let held = rustix::thread::capabilities(None)?.permitted;
    let kept = (READ | CapabilitySet::SETUID | CapabilitySet::SETGID) & held;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: READ & held };
    set_capabilities(None, sets)?;
    clear_ambient_capability_set()?;
    configure_capability_in_ambient_set(READ, true)?;
    Ok(set_no_new_privs(true)?)
}

fn bound(allowed: CapabilitySet) {
    for number in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if !allowed.contains(one) {
            // The kernel knows fewer.
            let _ = remove_capability_from_bounding_set(one);
        }
    }
}

/// The overlays of a view: what is written above each file system.
struct Layers {
    /// Where that is.
    written: PathBuf,
    count: u32,
}

impl Layers {
    fn overlay(&mut self, lower: &Path, at: &Path) -> io::Result<()> {
        self.count += 1;
        let layer = self.written.join(self.count.to_string());
        let (upper, work) = (layer.join("upper"), layer.join("work"));
        for directory in [&layer, &upper, &work] {
            fs::create_dir(directory)?;
        }
        // The root of an overlay has the attributes of its upper directory.
        let about = fs::metadata(lower)?;
        chown(
            &upper,
            Some(std::os::unix::fs::MetadataExt::uid(&about)),
            Some(std::os::unix::fs::MetadataExt::gid(&about)),
        )?;
        fs::set_permissions(&upper, about.permissions())?;
        let escaped = |path: &Path| {
            path.display().to_string().replace('\\', "\\\\").replace([',', ':'], "\\,")
        };
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            escaped(lower),
            escaped(&upper),
            escaped(&work)
        );
        let options = std::ffi::CString::new(options)?;
        Ok(mount("overlay", at, "overlay", MountFlags::empty(), Some(&*options))?)
    }

    /// Adds a file system below the root. What cannot be covered is not there.
    fn add(&mut self, one: &Mount, root: &Path) {
        let Ok(below) = one.at.strip_prefix("/") else { return };
        let at = root.join(below);
        if one.at == Path::new("/") || one.is_hidden {
            return;
        }
        let is_directory = one.at.is_dir();
        let is_kernel = KERNEL.contains(&one.kind.as_str()) || one.at.starts_with("/dev");
        let _ = if is_kernel || !is_directory {
            mount_bind(&one.at, &at).map_err(io::Error::from)
        } else {
            self.overlay(&one.at, &at)
        };
    }
}

/// A mount of this machine.
struct Mount {
    at: PathBuf,
    kind: String,
    /// Whether another one lies above it.
    is_hidden: bool,
}

struct Mounts(Vec<Mount>);

impl Mounts {
    fn read() -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string("/proc/thread-self/mountinfo")?))
    }

    fn parse(text: &str) -> Self {
        let mut all: Vec<Mount> = Vec::new();
        for line in text.lines() {
            let mut fields = line.split(' ');
            let (Some(at), Some(kind)) =
                (fields.nth(4), fields.skip_while(|one| *one != "-").nth(1))
            else {
                continue;
            };
            let (at, kind) = (PathBuf::from(unescaped(at)), kind.to_owned());
            // The order is that of ids, so the root may come late.
            for below in all.iter_mut().filter(|one| one.at == at) {
                below.is_hidden = true;
            }
            all.push(Mount { at, kind, is_hidden: false });
        }
        Mounts(all)
    }

    /// An empty place to build in: a directory that every system has, and on which nothing is mounted.
    fn free_directory(&self) -> io::Result<&'static Path> {
        let candidates = ["/mnt", "/media", "/srv", "/opt", "/home"].map(Path::new);
        let is_free =
            |path: &&Path| path.is_dir() && self.0.iter().all(|one| !one.at.starts_with(path));
        candidates.into_iter().find(is_free).ok_or_else(|| {
            io::Error::other("none of /mnt, /media, /srv, /opt and /home is free to build in")
        })
    }
}

/// A path as the kernel writes it: blanks are octal numbers.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(char::from(byte));
                path.push_str(part.get(3..).unwrap_or_default());
            }
            None => path.push_str(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_as_the_kernel_writes_them() {
        let text = "22 1 0:20 / /proc rw,relatime - proc proc rw\n\
            25 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n\
            26 25 0:22 / /mnt/a\\040b rw - tmpfs tmpfs rw\n\
            27 25 0:23 / /proc rw - tmpfs tmpfs rw\n";
        let Mounts(all) = Mounts::parse(text);
        let seen: Vec<_> = all
            .iter()
            .map(|one| (one.at.to_str().unwrap(), one.kind.as_str(), one.is_hidden))
            .collect();
        let expected = [
            ("/proc", "proc", true),
            ("/", "ext4", false),
            ("/mnt/a b", "tmpfs", false),
            ("/proc", "tmpfs", false),
        ];
        assert_eq!(seen, expected);
    }
}
