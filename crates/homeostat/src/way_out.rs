//! The command that resolves a key that is not as declared, as it is typed into a shell. Pure.

use homeostat_document::HOST;
use homeostat_engine::{HeldBy, Kind};

/// How the daemon is reached: the program with the options that find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invocation(String);

impl Default for Invocation {
    fn default() -> Self {
        Invocation("homeostat".to_owned())
    }
}

impl Invocation {
    /// These options are not the usual ones, and have to be given.
    pub(crate) fn with(options: &[(&str, &str)]) -> Self {
        let options =
            options.iter().flat_map(|(option, value)| [(*option).to_owned(), quoted(value)]);
        let words: Vec<String> = [Invocation::default().0].into_iter().chain(options).collect();
        Invocation(words.join(" "))
    }

    /// A command with its arguments.
    pub(crate) fn command(&self, words: &[&str]) -> String {
        let words = words.iter().map(|word| quoted(word));
        [self.0.clone()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
    }

    /// What a person would run about a key that is open in this way. Nothing where no command can help: what it waits for
    /// has to come, or the document has to be changed.
    pub(crate) fn resolves(
        &self,
        scope: &str,
        key: &str,
        kind: Kind,
        held_by: Option<HeldBy>,
    ) -> Option<String> {
        let place = if scope == HOST { vec![] } else { vec!["--scope", scope] };
        let about = |verb| [vec![verb, key], place].concat();
        let words = match (kind, held_by) {
            (Kind::Conflict, _) => about("adopt"),
            (Kind::Held, Some(HeldBy::DeleteBudget)) => vec!["resync", "--allow-mass-delete"],
            (Kind::Held, Some(HeldBy::Cascade)) => vec!["resync", "--allow-cascades"],
            (Kind::Held, Some(HeldBy::Backoff)) | (Kind::Failed | Kind::Unknown, _) => {
                vec!["resync"]
            }
            _ => return None,
        };
        Some(self.command(&words))
    }
}

/// A word as a shell reads it back.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_as_it_is_printed() {
        let rows = [
            ("eth0", "eth0"),
            ("route 10.0.0.0/8", "'route 10.0.0.0/8'"),
            ("", "''"),
            ("it's", r"'it'\''s'"),
            ("$(reboot)", "'$(reboot)'"),
            ("a;b", "'a;b'"),
        ];
        for (word, expected) in rows {
            assert_eq!(quoted(word), expected);
        }
        let invocation = Invocation::with(&[("--owner", "lab"), ("--state-dir", "/var/my state")]);
        assert_eq!(
            invocation.command(&["adopt", "route 10.0.0.0/8"]),
            "homeostat --owner lab --state-dir '/var/my state' adopt 'route 10.0.0.0/8'"
        );
    }

    #[test]
    fn each_kind_of_trouble_has_the_command_that_resolves_it() {
        let check = |kind, held_by, expected: Option<&str>| {
            let command = Invocation::default().resolves(HOST, "link br0", kind, held_by);
            assert_eq!(command.as_deref(), expected);
        };
        check(Kind::Conflict, None, Some("homeostat adopt 'link br0'"));
        check(Kind::Held, Some(HeldBy::DeleteBudget), Some("homeostat resync --allow-mass-delete"));
        check(Kind::Held, Some(HeldBy::Cascade), Some("homeostat resync --allow-cascades"));
        check(Kind::Failed, None, Some("homeostat resync"));
        check(Kind::Held, Some(HeldBy::MissingSection), None);
        check(Kind::Pending, None, None);
        let elsewhere = Invocation::default().resolves("blue", "link br0", Kind::Conflict, None);
        assert_eq!(elsewhere.as_deref(), Some("homeostat adopt 'link br0' --scope blue"));
    }
}
