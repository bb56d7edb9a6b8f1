//! The names of tables, as `nft` writes them: `table inet filter`.

use std::fmt;
use std::str::FromStr;

use homeostat_netlink::uapi::*;

/// Which packets a table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Family(pub(crate) u8);

const FAMILIES: [(u8, &str); 6] = [
    (NFPROTO_IPV4, "ip"),
    (NFPROTO_IPV6, "ip6"),
    (NFPROTO_INET, "inet"),
    (NFPROTO_ARP, "arp"),
    (NFPROTO_BRIDGE, "bridge"),
    (NFPROTO_NETDEV, "netdev"),
];

impl Family {
    /// Whether packets of one family may run through chains of the other one.
    pub(crate) fn shares_hooks(self, other: Self) -> bool {
        let is_inet = |family: Family| family.0 == NFPROTO_INET;
        let is_ip = |family: Family| [NFPROTO_IPV4, NFPROTO_IPV6].contains(&family.0);
        self == other || is_inet(self) && is_ip(other) || is_ip(self) && is_inet(other)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match FAMILIES.iter().find(|(number, _)| *number == self.0) {
            Some((_, word)) => f.write_str(word),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Family {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let known = FAMILIES.iter().find(|(_, word)| *word == text).map(|(number, _)| *number);
        known.or_else(|| text.parse().ok()).map(Family).ok_or_else(|| KeyError(text.to_owned()))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Which packets it is about.
    pub family: Family,
    pub name: String,
}

/// Text that names no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no table; one is written `table inet filter`")]
pub struct KeyError(String);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {} {}", self.family, self.name)
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let wrong = || KeyError(text.to_owned());
        let rest = text.strip_prefix("table ").ok_or_else(wrong)?;
        let (family, name) = rest.split_once(' ').ok_or_else(wrong)?;
        if name.is_empty() {
            return Err(wrong());
        }
        Ok(Key { family: family.parse().map_err(|_| wrong())?, name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_as_itself() {
        for text in ["table inet filter", "table ip6 a", "table netdev x.y", "table 200 odd name"] {
            assert_eq!(text.parse::<Key>().unwrap().to_string(), text);
        }
        for wrong in ["inet filter", "table inet", "table inet ", "table outer x", ""] {
            assert!(wrong.parse::<Key>().is_err(), "{wrong}");
        }
    }
}
