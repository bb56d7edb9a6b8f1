//! What a link has as a port of a bridge: learning, flooding, guards, its place in the spanning tree. This file has the
//! list of these options; keys, documents, messages and `show` are made from it.

use std::collections::BTreeMap;

use homeostat_netlink::uapi::{
    IFLA_BRPORT_BCAST_FLOOD, IFLA_BRPORT_COST, IFLA_BRPORT_FAST_LEAVE, IFLA_BRPORT_GUARD,
    IFLA_BRPORT_ISOLATED, IFLA_BRPORT_LEARNING, IFLA_BRPORT_MCAST_FLOOD, IFLA_BRPORT_MODE,
    IFLA_BRPORT_NEIGH_SUPPRESS, IFLA_BRPORT_PRIORITY, IFLA_BRPORT_PROTECT,
    IFLA_BRPORT_UNICAST_FLOOD, IFLA_INFO_SLAVE_DATA, IFLA_INFO_SLAVE_KIND,
};
use homeostat_netlink::{Attr, Malformed};

use crate::builder::Impossible;
use crate::link::model::Setting;

/// How a value is written in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Flag,
    U16,
    U32,
}

macro_rules! port_options {
    ($($(#[$doc:meta])* $option:ident = $word:literal, $form:ident $attr:ident, $least:literal..=$most:literal, usual $usual:expr, $what:literal;)+) => {
        /// An option of a port of a bridge.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum PortOption {
            $(#[doc = $what] $option,)+
        }

        impl PortOption {
            /// All of them.
            pub const ALL: &'static [PortOption] = &[$(PortOption::$option,)+];

            /// The word in documents, below `bridge-port`.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $(PortOption::$option => $word,)+
                }
            }

            /// The word in keys.
            #[must_use]
            pub fn key_word(self) -> &'static str {
                match self {
                    $(PortOption::$option => concat!("bridge-port.", $word),)+
                }
            }

            /// What it does.
            #[cfg(feature = "document")]
            pub(crate) fn doc(self) -> &'static str {
                match self {
                    $(PortOption::$option => $what,)+
                }
            }

            /// The values that it can have; flags are 0 and 1.
            pub(crate) fn range(self) -> std::ops::RangeInclusive<u32> {
                match self {
                    $(PortOption::$option => $least..=$most,)+
                }
            }

            /// What a new port has, unless that depends on the link.
            #[cfg(feature = "document")]
            pub(crate) fn usual(self) -> Option<u32> {
                match self {
                    $(PortOption::$option => $usual,)+
                }
            }

            fn form(self) -> Form {
                match self {
                    $(PortOption::$option => Form::$form,)+
                }
            }

            fn attr(self) -> u16 {
                match self {
                    $(PortOption::$option => $attr,)+
                }
            }
        }
    };
}

port_options! {
    Learning = "learning", Flag IFLA_BRPORT_LEARNING, 0..=1, usual Some(1), "Whether addresses are learned from its frames";
    Flood = "flood", Flag IFLA_BRPORT_UNICAST_FLOOD, 0..=1, usual Some(1), "Whether frames to unknown addresses leave through it";
    McastFlood = "mcast-flood", Flag IFLA_BRPORT_MCAST_FLOOD, 0..=1, usual Some(1), "Whether frames to unknown groups leave through it";
    BcastFlood = "bcast-flood", Flag IFLA_BRPORT_BCAST_FLOOD, 0..=1, usual Some(1), "Whether broadcasts leave through it";
    NeighSuppress = "neigh-suppress", Flag IFLA_BRPORT_NEIGH_SUPPRESS, 0..=1, usual Some(0), "Whether the bridge answers ARP and ND for known neighbours";
    Isolated = "isolated", Flag IFLA_BRPORT_ISOLATED, 0..=1, usual Some(0), "Whether it reaches ports only that are not isolated";
    Hairpin = "hairpin", Flag IFLA_BRPORT_MODE, 0..=1, usual Some(0), "Whether frames may leave through the port that they came by";
    BpduGuard = "bpdu-guard", Flag IFLA_BRPORT_GUARD, 0..=1, usual Some(0), "Whether it is switched off by a message of the spanning tree";
    RootGuard = "root-guard", Flag IFLA_BRPORT_PROTECT, 0..=1, usual Some(0), "Whether it never leads to the root of the spanning tree";
    FastLeave = "fast-leave", Flag IFLA_BRPORT_FAST_LEAVE, 0..=1, usual Some(0), "Whether a group ends as soon as a host leaves it";
    Cost = "cost", U32 IFLA_BRPORT_COST, 1..=65_535, usual None, "Its cost in the spanning tree";
    Priority = "priority", U16 IFLA_BRPORT_PRIORITY, 0..=63, usual Some(32), "Its order in the spanning tree";
}

