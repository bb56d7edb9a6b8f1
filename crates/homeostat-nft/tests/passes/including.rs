//! Included files get the same checks as the text itself, and are read as `nft` reads them.

use std::path::Path;

use homeostat_engine::Explain as _;
use homeostat_nft::{CompileError, Compiler, DesiredState, Ruleset};
use homeostat_testkit::script::write_script;

use crate::included::files;
use crate::world::{World, expected_of, explained, listed, nft_from};

fn compile(world: &World, directory: &Path) -> Result<DesiredState, CompileError> {
    let ruleset = Ruleset::read(&directory.join("main.nft")).unwrap();
    Compiler::default().compile(&ruleset, &world.source)
}

#[test]
fn what_is_refused_in_a_text_is_refused_in_what_it_includes_with_its_own_place() {
    let world = World::new();
    for (part, expected) in [
        ("table ip a { }\n list ruleset\n", "2:2: `list` is a command that prints"),
        ("\n reset counters\n", "2:2: `reset` is a command that prints"),
        ("table ip a {\n  flags owner\n}\n", "2:3: a table with `flags owner`"),
        (
            "table ip a { chain x {\n ip saddr db.lan drop; }; }\n",
            "2:11: `db.lan` is the name of a host",
        ),
        ("\ntable ip a { chain x { foo; }; }\n", "2:27: syntax error"),
    ] {
        for (main, place) in [
            ("define a = 1\ninclude \"sub/part.nft\"\n", "main.nft:2"),
            ("define a = 1; include \"./sub/p*.nft\"; define b = 2\n", "main.nft:1"),
            ("\n\ninclude \"deep.nft\"\n", "main.nft:3"),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let deep = ("deep.nft", "# a\ninclude \"./sub/part.nft\"\n");
            files(directory.path(), &[("main.nft", main), deep, ("sub/part.nft", part)]);
            let error = compile(&world, directory.path()).unwrap_err().to_string();
            let line = error.lines().next().unwrap();
            assert!(line.contains(&format!("sub/part.nft:{expected}")), "{error}");
            assert!(line.ends_with(&format!("{place})")), "{error}");
        }
    }
}

#[test]
fn a_mistake_after_an_include_keeps_its_line_and_column() {
    let (world, directory) = (World::new(), tempfile::tempdir().unwrap());
    let main = "include \"part.nft\"\ntable ip b { include \"sub.nft\"; chain x { foo; }; }\n";
    let parts = [("part.nft", "table ip a { }\n\n\n"), ("sub.nft", "chain y {\n}\n")];
    files(directory.path(), &[("main.nft", main), parts[0], parts[1]]);
    let error = compile(&world, directory.path()).unwrap_err().to_string();
    assert!(error.contains("main.nft:2:46: syntax error"), "{error}");
}

#[test]
fn commands_that_clear_mean_nothing_in_included_files_either() {
    let (mut world, directory) = (World::new(), tempfile::tempdir().unwrap());
    files(
        directory.path(),
        &[
            ("main.nft", "include \"first.nft\"\ninclude \"parts/*\"\n"),
            ("first.nft", "flush ruleset\ndelete table ip gone\n"),
            ("parts/a.nft", "delete table ip a\ntable ip a { chain x { accept; }; }\n"),
        ],
    );
    let desired = compile(&world, directory.path()).unwrap().into();
    let words = explained(&world.plan(&desired));
    let all = "`flush ruleset`, `delete table ip gone`, `delete table ip a` at the beginning";
    assert!(words.contains(all), "{words}");
    assert!(world.pass(&desired).is_converged());
    // Behind the first table they act on it.
    files(directory.path(), &[("parts/b.nft", "delete table ip a\n")]);
    assert_eq!(compile(&world, directory.path()).unwrap().keys(), []);
}

#[test]
fn rules_of_included_files_are_shown_as_they_were_written() {
    let (mut world, directory) = (World::new(), tempfile::tempdir().unwrap());
    files(
        directory.path(),
        &[
            (
                "main.nft",
                "table ip a { chain x {\n tcp dport 0x16 accept\n}; }\ninclude \"b.nft\"\n",
            ),
            ("b.nft", "table ip b {\n chain x { tcp dport 0x17 drop; }; }\n"),
        ],
    );
    let desired = compile(&world, directory.path()).unwrap().into();
    let words = explained(&world.plan(&desired));
    assert!(words.contains("tcp dport 0x16 accept"), "{words}");
    assert!(words.contains("tcp dport 0x17 drop"), "{words}");
}

