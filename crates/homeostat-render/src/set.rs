//! A set of files that are rendered together: [`FileSet`] to [`Draft`] to [`RenderedSet`].
//!
//! Rendering reads no file but templates below the declared directory, no clock and no environment: the same data gives the
//! same bytes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homeostat_document::shown;
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error as JinjaError, ErrorKind, UndefinedBehavior};

use crate::context::{Data, Needs, Root};
use crate::error::Error;
use crate::filters::{self, Quoting};
use crate::generation;
use crate::reading::FileReader;
use crate::render_error::{RenderCause, RenderError};
use crate::value::{Secrecy, Value};

/// Instructions of the engine for one file: ten thousand servers cost about two hundred thousand.
const FUEL: u64 = 5_000_000;
/// What stands for the generation where no template is.
const MARK: &str = "{{ generation }}";
/// The largest file that is rendered.
const MOST_BYTES: usize = 64 << 20;

/// Where the content of a file comes from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Content {
    /// A template: a path below the directory of the set, or one that leads elsewhere, as the operator chose.
    Template(PathBuf),
    /// The text of a template. Messages call it `name`.
    Text { name: String, text: String },
    /// These bytes, as they are.
    Bytes(Vec<u8>),
    /// These bytes, in which `{{ generation }}` stands for the generation, and nothing else has a meaning.
    Marked(Vec<u8>),
}

/// What a set is made of.
#[derive(Clone, Debug)]
pub struct FileSetBuilder {
    directory: PathBuf,
    reader: FileReader,
    quoting: Quoting,
    inputs: BTreeMap<String, Secrecy>,
    files: BTreeMap<PathBuf, (Content, Secrecy)>,
}

/// Files whose templates are read and understood. When one of [`templates`](Self::templates) changes, build another set.
pub struct FileSet {
    environment: Environment<'static>,
    inputs: Arc<BTreeMap<String, Secrecy>>,
    files: BTreeMap<PathBuf, (Body, Secrecy)>,
    loader: Arc<Loader>,
    quoting: Quoting,
}

#[derive(PartialEq)]
enum Body {
    /// The name of a template.
    Template(String),
    Bytes(Vec<u8>),
    /// Bytes in which the placeholder of the generation is.
    Marked(Vec<u8>),
}

/// The files of a set before their generation is known.
#[derive(Debug)]
pub struct Draft {
    files: BTreeMap<PathBuf, RenderedFile>,
    /// The files in which the generation stands.
    carriers: BTreeSet<PathBuf>,
}

/// All files of a set, each by its path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RenderedSet {
    pub files: BTreeMap<PathBuf, RenderedFile>,
    /// 15 hexadecimal digits.
    pub generation: String,
}

/// `Debug` shows no content.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RenderedFile {
    pub bytes: Vec<u8>,
    pub secrecy: Secrecy,
    /// The inputs that it was made of.
    pub reads: BTreeSet<String>,
}

