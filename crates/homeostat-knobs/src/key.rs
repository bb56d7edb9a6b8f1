//! The identity of a knob: which file it is, and how that is written on one line.
//!
//! A key never leaves its root: empty parts, `.`, `..` and control characters are refused when it
//! is made. Start at [`Key::sysctl`].

use std::fmt;
use std::str::FromStr;

/// One knob.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Sysctl(SysctlPath),
    /// A file of a control group.
    Cgroup(CgroupFile),
    /// A file of sysfs.
    Sysfs(SysfsPath),
}

/// The path of a kernel parameter below `/proc/sys`, such as `net/ipv4/ip_forward`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SysctlPath(String);

/// A file of a control group: the group below the root of the hierarchy, and the file's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupFile {
    group: String,
    file: String,
}

/// The path of a file below `/sys`, such as `kernel/mm/transparent_hugepage/enabled`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SysfsPath(String);

/// Why a text is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Nothing, or nothing between two separators, or a separator at an end.
    #[error("the key `{0}` has an empty part")]
    EmptyPart(String),
    /// A part that would leave the directory.
    #[error("the key `{0}` leaves its directory")]
    Traversal(String),
    /// A NUL byte, a newline, another control character or a blank.
    #[error("the key `{0}` has a blank or a control character in it")]
    Control(String),
    /// One part only: that is a directory, never a knob.
    #[error("the key `{0}` names a directory, not a knob")]
    NoSeparator(String),
    /// A link's knob that is not `FAMILY/KNOB`.
    #[error("the key `{0}` is not a knob of a link")]
    NotOfLink(String),
    /// A name that no link has.
    #[error("`{0}` is not the name of a link")]
    NotALink(String),
    /// A name that no file of a control group has.
    #[error("`{0}` is not a file of a control group")]
    NotAFile(String),
    /// A path that begins with `/` or with `/sys`.
    #[error("the key `{0}` is not a path below /sys")]
    NotBelowSysfs(String),
    /// A line that begins with neither `sysctl` nor `cgroup` nor `sysfs`.
    #[error("`{0}` is not the key of a knob")]
    NoKind(String),
}

impl KeyError {
    /// The way out, where there is one.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        Some(match self {
            KeyError::EmptyPart(_) => {
                "no separator at the beginning, at the end, or twice in a row"
            }
            KeyError::NoSeparator(_) => "write the whole key, such as \"net.ipv4.ip_forward\"",
            KeyError::NotOfLink(_) => "write ipv4, ipv6 or mpls, then the knob: \"ipv4/rp_filter\"",
            KeyError::NotAFile(_) => "write the name of a file, such as `memory.max`",
            KeyError::NoKind(_) => {
                "write `sysctl net.ipv4.ip_forward` or `cgroup machine/web memory.max`"
            }
            KeyError::NotBelowSysfs(_) => {
                "leave `/sys/` out: \"kernel/mm/transparent_hugepage/enabled\""
            }
            KeyError::Traversal(_) => "parts of a key cannot be `.` or `..`",
            KeyError::Control(_) => "a key is one line of plain text",
            KeyError::NotALink(_) => return None,
        })
    }
}

/// The longest name of a link, in bytes.
const LINK_NAME_MAX: usize = 15;

impl Key {
    /// A kernel parameter. The first separator decides: if it is `/`, the text is the path itself;
    /// if it is `.`, dots separate and slashes stand for dots. All that stands between `conf` or `neigh` and the knob is
    /// the name of a link, which may have dots itself.
    ///
    /// ```
    /// use homeostat_knobs::Key;
    /// let key = Key::sysctl("net.ipv4.conf.enp3s0/200.forwarding")?;
    /// assert_eq!(key, Key::sysctl("net/ipv4/conf/enp3s0.200/forwarding")?);
    /// assert_eq!(key, Key::sysctl("net.ipv4.conf.enp3s0.200.forwarding")?);
    /// # Ok::<(), homeostat_knobs::KeyError>(())
    /// ```
    pub fn sysctl(text: &str) -> Result<Self, KeyError> {
        Ok(Key::Sysctl(SysctlPath(split(text)?.join("/"))))
    }

