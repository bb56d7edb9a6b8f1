//! The whole document: the host's own scope, and one more for each network namespace.

use std::collections::{HashMap, HashSet};

use crate::diagnostic::Diagnostic;
use crate::fields::{Fields, Map, NamedRecord, Record};
use crate::files::{Files, Location};
use crate::name::{HOST, NamesNamespace, NamespaceName};
use crate::scope::{FoundAt, OUTSIDE, Scope};
use crate::settings::Settings;
use crate::shape::MachinePath;
use crate::span::{Span, Spanned};

/// A checked document. Two are equal when they declare the same, wherever it is written.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// Whose document this is, and how sources are run.
    pub settings: Settings,
    /// What is declared in the namespace that the program runs in.
    pub host: Scope,
    /// What is declared in other namespaces, in the order of writing.
    pub namespaces: Vec<(Spanned<NamespaceName>, Scope)>,
    /// What is declared in each namespace whose name matches a pattern, and that has no section of its own, in the order of
    /// writing.
    pub patterns: Vec<(Spanned<NamespaceName>, Scope)>,
    /// The patterns that namespaces were declared by.
    pub(crate) matched: HashMap<NamespaceName, NamespaceName>,
    /// Whether the document speaks of namespaces at all, if only to say that there are none.
    pub states_namespaces: bool,
    /// The texts, for messages that point into them.
    pub files: Files,
}

/// A namespace with its name, as it stands in the table.
struct NamedNamespace(Spanned<NamesNamespace>, Scope);

/// A name that two patterns match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguous {
    pub name: NamespaceName,
    /// The patterns, and where they are.
    pub patterns: [Spanned<NamespaceName>; 2],
}

impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
            && self.host == other.host
            && self.namespaces == other.namespaces
            && self.patterns == other.patterns
            && self.states_namespaces == other.states_namespaces
    }
}

impl Eq for Document {}

impl Document {
    /// Line and column of a place.
    #[must_use]
    pub fn locate(&self, span: Span) -> Location {
        self.files.locate(span)
    }

    /// The text at a place, as it was written.
    #[must_use]
    pub fn written_at(&self, span: Span) -> &str {
        let text = self.files.text(span.file);
        text.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// Whether an empty `[namespaces]` is written, which says that there are none.
    #[must_use]
    pub fn states_no_namespaces(&self) -> bool {
        self.states_namespaces && self.namespaces.is_empty() && self.patterns.is_empty()
    }

    /// What is declared in a namespace.
    #[must_use]
    pub fn namespace(&self, name: &NamespaceName) -> Option<&Scope> {
        self.namespaces.iter().find(|(one, _)| one.value == *name).map(|(_, scope)| scope)
    }

    /// All scopes: the host's, then each namespace's with its name, and each pattern's with the pattern.
    pub fn scopes(&self) -> impl Iterator<Item = (Option<&NamespaceName>, &Scope)> {
        let inside = self.namespaces.iter().chain(&self.patterns);
        let inside = inside.map(|(name, scope)| (Some(&name.value), scope));
        std::iter::once((None, &self.host)).chain(inside)
    }

    /// The same document, in which every one of these namespaces that a pattern matches has a section of its own. A name
    /// with a section keeps it; one that two patterns match gets none.
    #[must_use]
    pub fn matching<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> (Self, Vec<Ambiguous>) {
        let (mut document, mut ambiguous) = (self.clone(), Vec::new());
        let written: HashSet<&str> =
            self.namespaces.iter().map(|(name, _)| name.value.as_str()).collect();
        for name in names.into_iter().filter(|name| !written.contains(name)) {
            let mut patterns = self.patterns.iter().filter(|(one, _)| one.value.matches(name));
            let Some((pattern, scope)) = patterns.next() else { continue };
            // What no document can name has no section.
            let Ok(name) = name.parse::<NamespaceName>() else { continue };
            if let Some((other, _)) = patterns.next() {
                ambiguous.push(Ambiguous { name, patterns: [pattern.clone(), other.clone()] });
                continue;
            }
            document.matched.insert(name.clone(), pattern.value.clone());
            document.namespaces.push((Spanned::new(name, pattern.span), scope.clone()));
        }
        (document, ambiguous)
    }

    /// The pattern that a namespace was declared by.
    #[must_use]
    pub fn pattern_of(&self, name: &NamespaceName) -> Option<&NamespaceName> {
        self.matched.get(name)
    }
}

impl Record for Document {
    const NAME: &'static str = "document";
    const DOC: &'static str = "What one owner declares on one machine";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let settings = fields.optional("settings", "Whose document this is, how sources are run");
        let host = Scope::read_host(fields);
        let namespaces: Option<Map<NamedNamespace>> =
            fields.optional("namespaces", "Other network namespaces by name");
        let states_namespaces = namespaces.is_some();
        let settings = settings.unwrap_or_default();
        let mut document = Self { settings, host, states_namespaces, ..Self::default() };
        for NamedNamespace(Spanned { value, span }, scope) in
            namespaces.into_iter().flat_map(|all| all.0)
        {
            let (list, name) = match value {
                NamesNamespace::One(name) => (&mut document.namespaces, name),
                NamesNamespace::Each(pattern) => (&mut document.patterns, pattern),
            };
            list.push((Spanned::new(name, span), scope));
        }
        Some(document)
    }
}

impl Record for NamedNamespace {
    const NAME: &'static str = "namespace";
    const DOC: &'static str = "What is declared inside a network namespace";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let name: Option<Spanned<NamesNamespace>> = fields.name();
        let path = fields.optional("path", "The file that the namespace is, if it has no name");
        let pid_file = fields
            .optional("pid-file", "A file with the id of a process: the namespace is that one's");
        fields.exclusive("path", "pid-file");
        let mut scope = Scope::read_namespace(fields);
        scope.found_at = match (path, pid_file) {
            (Some(MachinePath(path)), _) => Some(FoundAt::Path(path)),
            (None, Some(MachinePath(path))) => Some(FoundAt::PidFile(path)),
            (None, None) => None,
        };
        fields.refused("namespaces", "a namespace cannot hold another namespace", OUTSIDE);
        fields.refused("settings", "settings are the same for all namespaces", OUTSIDE);
        let name = name?;
        if let (NamesNamespace::Each(_), Some(_)) = (&name.value, &scope.found_at) {
            let field = if fields.has("path") { "path" } else { "pid-file" };
            let message = format!("a pattern has no `{field}`");
            let help = "it matches the names in /run/netns: leave it out, or write a name";
            fields.report(Diagnostic::new(fields.at(field), message).help(help));
        }
        if matches!(&name.value, NamesNamespace::One(name) if name.as_str() == HOST) {
            let reserved = Diagnostic::new(name.span, "`host` cannot be the name of a namespace");
            let help = "it stands for the host itself: write its sections at the top level";
            fields.report(reserved.help(help));
        }
        Some(Self(name, scope))
    }
}

impl NamedRecord for NamedNamespace {
    const KEY: &'static str =
        "the name of a network namespace, or a pattern of names with `*` and `?`";
}
