//! The words of the command line: help, and mistakes in it.

use serde_json::Value;

use crate::world::World;

#[test]
fn a_file_that_is_neither_a_document_nor_a_plan_names_both_possibilities() {
    let world = World::with("");
    for name in ["x.out", "saved.plan", "noext"] {
        world.write(name, "{}");
        let ran = world.run(&format!("apply --yes {name}")).exits(1);
        assert_eq!(
            ran.stderr,
            format!(
                "error: `{name}` is neither a document nor a saved plan\n\
                 help: a document ends in .toml, .yaml, .yml or .json; `homeostat plan --out` saves \
                 a plan\n"
            )
        );
    }
    let ran = world.run("apply --yes nosuch.out").exits(1);
    assert!(ran.stderr.contains("No such file"), "{}", ran.stderr);
}

#[test]
fn mistakes_on_the_command_line_end_with_1_and_a_suggestion_where_there_is_one() {
    let world = World::with("");
    let check = |args: &str, words: &[&str]| {
        let ran = world.finish(world.bare(args)).exits(1);
        assert!(ran.stderr.starts_with("error: ") || args.is_empty(), "{args}: {}", ran.stderr);
        for word in words {
            assert!(ran.stderr.contains(word), "{args}: {word:?} is not in: {}", ran.stderr);
        }
        assert_eq!(ran.stdout, "", "{args}");
    };
    check("", &["Usage: homeostat"]);
    check("plan", &["<DOC>"]);
    check("plan --jsn host.toml", &["'--json'"]);
    check("plan --color sometimes host.toml", &["always"]);
    check("plna host.toml", &["there is no command `plna`", "`plan`"]);
    check("frobnicate", &["there is no command `frobnicate`", "--help"]);
    check("completions tcsh", &["bash"]);
    check("plan -q -v host.toml", &["cannot be used with"]);
    check("show --json --toml", &["cannot be used with"]);
    check("plan --netns", &["--netns"]);
}

#[test]
fn help_says_how_a_command_ends() {
    let world = World::new();
    for (command, words) in [
        ("check", "Exit: 0 "),
        ("plan", "2 = not converged"),
        ("apply", "0 converged, 1 not"),
        ("verify", "0 converged, 2 not converged, 1 error"),
    ] {
        for flag in ["-h", "--help"] {
            let ran = world.finish(world.bare(&format!("{command} {flag}"))).exits(0);
            assert!(ran.stdout.contains(words), "{command} {flag}: {}", ran.stdout);
            assert_eq!(ran.stderr, "");
        }
    }
}

#[test]
fn every_command_has_help() {
    let world = World::new();
    let overview = world.finish(world.bare("--help")).exits(0).stdout;
    let commands =
        ["check", "plan", "apply", "verify", "show", "demo", "schema", "completions", "man"];
    for command in commands {
        assert!(overview.contains(&format!("\n  {command} ")), "{overview}");
        let ran = world.finish(world.bare(&format!("help {command}"))).exits(0);
        assert!(ran.stdout.contains(&format!("Usage: homeostat {command}")), "{}", ran.stdout);
    }
    let version = world.finish(world.bare("--version")).exits(0).stdout;
    assert_eq!(version, concat!("homeostat ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn the_schema_is_json_and_lists_the_sections() {
    let world = World::new();
    let schema: Value = world.finish(world.bare("schema")).json(0);
    assert!(schema["$schema"].as_str().unwrap().contains("json-schema.org"), "{schema}");
    let sections = schema["$defs"]["document"]["properties"].as_object().unwrap();
    assert_eq!(schema["$ref"], "#/$defs/document");
    for section in [
        "settings",
        "links",
        "routes",
        "rules",
        "neighbours",
        "nexthops",
        "sysctl",
        "nftables",
        "cgroups",
        "namespaces",
    ] {
        assert!(sections.contains_key(section), "{section}");
    }
}

#[test]
fn completions_name_commands_and_options() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = world.finish(world.bare(&format!("completions {shell}"))).exits(0).stdout;
        for word in ["homeostat", "verify", "revert-on-release"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let script = world.finish(world.bare("completions bash")).exits(0).stdout;
    let mut bash = world.command("bash");
    bash.arg("-n").arg(world.write("completion", script));
    world.finish(bash).says(0, "");
}

#[test]
fn the_manual_page_has_its_sections() {
    let world = World::new();
    let page = world.finish(world.bare("man")).exits(0).stdout;
    for section in [".TH homeostat", ".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS"] {
        assert!(page.contains(section), "{section}: {page}");
    }
}