    /// A parameter of one link: `ipv4/rp_filter` of `eth0` is `net/ipv4/conf/eth0/rp_filter`, and
    /// `ipv4/neigh/gc_stale_time` is `net/ipv4/neigh/eth0/gc_stale_time`.
    pub fn link_sysctl(link: &str, text: &str) -> Result<Self, KeyError> {
        if !is_link_name(link) {
            return Err(KeyError::NotALink(link.to_owned()));
        }
        let parts = split(text).map_err(|error| match error {
            KeyError::NoSeparator(text) => KeyError::NotOfLink(text),
            other => other,
        })?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let path = match parts.as_slice() {
            [family @ ("ipv4" | "ipv6"), group @ ("conf" | "neigh"), knob] => {
                ["net", family, group, link, knob]
            }
            [family @ ("ipv4" | "ipv6" | "mpls"), knob] => ["net", family, "conf", link, knob],
            _ => return Err(KeyError::NotOfLink(text.to_owned())),
        };
        Ok(Key::Sysctl(SysctlPath(path.join("/"))))
    }

    /// A file of a control group that exists, such as `memory.max` of `machine/web`.
    pub fn cgroup(group: &str, file: &str) -> Result<Self, KeyError> {
        let parts: Vec<&str> = group.split('/').collect();
        check_parts(group, &parts)?;
        if file.contains(char::is_whitespace) || file.contains(char::is_control) {
            return Err(KeyError::Control(file.to_owned()));
        }
        let is_name = file.contains('.') && file.split('.').all(|part| !part.is_empty());
        if !is_name || file.contains('/') {
            return Err(KeyError::NotAFile(file.to_owned()));
        }
        Ok(Key::Cgroup(CgroupFile { group: group.to_owned(), file: file.to_owned() }))
    }

    /// A file of sysfs, by its path below `/sys`. Names there have dots and colons in them: only slashes separate.
    ///
    /// ```
    /// use homeostat_knobs::Key;
    /// let key = Key::sysfs("kernel/mm/transparent_hugepage/enabled")?;
    /// assert_eq!(key.to_string(), "sysfs kernel/mm/transparent_hugepage/enabled");
    /// # Ok::<(), homeostat_knobs::KeyError>(())
    /// ```
    pub fn sysfs(text: &str) -> Result<Self, KeyError> {
        if text.starts_with('/') || text.starts_with("sys/") {
            return Err(KeyError::NotBelowSysfs(text.to_owned()));
        }
        let parts: Vec<&str> = text.split('/').collect();
        check_parts(text, &parts)?;
        if text.contains(char::is_whitespace) {
            return Err(KeyError::Control(text.to_owned()));
        }
        if parts.len() < 2 {
            return Err(KeyError::NoSeparator(text.to_owned()));
        }
        Ok(Key::Sysfs(SysfsPath(text.to_owned())))
    }

    /// Whether the knob belongs to the whole host, so that a network namespace has no own one.
    #[must_use]
    pub fn is_host_wide(&self) -> bool {
        match self {
            Key::Sysctl(path) => !path.0.starts_with("net/"),
            Key::Cgroup(_) => true,
            Key::Sysfs(path) => path.link_and_rest().is_none(),
        }
    }

    /// The link without which the knob does not exist.
    #[must_use]
    pub fn link(&self) -> Option<&str> {
        match self {
            Key::Sysctl(path) => {
                let (link, _) = path.link_and_name()?;
                (!matches!(link, "all" | "default")).then_some(link)
            }
            Key::Cgroup(_) => None,
            Key::Sysfs(path) => path.link_and_rest().map(|(link, _)| link),
        }
    }

    /// How many parts of the path stand before the name of the link.
    pub(crate) fn link_depth(&self) -> usize {
        match self {
            Key::Sysctl(_) | Key::Cgroup(_) => 3,
            Key::Sysfs(_) => 2,
        }
    }

    /// The same knob of another link.
    pub(crate) fn of_link(&self, name: &str) -> Option<Self> {
        let Key::Sysctl(SysctlPath(path)) = self else { return None };
        let mut parts: Vec<&str> = path.split('/').collect();
        *parts.get_mut(3)? = name;
        Some(Key::Sysctl(SysctlPath(parts.join("/"))))
    }

