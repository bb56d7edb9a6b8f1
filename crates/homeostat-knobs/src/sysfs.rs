//! What the files of sysfs mean, which of them are no settings, and which sysfs a knob of a link is in.
//!
//! `/sys/class/net` shows the links of the namespace in which `/sys` was mounted, whatever namespace a thread is in. So
//! files of links are opened in a sysfs of the namespace that is mounted nowhere (`fsmount`): no other process sees it.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::key::{Key, SysfsPath};
use crate::knob_file::{Found, find, find_in_sysfs, open_root};
use crate::normalize::Form;

/// Where sysfs is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sysfs {
    /// `/sys`, and for links one of the namespace.
    OfTheSystem(OwnSysfs),
    /// A directory with all of it.
    Directory(PathBuf),
}

/// The sysfs of a namespace, mounted nowhere; made when it is needed first.
#[derive(Clone, Debug, Default)]
pub struct OwnSysfs(Arc<OnceLock<OwnedFd>>);

/// Any two show the same, if their namespaces are the same.
impl PartialEq for OwnSysfs {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for OwnSysfs {}

/// Below what a knob is looked for.
#[derive(Debug)]
pub(crate) enum Root<'a> {
    Directory(&'a Path),
    Sysfs(&'a Path),
    OwnSysfs(&'a OwnSysfs),
}

impl Sysfs {
    pub(crate) fn root(&self, key: &Key) -> Root<'_> {
        match self {
            Sysfs::Directory(path) => Root::Sysfs(path),
            Sysfs::OfTheSystem(own) if !key.is_host_wide() => Root::OwnSysfs(own),
            Sysfs::OfTheSystem(_) => Root::Sysfs(Path::new("/sys")),
        }
    }
}

impl<'a> Root<'a> {
    /// The directory, where it is one.
    pub(crate) fn directory(&self) -> Option<&'a Path> {
        match self {
            Root::Directory(path) | Root::Sysfs(path) => Some(path),
            Root::OwnSysfs(_) => None,
        }
    }

    /// Looks for the file of a knob. The calling thread is in the namespace that is meant.
    pub(crate) fn find(&self, key: &Key) -> io::Result<Found> {
        match self {
            Root::Directory(path) => find(open_root(path)?, &key.path()),
            Root::Sysfs(path) => find_in_sysfs(open_root(path)?, &key.path()),
            Root::OwnSysfs(own) => find_in_sysfs(own.open()?, &key.path()),
        }
    }
}

impl OwnSysfs {
    fn open(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(root) = self.0.get() {
            return Ok(root.as_fd());
        }
        let root = mount_nowhere().map_err(|error| {
            let why = "the sysfs of this namespace cannot be opened, which needs CAP_SYS_ADMIN";
            io::Error::new(error.kind(), format!("{why}: {error}"))
        })?;
        Ok(self.0.get_or_init(|| root).as_fd())
    }
}

/// A sysfs of the calling thread's network namespace.
fn mount_nowhere() -> io::Result<OwnedFd> {
    let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// The form of a file.
pub(crate) fn form(path: &SysfsPath) -> Form {
    match path.name() {
        "rps_cpus" | "xps_cpus" | "xps_rxqs" | "cpumask" => Form::Mask,
        _ if path.as_str().starts_with("module/") => Form::Parameter,
        _ => Form::Choice,
    }
}

/// Whether writing the file does something instead of setting something.
pub(crate) fn is_command(path: &SysfsPath) -> bool {
    let whole = path.as_str();
    let of_power = whole.strip_prefix("power/").is_some_and(|name| {
        matches!(name, "state" | "resume" | "wakeup_count" | "wake_lock" | "wake_unlock")
    });
    let by_name = matches!(
        path.name(),
        "uevent"
            | "bind"
            | "unbind"
            | "new_id"
            | "remove_id"
            | "rescan"
            | "remove"
            | "reset"
            | "delete"
            | "drivers_probe"
            | "compact"
            | "flush"
    );
    of_power || by_name
}

/// What `[links]` keeps: the part of the document that says so, for a file of a link.
pub(crate) fn kept_by_links(path: &SysfsPath) -> Option<&'static str> {
    if path.as_str() == "class/net/bonding_masters" {
        return Some("declare a link of kind `bond`");
    }
    let (_, rest) = path.link_and_rest()?;
    let of_kind = ["bridge/", "brport/", "bonding/", "bonding_slave/"];
    if of_kind.iter().any(|directory| rest.starts_with(directory)) {
        return Some("declare it as an option of the link");
    }
    matches!(rest, "mtu" | "address" | "flags" | "ifalias" | "tx_queue_len" | "netdev_group")
        .then_some("declare it as an option of the link, in `[links]`")
}

/// The one in brackets, of several words: `madvise` of `always [madvise] never`.
pub(crate) fn chosen(text: &str) -> Option<&str> {
    let mut words = text.split_whitespace().filter_map(|word| {
        word.strip_prefix('[')?.strip_suffix(']').filter(|word| !word.is_empty())
    });
    words.next().filter(|_| words.next().is_none())
}

/// What a file that shows its choices offers.
pub(crate) fn choices(text: &str) -> Option<Vec<&str>> {
    chosen(text)?;
    Some(text.split_whitespace().map(|word| word.trim_matches(['[', ']'])).collect())
}

/// The normal form of a mask of bits, in hexadecimal: without commas and zeros in front.
pub(crate) fn mask(text: &str) -> Option<String> {
    let digits: String = text.trim().split(',').collect();
    let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| {
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() { "0".to_owned() } else { digits.to_ascii_lowercase() }
    })
}

/// A parameter of a module that is a switch: `Y` and `N` stand for 1 and 0.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "y" | "Y" => Some(true),
        "0" | "n" | "N" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> SysfsPath {
        let Ok(Key::Sysfs(path)) = Key::sysfs(text) else { panic!("{text}") };
        path
    }

    #[test]
    fn the_value_of_a_choice_is_the_word_in_brackets() {
        for (text, expected) in [
            ("always [madvise] never\n", Some("madvise")),
            ("[none] mq-deadline kyber bfq\n", Some("none")),
            ("[none]", Some("none")),
            ("none", None),
            ("[a] [b]", None),
            ("[] a", None),
            ("", None),
        ] {
            assert_eq!(chosen(text), expected, "{text:?}");
        }
        let offered = choices("always [madvise] never\n").unwrap();
        assert_eq!(offered, ["always", "madvise", "never"]);
    }

    #[test]
    fn masks_are_the_same_in_every_spelling() {
        for (text, expected) in [
            ("00000000,00000003\n", Some("3")),
            ("F", Some("f")),
            ("0", Some("0")),
            ("1,00000000", Some("100000000")),
            ("0-3", None),
            ("", None),
        ] {
            assert_eq!(mask(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn commands_and_options_of_links_are_no_settings() {
        for text in ["power/state", "devices/pci0000:00/uevent", "bus/pci/rescan"] {
            assert!(is_command(&path(text)), "{text}");
        }
        for text in ["power/mem_sleep", "kernel/mm/ksm/run", "block/sda/queue/scheduler"] {
            assert!(!is_command(&path(text)), "{text}");
        }
        for (text, expected) in [
            ("class/net/eth0/mtu", true),
            ("class/net/br0/bridge/stp_state", true),
            ("class/net/bonding_masters", true),
            ("class/net/eth0/threaded", false),
            ("class/net/eth0/queues/rx-0/rps_cpus", false),
            ("block/sda/queue/scheduler", false),
        ] {
            assert_eq!(kept_by_links(&path(text)).is_some(), expected, "{text}");
        }
    }
}
