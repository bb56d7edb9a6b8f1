//! The section of the document: `[files.NAME]`, a set of files and directories.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs, io};

use homeostat_document::{
    Checker, Diagnostic, Document, Fields, Join, Json, Location, MachinePath, Map, NamedRecord,
    NamespaceName, Number, Period, PlainTable, Record, Scope, Scopes, Section, SectionType,
    SourceSections, Span, Spanned, Text, Twins, ValueError, record,
};
use homeostat_registry::NamedFiles;
use homeostat_render::{
    Content as TemplateContent, FileSet, Form, InputSpec, Origin, RenderError, Secrecy, Url,
    UrlOrigin, Value,
};
use homeostat_systemd::{JobKind, NotAUnit, UnitName};
use rustix::process::Signal;

use crate::brake::Limits;
use crate::exclusive::Exclusive;
use crate::key::{FilePath, Key};
use crate::model::{Account, Attributes, DirectorySpec, Mode};
use crate::programs::haproxy::Haproxy;
use crate::programs::{self, Known, Profile, Setup, Sockets};
use crate::recipe::{FilePart, ProgramOf, Recipe};
use crate::resolver::{self, Resolver};
use crate::running::{PLACEHOLDER, Reload, Request, Running};

/// All that files add to documents.
pub const SECTIONS: SourceSections = SourceSections::new(
    "files",
    &[SectionType::of::<Sets>(), SectionType::of::<Values>(), SectionType::of::<Resolver>()],
);

/// `[files]`: all sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sets(pub Vec<Set>);

/// `[files.NAME]`: files that are written as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    pub name: Spanned<SetName>,
    /// The program that judges the set before it is written, with its arguments.
    pub check: Option<Vec<String>>,
    pub program: Option<ProgramSection>,
    /// The network in which programs of the set run.
    pub namespace: Option<Spanned<NamespaceName>>,
    pub certificate_days: Option<u16>,
    /// What its files are made of.
    pub inputs: Vec<Input>,
    pub write: Vec<Write>,
    pub directories: Vec<Directory>,
}

/// `[values]`: plain data for templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values(pub PlainTable);

/// `inputs.NAME`: data that files are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    pub name: Spanned<InputName>,
    pub spec: InputSpec,
}

/// The name of an input, as templates write it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputName(String);

/// The program that reads a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramSection {
    pub reload: Reload,
    pub known: Option<Known>,
    pub pid_file: Option<PathBuf>,
    pub unit: Option<UnitName>,
    pub restart: Option<Vec<String>>,
    pub running: Option<Running>,
    pub within: Duration,
    pub limits: Limits,
}

/// The name of a set, and of a directory in the state directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetName(String);

/// `write."/path"`: a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub path: Spanned<FilePath>,
    /// Nothing, if that is a mistake.
    pub source: Option<Source>,
    pub attributes: Attributes,
    pub secret: bool,
    pub adopt: bool,
}

/// Where a content comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A template in the document itself.
    Text(Spanned<String>),
    /// A file beside it, as it is.
    Copy(Spanned<PathBuf>),
    /// A template beside it.
    Template(Spanned<PathBuf>),
}

/// `directories."/path"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    pub path: Spanned<FilePath>,
    pub attributes: Attributes,
    pub adopt: bool,
    pub exclusive: Option<Exclusive>,
}

/// The sets of a scope.
pub(crate) fn sets(scope: &Scope) -> impl Iterator<Item = &Set> {
    let written = scope.get::<Sets>().into_iter().flat_map(|sets| &sets.0);
    written.chain(resolver::set(scope))
}

/// Reports contents that cannot be read, and mistakes in templates.
pub(crate) fn resolve(scope: &Scope, checker: &mut Checker) {
    for set in sets(scope) {
        let directory = checker.resolve_file(set.name.span, ".");
        if let Err(unusable) = set.templates(&directory) {
            unusable.report(set, checker);
        } else if let Ok(templates) = set.templates(&directory)
            && let Err(error) = templates.check(&values(scope))
        {
            Unusable::Template(error).report(set, checker);
        }
    }
}

/// The plain data of a scope.
pub(crate) fn values(scope: &Scope) -> Value {
    let values = scope.get::<Values>();
    Value::from(Json::Object(
        values.map(|Values(PlainTable(values))| values.clone()).unwrap_or_default(),
    ))
}