impl FileSet {
    /// A set whose templates, and what they include and import, are named relative to `directory`.
    pub fn builder(directory: impl Into<PathBuf>) -> FileSetBuilder {
        FileSetBuilder {
            directory: directory.into(),
            reader: FileReader::once(),
            quoting: Quoting::default(),
            inputs: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    /// The files that were read so far as templates, or looked for and not found: to be watched. Those that templates
    /// include by a name that they compute are known once they were rendered.
    #[must_use]
    pub fn templates(&self) -> BTreeSet<PathBuf> {
        self.loader.loaded().values().filter_map(|loaded| loaded.path.clone()).collect()
    }

    /// The directories in which templates may be that others include by a name that they compute: to be watched whole.
    #[must_use]
    pub fn directories(&self) -> BTreeSet<PathBuf> {
        if !self.computes_names() {
            return BTreeSet::new();
        }
        let mut directories: BTreeSet<PathBuf> = [self.loader.directory.clone()].into();
        let templates = self.templates();
        directories.extend(templates.iter().filter_map(|path| path.parent()).map(Path::to_owned));
        directories
    }

    /// Whether a template includes others by a name that it computes.
    fn computes_names(&self) -> bool {
        self.loader.texts().into_values().flatten().any(|text| computes_names(&text))
    }

    /// Whether another set renders the same files from the same data.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.quoting == other.quoting
            && self.inputs == other.inputs
            && self.files == other.files
            && self.loader.texts() == other.loader.texts()
    }

    /// Whether a template names facts of the machine. One that is included by a computed name may.
    #[must_use]
    pub fn names_facts(&self) -> bool {
        const FACTS: [&str; 3] = ["host", "links", "namespaces"];
        let names = |name: &String| {
            let template = self.environment.get_template(name);
            template.is_ok_and(|template| {
                let variables = template.undeclared_variables(false);
                FACTS.iter().any(|fact| variables.contains(*fact))
            })
        };
        self.computes_names() || self.loader.texts().keys().any(names)
    }

    /// Finds mistakes that need no data: names that nobody declares, and what goes wrong with plain data alone.
    pub fn check(&self, values: &Value) -> Result<(), Box<RenderError>> {
        for (path, name) in self.named() {
            self.find_unknown(path, name, true)?;
            // A template that is included sees what the one around it has set.
            let others = self.loader.texts().into_keys();
            others.into_iter().try_for_each(|name| self.find_unknown(path, &name, false))?;
        }
        match self.render(&Data { values: values.clone(), ..Data::default() }) {
            Err(error) if matches!(error.cause, RenderCause::Mistake | RenderCause::Undefined) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// The files that have a template, with its name.
    fn named(&self) -> impl Iterator<Item = (&PathBuf, &str)> {
        self.files.iter().filter_map(|(path, (body, _))| match body {
            Body::Template(name) => Some((path, name.as_str())),
            Body::Bytes(_) | Body::Marked(_) => None,
        })
    }

    fn find_unknown(
        &self,
        path: &Path,
        name: &str,
        is_whole: bool,
    ) -> Result<(), Box<RenderError>> {
        // One that cannot be read is found when it is rendered.
        let Ok(template) = self.environment.get_template(name) else { return Ok(()) };
        let variables: BTreeSet<String> = template.undeclared_variables(true).into_iter().collect();
        for variable in &variables {
            if let Some(message) = self.unknown(variable, is_whole) {
                let at = mention(template.source(), variable);
                return Err(RenderError::mistake(path, name, &self.loader, message, at));
            }
        }
        Ok(())
    }

    /// Why a variable of a template cannot have a value, if so. In one that is not whole, others may have set it.
    fn unknown(&self, variable: &str, is_whole: bool) -> Option<String> {
        const NAMES: [&str; 6] = ["inputs", "values", "host", "links", "namespaces", "generation"];
        let mut parts = variable.split('.');
        let first = parts.next().unwrap_or_default();
        match (first, parts.next()) {
            ("inputs", Some(input)) => (!self.inputs.contains_key(input))
                .then(|| format!("the input `{input}` is not declared")),
            _ if NAMES.contains(&first) || !is_whole => None,
            _ if self.environment.globals().any(|(name, _)| name == first) => None,
            _ => Some(format!("`{first}` is undefined")),
        }
    }

    /// Reads the templates that others name as they are written, so that all of them are known from the beginning. What
    /// cannot be read is found when it is rendered.
    fn load_named(&self) {
        let mut done = BTreeSet::new();
        loop {
            let texts = self.loader.texts();
            let named = texts.values().flatten().flat_map(|text| named_templates(text));
            let new: BTreeSet<String> =
                named.filter(|name| !done.contains(name) && !texts.contains_key(name)).collect();
            if new.is_empty() {
                return;
            }
            for name in new {
                let _ = self.environment.get_template(&name);
                done.insert(name);
            }
        }
    }

    /// A public file whose template names a secret input is found before anything is known of the input. What a template
    /// includes, or calls by `inputs["name"]`, is found when it is rendered.
    fn check_secrecy(&self) -> Result<(), Box<RenderError>> {
        for (path, (body, secrecy)) in &self.files {
            let (Body::Template(name), Secrecy::Public) = (body, secrecy) else { continue };
            let Ok(template) = self.environment.get_template(name) else { continue };
            let variables = template.undeclared_variables(true);
            let inputs: BTreeSet<&str> = variables
                .iter()
                .filter_map(|variable| variable.strip_prefix("inputs.")?.split('.').next())
                .collect();
            let is_secret = |input: &&&str| self.inputs.get(**input) == Some(&Secrecy::Secret);
            if let Some(input) = inputs.iter().find(is_secret) {
                let needs = Needs::Secrecy((*input).to_owned());
                let at = mention(template.source(), &format!("inputs.{input}"));
                return Err(RenderError::needs(path, name, &self.loader, &needs, at));
            }
        }
        Ok(())
    }

    /// Renders all files, or says why one cannot be rendered.
    pub fn render(&self, data: &Data) -> Result<Draft, Box<RenderError>> {
        let (mut files, mut carriers) = (BTreeMap::new(), BTreeSet::new());
        for (path, (body, secrecy)) in &self.files {
            let (bytes, reads) = match body {
                Body::Bytes(bytes) => (bytes.clone(), BTreeSet::new()),
                Body::Marked(bytes) => {
                    carriers.insert(path.clone());
                    (bytes.clone(), BTreeSet::new())
                }
                Body::Template(name) => {
                    let root = Root::new(data, &self.inputs, *secrecy);
                    let bytes = self.render_file(path, name, &root)?;
                    let reads = std::mem::take(&mut *root.reads());
                    if reads.generation {
                        carriers.insert(path.clone());
                    }
                    (bytes, reads.inputs)
                }
            };
            files.insert(path.clone(), RenderedFile { bytes, secrecy: *secrecy, reads });
        }
        Ok(Draft { files, carriers })
    }

    fn render_file(
        &self,
        path: &Path,
        name: &str,
        root: &Root,
    ) -> Result<Vec<u8>, Box<RenderError>> {
        let mut bytes = Bounded::default();
        let template = self.environment.get_template(name);
        let rendered =
            template.and_then(|template| template.render_captured_to(root.value(), &mut bytes));
        let rendered = rendered.map(drop);
        let reads = root.reads();
        match (rendered, &reads.needs) {
            (Ok(()), None) => Ok(bytes.0),
            (Ok(()), Some(needs)) => Err(RenderError::needs(path, name, &self.loader, needs, None)),
            (Err(error), _) => {
                Err(RenderError::new(path, name, &self.loader, &error, reads.secret))
            }
        }
    }
}

impl fmt::Debug for FileSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<_> = self.files.keys().collect();
        f.debug_struct("FileSet").field("files", &files).finish_non_exhaustive()
    }
}

impl FileSetBuilder {
    /// Which templates are read; by default all that no process has open for writing.
    #[must_use]
    pub fn reader(mut self, reader: FileReader) -> Self {
        self.reader = reader;
        self
    }

