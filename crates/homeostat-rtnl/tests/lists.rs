//! Lists of routes as files: what is handed on, and how mistakes in them are shown.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use homeostat_document::{Checker, Diagnostics, Document, DocumentReader, ValueError};
use homeostat_rtnl::Table;
use homeostat_rtnl::section::{RouteFile, RouteLine, SECTIONS, listed_routes, route_twins};
use tempfile::TempDir;

const READER: DocumentReader = DocumentReader::new(&[SECTIONS]);

const ENTRY: &str = "[[routes]]\nfrom-file = 'a.routes'\n";

/// A document in a directory with its lists.
struct Place {
    directory: TempDir,
    document: Document,
}

impl Place {
    fn new(text: &str, lists: &[(&str, &[u8])]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, list) in lists {
            fs::write(directory.path().join(name), list).unwrap();
        }
        let path = directory.path().join("host.toml");
        fs::write(&path, text).unwrap();
        Self { directory, document: READER.load(&[path]).unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// All routes, or what is wrong.
    fn routes(&self) -> Result<Vec<String>, String> {
        let mut routes = Vec::new();
        let read = self.read(|_, line| {
            let dev = line.route.dev.map(|dev| dev.to_string()).unwrap_or_default();
            routes.push(format!("{} dev {dev}", line.key.dst));
            Ok(())
        });
        read.map(|()| routes).map_err(|found| self.plain(&found.to_string()))
    }

    fn read(
        &self,
        each: impl FnMut(&RouteFile, RouteLine) -> Result<(), ValueError>,
    ) -> Result<(), Diagnostics> {
        read(&self.document, each)
    }

    fn twins(&self) -> Result<(), Diagnostics> {
        let mut checker = Checker::new(self.document.files.clone());
        route_twins(&self.document.host, &mut checker);
        checker.into_result()
    }

    /// A text without the directory's name.
    fn plain(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.directory.path().display()), "")
    }
}

fn read(
    document: &Document,
    each: impl FnMut(&RouteFile, RouteLine) -> Result<(), ValueError>,
) -> Result<(), Diagnostics> {
    let mut checker = Checker::new(document.files.clone());
    listed_routes(&document.host, &mut checker, each);
    checker.into_result()
}

#[test]
fn the_routes_of_all_lists_are_handed_on_in_the_order_of_writing() {
    let text = "[[routes]]\nfrom-file = 'b.routes'\nadopt = true\n[[routes]]\nto = '::/0'\n\
        dev = 'e'\n[[routes]]\nfrom-file = 'a.routes'\n";
    let place = Place::new(
        text,
        &[("a.routes", b"10.0.0.1/8 dev a\n"), ("b.routes", b"# none\n10.2.0.0/16 dev b\r\n")],
    );
    assert_eq!(place.routes().unwrap(), ["10.2.0.0/16 dev b", "10.0.0.0/8 dev a"]);
    let mut adopted = Vec::new();
    let read = place.read(|file, _| {
        adopted.push(file.adopt);
        Ok(())
    });
    assert!(read.is_ok() && adopted == [true, false] && place.twins().is_ok());
}

#[test]
fn every_bad_line_is_shown_with_file_line_and_word() {
    let list = "10.0.0.0/8 dev a\n10.0.0.0/9 vai 1.2.3.4\n\n10.0.0.0/10 dev a metric x # y\n";
    let place = Place::new(ENTRY, &[("a.routes", list.as_bytes())]);
    assert_eq!(
        place.routes().unwrap_err(),
        "a.routes:2:12: `vai` is not a word of a route\n  help: did you mean `via`?\n\
         a.routes:4:26: `x` is not a metric\n  help: it must be from 0 to 4294967295"
    );
    let found = place.read(|_, _| Ok(())).unwrap_err();
    let drawn = place.plain(&found.render(false));
    let expected = "error: `vai` is not a word of a route\n --> a.routes:2:12\n  |\n\
        2 | 10.0.0.0/9 vai 1.2.3.4\n  |            ^^^\n  |\n  = help: did you mean `via`?\n";
    assert!(drawn.starts_with(expected), "{drawn}");
}

#[test]
fn a_route_that_the_caller_refuses_is_shown_with_its_line() {
    let place = Place::new(ENTRY, &[("a.routes", b"10.0.0.0/8 dev a\n10.1.0.0/16 dev b\n")]);
    let refused = place.read(|_, line| match line.route.dev {
        Some(dev) if dev.as_str() == "b" => {
            Err(ValueError { message: "no `b` here".to_owned(), help: None })
        }
        _ => Ok(()),
    });
    let found = place.plain(&refused.unwrap_err().to_string());
    assert_eq!(found, "a.routes:2:1: no `b` here");
}

#[test]
fn of_many_bad_lines_the_first_are_shown_and_the_rest_counted() {
    let bad = |count: usize| "x\n".repeat(count);
    let shown = |list: String| {
        let place = Place::new(ENTRY, &[("a.routes", list.as_bytes())]);
        let found = place.routes().unwrap_err();
        let lines: Vec<String> = found.lines().map(str::to_owned).collect();
        (lines.iter().filter(|line| line.starts_with("a.routes")).count(), lines)
    };
    assert_eq!(shown(bad(20)).0, 20);
    let (_, lines) = shown(bad(5000));
    assert_eq!(lines[40], "a.routes:21:1: 4980 more lines are wrong in this list");
    let (count, lines) = shown(bad(500_000));
    assert_eq!(count, 21);
    assert_eq!(
        lines[40..],
        [
            "a.routes:21:1: at least 9980 more lines are wrong in this list",
            "  help: no line of it is a route: is it the right file?"
        ]
    );
    let (_, lines) = shown(format!("10.0.0.0/8 dev a\n{}", bad(21)));
    assert_eq!(lines[40..], ["a.routes:22:1: 1 more line is wrong in this list"]);
}

