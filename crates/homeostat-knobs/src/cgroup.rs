//! What the files of a control group mean, where the hierarchy is, and which groups belong to systemd.
//!
//! Limits only: no group is ever made or removed, no controller enabled, no process moved. systemd resets limits
//! that it did not set itself: a unit's own group is always systemd's, and what lies below a unit is free only if
//! the unit is delegated, which systemd says by an attribute of the group.

use std::path::{Path, PathBuf};

use rustix::fs::getxattr;

use crate::normalize::{Form, unsigned};

/// Where version 2 of the hierarchy is mounted, beside version 1 or alone.
#[must_use]
pub fn root() -> Option<PathBuf> {
    root_below(Path::new("/sys/fs/cgroup"))
}

fn root_below(mount: &Path) -> Option<PathBuf> {
    let candidates = [mount.to_owned(), mount.join("unified")];
    candidates.into_iter().find(|root| root.join("cgroup.controllers").is_file())
}

/// The form of a group's file.
pub(crate) fn form(file: &str) -> Form {
    match file {
        "memory.min" | "memory.low" | "memory.high" | "memory.max" | "memory.swap.high"
        | "memory.swap.max" | "memory.zswap.max" => Form::Size { grain: page_size() },
        "cpu.max" => Form::Quota,
        "cpuset.cpus" | "cpuset.mems" | "cpuset.cpus.exclusive" => Form::Ranges,
        "io.max" | "io.low" | "io.latency" | "io.weight" | "io.bfq.weight" | "io.cost.qos"
        | "io.cost.model" | "rdma.max" | "misc.max" | "dmem.min" | "dmem.low" | "dmem.max" => {
            Form::Lines
        }
        _ => huge_page(file).map_or(Form::Tokens, |grain| Form::Size { grain }),
    }
}

/// The page size in `hugetlb.2MB.max` and `hugetlb.2MB.rsvd.max`.
fn huge_page(file: &str) -> Option<u64> {
    let rest = file.strip_prefix("hugetlb.")?;
    let size = rest.strip_suffix(".rsvd.max").or_else(|| rest.strip_suffix(".max"))?;
    bytes(size.strip_suffix('B')?)
}

fn page_size() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096)
}

/// A limit in bytes or `max`. Quirk `page-rounding` (cgroup v2): the kernel counts in pages, rounds
/// down, and takes what is too large to count for `max`.
pub(crate) fn size(text: &str, grain: u64) -> Option<String> {
    let text = text.trim();
    if text == "max" {
        return Some(text.to_owned());
    }
    let bytes = bytes(text)?;
    let countable = i64::MAX.cast_unsigned() / page_size();
    if bytes / page_size() >= countable {
        return Some("max".to_owned());
    }
    let rounded = bytes.checked_rem(grain).map_or(bytes, |odd| bytes - odd);
    Some(rounded.to_string())
}

/// A number of bytes with an optional suffix, in powers of 1024.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let power = |c: char| "kmgtpe".find(c.to_ascii_lowercase());
    match text.chars().last().and_then(|last| Some((last, power(last)?))) {
        // `0x1e` ends in a digit, not in a suffix.
        Some((last, power)) if unsigned(text).is_none() => {
            let digits = text.strip_suffix(last)?;
            let shift = 10 * (u32::try_from(power).ok()? + 1);
            unsigned(digits)?.checked_mul(1_u64.checked_shl(shift)?)
        }
        _ => unsigned(text),
    }
}

/// The unit to which `group` belongs, if it belongs to one.
pub(crate) fn unit_of<'a>(root: &Path, group: &'a str) -> Option<&'a str> {
    let (unit, path) = nearest_unit(group)?;
    (path == group || !is_delegated(&root.join(path))).then_some(unit)
}

/// The last part of the path that is a unit, and the path up to it.
fn nearest_unit(group: &str) -> Option<(&str, &str)> {
    let paths = std::iter::successors(Some(group), |path| Some(path.rsplit_once('/')?.0));
    let mut named = paths.map(|path| (path.rsplit_once('/').map_or(path, |(_, name)| name), path));
    named.find(|(name, _)| is_unit(name))
}

fn is_unit(name: &str) -> bool {
    const KINDS: [&str; 6] = [".slice", ".scope", ".service", ".mount", ".socket", ".swap"];
    KINDS.iter().any(|kind| name.strip_suffix(kind).is_some_and(|stem| !stem.is_empty()))
}

