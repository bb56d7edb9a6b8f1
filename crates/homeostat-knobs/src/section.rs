//! The sections of the document: `[sysctl]`, a link's `sysctl`, `[sysfs]` and `[cgroups]`.

use std::collections::BTreeMap;

use homeostat_document::{
    Assignment, Checker, Definitions, Diagnostic, Document, Extension, ExtensionType, Fields, Join,
    Json, Keyed, Map, Node, Record, Scope, Scopes, Section, SectionType, Shape, SourceSections,
    Span, Spanned, Twins, Value, ValueError, check, describe_record, read_record, read_table,
};
use serde_json::json;

use crate::key::{Key, KeyError, check_parts};
use crate::model::{Builder, DesiredError, DesiredState};

/// All that knobs add to documents.
pub const SECTIONS: SourceSections = SourceSections {
    extensions: &[ExtensionType::of::<LinkSysctl>()],
    synonyms: &[("sysctls", "sysctl")],
    ..SourceSections::new(
        "knobs",
        &[
            SectionType::of::<Sysctl>(),
            SectionType::of::<SysfsKnobs>(),
            SectionType::of::<Cgroups>(),
        ],
    )
};

/// A declared knob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    pub key: Spanned<Key>,
    /// The value: integers in decimal, lists of them with one space between.
    pub value: Spanned<String>,
    /// Whether it may be taken over from any owner.
    pub adopt: bool,
}

/// `[sysctl]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysctl(pub Vec<Knob>);

/// `[sysfs]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysfsKnobs(pub Vec<Knob>);

/// The `sysctl` of one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSysctl {
    /// The link's name.
    pub link: String,
    /// Nothing, if the link has no `sysctl`.
    pub knobs: Option<Vec<Knob>>,
    /// Whether the link may be absent.
    pub is_optional: bool,
}

impl LinkSysctl {
    /// The section that links are in.
    pub const SECTION: &'static str = "links";
    /// The field of a link.
    pub const FIELD: &'static str = "sysctl";
    /// The field by which a link may be absent, which the network reads.
    const OPTIONAL: &'static str = "optional";
}

/// `[cgroups]`: the limits of all groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups(pub Vec<Knob>);

/// Every knob of a scope.
pub fn knobs(scope: &Scope) -> impl Iterator<Item = &Knob> {
    let sysfs = scope.get::<SysfsKnobs>().into_iter().flat_map(|all| &all.0);
    let groups = scope.get::<Cgroups>().into_iter().flat_map(|all| &all.0);
    sysctls(scope).chain(sysfs).chain(groups)
}

/// Those of `[sysctl]`, then those of the links.
fn sysctls(scope: &Scope) -> impl Iterator<Item = &Knob> {
    let own = scope.get::<Sysctl>().into_iter().flat_map(|all| &all.0);
    own.chain(scope.extensions::<LinkSysctl>().filter_map(|link| link.knobs.as_ref()).flatten())
}

/// Whether a scope says anything of knobs.
#[must_use]
pub fn is_stated(scope: &Scope) -> bool {
    let of_links = scope.extensions::<LinkSysctl>().any(|link| link.knobs.is_some());
    let sections = [Sysctl::NAME, SysfsKnobs::NAME, Cgroups::NAME];
    sections.into_iter().any(|section| scope.states(section)) || of_links
}

/// Reports every knob that cannot be declared.
pub fn resolve(scope: &Scope, checker: &mut Checker) {
    for knob in knobs(scope) {
        if let Err(error) = knob.add_to(DesiredState::builder()) {
            let help = error.help().map(str::to_owned);
            checker.report(Diagnostic::new(knob.key.span, error.to_string()).maybe_help(help));
        }
    }
}

/// What a scope declares.
pub fn desired(scope: &Scope) -> Result<DesiredState, DesiredError> {
    let optional = scope.extensions::<LinkSysctl>().filter(|link| link.is_optional);
    let builder =
        optional.fold(DesiredState::builder(), |builder, one| builder.optional_link(&one.link));
    knobs(scope).try_fold(builder, |builder, knob| knob.add_to(builder))?.build()
}

