//! Texts that are no rulesets: clear errors with their place, and nothing applied.

use homeostat_nft::{CompileError, Compiler, Mark, Nft, Ruleset};
use homeostat_testkit::script::write_script;

use crate::world::{World, expected, listed};

fn refused(text: &str) -> (String, Option<&'static str>) {
    let world = World::new();
    let error = world.compile(text).unwrap_err();
    assert_eq!(listed(), expected(""));
    (error.to_string(), error.help())
}

#[test]
fn a_mistake_is_reported_with_the_users_file_line_and_column() {
    let (error, _) = refused("table ip a {\n\tchain x {\n\t\ttcp dprt 22 accept\n\t}\n}");
    assert!(error.starts_with("fw.nft:3:7: syntax error, unexpected string"), "{error}");
    let (error, _) = refused("flush ruleset\ntable ip a { chain x { ip saddr @nowhere drop; }; }");
    assert!(error.starts_with("fw.nft:2:33: No such file or directory"), "{error}");
    let (error, _) = refused("table outer a { }");
    assert!(error.starts_with("fw.nft:1:13: syntax error"), "{error}");
}

#[test]
fn all_mistakes_are_reported() {
    let (error, _) = refused("table ip a {\n\tchain x { foo; }\n\tchain y { bar; }\n}");
    assert!(error.matches("fw.nft:").count() >= 2, "{error}");
}

#[test]
fn a_mistake_behind_a_very_long_line_is_shown_with_what_is_around_it() {
    let address = |n: u32| std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).to_string();
    let elements = (0..200_000).map(address).collect::<Vec<_>>().join(", ");
    let set = format!("set s {{ type ipv4_addr; elements = {{ {elements} }}; }}");
    let (error, _) = refused(&format!("table ip a {{ {set}; chain x {{ oops; }}; }}"));
    let column = format!("table ip a {{ {set}; chain x {{ oops;").len();
    let expected = format!(
        "fw.nft:1:{column}: syntax error, unexpected semicolon\n\
         ...3.13.62, 10.3.13.63 }}; }}; chain x {{ oops; }}; }}\n{}^",
        " ".repeat(43)
    );
    assert_eq!(error, expected);
}

#[test]
fn names_of_hosts_are_not_looked_up() {
    // One that `nft` could look up without any network, one with a dot, and one that only it knows for a name.
    for (name, message) in [
        ("localhost", "fw.nft:1:33: `localhost` is the name of a host"),
        ("no.such.host.invalid", "fw.nft:1:33: `no.such.host.invalid` is the name of a host"),
        ("nosuchhost", "fw.nft:1:33: Could not resolve hostname"),
    ] {
        let (error, help) =
            refused(&format!("table ip a {{ chain x {{ ip saddr {name} accept; }}; }}"));
        assert!(error.starts_with(message), "{error}");
        assert!(help.unwrap_or_default().contains("write addresses"), "{error}");
    }
}

#[test]
fn commands_that_print_are_refused() {
    for command in ["list ruleset", "reset counters", "list tables", "monitor"] {
        let (error, help) = refused(&format!("table ip a {{ }}\n {command}"));
        assert!(error.starts_with("fw.nft:2:2: `") && error.contains("that prints"), "{error}");
        assert!(help.is_some());
    }
}

#[test]
fn tables_that_would_die_with_nft_are_refused_with_their_place() {
    let (error, help) = refused("table ip a {\n  flags owner\n}");
    assert!(error.starts_with("fw.nft:2:3: a table with `flags owner`"), "{error}");
    assert!(help.unwrap().contains("leave `owner` out"));
}

#[test]
fn a_program_without_a_version_is_taken_for_too_old() {
    let text = "table ip a { }".into();
    let ruleset =
        Ruleset { text, name: "x".to_owned(), directory: std::env::temp_dir(), root: "/".into() };
    let compiler = Compiler::with_program("echo");
    let error = compiler.compile(&ruleset, &Nft::here(Mark::new("test"))).unwrap_err();
    assert!(matches!(error, CompileError::TooOld { .. }), "{error}");
    assert_eq!(error.help(), Some("install a newer package `nftables`"));
}

#[test]
fn junk_is_no_text() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("junk.nft");
    std::fs::write(&path, b"# a\n \xff\xfe\0").unwrap();
    let error = Ruleset::read(&path).unwrap_err().to_string();
    assert!(error.ends_with("junk.nft:2:2: this is no text (byte 0xff)"), "{error}");
    std::fs::File::create(&path).unwrap().set_len(100 << 20).unwrap();
    assert!(matches!(Ruleset::read(&path), Err(CompileError::TooLarge { .. })));
    let missing = Ruleset::read(&directory.path().join("missing"));
    assert!(matches!(missing, Err(CompileError::Read { .. })));
    let device = Ruleset::read(std::path::Path::new("/dev/zero"));
    assert!(matches!(device, Err(CompileError::Read { .. })), "it would never end");
    let (error, _) = refused("table ip a { }\n\0");
    assert_eq!(error, "fw.nft:2:1: this is no text (byte 0x00)");
}

