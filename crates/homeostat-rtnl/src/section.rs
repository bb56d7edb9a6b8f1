//! The sections of the document: `[links]` with their addresses, `[[routes]]`, `[[rules]]`,
//! `[[neighbours]]`, `[[nexthops]]` and `[[fdb]]`. Each kind has its own in `section.rs` of its folder; here they
//! become one desired state.

use std::collections::BTreeMap;

use homeostat_core::{Condition, Failure, Retry};
use homeostat_document::{
    Checker, Diagnostic, Document, HOST, NamespaceName, Scope, SectionType, SourceSections, Span,
    Spanned,
};
use homeostat_registry::{DeclaredCondition, Error, Lists};

use crate::builder::{Builder, DesiredError};
use crate::desired::DesiredState;
use crate::fdb::section::fdb_entries;
use crate::key::Key;
use crate::link::LinkName;
use crate::link::kinds::LinkKind;
use crate::link::model::Field;
use crate::link::section::{links, vrf_tables};
use crate::neighbour::section::neighbours;
use crate::nexthop::section::nexthops;
use crate::object::Object;
use crate::route::section::routes;
use crate::rule::section::rules;
use crate::words::{ADVICE, SYNONYMS};

pub use crate::address::section::DeclaredAddress;
pub use crate::fdb::section::FdbEntries;
pub use crate::link::section::{DeclaredLink, Links, namespaces, warnings};
pub use crate::neighbour::section::Neighbours;
pub use crate::nexthop::section::Nexthops;
pub use crate::route::line::RouteLine;
pub use crate::route::list::{listed_routes, route_twins};
pub use crate::route::section::{RouteEntry, RouteFile, Routes, route_files};
pub use crate::rule::section::Rules;
pub use crate::show::show;

/// All that the network adds to documents.
pub const SECTIONS: SourceSections = SourceSections {
    synonyms: SYNONYMS,
    advice: ADVICE,
    ..SourceSections::new(
        "rtnl",
        &[
            SectionType::of::<Links>(),
            SectionType::of::<Routes>(),
            SectionType::of::<Rules>(),
            SectionType::of::<Neighbours>(),
            SectionType::of::<Nexthops>(),
            SectionType::of::<FdbEntries>(),
        ],
    )
};

/// An entry of a section: what is declared, and where it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared<K, O> {
    /// Which object, and where that is written.
    pub key: Spanned<K>,
    /// What it shall be.
    pub object: O,
    /// Whether it may be taken over from any owner.
    pub adopt: bool,
    /// What must be good for it to be there.
    pub condition: Option<Condition>,
    /// Where the whole entry is.
    pub entry: Spanned<()>,
}

impl<K, O> Declared<K, O> {
    pub(crate) fn new(key: Spanned<K>, object: O, adopt: bool, entry: Span) -> Self {
        Declared { key, object, adopt, condition: None, entry: Spanned::new((), entry) }
    }

    /// The same, which is there only while a check is good.
    pub(crate) fn only_while(self, condition: Option<DeclaredCondition>) -> Self {
        Declared { condition: condition.map(|DeclaredCondition(condition)| condition), ..self }
    }
}

/// A section that is a list of entries, each declared once.
macro_rules! list_section {
    ($section:ident of $item:ty as $entries:ident, $name:literal, $doc:literal,
        each of $checked:ident: |$entry:ident| $span:expr, $what:expr) => {
        #[doc = concat!("`[[", $name, "]]`.")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $section(pub Vec<$item>);

        pub(crate) fn $entries(scope: &homeostat_document::Scope) -> impl Iterator<Item = &$item> {
            scope.get::<$section>().into_iter().flat_map(|all| &all.0)
        }

        impl homeostat_document::Section for $section {
            const NAME: &'static str = $name;
            const DOC: &'static str = $doc;
            const JOIN: homeostat_document::Join = homeostat_document::Join::Lists;

            type Value = Vec<$item>;
            const NEW: fn(Self::Value) -> Self = Self;

            fn check(
                document: &homeostat_document::Document,
                checker: &mut homeostat_document::Checker,
            ) {
                for (_, scope) in document.scopes() {
                    let mut twins = homeostat_document::Twins::default();
                    for $entry in $checked(scope) {
                        twins.see($entry.key.value, $span, checker, || $what);
                    }
                }
            }
        }

        homeostat_document::record!($item);
    };
}
pub(crate) use list_section;

/// Reports every entry that can never be.
pub fn resolve(scope: &Scope, lists: Lists, checker: &mut Checker) {
    if lists == Lists::Read && route_files(scope).next().is_some() {
        _ = build(scope, &[], checker);
    } else {
        fill(scope, &mut DesiredState::builder(), checker);
    }
}

/// What a scope declares, with the routes of its lists.
pub fn desired(document: &Document, scope: &Scope) -> Result<DesiredState, Error> {
    let mut checker = Checker::new(document.files.clone());
    let built = build(scope, &optional_elsewhere(document), &mut checker);
    checker.into_result()?;
    built.map_err(|error| Error::failed(&error))
}

/// The links of all scopes that may be absent, by the names of the scopes.
fn optional_elsewhere(document: &Document) -> Vec<(&str, LinkName)> {
    let scopes = document.scopes();
    let all = scopes.flat_map(|(name, scope)| {
        let name = name.map_or(HOST, NamespaceName::as_str);
        links(scope).filter(|link| link.optional).map(move |link| (name, link.name.value))
    });
    all.collect()
}

