//! The mark in an object's metadata: whose it is and, if asked for, which copy of the owner made it.

use std::fmt;

use homeostat_engine::{Owner, Seen};

/// Our mark, as text `owner`, `owner@instance`, `owner#generation` or `owner@instance#generation`.
///
/// An *instance* distinguishes copies of one owner (two clusters that were restored from one backup);
/// a *generation* distinguishes the lives of one instance. An owner's name must never change: what it
/// marked would have no owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    owner: String,
    instance: Option<String>,
    generation: Option<u64>,
    copies: Copies,
}

/// What a pass does with objects that carry our owner's name, but another instance or generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// They are reported as unknown, and not touched.
    #[default]
    Report,
    /// They are another owner's.
    Foreign,
    /// They are ours: what is not declared goes, what is declared is kept as it is marked.
    Ours,
}

/// Why a name cannot stand in a mark.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` cannot stand in a mark: it must have letters, and neither `@` nor `#`")]
#[expect(missing_docs, reason = "the names of its fields say it")]
#[non_exhaustive]
pub struct MarkerRefused {
    pub name: String,
}

impl Marker {
    /// The mark of an owner.
    pub fn new(owner: &str) -> Result<Self, MarkerRefused> {
        let owner = checked(owner)?;
        Ok(Marker { owner, instance: None, generation: None, copies: Copies::default() })
    }

    /// Distinguishes copies of the owner.
    pub fn with_instance(self, instance: &str) -> Result<Self, MarkerRefused> {
        Ok(Marker { instance: Some(checked(instance)?), ..self })
    }

    /// Distinguishes the lives of the owner.
    #[must_use]
    pub fn with_generation(self, generation: u64) -> Self {
        Marker { generation: Some(generation), ..self }
    }

    /// Says what becomes of objects of another instance or generation.
    #[must_use]
    pub fn with_copies(self, copies: Copies) -> Self {
        Marker { copies, ..self }
    }

    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    /// Whether this very text alone is ours.
    pub(super) fn is_alone(&self) -> bool {
        self.copies != Copies::Ours
    }

    pub(super) fn seen<K, O>(&self, key: K, object: O, mark: Option<&str>) -> Seen<K, O> {
        let owner = match mark {
            None => Owner::foreign("a stranger"),
            Some(mark) if mark == self.to_string() => Owner::Ours,
            Some(mark) if owner_of(mark) != self.owner => {
                Owner::Foreign(format!("owner {mark}").into())
            }
            Some(mark) => match self.copies {
                Copies::Ours => Owner::Ours,
                Copies::Foreign => Owner::Foreign(format!("a copy of us, marked {mark}").into()),
                Copies::Report => {
                    let why = format!("it is marked `{mark}`, and this is `{self}`: a copy of us?");
                    return Seen::Unknown { key, why };
                }
            },
        };
        Seen::Present { key, object, owner }
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.owner)?;
        if let Some(instance) = &self.instance {
            write!(f, "@{instance}")?;
        }
        self.generation.map_or(Ok(()), |generation| write!(f, "#{generation}"))
    }
}

fn checked(name: &str) -> Result<String, MarkerRefused> {
    let is_good = !name.is_empty() && !name.contains(['@', '#']);
    is_good.then(|| name.to_owned()).ok_or_else(|| MarkerRefused { name: name.to_owned() })
}

fn owner_of(mark: &str) -> &str {
    mark.split(['@', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(copies: Copies) -> Marker {
        let marker = Marker::new("me").unwrap().with_instance("east").unwrap();
        marker.with_generation(7).with_copies(copies)
    }

    #[track_caller]
    fn check(copies: Copies, mark: Option<&str>, expected: &str) {
        let owner = match marker(copies).seen("key", 1, mark) {
            Seen::Present { owner, .. } => owner.to_string(),
            Seen::Unknown { .. } => "unknown".to_owned(),
        };
        assert_eq!(owner, expected, "{mark:?}");
    }

    #[test]
    fn a_mark_is_ours_only_if_owner_instance_and_generation_are() {
        check(Copies::Report, Some("me@east#7"), "ours");
        check(Copies::Report, Some("you@east#7"), "owner you@east#7");
        check(Copies::Report, Some("mean@east#7"), "owner mean@east#7");
        check(Copies::Report, None, "a stranger");
    }

    #[test]
    fn a_copy_is_unknown_or_foreign_or_ours_as_the_owner_chose() {
        for copy in ["me@east#6", "me@west#7", "me@east", "me"] {
            check(Copies::Report, Some(copy), "unknown");
            check(Copies::Foreign, Some(copy), &format!("a copy of us, marked {copy}"));
            check(Copies::Ours, Some(copy), "ours");
        }
    }

    #[test]
    fn names_that_would_be_read_otherwise_are_refused() {
        for name in ["", "a@b", "a#1"] {
            assert!(Marker::new(name).is_err(), "{name:?}");
            assert!(Marker::new("me").unwrap().with_instance(name).is_err(), "{name:?}");
        }
    }
}
