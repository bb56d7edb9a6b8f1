//! From declared guests to a desired state: names checked, values in normal form.

use std::collections::BTreeMap;

use homeostat_core::desired::find_near;
use homeostat_core::{Agreement, Desired, Slot};

use crate::model::{Guest, Kind, Vmid, Wanted};
use crate::{mark, normalize};

/// The desired state of all declared guests, sorted by number.
#[derive(Clone, Debug, Default)]
pub struct DesiredState {
    guests: Vec<(Vmid, Wanted)>,
}

impl DesiredState {
    /// Checks the declared guests; their options need not be in normal form.
    pub fn new(guests: impl IntoIterator<Item = (Vmid, Wanted)>) -> Result<Self, DesiredError> {
        let mut sorted = BTreeMap::new();
        for (vmid, mut wanted) in guests {
            if !Vmid::VALID.contains(&vmid.0) {
                return Err(DesiredError::Number(vmid));
            }
            for (option, value) in &mut wanted.options {
                *value = normal_option(wanted.kind, option, value)?;
            }
            if sorted.insert(vmid, wanted).is_some() {
                return Err(DesiredError::Twice(vmid));
            }
        }
        Ok(DesiredState { guests: sorted.into_iter().collect() })
    }

    /// In key order.
    pub fn iter(&self) -> impl Iterator<Item = (&Vmid, &Wanted)> {
        self.guests.iter().map(|(key, wanted)| (key, wanted))
    }

    pub(crate) fn at(&self, slot: Slot) -> (&Vmid, &Wanted) {
        let (key, wanted) = &self.guests[slot.index()];
        (key, wanted)
    }

    #[must_use]
    pub fn wanted(&self, key: &Vmid) -> Option<&Wanted> {
        self.slot(key, None).map(|slot| self.at(slot).1)
    }

    /// The declared options that are not as declared.
    pub(crate) fn differing(&self, slot: Slot, seen: &Guest) -> Vec<&str> {
        let wanted = self.at(slot).1;
        let differs = |(option, value): &(&String, &String)| {
            let seen = seen.option(option);
            !normalize::is_hidden(seen) && !normalize::agrees(wanted.kind, option, value, seen)
        };
        wanted.options.iter().filter(differs).map(|(option, _)| option.as_str()).collect()
    }
}

impl Desired for DesiredState {
    type Key = Vmid;
    type Object = Guest;

    fn len(&self) -> usize {
        self.guests.len()
    }

    fn slot(&self, key: &Vmid, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.guests, near, |desired| desired.0.cmp(key))
    }

    fn key(&self, slot: Slot) -> Vmid {
        *self.at(slot).0
    }

    fn object(&self, slot: Slot) -> Guest {
        let Wanted { kind, run, options, .. } = self.at(slot).1.clone();
        let is_marked = !options.is_empty();
        Guest { kind, run, options, unread: None, is_marked }
    }

    fn compare(&self, slot: Slot, seen: &Guest) -> Agreement {
        let wanted = self.at(slot).1;
        let run_differs = wanted.run.is_some_and(|run| seen.run.is_some_and(|seen| seen != run));
        if let Some(why) = seen.unread.as_ref().filter(|_| wanted.is_configured()) {
            let why = format!("its configuration cannot be read: {why}");
            return Agreement::Unsure { differs: run_differs, why };
        }
        let lacks_mark = wanted.is_configured() && !seen.is_marked;
        let differs = run_differs || lacks_mark || !self.differing(slot, seen).is_empty();
        let mut declared = wanted.options.keys();
        if let Some(hidden) = declared.find(|option| normalize::is_hidden(seen.option(option))) {
            let why = format!("the target does not show the value of `{hidden}`");
            return Agreement::Unsure { differs, why };
        }
        if wanted.run.is_some() && seen.run.is_none() {
            let why = "whether it runs is not known".to_owned();
            return Agreement::Unsure { differs, why };
        }
        Agreement::when(!differs)
    }

    fn may_adopt(&self, slot: Slot) -> bool {
        self.at(slot).1.adopt
    }

    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        self.at(slot).1 == other.at(there).1
    }

    fn shown(&self, guest: &Guest) -> serde_json::Value {
        let mut shown = serde_json::to_value(guest).unwrap_or_default();
        if let Some(fields) = shown.as_object_mut() {
            fields.retain(|name, _| name != "is_marked");
        }
        shown
    }
}

