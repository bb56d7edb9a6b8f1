//! `cargo xtask deny`: licences, bans and sources of all dependencies, checked by cargo-deny after `deny.toml`.
//!
//! cargo-deny is built from crates.io at one version, once for each target directory. That takes about two
//! minutes, so this is a step of `cargo xtask soak` and not of `cargo xtask test`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::console;
use crate::run::{Program, target_directory};

const VERSION: &str = "0.20.2";

/// Runs cargo-deny; installs it first where this version is missing.
pub(crate) fn deny() -> Result<()> {
    let tools = target_directory()?.join("tools");
    let root = tools.join(format!("cargo-deny-{VERSION}"));
    let binary = installed_at(&root);
    if !binary.is_file() {
        console::note(&format!("installing cargo-deny {VERSION} into {}", root.display()));
        let build = tools.join("build");
        install(&root, &build).run()?;
        fs::remove_dir_all(&build).context("cannot remove what the build left over")?;
    }
    check(&binary).run()
}

fn installed_at(root: &Path) -> PathBuf {
    root.join("bin/cargo-deny")
}

/// Unoptimized: the check takes seconds either way, and the build a third of the time.
fn install(root: &Path, build: &Path) -> Program {
    let version = format!("={VERSION}");
    let [root, build] = [root, build].map(|path| path.display().to_string());
    Program::cargo(
        &[
            &["install", "cargo-deny", "--version", &version, "--locked", "--debug"][..],
            &["--root", &root, "--target-dir", &build],
        ]
        .concat(),
    )
}

/// Not the advisories: they need a database from the network, and fail without any change of ours.
fn check(binary: &Path) -> Program {
    let binary = binary.display().to_string();
    Program::new(&binary, &["--locked", "check", "licenses", "bans", "sources"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_version_is_installed_and_everything_but_advisories_is_checked() {
        let root = Path::new("/t/tools/x");
        let typed = "cargo install cargo-deny --version =0.20.2 --locked --debug --root /t/tools/x \
                     --target-dir /t/tools/build";
        assert_eq!(install(root, Path::new("/t/tools/build")).to_string(), typed);
        let typed = "/t/tools/x/bin/cargo-deny --locked check licenses bans sources";
        assert_eq!(check(&installed_at(root)).to_string(), typed);
    }
}
