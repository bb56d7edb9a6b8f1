//! Loads a table whole, by one transaction of `nft` itself: for what cannot be carried as bytes.

use std::path::Path;

use homeostat_core::{Action, Failure, Outcome, Retry};
use homeostat_netlink::Port;

use crate::model::Script;
use crate::object::Object;
use crate::program::Running;
use crate::source::Nft;
use crate::step::Step;

pub(super) fn load(source: &Nft, step: &Step, script: &Script) -> Outcome<Object> {
    let text = format!("{}{}", clearing(step, script), script.text);
    let ran = source.run(|| {
        let arguments = ["-f", "-"].map(std::ffi::OsStr::new);
        let running = Running::start(&script.program, Path::new("/"), &arguments)?;
        // The kernel names the socket of a process by its number, and its commit is ours.
        source.ours.add_child(Port(running.id()));
        running.finish(&text)
    });
    let ran = match ran {
        Ok(Ok(ran)) => ran,
        Ok(Err(error)) => return failed(&error, "`nft` cannot be started"),
        Err(error) => return failed(&error, "`nft` cannot be started"),
    };
    if ran.status.success() {
        return Outcome::Applied { now: None };
    }
    let words = String::from_utf8_lossy(&ran.stderr);
    let words = words.lines().next().unwrap_or("refused without a word");
    Outcome::Failed(Failure::new(format!("{}: {words}", step.key), Retry::Soon))
}

/// What takes the former table away, by its number: one that took its name meanwhile is somebody else's.
/// Where there was none, there must be none: `create table` is refused then.
///
/// Quirk `create-makes-only-the-table` (nft 1.0.6): of a block after `create table` only flags and comment
/// are made, and nobody can add the comment later.
fn clearing(step: &Step, script: &Script) -> String {
    match &step.seen {
        Some(seen) if step.action != Action::Create => {
            format!("delete table {} handle {}\n", step.key.family, seen.handle.0)
        }
        _ => {
            let head: Vec<&str> = script.text.lines().take(2).collect();
            format!("create {}\n}}\n", head.join("\n"))
        }
    }
}

fn failed(error: &(dyn std::error::Error + 'static), what: &str) -> Outcome<Object> {
    let failure = Failure::from_error(error, Retry::Soon);
    Outcome::Failed(Failure { error: format!("{what}: {}", failure.error), ..failure })
}
