//! Loads a table whole, by one transaction of `nft` itself: for what cannot be carried as bytes.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::Output;

use homeostat_core::{Action, Failure, Outcome, Retry};
use homeostat_netlink::Port;

use crate::aside::aside;
use crate::key::Key;
use crate::model::Script;
use crate::object::Object;
use crate::program::Running;
use crate::source::Nft;
use crate::step::Step;

pub(super) async fn load(source: &Nft, step: &Step, script: &Script) -> Outcome<Object> {
    let text = format!("{}{}", clearing(step, script), script.text);
    let (source, program) = (source.clone(), script.program.clone());
    match aside(move || source.run(|| run(&source, &program, &text))).await {
        Ok(Ok(ran)) => outcome(&step.key, ran),
        Ok(Err(error)) => failed(&error),
        Err(error) => failed(&error),
    }
}

fn outcome(key: &Key, ran: io::Result<Output>) -> Outcome<Object> {
    let ran = match ran {
        Ok(ran) => ran,
        // Whether it had committed by then, the next look tells.
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            return Outcome::Unknown { why: format!("`nft` was stopped: {error}") };
        }
        Err(error) => return failed(&error),
    };
    if ran.status.success() {
        return Outcome::Applied { now: None };
    }
    let words = String::from_utf8_lossy(&ran.stderr);
    let words = words.lines().next().unwrap_or("refused without a word");
    Outcome::Failed(Failure::new(format!("{key}: {words}"), Retry::Soon))
}

fn run(source: &Nft, program: &OsStr, text: &str) -> io::Result<Output> {
    let running = Running::start(program, Path::new("/"), &["-f", "-"].map(OsStr::new))?;
    // The kernel names the socket of a process by its number, and its commit is ours.
    source.ours.add_child(Port(running.id()));
    running.finish(text)
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

fn failed(error: &(dyn std::error::Error + 'static)) -> Outcome<Object> {
    let failure = Failure::from_error(error, Retry::Soon);
    let error = format!("`nft` cannot be started: {}", failure.error);
    Outcome::Failed(Failure { error, ..failure })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_stopped_may_have_done_it() {
        let key: Key = "table ip a".parse().unwrap();
        let late = io::Error::new(ErrorKind::TimedOut, "it did not end within 60s");
        let Outcome::Unknown { why } = outcome(&key, Err(late)) else { panic!("unknown") };
        assert_eq!(why, "`nft` was stopped: it did not end within 60s");
        let gone = outcome(&key, Err(io::Error::from(ErrorKind::NotFound)));
        let Outcome::Failed(failure) = gone else { panic!("failed") };
        assert!(failure.error.starts_with("`nft` cannot be started: "), "{}", failure.error);
    }
}
