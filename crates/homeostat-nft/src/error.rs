//! What can go wrong between a text and the kernel: with the text (each fault with its place in the user's own
//! file), with `nft`, or with netlink.

use std::{fmt, io};

use homeostat_core::{Failure, Retry};
use homeostat_netlink::{Errno, Malformed};

use crate::key::Key;
use crate::lexer::Position;

/// A failed look or write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    #[error("cannot talk to nftables")]
    Netlink(#[from] homeostat_netlink::Error),
    #[error("the kernel's answer about {what} is malformed")]
    Malformed { what: &'static str, source: Malformed },
    #[error("the ruleset changed each of the {tries} times that it was read")]
    Moving { tries: u32 },
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let errno = match &error {
            Error::Netlink(error) => error.errno(),
            _ => None,
        };
        match errno {
            Some(Errno::PERM | Errno::ACCESS) => {
                Failure::from_error(&error, Retry::Never).with_help(NO_PERMISSION)
            }
            Some(Errno::MSGSIZE) => {
                Failure::from_error(&error, Retry::OnChange).with_help(TOO_LONG)
            }
            _ => Failure::from_error(&error, Retry::Soon),
        }
    }
}

impl From<Error> for CompileError {
    fn from(error: Error) -> Self {
        CompileError::ReadBack(Failure::from(error).error)
    }
}

pub(crate) const NO_PERMISSION: &str =
    "run it as root or with CAP_NET_ADMIN, or try it in a sandbox";

/// What `nft` calls the text that it is given.
const STDIN: &str = "/dev/stdin";

/// A transaction is longer than the send buffer of an unprivileged socket.
pub(crate) const TOO_LONG: &str = "without CAP_NET_ADMIN outside of the sandbox a transaction is limited by \
    net.core.wmem_max; run it as root, or raise that";

pub(crate) const NO_NAMES: &str =
    "names are not looked up while a ruleset is loaded; write addresses";

const NO_LINK: &str = "Interface does not exist";

/// A text that could not be compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The file cannot be read.
    #[error("cannot read `{name}`")]
    Read { name: String, source: io::Error },
    /// The file is too large to be a firewall.
    #[error("`{name}` has {size} bytes, which is more than a ruleset may have")]
    TooLarge { name: String, size: u64 },
    /// `nft` is not installed.
    #[error("`nft` is not installed")]
    NoProgram,
    /// `nft` is older than what this program understands.
    #[error("`nft` has version {found}, and at least {oldest} is needed")]
    TooOld { found: String, oldest: String },
    /// `nft` could not be started.
    #[error("`nft` cannot be started")]
    Start { source: io::Error },
    /// `nft` was ended, for it would not end by itself.
    #[error("`nft` was stopped")]
    Endless { source: io::Error },
    /// There is no place to load it.
    #[error("cannot make a scratch namespace for `nft`")]
    Scratch(#[source] homeostat_netns::Error),
    /// What was loaded could not be read back.
    #[error("cannot read back what `nft` loaded: {0}")]
    ReadBack(String),
    /// `nft` did not take it, or it asks for something that no ruleset can have.
    #[error("{}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Refused {
        faults: Vec<Fault>,
        /// The way out, where it is known before `nft` is asked.
        help: Option<&'static str>,
    },
    /// A comment leaves no room for our mark.
    #[error("the comment of `{table}` leaves no room for the mark of its owner")]
    LongComment { table: Key },
}

/// One thing that `nft` has against a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file, as the user calls it.
    pub file: String,
    /// The line, from one; zero if `nft` names none.
    pub line: u32,
    /// The column, from one.
    pub column: u32,
    /// How many columns it is about.
    pub width: u32,
    /// What is wrong, in nft's words, with the line that it is about.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            line => write!(f, "{}:{line}:{}: {}", self.file, self.column, self.message),
        }
    }
}

/// Of a longer line only a part is shown. Control characters are not shown: file and line say where they are.
const LONGEST: usize = 400;

