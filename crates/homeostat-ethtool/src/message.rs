//! The messages of the family `ethtool`: requests, and what the answers say. Sets of bits go by name, so that no
//! number of a bit has to be known.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_netlink::uapi::{
    ETH_SS_FEATURES, ETHTOOL_A_BITSET_BIT_INDEX, ETHTOOL_A_BITSET_BIT_NAME,
    ETHTOOL_A_BITSET_BIT_VALUE, ETHTOOL_A_BITSET_BITS, ETHTOOL_A_BITSET_BITS_BIT,
    ETHTOOL_A_BITSET_NOMASK, ETHTOOL_A_FEATURES_ACTIVE, ETHTOOL_A_FEATURES_HEADER,
    ETHTOOL_A_FEATURES_HW, ETHTOOL_A_FEATURES_NOCHANGE, ETHTOOL_A_FEATURES_WANTED,
    ETHTOOL_A_FEC_AUTO, ETHTOOL_A_FEC_MODES, ETHTOOL_A_HEADER_DEV_NAME, ETHTOOL_A_HEADER_FLAGS,
    ETHTOOL_A_PRIVFLAGS_FLAGS, ETHTOOL_A_STRING_VALUE, ETHTOOL_A_STRINGS_STRING,
    ETHTOOL_A_STRINGSET_ID, ETHTOOL_A_STRINGSET_STRINGS, ETHTOOL_A_STRINGSETS_STRINGSET,
    ETHTOOL_A_STRSET_HEADER, ETHTOOL_A_STRSET_STRINGSETS, ETHTOOL_A_WOL_MODES,
    ETHTOOL_FLAG_OMIT_REPLY, ETHTOOL_MSG_STRSET_GET, NLM_F_ECHO,
};
use homeostat_netlink::{Attr, Attrs, Batch, Error, Malformed, Message, MessageWriter, generic};

use crate::key::Key;
use crate::model::{Bit, Value};
use crate::setting::{Form, Group, SPECS, Setting};

pub(crate) const FAMILY: &str = "ethtool";
const VERSION: u8 = 1;
/// In every message of the family.
const HEADER: u16 = ETHTOOL_A_FEATURES_HEADER;

/// What one group of a link is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Features(Features),
    Numbers {
        values: BTreeMap<&'static str, u32>,
        most: BTreeMap<&'static str, u32>,
    },
    /// The modes and whether each is on. Wake-on-LAN lists all that the card has.
    Modes(BTreeMap<String, bool>),
    Flags(BTreeMap<String, bool>),
}

/// The features of a link by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// Those that may be changed.
    pub(crate) hardware: BTreeSet<String>,
    pub(crate) wanted: BTreeSet<String>,
    pub(crate) active: BTreeSet<String>,
    /// Those that no driver changes.
    pub(crate) never_changed: BTreeSet<String>,
}

/// Adds a request for one group of a link.
pub(crate) fn get(batch: &mut Batch, family: u16, link: &str, group: Group) -> Result<(), Error> {
    let mut message = batch.message(family, NLM_F_ECHO);
    message.fixed(&generic::head(group.get(), VERSION));
    header(&mut message, link, 0);
    message.finish()
}

/// Adds a request for the names of all features that the kernel has.
pub(crate) fn get_feature_names(batch: &mut Batch, family: u16) -> Result<(), Error> {
    let mut message = batch.message(family, NLM_F_ECHO);
    message.fixed(&generic::head(ETHTOOL_MSG_STRSET_GET, VERSION));
    message.nest(ETHTOOL_A_STRSET_HEADER, |_| {});
    message.nest(ETHTOOL_A_STRSET_STRINGSETS, |sets| {
        sets.nest(ETHTOOL_A_STRINGSETS_STRINGSET, |set| {
            set.attr_u32(ETHTOOL_A_STRINGSET_ID, ETH_SS_FEATURES);
        });
    });
    message.finish()
}

