//! How sources add sections to documents, shown with two that exist only here: `lamps` keeps lamps, and
//! `meters` keeps meters and has a field in every lamp.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;

use homeostat_document::{
    Assignment, Checker, Diagnostic, Document, DocumentReader, Extension, ExtensionType, Fields,
    Format, Join, Map, NamedRecord, Number, Record, Scopes, Section, SectionType, SourceSections,
    Spanned, Twins,
};

const READER: DocumentReader = DocumentReader::new(&[
    SourceSections::new("lamps", &[SectionType::of::<Lamps>(), SectionType::of::<Quiet>()]),
    SourceSections {
        extensions: &[ExtensionType::of::<Dimmer>()],
        ..SourceSections::new("meters", &[SectionType::of::<Meters>()])
    },
]);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lamps(Vec<Lamp>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lamp {
    name: Spanned<String>,
    watts: Option<u8>,
    is_stated: bool,
}

impl Section for Lamps {
    const NAME: &'static str = "lamps";
    const DOC: &'static str = "Lamps by name";
    const JOIN: Join = Join::Tables(&["*"]);

    type Value = Map<Lamp>;
    const NEW: fn(Self::Value) -> Self = |Map(lamps)| Self(lamps);

    /// A lamp of more than 100 watts must not be dimmed.
    fn check(document: &Document, checker: &mut Checker) {
        for (_, scope) in document.scopes() {
            let (all, assigned) = (scope.get::<Self>(), scope.assignments());
            for lamp in all.into_iter().flat_map(|all| &all.0) {
                let dimmed = assigned.get(&format!("dimmer/{}", lamp.name.value));
                if let Some(dimmed) = dimmed.filter(|_| lamp.watts > Some(100)) {
                    let wrong = Diagnostic::new(lamp.name.span, "too strong to be dimmed");
                    checker.report(wrong.also(dimmed.span, "dimmed here"));
                }
            }
        }
    }
}

impl NamedRecord for Lamp {
    const KEY: &'static str = "the name of a lamp";
}

impl Record for Lamp {
    const NAME: &'static str = "lamp";
    const DOC: &'static str = "A lamp";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let name = fields.name();
        let number = Number { what: "a number of watts", least: 1, most: 200 };
        let watts = fields.number("watts", "How strong it is", number);
        fields.extensions::<Self>();
        let is_stated = watts.is_some() || !fields.is_extended();
        Some(Self { name: name?, watts, is_stated })
    }
}

/// Only a namespace can be quiet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Quiet(bool);

impl Section for Quiet {
    const NAME: &'static str = "quiet";
    const DOC: &'static str = "Whether it is quiet";
    const SCOPES: Scopes = Scopes::Namespaces;

    type Value = bool;
    const NEW: fn(Self::Value) -> Self = Self;
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Meters(Vec<Spanned<String>>);

impl Section for Meters {
    const NAME: &'static str = "meters";
    const DOC: &'static str = "Meters";
    const SCOPES: Scopes = Scopes::Host("meters belong to the host");
    const JOIN: Join = Join::Lists;

    type Value = Vec<Spanned<String>>;
    const NEW: fn(Self::Value) -> Self = Self;

    fn check(document: &Document, checker: &mut Checker) {
        let mut twins = Twins::default();
        for meter in document.host.get::<Self>().into_iter().flat_map(|all| &all.0) {
            twins.see(&meter.value, meter.span, checker, || format!("the meter `{}`", meter.value));
        }
    }
}

/// The dimmer of a lamp.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Dimmer {
    lamp: String,
    value: Spanned<String>,
}

impl Extension for Dimmer {
    const RECORD: &'static str = "lamp";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let value = fields.optional("dimmer", "How it is dimmed");
        Some(Self { lamp: fields.name()?.value, value: value? })
    }

    fn assignments(&self, each: &mut dyn FnMut(Assignment<'_>)) {
        let (name, value) = (format!("dimmer/{}", self.lamp), self.value.as_str());
        each(Assignment { name, value, span: self.value.span });
    }
}

fn parse(text: &str) -> Document {
    READER.parse("host.toml", Format::Toml, text).unwrap()
}

