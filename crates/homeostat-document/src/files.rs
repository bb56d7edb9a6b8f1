//! The texts that a document was read from, and how an offset becomes a line and a column.

use std::fmt;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::load::{Format, Text};
use crate::span::{FileId, Span};

/// All files of one document. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Files {
    texts: Arc<Vec<File>>,
    /// Where the copies are of the files that the document names, if it was restored with them.
    root: Option<Arc<Path>>,
    /// Where secrets are written.
    secrets: Arc<Vec<Span>>,
}

/// A place for people: lines and columns count from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The file's name as the user gave it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// One text with its name.
#[derive(Debug, Clone)]
struct File {
    name: String,
    directory: PathBuf,
    /// Nothing for a text that is no part of the document.
    format: Option<Format>,
    /// The name under which it was put beside the document, if it was.
    piece: Option<String>,
    /// Whether what it names is read at its own place, also where a document was restored with copies.
    is_live: bool,
    text: String,
    /// The number of the first line: not 1 where only a part of the file is kept.
    first: usize,
    /// Offset of the first byte of each line.
    lines: Vec<usize>,
}

impl Default for File {
    fn default() -> Self {
        File {
            name: String::new(),
            directory: PathBuf::new(),
            format: None,
            piece: None,
            is_live: false,
            text: String::new(),
            first: 1,
            lines: Vec::new(),
        }
    }
}

/// Where the files are that a text names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// At their own places.
    Live,
    /// Where those of the document are, which may have been restored with copies.
    AsDocument,
}

/// One line of a file with a span inside it, both valid offsets.
pub(crate) struct Line<'a> {
    pub(crate) text: &'a str,
    pub(crate) number: usize,
    /// Offset of the line in the file.
    pub(crate) start: usize,
    pub(crate) within: Range<usize>,
}

/// Offset of the first byte of each line.
fn line_starts(text: &str) -> Vec<usize> {
    let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
    std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect()
}