/// Adds a write of settings of one group of a link.
pub(crate) fn set(
    batch: &mut Batch,
    family: u16,
    link: &str,
    group: Group,
    values: &[(&Setting, &Value)],
) -> Result<(), Error> {
    let mut message = batch.message(family, 0);
    message.fixed(&generic::head(group.set(), VERSION));
    header(&mut message, link, ETHTOOL_FLAG_OMIT_REPLY);
    match group {
        Group::Features => {
            let bits: BTreeMap<&str, bool> = values.iter().flat_map(|one| switches(one)).collect();
            put_bits(&mut message, ETHTOOL_A_FEATURES_WANTED, Bits::Some(&bits));
        }
        Group::PrivateFlags => {
            let flags: BTreeMap<&str, bool> = values.iter().flat_map(|one| switches(one)).collect();
            put_bits(&mut message, ETHTOOL_A_PRIVFLAGS_FLAGS, Bits::Some(&flags));
        }
        Group::WakeOnLan => {
            let modes = values.iter().find_map(|(_, value)| words(value));
            let modes = modes.into_iter().flatten().map(String::as_str).collect();
            put_bits(&mut message, ETHTOOL_A_WOL_MODES, Bits::All(&modes));
        }
        Group::Fec => {
            let modes = values.iter().find_map(|(_, value)| words(value));
            let modes: BTreeSet<&str> = modes.into_iter().flatten().map(String::as_str).collect();
            let is_auto = modes.contains("auto");
            let modes = modes.iter().filter_map(|word| link_mode(word)).collect();
            put_bits(&mut message, ETHTOOL_A_FEC_MODES, Bits::All(&modes));
            message.attr_u8(ETHTOOL_A_FEC_AUTO, is_auto.into());
        }
        Group::Rings | Group::Channels | Group::Coalesce | Group::Pause => {
            for (setting, value) in values {
                let Setting::Number(spec) = setting else { continue };
                match value {
                    Value::Switch(on) => _ = message.attr_u8(spec.attr, (*on).into()),
                    Value::Number(number) => _ = message.attr_u32(spec.attr, *number),
                    Value::Words(_) | Value::Features(_) => {}
                }
            }
        }
    }
    message.finish()
}

fn header(message: &mut MessageWriter<'_>, link: &str, flags: u32) {
    message.nest(HEADER, |header| {
        header.attr_str(ETHTOOL_A_HEADER_DEV_NAME, link);
        if flags != 0 {
            header.attr_u32(ETHTOOL_A_HEADER_FLAGS, flags);
        }
    });
}

/// The bits that a switch is made of. A released feature gets back what was asked for.
fn switches<'a>((setting, value): &(&'a Setting, &'a Value)) -> Vec<(&'a str, bool)> {
    match value {
        Value::Switch(on) => vec![(setting.name(), *on)],
        Value::Features(bits) => {
            bits.iter().map(|(name, bit)| (name.as_str(), bit.is_wanted())).collect()
        }
        Value::Number(_) | Value::Words(_) => Vec::new(),
    }
}

fn words(value: &Value) -> Option<&BTreeSet<String>> {
    match value {
        Value::Words(words) => Some(words),
        _ => None,
    }
}

/// The kernel's name of a mode of FEC among the modes of links.
const FEC_MODES: [(&str, &str); 4] =
    [("off", "None"), ("rs", "RS"), ("baser", "BASER"), ("llrs", "LLRS")];

fn link_mode(word: &&str) -> Option<&'static str> {
    FEC_MODES.iter().find(|(ours, _)| ours == word).map(|(_, mode)| *mode)
}

#[derive(Clone, Copy)]
enum Bits<'a> {
    /// All others are off.
    All(&'a BTreeSet<&'a str>),
    /// All others stay.
    Some(&'a BTreeMap<&'a str, bool>),
}

fn put_bits(message: &mut MessageWriter<'_>, kind: u16, bits: Bits<'_>) {
    message.nest(kind, |set| {
        let is_all = matches!(bits, Bits::All(_));
        let bits: Vec<(&str, bool)> = match bits {
            Bits::All(names) => names.iter().map(|name| (*name, true)).collect(),
            Bits::Some(bits) => bits.iter().map(|(name, on)| (*name, *on)).collect(),
        };
        if is_all {
            set.attr_flag(ETHTOOL_A_BITSET_NOMASK);
        }
        set.nest(ETHTOOL_A_BITSET_BITS, |list| {
            for (name, on) in bits {
                list.nest(ETHTOOL_A_BITSET_BITS_BIT, |bit| {
                    bit.attr_str(ETHTOOL_A_BITSET_BIT_NAME, name);
                    if on && !is_all {
                        bit.attr_flag(ETHTOOL_A_BITSET_BIT_VALUE);
                    }
                });
            }
        });
    });
}

/// Reads the answer to [`get`].
pub(crate) fn read(message: &Message<'_>, group: Group) -> Result<Answer, Malformed> {
    let (_, attrs) = message.split::<4>()?;
    Ok(match group {
        Group::Features => Answer::Features(Features {
            hardware: names(&attrs, ETHTOOL_A_FEATURES_HW)?,
            wanted: names(&attrs, ETHTOOL_A_FEATURES_WANTED)?,
            active: names(&attrs, ETHTOOL_A_FEATURES_ACTIVE)?,
            never_changed: names(&attrs, ETHTOOL_A_FEATURES_NOCHANGE)?,
        }),
        Group::WakeOnLan => Answer::Modes(bits(&attrs, ETHTOOL_A_WOL_MODES)?),
        Group::PrivateFlags => Answer::Flags(bits(&attrs, ETHTOOL_A_PRIVFLAGS_FLAGS)?),
        Group::Fec => {
            let on = names(&attrs, ETHTOOL_A_FEC_MODES)?;
            let modes =
                FEC_MODES.iter().map(|(word, mode)| ((*word).to_owned(), on.contains(*mode)));
            let mut modes: BTreeMap<String, bool> = modes.collect();
            let auto = attrs.first(ETHTOOL_A_FEC_AUTO)?.map(|auto| auto.u8()).transpose()?;
            modes.insert("auto".to_owned(), auto.is_some_and(|auto| auto != 0));
            Answer::Modes(modes)
        }
        Group::Rings | Group::Channels | Group::Coalesce | Group::Pause => {
            let (mut values, mut most) = (BTreeMap::new(), BTreeMap::new());
            for spec in SPECS.iter().filter(|spec| spec.group == group) {
                if let Some(attr) = attrs.clone().first(spec.attr)? {
                    let value = match spec.form {
                        Form::Switch => u32::from(attr.u8()?),
                        Form::Number => attr.u32()?,
                    };
                    values.insert(spec.word, value);
                }
                let largest =
                    spec.most.map(|attr| attrs.clone().first(attr)).transpose()?.flatten();
                if let Some(largest) = largest {
                    most.insert(spec.word, largest.u32()?);
                }
            }
            Answer::Numbers { values, most }
        }
    })
}