/// Observed values, as sections of a document.
pub fn show(found: impl Iterator<Item = (Key, String)>) -> serde_json::Map<String, Json> {
    let (mut sysctl, mut groups) = (BTreeMap::new(), BTreeMap::<_, BTreeMap<_, _>>::new());
    let mut sysfs = BTreeMap::new();
    for (key, text) in found {
        match key {
            Key::Sysctl(path) => _ = sysctl.insert(path.to_string(), number_or(text)),
            Key::Sysfs(path) => _ = sysfs.insert(path.as_str().to_owned(), number_or(text)),
            Key::Cgroup(file) => {
                let group = groups.entry(file.group().to_owned()).or_default();
                group.insert(file.file().to_owned(), number_or(text));
            }
        }
    }
    let mut sections = serde_json::Map::from_iter([(Sysctl::NAME.to_owned(), json!(sysctl))]);
    if !sysfs.is_empty() {
        sections.insert(SysfsKnobs::NAME.to_owned(), json!(sysfs));
    }
    if !groups.is_empty() {
        sections.insert(Cgroups::NAME.to_owned(), json!(groups));
    }
    sections
}

/// A number where the value is one, else text.
fn number_or(text: String) -> Json {
    // Anything but the plain decimal form must stay text, or it would be read as another number.
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => number.into(),
        _ => text.into(),
    }
}

impl Knob {
    fn add_to(&self, builder: Builder) -> Result<Builder, DesiredError> {
        let builder = builder.knob(self.key.value.clone(), &self.value)?;
        Ok(if self.adopt { builder.adopting() } else { builder })
    }

    fn assignment(&self) -> Assignment<'_> {
        Assignment { name: self.key.path(), value: &self.value, span: self.key.span }
    }
}

impl Section for Sysctl {
    const NAME: &'static str = "sysctl";
    const DOC: &'static str = "Kernel knobs by key";
    const JOIN: Join = Join::Tables(&[]);

    type Value = Map<Knob>;
    const NEW: fn(Self::Value) -> Self = |Map(knobs)| Self(knobs);

    fn check(document: &Document, checker: &mut Checker) {
        for (namespace, scope) in document.scopes() {
            let mut twins = Twins::default();
            for knob in sysctls(scope) {
                let path = knob.key.path();
                let what = || format!("the knob `{path}`");
                twins.see(path.clone(), knob.key.span, checker, what);
            }
            if namespace.is_some() {
                let knobs = scope.get().into_iter().flat_map(|Self(knobs)| knobs);
                refuse_host_wide(document, Self::NAME, knobs, checker);
            }
        }
    }

    fn assignments(&self, each: &mut dyn FnMut(Assignment<'_>)) {
        self.0.iter().map(Knob::assignment).for_each(each);
    }
}

/// Only `net` and the `class/net` of sysfs exist once per namespace: any other knob would change the host.
fn refuse_host_wide<'a>(
    document: &Document,
    section: &str,
    knobs: impl Iterator<Item = &'a Knob>,
    checker: &mut Checker,
) {
    for Knob { key, .. } in knobs.filter(|knob| knob.key.is_host_wide()) {
        let written = document.written_at(key.span).trim_matches(['"', '\'']);
        let message = format!("`{written}` is host-wide, not a knob of a namespace");
        let help = format!("move it to the `{section}` section at the top level of the document");
        checker.report(Diagnostic::new(key.span, message).help(help));
    }
}

impl Section for SysfsKnobs {
    const NAME: &'static str = "sysfs";
    const DOC: &'static str = "Files of sysfs by their path below `/sys`";
    const JOIN: Join = Join::Tables(&[]);

    type Value = Map<SysfsKnob>;
    const NEW: fn(Self::Value) -> Self =
        |Map(knobs)| Self(knobs.into_iter().map(|SysfsKnob(knob)| knob).collect());

    fn check(document: &Document, checker: &mut Checker) {
        for (_, scope) in document.scopes().filter(|(namespace, _)| namespace.is_some()) {
            let knobs = scope.get().into_iter().flat_map(|Self(knobs)| knobs);
            refuse_host_wide(document, Self::NAME, knobs, checker);
        }
    }
}

impl Extension for LinkSysctl {
    const RECORD: &'static str = "link";
    const JOINED: &'static [&'static str] = &["links/*/sysctl"];

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let knobs: Option<Map<Entry>> = fields.optional(Self::FIELD, "The link's own knobs");
        let link: String = fields.name()?.value;
        let is_optional = fields.is_true(Self::OPTIONAL);
        let Some(Map(knobs)) = knobs else { return Some(Self { link, knobs: None, is_optional }) };
        let mut all = Vec::new();
        for Entry { key: Spanned { value: key, span }, value, adopt } in knobs {
            match Key::link_sysctl(&link, &key) {
                Ok(key) => all.push(Knob { key: Spanned::new(key, span), value, adopt }),
                // A name that no link can have is reported where links are read.
                Err(KeyError::NotALink(name)) if !["all", "default"].contains(&name.as_str()) => {}
                Err(error) => fields.report(refuse_key(span, &error)),
            }
        }
        Some(Self { link, knobs: Some(all), is_optional })
    }

    fn assignments(&self, each: &mut dyn FnMut(Assignment<'_>)) {
        self.knobs.iter().flatten().map(Knob::assignment).for_each(each);
    }
}

