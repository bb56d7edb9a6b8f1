//! Keeps secrets out of what programs say: a program that refuses a file may quote it.

use std::collections::BTreeSet;

use crate::model::DesiredState;

/// What stands for a word of a secret.
const MASK: &str = "***";
/// Shorter words say nothing.
const SHORTEST: usize = 3;
/// A word of this length that is a part of a secret, or has one as a part, is not there by chance.
const LONG: usize = 6;

/// What a program says, without the words that are in secret files of the set. Its paths and the numbers of lines after
/// them stay.
pub(crate) fn masked(desired: &DesiredState, words: &str) -> String {
    let secrets: Vec<String> = desired
        .iter()
        .filter(|(_, wanted)| wanted.object.is_secret())
        .filter_map(|(_, wanted)| wanted.content.as_ref())
        .map(|content| String::from_utf8_lossy(content.bytes()).into_owned())
        .collect();
    if secrets.is_empty() {
        return words.to_owned();
    }
    let paths: Vec<&str> =
        desired.iter().filter_map(|(key, _)| Some(key.path()?.as_str())).collect();
    mask(words, &secrets, &paths)
}

fn mask(words: &str, secrets: &[String], paths: &[&str]) -> String {
    let known: BTreeSet<&str> = secrets
        .iter()
        .flat_map(|text| text.split(is_between))
        .filter(|word| !word.is_empty())
        .collect();
    let is_secret = |word: &str| {
        word.len() >= SHORTEST
            && (known.contains(word)
                || word.len() >= LONG
                    && (secrets.iter().any(|text| text.contains(word))
                        || known.iter().any(|one| one.len() >= LONG && word.contains(one))))
    };
    let mut shown = String::with_capacity(words.len());
    let mut rest = words;
    while let Some(first) = rest.chars().next() {
        let path =
            paths.iter().filter(|path| rest.starts_with(**path)).max_by_key(|path| path.len());
        let (taken, is_masked) = if let Some(path) = path {
            let line = rest.get(path.len()..).unwrap_or_default();
            let line = line.len()
                - line.trim_start_matches(|c: char| c == ':' || c.is_ascii_digit()).len();
            (path.len() + line, false)
        } else if is_between(first) {
            (first.len_utf8(), false)
        } else {
            let length = rest.find(is_between).unwrap_or(rest.len());
            (length, rest.get(..length).is_some_and(is_secret))
        };
        let (word, after) = rest.split_at(taken);
        shown.push_str(if is_masked { MASK } else { word });
        rest = after;
    }
    shown
}

/// Whether a character separates words.
fn is_between(c: char) -> bool {
    !c.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_secrets_are_masked_and_places_stay() {
        let secrets = ["user admin password tops3cret-123\n".to_owned()];
        let paths = ["/etc/a.cfg", "/etc/password/a.cfg"];
        for (words, expected) in [
            ("no such keyword", "no such keyword"),
            ("unknown word 'tops3cret-123' in line 3", "unknown word '***-***' in line 3"),
            ("near ops3cre", "near ***"),
            ("xtops3cretx", "***"),
            ("/etc/password/a.cfg:123: admin", "/etc/password/a.cfg:123: ***"),
            ("[/etc/a.cfg:1] password", "[/etc/a.cfg:1] ***"),
        ] {
            assert_eq!(mask(words, &secrets, &paths), expected);
        }
    }
}
