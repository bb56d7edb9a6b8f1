//! An empty namespace into which `nft` loads a text, and what it says of it afterwards.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Output;

use homeostat_netlink::uapi::*;
use homeostat_netlink::{Connection, Family};
use homeostat_netns::Netns;

use crate::dump;
use crate::error::{CompileError, Error};
use crate::key::Key;
use crate::lexer::Position;
use crate::links::{self, Link};
use crate::listing;
use crate::model::{HookKind, Table};
use crate::program::{NftProcess, OLDEST, run, version};
use crate::ruleset::Ruleset;
use crate::wire::message_type;

/// The namespace is gone when this is dropped.
pub(crate) struct Scratch<'a> {
    netns: Netns,
    program: &'a OsStr,
    ruleset: &'a Ruleset,
}

impl<'a> Scratch<'a> {
    pub(crate) fn open(program: &'a OsStr, ruleset: &'a Ruleset) -> Result<Self, CompileError> {
        let netns = Netns::anonymous().map_err(CompileError::Scratch)?;
        Ok(Scratch { netns, program, ruleset })
    }

    pub(crate) fn connect(&self, family: Family) -> Result<Connection, Error> {
        Ok(Connection::open_in(&self.netns, family)?)
    }

    /// Makes links of the same names and numbers.
    pub(crate) fn create_links<'l>(
        &self,
        links: impl Iterator<Item = &'l Link>,
    ) -> Result<(), CompileError> {
        let mut links = links.peekable();
        if links.peek().is_some() {
            let mut connection = self.connect(Family::Route)?;
            links.try_for_each(|link| links::create(&mut connection, link)).map_err(Error::from)?;
        }
        Ok(())
    }

    pub(crate) fn load(&self, text: &str) -> Result<(), CompileError> {
        let name = &self.ruleset.name;
        let ran = self.run(&["-f", "-"], text)?;
        if let Some(signal) = ran.status.signal() {
            // A bug of `nft`: its message is lost.
            let words = format!("`nft` crashed on it (signal {signal})");
            return Err(CompileError::refused(&words, name, text));
        }
        if !ran.status.success() {
            return Err(CompileError::refused(&String::from_utf8_lossy(&ran.stderr), name, text));
        }
        // A command that prints, and that `lexer.rs` does not know.
        if !ran.stdout.is_empty() {
            return Err(CompileError::prints("list", name, Position { line: 0, column: 0 }));
        }
        Ok(())
    }

    /// The links that a text would hook into, found without loading it.
    pub(crate) fn hooked(&self, text: &str) -> BTreeSet<String> {
        let arguments = ["-c", "--debug=mnl", "-f", "-"];
        let mut parser = DebugParser::default();
        // Where it cannot be found out, the text stays refused for what `nft` said.
        let _ = self.netns.run(|| {
            hide_hosts();
            let running = NftProcess::start(self.program, &self.ruleset.directory, &arguments)?;
            running.finish_with_lines(text, &mut |line| parser.take(line))
        });
        parser.names()
    }

    /// Everything that was loaded.
    pub(crate) fn tables(&self) -> Result<Vec<Table>, CompileError> {
        let mut connection = self.connect(Family::Netfilter)?;
        let table = |head| dump::table(&mut connection, head, &mut dump::InParts::default());
        let heads = dump::heads(&mut self.connect(Family::Netfilter)?)?;
        Ok(heads.iter().map(table).collect::<Result<_, _>>()?)
    }

    /// Adds the rules in nft's own words. They are for people only: a failure costs nothing else.
    pub(crate) fn add_listing(&self, tables: &mut [Table]) {
        let listed = self.run(&["-t", "-a", "list", "ruleset"], "");
        let Some(listed) = listed.ok().filter(|ran| ran.status.success()) else { return };
        let mut texts = listing::read_rules(&String::from_utf8_lossy(&listed.stdout));
        for table in tables {
            for (handle, words) in texts.remove(&table.key).unwrap_or_default() {
                table.texts.entry(handle).or_default().listed = words;
            }
        }
    }

    /// A table as a text.
    pub(crate) fn listing(&self, key: &Key) -> Result<String, CompileError> {
        let family = key.family.to_string();
        let ran = self.run(&["list", "table", &family, &key.name], "")?;
        if !ran.status.success() {
            let words = String::from_utf8_lossy(&ran.stderr);
            return Err(CompileError::refused(&words, &self.ruleset.name, ""));
        }
        Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
    }

    fn run(&self, arguments: &[&str], text: &str) -> Result<Output, CompileError> {
        let directory = &self.ruleset.directory;
        let ran = self.netns.run(|| {
            hide_hosts();
            run(self.program, directory, arguments, text)
        });
        ran.map_err(CompileError::Scratch)?.map_err(|source| not_started(source, directory))
    }
}

/// A name would be frozen to what was found by it today. Where hosts cannot be hidden, only the names that
/// cannot be anything else are refused.
fn hide_hosts() {
    let _ = homeostat_netns::forget_hosts();
}

/// Whether `nft` is there and understands what is asked of it.
pub(crate) fn check_version(program: &OsStr, directory: &Path) -> Result<(), CompileError> {
    let ran = run(program, directory, &["--version"], "");
    let ran = ran.map_err(|source| not_started(source, directory))?;
    let words = String::from_utf8_lossy(&ran.stdout);
    let text = |version: [u32; 3]| version.map(|number| number.to_string()).join(".");
    match version(&words) {
        Some(version) if version >= OLDEST => Ok(()),
        version => {
            let found = version.map_or_else(|| format!("`{}`", words.trim()), text);
            Err(CompileError::TooOld { found, oldest: text(OLDEST) })
        }
    }
}

