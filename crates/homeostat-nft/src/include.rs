//! A text with the files that it includes in their places, and where each line of that comes from.
//!
//! Includes are read once, as `nft` would read them, so that what is checked and shown is what is loaded. Start at
//! [`expand`].

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::error::{CompileError, Fault};
use crate::lexer::{position, tokens};
use crate::ruleset::{LARGEST, Ruleset};

/// As deep as `nft` goes, the text itself counted.
const DEEPEST: usize = 16;

/// More files than this are a mistake: a few that include each other twice make any number of them.
const MOST: usize = 4096;

/// What `nft` searches by itself.
const USUAL: &str = "etc";

const NOTHING_MEANT: &str = "to mean that it has no rules, write a comment";

/// A ruleset in one piece.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Expanded {
    /// With the text that is loaded.
    pub(crate) ruleset: Ruleset,
    origins: Origins,
}

/// What a text includes: if one of these changes, so does the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Included {
    /// The files, and those that would be taken if they were there.
    pub files: BTreeSet<PathBuf>,
    /// Where more files may come that a pattern stands for.
    pub directories: BTreeSet<PathBuf>,
}

impl Expanded {
    /// File and line of a line of the whole text.
    pub(crate) fn place(&self, line: usize) -> String {
        let (file, line) = self.origins.of(line);
        format!("{}:{line}", file.name)
    }

    /// An error about the whole text, as one about the files that it is made of.
    pub(crate) fn placed(&self, mut error: CompileError) -> CompileError {
        let is_about_it = |fault: &&mut Fault| fault.line > 0 && fault.file == self.ruleset.name;
        for fault in error.faults_mut().iter_mut().filter(is_about_it) {
            let (file, line) = self.origins.of(fault.line as usize);
            fault.file.clone_from(&file.name);
            fault.line = u32::try_from(line).unwrap_or(u32::MAX);
            if let Some(by) = &file.included_by {
                let end = fault.message.find('\n').unwrap_or(fault.message.len());
                fault.message.insert_str(end, &included_by(by));
            }
        }
        error
    }
}

fn included_by(place: &str) -> String {
    format!(" (included by {place})")
}

/// What a text includes, as far as it can be read, and the text in one piece.
pub(crate) fn expand(ruleset: &Ruleset) -> (Included, Result<Expanded, CompileError>) {
    let origins = Origins::new(&ruleset.name);
    if includes(&ruleset.text).is_empty() {
        return (Included::default(), Ok(Expanded { ruleset: ruleset.clone(), origins }));
    }
    let Ruleset { directory, root, .. } = ruleset;
    let (text, included) = (String::new(), Included::default());
    let mut expanding = Expanding { directory, root, text, ended: 0, origins, included };
    let done = expanding.expand(Level { text: &ruleset.text, file: 0, depth: 1 });
    let Expanding { text, origins, included, .. } = expanding;
    let ruleset = Ruleset { text: text.into(), ..ruleset.clone() };
    (included, done.map(|()| Expanded { ruleset, origins }))
}

/// A text that is being expanded.
struct Expanding<'a> {
    directory: &'a Path,
    root: &'a Path,
    text: String,
    /// How many lines of it have ended.
    ended: usize,
    origins: Origins,
    included: Included,
}

/// A file in which includes are looked for.
#[derive(Clone, Copy)]
struct Level<'a> {
    text: &'a str,
    file: usize,
    depth: usize,
}

