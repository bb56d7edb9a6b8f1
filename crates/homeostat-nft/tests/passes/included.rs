//! Links that only included files speak of.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{Explain as _, Focus, Reader as _, Records, Source as _, View};
use homeostat_nft::{Compiler, DesiredState, Ruleset};

use crate::world::{World, expected, expected_of, expected_with, explained, listed, nft_from};

/// Files by their names, and the desired state of the first one.
pub(crate) fn files(directory: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn desired(world: &World, main: &Path) -> Arc<DesiredState> {
    let ruleset = Ruleset::read(main).unwrap();
    let desired = Compiler::default().compile(&ruleset, &world.source);
    Arc::new(desired.unwrap_or_else(|error| panic!("{error}")))
}

const FILES: [(&str, &str); 5] = [
    ("main.nft", "include \"names.nft\"\ninclude \"./rules/*.nft\"\ninclude \"sub/more.nft\"\n"),
    ("names.nft", "define wan = br7\ndefine lan = { br8, \"br9\" }\n"),
    ("rules/a.nft", "table ip a { chain x { iif $wan accept; }; }\n"),
    (
        "rules/b.nft",
        "table ip b { chain x { oif $lan accept; }; }\ntable ip c { chain x { drop; }; }\n",
    ),
    (
        "sub/more.nft",
        "table netdev d { chain x { type filter hook ingress device $wan priority 0; }; }\n\
         table inet e { set s { type iface_index; elements = { br9 }; }; }\n",
    ),
];

fn make(world: &World) {
    // Something in between, so that numbers are not those of a fresh namespace by chance.
    for name in ["br1", "br2", "br7", "br8", "br9"] {
        world.namespace.ip(&["link", "add", name, "type", "bridge"]).unwrap();
    }
    world.namespace.ip(&["link", "del", "br2"]).unwrap();
}

#[test]
fn links_that_are_there_are_meant_by_their_numbers() {
    let directory = tempfile::tempdir().unwrap();
    files(directory.path(), &FILES);
    let mut world = World::new();
    make(&world);
    let desired = desired(&world, &directory.path().join("main.nft"));
    let report = world.pass(&desired);
    assert!(report.is_converged(), "{}", explained(&report));
    assert_eq!(explained(&world.plan(&desired)), "");
    let (ours, from) = (listed(), directory.path().to_owned());
    let load = move || {
        nft_from(&from, &["-I", ".", "-f", "main.nft"], "").unwrap();
    };
    assert_eq!(ours, expected_of(make, load));
}

#[test]
fn tables_wait_for_links_that_are_not_there_and_mean_them_when_they_come() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) =
        ("table ip a { chain x { iif br7 accept; }; }\n", "table ip c { chain x { drop; }; }\n");
    files(
        directory.path(),
        &[("main.nft", "include \"part.nft\"\n"), ("part.nft", &format!("{a}{b}"))],
    );
    let mut world = World::new();
    let desired = desired(&world, &directory.path().join("main.nft"));
    let words = explained(&world.pass(&desired));
    assert!(words.contains("Link { name: \"br7\""), "{words}");
    assert_eq!(listed(), expected(b));
    make(&world);
    assert!(world.pass(&desired).is_converged());
    assert_eq!(listed(), expected_with(&format!("{a}{b}"), make));
}

#[test]
fn a_line_that_is_too_long_to_be_repeated_names_its_link_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let long = format!("table ip a {{ chain x {{ {} iif br7 accept; }}; }}\n", " ".repeat(3000));
    files(directory.path(), &[("main.nft", "include \"part.nft\"\n"), ("part.nft", &long)]);
    let mut world = World::new();
    let words = explained(&world.pass(&desired(&world, &directory.path().join("main.nft"))));
    assert!(words.contains("Link { name: \"br7\""), "{words}");
}

#[tokio::test]
async fn only_links_that_the_ruleset_names_start_a_pass() {
    let directory = tempfile::tempdir().unwrap();
    files(directory.path(), &FILES);
    let world = World::new();
    make(&world);
    let desired = desired(&world, &directory.path().join("main.nft"));
    let mut reader = world.source.reader().unwrap();
    let (focus, records) = (Focus::All, Records::new());
    let view = View::new(&focus, &desired, &records);
    reader.observe(&view, &mut |_| {}).await.unwrap();
    world.namespace.ip(&["link", "add", "br3", "type", "bridge"]).unwrap();
    world.namespace.ip(&["link", "del", "br1"]).unwrap();
    let early = tokio::time::timeout(Duration::from_millis(50), reader.hint()).await;
    assert!(early.is_err(), "{early:?}");
    world.namespace.ip(&["link", "del", "br9"]).unwrap();
    tokio::time::timeout(Duration::from_secs(10), reader.hint()).await.unwrap().unwrap();
    reader.observe(&view, &mut |_| {}).await.unwrap();
    // One that went is waited for by its name.
    world.namespace.ip(&["link", "add", "br9", "type", "bridge"]).unwrap();
    tokio::time::timeout(Duration::from_secs(10), reader.hint()).await.unwrap().unwrap();
}
