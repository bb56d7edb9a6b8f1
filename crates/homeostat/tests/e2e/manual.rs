//! The manual, as the system's own programs read it.

use std::fs;
use std::path::PathBuf;

use crate::program::command;
use crate::world::World;

/// All pages, written by the program.
fn pages(world: &World) -> Vec<PathBuf> {
    let directory = world.path().join("man");
    fs::create_dir(&directory).unwrap();
    world.run(&format!("man --out {}", directory.display())).exits(0);
    let mut pages: Vec<PathBuf> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    pages
}

/// What programs that render a page have against it.
fn complaints(page: &std::path::Path) -> String {
    let mut groff = command("groff");
    groff.args(["-ww", "-man", "-Tutf8", "-z", "-k"]).arg(page);
    let mut man = command("man");
    man.args(["--warnings", "--encoding=UTF-8", "--local-file"]).arg(page);
    man.env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8");
    let outputs = [groff.output().unwrap(), man.output().unwrap()];
    outputs.map(|output| String::from_utf8(output.stderr).unwrap()).concat()
}

#[test]
fn every_page_is_rendered_without_a_warning() {
    let world = World::new();
    let pages = pages(&world);
    assert!(pages.len() > 30, "{pages:?}");
    for page in &pages {
        assert_eq!(complaints(page), "", "{}", page.display());
    }
    let broken = world.write("broken.1", ".TH x 1\n.SH NAME\nx \\- y\n.nosuchmacro\n");
    assert!(complaints(&broken).contains("nosuchmacro"), "the check bites");
}

#[test]
fn every_page_can_be_indexed() {
    let world = World::new();
    for page in pages(&world) {
        let mut lexgrog = command("lexgrog");
        let output = lexgrog.arg(&page).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains(" - "), "{}: {text}", page.display());
    }
}

#[test]
fn a_page_that_does_not_exist_is_refused_with_those_that_do() {
    let world = World::new();
    assert!(world.run("man fleet sign").exits(0).stdout.contains(".TH homeostat-fleet-sign 1"));
    let refused = world.run("man aply").exits(1).stderr;
    assert!(refused.starts_with("error: there is no manual page `aply`"), "{refused}");
    assert!(refused.contains("homeostat-apply.1"), "{refused}");
}
