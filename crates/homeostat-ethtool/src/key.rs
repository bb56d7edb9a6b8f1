//! The key of a setting: a link, and what is set of it.

use std::fmt;
use std::str::FromStr;

use crate::setting::{Group, Setting};

/// One setting of a link; as text, `ethtool eth0 feature tso`, `ethtool eth0 rings rx` or `ethtool eth0 wol`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub link: String,
    pub setting: Setting,
}

/// A text that is no key of this source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not `ethtool`, a link, and a setting")]
pub struct KeyError(pub String);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ethtool {} {}", self.link, self.setting.group().word())?;
        match self.setting.name() {
            "" => Ok(()),
            name => write!(f, " {name}"),
        }
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let setting = |group: Group, name: &str| match group {
            Group::WakeOnLan => name.is_empty().then_some(Setting::WakeOnLan),
            Group::Fec => name.is_empty().then_some(Setting::Fec),
            Group::Features => is_name(name).then(|| Setting::feature(name)),
            Group::PrivateFlags => is_name(name).then(|| Setting::PrivateFlag(name.to_owned())),
            group => Setting::number(group, name),
        };
        let mut words = text.splitn(4, ' ');
        let (kind, link, group) = (words.next(), words.next(), words.next());
        let group = Group::ALL.into_iter().find(|known| Some(known.word()) == group);
        let key = match (kind, link, group) {
            (Some("ethtool"), Some(link), Some(group)) if !link.is_empty() => {
                let name = words.next();
                // Nothing after a blank is not the same as no name.
                let is_whole = name.is_none_or(|name| !name.is_empty());
                let setting = setting(group, name.unwrap_or_default()).filter(|_| is_whole);
                setting.map(|setting| Key { link: link.to_owned(), setting })
            }
            _ => None,
        };
        key.ok_or_else(|| KeyError(text.to_owned()))
    }
}

/// The kernel keeps names in 32 bytes.
pub(crate) fn is_name(name: &str) -> bool {
    (1..32).contains(&name.len()) && !name.contains(char::is_control) && name.trim() == name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_equal() {
        for text in [
            "ethtool eth0 feature tso",
            "ethtool eth0.7 feature tx-udp-segmentation",
            "ethtool eth0 rings rx",
            "ethtool eth0 channels combined",
            "ethtool eth0 coalesce rx-usecs",
            "ethtool eth0 pause autoneg",
            "ethtool eth0 wol",
            "ethtool eth0 fec",
            "ethtool eth0 private-flag link down on close",
        ] {
            assert_eq!(text.parse::<Key>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "ethtool",
            "ethtool eth0",
            "ethtool  wol",
            "ethtool eth0 wol ",
            "ethtool eth0 wol magic",
            "ethtool eth0 rings",
            "ethtool eth0 rings combined",
            "ethtool eth0 feature ",
            "ethtool eth0 speed",
        ] {
            assert_eq!(text.parse::<Key>(), Err(KeyError(text.to_owned())), "{text}");
        }
    }
}
