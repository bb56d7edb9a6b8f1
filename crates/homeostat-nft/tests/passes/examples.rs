//! The examples that the nftables package installs, as they are.

use std::path::{Path, PathBuf};

use homeostat_nft::{Compiler, Ruleset};

use crate::world::{World, expected_of, explained, listed, nft_from};

/// Where Debian puts them. Systems that leave out documentation get them by `cargo xtask setup`.
const EXAMPLES: &str = "/usr/share/doc/nftables/examples";

/// The links that some of them speak of.
fn make_links(world: &World) {
    for name in ["eth0", "eth1", "eth2", "bond0", "bond1"] {
        world.namespace.ip(&["link", "add", name, "type", "bridge"]).unwrap();
    }
}

fn examples() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(EXAMPLES)
        .unwrap_or_else(|error| panic!("{EXAMPLES}: {error}\nhelp: run `cargo xtask setup`"));
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "nft")).collect();
    paths.sort();
    paths
}

/// Whether `nft` takes it here: not every kernel has secmarks, for one.
fn is_taken(path: &Path) -> bool {
    let path = path.to_owned();
    let tried = std::thread::spawn(move || {
        let world = World::new();
        make_links(&world);
        nft_from(Path::new(EXAMPLES), &["-f", path.to_str().unwrap()], "")
    });
    tried.join().unwrap().is_ok()
}

fn check(path: &Path) {
    let mut world = World::new();
    make_links(&world);
    let desired =
        Compiler::default().compile(&Ruleset::read(path).unwrap(), &world.source).unwrap();
    let desired = std::sync::Arc::new(desired);
    let report = world.pass(&desired);
    assert!(homeostat_engine::Explain::is_converged(&report), "{}", explained(&report));
    assert_eq!(explained(&world.plan(&desired)), "", "a second pass");
    let path = path.to_owned();
    let load = move || {
        nft_from(Path::new(EXAMPLES), &["-f", path.to_str().unwrap()], "").unwrap();
    };
    assert_eq!(listed(), expected_of(make_links, load));
}

#[test]
fn every_packaged_example_is_as_nft_would_have_loaded_it() {
    let (taken, refused): (Vec<_>, Vec<_>) =
        examples().into_iter().partition(|path| is_taken(path));
    assert!(taken.len() >= 15, "nft itself refuses too many: {refused:?}");
    let failed = taken.into_iter().filter(|path| {
        let path = path.clone();
        std::thread::spawn(move || check(&path)).join().is_err()
    });
    assert_eq!(failed.collect::<Vec<_>>(), Vec::<PathBuf>::new());
    for path in refused {
        let world = World::new();
        make_links(&world);
        let desired = Compiler::default().compile(&Ruleset::read(&path).unwrap(), &world.source);
        assert!(desired.is_err(), "nft refuses {}", path.display());
    }
}
