//! From paths or text to a checked document. Only this file reads from the disk.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::checker::Checker;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::document::Document;
use crate::fields::{describe_record, read_record};
use crate::files::{Files, Liveness};
use crate::merge::merge;
use crate::node::Node;
use crate::parsed::ParsedTexts;
use crate::section::SourceSections;
use crate::shape::Definitions;
use crate::span::{FileId, Span};
use crate::{json, toml, yaml};

/// How a text is written.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// `.toml`
    Toml,
    /// `.yaml`, `.yml`
    Yaml,
    /// `.json`
    Json,
}

/// The largest file that is read.
const MAX_BYTES: u64 = 64 << 20;

const EXTENSIONS: &str = "a document ends in .toml, .yaml, .yml or .json";

impl Format {
    /// The format that a file's name promises.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "toml" => Some(Self::Toml),
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }

    /// The format of a text that has no name. No TOML begins with a brace.
    #[must_use]
    pub fn of_input(text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.trim_start().starts_with('{') { Self::Json } else { Self::Toml }
    }
}

/// Reads documents whose sections belong to these sources.
#[derive(Clone, Copy, Debug)]
pub struct DocumentReader {
    pub(crate) sources: &'static [SourceSections],
}

/// One of the texts that a document was read from.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Text {
    /// What messages call it.
    pub name: String,
    /// What relative paths in it are relative to.
    pub directory: PathBuf,
    /// What it is written in.
    pub format: Format,
    /// The name under which it was put beside the document, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub piece: Option<String>,
    pub text: String,
}

impl DocumentReader {
    /// A reader that knows the sections of these sources and no others.
    #[must_use]
    pub const fn new(sources: &'static [SourceSections]) -> Self {
        Self { sources }
    }

    /// Reads files and directories as one document. `-` is the standard input: JSON if it
    /// begins with a brace, else TOML.
    pub fn load(&self, paths: &[PathBuf]) -> Result<Document, Diagnostics> {
        let mut gathered = Gathered::default();
        for path in paths {
            if let Err(error) = gathered.path(path) {
                gathered.found.push(error);
            }
        }
        gathered.document(self.sources)
    }

    /// Reads a text as a document; `name` is what messages call it.
    pub fn parse(&self, name: &str, format: Format, text: &str) -> Result<Document, Diagnostics> {
        let mut gathered = Gathered::default();
        gathered.text(Text {
            name: name.to_owned(),
            directory: PathBuf::new(),
            format,
            piece: None,
            text: text.to_owned(),
        });
        gathered.document(self.sources)
    }

    /// Reads texts as one document, as [`load`](Self::load) reads files.
    pub fn restore(&self, texts: Vec<Text>) -> Result<Document, Diagnostics> {
        self.gather(Gathered::default(), texts)
    }

    /// The same with copies of the files that the texts name: they are below `root`, each at its own absolute path.
    pub fn restore_with_files(
        &self,
        root: &Path,
        texts: Vec<Text>,
    ) -> Result<Document, Diagnostics> {
        let files = Files::with_copies_below(root);
        self.gather(Gathered { files, ..Gathered::default() }, texts)
    }

    fn gather(&self, mut gathered: Gathered, texts: Vec<Text>) -> Result<Document, Diagnostics> {
        for text in texts {
            gathered.text(text);
        }
        gathered.document(self.sources)
    }

    /// A document with these pieces in place of its own. `parsed` remembers all texts for the next time.
    pub fn with_pieces(
        &self,
        document: &Document,
        pieces: impl IntoIterator<Item = Text>,
        parsed: &mut ParsedTexts,
    ) -> Result<Document, Diagnostics> {
        let files = document.files.without_texts();
        let mut gathered = Gathered { files, ..Gathered::default() };
        let own = document.files.texts().into_iter().filter(|text| text.piece.is_none());
        let own = own.map(|text| (text, Liveness::AsDocument));
        for (text, liveness) in own.chain(pieces.into_iter().map(|text| (text, Liveness::Live))) {
            let id = gathered.files.add(text.clone(), liveness);
            match parsed.tree(id, &text) {
                Ok(tree) => gathered.trees.push(tree),
                Err(found) => gathered.found.extend(found),
            }
        }
        parsed.forget_unused();
        gathered.document(self.sources)
    }

    /// The JSON Schema of documents, in draft 2020-12, from the very calls that read them.
    #[must_use]
    pub fn schema(&self) -> Json {
        let mut definitions = Definitions::new(self.sources);
        let root = describe_record::<Document>(&mut definitions);
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "homeostat document",
            "$ref": root["$ref"],
            "$defs": definitions.parts,
        })
    }
}

