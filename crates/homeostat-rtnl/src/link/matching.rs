//! Links that a desired state knows by what they are and not by their name: by hardware address, by place, or by
//! another name. The link that matches gets the declared name.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::desired::DesiredState;
use crate::link::kinds::LinkKind;
use crate::link::observe::SeenLink;
use crate::link::{IfIndex, LinkName};
use crate::moment::Moment;
use crate::neighbour::Mac;

/// What a link is known by. All that is said has to be so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkMatch {
    /// The hardware address that it came with; the present one, if the kernel does not know that.
    pub mac: Option<Mac>,
    /// The bus and the place of its device there, as in `pci-0000:03:00.0`.
    pub path: Option<String>,
    /// One of its alternative names.
    pub altname: Option<String>,
}

/// What a link is, whatever its name is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) permanent_mac: Option<Mac>,
    pub(crate) bus: Option<String>,
    pub(crate) device: Option<String>,
    pub(crate) altnames: Vec<String>,
}

/// Which link matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Matched {
    None,
    One {
        index: IfIndex,
        name: LinkName,
    },
    /// Why it is not known which.
    Unclear(String),
}

impl LinkMatch {
    /// Whether a link is the one.
    pub(crate) fn is(&self, seen: &SeenLink) -> bool {
        let identity = seen.identity.as_deref();
        let mac = |wanted: Mac| {
            let permanent = identity.and_then(|identity| identity.permanent_mac);
            permanent.or(seen.link.mac) == Some(wanted)
        };
        let path = |wanted: &String| {
            let place = identity.and_then(|it| Some((it.bus.as_deref()?, it.device.as_deref()?)));
            place.is_some_and(|(bus, device)| {
                wanted.strip_prefix(bus).and_then(|rest| rest.strip_prefix('-')) == Some(device)
            })
        };
        let altname =
            |wanted: &String| identity.is_some_and(|identity| identity.altnames.contains(wanted));
        is_of_its_own(seen)
            && self.mac.is_none_or(mac)
            && self.path.as_ref().is_none_or(path)
            && self.altname.as_ref().is_none_or(altname)
            && *self != LinkMatch::default()
    }
}

/// Whether what a link is does not come from another: a bridge, a bond and what stands on a link have the hardware address
/// of that.
fn is_of_its_own(seen: &SeenLink) -> bool {
    let has_others = matches!(seen.link.kind, LinkKind::Bridge(_) | LinkKind::Bond(_));
    !has_others && seen.parent().is_none() && seen.name.as_str() != "lo"
}

/// Finds the links that declared ones match, and hides those that have the name of one and are not it: nothing that is
/// declared for the name is about them.
pub(crate) fn find(desired: &DesiredState, moment: &mut Moment) {
    let all = desired.matches.iter().filter(|(name, _)| desired.link(**name).is_none());
    let mut matched: BTreeMap<LinkName, Matched> =
        all.map(|(name, wanted)| (*name, of(wanted, moment))).collect();
    let mut taken: BTreeMap<IfIndex, BTreeSet<LinkName>> = BTreeMap::new();
    for (declared, found) in &matched {
        if let Matched::One { index, .. } = found {
            taken.entry(*index).or_default().insert(*declared);
        }
    }
    for names in taken.into_values().filter(|names| names.len() > 1) {
        for name in &names {
            let why = format!("{} match the same link", listed(names.iter().copied()));
            matched.insert(*name, Matched::Unclear(why));
        }
    }
    for (declared, found) in &matched {
        let there = moment.links.index(*declared);
        let is_it = matches!(found, Matched::One { index, .. } if Some(*index) == there);
        if let Some(index) = there.filter(|_| !is_it) {
            moment.others_named.insert(*declared, index);
        }
    }
    for (name, index) in &moment.others_named {
        moment.links.forget(*name);
        moment.table.remove(*index);
    }
    moment.matched = matched;
}

fn of(wanted: &LinkMatch, moment: &Moment) -> Matched {
    let found: Vec<&SeenLink> = moment.table.values().filter(|seen| wanted.is(seen)).collect();
    match found.as_slice() {
        [] => Matched::None,
        [only] => Matched::One { index: only.index, name: only.name },
        several => {
            let names = listed(several.iter().map(|seen| seen.name));
            Matched::Unclear(format!("several links match: {names}"))
        }
    }
}

fn listed(names: impl Iterator<Item = LinkName>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// How a document writes it: `match = { mac = "02:00:00:00:00:01" }`.
#[cfg(feature = "document")]
mod section {
    use homeostat_document::{Diagnostic, Fields, Record, Text, ValueError};

    use super::LinkMatch;

    homeostat_document::record!(LinkMatch);

    impl Record for LinkMatch {
        const NAME: &'static str = "link-match";
        const DOC: &'static str = "What a link is known by";

        fn read(fields: &mut Fields<'_>) -> Option<Self> {
            let mac = fields.optional("mac", "The hardware address that it came with");
            let path: Option<Path> = fields.optional(
                "path",
                "The bus and the place of its device there, such as \"pci-0000:03:00.0\"",
            );
            let altname: Option<AltName> =
                fields.optional("altname", "One of its alternative names");
            if fields.lacks(&["mac", "path", "altname"]) {
                let nothing = Diagnostic::new(fields.span(), "it says nothing of the link");
                fields.report(nothing.help("add `mac`, `path` or `altname`"));
                return None;
            }
            let altname = altname.map(|AltName(name)| name);
            Some(LinkMatch { mac, path: path.map(|Path(path)| path), altname })
        }
    }

    struct Path(String);

    impl Text for Path {
        const WHAT: &'static str = "the place of a device";

        fn from_text(text: &str) -> Result<Self, ValueError> {
            match text.split_once('-') {
                Some((bus, device)) if !bus.is_empty() && !device.is_empty() => {
                    Ok(Path(text.to_owned()))
                }
                _ => Err(ValueError::is_not(text, Self::WHAT).help(
                    "write the bus and the device as `ip -d link` shows them: \"pci-0000:03:00.0\"",
                )),
            }
        }
    }

    struct AltName(String);

    impl Text for AltName {
        const WHAT: &'static str = "an alternative name";

        fn from_text(text: &str) -> Result<Self, ValueError> {
            let is_bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
            match text {
                _ if text.is_empty() || text.len() > 127 || text.contains(is_bad) => {
                    Err(ValueError::is_not(text, Self::WHAT)
                        .help("it has 1 to 127 bytes, without blanks, `/` and `:`"))
                }
                _ => Ok(AltName(text.to_owned())),
            }
        }
    }
}
