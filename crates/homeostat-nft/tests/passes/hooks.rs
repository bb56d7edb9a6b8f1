//! Hooks into links that are not there, on kernels that want them to be there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use homeostat_engine::Explain as _;
use homeostat_nft::{Compiler, DesiredState, Ruleset};
use homeostat_testkit::script::write_script;

use crate::world::{World, expected, expected_with, explained, listed};

/// Refuses a text as a kernel does that wants the links of hooks to be there.
const STRICT: &str = "#!/bin/sh
case \" $* \" in *' -f '*) ip link show br8 >/dev/null 2>&1 || {
    nft -c \"$@\" || exit 1
    echo '/dev/stdin:1:24-24: Error: Could not process rule: No such file or directory' >&2
    exit 1
};; esac
exec nft \"$@\"
";

const HOOKED: &str = "table netdev a { chain i { type filter hook ingress device br8 priority 0; tcp dport 22 drop; }; }\n\
    table ip b { chain x { accept; }; }";

/// A kernel that wants links, as far as a program can be one, and a directory for texts.
struct Strict {
    directory: tempfile::TempDir,
}

impl Strict {
    fn new() -> Self {
        let strict = Strict { directory: tempfile::tempdir().unwrap() };
        write_script(&strict.program(), STRICT).unwrap();
        strict
    }

    fn program(&self) -> PathBuf {
        self.directory.path().join("nft")
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn desired(&self, world: &World, text: &'static str) -> Arc<DesiredState> {
        let (name, directory) = ("fw.nft".to_owned(), self.path().to_owned());
        let ruleset = Ruleset { text: text.into(), name, directory, root: "/".into() };
        Arc::new(Compiler::with_program(self.program()).compile(&ruleset, &world.source).unwrap())
    }
}

fn make_br8(world: &World) {
    world.namespace.ip(&["link", "add", "br8", "type", "bridge"]).unwrap();
}

#[test]
fn hooks_want_links() {
    let (strict, mut world) = (Strict::new(), World::new());
    let desired = strict.desired(&world, HOOKED);
    let words = explained(&world.pass(&desired));
    assert!(words.contains("table netdev a") && words.contains("Link { name: \"br8\""), "{words}");
    assert!(!words.contains("failed"), "{words}");
    assert_eq!(listed(), expected("table ip b { chain x { accept; }; }"));
    make_br8(&world);
    assert!(world.pass(&desired).is_converged());
    assert_eq!(listed(), expected_with(HOOKED, make_br8));
    world.namespace.ip(&["link", "del", "br8"]).unwrap();
    let words = explained(&world.pass(&desired));
    assert!(!words.contains("failed"), "{words}");
    // What is refused for another reason is refused, links or not.
    let missing = "table netdev a { chain i { type filter hook ingress device br8 priority 0; jump nowhere; }; }";
    let (name, directory) = ("fw.nft".to_owned(), std::env::temp_dir());
    let ruleset = Ruleset { text: missing.into(), name, directory, root: "/".into() };
    assert!(Compiler::with_program(strict.program()).compile(&ruleset, &world.source).is_err());
}

#[test]
fn links_of_hooks_are_found_in_what_is_included_and_by_way_of_variables() {
    let (strict, mut world) = (Strict::new(), World::new());
    std::fs::create_dir(strict.path().join("parts")).unwrap();
    let part = "table netdev a { chain i { type filter hook ingress devices = { $wan } priority 0; }\n chain e { type filter hook ingress device $wan priority 1; }; }\n";
    std::fs::write(strict.path().join("parts/a.nft"), part).unwrap();
    std::fs::write(strict.path().join("names.nft"), "define wan = br8\n").unwrap();
    let text =
        "include \"names.nft\"\ninclude \"./parts/*.nft\"\ntable ip b { chain x { accept; }; }";
    let desired = strict.desired(&world, text);
    let words = explained(&world.pass(&desired));
    assert!(words.contains("table netdev a") && words.contains("Link { name: \"br8\""), "{words}");
    assert_eq!(listed(), expected("table ip b { chain x { accept; }; }"));
    make_br8(&world);
    let report = world.pass(&desired);
    assert!(report.is_converged(), "{}", explained(&report));
    assert_eq!(explained(&world.plan(&desired)), "");
}

#[test]
fn a_table_waits_for_the_link_that_it_hooks_into_also_if_another_means_it_by_number() {
    let (strict, mut world) = (Strict::new(), World::new());
    let text = "table netdev a { chain i { type filter hook ingress device br8 priority 0; }; }\n\
        table ip b { chain x { iif br8 accept; }; }\ntable ip c { chain x { accept; }; }";
    let desired = strict.desired(&world, text);
    let words = explained(&world.pass(&desired));
    for table in ["table netdev a", "table ip b"] {
        let waits = format!(
            "key: \"{table}\", finding: Pending {{ on: Link {{ name: \"br8\", namespace: None }} }}"
        );
        assert!(words.contains(&waits), "{words}");
    }
    assert_eq!(listed(), expected("table ip c { chain x { accept; }; }"));
    // A kernel that can wait for the link itself is let.
    let desired = world.desired(text);
    let words = explained(&world.plan(&desired));
    let waits = words.contains("key: \"table netdev a\"");
    assert_eq!(waits, wants_links(), "{words}");
    make_br8(&world);
    assert!(world.pass(&desired).is_converged());
    assert_eq!(listed(), expected_with(text, make_br8));
}

/// Whether the kernel that the test runs on wants links.
fn wants_links() -> bool {
    let text = "table netdev a { chain i { type filter hook ingress device none priority 0; }; }";
    std::thread::spawn(move || {
        let _world = World::new();
        crate::world::nft(&["-f", "-"], text).is_err()
    })
    .join()
    .unwrap()
}

#[test]
fn a_link_whose_name_only_ends_like_another_is_another() {
    let mut world = World::new();
    world.namespace.ip(&["link", "add", "xbr8", "type", "bridge"]).unwrap();
    let text = "table netdev a { chain i { type filter hook ingress device xbr8 priority 0; }; }\n\
        table ip b { chain x { iif br8 accept; }; }";
    let words = world.planned(text);
    assert!(!words.contains("key: \"table netdev a\""), "{words}");
}