/// Reads the answer to [`get_feature_names`].
pub(crate) fn read_feature_names(message: &Message<'_>) -> Result<BTreeSet<String>, Malformed> {
    let (_, attrs) = message.split::<4>()?;
    let mut names = BTreeSet::new();
    let Some(sets) = attrs.first(ETHTOOL_A_STRSET_STRINGSETS)? else { return Ok(names) };
    for set in sets.attrs() {
        let set = set?;
        let Some(strings) = set.attrs().first(ETHTOOL_A_STRINGSET_STRINGS)? else { continue };
        for string in strings.attrs().filter(is_string) {
            if let Some(text) = string?.attrs().first(ETHTOOL_A_STRING_VALUE)? {
                names.insert(text.str()?.to_owned());
            }
        }
    }
    // Gaps between the bits.
    names.remove("");
    Ok(names)
}

fn is_string(attr: &Result<Attr<'_>, Malformed>) -> bool {
    attr.as_ref().map_or(true, |attr| attr.kind == ETHTOOL_A_STRINGS_STRING)
}

/// The link that a notification is about.
pub(crate) fn link_of(message: &Message<'_>) -> Result<Option<String>, Malformed> {
    let (_, attrs) = message.split::<4>()?;
    let Some(header) = attrs.first(HEADER)? else { return Ok(None) };
    let name = header.attrs().first(ETHTOOL_A_HEADER_DEV_NAME)?;
    name.map(|name| Ok(name.str()?.to_owned())).transpose()
}

/// The bits that are on.
fn names(attrs: &Attrs<'_>, kind: u16) -> Result<BTreeSet<String>, Malformed> {
    let bits = bits(attrs, kind)?.into_iter();
    Ok(bits.filter(|(_, on)| *on).map(|(name, _)| name).collect())
}

/// Those that the kernel lists, and whether each is on.
fn bits(attrs: &Attrs<'_>, kind: u16) -> Result<BTreeMap<String, bool>, Malformed> {
    let mut found = BTreeMap::new();
    let Some(set) = attrs.clone().first(kind)? else { return Ok(found) };
    let is_all_on = set.attrs().first(ETHTOOL_A_BITSET_NOMASK)?.is_some();
    let Some(list) = set.attrs().first(ETHTOOL_A_BITSET_BITS)? else { return Ok(found) };
    for bit in list.attrs() {
        let bit = bit?;
        let name = match bit.attrs().first(ETHTOOL_A_BITSET_BIT_NAME)? {
            Some(name) => name.str()?.to_owned(),
            // A bit that the kernel has no name for.
            None => match bit.attrs().first(ETHTOOL_A_BITSET_BIT_INDEX)? {
                Some(index) => index.u32()?.to_string(),
                None => continue,
            },
        };
        let is_on = is_all_on || bit.attrs().first(ETHTOOL_A_BITSET_BIT_VALUE)?.is_some();
        found.insert(name, is_on);
    }
    Ok(found)
}

impl Features {
    /// The state of one feature of the kernel.
    pub(crate) fn bit(&self, name: &str) -> Bit {
        match (self.wanted.contains(name), self.active.contains(name)) {
            (true, true) => Bit::On,
            (false, false) => Bit::Off,
            (true, false) => Bit::OnlyWanted,
            (false, true) => Bit::NotWanted,
        }
    }

    pub(crate) fn is_fixed(&self, name: &str) -> bool {
        !self.hardware.contains(name) || self.never_changed.contains(name)
    }

    /// All that the link says anything of.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        let all = [&self.hardware, &self.wanted, &self.active, &self.never_changed];
        all.into_iter().flatten().map(String::as_str).collect()
    }
}

/// The link and the group of a key.
pub(crate) fn place(key: &Key) -> (&str, Group) {
    (&key.link, key.setting.group())
}

#[cfg(test)]
mod tests;
