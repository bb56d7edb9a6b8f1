//! The workspace's own tasks: `cargo xtask <setup|test|soak|vm|bench|deny|tidy>`.
//!
//! Start at [`start`]: each task is one module.

mod args;
mod bench;
mod clock;
mod console;
mod deny;
mod run;
mod setup;
mod soak;
mod steps;
mod test;
mod tidy;
mod vm;

use std::process::ExitCode;

use anyhow::Result;

use args::{Request, Task};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match args::parse(&words) {
        Ok(Request::Help(text)) => {
            console::data(text);
            ExitCode::SUCCESS
        }
        Ok(Request::Run(task)) => exit_code(&start(task)),
        Err(mistake) => {
            console::note(&format!("error: {mistake}\n\n{}", args::OVERVIEW));
            ExitCode::from(2)
        }
    }
}

fn start(task: Task) -> Result<()> {
    match task {
        Task::Setup => setup::setup(),
        Task::Test(choice) => test::test(&choice),
        Task::Soak(length, filters) => soak::soak(length, &filters),
        Task::Vm(order) => vm::vm(&order),
        Task::Bench(arguments) => bench::bench(&arguments),
        Task::Deny => deny::deny(),
        Task::Tidy => tidy::tidy(),
        Task::SizeReport => tidy::report(),
    }
}

fn exit_code(ended: &Result<()>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