/// Of a name that is in `/etc` of every machine, too. The first mistake that is reported shows what is read first.
#[test]
fn later_paths_first() {
    let (world, directory) = (World::new(), tempfile::tempdir().unwrap());
    let ours = "\n".repeat(98) + "oops\n";
    for (main, first) in
        [("include \"hosts\"\n", "/etc/hosts:"), ("include \"host[s]\"\n", "hosts:99:")]
    {
        files(directory.path(), &[("main.nft", main), ("hosts", &ours)]);
        let by_nft = nft_from(directory.path(), &["-I", ".", "-f", "main.nft"], "").unwrap_err();
        let by_nft = by_nft.lines().find(|line| line.contains("Error")).unwrap();
        assert!(by_nft.contains(first), "{by_nft}");
        let by_us = compile(&world, directory.path()).unwrap_err().to_string();
        assert!(by_us.lines().next().unwrap().contains(first), "{by_us}");
    }
}

#[test]
fn the_files_that_are_taken_and_their_order_are_those_of_nft() {
    let directory = tempfile::tempdir().unwrap();
    let rule = |comment: &str| format!("add rule ip a x accept comment \"{comment}\"\n");
    let (one, two, ten, hidden) = (rule("1"), rule("2"), rule("10"), rule("hidden"));
    files(
        directory.path(),
        &[
            (
                "main.nft",
                "table ip a { chain x { include \"sub/in.nft\"; accept comment \"last\"; }; }\n\
                 include \"parts/*.nft\"\ninclude \"./parts/[12].nft\"; include \"none*\"\n\
                 include \"parts\"\ninclude \"../sub/none*\"\ninclude \\\n \"parts/2.nft\" # again\n",
            ),
            ("sub/in.nft", "accept comment \"in\"\n"),
            ("parts/10.nft", &ten),
            ("parts/1.nft", &one),
            ("parts/2.nft", &two),
            ("parts/.hidden.nft", &hidden),
            ("parts/dir.nft/x", "junk"),
        ],
    );
    let mut world = World::new();
    let desired =
        compile(&world, directory.path()).unwrap_or_else(|error| panic!("{error}")).into();
    assert!(world.pass(&desired).is_converged());
    let (ours, from) = (listed(), directory.path().to_owned());
    let load = move || {
        nft_from(&from, &["-I", ".", "-f", "main.nft"], "").unwrap();
    };
    assert_eq!(ours, expected_of(|_| {}, load));
    assert!(ours.iter().any(|entry| entry["rule"]["comment"] == "10"), "{ours:?}");
}

#[test]
fn a_text_is_compiled_once_as_long_as_it_is_declared_and_means_the_same() {
    let (world, directory) = (World::new(), tempfile::tempdir().unwrap());
    let root = directory.path();
    let (program, runs) = (root.join("nft"), root.join("runs"));
    let script = format!("#!/bin/sh\necho run >> {}\nexec nft \"$@\"\n", runs.display());
    write_script(&program, &script).unwrap();
    let compiler = Compiler::with_program(&program);
    let desired = || {
        let ruleset = Ruleset::read(&root.join("main.nft")).unwrap();
        compiler.clone().compile(&ruleset, &world.source).unwrap()
    };
    // The desired state, and whether anything was run for it.
    let runs_for = || {
        let count = || std::fs::read_to_string(&runs).unwrap_or_default().len();
        let before = count();
        (desired(), count() > before)
    };
    files(
        root,
        &[
            ("main.nft", "include \"part.nft\"\ntable ip a { chain x { iif br7 accept; }; }\n"),
            ("part.nft", "table ip b { }\n"),
        ],
    );
    let (_first, has_run) = runs_for();
    assert!(has_run);
    assert!(!runs_for().1, "nothing is another");
    world.namespace.ip(&["link", "add", "br1", "type", "bridge"]).unwrap();
    assert!(!runs_for().1, "the text does not name this link");
    world.namespace.ip(&["link", "add", "br7", "type", "bridge"]).unwrap();
    let (_second, has_run) = runs_for();
    assert!(has_run, "the link has come");
    assert!(!runs_for().1);
    world.namespace.ip(&["link", "del", "br7"]).unwrap();
    assert!(!runs_for().1, "the first one is declared still");
    files(root, &[("part.nft", "table ip c { }\n")]);
    assert!(runs_for().1, "what is included is another");
    assert!(runs_for().1, "and it is not declared any more");
}