/// Adds the files that contents come from.
pub(crate) fn files(document: &Document, scope: &Scope, named: &mut NamedFiles) {
    for set in sets(scope) {
        let sources = set.write.iter().filter_map(|write| write.source.as_ref());
        named.files.extend(sources.filter_map(|source| match source {
            Source::Copy(path) | Source::Template(path) => Some(path.value.clone()),
            Source::Text(_) => None,
        }));
        // Those that cannot be understood include nothing.
        if let Ok(templates) = set.templates(&document.files.directory(set.name.span)) {
            let known = templates.templates();
            // Which files a template includes by a name that it computes is not known: those that end as templates do.
            let directories = templates.directories();
            let endings: BTreeSet<_> = known.iter().filter_map(|path| path.extension()).collect();
            let candidates = directories.iter().flat_map(|directory| files_in(directory));
            let is_like =
                |path: &PathBuf| path.extension().is_some_and(|end| endings.contains(end));
            named.files.extend(candidates.filter(is_like));
            named.files.extend(known.iter().cloned());
            named.directories.extend(directories.iter().map(|path| Path::new(".").join(path)));
        }
    }
}

/// Named as the directory is, which may be the one that the program runs in.
fn files_in(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(Path::new(".").join(directory)).into_iter().flatten().flatten();
    entries.map(|entry| directory.join(entry.file_name())).filter(|path| path.is_file())
}

/// Why the contents of a set cannot be had.
pub(crate) enum Unusable {
    Copy { path: Spanned<PathBuf>, error: io::Error },
    Template(Box<RenderError>),
}

impl Unusable {
    /// Reports it at its place: in the template, or in the document where the text of the template is written there.
    pub(crate) fn report(&self, set: &Set, checker: &mut Checker) {
        let error = match self {
            Unusable::Copy { path, error } => {
                let message = format!("{} cannot be read: {error}", path.display());
                checker.report(Diagnostic::new(path.span, message));
                return;
            }
            Unusable::Template(error) => error,
        };
        let of = |write: &&Write| Path::new(write.path.value.as_str()) == error.file;
        let source = set.write.iter().find(of).and_then(|write| write.source.as_ref());
        match source {
            Some(Source::Text(text)) if error.at.file == TEXT => {
                let (at, message) = if let Some(span) = place_in(text, error, checker) {
                    (span, error.message.clone())
                } else {
                    let Location { line, column, .. } = &error.at;
                    let message = &error.message;
                    (text.span, format!("{message} (in line {line}, column {column} of it)"))
                };
                let help = "`text` is a template; what is none is written as a file of its own, with `copy`";
                checker.report(Diagnostic::new(at, message).help(help));
            }
            Some(Source::Template(path)) if error.at.line == 1 && !path.exists() => {
                let message = format!("{} cannot be read: there is no such file", path.display());
                checker.report(Diagnostic::new(path.span, message));
            }
            _ => checker.absorb(error.diagnostics()),
        }
    }
}

/// What errors call a template that is written in the document.
const TEXT: &str = "text";

/// The place of a mistake in a text of the document: a text without escapes and indentation is there as it is.
fn place_in(text: &Spanned<String>, error: &RenderError, checker: &Checker) -> Option<Span> {
    let start = checker.written_at(text.span).find(text.as_str())?;
    let Location { line, column, .. } = &error.at;
    let before =
        text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum::<usize>();
    let rest = text.get(before..)?.chars().take(column.saturating_sub(1));
    let offset = u32::try_from(start + before + rest.map(char::len_utf8).sum::<usize>()).ok()?;
    let at = text.span.start.saturating_add(offset);
    Some(Span { start: at, end: at.saturating_add(1), ..text.span })
}

impl Set {
    /// Reads the contents of the set. Templates are named relative to `directory`.
    pub(crate) fn templates(&self, directory: &Path) -> Result<FileSet, Unusable> {
        let quoting = self.profile().map(|profile| profile.quoting).unwrap_or_default();
        let mut builder = FileSet::builder(directory).quoting(quoting);
        for input in &self.inputs {
            builder = builder.input(input.name.0.clone(), input.spec.secrecy);
        }
        for write in &self.write {
            let content = match &write.source {
                None => TemplateContent::Bytes(Vec::new()),
                Some(Source::Text(text)) => {
                    TemplateContent::Text { name: TEXT.to_owned(), text: text.value.clone() }
                }
                Some(Source::Template(path)) => {
                    let below = path.strip_prefix(directory).unwrap_or(path);
                    TemplateContent::Template(below.to_owned())
                }
                Some(Source::Copy(path)) => {
                    let read = fs::read(&path.value);
                    let bytes =
                        read.map_err(|error| Unusable::Copy { path: path.clone(), error })?;
                    match self.program {
                        Some(_) => TemplateContent::Marked(bytes),
                        None => TemplateContent::Bytes(bytes),
                    }
                }
            };
            builder = builder.file(write.path.value.as_str(), content, write.part().secrecy());
        }
        builder.build().map_err(Unusable::Template)
    }

