//! `cargo xtask vm`: runs the kernel tests on a second kernel, in an emulated machine.
//!
//! Debian's stock kernel is older than most and has every module. Start at [`vm`].

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

use crate::run::target_directory;
use crate::{clock, console, setup};
use boot::Machine;
use image::Contents;
use kernel::Kernel;
pub(crate) use programs::{Chosen, Profile};
use verdict::{Shown, Verdict};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    /// Which test programs.
    pub(crate) chosen: Chosen,
    /// How they are built.
    pub(crate) profile: Profile,
    /// Arguments for each of them, such as names of tests.
    pub(crate) arguments: Vec<String>,
}

impl Order {
    /// For `cargo xtask test`.
    pub(crate) fn short() -> Self {
        Self { chosen: Chosen::Short, profile: Profile::Test, arguments: vec![] }
    }

    /// For `cargo xtask soak`.
    pub(crate) fn soak() -> Self {
        Self { chosen: Chosen::All, profile: Profile::Soak, arguments: vec![] }
    }
}

/// Fails if a test fails, or if the machine does not finish.
pub(crate) fn vm(order: &Order) -> Result<()> {
    run(&prepare()?, order)
}

/// The same, but only warns if the machine cannot be prepared: other checks do not need root.
pub(crate) fn vm_if_possible(order: &Order) -> Result<()> {
    match prepare() {
        Ok(prepared) => run(&prepared, order),
        Err(error) => {
            console::note(&format!("warning: the second kernel was LEFT OUT: {error:#}"));
            Ok(())
        }
    }
}

struct Prepared {
    kernel: Kernel,
    directory: PathBuf,
}

fn prepare() -> Result<Prepared> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("the tests are built for {}, the machine is x86_64", std::env::consts::ARCH);
    }
    setup::setup_vm()?;
    let directory = target_directory()?.join("vm");
    fs::create_dir_all(&directory).context("cannot make the machine's directory")?;
    Ok(Prepared { kernel: kernel::ready(&directory)?, directory })
}

fn run(prepared: &Prepared, order: &Order) -> Result<()> {
    let tests = programs::build(&order.chosen, order.profile)?;
    if order.chosen == Chosen::All {
        programs::left_out().for_each(|line| console::note(&line));
    }
    let [image, console] = ["image.cpio", "console.log"].map(|name| prepared.directory.join(name));
    let contents =
        Contents { kernel: &prepared.kernel, tests: &tests, arguments: &order.arguments };
    image::write(&image, &contents)?;
    let machine = Machine { kernel: &prepared.kernel.image, image: &image, console: &console };
    let verdict = Verdict::on(tests.iter().map(|test| test.name.as_str()));
    judge(&machine, verdict, &console)
}

fn judge(machine: &Machine<'_>, mut verdict: Verdict, console: &Path) -> Result<()> {
    let start = clock::now();
    let ended = boot::boot(machine, &mut |line| show(&verdict.take(line)))?;
    let problems = verdict.problems(&ended);
    let summary = verdict.summary();
    console::note(&format!("{summary} in {:.1} s", start.elapsed().as_secs_f64()));
    if problems.is_empty() {
        return Ok(());
    }
    console::note(&format!("the end of {}:\n{}", console.display(), boot::console_tail(console)));
    bail!("{}", problems.join("\n"))
}

fn show(shown: &Shown<'_>) {
    match shown {
        Shown::Output(line) => console::data(line),
        Shown::Heading(line) => console::note(line),
        Shown::Nothing => {}
    }
}
