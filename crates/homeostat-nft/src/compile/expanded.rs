//! A text with what it includes in its place, and where each line of that comes from.
//!
//! Includes are read once, as `nft` would read them, so that whatever is checked, cleared and shown is what is
//! loaded. Start at [`Expanded::of`].

mod origin;
mod pattern;
mod statement;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::ruleset::LARGEST;
use super::{CompileError, Fault, Ruleset};
use crate::statements::at;
use origin::{File, Nth, Origins};
use statement::{Include, includes};

/// As deep as `nft` goes, the text itself counted.
const DEEPEST: usize = 16;

/// More files than this are a mistake: a few that include each other twice make any number of them.
const MOST: usize = 4096;

/// What `nft` searches by itself.
const USUAL: &str = "/etc";

/// A ruleset in one piece.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Expanded<'a> {
    /// With the text that is loaded.
    pub(super) ruleset: Ruleset<'a>,
    origins: Origins,
}

/// What a text includes, for who watches it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Included {
    /// The files, and those that would be taken if they were there.
    pub files: BTreeSet<PathBuf>,
    /// Where more files may come that a pattern stands for.
    pub directories: BTreeSet<PathBuf>,
}

impl<'a> Expanded<'a> {
    pub(super) fn of(ruleset: &Ruleset<'a>) -> Result<Self, CompileError> {
        Expanding::run(ruleset).1
    }

    pub(super) fn owned(self) -> Expanded<'static> {
        Expanded { ruleset: self.ruleset.owned(), origins: self.origins }
    }

    /// What people call a line of the whole text.
    pub(super) fn place(&self, line: usize) -> String {
        let (file, line) = self.origins.of(line);
        format!("{}:{line}", file.name)
    }

    /// An error about the whole text, as one about the files that it is made of.
    pub(super) fn placed(&self, mut error: CompileError) -> CompileError {
        let is_about_it = |fault: &&mut Fault| fault.line > 0 && fault.file == self.ruleset.name;
        for fault in error.faults_mut().iter_mut().filter(is_about_it) {
            self.place_fault(fault);
        }
        error
    }

    fn place_fault(&self, fault: &mut Fault) {
        let (file, line) = self.origins.of(fault.line as usize);
        fault.file.clone_from(&file.name);
        fault.line = u32::try_from(line).unwrap_or(u32::MAX);
        if let Some(by) = &file.included_by {
            let end = fault.message.find('\n').unwrap_or(fault.message.len());
            fault.message.insert_str(end, &included_by(by));
        }
    }
}

fn included_by(place: &str) -> String {
    format!(" (included by {place})")
}

/// What a text includes, as far as it can be told.
pub(super) fn included(ruleset: &Ruleset<'_>) -> Included {
    Expanding::run(ruleset).0
}

/// The work on one text.
struct Expanding<'a> {
    directory: &'a Path,
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
    file: Nth,
    depth: usize,
}

