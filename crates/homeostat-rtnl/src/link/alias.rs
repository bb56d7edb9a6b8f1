//! The alias of a link: the user's own words, and behind them our mark.
//!
//! Operators and SNMP read the alias, so that a mark must read well there and leave their words as
//! they are: `uplink to the office homeostat:default`.

use crate::link::LinkName;

/// What every mark begins with, for any owner.
pub(crate) const PREFIX: &str = "homeostat:";

/// The most bytes that the kernel keeps.
pub(crate) const MOST: usize = 255;

/// The user's own words of an alias, and the owner whose mark is behind them.
pub(crate) fn split(alias: &str) -> (&str, Option<&str>) {
    let (words, last) = alias.rsplit_once(' ').unwrap_or(("", alias));
    match last.strip_prefix(PREFIX) {
        Some(owner) if !owner.is_empty() => (words, Some(owner)),
        _ => (alias, None),
    }
}

/// An alias made of both. Where they do not fit together, the mark is kept whole.
pub(crate) fn join(words: &str, owner: &str) -> String {
    let room = MOST.saturating_sub(PREFIX.len() + owner.len() + 1);
    let mut len = words.len().min(room);
    while !words.is_char_boundary(len) {
        len -= 1;
    }
    match words.get(..len) {
        None | Some("") => format!("{PREFIX}{owner}"),
        Some(words) => format!("{words} {PREFIX}{owner}"),
    }
}

/// The alias of the other end of a pair, in another namespace. It names the owner for people who look there, but
/// not in the place of a mark: the end is never deleted by itself.
pub(crate) fn of_other_end(name: LinkName, owner: &str) -> String {
    format!("{PREFIX}{owner} other end of {name}")
}

/// Other words in front of whatever mark there is.
pub(crate) fn reworded(alias: Option<&str>, words: &str) -> String {
    match alias.and_then(|alias| split(alias).1) {
        Some(owner) => join(words, owner),
        None => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_the_last_word() {
        for (alias, words, owner) in [
            ("", "", None),
            ("uplink", "uplink", None),
            ("homeostat:default", "", Some("default")),
            ("to the office homeostat:blue", "to the office", Some("blue")),
            ("homeostat:blue is not ours", "homeostat:blue is not ours", None),
            ("x homeostat:", "x homeostat:", None),
        ] {
            assert_eq!(split(alias), (words, owner), "{alias}");
        }
    }

    #[test]
    fn words_and_mark_read_back() {
        for words in ["", "uplink", "two words"] {
            assert_eq!(split(&join(words, "default")), (words, Some("default")));
        }
        assert_eq!(reworded(Some("a homeostat:blue"), "b"), "b homeostat:blue");
        assert_eq!(reworded(Some("a"), "b"), "b");
    }

    #[test]
    fn the_other_end_of_a_pair_has_no_mark_of_its_own() {
        let alias = of_other_end("x0".parse().unwrap(), "default");
        assert_eq!(split(&alias), (alias.as_str(), None));
        assert!(alias.split(' ').any(|word| word == "homeostat:default"));
    }

    #[test]
    fn an_alias_never_outgrows_the_kernels_room() {
        let long = "ö".repeat(200);
        let alias = join(&long, "default");
        assert!(alias.len() <= MOST && alias.ends_with(" homeostat:default"));
    }
}
