//! Finds the setting with which this system forbids user namespaces, to name it in the error.

use std::fs;
use std::io;

/// A setting that stands in the sandbox's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Switch {
    /// `user.max_user_namespaces`: none, or no more, may be made.
    MaxUserNamespaces,
    /// `user.max_net_namespaces`: none, or no more, may be made.
    MaxNetNamespaces,
    /// `kernel.unprivileged_userns_clone`: Debian's switch.
    UnprivilegedUserns,
    /// `kernel.apparmor_restrict_unprivileged_userns`: Ubuntu's switch.
    AppArmor,
}

/// Each switch with the file to look at and the content that forbids.
const REFUSING: [(Switch, &str, &str); 2] = [
    (Switch::UnprivilegedUserns, "kernel/unprivileged_userns_clone", "0"),
    (Switch::AppArmor, "kernel/apparmor_restrict_unprivileged_userns", "1"),
];

impl Switch {
    /// The setting that explains this refusal by the kernel, if one does.
    pub(super) fn behind(refusal: &io::Error) -> Option<Self> {
        Self::found(refusal.raw_os_error()?, |key| {
            fs::read_to_string(format!("/proc/sys/{key}")).ok()
        })
    }

    fn found(errno: i32, read: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let is = |key: &str, value: &str| read(key).is_some_and(|text| text.trim() == value);
        match errno {
            libc::ENOSPC if is("user/max_net_namespaces", "0") => Some(Self::MaxNetNamespaces),
            libc::ENOSPC => Some(Self::MaxUserNamespaces),
            // AppArmor lets the namespace be made and refuses what is done in it, hence EACCES.
            libc::EPERM | libc::EACCES => REFUSING
                .into_iter()
                .find(|(_, key, value)| is(key, value))
                .map(|(switch, ..)| switch),
            _ => None,
        }
    }

    /// How the switch is turned, in words for the person at the terminal.
    pub(crate) fn help(self) -> String {
        let set =
            |key: &str| format!("this system forbids it: ask its owner for `sysctl -w {key}`");
        match self {
            Self::MaxUserNamespaces => {
                "no more user namespaces are allowed here: raise `user.max_user_namespaces`".into()
            }
            Self::MaxNetNamespaces => {
                "no more network namespaces are allowed here: raise `user.max_net_namespaces`"
                    .into()
            }
            Self::UnprivilegedUserns => set("kernel.unprivileged_userns_clone=1"),
            Self::AppArmor => {
                set("kernel.apparmor_restrict_unprivileged_userns=0")
                    + ", or for an AppArmor profile with `userns,`"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(errno: i32, settings: &[(&str, &str)], expected: Option<Switch>) {
        let read = |key: &str| {
            let found = settings.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| format!("{value}\n"))
        };
        assert_eq!(Switch::found(errno, read), expected, "{errno} {settings:?}");
    }

    #[test]
    fn the_switch_that_forbids_is_named_and_no_other() {
        let debian = ("kernel/unprivileged_userns_clone", "0");
        let ubuntu = ("kernel/apparmor_restrict_unprivileged_userns", "1");
        check(libc::EPERM, &[debian], Some(Switch::UnprivilegedUserns));
        check(libc::EPERM, &[ubuntu], Some(Switch::AppArmor));
        check(libc::EACCES, &[ubuntu], Some(Switch::AppArmor));
        check(libc::ENOSPC, &[("user/max_user_namespaces", "0")], Some(Switch::MaxUserNamespaces));
        check(libc::ENOSPC, &[("user/max_net_namespaces", "0")], Some(Switch::MaxNetNamespaces));
        check(libc::EPERM, &[("kernel/unprivileged_userns_clone", "1")], None);
        check(libc::EPERM, &[], None);
        check(libc::EINVAL, &[debian, ubuntu], None);
    }

    #[test]
    fn help_gives_the_setting_by_its_sysctl_name() {
        for (switch, key) in [
            (Switch::MaxUserNamespaces, "user.max_user_namespaces"),
            (Switch::MaxNetNamespaces, "user.max_net_namespaces"),
            (Switch::UnprivilegedUserns, "kernel.unprivileged_userns_clone=1"),
            (Switch::AppArmor, "kernel.apparmor_restrict_unprivileged_userns=0"),
        ] {
            assert!(switch.help().contains(key), "{}", switch.help());
        }
    }
}
