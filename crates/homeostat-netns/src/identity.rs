//! What distinguishes one namespace from every other, also across reboots: its cookie and the boot it lived in.

use std::fmt;
use std::fs;
use std::io;
use std::sync::OnceLock;

use crate::{Error, Netns, Result};

/// The random id that the kernel takes at each boot, as a UUID.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const UUID_LEN: usize = 36;

/// Names a network namespace for as long as the machine is up. Unlike inode numbers, cookies are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie(pub u64);

/// One namespace of one boot, as a record keeps it: `boot 3f2a…, netns 4026`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(String);

impl Identity {
    /// The identity of a namespace of the running system.
    pub fn of(netns: &Netns) -> Result<Self> {
        let boot = boot_id().map_err(|source| Error::BootId { source })?;
        let Cookie(cookie) = netns.cookie()?;
        Ok(Self(format!("boot {boot}, netns {cookie}")))
    }
}

/// The id of this boot, which a process reads once: a look asks for the identity of each of a thousand namespaces.
fn boot_id() -> io::Result<&'static str> {
    static ID: OnceLock<String> = OnceLock::new();
    if let Some(id) = ID.get() {
        return Ok(id);
    }
    let text = fs::read_to_string(BOOT_ID)?;
    match text.trim_end() {
        id if id.len() == UUID_LEN => Ok(ID.get_or_init(|| id.to_owned())),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_one_line_of_the_boot_and_the_cookie() {
        let here = Netns::current().unwrap();
        let (boot, Cookie(cookie)) = (fs::read_to_string(BOOT_ID).unwrap(), here.cookie().unwrap());
        let expected = format!("boot {}, netns {cookie}", boot.trim());
        assert_eq!(Identity::of(&here).unwrap().to_string(), expected);
    }
}
