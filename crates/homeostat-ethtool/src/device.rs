//! What links say of their settings, group by group, and what that means for a key.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_netlink::{Answer as Reply, Batch, Connection, Errno, Error, Refusal, generic};

use crate::absence::Absence;
use crate::key::Key;
use crate::message::{self, Answer, FAMILY, Features};
use crate::model::Value;
use crate::setting::{Form, Group, Setting, stands_for};

/// What some groups of some links are.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    groups: BTreeMap<(String, Group), Result<Answer, Why>>,
    /// All features that the kernel has.
    feature_names: BTreeSet<String>,
    pub(crate) has_family: bool,
}

/// Why a group is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    NoLink,
    /// The driver has nothing of the kind.
    Unsupported,
    Unknown(String),
}

/// What a key is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Is { value: Value, limits: Limits },
    Absent(Absence),
    Unknown(String),
}

/// What a setting can be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The driver does not let it be changed.
    pub is_fixed: bool,
    /// The largest number.
    pub most: Option<u32>,
    /// The modes that there are.
    pub modes: Option<BTreeSet<String>>,
}

impl Devices {
    /// Reads the groups that the keys are in, with one exchange.
    pub(crate) fn read<'a>(
        connection: &mut Connection,
        keys: impl IntoIterator<Item = &'a Key> + Clone,
    ) -> Result<Self, Error> {
        let Some(family) = generic::family(connection, FAMILY)? else {
            return Ok(Devices::default());
        };
        let places: BTreeSet<(&str, Group)> =
            keys.clone().into_iter().map(message::place).collect();
        let places: Vec<(&str, Group)> = places.into_iter().collect();
        let mut batch = Batch::new();
        for (link, group) in &places {
            message::get(&mut batch, family, link, *group)?;
        }
        let mut devices = Devices { has_family: true, ..Devices::default() };
        connection.run(&mut batch, &mut |index, reply| {
            let Some((link, group)) = places.get(index) else { return };
            let answer = match reply {
                Reply::Reply(message) => message::read(&message, *group)
                    .map_err(|error| Why::Unknown(Error::Malformed(error).to_string())),
                Reply::Refused(refusal) => Err(why(&refusal)),
                Reply::Unknown => Err(Why::Unknown("the answer was lost".to_owned())),
                Reply::Done => return,
            };
            devices.groups.insert(((*link).to_owned(), *group), answer);
        })?;
        let is_unheard_of = |key: &&Key| match (&key.setting, devices.group(key)) {
            (Setting::Feature(name), Some(Ok(Answer::Features(features)))) => {
                !features.names().iter().any(|feature| stands_for(name, feature))
            }
            _ => false,
        };
        if keys.into_iter().any(|key| is_unheard_of(&key)) {
            devices.feature_names = feature_names(connection, family)?;
        }
        Ok(devices)
    }

    fn group(&self, key: &Key) -> Option<&Result<Answer, Why>> {
        self.groups.get(&(key.link.clone(), key.setting.group()))
    }

    /// What a key is.
    pub(crate) fn look(&self, key: &Key) -> Look {
        if !self.has_family {
            return Look::Absent(Absence::NoFamily);
        }
        let answer = match self.group(key) {
            Some(Ok(answer)) => answer,
            Some(Err(Why::NoLink)) => return Look::Absent(Absence::NoLink),
            Some(Err(Why::Unsupported)) => return Look::Absent(Absence::Unsupported),
            Some(Err(Why::Unknown(why))) => return Look::Unknown(why.clone()),
            None => return Look::Unknown("the kernel did not answer".to_owned()),
        };
        let found = |value, limits| Look::Is { value, limits };
        match (&key.setting, answer) {
            (Setting::Feature(name), Answer::Features(features)) => self.feature(name, features),
            (Setting::Number(spec), Answer::Numbers { values, most }) => {
                let most = most.get(spec.word).copied();
                match values.get(spec.word) {
                    // A driver without such rings or queues says that there may be none.
                    _ if most == Some(0) => Look::Absent(Absence::NoSetting),
                    None => Look::Absent(Absence::NoSetting),
                    Some(number) => {
                        let value = match spec.form {
                            Form::Number => Value::Number(*number),
                            Form::Switch => Value::Switch(*number != 0),
                        };
                        found(value, Limits { most, ..Limits::default() })
                    }
                }
            }
            (Setting::WakeOnLan | Setting::Fec, Answer::Modes(modes)) => {
                let on = modes.iter().filter(|(_, on)| **on).map(|(name, _)| name.clone());
                let modes = Some(modes.keys().cloned().collect());
                found(Value::Words(on.collect()), Limits { modes, ..Limits::default() })
            }
            (Setting::PrivateFlag(name), Answer::Flags(flags)) => match flags.get(name) {
                Some(on) => found(Value::Switch(*on), Limits::default()),
                None => Look::Absent(Absence::NoFlag { flags: flags.keys().cloned().collect() }),
            },
            _ => Look::Unknown("the kernel answered something else".to_owned()),
        }
    }

    /// The features that a name stands for. Those that cannot be changed do not count, unless there are no others.
    fn feature(&self, name: &str, features: &Features) -> Look {
        let heard_of = self.feature_names.iter().map(String::as_str);
        let names = features.names().into_iter().chain(heard_of);
        let names: BTreeSet<&str> = names.filter(|feature| stands_for(name, feature)).collect();
        if names.is_empty() {
            return Look::Absent(Absence::no_feature(name, &self.feature_names));
        }
        let is_fixed = names.iter().all(|name| features.is_fixed(name));
        let counting = names.into_iter().filter(|name| is_fixed || !features.is_fixed(name));
        let bits = counting.map(|name| (name.to_owned(), features.bit(name)));
        let value = Value::Features(bits.collect());
        Look::Is { value, limits: Limits { is_fixed, ..Limits::default() } }
    }
}

pub(crate) fn why(refusal: &Refusal) -> Why {
    match refusal.errno {
        Errno::NODEV | Errno::NXIO => Why::NoLink,
        Errno::OPNOTSUPP => Why::Unsupported,
        _ => Why::Unknown(refusal.to_string()),
    }
}

fn feature_names(connection: &mut Connection, family: u16) -> Result<BTreeSet<String>, Error> {
    let mut batch = Batch::new();
    message::get_feature_names(&mut batch, family)?;
    let (mut names, mut bad) = (BTreeSet::new(), None);
    connection.ask(&mut batch, &mut |message| match message::read_feature_names(&message) {
        Ok(found) => names = found,
        Err(error) => bad = Some(error),
    })?;
    bad.map_or(Ok(names), |bad| Err(Error::Malformed(bad)))
}