impl Fault {
    /// The line of a text that it is about, and the byte at which its place begins.
    fn line<'t>(&self, text: &'t str) -> Option<(&'t str, usize)> {
        let line = text.lines().nth(self.line.checked_sub(1)? as usize)?;
        Some((line, self.column.checked_sub(1)? as usize))
    }

    /// The part of a long line around its place, with a mark below it as `nft` draws one.
    fn excerpt(&self, text: &str) -> Option<String> {
        const AROUND: usize = 40;
        let (line, column) = self.line(text)?;
        let (start, end) = (column.saturating_sub(AROUND), column + AROUND);
        let part = |from: usize, until: usize| -> String {
            let chars = line.char_indices().filter(|(at, _)| (from..until).contains(at));
            chars.map(|(_, c)| if c == '\t' { ' ' } else { c }).collect()
        };
        let dots = |is_cut: bool| if is_cut { "..." } else { "" };
        let before = format!("{}{}", dots(start > 0), part(start, column));
        let shown = format!("{before}{}{}", part(column, end), dots(end < line.len()));
        let mark = " ".repeat(before.chars().count());
        is_readable(&shown).then(|| format!("{shown}\n{mark}^"))
    }

    /// What stands at its place in a text: a name, with or without quotes.
    fn marked(&self, text: &str) -> Option<String> {
        let (line, start) = self.line(text)?;
        let marked = line.get(start..start + self.width as usize)?.trim_matches('"');
        let is_name = !marked.is_empty() && !marked.starts_with('$');
        is_name.then(|| marked.to_owned())
    }

    fn at(name: &str, Position { line, column }: Position, message: String) -> Self {
        Fault { file: name.to_owned(), line, column, width: 1, message }
    }
}

impl CompileError {
    pub(crate) fn prints(command: &str, name: &str, at: Position) -> Self {
        let message = format!("`{command}` is a command that prints, and no part of a ruleset");
        CompileError::invalid(name, at, message, Some("keep only the declarations of tables"))
    }

    /// What the text asks for at this place cannot be in a ruleset.
    pub(crate) fn invalid(
        name: &str,
        at: Position,
        message: String,
        help: Option<&'static str>,
    ) -> Self {
        CompileError::Refused { faults: vec![Fault::at(name, at, message)], help }
    }

    /// The links that `nft` missed, by what stands at the places of the text that it names.
    pub(crate) fn missing_links(&self, text: &str) -> Option<Vec<String>> {
        let missing = self.faults().iter().filter(|fault| fault.message.contains(NO_LINK));
        let names = missing.map(|fault| fault.marked(text)).collect::<Vec<_>>();
        // Other mistakes are reported once no link is missing any more.
        (!names.is_empty()).then(|| names.into_iter().flatten().collect())
    }

    /// Whether the kernel missed something that the text names.
    pub(crate) fn is_absence(&self) -> bool {
        self.has("No such file or directory")
    }

    /// What is wrong with the text, place by place.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        match self {
            CompileError::Refused { faults, .. } => faults,
            _ => &[],
        }
    }

    pub(crate) fn faults_mut(&mut self) -> &mut [Fault] {
        match self {
            CompileError::Refused { faults, .. } => faults,
            _ => &mut [],
        }
    }

    /// From what `nft` prints on its standard error about this text.
    pub(crate) fn refused(words: &str, name: &str, text: &str) -> Self {
        let (mut faults, mut is_cut) = (Vec::<Fault>::new(), false);
        for line in words.lines() {
            match (fault(line, name), faults.last_mut()) {
                (Some(fault), _) => {
                    is_cut = false;
                    faults.push(fault);
                }
                // With the line go the marks below it.
                (None, Some(_)) if is_cut => is_cut = false,
                (None, Some(last)) => {
                    is_cut = !is_readable(line);
                    let shown = match is_cut {
                        true if last.file == name => last.excerpt(text),
                        true => None,
                        false => Some(line.to_owned()),
                    };
                    last.message.extend(shown.map(|shown| format!("\n{shown}")));
                }
                (None, None) => faults.push(unplaced(line, name)),
            }
        }
        if faults.is_empty() {
            faults.push(unplaced("refused without a word", name));
        }
        CompileError::Refused { faults, help: None }
    }

    /// Whether a fault has these words in its message.
    fn has(&self, words: &str) -> bool {
        self.faults().iter().any(|fault| fault.message.contains(words))
    }

    /// For a report.
    pub(crate) fn failure(&self) -> Failure {
        Failure::soon(self).with_known_help(self.help().map(str::to_owned))
    }

    /// The way out, where there is one.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            CompileError::NoProgram => Some("install the package `nftables`"),
            CompileError::TooOld { .. } => Some("install a newer package `nftables`"),
            CompileError::Endless { .. } => {
                Some("include only files: a pipe or a device has no end")
            }
            CompileError::Refused { help: Some(help), .. } => Some(help),
            CompileError::LongComment { .. } => Some("shorten the comment"),
            CompileError::TooLarge { .. } => Some("keep large lists in sets that others fill"),
            _ if self.has(NO_LINK) => {
                Some("`iif` and `oif` want a link that exists; write `iifname` or `oifname`")
            }
            _ if self.has("Message too long") => Some(TOO_LONG),
            _ if self.has("esolve hostname") => Some(NO_NAMES),
            _ => None,
        }
    }
}