    /// All that it declares.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &FilePath> {
        let files = self.write.iter().map(|write| &write.path.value);
        files.chain(self.directories.iter().map(|directory| &directory.path.value))
    }

    fn profile(&self) -> Option<&'static Profile> {
        self.program.as_ref()?.known.as_ref().map(|known| known.profile)
    }

    /// What the set is made of.
    pub(crate) fn recipe(&self, directory: &Path, values: Value) -> Result<Recipe, Unusable> {
        let files = self.write.iter().map(|write| (write.path.value.clone(), write.part()));
        let directories = self.directories.iter().map(|directory| {
            let Directory { path, attributes, adopt, exclusive } = directory.clone();
            (path.value, DirectorySpec { attributes, adopt, exclusive })
        });
        let inputs = self.inputs.iter().map(|input| (input.name.0.clone(), input.spec.clone()));
        let program = self.program.as_ref().map(|program| ProgramOf {
            set: self.name.value.to_string(),
            profile: self.profile(),
            haproxy: Haproxy::of(program.known.as_ref(), program.running.as_ref()),
        });
        Ok(Recipe {
            files: files.collect(),
            directories: directories.collect(),
            templates: self.templates(directory)?,
            values,
            inputs: inputs.collect(),
            program,
        })
    }
}

impl Write {
    fn part(&self) -> FilePart {
        let Write { attributes, secret, adopt, .. } = self;
        FilePart { attributes: attributes.clone(), secret: *secret, adopt: *adopt }
    }
}

impl Section for Values {
    const NAME: &'static str = "values";
    const DOC: &'static str = "Plain data for the templates of files";
    const SCOPES: Scopes = Scopes::Host("files belong to the host, not to a namespace");
    const JOIN: Join = Join::Tables(&[]);

    type Value = PlainTable;
    const NEW: fn(Self::Value) -> Self = Values;
}

impl Section for Sets {
    const NAME: &'static str = "files";
    const DOC: &'static str = "Sets of configuration files by name";
    const SCOPES: Scopes = Scopes::Host("files belong to the host, not to a namespace");
    const JOIN: Join = Join::Tables(&[]);

    type Value = Map<Set>;
    const NEW: fn(Self::Value) -> Self = |Map(sets)| Self(sets);

    fn check(document: &Document, checker: &mut Checker) {
        for (_, scope) in document.scopes() {
            let mut twins = Twins::default();
            for set in sets(scope) {
                let files = set.write.iter().map(|write| &write.path);
                let directories = set.directories.iter().map(|directory| &directory.path);
                for path in files.chain(directories) {
                    let what = || format!("the path {}", path.value);
                    twins.see(path.value.clone(), path.span, checker, what);
                }
            }
            for set in sets(scope) {
                check_exclusive(set, sets(scope), checker);
            }
        }
    }
}

/// What another set writes into an exclusive directory would be moved away.
fn check_exclusive<'a>(set: &Set, all: impl Iterator<Item = &'a Set>, checker: &mut Checker) {
    let exclusive = set
        .directories
        .iter()
        .filter_map(|directory| Some((&directory.path.value, directory.exclusive.as_ref()?)));
    let exclusive: Vec<_> = exclusive.collect();
    for other in all.filter(|other| other.name.value != set.name.value) {
        for write in &other.write {
            let (above, name) = write.path.value.split();
            let is_taken = |(directory, exclusive): &&(&FilePath, &Exclusive)| {
                directory.as_str() == above && !exclusive.spares(name)
            };
            if exclusive.iter().any(|one| is_taken(&one)) {
                let message = format!("{above} is exclusive to the set `{}`", set.name.value);
                let help = "write the file in that set, or name it in `except` of the directory";
                checker.report(Diagnostic::new(write.path.span, message).help(help));
            }
        }
    }
}

impl NamedRecord for Set {
    const KEY: &'static str = "a name of your choice";
}