fn not_started(source: io::Error, directory: &Path) -> CompileError {
    match source.kind() {
        io::ErrorKind::NotFound if directory.is_dir() => CompileError::NoProgram,
        io::ErrorKind::TimedOut => CompileError::Endless { source },
        _ => CompileError::Start { source },
    }
}

/// Finds the links that `nft` is about to hook into, in what `nft --debug=mnl` prints of its messages, four bytes a
/// line. Only there includes, patterns, variables and lists are all resolved, whatever the kernel takes. What it does not
/// understand is left out: `nft` itself says then what was missing.
#[derive(Debug, Default)]
struct DebugParser {
    names: BTreeSet<String>,
    /// What is being printed, with its attributes as they are sent.
    open: Option<(HookKind, Vec<u8>)>,
}

impl DebugParser {
    fn take(&mut self, line: &str) {
        let line = plain(line);
        let mut columns = line.split('\t');
        let (Some(shown), Some(label)) = (columns.next(), columns.next()) else { return };
        let shown = shown.trim_matches('|');
        match (label.trim_matches(['|', ' ']), &mut self.open) {
            ("message length", _) => self.finish(),
            ("type | flags", open) => *open = hooking(shown).map(|kind| (kind, Vec::new())),
            ("len |flags| type", Some((_, attrs))) => attrs.extend(header(shown)),
            ("data", Some((_, attrs))) => attrs.extend(bytes(shown)),
            _ => {}
        }
    }

    /// All names, once everything was printed.
    fn names(mut self) -> BTreeSet<String> {
        self.finish();
        self.names
    }

    fn finish(&mut self) {
        if let Some((kind, attrs)) = self.open.take() {
            self.names.extend(kind.devices(&attrs).into_iter().map(str::to_owned));
        }
    }
}

fn hooking(shown: &str) -> Option<HookKind> {
    match shown.split('|').next()?.trim().parse::<u16>().ok()? ^ message_type(0) {
        NFT_MSG_NEWCHAIN => Some(HookKind::Chain),
        NFT_MSG_NEWFLOWTABLE => Some(HookKind::Flowtable),
        _ => None,
    }
}

/// A line without its colours.
fn plain(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once('m').map_or("", |(_, rest)| rest));
    std::iter::once(first).chain(rest).collect()
}

/// `00032|N-|00004`: length, flags and type of an attribute.
fn header(shown: &str) -> Vec<u8> {
    let mut parts = shown.split('|').map(str::trim);
    let mut next = || parts.next().unwrap_or_default();
    let (len, flags, kind) = (next(), next(), next());
    let nested = if flags.contains('N') { NLA_F_NESTED } else { 0 };
    let (len, kind): (u16, u16) = (len.parse().unwrap_or(0), kind.parse().unwrap_or(0));
    [len.to_ne_bytes(), (kind | nested).to_ne_bytes()].concat()
}

fn bytes(shown: &str) -> Vec<u8> {
    let pairs = shown.split_whitespace();
    pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "----------------\t------------------
|  0000000080  |\t| message length |
| 02563 | R--- |\t|  type | flags  |
|  0000000005  |\t| sequence number|
|  0000000000  |\t|     port ID    |
----------------\t------------------
| 05 00 00 00  |\t|  extra header  |
|\u{1b}[1;31m00006\u{1b}[0m|\u{1b}[1;32m--\u{1b}[0m|\u{1b}[1;34m00001\u{1b}[0m|\t|len |flags| type|
| 61 00 00 00  |\t|      data      |\t a
|\u{1b}[1;31m00032\u{1b}[0m|\u{1b}[1;32mN-\u{1b}[0m|\u{1b}[1;34m00004\u{1b}[0m|\t|len |flags| type|
|\u{1b}[1;31m00008\u{1b}[0m|\u{1b}[1;32m--\u{1b}[0m|\u{1b}[1;34m00001\u{1b}[0m|\t|len |flags| type|
| 00 00 00 00  |\t|      data      |
|\u{1b}[1;31m00008\u{1b}[0m|\u{1b}[1;32m--\u{1b}[0m|\u{1b}[1;34m00002\u{1b}[0m|\t|len |flags| type|
| 00 00 00 00  |\t|      data      |
|\u{1b}[1;31m00010\u{1b}[0m|\u{1b}[1;32m--\u{1b}[0m|\u{1b}[1;34m00003\u{1b}[0m|\t|len |flags| type|
| 6e 6f 70 65  |\t|      data      |\t n o p e
| 31 00 00 00  |\t|      data      |\t 1
----------------\t------------------";

    #[test]
    fn the_link_of_a_hook_is_read_from_the_message_that_is_shown() {
        let names = |shown: &str| {
            let mut parser = DebugParser::default();
            shown.lines().for_each(|line| parser.take(line));
            parser.names().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(names(SHOWN), ["nope1"]);
        // Another message says nothing of hooks, and neither does junk.
        assert!(names(&SHOWN.replace("02563", "02566")).is_empty());
        assert!(names("no\tjunk\n|\t|\n").is_empty());
        assert!(names(&SHOWN.replace("00032", "99999")).is_empty());
    }
}
