//! Why removals are held whose section is missing from the document: the section as the document writes it,
//! and what to write to mean the removal.

use std::path::Path;

use homeostat_document::HOST;
use homeostat_netns::Name;

use crate::binding::Binding;

/// Where the document names a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentPlace {
    /// At its top level.
    Top,
    /// In `[namespaces.NAME]`.
    Namespace(String),
    /// Nowhere, though `[namespaces.NAME]` could be written.
    Unwritten(String),
    /// Nowhere: the scope was given by its path, on the command line or in a former document.
    Unnamed(String),
}

impl DocumentPlace {
    /// Where the document of a binding names its scope.
    #[must_use]
    pub fn of(binding: &Binding<'_>) -> Self {
        let scope = &binding.scope.name;
        let mut written = binding.document.scopes();
        let written =
            written.find(|(_, one)| binding.section.is_some_and(|it| std::ptr::eq(it, *one)));
        match (written, name(scope)) {
            (Some((None, _)), _) => DocumentPlace::Top,
            (Some((Some(name), _)), _) => {
                let written = binding.document.pattern_of(name).unwrap_or(name);
                DocumentPlace::Namespace(written.to_string())
            }
            (None, Some(name)) => DocumentPlace::Unwritten(name),
            (None, None) => DocumentPlace::Unnamed(scope.clone()),
        }
    }

    /// A list such as `[[routes]]` is missing.
    #[must_use]
    pub fn missing_list(&self, name: &str) -> String {
        let empty = format!("`{name} = []`");
        let (section, write) = match self {
            DocumentPlace::Top => (format!("`[[{name}]]`"), format!("{empty} at the top level")),
            _ => (format!("`{name}` of `{}`", self.path(&[])), format!("{empty} there")),
        };
        self.missing(&section, &write, &empty)
    }

    /// A table such as `[sysctl]` is missing.
    #[must_use]
    pub fn missing_table(&self, path: &[&str]) -> String {
        let table = self.path(path);
        let empty = format!("an empty `{table}`");
        self.missing(&format!("`{table}`"), &empty, &empty)
    }

    /// A list inside of a table that is written, such as `addresses` of `[links.eth0]`, is missing.
    #[must_use]
    pub fn missing_list_of(&self, name: &str, path: &[&str]) -> String {
        let table = self.path(path);
        missing(&format!("`{name}` of `{table}`"), &format!("`{name} = []` there"))
    }

    /// `write` is for a scope that the document writes, `empty` for the section alone.
    fn missing(&self, section: &str, write: &str, empty: &str) -> String {
        match self {
            DocumentPlace::Top | DocumentPlace::Namespace(_) => missing(section, write),
            DocumentPlace::Unwritten(_) => {
                missing(&format!("`{}`", self.path(&[])), &format!("it with {empty}"))
            }
            DocumentPlace::Unnamed(path) => format!(
                "the document does not speak of the network namespace {path}; to delete what is \
                 ours there, declare it by its `path` and with empty sections"
            ),
        }
    }

    /// A table as TOML writes it here.
    #[must_use]
    pub fn path(&self, path: &[&str]) -> String {
        match self {
            DocumentPlace::Top => table(path),
            DocumentPlace::Namespace(space)
            | DocumentPlace::Unwritten(space)
            | DocumentPlace::Unnamed(space) => table(&[&["namespaces", space], path].concat()),
        }
    }
}

/// The name that a document has for a scope, which may be called by its path.
fn name(scope: &str) -> Option<String> {
    let last = Path::new(scope).file_name()?.to_str()?;
    let path = Name::new(last).ok()?.path();
    let is_named = scope == last || path == Path::new(scope) && last != HOST;
    is_named.then(|| last.to_owned())
}

/// Why the removal of what a section declared is held, and the way out.
#[must_use]
pub fn missing(section: &str, write: &str) -> String {
    format!("{section} is missing from the document; to delete what it declared, write {write}")
}

/// The header of a table.
#[must_use]
pub fn table(path: &[&str]) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let part = |part: &&str| {
        let is_bare = !part.is_empty() && part.chars().all(is_bare);
        if is_bare { (*part).to_owned() } else { format!("{part:?}") }
    };
    format!("[{}]", path.iter().map(part).collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_that_a_document_can_name_has_a_name() {
        assert_eq!(name("blue").as_deref(), Some("blue"));
        assert_eq!(name("/run/netns/sandbox").as_deref(), Some("sandbox"));
        for path in ["/run/netns/host", "/proc/12/ns/net"] {
            assert_eq!(name(path), None, "{path}");
        }
    }

    #[test]
    fn sections_are_named_as_the_document_writes_them() {
        let blue = || "blue".to_owned();
        let check = |why: String, section: &str, write: &str| {
            assert_eq!(why, missing(section, write));
        };
        check(
            DocumentPlace::Top.missing_list("routes"),
            "`[[routes]]`",
            "`routes = []` at the top level",
        );
        check(DocumentPlace::Top.missing_table(&["sysctl"]), "`[sysctl]`", "an empty `[sysctl]`");
        check(
            DocumentPlace::Top.missing_list_of("addresses", &["links", "eth0.7"]),
            "`addresses` of `[links.\"eth0.7\"]`",
            "`addresses = []` there",
        );
        check(
            DocumentPlace::Namespace(blue()).missing_list("routes"),
            "`routes` of `[namespaces.blue]`",
            "`routes = []` there",
        );
        check(
            DocumentPlace::Namespace(blue()).missing_table(&["links"]),
            "`[namespaces.blue.links]`",
            "an empty `[namespaces.blue.links]`",
        );
        check(
            DocumentPlace::Namespace(blue()).missing_list_of("addresses", &["links", "eth0"]),
            "`addresses` of `[namespaces.blue.links.eth0]`",
            "`addresses = []` there",
        );
        check(
            DocumentPlace::Unwritten(blue()).missing_list("rules"),
            "`[namespaces.blue]`",
            "it with `rules = []`",
        );
        check(
            DocumentPlace::Unwritten(blue()).missing_table(&["sysctl"]),
            "`[namespaces.blue]`",
            "it with an empty `[namespaces.blue.sysctl]`",
        );
        let unnamed = DocumentPlace::Unnamed("/proc/12/ns/net".to_owned()).missing_list("routes");
        assert!(unnamed.contains("network namespace /proc/12/ns/net;"), "{unnamed}");
    }
}
