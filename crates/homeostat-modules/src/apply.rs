//! The only writer: loads modules one after the other, and looks whether they are there.

use std::io;
use std::process::Output;

use homeostat_core::{Failure, Outcome, Outcomes, Retry, Work};

use crate::key::ModuleName;
use crate::model::State;
use crate::observe::state;
use crate::program;
use crate::source::{Modules, Roots};
use crate::step::Step;

/// Loads modules.
#[derive(Debug)]
pub struct Writer {
    pub(crate) roots: Roots,
}

impl homeostat_core::Writer<Modules> for Writer {
    async fn apply(&self, work: Work<'_, Modules>, out: &dyn Outcomes<State>) {
        for (at, step) in (work.first..).zip(work.steps) {
            let outcome = match step {
                Step::Load { slot } => self.load(&work.desired.at(*slot).0),
                Step::Leave { before, .. } => Outcome::Settled { held: *before },
            };
            out.put(at..at + 1, outcome);
        }
    }
}

impl Writer {
    fn load(&self, name: &ModuleName) -> Outcome<State> {
        let output = match program::load(&self.roots.modprobe, name) {
            Ok(output) => output,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Outcome::Unknown { why: format!("`modprobe {name}`: {error}") };
            }
            Err(error) => return Outcome::Failed(self.not_started(&error)),
        };
        match (output.status.success(), state(&self.roots, name)) {
            (true, Ok(State::Loaded)) => Outcome::Applied { now: Some(State::Loaded) },
            (true, Ok(State::NotLoaded)) => Outcome::Failed(
                Failure::new("modprobe has loaded something of another name", Retry::OnChange)
                    .with_help(format!("it is an alias: `modinfo {name}` shows the module")),
            ),
            (true, Err(error)) => Outcome::Unknown { why: error.to_string() },
            (false, _) => Outcome::Failed(refused(name, &output)),
        }
    }

    fn not_started(&self, error: &io::Error) -> Failure {
        let program = self.roots.modprobe.display();
        Failure::new(format!("`{program}` cannot be started: {error}"), Retry::OnChange)
            .with_help("install kmod, or leave the module out if it is a part of the kernel")
    }
}

/// The words of modprobe, with the way out.
fn refused(name: &ModuleName, output: &Output) -> Failure {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let said = line.trim().trim_start_matches("modprobe: ").trim_start_matches("FATAL: ");
    let said = said.trim_start_matches("ERROR: ");
    let error = if said.is_empty() {
        format!("modprobe ended with {}", output.status)
    } else {
        format!("modprobe: {said}")
    };
    let help = if said.contains("not found") {
        format!(
            "the running kernel has no module `{name}`: install the package of its modules, \
             or leave it out if it is a part of the kernel"
        )
    } else if said.contains("not permitted") || said.contains("Permission denied") {
        "it needs CAP_SYS_MODULE (the drop-in modules.conf of the unit) and `kernel.modules_disabled = 0`"
            .to_owned()
    } else if said.contains("Key was rejected") {
        "Secure Boot accepts signed modules only".to_owned()
    } else {
        "the kernel's log may say more: `dmesg`".to_owned()
    };
    Failure::new(error, Retry::OnChange).with_help(help)
}