impl Record for Set {
    const NAME: &'static str = "file-set";
    const DOC: &'static str = "Files that are written as one";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let check: Option<Vec<String>> = fields
            .optional("check", "A program and its arguments that judge the set before it is there");
        let namespace =
            fields.optional("namespace", "The network namespace in which programs of the set run");
        if let Some(check) = &check
            && !check.first().is_some_and(|program| program.starts_with('/'))
        {
            let message = "`check` needs a program by its absolute path, and its arguments";
            let help = "write it as `[\"/usr/sbin/haproxy\", \"-c\", \"-f\", \"/etc/haproxy/haproxy.cfg\"]`; no shell is used";
            fields.report(Diagnostic::new(fields.value_at("check"), message).help(help));
        }
        let certificate_days: Option<u16> = fields.number(
            "certificate-days",
            "A certificate of the set that ends in fewer days is reported; 14 by default",
            Number { what: "a number of days", least: 0, most: 1000 },
        );
        let write: Option<Map<Write>> = fields.optional("write", "Files by path");
        let directories: Option<Map<Directory>> =
            fields.optional("directories", "Directories by path");
        let inputs: Option<Map<Input>> =
            fields.optional("inputs", "Data that the files are made of, by name");
        let written = write.as_ref().map(|Map(all)| all.as_slice()).unwrap_or_default();
        let program = read_program(fields, written);
        let known = program.as_ref().and_then(|program| program.known.as_ref());
        let check = check.or_else(|| known.map(|known| (known.profile.check)(&known.main)));
        Some(Set {
            name: fields.name()?,
            check,
            program,
            namespace,
            certificate_days,
            inputs: inputs.map(|Map(all)| all).unwrap_or_default(),
            write: write.map(|Map(all)| all).unwrap_or_default(),
            directories: directories.map(|Map(all)| all).unwrap_or_default(),
        })
    }
}

/// How long a program may take to take files over.
const WITHIN: Duration = Duration::from_secs(10);

/// What a set says of its program, before a profile fills in the rest.
struct DeclaredProgram {
    profile: Option<&'static Profile>,
    sockets: Sockets,
    reload: Option<Vec<String>>,
    restart: Option<Vec<String>>,
    pid_file: Option<PathBuf>,
    unit: Option<UnitName>,
    signal: Signal,
    running: Option<Running>,
    within: Duration,
    limits: Limits,
}

impl DeclaredProgram {
    fn read(fields: &mut Fields<'_>) -> Self {
        let profile: Option<Spanned<ProfileName>> =
            fields.optional("program", "A program that is known");
        let sockets: Option<Sockets> = fields.optional("sockets", "The sockets of that program");
        let reload: Option<Vec<String>> =
            fields.optional("reload", "A program and its arguments that reload the program");
        let restart: Option<Vec<String>> = fields
            .optional("restart", "A program and its arguments that start the program if it died");
        let pid_file: Option<MachinePath> =
            fields.optional("pid-file", "A file with the id of the process that gets the signal");
        let unit: Option<UnitOfProgram> =
            fields.optional("unit", "The unit of systemd in which the program runs");
        let signal: Option<SignalName> = fields.optional("signal", "That signal; HUP by default");
        let running: Option<Running> =
            fields.optional("running", "How the program is asked what it runs");
        let within: Option<Period> =
            fields.optional("within", "How long the program may take to run the new files");
        let min_interval: Option<Period> =
            fields.optional("min-interval", "The least time between two reloads");
        let old_processes: Option<u16> = fields.number(
            "old-processes",
            "No reload while more processes of former reloads than this end their work",
            Number { what: "a number of processes", least: 0, most: 1000 },
        );
        fields.exclusive("reload", "pid-file");
        fields.exclusive("unit", "pid-file");
        fields.exclusive("unit", "restart");
        let ask = running.as_ref().and_then(|running| match &running.ask {
            Request::Run(arguments) => Some(arguments),
            _ => None,
        });
        for (name, arguments) in
            [("reload", reload.as_ref()), ("restart", restart.as_ref()), ("running", ask)]
        {
            if arguments.is_some_and(|all| !all.first().is_some_and(|one| one.starts_with('/'))) {
                let message =
                    format!("`{name}` needs a program by its absolute path, and its arguments");
                fields.report(Diagnostic::new(fields.value_at(name), message));
            }
        }
        DeclaredProgram {
            profile: profile.map(|name| name.value.0),
            sockets: sockets.unwrap_or_default(),
            reload,
            restart,
            pid_file: pid_file.map(|MachinePath(path)| path),
            unit: unit.map(|UnitOfProgram(name)| name),
            signal: signal.map_or(Signal::HUP, |SignalName(signal)| signal),
            running,
            within: within.map_or(WITHIN, Period::get),
            limits: Limits {
                min_interval: min_interval.map(Period::get).unwrap_or_default(),
                old_processes: old_processes.map(usize::from),
            },
        }
    }
}

