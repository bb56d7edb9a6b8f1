//! Colour only where it is wanted, and readers that stop early.

use std::fmt::Write as _;
use std::io::Read as _;
use std::process::{Command, Stdio};

use crate::terminal::Terminal;
use crate::world::{Ran, World};

const DESIRED: &str = "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n";
const ESCAPE: char = '\x1b';

#[test]
fn colour_is_used_where_it_is_asked_for_and_says_nothing_new() {
    let world = World::with(DESIRED);
    let plain = world.run("plan host.toml").exits(0).stdout;
    let never = world.run("plan --color never host.toml").exits(0).stdout;
    let always = world.run("plan --color always host.toml").exits(0).stdout;
    assert!(!plain.contains(ESCAPE), "no terminal, no colour: {plain}");
    assert_eq!(never, plain);
    assert!(always.contains("\x1b[33m~\x1b[0m sysctl net.ipv4.ip_forward"), "{always:?}");
    assert_eq!(without_colour(&always), plain);
}

#[test]
fn mistakes_are_coloured_by_the_same_rule() {
    let world = World::with("[sysctls]\n");
    assert!(!world.run("check host.toml").exits(1).stderr.contains(ESCAPE));
    assert!(world.run("check --color always host.toml").exits(1).stderr.contains(ESCAPE));
    assert!(!world.run("plan --netns nosuch host.toml").exits(1).stderr.contains(ESCAPE));
    world.write("good.toml", "");
    let ran = world.run("plan --color always --netns nosuch good.toml").exits(1);
    assert!(ran.stderr.contains(ESCAPE), "{}", ran.stderr);
}

fn on_terminal(mut command: Command) -> String {
    let terminal = Terminal::open();
    command.stdout(terminal.end());
    let status = command.status().unwrap();
    drop(command);
    assert!(status.success());
    terminal.screen()
}

#[test]
fn a_terminal_gets_colour_unless_it_was_declined() {
    let world = World::with(DESIRED);
    assert!(on_terminal(world.homeostat("plan host.toml")).contains(ESCAPE));
    assert!(!on_terminal(world.homeostat("plan --color never host.toml")).contains(ESCAPE));
    let mut declined = world.homeostat("plan host.toml");
    declined.env("NO_COLOR", "1");
    assert!(!on_terminal(declined).contains(ESCAPE));
    let mut overruled = world.homeostat("plan --color always host.toml");
    overruled.env("NO_COLOR", "1");
    assert!(on_terminal(overruled).contains(ESCAPE));
    assert!(!on_terminal(world.homeostat("plan --json host.toml")).contains(ESCAPE));
}

fn without_colour(text: &str) -> String {
    let mut plain = String::new();
    for (at, part) in text.split(ESCAPE).enumerate() {
        plain += if at == 0 { part } else { part.split_once('m').unwrap().1 };
    }
    plain
}

/// More than a pipe holds.
fn long_document() -> String {
    let mut document = "[sysctl]\n".to_owned();
    for number in 0..5000 {
        writeln!(document, "\"net.ipv4.conf.eth{number}.rp_filter\" = 1").unwrap();
    }
    document
}

/// Runs the binary for a reader that goes after this many bytes.
fn cut_short(world: &World, args: &str, bytes: usize) -> Ran {
    let mut command = world.homeostat(args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut vec![0; bytes]).unwrap();
    drop(stdout);
    world.ran(&child.wait_with_output().unwrap())
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let world = World::with(DESIRED);
    world.write("long.toml", long_document());
    for (args, code) in [
        ("schema", 0),
        ("man", 0),
        ("completions bash", 0),
        ("completions zsh", 0),
        ("show --full", 0),
        ("plan --full long.toml", 0),
        ("plan --json long.toml", 0),
        ("verify --json host.toml", 2),
        ("--help", 0),
        ("demo", 0),
        ("plan host.toml", 0),
        ("apply --yes host.toml", 0),
    ] {
        for bytes in [0, 1] {
            let ran = cut_short(&world, args, bytes);
            assert_eq!(ran.stderr, "", "{args}");
            ran.exits(code);
        }
    }
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1", "it was applied all the same");
}
