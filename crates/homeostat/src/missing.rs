//! Why removals are held whose section is missing from the document: the section as the document writes it,
//! and what to write to mean the removal.

use std::path::Path;

use homeostat_document::HOST;
use homeostat_netns::Name;

use crate::registry::Binding;

/// Where the document speaks of a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// At its top level.
    Top,
    /// In `[namespaces.NAME]`.
    Namespace(String),
    /// Nowhere, though `[namespaces.NAME]` could be written.
    Unwritten(String),
    /// Nowhere, and no document can: the scope was given on the command line, by its path.
    Unnamed(String),
}

impl Home {
    pub(crate) fn of(binding: &Binding<'_>) -> Self {
        if binding
            .section
            .is_some_and(|section| std::ptr::eq(section, &raw const binding.document.host))
        {
            return Home::Top;
        }
        let scope = &binding.scope.name;
        match (binding.section, name(scope)) {
            (Some(_), Some(name)) => Home::Namespace(name),
            (None, Some(name)) => Home::Unwritten(name),
            (_, None) => Home::Unnamed(scope.clone()),
        }
    }

    /// A list such as `[[routes]]` is missing.
    pub(crate) fn list(&self, name: &str) -> String {
        let empty = format!("`{name} = []`");
        match self {
            Home::Top => missing(&format!("`[[{name}]]`"), &format!("{empty} at the top level")),
            Home::Namespace(space) => {
                let table = table(&["namespaces", space]);
                missing(&format!("`{name}` of `{table}`"), &format!("{empty} there"))
            }
            Home::Unwritten(_) | Home::Unnamed(_) => self.whole(&empty),
        }
    }

    /// A table such as `[sysctl]` is missing.
    pub(crate) fn table(&self, path: &[&str]) -> String {
        let table = self.path(path);
        match self {
            Home::Top | Home::Namespace(_) => {
                missing(&format!("`{table}`"), &format!("an empty `{table}`"))
            }
            Home::Unwritten(_) | Home::Unnamed(_) => self.whole(&format!("an empty `{table}`")),
        }
    }

    /// A list inside of a table that is written, such as `addresses` of `[links.eth0]`, is missing.
    pub(crate) fn list_of(&self, name: &str, path: &[&str]) -> String {
        let table = self.path(path);
        missing(&format!("`{name}` of `{table}`"), &format!("`{name} = []` there"))
    }

    fn whole(&self, empty: &str) -> String {
        match self {
            Home::Unnamed(path) => format!(
                "the document does not speak of the network namespace {path}; to delete what is \
                 ours there, use --allow-mass-delete"
            ),
            Home::Top | Home::Namespace(_) | Home::Unwritten(_) => {
                missing(&format!("`{}`", self.path(&[])), &format!("it with {empty}"))
            }
        }
    }

    /// A table as TOML writes it here.
    pub(crate) fn path(&self, path: &[&str]) -> String {
        match self {
            Home::Top => table(path),
            Home::Namespace(space) | Home::Unwritten(space) | Home::Unnamed(space) => {
                table(&[&["namespaces", space], path].concat())
            }
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
pub(crate) fn missing(section: &str, write: &str) -> String {
    format!(
        "{section} is missing from the document; to delete what it declared, write {write}, or \
         use --allow-mass-delete"
    )
}

/// The header of a table.
pub(crate) fn table(path: &[&str]) -> String {
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
        check(Home::Top.list("routes"), "`[[routes]]`", "`routes = []` at the top level");
        check(Home::Top.table(&["sysctl"]), "`[sysctl]`", "an empty `[sysctl]`");
        check(
            Home::Top.list_of("addresses", &["links", "eth0.7"]),
            "`addresses` of `[links.\"eth0.7\"]`",
            "`addresses = []` there",
        );
        check(
            Home::Namespace(blue()).list("routes"),
            "`routes` of `[namespaces.blue]`",
            "`routes = []` there",
        );
        check(
            Home::Namespace(blue()).table(&["links"]),
            "`[namespaces.blue.links]`",
            "an empty `[namespaces.blue.links]`",
        );
        check(
            Home::Namespace(blue()).list_of("addresses", &["links", "eth0"]),
            "`addresses` of `[namespaces.blue.links.eth0]`",
            "`addresses = []` there",
        );
        check(Home::Unwritten(blue()).list("rules"), "`[namespaces.blue]`", "it with `rules = []`");
        check(
            Home::Unwritten(blue()).table(&["sysctl"]),
            "`[namespaces.blue]`",
            "it with an empty `[namespaces.blue.sysctl]`",
        );
        let unnamed = Home::Unnamed("/proc/12/ns/net".to_owned()).list("routes");
        assert!(unnamed.contains("network namespace /proc/12/ns/net;"), "{unnamed}");
    }
}