    /// How the filter `quote` quotes.
    #[must_use]
    pub fn quoting(mut self, quoting: Quoting) -> Self {
        self.quoting = quoting;
        self
    }

    /// Declares an input: a template that reads another one fails.
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, secrecy: Secrecy) -> Self {
        self.inputs.insert(name.into(), secrecy);
        self
    }

    /// Adds a file to be written to `path`. Only a secret one may read secret inputs.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>, content: Content, secrecy: Secrecy) -> Self {
        self.files.insert(path.into(), (content, secrecy));
        self
    }

    /// Reads the templates.
    pub fn build(self) -> Result<FileSet, Box<RenderError>> {
        let loader = Arc::new(Loader {
            directory: self.directory,
            reader: self.reader,
            loaded: Mutex::default(),
        });
        let mut environment = environment(self.quoting, &loader);
        let mut files = BTreeMap::new();
        for (path, (content, secrecy)) in self.files {
            let body = match content {
                Content::Bytes(bytes) => Body::Bytes(bytes),
                Content::Marked(bytes) => marked(bytes),
                Content::Template(template) => {
                    let name = template.to_string_lossy().into_owned();
                    let source = loader.load(&name, is_below(&template));
                    let source = source.and_then(|source| {
                        source.ok_or_else(|| JinjaError::from(ErrorKind::TemplateNotFound))
                    });
                    let added =
                        source.and_then(|text| environment.add_template_owned(name.clone(), text));
                    added
                        .map_err(|error| RenderError::new(&path, &name, &loader, &error, false))?;
                    Body::Template(name)
                }
                Content::Text { name: shown, text } => {
                    // No template can include it, whatever it is called.
                    let name = format!("\0{}", path.display());
                    let kept = Loaded { shown, path: None, text: Some(text.clone()) };
                    loader.loaded().insert(name.clone(), kept);
                    let added = environment.add_template_owned(name.clone(), text);
                    added
                        .map_err(|error| RenderError::new(&path, &name, &loader, &error, false))?;
                    Body::Template(name)
                }
            };
            files.insert(path, (body, secrecy));
        }
        let (inputs, quoting) = (Arc::new(self.inputs), self.quoting);
        let set = FileSet { environment, inputs, files, loader, quoting };
        set.load_named();
        set.check_secrecy()?;
        Ok(set)
    }
}