impl<'a> Expanding<'a> {
    fn run<'t>(ruleset: &'a Ruleset<'t>) -> (Included, Result<Expanded<'t>, CompileError>) {
        let (directory, origins) = (&*ruleset.directory, Origins::new(&ruleset.name));
        let (text, included) = (String::new(), Included::default());
        let main = Level { text: &ruleset.text, file: Origins::MAIN, depth: 1 };
        if includes(main.text).is_empty() {
            return (included, Ok(Expanded { ruleset: ruleset.clone(), origins }));
        }
        let mut expanding = Expanding { directory, text, ended: 0, origins, included };
        let done = expanding.expand(main);
        let Expanding { text, origins, included, .. } = expanding;
        let (name, directory) = (ruleset.name.clone(), ruleset.directory.clone());
        let ruleset = Ruleset { text: Cow::Owned(text), name, directory };
        (included, done.map(|()| Expanded { ruleset, origins }))
    }

    fn expand(&mut self, level: Level<'_>) -> Result<(), CompileError> {
        let part = |from, until| level.text.get(from..until).unwrap_or_default();
        let (mut from, mut line) = (0, 1);
        for include in includes(level.text) {
            // `nft` tells what it does not find.
            let Some(paths) = self.find(include.wanted) else { continue };
            self.push(part(from, include.start));
            for path in paths {
                let by = line + ends(part(from, include.start));
                self.include(&path, level, (&include, by))?;
            }
            line += ends(part(from, include.end));
            self.begin(level.file, line);
            // Whatever follows keeps its column.
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
        (include, line): (&Include<'_>, usize),
    ) -> Result<(), CompileError> {
        let by = self.origins.file(level.file);
        let outermost = by.included_by.clone().unwrap_or_else(|| format!("{}:{line}", by.name));
        let refused = |message: String| {
            let by_whom = by.included_by.as_deref().map(included_by).unwrap_or_default();
            let place = (&*by.name, at(level.text, include.start));
            Err(CompileError::include(message + &by_whom, place))
        };
        if level.depth == DEEPEST {
            return refused(format!("Include nested too deeply, max {DEEPEST} levels"));
        }
        if self.origins.has_included(MOST) {
            return refused(format!("more than {MOST} files are included"));
        }
        let Ruleset { text, name, .. } = Ruleset::read(path)?;
        let size = (self.text.len() + text.len()) as u64;
        if size > LARGEST {
            return Err(CompileError::TooLarge { name, size });
        }
        let file = self.origins.add_file(File { name, included_by: Some(outermost) });
        self.begin(file, 1);
        self.expand(Level { text: &text, file, depth: level.depth + 1 })
    }

    /// From the next line on it is this file, from this line on.
    fn begin(&mut self, file: Nth, line: usize) {
        self.push("\n");
        self.origins.add_run(self.ended + 1, (file, line));
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
        let bases = match wanted {
            _ if wanted.starts_with('/') => vec![Path::new("/")],
            _ if wanted.starts_with("./") || wanted.starts_with("../") => vec![self.directory],
            _ => vec![Path::new(USUAL), self.directory],
        };
        let Included { files, directories } = &mut self.included;
        if pattern::is_one(wanted) {
            let found = bases.iter().rev();
            let found = found.flat_map(|base| pattern::files(base, wanted, directories));
            let found: Vec<_> = found.collect();
            files.extend(found.iter().cloned());
            return Some(found);
        }
        let mut candidates = bases.iter().map(|base| pattern::path(base, wanted));
        let found = candidates.find(|path| {
            files.insert(path.clone());
            path.symlink_metadata().is_ok()
        })?;
        // It takes a directory for nothing.
        Some(if found.is_dir() { Vec::new() } else { vec![found] })
    }
}

/// How many lines end in a part of a text.
fn ends(part: &str) -> usize {
    part.matches('\n').count()
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
        let expanded = Expanded::of(&ruleset).unwrap();
        let lines = expanded.ruleset.text.lines().enumerate();
        let told = lines.filter(|(_, line)| !line.trim().is_empty()).map(|(nth, line)| {
            let place = expanded.place(nth + 1);
            format!("{} {}", place.rsplit('/').next().unwrap(), line.trim_end())
        });
        told.collect()
    }

    #[test]
    fn every_line_has_its_own_file_and_number_and_every_word_its_column() {
        let found = whole(&[
            ("main", "one\ntwo; include \"./p*\"; three\n{ include \"./q\"\nfour }\n"),
            ("p1", "a\n\nb"),
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
    fn what_is_not_there_stays_for_nft_to_tell() {
        let text = "include \"./nowhere\"\nadd table ip a\n";
        assert_eq!(whole(&[("main", text)])[0], "main:1 include \"./nowhere\"");
    }

    #[test]
    fn everything_that_matters_is_told_to_who_watches() {
        let root = tempfile::tempdir().unwrap();
        let text = "include \"x.nft\"\ninclude \"./none*\"\ninclude \"/nonexistent/y\"\n";
        let directory = root.path().to_owned();
        let ruleset = Ruleset { text: text.into(), name: "main".to_owned(), directory };
        std::fs::write(root.path().join("x.nft"), "include \"./z\"\n").unwrap();
        let told = included(&ruleset);
        let files = ["/etc/x.nft".into(), "/nonexistent/y".into(), root.path().join("x.nft")];
        let files: BTreeSet<_> = files.into_iter().chain([root.path().join("z")]).collect();
        assert_eq!(told.files, files);
        assert_eq!(told.directories, [root.path().to_owned()].into());
    }
}
