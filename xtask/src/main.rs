//! The workspace's own tasks: `cargo xtask <setup|test|soak|vm|bench|deb|deny|package|tidy>`.
//!
//! Start at [`start`]: each task is one module.

mod args;
mod bench;
mod clock;
mod console;
mod deb;
mod debian;
mod deny;
mod package;
mod run;
mod screenshots;
mod setup;
mod soak;
mod steps;
mod test;
mod tidy;
mod tools;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser as _;

use args::{CommandLine, Task};

fn main() -> ExitCode {
    match start(CommandLine::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn start(task: Task) -> Result<()> {
    match task {
        Task::Setup => setup::setup(),
        Task::Test(choice) => test::test(&choice),
        Task::Soak { times, filters } => soak::soak(times, &filters),
        Task::Vm(order) => vm::vm(&order),
        Task::Bench { arguments } => bench::bench(arguments),
        Task::Screenshots => screenshots::screenshots(),
        Task::Deb { twice } => deb::deb(twice),
        Task::Deny => deny::deny(),
        Task::Package { verify } => package::package(verify),
        Task::Tidy => tidy::tidy(),
    }
}