impl PortOption {
    pub(crate) fn is_flag(self) -> bool {
        self.form() == Form::Flag
    }

    /// A value as the setting of a field.
    pub(crate) fn setting(self, value: u32) -> Setting {
        if self.is_flag() { Setting::Flag(value != 0) } else { Setting::Number(value) }
    }

    /// Refuses what the kernel never takes.
    pub(crate) fn check(self, setting: &Setting) -> Result<(), Impossible> {
        match self.value(setting) {
            Some(value) if self.range().contains(&value) => Ok(()),
            _ => Err(Impossible::PortOption(self.word())),
        }
    }

    /// The attribute that sets it.
    pub(crate) fn encode(self, setting: &Setting) -> Option<(u16, Vec<u8>)> {
        let value = self.value(setting)?;
        let bytes = match self.form() {
            Form::Flag => vec![u8::from(value != 0)],
            Form::U16 => u16::try_from(value).ok()?.to_ne_bytes().to_vec(),
            Form::U32 => value.to_ne_bytes().to_vec(),
        };
        Some((self.attr(), bytes))
    }

    fn value(self, setting: &Setting) -> Option<u32> {
        match setting {
            Setting::Flag(flag) if self.is_flag() => Some((*flag).into()),
            Setting::Number(number) if !self.is_flag() => Some(*number),
            _ => None,
        }
    }

    fn decode(self, attr: &Attr<'_>) -> Result<u32, Malformed> {
        Ok(match self.form() {
            Form::Flag => attr.u8()?.into(),
            Form::U16 => attr.u16()?.into(),
            Form::U32 => attr.u32()?,
        })
    }
}

/// The values that a link has as a port of a bridge; none, if it is not one.
pub(crate) fn decode(info: &Attr<'_>) -> Result<BTreeMap<PortOption, u32>, Malformed> {
    let mut values = BTreeMap::new();
    let kind = info.attrs().first(IFLA_INFO_SLAVE_KIND)?;
    let is_port = kind.is_some_and(|kind| kind.str().is_ok_and(|kind| kind == "bridge"));
    let Some(data) = info.attrs().first(IFLA_INFO_SLAVE_DATA)?.filter(|_| is_port) else {
        return Ok(values);
    };
    for attr in data.attrs() {
        let attr = attr?;
        if let Some(option) = PortOption::ALL.iter().find(|option| option.attr() == attr.kind) {
            values.insert(*option, option.decode(&attr)?);
        }
    }
    Ok(values)
}

/// How a document writes them: `bridge-port = { learning = false, cost = 100 }`.
#[cfg(feature = "document")]
mod section {
    use homeostat_document::{Fields, Number, Record};

    use super::PortOption;
    use crate::link::model::{PortSettings, Setting};

    impl Record for PortSettings {
        const NAME: &'static str = "bridge-port";
        const DOC: &'static str = "What a link has as a port of a bridge";

        fn read(fields: &mut Fields<'_>) -> Option<Self> {
            let mut settings = Vec::new();
            for option in PortOption::ALL {
                let (word, doc) = (option.word(), option.doc());
                let setting = if option.is_flag() {
                    fields.optional(word, doc).map(Setting::Flag)
                } else {
                    let (least, most) = option.range().into_inner();
                    let what = if *option == PortOption::Cost { "a cost" } else { "a priority" };
                    fields.number(word, doc, Number { what, least, most }).map(Setting::Number)
                };
                settings.extend(setting.map(|setting| (*option, setting)));
            }
            Some(PortSettings(settings))
        }
    }

    homeostat_document::record!(PortSettings);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_outside_of_their_range_and_of_another_form_are_refused() {
        for (option, setting, is_fine) in [
            (PortOption::Learning, Setting::Flag(false), true),
            (PortOption::Learning, Setting::Number(1), false),
            (PortOption::Cost, Setting::Number(65_535), true),
            (PortOption::Cost, Setting::Number(0), false),
            (PortOption::Cost, Setting::Flag(true), false),
            (PortOption::Priority, Setting::Number(63), true),
            (PortOption::Priority, Setting::Number(64), false),
            (PortOption::Priority, Setting::Text("1".to_owned()), false),
        ] {
            assert_eq!(option.check(&setting).is_ok(), is_fine, "{option:?} {setting:?}");
        }
    }
}
