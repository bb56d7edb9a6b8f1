//! From declared guests to a desired state: names checked, values in normal form.

use std::collections::{BTreeMap, BTreeSet};

use crate::mark;
use crate::model::{DesiredState, Key, Kind, Vmid, Wanted};
use crate::normalize;

/// What is no option of a guest, but part of a request, or would change more than a value.
const REFUSED: [&str; 12] = [
    "background_delay",
    "delete",
    "digest",
    "force",
    "lock",
    "node",
    "revert",
    "skiplock",
    "template",
    "vmid",
    "parent",
    "vmgenid",
];

/// The target gives no smaller number to a guest.
const FIRST: u32 = 100;

/// Why a guest cannot be declared like that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DesiredError {
    /// A number that no guest has.
    #[error("guests have numbers from {FIRST} to 999999999, and `{0}` is none")]
    Number(u32),
    /// A guest is declared twice.
    #[error("`{0}` is declared twice")]
    Twice(Key),
    /// A name that no option has.
    #[error("`{0}` is no option of a guest")]
    Option(String),
    /// A name that is no option but part of a request.
    #[error("`{0}` cannot be declared")]
    Refused(String),
    /// A description that the target loses.
    #[error("a description of `0` is lost by the target")]
    LostDescription,
    /// A tag that the target would not take.
    #[error("`{0}` is no tag: letters, digits and `_`, then also `-`, `+` and `.`")]
    Tag(String),
    /// A tag that looks like a mark.
    #[error("the tag `{0}` is a mark of homeostat")]
    Mark(String),
    /// A value that is no number.
    #[error("`{option}` is a number, and `{value}` is none")]
    NoNumber {
        /// The option.
        option: String,
        /// Its value.
        value: String,
    },
}

impl DesiredError {
    /// The way out.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            DesiredError::LostDescription => Some("write any other text"),
            DesiredError::Mark(_) => Some("marks are written by themselves; leave it out"),
            DesiredError::Option(_) => Some("options are called as in the API, such as `onboot`"),
            _ => None,
        }
    }
}

/// Gathers guests.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    desired_states: BTreeMap<Key, Wanted>,
}

impl Builder {
    /// Adds a guest; its options need not be in normal form.
    pub fn guest(mut self, vmid: u32, mut wanted: Wanted) -> Result<Self, DesiredError> {
        if !(FIRST..=999_999_999).contains(&vmid) {
            return Err(DesiredError::Number(vmid));
        }
        let kind = wanted.kind;
        let options = std::mem::take(&mut wanted.options);
        for (option, value) in options {
            let value = checked(kind, &option, &value)?;
            wanted.options.insert(option, value);
        }
        let key = Key(Vmid(vmid));
        match self.desired_states.insert(key, wanted) {
            None => Ok(self),
            Some(_) => Err(DesiredError::Twice(key)),
        }
    }

    /// The desired state.
    #[must_use]
    pub fn build(self) -> DesiredState {
        DesiredState::from_sorted(self.desired_states.into_iter().collect())
    }
}

fn checked(kind: Kind, option: &str, value: &str) -> Result<String, DesiredError> {
    let is_name = option.starts_with(|c: char| c.is_ascii_lowercase())
        && option.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c));
    if !is_name {
        return Err(DesiredError::Option(option.to_owned()));
    }
    if REFUSED.contains(&option) || option.starts_with("unused") {
        return Err(DesiredError::Refused(option.to_owned()));
    }
    match option {
        "description" if value.trim_end_matches('\n') == "0" => {
            return Err(DesiredError::LostDescription);
        }
        "tags" => check_tags(&normalize::tags(value))?,
        "cores" | "cpuunits" | "memory" | "swap" | "sockets" if !value.is_empty() => {
            check_number(option, value)?;
        }
        _ => {}
    }
    Ok(normalize::normal(kind, option, value))
}

fn check_tags(tags: &BTreeSet<String>) -> Result<(), DesiredError> {
    for tag in tags {
        if !normalize::is_tag(tag) {
            return Err(DesiredError::Tag(tag.clone()));
        }
        if mark::is_mark(tag) {
            return Err(DesiredError::Mark(tag.clone()));
        }
    }
    Ok(())
}

fn check_number(option: &str, value: &str) -> Result<(), DesiredError> {
    let number = value.strip_prefix("current=").unwrap_or(value).trim();
    let wrong = || DesiredError::NoNumber { option: option.to_owned(), value: value.to_owned() };
    number.parse::<u64>().map(|_| ()).map_err(|_| wrong())
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
        let built = DesiredState::builder().guest(101, wanted).map(Builder::build);
        let found = built.map(|desired| {
            desired.wanted(&Key(Vmid(101))).and_then(|wanted| wanted.options.get(option).cloned())
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
        check("unused0", "x", Err(DesiredError::Refused("unused0".to_owned())));
        check("Net0", "x", Err(DesiredError::Option("Net0".to_owned())));
        let none = DesiredError::NoNumber { option: "cores".to_owned(), value: "two".to_owned() };
        check("cores", "two", Err(none));
    }
}
