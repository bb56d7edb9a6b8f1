//! `cargo xtask bench`: builds and runs the benchmark crate, which prints and writes the results.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::run::Program;
use crate::setup;

/// Installs what is compared with, and runs the benchmarks with `arguments`.
pub(crate) fn bench(mut arguments: Vec<String>) -> Result<()> {
    if !arguments.iter().any(|word| word == "--list") {
        setup::setup_bench();
        // Some groups are about the program itself, which must stand beside the benchmarks.
        Program::cargo(&["build", "--release", "--locked", "--package", "homeostat"]).run()?;
    }
    let against = arguments.iter().position(|word| word == "--against");
    if let Some(path) = against.and_then(|at| arguments.get_mut(at + 1)) {
        *path = other_build(Path::new(path))?.display().to_string();
    }
    program(&arguments).run()
}

/// The benchmark program at `path`, which is built first if `path` is a checkout.
fn other_build(path: &Path) -> Result<PathBuf> {
    let path = path.canonicalize().with_context(|| format!("no {}", path.display()))?;
    if path.is_file() {
        return Ok(path);
    }
    // Its own directory: both builds would write to one that the environment names.
    let build = ["build", "--release", "--locked", "--target-dir", "target"];
    let packages = ["--package", "homeostat", "--package", "homeostat-bench"];
    Program::cargo(&[&build[..], &packages].concat()).within(&path).run()?;
    Ok(path.join("target/release/homeostat-bench"))
}

fn program(arguments: &[String]) -> Program {
    Program::cargo(&["run", "--release", "--locked", "--package", "homeostat-bench"])
        .arguments_after("--", arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_reach_the_benchmarks() {
        let typed = "cargo run --release --locked --package homeostat-bench -- --quick diff";
        assert_eq!(program(&["--quick".to_owned(), "diff".to_owned()]).to_string(), typed);
    }
}