/// Where a copy of a file is, below the directory that stands for the root.
#[must_use]
pub fn copy_below(root: &Path, file: &Path) -> PathBuf {
    let mut copy = Vec::new();
    for part in file.components() {
        match part {
            Component::Normal(part) => copy.push(part),
            Component::ParentDir => _ = copy.pop(),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    root.join(copy.iter().collect::<PathBuf>())
}

impl Files {
    /// No files yet, of a document whose files have copies below a directory.
    pub(crate) fn with_copies_below(root: &Path) -> Self {
        Files { root: Some(root.into()), ..Files::default() }
    }

    /// No files yet, of a document whose files have their copies where those of this one have them.
    pub(crate) fn without_texts(&self) -> Self {
        Files { root: self.root.clone(), ..Files::default() }
    }

    /// The directory that stands for the root in the paths of the files that the document names: that of their copies,
    /// if it was restored with copies.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.as_deref().unwrap_or(Path::new("/"))
    }

    /// What relative paths are relative to where something is written.
    #[must_use]
    pub fn directory(&self, span: Span) -> PathBuf {
        let directory = self.file(span.file).map_or(Path::new(""), |file| &file.directory);
        self.copy(span.file, directory.to_owned())
    }

    /// Of what a live piece names there is no copy.
    fn copy(&self, id: FileId, path: PathBuf) -> PathBuf {
        let has_copies = self.file(id).is_none_or(|file| !file.is_live);
        match self.root.as_ref().filter(|_| has_copies) {
            Some(root) => copy_below(root, &path),
            None => path,
        }
    }

    /// Adds a text of a document.
    pub(crate) fn add(&mut self, text: Text, liveness: Liveness) -> FileId {
        let Text { name, directory, format, piece, text } = text;
        let (lines, is_live) = (line_starts(&text), liveness == Liveness::Live);
        self.push(File {
            name,
            directory,
            format: Some(format),
            piece,
            is_live,
            text,
            first: 1,
            lines,
        })
    }

    /// Adds a text that is no part of the document, such as a template, so that mistakes in it can be drawn.
    pub fn add_text(&mut self, name: &str, text: String) -> FileId {
        let lines = line_starts(&text);
        self.push(File { name: name.to_owned(), text, lines, ..File::default() })
    }

    /// Adds the texts of others; returns the number of the first.
    pub(crate) fn absorb(&mut self, others: &Files) -> u32 {
        let first = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        Arc::make_mut(&mut self.texts).extend(others.texts.iter().cloned());
        first
    }

    /// The format that a file of the document is written in.
    pub(crate) fn format(&self, id: FileId) -> Option<Format> {
        self.file(id)?.format
    }

    /// The texts of the document, in order.
    #[must_use]
    pub fn texts(&self) -> Vec<Text> {
        let text = |File { name, directory, format, piece, text, .. }: &File| {
            Some(Text {
                name: name.clone(),
                directory: directory.clone(),
                format: (*format)?,
                piece: piece.clone(),
                text: text.clone(),
            })
        };
        self.texts.iter().filter_map(text).collect()
    }

    /// Adds a single line of a file that is too long to be kept.
    pub(crate) fn add_line(&mut self, name: &str, number: usize, text: &str) -> FileId {
        let (name, text) = (name.to_owned(), text.to_owned());
        self.push(File { name, text, first: number, lines: vec![0], ..File::default() })
    }

    fn push(&mut self, file: File) -> FileId {
        let files = Arc::make_mut(&mut self.texts);
        files.push(file);
        FileId(u32::try_from(files.len() - 1).unwrap_or(u32::MAX))
    }

    /// The text of a file; nothing if the id is not one of these files.
    #[must_use]
    pub fn text(&self, id: FileId) -> &str {
        self.file(id).map_or("", |file| &file.text)
    }

    /// The name of a file as the user gave it.
    #[must_use]
    pub fn name(&self, id: FileId) -> &str {
        self.file(id).map_or("", |file| &file.name)
    }

    /// Names of all files in the order in which they were read.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(|file| file.name.as_str())
    }

    /// The path that a document meant, seen from its own directory.
    pub(crate) fn resolve(&self, id: FileId, path: &str) -> PathBuf {
        self.file(id).map_or_else(|| PathBuf::from(path), |file| file.directory.join(path))
    }

    /// The file that a document meant, or its copy.
    pub(crate) fn resolve_file(&self, id: FileId, path: &str) -> PathBuf {
        self.copy(id, self.resolve(id, path))
    }

    /// Line and column of the span's first byte.
    #[must_use]
    pub fn locate(&self, span: Span) -> Location {
        let line = self.line(span);
        let column = line.text.get(..line.within.start).map_or(0, |before| before.chars().count());
        Location { file: self.name(span.file).to_owned(), line: line.number, column: column + 1 }
    }

    /// From now on no line is drawn that has a part of this span in it.
    pub(crate) fn conceal(&mut self, span: Span) {
        Arc::make_mut(&mut self.secrets).push(span);
    }

    /// Every line that has a part of a secret in it, by the offset of its first byte.
    pub(crate) fn secret_lines(&self) -> impl Iterator<Item = (FileId, usize)> {
        self.secrets.iter().flat_map(|secret| {
            let lines = self.file(secret.file).map_or(&[][..], |file| &file.lines);
            let first = lines.partition_point(|line| *line <= secret.start as usize).max(1) - 1;
            let end = lines.partition_point(|line| *line < secret.end as usize).max(first);
            lines.get(first..end).unwrap_or_default().iter().map(|line| (secret.file, *line))
        })
    }

    /// The line in which a span begins; a span over several lines is cut at the line's end.
    pub(crate) fn line(&self, span: Span) -> Line<'_> {
        let Some(file) = self.file(span.file) else {
            return Line { text: "", number: 1, start: 0, within: 0..0 };
        };
        let start = file.text.floor_char_boundary(span.start as usize);
        let index = file.lines.partition_point(|line| *line <= start).max(1) - 1;
        let first = file.lines.get(index).copied().unwrap_or(0);
        let rest = file.text.get(first..).unwrap_or("");
        let text = rest.split('\n').next().unwrap_or("");
        let text = text.strip_suffix('\r').unwrap_or(text);
        let from = (start - first).min(text.len());
        let end = text.floor_char_boundary((span.end as usize).saturating_sub(first)).max(from);
        Line { text, number: file.first + index, start: first, within: from..end }
    }

    fn file(&self, id: FileId) -> Option<&File> {
        self.texts.get(id.0 as usize)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str, start: usize) -> (usize, usize) {
        let mut files = Files::default();
        let id = files.add_text("a.toml", text.to_owned());
        let at = files.locate(Span::new(id, start, start + 1));
        (at.line, at.column)
    }

    #[test]
    fn lines_and_columns_count_from_one_in_characters() {
        let text = "a = 1\n\tüß = 2\r\nlast";
        assert_eq!(place(text, 0), (1, 1));
        assert_eq!(place(text, 4), (1, 5));
        assert_eq!(place(text, 6), (2, 1), "a tab is one column");
        assert_eq!(place(text, text.rfind('=').unwrap()), (2, 5), "umlauts are one column each");
        assert_eq!(place(text, text.find("last").unwrap()), (3, 1));
    }

    #[test]
    fn copies_are_below_their_root_whatever_the_path() {
        let copy = |file: &str| copy_below(Path::new("/copies"), Path::new(file));
        assert_eq!(copy("/etc/homeostat/fw.nft"), Path::new("/copies/etc/homeostat/fw.nft"));
        assert_eq!(copy("/etc/homeostat/../fw.nft"), Path::new("/copies/etc/fw.nft"));
        assert_eq!(copy("/../../x/./y"), Path::new("/copies/x/y"));
    }

    #[test]
    fn a_place_outside_of_the_text_is_clamped() {
        assert_eq!(place("a", 99), (1, 2));
        assert_eq!(place("", 0), (1, 1));
        assert_eq!(place("ü", 1), (1, 1), "inside of a character is its beginning");
    }
}