impl Expanding<'_> {
    fn expand(&mut self, level: Level<'_>) -> Result<(), CompileError> {
        let part = |from, until| level.text.get(from..until).unwrap_or_default();
        let (mut from, mut line) = (0, 1);
        for include in includes(level.text) {
            // `nft` itself reports what it does not find.
            let Some(paths) = self.find(include.wanted) else { continue };
            self.push(part(from, include.start));
            for path in paths {
                let by = line + ends(part(from, include.start));
                self.include(&path, level, &include, by)?;
            }
            line += ends(part(from, include.end));
            self.begin(level.file, line);
            // The text that follows keeps its column.
            let before = part(0, include.end);
            self.push(&" ".repeat(before.len() - before.rfind('\n').map_or(0, |end| end + 1)));
            from = include.end;
        }
        self.push(part(from, level.text.len()));
        Ok(())
    }

    fn include(
        &mut self,
        path: &Path,
        level: Level<'_>,
        include: &Include<'_>,
        line: usize,
    ) -> Result<(), CompileError> {
        let by = &self.origins.files[level.file];
        let outermost = by.included_by.clone().unwrap_or_else(|| format!("{}:{line}", by.name));
        let refused = |message: String| {
            let by_whom = by.included_by.as_deref().map(included_by).unwrap_or_default();
            let at = position(level.text, include.start);
            Err(CompileError::invalid(&by.name, at, message + &by_whom, None))
        };
        if level.depth == DEEPEST {
            return refused(format!("Include nested too deeply, max {DEEPEST} levels"));
        }
        if self.origins.files.len() > MOST {
            return refused(format!("more than {MOST} files are included"));
        }
        let Ruleset { text, name, .. } = Ruleset::read(path)?;
        if text.is_empty() {
            // Its rules would go while those of the others stay.
            let at = position("", 0);
            let message = "the file is empty: it may be half-written".to_owned();
            return Err(CompileError::invalid(&name, at, message, Some(NOTHING_MEANT)));
        }
        let size = (self.text.len() + text.len()) as u64;
        if size > LARGEST {
            return Err(CompileError::TooLarge { name, size });
        }
        let file = self.origins.files.len();
        self.origins.files.push(File { name, included_by: Some(outermost) });
        self.begin(file, 1);
        self.expand(Level { text: &text, file, depth: level.depth + 1 })
    }

    /// From the next line on it is this file, from this line on.
    fn begin(&mut self, file: usize, line: usize) {
        self.push("\n");
        self.origins.runs.push(Run { first: self.ended + 1, file, line });
    }

    fn push(&mut self, part: &str) {
        self.ended += ends(part);
        self.text.push_str(part);
    }

    /// The files that an include stands for, in the order in which `nft` reads them; nothing if it would
    /// miss one.
    ///
    /// Quirk `later-paths-first` (nft 1.0.6): a file is taken from the first directory that has it, and
    /// `/etc` is the first one; but of a pattern, the files of the last directory are read first.
    fn find(&mut self, wanted: &str) -> Option<Vec<PathBuf>> {
        let usual = self.root.join(USUAL);
        let bases = match wanted {
            _ if wanted.starts_with('/') => vec![self.root],
            _ if wanted.starts_with("./") || wanted.starts_with("../") => vec![self.directory],
            _ => vec![&*usual, self.directory],
        };
        let Included { files, directories } = &mut self.included;
        if is_pattern(wanted) {
            let found = bases.iter().rev();
            let found = found.flat_map(|base| glob(base, wanted, directories));
            let found: Vec<_> = found.collect();
            files.extend(found.iter().cloned());
            return Some(found);
        }
        let in_base = |base: &&Path| {
            let start = base.to_path_buf();
            parts(wanted).fold(start, |place, part| in_directory(&place, part.as_ref()))
        };
        let mut candidates = bases.iter().map(in_base);
        let found = candidates.find(|path| {
            files.insert(path.clone());
            path.symlink_metadata().is_ok()
        })?;
        // `nft` reads nothing from a directory.
        Some(if found.is_dir() { Vec::new() } else { vec![found] })
    }
}

/// How many lines end in a part of a text.
fn ends(part: &str) -> usize {
    part.matches('\n').count()
}

#[derive(Clone, Debug, Hash)]
struct File {
    /// What errors call it.
    name: String,
    /// The place in the text itself that includes it, perhaps by way of others.
    included_by: Option<String>,
}

/// Where the lines of the whole text come from.
#[derive(Clone, Debug, Hash)]
struct Origins {
    /// The text itself, then what it includes.
    files: Vec<File>,
    /// In the order of the whole text.
    runs: Vec<Run>,
}

/// Lines of one file that follow each other.
#[derive(Clone, Debug, Hash)]
struct Run {
    /// The line of the whole text that it begins with, from one.
    first: usize,
    file: usize,
    /// The line of the file that this is.
    line: usize,
}

impl Origins {
    fn new(name: &str) -> Self {
        let main = File { name: name.to_owned(), included_by: None };
        Origins { files: vec![main], runs: vec![Run { first: 1, file: 0, line: 1 }] }
    }

    /// The file, and the line of it, that a line of the whole text is.
    fn of(&self, line: usize) -> (&File, usize) {
        let after = self.runs.partition_point(|run| run.first <= line);
        let run = &self.runs[after.saturating_sub(1)];
        (&self.files[run.file], run.line + line - run.first)
    }
}