/// The program of a set: what is declared counts before what its profile says. Nothing, if the set has no program.
fn read_program(fields: &mut Fields<'_>, write: &[Write]) -> Option<ProgramSection> {
    let declared = DeclaredProgram::read(fields);
    let DeclaredProgram { restart, unit, within, limits, .. } = declared;
    let sockets = declared.sockets;
    let known = declared.profile.and_then(|profile| find_main(fields, profile, sockets, write));
    let setup = known.as_ref().map(|Known { profile, main, sockets }| {
        (*profile, Setup { main, sockets, restart: restart.as_deref() })
    });
    let of_profile = setup.as_ref().and_then(|(profile, setup)| (profile.running)(setup));
    let running = declared.running.or(of_profile);
    let of_profile = known.as_ref().and_then(|known| known.profile.pid_file);
    let pid_file = declared.pid_file.or_else(|| of_profile.map(PathBuf::from));
    let reload = declared
        .reload
        .map(|arguments| Reload::Send(Request::Run(arguments)))
        .or_else(|| unit.as_ref().map(|_| Reload::Unit(JobKind::ReloadOrRestart)))
        .or_else(|| setup.as_ref().and_then(|(profile, setup)| (profile.reload)(setup)))
        .or_else(|| pid_file.as_ref().map(|_| Reload::Signal(declared.signal)));
    if let Some((profile, _)) = setup.filter(|_| reload.is_none() || running.is_none()) {
        let message = format!("`{}` cannot be reloaded, or asked what it runs", profile.name);
        let help = format!("it needs {}", profile.needs);
        fields.report(Diagnostic::new(fields.at("program"), message).help(help));
        return None;
    }
    let Some(reload) = reload else {
        for name in ["restart", "running", "signal", "within", "min-interval", "old-processes"] {
            if fields.has(name) {
                let message = format!("`{name}` needs `reload`, `unit` or `pid-file`");
                fields.report(Diagnostic::new(fields.at(name), message));
            }
        }
        return None;
    };
    if limits.old_processes.is_some() {
        check_draining(fields, known.as_ref());
    }
    Some(ProgramSection { reload, known, pid_file, unit, restart, running, within, limits })
}

/// `old-processes` is for programs whose processes of former reloads can be counted.
fn check_draining(fields: &mut Fields<'_>, known: Option<&Known>) {
    if known.is_none_or(|known| known.profile.draining.is_none()) {
        let counted = programs::ALL.iter().filter(|profile| profile.draining.is_some());
        let names: Vec<&str> = counted.map(|profile| profile.name).collect();
        let message = format!("the processes of {} only can be counted", names.join(" and "));
        fields.report(Diagnostic::new(fields.at("old-processes"), message));
    }
}

/// The main file of a known program is known by its name.
fn find_main(
    fields: &mut Fields<'_>,
    profile: &'static Profile,
    sockets: Sockets,
    write: &[Write],
) -> Option<Known> {
    let main = write.iter().find(|write| write.path.split().1 == profile.main);
    if main.is_none() {
        let message = format!("`{}` needs a file that is called `{}`", profile.name, profile.main);
        fields.report(Diagnostic::new(fields.at("program"), message));
    }
    main.map(|main| Known { profile, main: main.path.value.clone(), sockets })
}

record!(Running);

impl Record for Running {
    const NAME: &'static str = "running";
    const DOC: &'static str = "How a program is asked what it runs";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let ask = fields.required("ask", "A program and its arguments that print it");
        let is: Option<Spanned<String>> =
            fields.required("is", "What they print, with `{{ generation }}` for the generation");
        if let Some(is) = is.as_ref().filter(|is| !is.contains(PLACEHOLDER)) {
            let message =
                format!("`is` must hold `{PLACEHOLDER}`, by which generations are distinguished");
            fields.report(Diagnostic::new(is.span, message));
        }
        Some(Running { ask: Request::Run(ask?), is: is?.value })
    }
}

