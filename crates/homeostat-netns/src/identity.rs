//! What tells one namespace from every other, also across reboots: its cookie and the boot it lived in.

use std::fmt;
use std::fs;
use std::io;
use std::str::FromStr;

use crate::{Error, Netns, Result};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Names a network namespace for as long as the machine is up. Unlike inode numbers, cookies are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(u64);

impl From<u64> for Cookie {
    fn from(cookie: u64) -> Self {
        Self(cookie)
    }
}

impl From<Cookie> for u64 {
    fn from(cookie: Cookie) -> Self {
        cookie.0
    }
}

impl fmt::Display for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The random id that the kernel takes at each boot; shown as a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootId(u128);

impl BootId {
    /// The id of the boot that we run in.
    pub fn current() -> Result<Self> {
        let text = fs::read_to_string(BOOT_ID).map_err(|source| Error::BootId { source })?;
        text.trim()
            .parse()
            .map_err(|error: Error| Error::BootId { source: io::Error::other(error) })
    }
}

/// The lengths of a UUID's groups of hex digits.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

impl FromStr for BootId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::BadIdentity(text.into());
        let is_hex = text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
        if !is_hex || !text.split('-').map(str::len).eq(GROUPS) {
            return Err(bad());
        }
        u128::from_str_radix(&text.replace('-', ""), 16).map(Self).map_err(|_| bad())
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let mut rest = digits.as_str();
        for (group, len) in GROUPS.into_iter().enumerate() {
            let (head, tail) = rest.split_at(len);
            rest = tail;
            write!(f, "{}{head}", if group == 0 { "" } else { "-" })?;
        }
        Ok(())
    }
}

/// One namespace of one boot, as a record keeps it: `boot 3f2a…, netns 4026`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The boot that the namespace lived in.
    pub boot: BootId,
    /// The namespace within that boot.
    pub netns: Cookie,
}

impl Identity {
    /// The identity of a namespace of the running system.
    pub fn of(netns: &Netns) -> Result<Self> {
        Ok(Self { boot: BootId::current()?, netns: netns.cookie()? })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot {}, netns {}", self.boot, self.netns)
    }
}

impl FromStr for Identity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::BadIdentity(text.into());
        let (boot, cookie) = text
            .strip_prefix("boot ")
            .and_then(|rest| rest.split_once(", netns "))
            .ok_or_else(bad)?;
        let netns = cookie.parse().map(Cookie).map_err(|_| bad())?;
        Ok(Self { boot: boot.parse().map_err(|_| bad())?, netns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "boot 0f2a6c1e-0000-4b1d-8c3e-00112233aabb, netns 18446744073709551615";

    #[test]
    fn an_identity_is_one_line_that_reads_back_equal() {
        let identity: Identity = TEXT.parse().unwrap();
        assert_eq!(identity.netns, Cookie(u64::MAX));
        assert_eq!(identity.to_string(), TEXT);
    }

    #[test]
    fn a_damaged_line_is_refused_whole() {
        for bad in [
            "",
            "boot , netns 1",
            "boot 0f2a6c1e-0000-4b1d-8c3e-00112233aabb",
            "boot 0f2a6c1e-0000-4b1d-8c3e-00112233aabb, netns ",
            "boot 0f2a6c1e-0000-4b1d-8c3e-00112233aabb, netns -1",
            "boot 0f2a6c1e-0000-4b1d-8c3e-00112233aabg, netns 1",
            "boot 0f2a6c1e00004b1d8c3e00112233aabb, netns 1",
            "boot +f2a6c1e-0000-4b1d-8c3e-00112233aabb, netns 1",
        ] {
            let error = bad.parse::<Identity>().unwrap_err();
            assert!(matches!(error, Error::BadIdentity(text) if text == bad), "{bad}");
        }
    }

    #[test]
    fn the_running_boot_has_one_id() {
        let kernel = fs::read_to_string(BOOT_ID).unwrap();
        assert_eq!(BootId::current().unwrap().to_string(), kernel.trim());
    }
}
