//! `cargo xtask vm`: runs the kernel tests on a second kernel, in an emulated machine.
//!
//! Debian's stock kernel is older than most and has every module. Start at [`vm`].

mod boot;
mod cpio;
mod image;
mod kernel;
mod modules;
mod programs;
mod trials;
mod verdict;

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::run::target_directory;
use crate::{clock, console, setup};
use boot::Machine;
use image::Contents;
use kernel::Kernel;
use programs::SHORT;
use verdict::{Shown, Verdict};

/// Which test programs run, and how.
#[derive(Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct Order {
    /// Run only the test programs whose `package/target` names contain one of these words
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Run a few of them: about a minute
    #[arg(long, conflicts_with = "names")]
    pub(crate) short: bool,
    /// Instead of test programs, run trials: the clock is set back, the power is cut
    #[arg(long, conflicts_with_all = ["names", "short", "arguments"])]
    pub(crate) trials: bool,
    /// For each test program, such as parts of the names of tests
    #[arg(value_name = "ARGUMENTS", last = true)]
    pub(crate) arguments: Vec<String>,
    /// How cargo builds them; as `cargo test` does, unless a profile is named.
    #[arg(skip)]
    pub(crate) profile: Option<&'static str>,
}

impl Order {
    /// For `cargo xtask test`.
    pub(crate) fn short() -> Self {
        Self { short: true, ..Self::default() }
    }

    /// For `cargo xtask soak`.
    pub(crate) fn soak() -> Self {
        Self { profile: Some("soak"), ..Self::default() }
    }

    /// The same.
    pub(crate) fn soak_trials() -> Self {
        Self { trials: true, ..Self::soak() }
    }
}

/// Fails if a test fails, or if the machine does not finish.
pub(crate) fn vm(order: &Order) -> Result<()> {
    let (kernel, directory) = prepare()?;
    run(&kernel, &directory, order)
}

/// The kernel, and the directory for what a run makes.
fn prepare() -> Result<(Kernel, PathBuf)> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("the tests are built for {}, the machine is x86_64", std::env::consts::ARCH);
    }
    setup::setup_vm()?;
    let directory = target_directory()?.join("vm");
    fs::create_dir_all(&directory).context("cannot make the machine's directory")?;
    Ok((kernel::ready(&directory)?, directory))
}

fn run(kernel: &Kernel, directory: &Path, order: &Order) -> Result<()> {
    if order.trials {
        return trials::run(kernel, directory, order.profile);
    }
    let names: Vec<&str> = order.names.iter().map(String::as_str).collect();
    let tests = programs::build(if order.short { SHORT } else { &names }, order.profile)?;
    if !order.short && names.is_empty() {
        programs::left_out().for_each(|line| console::note(&line));
    }
    let [image, console] = ["image.cpio", "console.log"].map(|name| directory.join(name));
    let script = image::run_all(&tests, &order.arguments);
    // Cargo builds the programs of a package along with its tests.
    let is_run = tests.iter().any(|test| test.name.starts_with("homeostat/"));
    let homeostat = target_directory()?.join(order.profile.unwrap_or("debug")).join("homeostat");
    let homeostat = is_run.then_some(homeostat.as_path());
    image::write(&image, &Contents { kernel, tests: &tests, homeostat, script: &script })?;
    let machine = Machine { kernel: &kernel.image, image: &image, console: &console, disks: &[] };
    let mut verdict = Verdict::on(tests.iter().map(|test| test.name.as_str()));
    let start = clock::now();
    let ended = boot::boot(&machine, &mut |line| {
        show(&verdict.take(line));
        ControlFlow::Continue(())
    })?;
    let problems = verdict.problems(&ended);
    console::note(&format!("{} in {:.1} s", verdict.summary(), start.elapsed().as_secs_f64()));
    if problems.is_empty() {
        return Ok(());
    }
    console::note(&format!("the end of {}:\n{}", console.display(), boot::console_tail(&console)));
    bail!("{}", problems.join("\n"))
}

fn show(shown: &Shown<'_>) {
    match shown {
        Shown::Output(line) => console::data(line),
        Shown::Heading(line) => console::note(line),
        Shown::Nothing => {}
    }
}