impl Draft {
    /// Files without templates, in which `{{ generation }}` stands for the generation.
    #[must_use]
    pub fn of_marked(files: impl IntoIterator<Item = (PathBuf, Vec<u8>, Secrecy)>) -> Self {
        let mut draft = Draft { files: BTreeMap::new(), carriers: BTreeSet::new() };
        for (path, bytes, secrecy) in files {
            let bytes = match marked(bytes) {
                Body::Marked(bytes) => {
                    draft.carriers.insert(path.clone());
                    bytes
                }
                Body::Bytes(bytes) => bytes,
                Body::Template(_) => Vec::new(),
            };
            draft.files.insert(path, RenderedFile { bytes, secrecy, reads: BTreeSet::new() });
        }
        draft
    }

    /// The files before the generation is written in them.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.files.iter().map(|(path, file)| (path.as_path(), file.bytes.as_slice()))
    }

    /// Makes the generation of the set, and writes it where templates have asked for it.
    ///
    /// `mask` takes out of a file what may change without a new generation, such as what the running program learns
    /// without a reload. `key` is secret and stays the same on one machine.
    #[must_use]
    pub fn finish<'a>(
        &'a self,
        key: &[u8],
        mask: impl Fn(&Path, &'a [u8]) -> Cow<'a, [u8]>,
    ) -> RenderedSet {
        let files = self.files.iter().map(|(path, file)| (path.as_path(), file.bytes.as_slice()));
        let generation = generation::digest(key, files, mask);
        let mut files = self.files.clone();
        for path in &self.carriers {
            if let Some(file) = files.get_mut(path) {
                file.bytes = generation::replace(&file.bytes, &generation);
            }
        }
        RenderedSet { files, generation }
    }

    /// The same, with every byte counting.
    #[must_use]
    pub fn finish_unmasked(&self, key: &[u8]) -> RenderedSet {
        self.finish(key, |_, bytes| Cow::Borrowed(bytes))
    }
}

impl RenderedSet {
    /// The inputs that any of the files was made of.
    #[must_use]
    pub fn reads(&self) -> BTreeSet<String> {
        self.files.values().flat_map(|file| file.reads.iter().cloned()).collect()
    }
}

impl fmt::Debug for RenderedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenderedFile")
            .field("bytes", &self.bytes.len())
            .field("secrecy", &self.secrecy)
            .field("reads", &self.reads)
            .finish()
    }
}

fn environment(quoting: Quoting, loader: &Arc<Loader>) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    // Errors have a column only then.
    environment.set_debug(true);
    set_syntax(&mut environment);
    filters::add(&mut environment, quoting);
    let loader = Arc::clone(loader);
    environment.set_loader(move |name| loader.load(name, true));
    environment
}

fn set_syntax(environment: &mut Environment<'_>) {
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true);
    // The delimiters are the usual ones, which are valid.
    if let Ok(syntax) = syntax.build() {
        environment.set_syntax(syntax);
    }
}

/// A mistake in a template that is included is found here, since the engine would tell where it is, but not where the
/// template is included.
fn check_syntax(name: &str, text: &str) -> Result<(), JinjaError> {
    let mut environment = Environment::empty();
    set_syntax(&mut environment);
    environment
        .add_template(name, text)
        .map_err(|error| JinjaError::from(ErrorKind::BadInclude).with_source(error))
}

/// Bytes that are text may hold the generation.
fn marked(bytes: Vec<u8>) -> Body {
    match String::from_utf8(bytes) {
        Ok(text) if text.contains(MARK) => {
            Body::Marked(text.replace(MARK, generation::PLACEHOLDER).into_bytes())
        }
        Ok(text) => Body::Bytes(text.into_bytes()),
        Err(error) => Body::Bytes(error.into_bytes()),
    }
}