fn is_readable(line: &str) -> bool {
    let is_junk = |c: char| c.is_control() && c != '\t' || c == char::REPLACEMENT_CHARACTER;
    line.len() <= LONGEST && !line.contains(is_junk)
}

fn unplaced(line: &str, name: &str) -> Fault {
    Fault::at(name, Position { line: 0, column: 0 }, line.to_owned())
}

/// `FILE:LINE:COLUMN-COLUMN: Error: WORDS`.
fn fault(text: &str, name: &str) -> Option<Fault> {
    let (place, message) = text.split_once(": Error: ")?;
    let mut parts = place.rsplitn(3, ':');
    let (columns, line, file) = (parts.next()?, parts.next()?, parts.next()?);
    let (first, last) = columns.split_once('-')?;
    let (column, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    let width = last.saturating_sub(column).saturating_add(1);
    let file = if file == STDIN { name } else { file };
    let (file, line) = (file.to_owned(), line.parse().ok()?);
    Some(Fault { file, line, column, width, message: message.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_own_file_line_and_column_are_named() {
        let words = "/dev/stdin:7:32-32: Error: syntax error, unexpected '}'\n  chain x }\n          ^\n\
                     /etc/a:1:2-3: Error: no\n";
        let error = CompileError::refused(words, "fw.nft", "");
        let faults = error.faults();
        assert_eq!(faults.len(), 2);
        assert_eq!((faults[0].file.as_str(), faults[0].line, faults[0].column), ("fw.nft", 7, 32));
        assert!(faults[0].message.ends_with('^'), "{}", faults[0]);
        assert_eq!(faults[1].to_string(), "/etc/a:1:2: no");
    }

    #[test]
    fn missing_links_are_named_by_what_stands_at_their_place() {
        let words = "/dev/stdin:1:14-18: Error: Interface does not exist\ndefine wan = gone0\n";
        let error = CompileError::refused(words, "fw.nft", "");
        let names = error.missing_links("define wan = gone0");
        assert_eq!(names, Some(vec!["gone0".to_owned()]));
        let other = CompileError::refused("/dev/stdin:1:1-2: Error: syntax error\n", "fw.nft", "");
        assert_eq!(other.missing_links(""), None);
    }

    #[test]
    fn a_line_without_an_end_or_of_junk_is_not_repeated() {
        let words = "./x:1:1-1: Error: syntax error\n\u{fffd}\u{1b}[31m\n^\n";
        assert_eq!(CompileError::refused(words, "a", "").to_string(), "./x:1:1: syntax error");
        let words = format!("/dev/stdin:1:9-9: Error: no\n{}\n^\n", "x".repeat(5000));
        assert!(CompileError::refused(&words, "fw.nft", "").to_string().len() < 100);
    }

    #[test]
    fn of_a_long_line_the_part_around_the_place_is_shown() {
        let text = format!("# a\n\t{} wrong {}", "é".repeat(300), "y".repeat(900));
        let words = format!("/dev/stdin:2:603-607: Error: no\n{}\n^\n", "x".repeat(4096));
        let shown = format!(
            "fw.nft:2:603: no\n...{} wrong {}...\n{}^",
            "é".repeat(19),
            "y".repeat(34),
            " ".repeat(23)
        );
        assert_eq!(CompileError::refused(&words, "fw.nft", &text).to_string(), shown);
        let junk = text.replace("wrong", "wro\u{1b}");
        assert!(CompileError::refused(&words, "fw.nft", &junk).to_string().ends_with(": no"));
        let elsewhere = words.replace("/dev/stdin", "/etc/x");
        assert!(CompileError::refused(&elsewhere, "fw.nft", &text).to_string().ends_with(": no"));
    }

    #[test]
    fn words_without_a_place_are_kept() {
        let error = CompileError::refused("nft: something odd\n", "fw.nft", "");
        assert_eq!(error.to_string(), "fw.nft: nft: something odd");
        assert!(CompileError::refused("", "fw.nft", "").to_string().contains("without a word"));
    }
}
