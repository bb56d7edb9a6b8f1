//! Tools from crates.io, built at one version into target/tools, once for each target directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::console;
use crate::run::{Program, target_directory};

/// A subcommand of cargo: the package and its program have one name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl Tool {
    /// Its program, which is built first where this version is missing. That takes a minute or two.
    pub(crate) fn binary(self) -> Result<PathBuf> {
        let Tool { name, version } = self;
        let tools = target_directory()?.join("tools");
        let root = tools.join(format!("{name}-{version}"));
        let binary = self.installed_at(&root);
        if !binary.is_file() {
            console::note(&format!("installing {name} {version} into {}", root.display()));
            let build = tools.join("build");
            self.install(&root, &build).run()?;
            fs::remove_dir_all(&build).context("cannot remove what the build left over")?;
        }
        Ok(binary)
    }

    pub(crate) fn installed_at(self, root: &Path) -> PathBuf {
        root.join("bin").join(self.name)
    }

    /// Unoptimized: they run for seconds either way, and the build takes a third of the time.
    fn install(self, root: &Path, build: &Path) -> Program {
        let version = format!("={}", self.version);
        let [root, build] = [root, build].map(|path| path.display().to_string());
        Program::cargo(
            &[
                &["install", self.name, "--version", &version, "--locked", "--debug"][..],
                &["--root", &root, "--target-dir", &build],
            ]
            .concat(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_version_is_installed() {
        let tool = Tool { name: "cargo-x", version: "0.20.2" };
        let root = Path::new("/t/tools/x");
        let typed = "cargo install cargo-x --version =0.20.2 --locked --debug --root /t/tools/x \
                     --target-dir /t/tools/build";
        assert_eq!(tool.install(root, Path::new("/t/tools/build")).to_string(), typed);
        assert_eq!(tool.installed_at(root), Path::new("/t/tools/x/bin/cargo-x"));
    }
}