impl Section for Cgroups {
    const NAME: &'static str = "cgroups";
    const DOC: &'static str = "Limits of control groups by path";
    const SCOPES: Scopes = Scopes::Host("control groups belong to the host, not to a namespace");
    const JOIN: Join = Join::Tables(&["*"]);

    type Value = Map<Group>;
    const NEW: fn(Self::Value) -> Self =
        |Map(groups)| Self(groups.into_iter().flat_map(|Group(limits)| limits).collect());
}

/// A key and a value, before anything is known of the key.
struct Entry {
    key: Spanned<String>,
    value: Spanned<String>,
    adopt: bool,
}

/// The text of a knob's value.
struct KnobText(String);

/// `{ value = ..., adopt = true }`.
struct Detailed {
    value: Spanned<KnobText>,
    adopt: bool,
}

const WRITE_ADOPT: &str = "Take this over from any owner";

/// A knob of `[sysctl]`, by its whole key.
impl Keyed for Knob {
    const KEY: &'static str = "a sysctl key: `net.ipv4.ip_forward` or `net/ipv4/ip_forward`";

    fn read_entry(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self> {
        let entry = Entry::read_entry(key, node, checker);
        let known = Key::sysctl(key);
        match &known {
            // It became nested tables, and was reported.
            Err(KeyError::NoSeparator(_))
                if entry.is_none() && matches!(node.value, Value::Table(_)) => {}
            Err(error) => checker.report(refuse_key(key.span, error)),
            Ok(_) => {}
        }
        let Entry { value, adopt, .. } = entry?;
        Some(Self { key: Spanned::new(known.ok()?, key.span), value, adopt })
    }

    fn entry_schema(definitions: &mut Definitions) -> Json {
        let plain = KnobText::schema(definitions);
        json!({ "anyOf": [plain, describe_record::<Detailed>(definitions)] })
    }
}

/// A knob of `[sysfs]`, by its path.
pub struct SysfsKnob(Knob);

impl Keyed for SysfsKnob {
    const KEY: &'static str = "a path below `/sys`: `kernel/mm/transparent_hugepage/enabled`";

    fn read_entry(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self> {
        let entry = Entry::read_entry(key, node, checker);
        let known = Key::sysfs(key);
        match &known {
            // It became nested tables, and was reported.
            Err(KeyError::NoSeparator(_))
                if entry.is_none() && matches!(node.value, Value::Table(_)) => {}
            Err(error) => checker.report(refuse_key_of_sysfs(key.span, error)),
            Ok(_) => {}
        }
        let Entry { value, adopt, .. } = entry?;
        Some(Self(Knob { key: Spanned::new(known.ok()?, key.span), value, adopt }))
    }

    fn entry_schema(definitions: &mut Definitions) -> Json {
        Knob::entry_schema(definitions)
    }
}

fn refuse_key_of_sysfs(span: Span, error: &KeyError) -> Diagnostic {
    match error {
        KeyError::NoSeparator(_) => Diagnostic::new(span, error.to_string())
            .help("write the whole path, such as \"kernel/mm/transparent_hugepage/enabled\""),
        error => refuse_key(span, error),
    }
}

/// A knob of a link; its key is resolved together with the link's name.
impl Keyed for Entry {
    const KEY: &'static str = "a knob of the link: `ipv4/rp_filter`, `ipv6/accept_ra`";

    fn read_entry(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self> {
        if is_unquoted(key, node, checker) {
            return None;
        }
        let detailed = match node.value {
            Value::Table(_) => read_record(node, checker)?,
            _ => Detailed { value: Spanned::read(node, checker)?, adopt: false },
        };
        let value = detailed.value.map(|text| text.0);
        Some(Self { key: key.clone(), value, adopt: detailed.adopt })
    }

    fn entry_schema(definitions: &mut Definitions) -> Json {
        Knob::entry_schema(definitions)
    }
}

/// The limits of a control group that exists, by file name, such as `memory.max`. A list of texts becomes
/// one line each.
pub struct Group(Vec<Knob>);

impl Keyed for Group {
    const KEY: &'static str = "the path of a control group, such as `machine/web`";