/// The trees of the files so far, and what was wrong with them.
#[derive(Default)]
struct Gathered {
    files: Files,
    trees: Vec<Node>,
    found: Vec<Diagnostic>,
}

impl Gathered {
    fn path(&mut self, path: &Path) -> Result<(), Diagnostic> {
        if path == Path::new("-") {
            let text = decode("standard input", read(io::stdin()))?;
            self.text(Text {
                name: "standard input".to_owned(),
                directory: PathBuf::new(),
                format: Format::of_input(&text),
                piece: None,
                text,
            });
            return Ok(());
        }
        let meta = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
        if meta.is_dir() { self.directory(path) } else { self.file(path) }
    }

    fn directory(&mut self, path: &Path) -> Result<(), Diagnostic> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(|error| unreadable(path, &error))? {
            let entry = entry.map_err(|error| unreadable(path, &error))?;
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            let path = entry.path();
            if !hidden && Format::of(&path).is_some() && !path.is_dir() {
                names.push(path);
            }
        }
        names.sort();
        if names.is_empty() {
            let message = "there is no document in this directory";
            return Err(Diagnostic::about_path(shown(path), message).help(EXTENSIONS));
        }
        for name in &names {
            let read = self.file(name);
            self.found.extend(read.err());
        }
        Ok(())
    }

    fn file(&mut self, path: &Path) -> Result<(), Diagnostic> {
        let name = shown(path);
        let Some(format) = Format::of(path) else {
            let message = "the name does not say which format this is";
            return Err(Diagnostic::about_path(name, message).help(EXTENSIONS));
        };
        // A pipe would be waited for, and a device may never end.
        let meta = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
        if !meta.is_file() {
            return Err(Diagnostic::about_path(name, "this is not a regular file"));
        }
        let opened = fs::File::open(path).map_err(|error| unreadable(path, &error))?;
        let text = decode(&name, read(opened))?;
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        self.text(Text { name, directory, format, piece: None, text });
        Ok(())
    }

    fn text(&mut self, text: Text) {
        let format = text.format;
        let id = self.files.add(text, Liveness::AsDocument);
        match parse_tree(id, format, self.files.text(id)) {
            Ok(tree) => self.trees.push(tree),
            Err(found) => self.found.extend(found),
        }
    }

    fn document(mut self, sources: &'static [SourceSections]) -> Result<Document, Diagnostics> {
        let root = merge(std::mem::take(&mut self.trees), sources, &mut self.found);
        let mut checker = Checker { sources, found: self.found, ..Checker::new(self.files) };
        let document = read_record::<Document>(&root, &mut checker);
        // With what was read as a secret.
        let files = checker.files.clone();
        let document = document.map(|document| Document { files: files.clone(), ..document });
        if let Some(document) = &document {
            let sections = sources.iter().flat_map(|source| source.sections);
            sections.for_each(|section| (section.check)(document, &mut checker));
        }
        match document {
            Some(document) if checker.found.is_empty() => Ok(document),
            readable => Err(Diagnostics::new(files, checker.found).beside(readable)),
        }
    }
}

pub(crate) fn parse_tree(
    file: FileId,
    format: Format,
    text: &str,
) -> Result<Node, Vec<Diagnostic>> {
    if text.starts_with('\u{feff}') {
        let bom = Diagnostic::new(Span::new(file, 0, 3), "the file begins with a byte order mark");
        return Err(vec![bom.help("save it as UTF-8 without one")]);
    }
    match format {
        Format::Toml => toml::parse(file, text),
        Format::Yaml => yaml::parse(file, text),
        Format::Json => json::parse(file, text),
    }
}

/// Reads one byte more than allowed, so that a file that grows is noticed, too.
fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn decode(name: &str, bytes: io::Result<Vec<u8>>) -> Result<String, Diagnostic> {
    let refuse = |message: String| Diagnostic::about_path(name, message);
    let bytes = bytes.map_err(|error| refuse(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_BYTES {
        let large = refuse("the file is larger than 64 MiB".to_owned());
        return Err(large.help("put long lists of routes into a file for `from-file`"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = error.as_bytes().iter().take(at);
        let line = before.filter(|byte| **byte == b'\n').count() + 1;
        refuse(format!("the file is not UTF-8: a wrong byte at offset {at}, in line {line}"))
    })
}

fn unreadable(path: &Path, error: &io::Error) -> Diagnostic {
    Diagnostic::about_path(shown(path), format!("cannot be read: {error}"))
}

/// A path for messages: control characters are escaped.
#[must_use]
pub fn shown(path: &Path) -> String {
    let mut shown = String::new();
    for c in path.display().to_string().chars() {
        if c.is_control() {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}
