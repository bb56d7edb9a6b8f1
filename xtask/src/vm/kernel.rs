//! Debian's stock kernel: downloaded, unpacked and kept in the target directory, never installed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::run::Program;
use crate::{console, setup};

/// The package that depends on the current kernel.
const NEWEST: &str = "linux-image-amd64";

#[derive(Debug)]
pub(crate) struct Kernel {
    /// The compressed image.
    pub(crate) image: PathBuf,
    /// The directory of its modules.
    pub(crate) modules: PathBuf,
    /// As of `uname -r`.
    pub(crate) release: String,
}

/// The kernel below `directory`; fetched if there is none yet.
pub(crate) fn ready(directory: &Path) -> Result<Kernel> {
    let tree = directory.join("kernel");
    if !tree.exists() {
        let help = "help: run `apt-get update` as root, and look for the network";
        fetch(directory, &tree).with_context(|| format!("cannot fetch a kernel\n{help}"))?;
    }
    find(&tree)
}

/// Unpacks into a temporary directory and renames it, so that an existing tree is complete.
fn fetch(directory: &Path, tree: &Path) -> Result<()> {
    setup::update_lists()?;
    let depends = Program::new("apt-cache", &["depends", NEWEST]).read()?;
    let package = real_package(&depends)?;
    console::note(&format!("fetching {package} (about 70 MB, once)"));
    let part = directory.join("kernel.part");
    if part.exists() {
        fs::remove_dir_all(&part)?;
    }
    fs::create_dir_all(&part)?;
    download(package).within(&part).run()?;
    unpack(&part)?;
    fs::rename(part.join("tree"), tree)?;
    Ok(fs::remove_dir_all(&part)?)
}

/// The package with the kernel, from the output of `apt-cache depends`.
fn real_package(depends: &str) -> Result<&str> {
    let mut lines = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let package = lines.find(|package| package.starts_with("linux-image-"));
    package.with_context(|| format!("package {NEWEST} names no kernel"))
}

/// As root: apt warns if its own user cannot write to the directory.
fn download(package: &str) -> Program {
    Program::new("apt-get", &["download", "-q", "-o", "APT::Sandbox::User=root", package])
}

fn unpack(part: &Path) -> Result<()> {
    let package = only_file(part, ".deb")?.display().to_string();
    Program::new("dpkg-deb", &["-x", &package, "tree"]).within(part).run()?;
    let release = find(&part.join("tree"))?.release;
    let depmod = setup::find("depmod").context("there is no `depmod`")?.display().to_string();
    // An installation would do this: `modprobe` needs the list of dependencies.
    Program::new(&depmod, &["-b", "tree", &release]).within(part).run()
}

fn find(tree: &Path) -> Result<Kernel> {
    let modules = only_file(&tree.join("lib/modules"), "")?;
    let release = modules.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let image = tree.join(format!("boot/vmlinuz-{release}"));
    if !image.is_file() {
        bail!("there is no {}\nhelp: remove {} and try again", image.display(), tree.display());
    }
    Ok(Kernel { image, modules, release })
}

/// The only entry of a directory with this ending.
fn only_file(directory: &Path, ending: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(directory);
    let entries = entries.with_context(|| format!("cannot list {}", directory.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found = paths.filter(|path| path.to_string_lossy().ends_with(ending));
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        _ => bail!("{} holds not exactly one kernel", directory.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_package_is_the_one_that_the_newest_depends_on() {
        let depends = "linux-image-amd64\n  Depends: linux-image-6.1.0-40-amd64\n";
        assert_eq!(real_package(depends).unwrap(), "linux-image-6.1.0-40-amd64");
        let error = real_package("linux-image-amd64\n").unwrap_err();
        assert_eq!(error.to_string(), "package linux-image-amd64 names no kernel");
    }
}
