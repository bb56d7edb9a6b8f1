//! Pieces that other programs put beside the document: taken, refused, kept over restarts, and dropped with what they declare.

use std::fs;
use std::process::Stdio;

use serde_json::Value;
use snapbox::str;

use crate::keeping::until;
use crate::network::cabled;
use crate::world::{Ran, World};

const DOCUMENT: &str = "[links.va]\naddresses = [\"10.0.0.1/24\"]\n";
const WEB: &str = "[[routes]]\nto = \"10.9.0.0/16\"\nvia = \"10.0.0.9\"\n";
const ROUTE: &str = "10.9.0.0/16";

impl World {
    #[track_caller]
    fn put(&self, name: &str, text: &str) -> Ran {
        self.finish_with(self.homeostat(&format!("put {name} -")), text)
    }

    #[track_caller]
    fn has_piece_route(&self, to: &str) -> bool {
        !self.listed(&format!("route show {to} proto 76")).is_empty()
    }

    fn piece_names(&self) -> Vec<String> {
        let status: Value = serde_json::from_str(&self.run("status --json").stdout).unwrap();
        let pieces = status["pieces"].as_array().unwrap();
        pieces.iter().map(|piece| piece["name"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn a_piece_is_kept_as_declared_until_it_is_dropped_also_over_restarts() {
    let world = cabled();
    let daemon = world.keep(DOCUMENT);
    world.converges();
    world.put("web-1", WEB).exits(0);
    assert!(world.has_piece_route(ROUTE));
    assert_eq!(world.piece_names(), ["web-1"]);
    let text = world.run("status").exits(0).stdout;
    assert!(text.contains("piece web-1: put at "), "{text}");
    let events = world.run("events").exits(0).stdout;
    assert!(events.contains("piece-put piece=web-1"), "{events}");
    world.run("plan host.toml").says(0, "No changes.\n");
    world.run("verify host.toml").exits(0);

    world.ip(&format!("route del {ROUTE}"));
    until("the heal", || world.has_piece_route(ROUTE));

    drop(daemon);
    world.ip(&format!("route del {ROUTE}"));
    let _daemon = world.keep_by(world.homeostat("run host.toml"));
    until("the route of the piece", || world.has_piece_route(ROUTE));
    world.converges();

    // It was all that declared routes: what goes is what the piece declared, and no editor's mistake.
    world.run("drop web-1").exits(0);
    assert!(!world.has_piece_route(ROUTE));
    assert!(world.piece_names().is_empty());
    assert!(world.ip("address show va").contains("10.0.0.1/24"));
    world.run("drop web-1").exits(0);
    world.run("plan host.toml").says(0, "No changes.\n");
    let events = world.run("events").exits(0).stdout;
    assert!(events.contains("piece-dropped piece=web-1"), "{events}");
}

#[test]
fn a_key_that_is_declared_elsewhere_too_is_refused_with_both_places_and_nothing_changes() {
    let world = cabled();
    let daemon = world.keep(&format!("{DOCUMENT}mtu = 1400\n{WEB}"));
    world.converges();
    world.put("one", "[links.va]\nmtu = 1300\n").fails(str![[r#"
error: `mtu` is defined twice
 --> piece one:2:1
  |
2 | mtu = 1300
  | ^^^
  |
 ::: host.toml:3:1
  |
3 | mtu = 1400
  | --- first defined here

1 error in the document; nothing was changed

"#]]);
    world.put("two", "[[routes]]\nto = \"10.10.0.0/16\"\nvia = \"10.0.0.9\"\n").exits(0);
    let twice = world.put("three", "[[routes]]\nto = \"10.10.0.0/16\"\ndev = \"vb\"\n").exits(1);
    assert!(twice.stderr.contains("piece three:2:6"), "{}", twice.stderr);
    assert!(twice.stderr.contains("piece two:2:6"), "{}", twice.stderr);
    let broken = world.put("four", "[[routes]\n").exits(1);
    assert!(broken.stderr.contains("piece four:1:"), "{}", broken.stderr);
    assert_eq!(world.piece_names(), ["two"]);
    world.run("status").exits(0);
    let events = world.run("events").exits(0).stdout;
    assert!(events.contains("piece-refused"), "{events}");
    drop(daemon);
    let kept = fs::read_dir(world.state().join("pieces/default")).unwrap();
    let kept: Vec<_> = kept.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(kept, ["two.json"], "what was refused is not on the disk");
}

#[test]
fn a_piece_of_the_same_name_is_replaced() {
    let world = cabled();
    let _daemon = world.keep(DOCUMENT);
    world.converges();
    world.put("web", WEB).exits(0);
    world.put("web", &WEB.replace("10.9.", "10.8.")).exits(0);
    assert!(world.has_piece_route("10.8.0.0/16") && !world.has_piece_route(ROUTE));
    let refused = world.put("web", "routes = 1\n").exits(1);
    assert!(refused.stderr.contains("piece web:1:10"), "{}", refused.stderr);
    assert!(world.has_piece_route("10.8.0.0/16"), "the last good one stands");
    world.run("resync").exits(0);
    assert!(world.has_piece_route("10.8.0.0/16"));
}

#[test]
fn an_edit_that_no_longer_fits_a_piece_is_refused_and_names_it() {
    let world = cabled();
    let _daemon = world.keep("[links.va]\nup = true\n");
    world.converges();
    world.put("address", "[links.va]\naddresses = [\"10.0.0.1/24\"]\n").exits(0);
    world.write("host.toml", "[links.va]\nup = true\naddresses = [\"10.0.0.2/24\"]\n");
    let refused = world.run("reload").exits(1);
    assert!(refused.stderr.contains("piece address:2:1"), "{}", refused.stderr);
    assert!(refused.stderr.contains("host.toml:3:1"), "{}", refused.stderr);
    assert!(world.ip("address show va").contains("10.0.0.1/24"));
    world.run("status").exits(2);
    world.run("drop address").exits(0);
    world.run("reload").exits(0);
    assert!(world.ip("address show va").contains("10.0.0.2/24"));
    assert!(!world.ip("address show va").contains("10.0.0.1/24"));
}

#[test]
fn pieces_stay_beside_whatever_document_is_in_force() {
    let world = cabled();
    let _daemon = world.keep(DOCUMENT);
    world.converges();
    world.put("web", WEB).exits(0);
    world.write("other.toml", "[links.va]\naddresses = [\"10.0.0.1/24\", \"10.0.0.2/24\"]\n");
    world.run("apply --yes other.toml").exits(0);
    assert!(world.has_piece_route(ROUTE));
    world.put("more", "[[rules]]\nfrom = \"10.1.0.0/16\"\ntable = 100\npriority = 1000\n").exits(0);
    assert!(world.ip("address show va").contains("10.0.0.2/24"), "the one in force stays in force");
    world.run("reload").exits(0);
    assert!(!world.ip("address show va").contains("10.0.0.2/24"));
    assert!(world.has_piece_route(ROUTE) && world.ip("rule show").contains("10.1.0.0/16"));
}

#[test]
fn without_a_daemon_an_apply_has_the_pieces_too() {
    let world = cabled();
    let daemon = world.keep(DOCUMENT);
    world.converges();
    world.put("web", WEB).exits(0);
    drop(daemon);
    world.ip(&format!("route del {ROUTE}"));
    world.run("verify host.toml").exits(2);
    world.run("apply --yes host.toml").exits(0);
    assert!(world.has_piece_route(ROUTE));
    world.run("uninstall --yes").exits(0);
    assert!(!world.has_piece_route(ROUTE));
    assert!(!world.state().join("pieces/default").exists());
}

#[test]
fn during_a_trial_pieces_wait_and_a_rollback_keeps_those_from_before() {
    let world = cabled();
    let _daemon = world.keep(DOCUMENT);
    world.converges();
    world.put("web", WEB).exits(0);
    world.write("other.toml", "[links.va]\naddresses = [\"10.0.0.1/24\", \"10.0.0.2/24\"]\n");
    let mut trial = world.homeostat("apply --yes --confirm-within 1h other.toml");
    let mut trial = trial.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the trial", || world.status()["trial"]["id"].is_u64());
    until("its address", || world.ip("address show va").contains("10.0.0.2/24"));
    let refused = world.put("more", &WEB.replace("10.9.", "10.8.")).exits(1);
    assert!(refused.stderr.contains("a trial is open"), "{}", refused.stderr);
    world.run("drop web").exits(1);
    world.run("rollback").exits(0);
    trial.wait().unwrap();
    assert!(world.has_piece_route(ROUTE), "it came before the trial");
    assert!(!world.ip("address show va").contains("10.0.0.2/24"));
    world.put("more", &WEB.replace("10.9.", "10.8.")).exits(0);
    assert!(world.has_piece_route("10.8.0.0/16"));
}

#[test]
fn the_history_names_the_pieces_and_is_not_flooded_by_them() {
    let world = cabled();
    let _daemon = world.keep(DOCUMENT);
    world.converges();
    world.confirms(1);
    for number in 1..=30 {
        let text = format!("[[routes]]\nto = \"10.{number}.0.0/16\"\nvia = \"10.0.0.9\"\n");
        world.put(&format!("pod-{number}"), &text).exits(0);
    }
    until("the last piece", || {
        let history = world.history();
        // Each replaces the one before.
        let [last] = &history[..] else { return false };
        last["pieces"].as_array().is_some_and(|pieces| pieces.len() == 30)
    });
    let text = world.run("history").exits(0).stdout;
    assert!(text.contains("with the pieces pod-1, pod-10, "), "{text}");
    world.write("host.toml", format!("{DOCUMENT}up = true\n"));
    world.run("reload").exits(0);
    until("the edit", || world.history().len() == 2);
}

#[test]
fn a_namespace_of_a_piece_is_made_and_goes_with_it() {
    let world = cabled().with_own_names();
    let _daemon = world.keep("[namespaces]\n[links.va]\naddresses = [\"10.0.0.1/24\"]\n[namespaces.keep]\ncreate = true\n");
    world.converges();
    let piece = "[namespaces.ct-1]\ncreate = true\nlinks.lo.addresses = [\"10.7.0.1/32\"]\n\
        routes = [{ to = \"10.8.0.0/16\", type = \"blackhole\" }]\n";
    world.put("ct-1", piece).exits(0);
    let inside = world.ip("-n ct-1 address show lo");
    assert!(inside.contains("10.7.0.1/32"), "{inside}");
    assert!(world.ip("-n ct-1 route show").contains("blackhole 10.8.0.0/16"));
    world.run("drop ct-1").exits(0);
    let spaces = world.ip("netns list");
    assert!(!spaces.contains("ct-1") && spaces.contains("keep"), "{spaces}");
    assert!(world.ip("address show va").contains("10.0.0.1/24"));
}

#[test]
fn what_a_guard_held_before_is_not_let_through_by_a_drop() {
    let world = cabled();
    let route = "[[routes]]\nto = \"10.5.0.0/16\"\nvia = \"10.0.0.9\"\n";
    let _daemon = world.keep(&format!("{DOCUMENT}{route}"));
    world.converges();
    world.put("rule", "[[rules]]\nfrom = \"10.1.0.0/16\"\ntable = 100\npriority = 1000\n").exits(0);
    // As an editor loses a section.
    world.write("host.toml", DOCUMENT);
    world.run("reload").exits(1);
    assert!(world.has_piece_route("10.5.0.0/16"), "its section is missing");
    world.run("drop rule").exits(1);
    assert!(world.has_piece_route("10.5.0.0/16"), "it is held as before");
    assert!(world.ip("rule show").contains("10.1.0.0/16"), "and so is what the piece declared");
    world.run("resync --allow-mass-delete").exits(0);
    assert!(
        !world.has_piece_route("10.5.0.0/16") && !world.ip("rule show").contains("10.1.0.0/16")
    );
}

#[test]
fn what_is_no_name_and_what_is_no_document_is_refused_by_the_command() {
    let world = World::new();
    let long = "x".repeat((1 << 20) + 1);
    world.put("../up", WEB).fails(str![[r#"
error: `../up` is no name of a piece
help: it does not begin with a letter or a digit

"#]]);
    world.put("web", &long).fails(str![[r#"
error: a piece may have 1048576 bytes
help: put long lists of routes into a file for `from-file`, or make several pieces of it

"#]]);
    world.run("put web routes.txt").fails(str![[r#"
error: the name `routes.txt` does not say which format this is
help: a document ends in .toml, .yaml, .yml or .json

"#]]);
}

/// A piece that names a file finds it from wherever the daemon runs.
#[test]
fn a_piece_from_a_file_names_other_files_from_its_own_directory() {
    let world = cabled();
    let _daemon = world.keep(DOCUMENT);
    world.converges();
    world.write("pods/web.toml", "[[routes]]\nfrom-file = \"web.routes\"\n");
    let list = world.write("pods/web.routes", "10.9.0.0/16 via 10.0.0.9\n");
    world.run("put web pods/web.toml").exits(0);
    assert!(world.has_piece_route(ROUTE));
    fs::write(list, "10.8.0.0/16 via 10.0.0.9\n").unwrap();
    world.run("reload").exits(0);
    assert!(world.has_piece_route("10.8.0.0/16") && !world.has_piece_route(ROUTE));
}
