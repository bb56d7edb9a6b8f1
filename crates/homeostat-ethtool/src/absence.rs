//! Why a declared setting does not exist, and what it waits on. Pure.

use std::collections::BTreeSet;

use homeostat_core::{Failure, Retry, WaitsOn};
use strsim::levenshtein;

use crate::key::Key;
use crate::setting::{Group, words};

/// Why a setting is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Absence {
    /// The link does not exist, or not yet.
    NoLink,
    /// The kernel was built without the family.
    NoFamily,
    /// The driver has nothing of the kind.
    Unsupported,
    /// The driver has others of the kind.
    NoSetting,
    /// The kernel has no such feature; `similar` is the nearest that it has.
    NoFeature { similar: Option<String> },
    /// The driver has other flags.
    NoFlag { flags: Vec<String> },
}

impl Absence {
    /// A feature that is not among those that the kernel has.
    pub(crate) fn no_feature(name: &str, known: &BTreeSet<String>) -> Self {
        let known = known.iter().cloned().chain(words().map(str::to_owned));
        let near = known.map(|known| (levenshtein(name, &known), known));
        let most = (name.len() / 3).clamp(1, 4);
        let near = near.filter(|(edits, _)| *edits <= most).min();
        Absence::NoFeature { similar: near.map(|(_, name)| name) }
    }

    /// What it waits on, if it may come by itself.
    #[must_use]
    pub fn waits_on(&self, key: &Key) -> Option<WaitsOn> {
        matches!(self, Absence::NoLink).then(|| WaitsOn::link(key.link.clone()))
    }

    /// The refusal in words.
    #[must_use]
    pub fn failure(&self, key: &Key) -> Failure {
        let Key { link, setting } = key;
        let refusal = |text: String| Failure::new(text, Retry::OnChange);
        match self {
            Absence::NoLink => refusal(format!("there is no link `{link}`")),
            Absence::NoFamily => refusal("the kernel has no `ethtool` by netlink".to_owned())
                .with_help("it needs CONFIG_ETHTOOL_NETLINK (Linux 5.6)"),
            Absence::Unsupported => {
                let about = setting.group().about();
                refusal(format!("the driver of `{link}` has no settings of {about}"))
            }
            Absence::NoSetting => {
                let group = setting.group();
                let name = setting.name();
                let has_none =
                    format!("the driver of `{link}` has no `{name}` of {}", group.about());
                let show = match group {
                    Group::Rings => "ethtool -g",
                    Group::Channels => "ethtool -l",
                    Group::Coalesce => "ethtool -c",
                    _ => "ethtool -a",
                };
                refusal(has_none).with_help(format!("`{show} {link}` shows what it has"))
            }
            Absence::NoFeature { similar } => {
                let refusal = refusal("the kernel has no such feature".to_owned());
                refusal.with_help(match similar {
                    Some(similar) => format!("did you mean `{similar}`?"),
                    None => format!("`ethtool -k {link}` lists them"),
                })
            }
            Absence::NoFlag { flags } => {
                let refusal = refusal(format!("the driver of `{link}` has no such flag"));
                refusal.with_help(match flags.as_slice() {
                    [] => "it has none".to_owned(),
                    flags => format!("it has {}", flags.join(", ")),
                })
            }
        }
    }
}
