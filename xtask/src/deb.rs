//! `cargo xtask deb`: the Debian package, of the program as it is published, and the list of what it is made of.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use homeostat_packaging::{Compression, Recipe};

use crate::run::{Program, root, target_directory};
use crate::tools::Tool;
use crate::{console, setup};

/// The compiler of what is published: another one makes another program of the same sources. It is not pinned by a
/// `rust-toolchain.toml`, by which rustup would download it even if it is here under the name `stable`.
const RUSTC: &str = "1.95.0";

/// Puts the list of all crates and their versions into the program, where scanners look for it.
const AUDITABLE: Tool = Tool { name: "cargo-auditable", version: "0.7.7" };
const SECTION: &[u8] = b".dep-v0\0";

/// Writes the same list as a file.
const CYCLONEDX: Tool = Tool { name: "cargo-cyclonedx", version: "0.5.9" };

/// Copies the files that git has of this tree, as they are now.
const COPY: &str = "git ls-files -z | xargs -0 cp --parents --target-directory";

/// Builds the package; with `twice`, again in another directory, and compares.
pub(crate) fn deb(twice: bool) -> Result<()> {
    let compiler = Program::new("rustc", &["--version"]).read()?;
    if !is_pinned(&compiler) {
        bail!(
            "packages are built by rustc {RUSTC}, and this is {}\nhelp: `rustup toolchain install {RUSTC}`, then set RUSTUP_TOOLCHAIN={RUSTC}",
            compiler.trim()
        );
    }
    let target = target_directory()?;
    let package = build(&root(), &target)?;
    lint(&package)?;
    let again = target.join("deb-again");
    let sources = copy_sources(&again)?;
    let list = list_parts(&sources, &target)?;
    if twice {
        let other = build(&sources, &again.join("target"))?;
        if fs::read(&package)? != fs::read(&other)? {
            bail!(
                "two builds differ\nhelp: `diffoscope {} {}` shows where",
                package.display(),
                other.display()
            );
        }
        console::note("built twice in two directories: byte for byte the same");
    }
    fs::remove_dir_all(&again).context("cannot remove the copy")?;
    console::data(&package.display().to_string());
    console::data(&list.display().to_string());
    Ok(())
}

/// The tree as it is now, in a directory that is made anew.
fn copy_sources(again: &Path) -> Result<PathBuf> {
    if again.exists() {
        fs::remove_dir_all(again).context("cannot remove the former copy")?;
    }
    let sources = again.join("sources");
    fs::create_dir_all(&sources).context("cannot make the directory of the copy")?;
    let copy = format!("{COPY} \"$1\"");
    Program::new("sh", &["-euc", &copy, "copy", &sources.display().to_string()]).run()?;
    Ok(sources)
}

/// What the program is made of, in the format of CycloneDX. It is written beside each manifest, so the sources are a copy.
fn list_parts(sources: &Path, target: &Path) -> Result<PathBuf> {
    let lister = CYCLONEDX.binary()?.display().to_string();
    // Without a time and a number of its own, so that it is the same for the same sources.
    let arguments =
        ["cyclonedx", "--format", "json", "--manifest-path", "crates/homeostat/Cargo.toml"];
    Program::new(&lister, &arguments).env("SOURCE_DATE_EPOCH", "0").within(sources).run()?;
    let list = target.join("deb/homeostat.cdx.json");
    let written = sources.join("crates/homeostat/homeostat.cdx.json");
    fs::copy(&written, &list).with_context(|| format!("no {}", written.display()))?;
    Ok(list)
}

fn is_pinned(version: &str) -> bool {
    version.split(' ').nth(1) == Some(RUSTC)
}

fn build(sources: &Path, target: &Path) -> Result<PathBuf> {
    compile(&AUDITABLE.binary()?, sources, target).run()?;
    let recipe = Recipe::read(sources).context("cannot read what the package has")?;
    let binary = target.join("dist/homeostat");
    if !fs::read(&binary)?.windows(SECTION.len()).any(|part| part == SECTION) {
        bail!("{} does not say what it is made of", binary.display());
    }
    let package = recipe.build(&binary, &target.join("deb"), Compression::Best);
    package.context("cannot build the package")
}

/// No path of this machine gets into the program, so that it is the same wherever it is built.
fn compile(auditable: &Path, sources: &Path, target: &Path) -> Program {
    let home = std::env::var("CARGO_HOME").unwrap_or_else(|_| {
        format!("{}/.cargo", std::env::var("HOME").unwrap_or_else(|_| "/root".to_owned()))
    });
    let paths = [(sources.display().to_string(), "/homeostat"), (home, "/cargo")];
    let rust = paths.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
    let c = paths.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}"));
    let target = target.display().to_string();
    let options = ["auditable", "build", "--profile", "dist", "--locked", "--package", "homeostat"];
    let auditable = auditable.display().to_string();
    Program::new(&auditable, &[&options[..], &["--target-dir", &target]].concat())
        .env("RUSTFLAGS", rust.collect::<Vec<_>>().join(" "))
        .env("CFLAGS", c.collect::<Vec<_>>().join(" "))
        .within(sources)
}

/// Lets Debian's own judge look at it.
fn lint(package: &Path) -> Result<()> {
    setup::setup_deb()?;
    let package = package.display().to_string();
    Program::new("lintian", &["--fail-on", "error,warning", "--allow-root", &package]).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_compiler_is_not_taken() {
        assert!(is_pinned("rustc 1.95.0 (59807616e 2026-04-14)\n"));
        assert!(!is_pinned("rustc 1.95.1 (59807616e 2026-04-14)\n"));
        assert!(!is_pinned("rustc 1.95.0-nightly (59807616e 2026-04-14)\n"));
    }

    #[test]
    fn the_program_names_no_path_of_the_machine_that_builds_it() {
        let tool = Path::new("/t/cargo-auditable");
        let typed = compile(tool, Path::new("/w/s"), Path::new("/w/t")).to_string();
        for part in [
            "--remap-path-prefix=/w/s=/homeostat",
            "-ffile-prefix-map=/w/s=/homeostat",
            " /t/cargo-auditable auditable build --profile dist --locked --package homeostat --target-dir /w/t",
        ] {
            assert!(typed.contains(part), "{typed}");
        }
    }
}
