//! `cargo xtask bench`: builds and runs the benchmark crate, which prints and writes the results.

use anyhow::Result;

use crate::run::Program;
use crate::setup;

/// Installs what is compared with, and runs the benchmarks with `arguments`.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    if !arguments.iter().any(|word| word == "--list") {
        setup::setup_bench();
        // Some groups are about the program itself, which must stand beside the benchmarks.
        daemon().run()?;
    }
    program(arguments).run()
}

fn daemon() -> Program {
    Program::cargo(&["build", "--release", "--locked", "--package", "homeostat"])
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