/// Whether something may stand for many files, of which none need be there.
fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The files of a pattern below a directory. The directories that were read for it are added to `read`.
fn glob(base: &Path, wanted: &str, read: &mut BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut found = vec![base.to_owned()];
    for part in parts(wanted) {
        found = found.iter().flat_map(|place| glob_part(place, part, read)).collect();
    }
    found.retain(|path| path.symlink_metadata().is_ok() && !path.is_dir());
    found.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    found
}

fn parts(wanted: &str) -> impl Iterator<Item = &str> {
    wanted.split('/').filter(|part| !part.is_empty() && *part != ".")
}

fn glob_part(place: &Path, part: &str, read: &mut BTreeSet<PathBuf>) -> Vec<PathBuf> {
    if !is_pattern(part) {
        return vec![in_directory(place, OsStr::new(part))];
    }
    read.insert(place.to_owned());
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let is_meant = |name: &OsStr| {
        let is_hidden = name.as_bytes().starts_with(b".") && !part.starts_with('.');
        !is_hidden && matches(part.as_bytes(), name.as_bytes())
    };
    let names = entries.map(|entry| entry.file_name()).filter(|name| is_meant(name));
    names.map(|name| in_directory(place, &name)).collect()
}

/// What is in the working directory is called by its name alone.
fn in_directory(place: &Path, name: &OsStr) -> PathBuf {
    if place == Path::new(".") { PathBuf::from(name) } else { place.join(name) }
}

/// Whether a name is one that a pattern stands for.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len())
            .any(|skipped| name.get(skipped..).is_some_and(|name| matches(rest, name))),
        ([b'[', rest @ ..], [c, name @ ..]) => match class(rest, *c) {
            Some((is_in, rest)) => is_in && matches(rest, name),
            None => *c == b'[' && matches(rest, name),
        },
        ([b'?', rest @ ..], [_, name @ ..]) => matches(rest, name),
        ([one, rest @ ..], [c, name @ ..]) => one == c && matches(rest, name),
        _ => false,
    }
}

/// Whether a byte is in a class, and what follows it; nothing, if the class has no end.
fn class(text: &[u8], c: u8) -> Option<(bool, &[u8])> {
    let (is_without, text) = match text {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    // The first one belongs to it, even if it looks like its end.
    let end = 1 + text.get(1..)?.iter().position(|one| *one == b']')?;
    let (mut members, rest) = (text.get(..end)?, text.get(end + 1..)?);
    let mut is_in = false;
    while let [first, others @ ..] = members {
        (is_in, members) = match others {
            [b'-', last, others @ ..] => (is_in || (*first..=*last).contains(&c), others),
            _ => (is_in || *first == c, others),
        };
    }
    Some((is_in != is_without, rest))
}

/// An `include` statement, as `nft` reads it.
#[derive(Debug, PartialEq, Eq)]
struct Include<'a> {
    /// Where it begins.
    start: usize,
    /// Behind what it names.
    end: usize,
    /// What it names.
    wanted: &'a str,
}

const WORD: &str = "include";