/// A program that is known.
#[derive(Clone, Copy)]
struct ProfileName(&'static Profile);

impl Text for ProfileName {
    const WHAT: &'static str = "a program that is known";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        Profile::of(text).map(ProfileName).ok_or_else(|| ValueError::is_not(text, Self::WHAT))
    }

    fn words() -> Vec<&'static str> {
        programs::ALL.iter().map(|profile| profile.name).collect()
    }
}

record!(Sockets);

impl Record for Sockets {
    const NAME: &'static str = "sockets";
    const DOC: &'static str = "Where a program can be spoken to";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let mut path = |name, doc| fields.optional(name, doc).map(|MachinePath(path)| path);
        let master = path("master", "HAProxy: that of its master process (`-S`)");
        let admin =
            path("admin", "HAProxy: that of its worker (`stats socket`), with `level admin`");
        let control = path("control", "unbound: `control-interface`; BIRD: `-s`");
        let status: Option<Address> = fields.optional(
            "status",
            "nginx: an address and a port at which it answers with the generation",
        );
        Some(Sockets { master, admin, control, status: status.map(|Address(address)| address) })
    }
}

/// An address and a port.
struct Address(SocketAddr);

impl Text for Address {
    const WHAT: &'static str = "an address and a port, such as \"127.0.0.1:8099\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        text.parse().map(Address).map_err(|_| ValueError::is_not(text, Self::WHAT))
    }
}

/// A unit in which a program runs.
struct UnitOfProgram(UnitName);

impl Text for UnitOfProgram {
    const WHAT: &'static str = "the name of a unit";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let name = text
            .parse()
            .map_err(|error: NotAUnit| ValueError::new(error.to_string()).help(error.help()));
        name.map(UnitOfProgram)
    }
}

/// A signal that programs take for a reload.
struct SignalName(Signal);

const SIGNALS: [(&str, Signal); 5] = [
    ("HUP", Signal::HUP),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("WINCH", Signal::WINCH),
    ("TERM", Signal::TERM),
];

impl Text for SignalName {
    const WHAT: &'static str = "a signal";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let known = SIGNALS.iter().find(|(name, _)| *name == text);
        known
            .map(|(_, signal)| SignalName(*signal))
            .ok_or_else(|| ValueError::is_not(text, Self::WHAT))
    }

    fn words() -> Vec<&'static str> {
        SIGNALS.iter().map(|(name, _)| *name).collect()
    }
}

impl NamedRecord for Write {
    const KEY: &'static str = "the absolute path of a file";
}

const ADOPT: &str = "Take this path over from anybody";

impl Record for Write {
    const NAME: &'static str = "written-file";
    const DOC: &'static str = "A file with its content";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let text = fields.optional("text", "A template that makes its content, written here");
        let template = fields.optional("template", "A file with a template that makes its content");
        let copy = fields.optional("copy", "A file that has its content");
        let mut attributes = read_attributes(fields);
        let secret = fields.flag("secret", "Show nothing of its content anywhere");
        let adopt = fields.flag("adopt", ADOPT);
        fields.exclusive("text", "copy");
        fields.exclusive("text", "template");
        fields.exclusive("template", "copy");
        if fields.lacks(&["text", "template", "copy"]) {
            let message = "a file needs its content: `text`, `template` or `copy`";
            fields.report(Diagnostic::new(fields.span(), message));
        }
        if secret {
            fields.conceal("text");
            let mode = *attributes.mode.get_or_insert(Mode(0o600));
            if mode.0 & 0o007 != 0 {
                let message = format!("the mode {mode} lets everybody read a secret");
                let help = "write a mode that ends in 0, such as `0640`";
                fields.report(Diagnostic::new(fields.value_at("mode"), message).help(help));
            }
        }
        let source = text.map(Source::Text).or(template.map(Source::Template));
        let source = source.or(copy.map(Source::Copy));
        Some(Write { path: fields.name()?, source, attributes, secret, adopt })
    }
}

impl NamedRecord for Input {
    const KEY: &'static str = "a name of your choice";
}

/// Where an input may come from.
const ORIGINS: [&str; 4] = ["file", "directory", "url", "credential"];

