//! Good documents are read whole, bad ones are explained: see `tests/documents/good` and `bad`.
//!
//! `BLESS=1` writes the expected texts anew; look at the difference before you keep it.

use std::fs;
use std::path::PathBuf;

use homeostat_document::{Diagnostic, Diagnostics, Document, Format};
use homeostat_guests::section::{Guests, Proxmox};
use homeostat_knobs::section::{Cgroups, Sysctl};
use homeostat_namespaces::section::is_made;
use homeostat_rtnl::section::{DeclaredLink, Links, RouteEntry, Routes};

use super::{READER, folder};

fn good(name: &str) -> Document {
    READER
        .load(&[folder("good").join(name)])
        .unwrap_or_else(|error| panic!("{}", error.render(false)))
}

fn links(document: &Document) -> &[DeclaredLink] {
    &document.host.get::<Links>().unwrap().0
}

#[test]
fn the_three_formats_give_the_same_document() {
    let toml = good("design.toml");
    assert_eq!(toml, good("design.yaml"));
    assert_eq!(toml, good("design.json"));
    assert_ne!(toml, good("everything.toml"));
}

#[test]
fn everything_that_can_be_written_is_read() {
    let document = good("everything.toml");
    let links = links(&document);
    assert_eq!(links.len(), 29);
    let kinds = links.iter().filter_map(|link| link.kind.as_ref());
    let mut kinds: Vec<&str> = kinds.map(|kind| kind.name()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), 21, "every kind is in it: {kinds:?}");
    let Cgroups(limits) = document.host.get().unwrap();
    assert_eq!(limits[2].value.value, "8:0 rbps=1\n8:16 rbps=2");
}

#[test]
fn guests_are_read_with_their_options_as_text() {
    let document = good("guests.toml");
    let proxmox: &Proxmox = document.host.get().unwrap();
    assert_eq!(proxmox.token_file, folder("good").join("pve.token"));
    let Guests(guests) = document.host.get().unwrap();
    let value = |name: &str| guests[0].wanted.options[name].clone();
    let names = guests[0].options.iter();
    let options: Vec<_> = names.map(|name| (name.as_str(), value(name))).collect();
    let expected = [
        ("cores", "2"),
        ("memory", "512"),
        ("description", "web"),
        ("tags", "web;blue"),
        ("nameserver", "10.0.0.1 10.0.0.2"),
        ("onboot", "1"),
        ("swap", "256"),
        ("cpulimit", "0.5"),
    ];
    assert_eq!(options, expected.map(|(name, value)| (name, value.to_owned())));
    assert_eq!(guests[1].wanted.options["memory"], "4096");
    assert_eq!((guests[0].wanted.adopt, guests[1].wanted.adopt), (false, true));
}

#[test]
fn what_is_empty_is_said_aloud_and_what_is_absent_is_not() {
    let document = good("everything.toml");
    assert_eq!(document.host.get(), Some(&Sysctl(Vec::new())));
    let (_, empty) = &document.namespaces[0];
    assert!(!empty.states("routes") && !empty.states("links") && !is_made(empty));
    let (_, red) = &document.namespaces[1];
    assert_eq!(red.get(), Some(&Routes(Vec::new())));
    assert_eq!(red.get(), Some(&Links(Vec::new())));
    let mut links = links(&document).iter();
    let link = links.find(|link| link.name.as_str() == "veth1").unwrap();
    assert_eq!(link.addresses, Some(Vec::new()));
}

#[test]
fn paths_are_seen_from_the_documents_own_directory() {
    let document = good("design.toml");
    let Routes(routes) = document.host.get().unwrap();
    let RouteEntry::File(file) = &routes[1] else { panic!("the second entry is a file") };
    assert_eq!(file.path.value, folder("good").join("bgp.routes"));
}

#[test]
fn every_value_knows_its_place() {
    let document = good("design.yaml");
    let Sysctl(sysctl) = document.host.get().unwrap();
    let at = document.locate(sysctl[0].value.span);
    assert_eq!((at.line, at.column), (55, 24));
    let wrong = Diagnostic::new(sysctl[0].key.span, "cannot be written").help("do not");
    let drawn = Diagnostics::new(document.files.clone(), vec![wrong]).render(false);
    assert!(drawn.contains("design.yaml:55:3"), "{drawn}");
    assert!(drawn.contains("net.ipv4.ip_forward: 1"), "{drawn}");
    assert!(drawn.contains("help: do not"), "{drawn}");
}

#[test]
fn every_bad_document_is_explained_as_expected() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in bad_documents() {
        count += 1;
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Err(found) = READER.parse(name, Format::of(&path).unwrap(), &text) else {
            wrong.push(format!("{name} is accepted"));
            continue;
        };
        assert!(!found.to_string().is_empty());
        let golden = path.with_file_name(format!("{name}.txt"));
        let drawn = found.render(false);
        if std::env::var_os("BLESS").is_some() {
            fs::write(&golden, &drawn).unwrap();
        }
        match fs::read_to_string(&golden) {
            Ok(expected) if expected == drawn => {}
            Ok(expected) => wrong.push(format!("{name}: expected\n{expected}\nfound\n{drawn}")),
            Err(_) => wrong.push(format!("{name}: there is no {name}.txt")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 40, "only {count} bad documents");
}

fn bad_documents() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder("bad")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| Format::of(path).is_some()).collect();
    paths.sort();
    paths
}

#[test]
fn the_schema_describes_every_field() {
    let schema = READER.schema();
    let mut fields = 0;
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        assert_eq!(definition["additionalProperties"], false, "{name}");
        for (field, shape) in definition["properties"].as_object().unwrap() {
            let described = |shape: &serde_json::Value| {
                shape["description"].as_str().is_some_and(|text| !text.is_empty())
            };
            let each = shape["anyOf"].as_array().is_some_and(|all| all.iter().all(described));
            assert!(described(shape) || each, "{name}.{field}");
            fields += 1;
        }
    }
    assert!(fields > 120, "only {fields} fields");
    assert_eq!(schema["$ref"], "#/$defs/document");
}

#[test]
fn colour_is_only_there_when_asked_for() {
    let found = READER.parse("a.toml", Format::Toml, "mtu = 1").unwrap_err();
    assert!(!found.render(false).contains('\u{1b}'));
    assert!(found.render(true).contains('\u{1b}'));
}

#[test]
fn an_empty_section_is_another_desired_state_than_none() {
    let parse = |text: &str| READER.parse("host.toml", Format::Toml, text).unwrap();
    for empty in ["[namespaces]\n", "[sysctl]\n", "routes = []\n"] {
        assert_ne!(parse(empty), parse(""), "{empty}");
        assert_eq!(parse(empty), parse(&format!("# words\n{empty}")), "{empty}");
    }
}