    /// The path of the file below the root of its kind.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Key::Sysctl(path) => path.0.clone(),
            Key::Cgroup(CgroupFile { group, file }) => format!("{group}/{file}"),
            Key::Sysfs(path) => path.0.clone(),
        }
    }
}

impl SysctlPath {
    /// The whole path, with slashes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The second part: `ipv4` of `net/ipv4/ip_forward`.
    pub(crate) fn family(&self) -> Option<&str> {
        self.0.split('/').nth(1)
    }

    /// `("eth0", "rp_filter")` of `net/ipv4/conf/eth0/rp_filter`; the link may be `all` or `default`.
    pub(crate) fn link_and_name(&self) -> Option<(&str, &str)> {
        let mut parts = self.0.split('/');
        let (net, _family, group) = (parts.next()?, parts.next()?, parts.next()?);
        let link_and_name = (parts.next()?, parts.next()?);
        (net == "net" && matches!(group, "conf" | "neigh")).then_some(link_and_name)
    }

    /// The last part.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

impl SysfsPath {
    /// The whole path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `("eth0", "queues/rx-0/rps_cpus")` of `class/net/eth0/queues/rx-0/rps_cpus`.
    pub(crate) fn link_and_rest(&self) -> Option<(&str, &str)> {
        self.0.strip_prefix("class/net/")?.split_once('/')
    }

