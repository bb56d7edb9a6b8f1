//! Documents with pieces beside them, and sections for every namespace that a pattern matches.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};

use homeostat_document::{
    Document, DocumentReader, Format, Join, NamespaceName, ParsedTexts, Section, SectionType,
    SourceSections, SourceText, Spanned,
};

const READER: DocumentReader = DocumentReader::new(&[SourceSections::new(
    "meters",
    &[SectionType::of::<Meters>(), SectionType::of::<Quiet>()],
)]);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Meters(Vec<Spanned<String>>);

impl Section for Meters {
    const NAME: &'static str = "meters";
    const DOC: &'static str = "Meters";
    const JOIN: Join = Join::Lists;

    type Value = Vec<Spanned<String>>;
    const NEW: fn(Self::Value) -> Self = Self;
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Quiet(bool);

impl Section for Quiet {
    const NAME: &'static str = "quiet";
    const DOC: &'static str = "Whether it is quiet";

    type Value = bool;
    const NEW: fn(Self::Value) -> Self = Self;
}

fn parse(text: &str) -> Document {
    READER.parse("host.toml", Format::Toml, text).unwrap()
}

fn piece(name: &str, text: &str) -> SourceText {
    SourceText {
        name: format!("piece {name}"),
        directory: PathBuf::from("/pieces"),
        format: Format::Toml,
        piece: Some(name.to_owned()),
        text: text.to_owned(),
    }
}

fn meters(document: &Document) -> Vec<&str> {
    let Meters(meters) = document.host.get().unwrap();
    meters.iter().map(|meter| meter.as_str()).collect()
}

#[test]
fn pieces_take_the_place_of_those_that_a_document_has() {
    let mut parsed = ParsedTexts::default();
    let document = parse("meters = ['own']");
    let one = piece("one", "meters = ['one']");
    let both = [one.clone(), piece("two", "meters = ['two']\nquiet = true")];
    let joined = READER.with_pieces(&document, both, &mut parsed).unwrap();
    assert_eq!(meters(&joined), ["own", "one", "two"]);
    let again = READER.with_pieces(&joined, [one], &mut parsed).unwrap();
    assert_eq!(meters(&again), ["own", "one"]);
    assert!(again.host.get::<Quiet>().is_none());
    assert_eq!(READER.with_pieces(&again, [], &mut parsed).unwrap(), document);
}

#[test]
fn a_tree_that_is_remembered_has_the_places_of_its_text() {
    let mut parsed = ParsedTexts::default();
    let document = parse("quiet = true");
    let other = piece("other", "meters = ['a']");
    READER.with_pieces(&document, [other.clone()], &mut parsed).unwrap();
    // It is the third text now, and was the second.
    let first = piece("another", "meters = ['b']");
    let wrong = SourceText { text: "\n\nquiet = false".to_owned(), ..piece("other", "") };
    let found = READER.with_pieces(&document, [first.clone(), wrong], &mut parsed).unwrap_err();
    let expected = "piece other:3:1: `quiet` is defined twice (first defined here: host.toml:1:1)";
    assert_eq!(found.to_string().trim_end(), expected);
    let joined = READER.with_pieces(&document, [first, other], &mut parsed).unwrap();
    let Meters(meters) = joined.host.get().unwrap();
    let places: Vec<String> =
        meters.iter().map(|meter| joined.locate(meter.span).to_string()).collect();
    assert_eq!(places, ["piece another:1:11", "piece other:1:11"]);
}

#[test]
fn what_a_piece_names_is_live_where_the_document_has_copies() {
    let text =
        SourceText { name: "host.toml".to_owned(), piece: None, ..piece("", "meters = ['own']") };
    let document = READER.restore_with_files(Path::new("/copies"), vec![text]).unwrap();
    let live = piece("one", "meters = ['one']");
    let joined = READER.with_pieces(&document, [live], &mut ParsedTexts::default()).unwrap();
    let Meters(meters) = joined.host.get().unwrap();
    let directories = meters.iter().map(|meter| joined.files.directory(meter.span));
    assert_eq!(
        directories.collect::<Vec<_>>(),
        [Path::new("/copies/pieces"), Path::new("/pieces")]
    );
}

#[test]
fn of_many_files_each_second_mistake_is_found() {
    let mut parsed = ParsedTexts::default();
    let document = parse("quiet = true");
    let twice = ["one", "two"].map(|name| piece(name, "quiet = false"));
    let found = READER.with_pieces(&document, twice, &mut parsed).unwrap_err().to_string();
    assert_eq!(found.matches("first defined here: host.toml:1:1").count(), 2, "{found}");
}

#[test]
fn each_namespace_that_a_pattern_matches_has_its_section_and_its_name() {
    let text = "[namespaces.'ct-*']\nmeters = ['all']\n[namespaces.ct-1]\nmeters = ['own']\n\
                [namespaces.'*-db']\nquiet = true";
    let document = parse(text);
    assert_eq!((document.namespaces.len(), document.patterns.len()), (1, 2));
    let (matched, ambiguous) = document.matching(["ct-1", "ct-2", "web", "ct-db"]);
    let name = |name: &str| name.parse::<NamespaceName>().unwrap();
    let of = |one: &str| matched.namespace(&name(one)).and_then(|scope| scope.get::<Meters>());
    assert_eq!(of("ct-1").unwrap().0[0].as_str(), "own");
    assert_eq!(of("ct-2").unwrap().0[0].as_str(), "all");
    assert!(matched.namespace(&name("web")).is_none());
    assert_eq!(matched.pattern_of(&name("ct-2")).unwrap().as_str(), "ct-*");
    assert_eq!(matched.pattern_of(&name("ct-1")), None);
    let [both] = ambiguous.as_slice() else { unreachable!("one name is ambiguous") };
    assert_eq!(both.name.as_str(), "ct-db");
    assert!(matched.namespace(&name("ct-db")).is_none());
    assert!(!parse("[namespaces.'ct-*']").states_no_namespaces());
}
