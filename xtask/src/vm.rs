//! `cargo xtask vm`: runs the kernel tests on a second kernel, in an emulated machine.
//!
//! Debian's stock kernel is older than most and has every module, so that it shows what the kernel
//! of this machine cannot. Start at [`vm`].

mod boot;
mod cpio;
mod image;
mod kernel;
mod modules;
mod programs;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::run::Program;
use crate::{clock, console, setup};
use boot::Machine;
use image::Contents;
use kernel::Kernel;
pub(crate) use programs::{Chosen, Profile};
use verdict::{Shown, Verdict};

/// What to run in the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    /// Which test programs.
    pub(crate) chosen: Chosen,
    /// How they are built.
    pub(crate) profile: Profile,
    /// What each of them is told, such as the names of tests.
    pub(crate) arguments: Vec<String>,
}

impl Order {
    /// What `cargo xtask test` runs.
    pub(crate) fn short() -> Self {
        Self { chosen: Chosen::Short, profile: Profile::Test, arguments: vec![] }
    }

    /// What `cargo xtask soak` runs.
    pub(crate) fn soak() -> Self {
        Self { chosen: Chosen::All, profile: Profile::Soak, arguments: vec![] }
    }
}

/// Runs the tests; fails if one does, or if the machine does not come to its end.
pub(crate) fn vm(order: &Order) -> Result<()> {
    run(&prepare()?, order)
}

/// The same, but a machine that cannot be had here is said aloud and is no failure: whoever may not
/// install packages can still check everything else.
pub(crate) fn vm_if_possible(order: &Order) -> Result<()> {
    match prepare() {
        Ok(ground) => run(&ground, order),
        Err(error) => {
            console::note(&format!("warning: the second kernel was LEFT OUT: {error:#}"));
            Ok(())
        }
    }
}

/// What a run needs beside the tests.
struct Ground {
    kernel: Kernel,
    directory: PathBuf,
}

fn prepare() -> Result<Ground> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("the tests are built for {}, the machine is x86_64", std::env::consts::ARCH);
    }
    setup::setup_vm()?;
    let directory = target_directory()?.join("vm");
    fs::create_dir_all(&directory).context("cannot make the machine's directory")?;
    Ok(Ground { kernel: kernel::ready(&directory)?, directory })
}

/// Cargo knows it, whether it comes from the environment or from a configuration file.
fn target_directory() -> Result<PathBuf> {
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--locked"];
    let metadata: Value = serde_json::from_str(&Program::cargo(&arguments).read()?)
        .context("cargo metadata is not JSON")?;
    let directory = metadata.get("target_directory").and_then(Value::as_str);
    Ok(directory.context("cargo metadata names no target directory")?.into())
}

fn run(ground: &Ground, order: &Order) -> Result<()> {
    let tests = programs::build(&order.chosen, order.profile)?;
    if order.chosen == Chosen::All {
        programs::left_out().for_each(|line| console::note(&line));
    }
    let [image, console] = ["image.cpio", "console.log"].map(|name| ground.directory.join(name));
    let contents = Contents { kernel: &ground.kernel, tests: &tests, arguments: &order.arguments };
    image::write(&image, &contents)?;
    let machine = Machine { kernel: &ground.kernel.image, image: &image, console: &console };
    let verdict = Verdict::on(tests.iter().map(|test| test.name.as_str()));
    judge(&machine, verdict, &console)
}

fn judge(machine: &Machine<'_>, mut verdict: Verdict, console: &Path) -> Result<()> {
    let start = clock::now();
    let ended = boot::boot(machine, &mut |line| show(&verdict.hear(line)))?;
    let problems = verdict.problems(&ended);
    let summary = verdict.summary();
    console::note(&format!("{summary} in {:.1} s", start.elapsed().as_secs_f64()));
    if problems.is_empty() {
        return Ok(());
    }
    console::note(&format!("the end of {}:\n{}", console.display(), boot::last_words(console)));
    bail!("{}", problems.join("\n"))
}

fn show(shown: &Shown<'_>) {
    match shown {
        Shown::Output(line) => console::data(line),
        Shown::Heading(line) => console::note(line),
        Shown::Nothing => {}
    }
}
