//! The text, and what is checked and changed in it before `nft` sees it. Pure, but for [`Ruleset::read`].

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{CompileError, NO_NAMES};
use crate::include::{Included, expand};
use crate::lexer::{Ends, Position, code, position, printing, statements};

/// A text in nft's own language.
#[derive(Clone, Debug, Hash)]
pub struct Ruleset {
    pub text: Arc<str>,
    /// What errors call it.
    pub name: String,
    /// Where what it includes is looked for.
    pub directory: PathBuf,
    /// What stands for the root in absolute paths of what it includes: `/`, or the directory of copies.
    pub root: PathBuf,
}

impl Ruleset {
    /// The text of a file.
    pub fn read(path: &Path) -> Result<Self, CompileError> {
        let name = path.display().to_string();
        let refused = |source| CompileError::Read { name: name.clone(), source };
        let meta = std::fs::metadata(path).map_err(refused)?;
        // A pipe would be waited for, and a device may never end.
        if !meta.is_file() {
            return Err(refused(std::io::Error::other("this is not a regular file")));
        }
        let size = meta.len();
        if size > LARGEST {
            return Err(CompileError::TooLarge { name, size });
        }
        let bytes = std::fs::read(path).map_err(refused)?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let (before, rest) = error.as_bytes().split_at_checked(valid).unwrap_or_default();
            let at = position(&String::from_utf8_lossy(before), valid);
            not_text(rest.first().copied().unwrap_or_default(), &name, at)
        })?;
        if !text.is_empty() && !text.ends_with('\n') {
            let at = position(&text, text.trim_end_matches(|c| c != '\n').len());
            let message = "the last line has no end: the file may be half-written";
            let help = Some("end it with a newline");
            return Err(CompileError::invalid(&name, at, message.to_owned(), help));
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new(".")).to_owned();
        Ok(Ruleset { text: text.into(), name, directory, root: "/".into() })
    }

    /// What it includes, and where more of it may come from.
    #[must_use]
    pub fn included(&self) -> Included {
        expand(self).0
    }

    /// Refuses what need not be tried: what is no text, tables with an owner, names of hosts, commands that print.
    pub(crate) fn check(&self) -> Result<(), CompileError> {
        let Ruleset { text, name, .. } = self;
        if let Some(nul) = text.find('\0') {
            return Err(not_text(0, name, position(text, nul)));
        }
        if let Some(at) = owner_wanted(text) {
            let message = "a table with `flags owner` goes with the program that loaded it";
            let help = "leave `owner` out: the mark is in the comment";
            return Err(CompileError::invalid(name, at, message.to_owned(), Some(help)));
        }
        if let Some((host, at)) = named_host(text) {
            let message = format!("`{host}` is the name of a host");
            return Err(CompileError::invalid(name, at, message, Some(NO_NAMES)));
        }
        match printing(text) {
            Some((command, at)) => Err(CompileError::prints(command, name, at)),
            None => Ok(()),
        }
    }
}

fn not_text(byte: u8, name: &str, at: Position) -> CompileError {
    CompileError::invalid(name, at, format!("this is no text (byte {byte:#04x})"), None)
}

/// More than this is no firewall. A set of a million addresses needs a fifth of it.
pub(crate) const LARGEST: u64 = 64 << 20;

/// A ruleset without the commands that clear at its beginning.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Blanked {
    /// The text, as long as before.
    pub(crate) text: String,
    /// The commands that mean nothing.
    pub(crate) commands: Vec<String>,
}

/// Blanks commands that delete or flush before anything is created: Debian's own `nftables.conf` begins with `flush
/// ruleset`, which means nothing in an empty namespace. Lines and columns of everything else stay; later commands act
/// inside of the scratch namespace only.
pub(crate) fn blank_flushes(text: &str) -> Blanked {
    let mut blanked = Blanked { text: text.to_owned(), commands: Vec::new() };
    for command in statements(text, 0..text.len(), Ends::WithBlock) {
        let command_text = text.get(command.clone()).unwrap_or_default();
        let words = code(command_text).map(|token| token.text);
        let words: Vec<&str> = words.take_while(|word| *word != "{").collect();
        match words[..] {
            ["flush", "ruleset", ..] | ["delete" | "destroy" | "flush", "table", ..] => {
                blanked.commands.push(words.join(" "));
                let blank = " ".repeat(command.len());
                blanked.text.replace_range(command, &blank);
            }
            ["define" | "redefine" | "undefine", ..] if !command_text.contains('{') => {}
            _ => break,
        }
    }
    blanked
}

