//! What a program says of a set, before the set is there.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use homeostat_core::{Failure, Retry};
use homeostat_netns::Netns;

use crate::key::Key;
use crate::masking::masked;
use crate::model::DesiredState;
use crate::program::Ran;
use crate::programs::{Privileges, Profile};
use crate::view::View;

/// The program that judges a set.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The program by its absolute path, and its arguments.
    pub arguments: Vec<String>,
    pub network: Network,
    /// The known program to which it belongs.
    pub profile: Option<&'static Profile>,
}

/// The network that a program sees.
#[derive(Clone, Debug)]
pub enum Network {
    /// That of the caller.
    Here,
    In(Arc<Netns>),
    /// One that does not exist, by its name.
    Missing(String),
}

/// What it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The set is good; what it said all the same.
    Valid {
        warnings: String,
    },
    Refused(Refusal),
    /// Nothing is known: neither good nor bad.
    Unchecked {
        why: String,
    },
}

/// Why a set is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The file that is to blame, if the program names one of the set.
    pub key: Option<Key>,
    pub line: Option<usize>,
    /// The program's own words, and the lines that they are about.
    pub words: String,
}

impl Check {
    /// Asks the program, in a view in which the set is written and `removed` is gone.
    #[must_use]
    pub fn ask(&self, desired: &DesiredState, removed: Vec<Key>) -> Verdict {
        let netns = match &self.network {
            Network::Here => None,
            Network::In(netns) => Some(Arc::clone(netns)),
            Network::Missing(name) => {
                return Verdict::Unchecked {
                    why: format!("the namespace `{name}` does not exist"),
                };
            }
        };
        let privileges = self.profile.map_or(Privileges::Start, |profile| profile.privileges);
        let view = View { desired, removed, netns, privileges };
        self.judge(desired, view.run(&self.arguments))
    }

    fn judge(&self, desired: &DesiredState, ran: io::Result<Ran>) -> Verdict {
        let program = self.arguments.first().map(String::as_str).unwrap_or_default();
        match ran {
            Ok(ran) if ran.status.success() => {
                Verdict::Valid { warnings: masked(desired, &self.worth_showing(&ran)) }
            }
            Ok(ran) if ran.status.code().is_none() => {
                Verdict::Unchecked { why: format!("{program}: {}", ran.status) }
            }
            Ok(ran) if self.profile.is_some_and(|profile| (profile.is_undecided)(&ran.words)) => {
                let words = masked(desired, &self.worth_showing(&ran));
                Verdict::Unchecked { why: one_line(&words) }
            }
            Ok(ran) => Verdict::Refused(refusal(desired, &self.worth_showing(&ran))),
            Err(error) => Verdict::Unchecked { why: format!("{program}: {error}") },
        }
    }

    fn worth_showing(&self, ran: &Ran) -> String {
        let says = |line: &&str| self.profile.is_none_or(|profile| (profile.says)(line));
        ran.words.lines().filter(says).collect::<Vec<_>>().join("\n")
    }

    /// Whether a file is named to the program: it is the one that names the others.
    pub(crate) fn names(&self, key: &Key) -> bool {
        self.arguments
            .iter()
            .skip(1)
            .any(|argument| key.path().is_some_and(|path| path.as_str() == argument))
    }
}

impl PartialEq for Network {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Network::Here, Network::Here) => true,
            // Namespaces that cannot be compared are different.
            (Network::In(netns), Network::In(other)) => netns.same_as(other).unwrap_or(false),
            (Network::Missing(name), Network::Missing(other)) => name == other,
            _ => false,
        }
    }
}

impl Verdict {
    /// The key that is to blame, and why nothing is written; nothing, if it can be.
    pub(crate) fn failure(&self) -> Option<(Option<&Key>, Failure)> {
        match self {
            Verdict::Valid { .. } => None,
            Verdict::Refused(Refusal { key, words, .. }) => {
                let failure =
                    Failure::new(format!("its program refuses it: {words}"), Retry::OnChange);
                Some((key.as_ref(), failure))
            }
            Verdict::Unchecked { why } => {
                let failure = Failure::new(format!("it could not be checked: {why}"), Retry::Soon);
                Some((None, failure))
            }
        }
    }
}

/// The lines around a mistake are shown, so many before and after it.
const AROUND: usize = 1;
/// So many of a program's lines are kept.
const MOST_LINES: usize = 12;

fn refusal(desired: &DesiredState, words: &str) -> Refusal {
    let mut quoted = one_line(&masked(desired, words));
    let files = desired.iter().filter(|(key, _)| !key.is_directory());
    let blamed = files.filter_map(|(key, wanted)| {
        let (at, line) = place(words, key.path()?.as_str())?;
        Some((line.is_none(), at, key, line, wanted))
    });
    let Some((_, _, key, line, wanted)) = blamed.min_by_key(|(no_line, at, ..)| (*no_line, *at))
    else {
        return Refusal { key: None, line: None, words: quoted };
    };
    if let (Some(number), Some(content), false) = (line, &wanted.content, wanted.object.is_secret())
    {
        let text = String::from_utf8_lossy(content.bytes());
        let first = number.saturating_sub(1 + AROUND);
        for (at, line) in text.lines().enumerate().skip(first).take(2 * AROUND + 1) {
            // Writing to a string cannot fail.
            let _ = write!(quoted, "; {}: {}", at + 1, line.trim_end());
        }
    }
    Refusal { key: Some(key.clone()), line, words: quoted }
}

fn one_line(words: &str) -> String {
    let lines = words.lines().map(str::trim).filter(|line| !line.is_empty()).take(MOST_LINES);
    lines.collect::<Vec<_>>().join("; ")
}

/// Where words speak of a file, and the number of the line that follows its path: `a.cfg:3`, `[a.cfg:3]`,
/// `a.cfg line 3`; or before it: `line 3 in file a.cfg`.
fn place(words: &str, path: &str) -> Option<(usize, Option<usize>)> {
    let found = words.match_indices(path).map(|(at, _)| {
        let before = words.get(..at).and_then(|before| before.strip_suffix(" in file "));
        let before = before.and_then(|before| before.rsplit_once("line ")?.1.parse().ok());
        if before.is_some() {
            return (at, before);
        }
        let rest = words.get(at + path.len()..).unwrap_or_default();
        let rest = rest.trim_start_matches([':', ' ', '\'', '"', ',', '(', '[', ')']);
        let rest =
            ["Line ", "line "].iter().find_map(|word| rest.strip_prefix(word)).unwrap_or(rest);
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        (at, digits.parse().ok().filter(|line| *line > 0))
    });
    found.min_by_key(|(at, line)| (line.is_none(), *at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_mistake_is_found_in_the_words_of_programs() {
        let path = "/etc/a.cfg";
        for (words, expected) in [
            ("[ALERT] (7) : config : parsing [/etc/a.cfg:3] : unknown keyword", Some(3)),
            ("/etc/a.cfg:12: error: syntax error", Some(12)),
            ("nginx: [emerg] unknown directive \"x\" in /etc/a.cfg:4", Some(4)),
            ("(/etc/a.cfg: Line 9) Unknown keyword", Some(9)),
            ("/etc/a.cfg, line 2: no", Some(2)),
            ("/etc/a.cfg:4:1 syntax error", Some(4)),
            ("Fatal error : Invalid directive at line 7 in file /etc/a.cfg", Some(7)),
            ("cannot read /etc/a.cfg", None),
        ] {
            assert_eq!(place(words, path).unwrap().1, expected, "{words}");
        }
        assert_eq!(place("nothing", path), None);
    }
}
