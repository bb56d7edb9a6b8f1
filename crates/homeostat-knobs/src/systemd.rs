//! Which control groups belong to systemd: it resets limits that it did not set itself.
//!
//! A unit's own group is always systemd's. What lies below a unit is free only if the unit says so,
//! by an attribute that systemd puts on the group of a delegated unit.

use std::path::Path;

use rustix::fs::getxattr;

/// The unit to which `group` belongs, if it belongs to one.
pub(crate) fn unit_of<'a>(root: &Path, group: &'a str) -> Option<&'a str> {
    let (unit, path) = nearest_unit(group)?;
    (path == group || !is_delegated(&root.join(path))).then_some(unit)
}

/// The last part of the path that is a unit, and the path up to it.
fn nearest_unit(group: &str) -> Option<(&str, &str)> {
    let mut path = group;
    loop {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        if is_unit(name) {
            return Some((name, path));
        }
        if above.is_empty() {
            return None;
        }
        path = above;
    }
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