    /// The last part.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

impl CgroupFile {
    /// The group below the root of the hierarchy.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The name of the file in the group.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }
}

fn split(text: &str) -> Result<Vec<String>, KeyError> {
    let parts: Vec<String> = match text.find(['.', '/']) {
        None if text.is_empty() => return Err(KeyError::EmptyPart(String::new())),
        None => return Err(KeyError::NoSeparator(text.to_owned())),
        Some(at) if text[at..].starts_with('/') => text.split('/').map(str::to_owned).collect(),
        Some(_) => {
            let parts: Vec<_> = text.split('.').map(|part| part.replace('/', ".")).collect();
            with_whole_link(parts)
        }
    };
    if text.contains(char::is_whitespace) {
        return Err(KeyError::Control(text.to_owned()));
    }
    check_parts(text, &parts).map(|()| parts)
}

/// `net/FAMILY/conf/LINK/KNOB` with a link that was cut at the dots of its name.
fn with_whole_link(mut parts: Vec<String>) -> Vec<String> {
    let words: Vec<&str> = parts.iter().map(String::as_str).collect();
    if let ["net", "ipv4" | "ipv6" | "mpls", "conf" | "neigh", link @ .., _] = words.as_slice()
        && link.len() > 1
    {
        let (count, link) = (link.len(), link.join("."));
        parts.splice(3..3 + count, [link]);
    }
    parts
}

pub(crate) fn check_parts(text: &str, parts: &[impl AsRef<str>]) -> Result<(), KeyError> {
    if text.contains(char::is_control) {
        return Err(KeyError::Control(text.to_owned()));
    }
    if parts.iter().any(|part| part.as_ref().is_empty()) {
        return Err(KeyError::EmptyPart(text.to_owned()));
    }
    if parts.iter().any(|part| matches!(part.as_ref(), "." | "..")) {
        return Err(KeyError::Traversal(text.to_owned()));
    }
    Ok(())
}

/// As the kernel judges names of links; `all` and `default` are directories of the kernel's own.
fn is_link_name(name: &str) -> bool {
    let reserved = matches!(name, "" | "." | ".." | "all" | "default");
    let odd = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    !reserved && name.len() <= LINK_NAME_MAX && !name.contains(odd)
}

impl fmt::Display for SysctlPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The dotted form is what people type, but it cannot hold a name with a dot in it.
        if self.0.contains('.') {
            return f.write_str(&self.0);
        }
        f.write_str(&self.0.replace('/', "."))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Sysctl(path) => write!(f, "sysctl {path}"),
            Key::Cgroup(CgroupFile { group, file }) => write!(f, "cgroup {group} {file}"),
            Key::Sysfs(path) => write!(f, "sysfs {}", path.0),
        }
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(line: &str) -> Result<Self, KeyError> {
        match line.split_once(' ') {
            Some(("sysctl", text)) => Key::sysctl(text),
            Some(("cgroup", rest)) if let Some((group, file)) = rest.rsplit_once(' ') => {
                Key::cgroup(group, file)
            }
            Some(("sysfs", path)) => Key::sysfs(path),
            _ => Err(KeyError::NoKind(line.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_separator_decides() {
        for (text, path, shown) in [
            ("net.ipv4.ip_forward", "net/ipv4/ip_forward", "sysctl net.ipv4.ip_forward"),
            ("net/ipv4/ip_forward", "net/ipv4/ip_forward", "sysctl net.ipv4.ip_forward"),
            (
                "net.ipv4.conf.enp3s0/200.forwarding",
                "net/ipv4/conf/enp3s0.200/forwarding",
                "sysctl net/ipv4/conf/enp3s0.200/forwarding",
            ),
            (
                "net/ipv4/conf/enp3s0.200/forwarding",
                "net/ipv4/conf/enp3s0.200/forwarding",
                "sysctl net/ipv4/conf/enp3s0.200/forwarding",
            ),
            (
                "net.ipv6.neigh.enp3s0.200.7.app_solicit",
                "net/ipv6/neigh/enp3s0.200.7/app_solicit",
                "sysctl net/ipv6/neigh/enp3s0.200.7/app_solicit",
            ),
            ("kernel.hostname", "kernel/hostname", "sysctl kernel.hostname"),
        ] {
            let key = Key::sysctl(text).unwrap();
            assert_eq!(key.path(), path, "{text}");
            assert_eq!(key.to_string(), shown, "{text}");
            assert_eq!(shown.parse(), Ok(key), "{text}");
        }
    }

    #[test]
    fn texts_that_name_no_knob_are_refused() {
        let refused = |text: &str| Key::sysctl(text).unwrap_err();
        for text in ["", ".", "/", "net.", ".net", "/net/ipv4", "net/ipv4/", "net..x", "net//x"] {
            assert_eq!(refused(text), KeyError::EmptyPart(text.to_owned()));
        }
        for text in ["net/../kernel/hostname", "net/./x", "net.//.x", "net./.x", "../x"] {
            assert!(
                matches!(refused(text), KeyError::Traversal(_) | KeyError::EmptyPart(_)),
                "{text}"
            );
        }
        for text in ["net.ipv4\0.x", "net.ipv4\n.x", "net/\u{7f}", "net.ipv4.a b", "net.\u{a0}.x"] {
            assert_eq!(refused(text), KeyError::Control(text.to_owned()));
        }
        assert_eq!(refused("net"), KeyError::NoSeparator("net".to_owned()));
    }

    #[test]
    fn a_key_of_a_link_is_taken_structurally() {
        let path = |text: &str| Key::link_sysctl("a.b", text).map(|key| key.path());
        assert_eq!(path("ipv4/rp_filter").unwrap(), "net/ipv4/conf/a.b/rp_filter");
        assert_eq!(path("ipv6.disable_ipv6").unwrap(), "net/ipv6/conf/a.b/disable_ipv6");
        assert_eq!(path("ipv4/neigh/app_solicit").unwrap(), "net/ipv4/neigh/a.b/app_solicit");
        assert_eq!(path("mpls/input").unwrap(), "net/mpls/conf/a.b/input");
        for text in ["rp_filter", "net/ipv4/x", "ipv4/conf/eth0/rp_filter", "core/x", "../x/y"] {
            assert!(path(text).is_err(), "{text}");
        }
        for link in ["", "..", "all", "default", "a/b", "a b", "sixteen-bytes-xx"] {
            let error = Key::link_sysctl(link, "ipv4/rp_filter").unwrap_err();
            assert_eq!(error, KeyError::NotALink(link.to_owned()));
        }
    }

    #[test]
    fn a_key_names_the_link_that_it_needs() {
        for (text, link) in [
            ("net/ipv4/conf/enp3s0.200/forwarding", Some("enp3s0.200")),
            ("net/ipv6/neigh/eth0/gc_stale_time", Some("eth0")),
            ("net/mpls/conf/eth0/input", Some("eth0")),
            ("net/ipv4/conf/all/forwarding", None),
            ("net/ipv6/conf/default/forwarding", None),
            ("net/ipv4/conf/eth0", None),
            ("net/ipv4/route/eth0/flush", None),
            ("dev/ipv4/conf/eth0/x", None),
        ] {
            assert_eq!(Key::sysctl(text).unwrap().link(), link, "{text}");
        }
    }

    #[test]
    fn only_keys_below_net_belong_to_a_network_namespace() {
        assert!(!Key::sysctl("net.ipv4.ip_forward").unwrap().is_host_wide());
        assert!(Key::sysctl("netx.ipv4").unwrap().is_host_wide());
        assert!(Key::sysctl("vm.swappiness").unwrap().is_host_wide());
        assert!(Key::cgroup("machine", "memory.max").unwrap().is_host_wide());
    }

    #[test]
    fn a_cgroup_key_is_a_group_and_a_file() {
        let key = Key::cgroup("machine/web 1", "memory.max").unwrap();
        assert_eq!(key.to_string(), "cgroup machine/web 1 memory.max");
        assert_eq!("cgroup machine/web 1 memory.max".parse(), Ok(key));
        for (group, file) in [
            ("", "memory.max"),
            ("/machine", "memory.max"),
            ("machine/", "memory.max"),
            ("a//b", "memory.max"),
            ("a/../b", "memory.max"),
            ("a\nb", "memory.max"),
            ("a", ""),
            ("a", "tasks"),
            ("a", ".max"),
            ("a", ".."),
            ("a", "b/c.max"),
            ("a", "memory.max "),
        ] {
            assert!(Key::cgroup(group, file).is_err(), "{group:?} {file:?}");
        }
    }

    #[test]
    fn a_key_of_sysfs_is_a_path_below_it() {
        for (text, link) in [
            ("kernel/mm/transparent_hugepage/enabled", None),
            ("devices/pci0000:00/0000:00:1f.2/sriov_numvfs", None),
            ("class/net/enp3s0.200/queues/rx-0/rps_cpus", Some("enp3s0.200")),
            ("class/net/bonding_masters", None),
        ] {
            let key = Key::sysfs(text).unwrap();
            assert_eq!(key.to_string().parse(), Ok(key.clone()), "{text}");
            assert_eq!((key.path().as_str(), key.link()), (text, link));
            assert_eq!(key.is_host_wide(), link.is_none(), "{text}");
        }
        for text in ["/sys/kernel/x", "sys/kernel/x", "/kernel/x"] {
            assert_eq!(Key::sysfs(text), Err(KeyError::NotBelowSysfs(text.to_owned())));
        }
        for text in ["", "kernel", "kernel/", "a//b", "a/../b", "./a", "a/b c", "a/b\n"] {
            assert!(Key::sysfs(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_line_without_a_kind_is_no_key() {
        for line in ["", "net.ipv4.ip_forward", "cgroup memory.max", "route 10.0.0.0/8"] {
            assert_eq!(line.parse::<Key>(), Err(KeyError::NoKind(line.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn the_text_of_a_key_reads_back_as_the_same_key(text in "[a-z._/ 0-9-]{1,24}", file in "[a-z.]{1,9}") {
            if let Ok(key) = Key::sysctl(&text) {
                prop_assert_eq!(key.to_string().parse(), Ok(key));
            }
            if let Ok(key) = Key::cgroup(&text, &file) {
                prop_assert_eq!(key.to_string().parse(), Ok(key));
            }
            if let Ok(key) = Key::link_sysctl(&text, "ipv4/rp_filter") {
                prop_assert_eq!(key.link(), Some(text.as_str()));
                prop_assert_eq!(key.to_string().parse(), Ok(key));
            }
        }

        #[test]
        fn a_key_never_leaves_its_root(text in "[a./]{1,12}") {
            if let Ok(key) = Key::sysctl(&text) {
                prop_assert!(key.path().split('/').all(|part| !matches!(part, "" | "." | "..")));
            }
        }
    }
}