impl Record for Input {
    const NAME: &'static str = "input";
    const DOC: &'static str =
        "Data that files are made of: from a file, a directory, a URL or a credential";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let file: Option<MachinePath> = fields.optional("file", "A file");
        let directory: Option<MachinePath> =
            fields.optional("directory", "The files in a directory, by name");
        let url: Option<UrlText> =
            fields.optional("url", "An address of https, or of http on this machine");
        let credential: Option<String> =
            fields.optional("credential", "A credential that systemd passes to the service");
        let form: Option<FormWord> = fields.optional(
            "as",
            "How it is understood; by default as its name ends, and else as a text",
        );
        let every: Option<Period> = fields
            .optional("every", "The time between two questions to a URL; 5 minutes by default");
        let timeout: Option<Period> =
            fields.optional("timeout", "How long a URL may take to answer; 30 seconds by default");
        let at_most: Option<Size> =
            fields.optional("at-most", "The largest answer of a URL; 1 MiB by default");
        let bearer: Option<String> =
            fields.optional("bearer", "The credential that is sent to a URL as a token");
        let authority: Option<MachinePath> = fields.optional(
            "authority",
            "A file with the certificates to trust, in place of those of the system",
        );
        let secret = fields.flag("secret", "Only secret files may be made of it");
        let allow_empty = fields.flag("allow-empty", "Whether nothing is a value, too");
        let mut written = ORIGINS.into_iter().filter(|name| fields.has(name));
        let (first, second) = (written.next(), written.next());
        if let (Some(first), Some(second)) = (first, second) {
            fields.exclusive(first, second);
        }
        if fields.lacks(&ORIGINS) {
            let message = "an input needs its origin: `file`, `directory`, `url` or `credential`";
            fields.report(Diagnostic::new(fields.span(), message));
        }
        if first != Some("url") {
            for name in ["every", "timeout", "at-most", "bearer", "authority"] {
                if fields.has(name) {
                    let message = format!("`{name}` is for a `url`");
                    fields.report(Diagnostic::new(fields.at(name), message));
                }
            }
        }
        let name = fields.name();
        let url = url.map(|UrlText(url)| {
            let mut origin = UrlOrigin::new(url);
            origin.every = every.map_or(origin.every, Period::get);
            origin.timeout = timeout.map_or(origin.timeout, Period::get);
            origin.at_most = at_most.map_or(origin.at_most, |Size(bytes)| bytes);
            origin.bearer = bearer;
            origin.authority = authority.map(|MachinePath(path)| path);
            Origin::Url(origin)
        });
        let path = |path: Option<MachinePath>, origin: fn(PathBuf) -> Origin| {
            path.map(|MachinePath(path)| origin(path))
        };
        let origin = path(file, Origin::File).or(path(directory, Origin::Directory));
        let origin = origin.or(url).or(credential.map(Origin::Credential))?;
        let form = form.map_or_else(|| form_of(&origin), |FormWord(form)| form);
        let secrecy = if secret { Secrecy::Secret } else { Secrecy::Public };
        let spec = InputSpec::new(origin).form(form).secrecy(secrecy);
        let spec = if allow_empty { spec.allow_empty() } else { spec };
        Some(Input { name: name?, spec })
    }
}

/// The form that the name of a source ends in.
fn form_of(origin: &Origin) -> Form {
    let name = match origin {
        Origin::File(path) => path.to_string_lossy().into_owned(),
        Origin::Url(origin) => origin.url.to_string(),
        _ => return Form::Text,
    };
    let (_, end) = name.rsplit_once('.').unwrap_or_default();
    let known = FORMS.iter().find(|(word, _)| *word == end);
    known.map_or(if end == "yml" { Form::Yaml } else { Form::Text }, |(_, form)| *form)
}

const FORMS: [(&str, Form); 5] = [
    ("json", Form::Json),
    ("yaml", Form::Yaml),
    ("toml", Form::Toml),
    ("lines", Form::Lines),
    ("text", Form::Text),
];

/// A form by its word.
struct FormWord(Form);

impl Text for FormWord {
    const WHAT: &'static str = "a form of data";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let known = FORMS.iter().find(|(word, _)| *word == text);
        known.map(|(_, form)| FormWord(*form)).ok_or_else(|| ValueError::is_not(text, Self::WHAT))
    }

    fn words() -> Vec<&'static str> {
        FORMS.iter().map(|(word, _)| *word).collect()
    }
}

/// The address of an input.
struct UrlText(Url);

impl Text for UrlText {
    const WHAT: &'static str = "an address of https, or of http on this machine";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        text.parse()
            .map(UrlText)
            .map_err(|error: homeostat_render::Error| ValueError::new(error.to_string()))
    }
}

