//! The whole document: the host's own scope, and one more for each network namespace.

use crate::diagnostic::Diagnostic;
use crate::fields::{Fields, Map, NamedRecord, Record};
use crate::files::{Files, Location};
use crate::name::{HOST, NamespaceName};
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
    /// Whether the document speaks of namespaces at all, if only to say that there are none.
    pub states_namespaces: bool,
    /// The texts, for messages that point into them.
    pub files: Files,
}

/// A namespace with its name, as it stands in the table.
struct NamedNamespace(Spanned<NamespaceName>, Scope);

impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
            && self.host == other.host
            && self.namespaces == other.namespaces
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
        self.states_namespaces && self.namespaces.is_empty()
    }

    /// What is declared in a namespace.
    #[must_use]
    pub fn namespace(&self, name: &NamespaceName) -> Option<&Scope> {
        self.namespaces.iter().find(|(one, _)| one.value == *name).map(|(_, scope)| scope)
    }

    /// All scopes: the host's, then each namespace's with its name.
    pub fn scopes(&self) -> impl Iterator<Item = (Option<&NamespaceName>, &Scope)> {
        let inside = self.namespaces.iter().map(|(name, scope)| (Some(&name.value), scope));
        std::iter::once((None, &self.host)).chain(inside)
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
        let unpack = |NamedNamespace(name, scope)| (name, scope);
        let namespaces = namespaces.into_iter().flat_map(|all| all.0).map(unpack).collect();
        let settings = settings.unwrap_or_default();
        Some(Self { settings, host, namespaces, states_namespaces, files: Files::default() })
    }
}

impl Record for NamedNamespace {
    const NAME: &'static str = "namespace";
    const DOC: &'static str = "What is declared inside a network namespace";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let name: Option<Spanned<NamespaceName>> = fields.name();
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
        if name.as_str() == HOST {
            let reserved = Diagnostic::new(name.span, "`host` cannot be the name of a namespace");
            let help = "it stands for the host itself: write its sections at the top level";
            fields.report(reserved.help(help));
        }
        Some(Self(name, scope))
    }
}

impl NamedRecord for NamedNamespace {
    const KEY: &'static str = "the name of a network namespace";
}