/// `trusted.delegate` needs privileges to be read; `user.delegate` says the same to everybody.
fn is_delegated(group: &Path) -> bool {
    ["trusted.delegate", "user.delegate"].into_iter().any(|name| {
        let mut value = [0_u8; 8];
        let read = getxattr(group, name, &mut value[..]);
        read.is_ok_and(|len| value.get(..len) == Some(b"1"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, expected) in [
            ("0", Some(0)),
            ("4K", Some(4096)),
            ("4k", Some(4096)),
            ("256M", Some(268_435_456)),
            ("1G", Some(1 << 30)),
            ("2T", Some(2 << 40)),
            ("0x10", Some(16)),
            ("0x1e", Some(30)),
            ("1E", Some(1 << 60)),
            ("16E", None),
            ("256MB", None),
            ("M", None),
            ("-1", None),
            ("1.5G", None),
            ("max", None),
            ("", None),
        ] {
            assert_eq!(bytes(text), expected, "{text:?}");
        }
    }

    #[test]
    fn limits_are_rounded_down_to_pages_and_too_much_is_max() {
        for (text, grain, expected) in [
            ("256M", 4096, Some("268435456")),
            ("4097", 4096, Some("4096")),
            ("4095\n", 4096, Some("0")),
            ("3M", 2 << 20, Some("2097152")),
            ("max\n", 4096, Some("max")),
            ("9223372036854775807", 4096, Some("max")),
            ("15E", 4096, Some("max")),
            ("7P", 4096, Some("7881299347898368")),
            ("lots", 4096, None),
        ] {
            assert_eq!(size(text, grain).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn files_have_the_form_that_the_kernel_gives_them() {
        assert_eq!(form("memory.max"), Form::Size { grain: page_size() });
        assert_eq!(form("memory.oom.group"), Form::Tokens);
        assert_eq!(form("hugetlb.2MB.max"), Form::Size { grain: 2 << 20 });
        assert_eq!(form("hugetlb.1GB.rsvd.max"), Form::Size { grain: 1 << 30 });
        assert_eq!(form("hugetlb.2MB.current"), Form::Tokens);
        assert_eq!(form("cpu.max"), Form::Quota);
        assert_eq!(form("cpu.max.burst"), Form::Tokens);
        assert_eq!(form("cpuset.cpus"), Form::Ranges);
        assert_eq!(form("io.max"), Form::Lines);
        assert_eq!(form("pids.max"), Form::Tokens);
    }

    #[test]
    fn the_hierarchy_is_found_alone_and_beside_version_one() {
        let mount = tempfile::tempdir().unwrap();
        assert_eq!(root_below(mount.path()), None);
        std::fs::create_dir(mount.path().join("unified")).unwrap();
        std::fs::write(mount.path().join("unified/cgroup.controllers"), "").unwrap();
        assert_eq!(root_below(mount.path()), Some(mount.path().join("unified")));
        std::fs::write(mount.path().join("cgroup.controllers"), "").unwrap();
        assert_eq!(root_below(mount.path()), Some(mount.path().to_owned()));
    }
}

#[cfg(test)]
mod systemd_tests {
    use rustix::fs::{XattrFlags, setxattr};

    use super::*;

    #[test]
    fn a_unit_and_what_it_has_not_delegated_belong_to_systemd() {
        let root = tempfile::tempdir().unwrap();
        let service = root.path().join("machine.slice/web.service");
        std::fs::create_dir_all(service.join("payload")).unwrap();
        let check = |group, expected: Option<&str>| {
            assert_eq!(unit_of(root.path(), group), expected, "{group}");
        };
        check("machine.slice", Some("machine.slice"));
        check("machine.slice/web.service", Some("web.service"));
        check("machine.slice/web.service/payload", Some("web.service"));
        check("init.scope", Some("init.scope"));
        check("machine/web", None);
        check(".slice", None);
        check("slice", None);

        setxattr(&service, "user.delegate", b"0", XattrFlags::empty())
            .expect("the temporary directory must support user attributes (set TMPDIR)");
        check("machine.slice/web.service/payload", Some("web.service"));
        setxattr(&service, "user.delegate", b"1", XattrFlags::empty()).unwrap();
        check("machine.slice/web.service/payload", None);
        check("machine.slice/web.service/payload/deeper", None);
        check("machine.slice/web.service", Some("web.service"));
        check("machine.slice/web.service/app.slice/x", Some("app.slice"));
    }
}