/// The names in quotes behind the words that load another template.
fn named_templates(text: &str) -> impl Iterator<Item = String> {
    loading_blocks(text).filter_map(|rest| Some(quoted(rest)?.0.to_owned()))
}

/// Whether a word that loads another template has anything but one name in quotes behind it.
fn computes_names(text: &str) -> bool {
    const ENDS: [&str; 8] = ["%}", "-%}", "+%}", "ignore ", "with ", "without ", "as ", "import "];
    loading_blocks(text).any(|rest| {
        let ends = |rest: &str| ENDS.iter().any(|end| rest.trim_start().starts_with(end));
        !quoted(rest).is_some_and(|(_, rest)| ends(rest))
    })
}

/// What comes behind the words that load another template.
fn loading_blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("{%").skip(1).filter_map(|block| {
        let block = block.trim_start_matches(['-', '+']).trim_start();
        let words = ["include", "import", "extends", "from"];
        let rest = words.iter().find_map(|word| block.strip_prefix(word))?;
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        (!rest.starts_with(is_word)).then(|| rest.trim_start())
    })
}

/// A text in quotes at the start of another, and what comes behind it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|first| ['"', '\''].contains(first))?;
    text.get(1..)?.split_once(quote)
}

/// Where a template names a variable first.
fn mention(template: &str, named: &str) -> Option<Range<usize>> {
    let mut found = template.match_indices(named).map(|(at, named)| at..at + named.len());
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    found.find(|place| !template.get(place.end..).is_some_and(|rest| rest.starts_with(is_word)))
}

/// Whether a path cannot lead out of the directory that it is relative to, as far as its text says.
fn is_below(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// Reads templates, and keeps their texts for messages.
pub(crate) struct Loader {
    directory: PathBuf,
    reader: FileReader,
    loaded: Mutex<BTreeMap<String, Loaded>>,
}

struct Loaded {
    /// What messages call it.
    shown: String,
    /// Nothing for a text that is in no file of its own.
    path: Option<PathBuf>,
    /// Nothing for a file that is not there or cannot be read.
    text: Option<String>,
}

impl Loader {
    /// The texts by what templates call them; nothing for those that cannot be read.
    fn texts(&self) -> BTreeMap<String, Option<String>> {
        let loaded = self.loaded();
        loaded.iter().map(|(name, loaded)| (name.clone(), loaded.text.clone())).collect()
    }

    fn loaded(&self) -> MutexGuard<'_, BTreeMap<String, Loaded>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The text of a template; nothing if there is none.
    fn load(&self, name: &str, is_below: bool) -> Result<Option<String>, JinjaError> {
        let path = self.directory.join(name);
        let text = if is_below {
            self.reader.read_below(&self.directory, name)
        } else {
            self.reader.read(&path).map(Some)
        };
        // An empty one is what a full disk leaves of a save.
        let text = text.and_then(|text| match text {
            Some(text) if text.is_empty() => Err(Error::Empty { name: shown(&path) }),
            text => Ok(text),
        });
        let loaded = Loaded {
            shown: shown(&path),
            path: Some(path),
            text: text.as_ref().ok().cloned().flatten(),
        };
        self.loaded().insert(name.to_owned(), loaded);
        let text = text.map_err(|error| {
            JinjaError::new(ErrorKind::InvalidOperation, "cannot be read").with_source(error)
        })?;
        text.as_deref().map_or(Ok(()), |text| check_syntax(name, text))?;
        Ok(text)
    }

    /// What messages call a template, and its text.
    pub(crate) fn describe(&self, name: &str) -> (String, String) {
        let loaded = self.loaded();
        let loaded = loaded.get(name);
        let shown = loaded.map_or(name, |loaded| &loaded.shown);
        let text = loaded.and_then(|loaded| loaded.text.as_deref());
        (shown.to_owned(), text.unwrap_or_default().to_owned())
    }
}

/// Takes so many bytes and no more.
#[derive(Default)]
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_BYTES {
            return Err(io::Error::other(TooMuch));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The output of a template is larger than a file may be.
#[derive(Debug, thiserror::Error)]
#[error("the file would be larger than 64 MiB")]
pub(crate) struct TooMuch;