    fn read_entry(path: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        if let Err(error) = check_parts(path, &parts) {
            checker.report(refuse_key(path.span, &error));
        }
        let (mut adopt, mut limits) = (false, Vec::new());
        for (name, node) in read_table(node, checker)? {
            if name.value == "adopt" {
                adopt = bool::read(node, checker).unwrap_or(false);
            } else {
                limits.extend(read_limit(path, name, node, checker));
            }
        }
        for limit in &mut limits {
            limit.adopt |= adopt;
        }
        Some(Self(limits))
    }

    fn entry_schema(definitions: &mut Definitions) -> Json {
        let mut limit = Knob::entry_schema(definitions);
        limit["description"] = json!("A limit by its file name, such as `memory.max`");
        json!({ "type": "object",
            "properties": { "adopt": { "type": "boolean", "description": WRITE_ADOPT } },
            "additionalProperties": limit })
    }
}

/// A limit of a group. What is wrong with the group's path was reported once.
fn read_limit(
    group: &str,
    name: &Spanned<String>,
    node: &Node,
    checker: &mut Checker,
) -> Option<Knob> {
    let Entry { value, adopt, .. } = Entry::read_entry(name, node, checker)?;
    if Key::cgroup("any", name).is_err() {
        let message = ValueError::is_not(name, "the name of a limit").message;
        let help = "write the name of a file of the group, such as \"memory.max\"";
        checker.report(Diagnostic::new(name.span, message).help(help));
    }
    let key = Spanned::new(Key::cgroup(group, name).ok()?, name.span);
    Some(Knob { key, value, adopt })
}

/// Reports a key without quotes, which TOML reads as nested tables.
fn is_unquoted(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> bool {
    let mut parts = vec![key.as_str()];
    let mut inner = node;
    while let Value::Table(entries) = &inner.value {
        let Some((name, node)) = entries.first() else { return false };
        parts.push(name);
        inner = node;
    }
    let detailed = matches!(parts.as_slice(), [_] | [_, "value" | "adopt"]);
    if detailed || key.contains(['.', '/']) {
        return false;
    }
    let nested = Diagnostic::new(key.span, format!("`{}` is a table here, not a knob", key.value));
    checker.report(nested.help(format!("quote the whole key: \"{}\"", parts.join("."))));
    true
}

fn refuse_key(span: Span, error: &KeyError) -> Diagnostic {
    Diagnostic::new(span, error.to_string()).maybe_help(error.help().map(str::to_owned))
}

impl Record for Detailed {
    const NAME: &'static str = "knob";
    const DOC: &'static str = "A knob with more than its value";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let value = fields.required("value", "What to write");
        let adopt = fields.flag("adopt", WRITE_ADOPT);
        Some(Self { value: value?, adopt })
    }
}

impl Shape for KnobText {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        match &node.value {
            Value::Int(number) => Some(Self(number.to_string())),
            Value::Text(text) => check(one_line(text), node, checker).map(Self),
            Value::List(items) if !items.is_empty() => read_items(node, items, checker).map(Self),
            Value::Bool(value) => {
                let help = format!("write {}: knobs are switched by 1 or 0", u8::from(*value));
                checker.expected("a knob's value", node, Some(help));
                None
            }
            _ => {
                let help = node.scalar().map(|text| format!("quote it: \"{text}\""));
                checker.expected("a number, text or a list of numbers", node, help);
                None
            }
        }
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "description": "a number, text, or a list of numbers",
            "anyOf": [{ "type": ["integer", "string"] },
                { "type": "array", "minItems": 1, "items": { "type": ["integer", "string"] } }] })
    }
}

/// Numbers stand on one line, texts on a line each (keyed limits such as `io.max`).
fn read_items(node: &Node, items: &[Node], checker: &mut Checker) -> Option<String> {
    let (mut numbers, mut lines) = (Vec::new(), Vec::new());
    for item in items {
        match &item.value {
            Value::Int(number) => numbers.push(number.to_string()),
            Value::Text(text) => lines.push(one_line(text)),
            _ => {}
        }
    }
    match items.len() {
        all if all == numbers.len() => Some(numbers.join(" ")),
        all if all == lines.len() => {
            let lines: Result<Vec<String>, ValueError> = lines.into_iter().collect();
            check(lines, node, checker).map(|lines| lines.join("\n"))
        }
        _ => {
            checker.expected("a list of numbers, or one of texts", node, None);
            None
        }
    }
}

fn one_line(text: &str) -> Result<String, ValueError> {
    if text.contains(['\0', '\n', '\r']) {
        return Err(ValueError::new("a knob's value cannot hold a newline or a NUL byte")
            .help("the value is written as one line, without the newline at its end"));
    }
    Ok(text.to_owned())
}