#[test]
fn a_file_that_is_no_list_at_all_is_refused() {
    let junk = vec![0_u8; 3 << 20];
    let place = Place::new(ENTRY, &[("a.routes", &junk)]);
    let found = place.routes().unwrap_err();
    assert!(found.starts_with("a.routes:1:1: this line is longer than 4096 bytes"), "{found}");
    let binary: Vec<u8> = (0..=255_u8).cycle().take(1 << 20).collect();
    let place = Place::new(ENTRY, &[("a.routes", &binary)]);
    assert!(place.routes().unwrap_err().contains("is it the right file?"));
}

#[test]
fn a_list_without_routes_is_refused_unless_the_document_allows_it() {
    for list in ["", "\n \n", "# later\n"] {
        let lists: &[(&str, &[u8])] = &[("a.routes", list.as_bytes())];
        let found = Place::new(ENTRY, lists).routes().unwrap_err();
        assert!(found.starts_with("host.toml:2:13: the list `a.routes` has no routes"), "{found}");
        assert!(found.contains("`allow-empty = true`"), "{found}");
        let allowed = Place::new(&format!("{ENTRY}allow-empty = true\n"), lists);
        assert_eq!(allowed.routes().unwrap(), [] as [&str; 0], "{list:?}");
    }
    let one = "[[routes]]\nto = '::/0'\ndev = 'e'\nallow-empty = true\n";
    let misplaced = READER.parse("host.toml", homeostat_document::Format::Toml, one);
    assert!(misplaced.unwrap_err().to_string().contains("`allow-empty` is about a list"));
}

#[test]
fn a_list_that_cannot_be_read_is_an_error_at_the_documents_line() {
    let place = Place::new(ENTRY, &[]);
    assert_eq!(
        place.routes().unwrap_err(),
        "host.toml:2:13: the list `a.routes` cannot be read: \
         No such file or directory (os error 2)"
    );
    fs::create_dir(place.path("a.routes")).unwrap();
    assert_eq!(
        place.routes().unwrap_err(),
        "host.toml:2:13: the list `a.routes` cannot be read: this is not a regular file"
    );
    let found = place.read(|_, _| Ok(())).unwrap_err();
    assert!(found.render(false).contains("2 | from-file = 'a.routes'"), "{}", found.render(false));
}

#[test]
fn a_route_that_is_declared_twice_is_shown_with_both_places() {
    let text = "[[routes]]\nto = '10.9.0.0/16'\ndev = 'e'\n[[routes]]\nfrom-file = 'a.routes'\n\
        [[routes]]\nfrom-file = 'b.routes'\n";
    let a = "10.1.0.0/16 dev a\n\n10.2.0.0/16 dev a\n10.1.2.3/16 via 1.2.3.4 table main\n\
        10.1.0.0/16 dev a metric 5\nthis line is bad\nfd00::/8 dev a\n";
    let b = "10.2.0.0/16 dev b\n10.9.0.0/16 dev b\nfd00::/8 dev a metric 1024\n";
    let place = Place::new(text, &[("a.routes", a.as_bytes()), ("b.routes", b.as_bytes())]);
    let found = place.plain(&place.twins().unwrap_err().to_string());
    let found: Vec<&str> = found.lines().collect();
    let twin = |at: &str, to: &str, metric: u32, first: &str| {
        format!(
            "{at}: the route to {to} in table main with metric {metric} is declared twice \
             (first declared here: {first})"
        )
    };
    assert_eq!(
        found,
        [
            twin("a.routes:4:1", "10.1.0.0/16", 0, "a.routes:1:1"),
            twin("b.routes:1:1", "10.2.0.0/16", 0, "a.routes:3:1"),
            twin("b.routes:2:1", "10.9.0.0/16", 0, "host.toml:2:6"),
            twin("b.routes:3:1", "fd00::/8", 1024, "a.routes:7:1"),
        ]
    );
}

#[test]
fn one_list_named_twice_has_every_route_twice() {
    let place = Place::new(&ENTRY.repeat(2), &[("a.routes", b"10.0.0.0/8 dev a\n")]);
    let found = place.plain(&place.twins().unwrap_err().to_string());
    assert!(found.contains("(first declared here: a.routes:1:1)"), "{found}");
}

#[test]
fn the_example_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/transit.toml");
    let document = READER.load(&[path]).unwrap();
    let (mut tables, main) = (Vec::new(), Table::MAIN);
    let read = read(&document, |_, line| {
        tables.push(line.key.table);
        Ok(())
    });
    read.unwrap();
    assert_eq!(tables, [main, main, main, Table(100), main, main, main]);
    let mut checker = Checker::new(document.files.clone());
    route_twins(&document.host, &mut checker);
    assert_eq!(checker.count(), 0);
}