/// So many bytes.
struct Size(u64);

impl Text for Size {
    const WHAT: &'static str = "a size, such as \"512KiB\" or \"1MiB\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = match text.get(digits.len()..).unwrap_or_default() {
            "B" => Some(1),
            "KiB" => Some(1 << 10),
            "MiB" => Some(1 << 20),
            _ => None,
        };
        let bytes = digits.parse::<u64>().ok().zip(unit);
        let bytes = bytes.and_then(|(number, unit)| number.checked_mul(unit));
        let is_sound = |bytes: &u64| (1..=64 << 20).contains(bytes);
        let bytes = bytes.filter(is_sound).ok_or_else(|| ValueError::is_not(text, Self::WHAT))?;
        Ok(Size(bytes))
    }
}

impl Text for InputName {
    const WHAT: &'static str = "a name of letters, digits and `_` that begins with a letter";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let begins = text.starts_with(|c: char| c.is_ascii_alphabetic());
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_name = begins && text.len() <= 64 && text.chars().all(is_plain);
        is_name
            .then(|| InputName(text.to_owned()))
            .ok_or_else(|| ValueError::is_not(text, Self::WHAT))
    }
}

impl NamedRecord for Directory {
    const KEY: &'static str = "the absolute path of a directory";
}

impl Record for Directory {
    const NAME: &'static str = "made-directory";
    const DOC: &'static str = "A directory";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let attributes = read_attributes(fields);
        let adopt = fields.flag("adopt", ADOPT);
        let is_exclusive = fields.flag(
            "exclusive",
            "Whether files in it that are not declared are moved away; they return with its end",
        );
        let except: Option<Vec<String>> =
            fields.optional("except", "Names that stay in an exclusive directory; `*` is any text");
        if except.is_some() && !is_exclusive {
            let message = "`except` is for a directory that is `exclusive`";
            fields.report(Diagnostic::new(fields.at("except"), message));
        }
        let except = except.unwrap_or_default();
        if except.iter().any(|name| name.is_empty() || name.contains('/')) {
            let message = "`except` has names of files in the directory, not paths";
            fields.report(Diagnostic::new(fields.value_at("except"), message));
        }
        let exclusive = is_exclusive.then_some(Exclusive { except });
        Some(Directory { path: fields.name()?, attributes, adopt, exclusive })
    }
}

fn read_attributes(fields: &mut Fields<'_>) -> Attributes {
    Attributes {
        owner: fields.optional("owner", "The user that it belongs to; by default as it is"),
        group: fields.optional("group", "The group that it belongs to; by default as it is"),
        mode: fields.optional("mode", "Its permissions; by default as they are"),
    }
}

impl SetName {
    /// The name of the set of a section, which is none that a document can write.
    pub(crate) fn of_a_section(name: &str) -> Self {
        SetName(name.to_owned())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Text for SetName {
    const WHAT: &'static str = "a name of letters, digits, `-` and `_`";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let is_name = (1..=64).contains(&text.len()) && text.chars().all(is_plain);
        is_name
            .then(|| SetName(text.to_owned()))
            .ok_or_else(|| ValueError::is_not(text, Self::WHAT))
    }
}

impl Text for FilePath {
    const WHAT: &'static str = "an absolute path";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        text.parse::<FilePath>().map_err(|error| {
            let value = ValueError::new(error.to_string());
            error.help().map_or(value.clone(), |help| value.help(help))
        })
    }
}

impl Text for Account {
    const WHAT: &'static str = "a name or a number";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let is_name = !text.is_empty() && !text.contains([':', '/', ' ']);
        is_name.then(|| Account::declared(text)).ok_or_else(|| ValueError::is_not(text, Self::WHAT))
    }
}

impl Text for Mode {
    const WHAT: &'static str = "permissions in octal digits, such as \"0640\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        Mode::parse(text).ok_or_else(|| ValueError::is_not(text, Self::WHAT))
    }
}

/// The keys that a set declares, for callers that wait.
pub(crate) fn keys(set: &Set) -> impl Iterator<Item = Key> {
    let directories = set.directories.iter().map(|one| Key::Directory(one.path.value.clone()));
    let files = set.write.iter().map(|write| Key::File(write.path.value.clone()));
    let program = set.program.iter().map(|_| Key::Program(set.name.value.to_string()));
    directories.chain(files).chain(program)
}