/// In the order of the text. One that is malformed is left to `nft`, which reports it.
fn includes(text: &str) -> Vec<Include<'_>> {
    if !text.contains(WORD) {
        return Vec::new();
    }
    let (mut tokens, mut before, mut found) = (tokens(text).peekable(), "\n", Vec::new());
    while let Some(token) = tokens.next() {
        if token.text.starts_with('#') {
            continue;
        }
        let begins = matches!(std::mem::replace(&mut before, token.text), "\n" | ";" | "{");
        if begins
            && token.text == WORD
            && let Some(named) = tokens.next_if(|next| next.text.starts_with('"'))
            && let Some(wanted) = named.text.get(1..).and_then(|named| named.strip_suffix('"'))
            && tokens.peek().is_some_and(|next| next.text.starts_with([';', '\n', '#']))
        {
            found.push(Include { start: token.start, end: named.end(), wanted });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a directory, and the whole of the first one, each line with its place.
    fn whole(files: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(root.path().join(name), text).unwrap();
        }
        let ruleset = Ruleset::read(&root.path().join(files[0].0)).unwrap();
        let expanded = expand(&ruleset).1.unwrap();
        let lines = expanded.ruleset.text.lines().enumerate();
        let shown = lines.filter(|(_, line)| !line.trim().is_empty()).map(|(nth, line)| {
            let place = expanded.place(nth + 1);
            format!("{} {}", place.rsplit('/').next().unwrap(), line.trim_end())
        });
        shown.collect()
    }

    #[test]
    fn every_line_has_its_own_file_and_number_and_every_word_its_column() {
        let found = whole(&[
            ("main", "one\ntwo; include \"./p*\"; three\n{ include \"./q\"\nfour }\n"),
            ("p1", "a\n\nb\n"),
            ("p2", "include \"./q\"\nc\n"),
            ("q", "d\n"),
        ]);
        let expected = [
            "main:1 one",
            "main:2 two;",
            "p1:1 a",
            "p1:3 b",
            "q:1 d",
            "p2:2 c",
            "main:2                    ; three",
            "main:3 {",
            "q:1 d",
            "main:4 four }",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_include_that_is_not_found_is_left_to_nft() {
        let text = "include \"./nowhere\"\nadd table ip a\n";
        assert_eq!(whole(&[("main", text)])[0], "main:1 include \"./nowhere\"");
    }

    #[test]
    fn all_files_and_directories_to_watch_are_returned() {
        let root = tempfile::tempdir().unwrap();
        let text = "include \"x.nft\"\ninclude \"./none*\"\ninclude \"/nonexistent/y\"\n";
        let directory = root.path().to_owned();
        let ruleset =
            Ruleset { text: text.into(), name: "main".to_owned(), directory, root: "/".into() };
        std::fs::write(root.path().join("x.nft"), "include \"./z\"\n").unwrap();
        let included = ruleset.included();
        let files = ["/etc/x.nft".into(), "/nonexistent/y".into(), root.path().join("x.nft")];
        let files: BTreeSet<_> = files.into_iter().chain([root.path().join("z")]).collect();
        assert_eq!(included.files, files);
        assert_eq!(included.directories, [root.path().to_owned()].into());
    }
}

#[cfg(test)]
mod glob_tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_glob() {
        for (pattern, names, others) in [
            ("*.nft", &["a.nft", ".nft"][..], &["a.nft~", "nft"][..]),
            ("a?c", &["abc"], &["ac", "abbc"]),
            ("[0-9][!x]*", &["1a", "5bcd"], &["1x", "aa", "1"]),
            ("[]-]z", &["]z", "-z"], &["az"]),
            ("[a", &["[a"], &["a"]),
            ("*a*b", &["ab", "xaxbxb"], &["ba", "abx"]),
            (r"\*", &[r"\x"], &["*"]),
        ] {
            let check = |name: &&str| matches(pattern.as_bytes(), name.as_bytes());
            assert!(names.iter().all(check), "{pattern}: {names:?}");
            assert!(!others.iter().any(check), "{pattern}: {others:?}");
        }
    }

    #[test]
    fn files_come_in_byte_order_without_directories_and_hidden_ones() {
        let root = tempfile::tempdir().unwrap();
        for path in ["b/x.nft", "b-c/x.nft", "a/x.nft", "a/.h.nft", "a/dir.nft/y"] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let mut read = BTreeSet::new();
        let found = glob(root.path(), "./*/*.nft", &mut read);
        assert_eq!(found, ["a/x.nft", "b-c/x.nft", "b/x.nft"].map(|path| root.path().join(path)));
        assert_eq!(read, ["", "a", "b", "b-c"].map(|path| root.path().join(path)).into());
        assert_eq!(glob(root.path(), "none", &mut read), [] as [&Path; 0]);
    }
}

#[cfg(test)]
mod statement_tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found: Vec<_> = includes(text).iter().map(|include| include.wanted).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn includes_are_found_where_statements_begin() {
        check("include \"a\"\n", &["a"]);
        check("define x = 1; include\t\"a\" ; include \"b\" # c\n", &["a", "b"]);
        check("table ip a { include \"a\"\n chain x { include\"b\";\n} }", &["a", "b"]);
        check("# first\ninclude \\\n \"a\";", &["a"]);
        let include = Include { start: 3, end: 15, wanted: "x y" };
        assert_eq!(includes("{ ;include\"x y\"\n"), [include]);
    }

    #[test]
    fn what_nft_takes_for_none_is_none() {
        for text in [
            "# include \"a\"\n",
            "comment \"\ninclude \"a\"\n",
            "includes \"a\"\n",
            "chain include \"a\"\n",
            "include \"a\"",
            "include \"a\" include \"b\" }",
            "table ip a { } include \"a\"\n",
            "include a\n",
            "include\n\"a\"\n",
        ] {
            check(text, &[]);
        }
    }
}