/// What is wrong, one line each.
fn faults(text: &str) -> Vec<String> {
    let found = READER.parse("host.toml", Format::Toml, text).unwrap_err();
    found.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn sections_are_kept_by_type_in_the_scope_that_writes_them() {
    let document =
        parse("meters = ['a']\n[lamps.hall]\nwatts = 40\n[namespaces.blue]\nquiet = true");
    let Lamps(lamps) = document.host.get().unwrap();
    assert_eq!((lamps[0].name.as_str(), lamps[0].watts), ("hall", Some(40)));
    assert!(document.host.get::<Quiet>().is_none());
    let (_, blue) = &document.namespaces[0];
    assert_eq!((blue.get(), blue.get::<Lamps>()), (Some(&Quiet(true)), None));
}

#[test]
fn an_empty_section_is_stated_and_a_missing_one_is_not() {
    let document = parse("meters = []\n[namespaces.blue.lamps]");
    let (_, blue) = &document.namespaces[0];
    assert!(document.host.states("meters") && !document.host.states("lamps"));
    assert!(blue.states("lamps") && blue.place_of("quiet").is_none());
    assert_ne!(document, parse("[namespaces.blue.lamps]"));
    assert_eq!(document, parse("# words\nmeters = []\n[namespaces.blue.lamps]"));
}

#[test]
fn a_section_is_refused_in_scopes_that_do_not_have_it() {
    let text = "quiet = true\n[namespaces.blue]\nmeters = []";
    assert_eq!(
        faults(text),
        [
            "host.toml:1:1: unknown field `quiet`",
            "  help: the fields here are settings, lamps, meters, namespaces",
            "host.toml:3:1: meters belong to the host",
            "  help: move it to the top level of the document",
        ]
    );
}

#[test]
fn a_source_reads_its_field_in_the_table_of_another() {
    let document = parse("[lamps.hall]\ndimmer = 'half'\n[lamps.door]");
    let all: Vec<&Dimmer> = document.host.extensions().collect();
    assert_eq!((all.len(), all[0].lamp.as_str()), (1, "hall"));
    let Lamps(lamps) = document.host.get().unwrap();
    assert_eq!(lamps.iter().map(|lamp| lamp.is_stated).collect::<Vec<_>>(), [false, true]);
    assert_ne!(document, parse("[lamps.hall]\ndimmer = 'full'\n[lamps.door]"));
    let schema = READER.schema();
    assert!(schema["$defs"]["lamp"]["properties"]["dimmer"].is_object(), "{schema}");
}

#[test]
fn one_source_looks_at_what_another_sets_by_its_name() {
    let text =
        "[lamps.hall]\nwatts = 120\ndimmer = 'half'\n[namespaces.blue.lamps.hall]\nwatts = 120";
    assert_eq!(
        faults(text),
        ["host.toml:1:8: too strong to be dimmed (dimmed here: host.toml:3:10)"]
    );
}

#[test]
fn every_source_has_settings() {
    let document = parse("[settings.meters]\nmode = 'observe'");
    assert!(document.settings.source("meters").mode.is_some());
    assert!(document.settings.source("lamps").mode.is_none());
    let found = faults("[settings.fans]\nmode = 'heal'");
    assert_eq!(found[0], "host.toml:1:11: unknown field `fans`");
}

#[test]
fn files_are_joined_as_each_section_says() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("a.toml", "meters = ['a']\n[lamps.hall]\nwatts = 40\n[namespaces.blue]\nquiet = true");
    let more =
        "meters = ['b', 'a']\n[lamps.hall]\ndimmer = 'half'\n[namespaces.blue]\nquiet = true";
    write("b.toml", more);
    let found = READER.load(&[directory.path().to_owned()]).unwrap_err().to_string();
    let found = found.replace(&format!("{}/", directory.path().display()), "");
    assert_eq!(
        found.lines().collect::<Vec<_>>(),
        [
            "b.toml:1:16: the meter `a` is declared twice (first declared here: a.toml:1:11)",
            "b.toml:5:1: `quiet` is defined twice (first defined here: a.toml:5:1)",
        ]
    );
}

#[test]
fn a_message_that_quotes_the_document_is_bounded() {
    let long = "x".repeat(1 << 20);
    for text in
        [format!("{long} = 1"), format!("quiet = '{long}'"), format!("[lamps.{long}]\n{long} = 1")]
    {
        let length = faults(&text).iter().map(String::len).max();
        assert!(length < Some(5000), "{length:?}");
    }
}
