//! Commands that clear what others may have left: they mean nothing in an empty namespace.
//!
//! Debian's own `nftables.conf` begins with `flush ruleset`. Such commands before the first table are
//! blanked, so that lines and columns of everything else stay; later ones act inside the scratch only.

use crate::statements::{self, At};

/// A ruleset without the commands that clear at its beginning.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cleared {
    /// The text, as long as before.
    pub(crate) text: String,
    /// The commands that mean nothing.
    pub(crate) commands: Vec<String>,
}

/// Blanks the commands that clear before anything is made.
pub(crate) fn clear(text: &str) -> Cleared {
    let mut cleared = Cleared { text: text.to_owned(), commands: Vec::new() };
    let mut at = 0;
    while let Some(command) = next_command(text, at) {
        let words: Vec<&str> = text.get(command.clone()).unwrap_or("").split_whitespace().collect();
        match words[..] {
            ["flush", "ruleset", ..] | ["delete" | "destroy" | "flush", "table", ..] => {
                cleared.commands.push(words.join(" "));
                let blank = " ".repeat(command.len());
                cleared.text.replace_range(command.clone(), &blank);
            }
            ["define" | "redefine" | "undefine", ..] => {}
            _ => break,
        }
        at = command.end;
    }
    cleared
}

/// The place of the next command from `at` on, without comments before and after it.
fn next_command(text: &str, mut at: usize) -> Option<std::ops::Range<usize>> {
    loop {
        let rest = text.get(at..)?;
        let start = at + rest.find(|c: char| !c.is_whitespace() && c != ';')?;
        let rest = text.get(start..)?;
        let line = rest.find('\n').unwrap_or(rest.len());
        if rest.starts_with('#') {
            at = start + line;
            continue;
        }
        let end = rest.find([';', '\n', '#', '{']).unwrap_or(rest.len());
        return Some(start..start + end);
    }
}

/// Where a table wants to be owned by the program that loads it.
///
/// Quirk `owned-tables-die` (Linux 6.18): a table with `flags owner` goes with the `nft` that made it.
pub(crate) fn owner_wanted(text: &str) -> Option<At> {
    let mut start = 0;
    text.split_inclusive('\n').find_map(|line| {
        let mut at = start;
        start += line.len();
        let code = line.split('#').next().unwrap_or("");
        code.split(['{', ';', '}']).find_map(|statement| {
            let here = at + statement.len() - statement.trim_start().len();
            at += statement.len() + 1;
            wants_owner(statement).then(|| statements::at(text, here))
        })
    })
}

fn wants_owner(statement: &str) -> bool {
    let mut words = statement.split([' ', '\t', ',', '\n']).filter(|word| !word.is_empty());
    words.next() == Some("flags") && words.any(|word| word == "owner")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str, commands: &[&str]) {
        let cleared = clear(text);
        assert_eq!(cleared.text, expected);
        assert_eq!(cleared.commands, commands);
        assert_eq!(cleared.text.len(), text.len());
    }

    #[test]
    fn commands_that_clear_are_blanked_before_the_first_table() {
        check(
            "#!/usr/sbin/nft -f\nflush ruleset\n\ntable ip a {}\n",
            "#!/usr/sbin/nft -f\n             \n\ntable ip a {}\n",
            &["flush ruleset"],
        );
        check(
            "define x = 1\ndelete table ip a; destroy table ip b # gone\ntable ip a {}",
            "define x = 1\n                 ;                    # gone\ntable ip a {}",
            &["delete table ip a", "destroy table ip b"],
        );
    }

    #[test]
    fn what_comes_after_the_first_table_stays() {
        for text in ["table ip a {}\ndelete table ip a\n", "add table ip a\nflush ruleset", ""] {
            check(text, text, &[]);
        }
    }

    #[test]
    fn the_desired_state_to_be_owned_is_seen_where_it_is_one() {
        let place = |text| owner_wanted(text).map(|at| (at.line, at.column));
        assert_eq!(place("table ip a { flags owner; }"), Some((1, 14)));
        assert_eq!(place("table ip a {\n\tflags dormant, owner\n}"), Some((2, 2)));
        for text in ["# flags owner", "set s { flags interval; } # owner", "comment \"owner\""] {
            assert_eq!(place(text), None, "{text}");
        }
    }
}