#[test]
fn a_missing_program_is_a_clear_error() {
    let text = "table ip a { }".into();
    let ruleset =
        Ruleset { text, name: "x".to_owned(), directory: std::env::temp_dir(), root: "/".into() };
    let compiler = Compiler::with_program("/nonexistent/nft");
    let error = compiler.compile(&ruleset, &Nft::here(Mark::new("test"))).unwrap_err();
    assert!(matches!(error, CompileError::NoProgram));
    assert_eq!(error.help(), Some("install the package `nftables`"));
}

#[test]
fn includes_are_found_beside_the_file_and_their_mistakes_named() {
    let directory = tempfile::tempdir().unwrap();
    let (main, part) = (directory.path().join("main.nft"), directory.path().join("part.nft"));
    std::fs::write(&main, "include \"./part.nft\"\ninclude \"part.nft\"\n").unwrap();
    std::fs::write(&part, "table ip a { }\n").unwrap();
    let world = World::new();
    let compile = || Compiler::default().compile(&Ruleset::read(&main).unwrap(), &world.source);
    assert_eq!(compile().unwrap().keys().len(), 1);
    std::fs::write(&part, "table ip a {\n flags owner\n }\n").unwrap();
    let error = compile().unwrap_err().to_string();
    assert!(error.contains("part.nft:2:2: a table with `flags owner`"), "{error}");
    std::fs::write(&part, "table ip a {\n oops }\n").unwrap();
    let error = compile().unwrap_err().to_string();
    assert!(error.contains("part.nft:2:"), "{error}");
}

#[test]
fn includes_that_cannot_be_read_are_refused_with_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let check = |main: &str, part: &[u8], expected_words: &[&str]| {
        let (path, world) = (directory.path().join("main.nft"), World::new());
        std::fs::write(&path, main).unwrap();
        std::fs::write(directory.path().join("part.nft"), part).unwrap();
        let ruleset = Ruleset::read(&path).unwrap();
        let error = Compiler::default().compile(&ruleset, &world.source).unwrap_err().to_string();
        assert!(expected_words.iter().all(|words| error.contains(words)), "{error}");
        assert_eq!(listed(), expected(""));
    };
    check("\ninclude \"./nowhere.nft\"\n", b"", &["main.nft:2:1: File not found: ./nowhere.nft"]);
    let deep = ["part.nft:1:1: Include nested too deeply", "main.nft:2)"];
    check("\ninclude \"part.nft\"\n", b"include \"part.nft\"\n", &deep);
    let junk = ["part.nft:2:2: this is no text (byte 0xff)"];
    check("include \"part.nft\"\n", b"# a\n \xff\xfe\0\x1b[31m\n", &junk);
    let junk = ["part.nft:1:3: this is no text (byte 0x00) (included by ", "main.nft:1)"];
    check("include \"part.nft\"\n", b"  \0\n", &junk);
    let device = ["cannot read `/dev/zero`"];
    check("include \"/dev/zero\"\n", b"", &device);
}

#[test]
fn a_comment_without_room_for_the_mark_is_refused() {
    let (error, _) = refused(&format!("table ip a {{ comment \"{}\"; }}", "x".repeat(120)));
    assert!(error.contains("leaves no room"), "{error}");
}

/// What is said if this script is the program.
fn refused_by(script: &str) -> CompileError {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("nft");
    write_script(&program, &format!("#!/bin/sh\n{script}\n")).unwrap();
    let text = "table ip a { }".into();
    let ruleset =
        Ruleset { text, name: "x".to_owned(), directory: std::env::temp_dir(), root: "/".into() };
    let compiler = Compiler::with_program(program);
    compiler.compile(&ruleset, &Nft::here(Mark::new("test"))).unwrap_err()
}

#[test]
fn a_program_that_crashes_is_named_as_the_one_to_blame() {
    let error = refused_by("case \"$*\" in *-f*) kill -SEGV $$;; esac\nexec nft \"$@\"");
    assert_eq!(error.to_string(), "x: `nft` crashed on it (signal 11)");
}

#[test]
fn a_program_that_is_too_old_is_named_with_the_version_that_would_do() {
    let error = refused_by("echo 'nftables v0.9.8 (E.D.S.)'");
    assert_eq!(error.to_string(), "`nft` has version 0.9.8, and at least 1.0.0 is needed");
    assert_eq!(error.help(), Some("install a newer package `nftables`"));
}
