//! The group that may read how a daemon stands.

use anyhow::{Context as _, Result};

use crate::failure::helped;

/// Where groups have their names.
const GROUPS: &str = "/etc/group";

/// A group, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readers(pub(super) u32);

impl Readers {
    /// The group of this name or number.
    pub(crate) fn find(text: &str) -> Result<Self> {
        if let Ok(number) = text.parse() {
            return Ok(Readers(number));
        }
        let groups =
            std::fs::read_to_string(GROUPS).with_context(|| format!("cannot read {GROUPS}"))?;
        named(&groups, text).map(Readers).ok_or_else(|| {
            let help = format!("`--status-group` takes a name from {GROUPS}, or a number");
            helped(format!("there is no group `{text}`"), help)
        })
    }
}

/// The number of a group: `name:password:number:members` a line.
fn named(groups: &str, name: &str) -> Option<u32> {
    let number = |line: &str| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name);
        fields.nth(1).filter(|_| is_it)?.parse().ok()
    };
    groups.lines().find_map(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_name_or_number() {
        let groups = "root:x:0:\nadm:x:4:syslog,ann\nbad:x:y:\n";
        assert_eq!(named(groups, "adm"), Some(4));
        for other in ["ad", "bad", "x", "", "syslog"] {
            assert_eq!(named(groups, other), None, "{other}");
        }
        assert_eq!(Readers::find("4").unwrap(), Readers(4));
    }
}