/// Where a table wants to be owned by the program that loads it.
///
/// Quirk `owned-tables-die` (Linux 6.18): a table with `flags owner` goes with the `nft` that made it.
pub(crate) fn owner_wanted(text: &str) -> Option<Position> {
    let (mut begins, mut flags) = (true, None);
    let start = code(text).find_map(|token| {
        let is_first = std::mem::replace(&mut begins, matches!(token.text, "{" | "}" | ";" | "\n"));
        if is_first || begins {
            flags = (token.text == "flags").then_some(token.start);
        }
        flags.filter(|_| token.text == "owner")
    })?;
    Some(position(text, start))
}

/// The first name of a host, with its place.
///
/// `nft` looks names up while it loads a text. Where hosts can be hidden from it, it finds none; elsewhere a service may
/// answer on a local socket or from `/etc/hosts`, and the firewall would be what the answer was that day. So what cannot
/// be anything else is refused before: a name with a dot and a letter, right after `ip saddr` and the like.
pub(crate) fn named_host(text: &str) -> Option<(&str, Position)> {
    let mut looking = Looking::default();
    let mut words = code(text).filter(|token| token.text != "\n");
    let host = words.find(|word| looking.take(word.text))?;
    Some((host.text, position(text, host.start)))
}

/// What the words so far say of the next one.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Looking {
    #[default]
    Around,
    /// Behind `ip` or `ip6`.
    AtField,
    /// Behind `ip saddr`.
    AtAddress,
    /// At the beginning of an element of a list of addresses.
    AtElement,
    InsideElement,
}

impl Looking {
    /// Takes a word: whether it is the name of a host.
    fn take(&mut self, word: &str) -> bool {
        use Looking::{Around, AtAddress, AtElement, AtField, InsideElement};
        let (next, is_address) = match (*self, word) {
            (AtField, "saddr" | "daddr") | (AtAddress, "!=" | "==" | "ne" | "eq") => {
                (AtAddress, false)
            }
            (AtAddress, "{") | (InsideElement, ",") => (AtElement, false),
            (AtElement | InsideElement, "}") => (Around, false),
            (AtElement, _) => (InsideElement, true),
            (InsideElement, _) => (InsideElement, false),
            (state, "ip" | "ip6") if state != AtAddress => (AtField, false),
            (state, _) => (Around, state == AtAddress),
        };
        *self = next;
        is_address && is_host(word)
    }
}

fn is_host(word: &str) -> bool {
    let is_dotted = word.contains('.') && word.contains(|c: char| c.is_ascii_alphabetic());
    let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c));
    word == "localhost" || is_dotted && is_plain && word.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str, commands: &[&str]) {
        let blanked = blank_flushes(text);
        assert_eq!(blanked.text, expected);
        assert_eq!(blanked.commands, commands);
        assert_eq!(blanked.text.len(), text.len());
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

#[cfg(test)]
mod host_tests {
    use super::*;

    #[test]
    fn names_are_found_where_addresses_belong() {
        let check = |text: &str, expected: (&str, u32, u32)| {
            let found = named_host(text).map(|(name, at)| (name, at.line, at.column));
            assert_eq!(found, Some(expected), "{text}");
        };
        check("ip saddr www.example.org accept", ("www.example.org", 1, 10));
        check("\n\tip6 daddr != localhost drop", ("localhost", 2, 15));
        check("ip saddr { 10.0.0.1,\n  db.lan, 10.0.0.2 } drop", ("db.lan", 2, 3));
        check("ip saddr {10.0.0.1,db.lan} drop", ("db.lan", 1, 20));
        check("accept comment \"# a\"; ip saddr db.lan drop", ("db.lan", 1, 32));
    }

    #[test]
    fn whatever_else_stands_there_is_no_name() {
        for text in [
            "ip saddr 10.0.0.1 ip daddr 10.0.0.0/8 tcp dport 22 accept",
            "ip6 saddr ::ffff:10.0.0.1 accept",
            "ip saddr { 10.0.0.1-10.0.0.9, 10.1.0.0/16 } accept",
            "ip saddr . tcp dport { 10.0.0.1 . 22 } accept",
            "add @s { ip saddr timeout 1.5s }",
            "ip saddr @eth0.10 accept",
            "ip saddr $www.lan accept",
            "ip saddr map { 10.0.0.1 : 10.0.0.2 }",
            "# ip saddr www.example.org",
            "ip protocol tcp iifname eth0.10 accept",
            "ip daddr 10.0.0.1 oifname localhost",
            "iifname { eth0.10, eth0.20 } ip saddr 10.0.0.1",
            "accept comment \"ip saddr www.example.org\"",
            "comment \"a # b\" # ip saddr www.example.org",
            "ip saddr \"x\" www.example.org",
        ] {
            assert!(named_host(text).is_none(), "{text}");
        }
    }
}