/// Why a guest cannot be declared like that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DesiredError {
    #[error("guests have numbers from 100 to 999999999, and `{}` is none", .0.0)]
    Number(Vmid),
    #[error("`{0}` is declared twice")]
    Twice(Vmid),
    /// A name that no option has.
    #[error("`{0}` is no option of a guest")]
    Option(String),
    /// A name that is no option but part of a request.
    #[error("`{0}` cannot be declared")]
    Refused(String),
    /// An option that the target does not show.
    #[error("`{0}` cannot be declared: the target does not show it, so that it cannot be kept")]
    Secret(String),
    /// A description that the target loses.
    #[error("a description of `0` is lost by the target")]
    LostDescription,
    /// A tag that the target would not take.
    #[error("`{0}` is no tag: letters, digits and `_`, then also `-`, `+` and `.`")]
    Tag(String),
    /// A tag that looks like a mark.
    #[error("the tag `{0}` is a mark of homeostat")]
    Mark(String),
    #[error("`{option}` is a number, and `{value}` is none")]
    NoNumber { option: String, value: String },
}

impl DesiredError {
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            DesiredError::Secret(_) => Some("set it at the target, such as by `qm set`"),
            DesiredError::LostDescription => Some("write any other text"),
            DesiredError::Mark(_) => Some("marks are written by themselves; leave it out"),
            DesiredError::Option(_) => Some("options are called as in the API, such as `onboot`"),
            _ => None,
        }
    }
}

/// Checks an option, and brings its value to normal form.
pub(crate) fn normal_option(kind: Kind, option: &str, value: &str) -> Result<String, DesiredError> {
    let is_name = option.starts_with(|c: char| c.is_ascii_lowercase())
        && option.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c));
    if !is_name {
        return Err(DesiredError::Option(option.to_owned()));
    }
    match option {
        // These are parts of a request, or would change more than a value.
        "background_delay" | "delete" | "digest" | "force" | "lock" | "node" | "revert"
        | "skiplock" | "template" | "vmid" | "parent" | "vmgenid" => {
            return Err(DesiredError::Refused(option.to_owned()));
        }
        unused if unused.starts_with("unused") => {
            return Err(DesiredError::Refused(option.to_owned()));
        }
        // Quirk `secrets-are-stars` (Proxmox VE 8): `cipassword` reads back as stars, whatever it is.
        secret if secret.contains("password") || secret.contains("secret") => {
            return Err(DesiredError::Secret(option.to_owned()));
        }
        "description" if value.trim_end_matches('\n') == "0" => {
            return Err(DesiredError::LostDescription);
        }
        "tags" => normalize::tags(value).into_iter().try_for_each(|tag| {
            match (normalize::is_tag(&tag), mark::is_mark(&tag)) {
                (false, _) => Err(DesiredError::Tag(tag)),
                (_, true) => Err(DesiredError::Mark(tag)),
                _ => Ok(()),
            }
        })?,
        "cores" | "cpuunits" | "memory" | "swap" | "sockets" if !value.is_empty() => {
            let number = value.strip_prefix("current=").unwrap_or(value).trim();
            number.parse::<u64>().map_err(|_| DesiredError::NoNumber {
                option: option.to_owned(),
                value: value.to_owned(),
            })?;
        }
        _ => {}
    }
    Ok(normalize::normal(kind, option, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Stop;

    #[track_caller]
    fn check(option: &str, value: &str, expected: Result<&str, DesiredError>) {
        let wanted = Wanted {
            kind: Kind::Lxc,
            node: None,
            run: None,
            stop: Stop::default(),
            options: BTreeMap::from([(option.to_owned(), value.to_owned())]),
            adopt: false,
        };
        let found = DesiredState::new([(Vmid(101), wanted)]).map(|desired| {
            desired.wanted(&Vmid(101)).and_then(|wanted| wanted.options.get(option).cloned())
        });
        assert_eq!(found, expected.map(|value| Some(value.to_owned())), "{option} = {value:?}");
    }

    #[test]
    fn options_are_checked_and_brought_to_normal_form() {
        check("tags", "b a", Ok("a;b"));
        check("tags", "-a", Err(DesiredError::Tag("-a".to_owned())));
        let mark = "homeostat-default+101.0a";
        check("tags", mark, Err(DesiredError::Mark(mark.to_owned())));
        check("description", "0", Err(DesiredError::LostDescription));
        check("description", "", Ok(""));
        check("digest", "x", Err(DesiredError::Refused("digest".to_owned())));
        check("cipassword", "x", Err(DesiredError::Secret("cipassword".to_owned())));
        check("unused0", "x", Err(DesiredError::Refused("unused0".to_owned())));
        check("Net0", "x", Err(DesiredError::Option("Net0".to_owned())));
        let none = DesiredError::NoNumber { option: "cores".to_owned(), value: "two".to_owned() };
        check("cores", "two", Err(none));
    }
}
