//! Files and directories: merging, and what can go wrong before a text is even parsed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use homeostat_document::{Diagnostics, Document};
use homeostat_knobs::section::{LinkSysctl, Sysctl};
use homeostat_rtnl::section::{Links, RouteEntry, Routes, Rules};
use tempfile::TempDir;

use super::READER;

/// A directory with these files in it.
fn directory(files: &[(&str, &[u8])]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn load_all(files: &[(&str, &[u8])]) -> Result<Document, Diagnostics> {
    READER.load(&[directory(files).path().to_owned()])
}

/// What is wrong, one line each, without the directory's name.
fn faults(files: &[(&str, &[u8])]) -> Vec<String> {
    let directory = directory(files);
    let prefix = format!("{}/", directory.path().display());
    let found = READER.load(&[directory.path().to_owned()]).unwrap_err();
    found.to_string().lines().map(|line| line.replace(&prefix, "")).collect()
}

#[test]
fn files_are_merged_in_the_order_of_their_names() {
    let document = load_all(&[
        ("20.yaml", b"routes: [{to: 10.2.0.0/16, dev: eth0}]\nsysctl: {net.ipv4.b: 2}"),
        ("10.toml", b"[[routes]]\nto = '10.1.0.0/16'\ndev = 'eth0'\n[sysctl]\n'net.ipv4.a' = 1"),
        ("30.json", b"{\"links\": {\"eth0\": {\"mtu\": 1500}}}"),
        (".hidden.toml", b"this is not TOML"),
        ("readme.md", b"this is not a document"),
        ("40.toml", b"[links.eth0.sysctl]\n'ipv4/rp_filter' = 1"),
    ])
    .unwrap_or_else(|found| panic!("{found}"));
    let to = |entry: &RouteEntry| match entry {
        RouteEntry::One(route) => route.key.dst.to_string(),
        RouteEntry::File(file) => file.path.display().to_string(),
    };
    let Routes(routes) = document.host.get().unwrap();
    let routes: Vec<String> = routes.iter().map(to).collect();
    assert_eq!(routes, ["10.1.0.0/16", "10.2.0.0/16"]);
    let Sysctl(sysctl) = document.host.get().unwrap();
    let keys = sysctl.iter().map(|knob| knob.key.path());
    assert_eq!(keys.collect::<Vec<_>>(), ["net/ipv4/a", "net/ipv4/b"]);
    let Links(links) = document.host.get().unwrap();
    let knobs: Vec<_> = document.host.extensions::<LinkSysctl>().collect();
    assert_eq!((links.len(), knobs.len(), knobs[0].knobs.as_ref().map(Vec::len)), (1, 1, Some(1)));
    assert!(links[0].settings.mtu.is_some());
}

#[test]
fn the_same_key_in_two_files_is_an_error_with_both_places() {
    let found = faults(&[
        (
            "a.toml",
            b"[sysctl]\n'net.ipv4.ip_forward' = 1\n[links.eth0]\nmtu = 1500\naddresses = []",
        ),
        ("b.yaml", b"sysctl:\n  net.ipv4.ip_forward: 1\nlinks:\n  eth0:\n    addresses: []"),
        ("c.json", b"{\"sysctl\": {\"net/ipv4/ip_forward\": 0}}"),
    ]);
    assert_eq!(
        found,
        [
            "b.yaml:2:3: `net.ipv4.ip_forward` is defined twice (first defined here: a.toml:2:1)",
            "b.yaml:5:5: `addresses` is defined twice (first defined here: a.toml:5:1)",
            "c.json:1:13: the knob `net/ipv4/ip_forward` is declared twice \
             (first declared here: a.toml:2:1)",
        ]
    );
}

#[test]
fn namespaces_and_settings_are_merged_too() {
    let document = load_all(&[
        ("a.toml", b"[settings.rtnl]\nresync = '1m'\n[namespaces.x]\ncreate = true\n[[namespaces.x.rules]]\ntable = 5"),
        ("b.toml", b"[settings.rtnl]\nmode = 'heal'\n[[namespaces.x.rules]]\ntable = 6\npriority = 6\n[namespaces.y]"),
    ])
    .unwrap_or_else(|found| panic!("{found}"));
    assert_eq!(document.namespaces.len(), 2);
    assert_eq!(document.namespaces[0].1.get::<Rules>().unwrap().0.len(), 2);
    assert!(document.settings.source("rtnl").mode.is_some());
}

#[test]
fn what_cannot_be_joined_is_not() {
    let found = faults(&[
        (
            "a.toml",
            b"routes = []\n[nftables]\nfile = 'a'\n[links.v]\nkind = 'veth'\npeer = { name = 'w' }",
        ),
        ("b.toml", b"routes = 5\n[nftables]\nfile = 'b'\n[links.v]\npeer = { namespace = 'x' }"),
    ]);
    let places: Vec<&str> = found.iter().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(places, ["b.toml:1:1", "b.toml:3:1", "b.toml:5:1"], "{found:?}");
}

#[test]
fn every_unreadable_file_is_named_with_the_reason() {
    let found = faults(&[
        ("a.toml", b"[sysctl]\n'net.a' = \"\xff\""),
        ("b.toml", b"\xef\xbb\xbf[sysctl]"),
        ("c.toml", b"bad = 1"),
    ]);
    assert_eq!(found[0], "a.toml: the file is not UTF-8: a wrong byte at offset 20, in line 2");
    assert_eq!(found[1], "b.toml:1:1: the file begins with a byte order mark");
    assert_eq!(found[3], "c.toml:1:1: unknown field `bad`");
}

#[test]
fn paths_that_are_no_documents_are_refused() {
    let place = directory(&[("a.conf", b""), ("a", b"")]);
    let say = |name: &str| READER.load(&[place.path().join(name)]).unwrap_err().to_string();
    assert!(say("").contains("there is no document in this directory"), "{}", say(""));
    assert!(say("a.conf").contains(".toml, .yaml, .yml or .json"), "{}", say("a.conf"));
    assert!(say("a").contains(".toml, .yaml, .yml or .json"));
    assert!(say("absent.toml").contains("No such file"));
    fs::create_dir(place.path().join("d.toml")).unwrap();
    assert!(say("d.toml").contains("there is no document in this directory"));
    symlink("loop.toml", place.path().join("loop.toml")).unwrap();
    assert!(say("loop.toml").contains("symbolic links"), "{}", say("loop.toml"));
    symlink("/dev/zero", place.path().join("zero.toml")).unwrap();
    assert!(say("zero.toml").contains("not a regular file"), "{}", say("zero.toml"));
}

#[test]
fn a_file_that_is_too_large_is_not_read_to_its_end() {
    let place = directory(&[]);
    let path = place.path().join("large.toml");
    fs::File::create(&path).unwrap().set_len((64 << 20) + 1).unwrap();
    let found = READER.load(&[path]).unwrap_err();
    assert!(found.to_string().contains("larger than 64 MiB"), "{found}");
    assert!(found.render(false).contains("error:"));
}

#[test]
fn no_files_at_all_are_an_empty_document() {
    let document = READER.load(&[]).unwrap();
    assert_eq!(document, Document::default());
    assert_eq!(READER.load(&Vec::<PathBuf>::new()).unwrap().files.names().count(), 0);
}