/// The same; entries and lines that can never be are reported and left out. `optional` are links in other scopes.
fn build(
    scope: &Scope,
    optional: &[(&str, LinkName)],
    checker: &mut Checker,
) -> Result<DesiredState, DesiredError> {
    let mut builder = DesiredState::builder();
    for (namespace, link) in optional {
        builder.optional_link_in(*namespace, *link);
    }
    fill(scope, &mut builder, checker);
    let before = checker.count();
    fill_lists(scope, &mut builder, checker);
    let are_read = checker.count() == before;
    let built = builder.build();
    if are_read && matches!(built, Err(DesiredError::Twice(_))) {
        route_twins(scope, checker);
    }
    built
}

/// Declares everything that a scope declares but for its lists.
fn fill(scope: &Scope, builder: &mut Builder, checker: &mut Checker) {
    for link in links(scope).filter(|link| link.optional) {
        builder.optional_link(link.name.value);
    }
    let mut add = |key: Key, object: Object, adopt: bool, span: Span| {
        let add = if adopt { Builder::adopt } else { Builder::add };
        if let Err(error) = add(builder, key, object) {
            checker.report(Diagnostic::new(span, with_causes(&error)));
        }
    };
    let tables = vrf_tables(scope);
    let mut matches = Vec::new();
    for link in links(scope) {
        if let Some(by) = link.matches.clone().filter(|_| link.kind.is_none()) {
            matches.push((link, by));
        }
        for (key, mut object) in link.objects() {
            if let (Object::Link(made), Some(table)) = (&mut object, tables.get(&link.name.value))
                && let LinkKind::Vrf(vrf) = &mut made.kind
            {
                vrf.table = *table;
            }
            add(key, object, link.adopt && link.kind.is_some(), link.name.span);
        }
    }
    for one in links(scope).flat_map(|link| link.addresses.iter().flatten()) {
        let object = Object::Address(one.object.clone());
        add(Key::Address(one.key.value), object, one.adopt, one.entry.span);
    }
    for one in nexthops(scope) {
        let object = Object::Nexthop(one.object.clone());
        add(Key::Nexthop(one.key.value), object, one.adopt, one.entry.span);
    }
    for one in routes(scope) {
        let object = Object::Route(one.object.clone());
        add(Key::Route(one.key.value), object, one.adopt, one.entry.span);
    }
    for one in rules(scope) {
        add(one.key.value.into(), Object::Rule(one.object), one.adopt, one.entry.span);
    }
    for one in neighbours(scope) {
        let object = Object::Neighbour(one.object);
        add(Key::Neighbour(one.key.value), object, one.adopt, one.entry.span);
    }
    for one in fdb_entries(scope) {
        add(one.key.value.into(), Object::Fdb(one.object), one.adopt, one.entry.span);
    }
    for (link, by) in matches {
        if let Err(error) = builder.match_link(link.name.value, by) {
            checker.report(Diagnostic::new(link.name.span, with_causes(&error)));
        }
    }
}

/// The keys of a scope that are there only while a check is good.
pub(crate) fn conditions(scope: &Scope) -> BTreeMap<Key, Condition> {
    let addresses = links(scope).flat_map(|link| link.addresses.iter().flatten());
    let addresses = addresses.map(|one| (Key::Address(one.key.value), &one.condition));
    let routes = routes(scope).map(|one| (Key::Route(one.key.value), &one.condition));
    let rules = rules(scope).map(|one| (Key::from(one.key.value), &one.condition));
    let all = addresses.chain(routes).chain(rules);
    all.filter_map(|(key, condition)| Some((key, condition.clone()?))).collect()
}

/// What a field `while` is for.
pub(crate) const WHILE: &str = "There only while a check is good; a daemon runs it";

/// Where a key is declared. Routes of lists beside the document are not looked for.
pub(crate) fn written(scope: &Scope, key: &Key) -> Option<Span> {
    let of_link = |link: &DeclaredLink| {
        let name = Key::LinkField(link.name.value, Field::Name);
        let is_it = link.objects().into_iter().any(|(declared, _)| declared == *key)
            || link.matches.is_some() && name == *key;
        is_it.then_some(link.name.span)
    };
    match key {
        Key::Address(address) => {
            let mut all = links(scope).flat_map(|link| link.addresses.iter().flatten());
            all.find(|one| one.key.value == *address).map(|one| one.entry.span)
        }
        Key::Nexthop(id) => {
            nexthops(scope).find(|one| one.key.value == *id).map(|one| one.entry.span)
        }
        Key::Route(route) => {
            routes(scope).find(|one| one.key.value == *route).map(|one| one.entry.span)
        }
        Key::Rule(rule) => {
            rules(scope).find(|one| one.key.value == **rule).map(|one| one.entry.span)
        }
        Key::Neighbour(neighbour) => {
            neighbours(scope).find(|one| one.key.value == *neighbour).map(|one| one.entry.span)
        }
        Key::Fdb(entry) => {
            fdb_entries(scope).find(|one| one.key.value == **entry).map(|one| one.entry.span)
        }
        _ => links(scope).find_map(of_link),
    }
}

/// Declares the routes of all lists beside the document.
fn fill_lists(scope: &Scope, builder: &mut Builder, checker: &mut Checker) {
    listed_routes(scope, checker, |file, RouteLine { key, route }| {
        let add = if file.adopt { Builder::adopting_route } else { Builder::route };
        let added = add(builder, key, route).map(|_| ());
        added.map_err(|error| homeostat_document::ValueError::new(with_causes(&error)))
    });
}

/// An error with its causes, in one line.
fn with_causes(error: &DesiredError) -> String {
    Failure::from_error(error, Retry::Never).error
}
