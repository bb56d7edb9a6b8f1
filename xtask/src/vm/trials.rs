//! Trials on a machine whose clock can be set, and whose power can be cut: it is killed with what it had not written to its
//! disks.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::boot::{self, Machine};
use super::image::{self, Contents};
use super::kernel::Kernel;
use super::programs::TestProgram;
use crate::console;
use crate::run::{Ended, Program, target_directory};

/// What runs in both boots.
const SCRIPT: &str = include_str!("trials.sh");

/// The line after which the power is cut, and the one that has to come after the second boot.
const OPEN: &str = "homeostat-vm: trial open";
const CONFIRMED: &str = "homeostat-vm: confirmed document in force";

const DISK_SIZE: u64 = 64 << 20;

pub(crate) fn run(kernel: &Kernel, directory: &Path, profile: Option<&str>) -> Result<()> {
    let program = TestProgram { name: "homeostat".to_owned(), path: build(profile)? };
    let [image, console] = ["trials.cpio", "trials.log"].map(|name| directory.join(name));
    let tests = [program];
    image::write(&image, &Contents { kernel, tests: &tests, homeostat: None, script: SCRIPT })?;
    let disks = [format(&directory.join("documents.img"))?, format(&directory.join("state.img"))?];
    let machine =
        Machine { kernel: &kernel.image, image: &image, console: &console, disks: &disks };
    let failed = |line: &str| {
        console::note(&format!(
            "the end of {}:\n{}",
            console.display(),
            boot::console_tail(&console)
        ));
        bail!("`{line}` never came")
    };
    let ended = boot::boot(&machine, &mut |line| {
        console::data(line);
        if line == OPEN { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if ended != Ended::Cut {
        return failed(OPEN);
    }
    let mut is_confirmed = false;
    boot::boot(&machine, &mut |line| {
        console::data(line);
        is_confirmed |= line == CONFIRMED;
        ControlFlow::Continue(())
    })?;
    if is_confirmed { Ok(()) } else { failed(CONFIRMED) }
}

/// Builds the program itself.
fn build(profile: Option<&str>) -> Result<PathBuf> {
    let arguments = ["build", "--locked", "--package", "homeostat"];
    let chosen: Vec<String> = profile.map(str::to_owned).into_iter().collect();
    Program::cargo(&arguments).arguments_after("--profile", &chosen).run()?;
    Ok(target_directory()?.join(profile.unwrap_or("debug")).join("homeostat"))
}

/// An empty disk.
fn format(disk: &Path) -> Result<PathBuf> {
    File::create(disk)?.set_len(DISK_SIZE)?;
    Program::new("mkfs.ext4", &["-q", "-F", &disk.display().to_string()]).run()?;
    Ok(disk.to_path_buf())
}
