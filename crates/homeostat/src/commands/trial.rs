//! Trials: `homeostat confirm`, and `apply --confirm-within` while it waits for the end of its trial.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::cli::{Color, ConfirmArgs, Global, RollbackArgs};
use crate::client::{Client, read, socket_path};
use crate::commands::control::run_passes;
use crate::failure::helped;
use crate::output::stream;
use crate::wire::{OlderDocument, Request, TrialEnd, TrialStatus, millis};

/// How long one request waits for the end of a trial.
const ROUND: Duration = Duration::from_secs(30);
/// A trial that is shorter than this is over before a new session can be opened.
const SHORT: u64 = 15_000;

/// Confirms the open trial, or lets it go on.
pub(super) fn confirm(args: &ConfirmArgs, global: &Global) -> Result<ExitCode> {
    let request = Request::Confirm {
        extend_ms: args.extend.map(|time| millis(time.get())),
        same_session: args.same_session,
    };
    let answer = Client::connect(&socket_path(global))?.ask(request)?;
    let said = match answer.get("trial").filter(|trial| !trial.is_null()) {
        _ if args.json => answer.to_string(),
        Some(trial) => {
            let trial: TrialStatus = read(trial.clone())?;
            format!("Trial {} goes on for {}.", trial.id, seconds(trial.left_ms))
        }
        None => ended(&answer)?.map(|end| end.to_string()).unwrap_or_default(),
    };
    stream::print(global.color, |to| writeln!(to, "{said}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Ends the open trial, or tries an older document.
pub(super) fn roll_back(args: &RollbackArgs, global: &Global) -> Result<ExitCode> {
    let to = args.to.map(|number| OlderDocument {
        number,
        confirm_within_ms: millis(args.confirm_within.get()),
    });
    let code = run_passes(args.form, global, |ask| Request::Rollback { ask, to })?;
    if to.is_some() { follow(&socket_path(global), global.color) } else { Ok(code) }
}

/// Waits for the end of the trial that was just begun. Whoever ends this wait changes nothing about the trial.
pub(super) fn follow(socket: &Path, color: Color) -> Result<ExitCode> {
    let ask = |request| Client::connect(socket)?.ask(request);
    let mut answer = ask(Request::Trial { id: 0, wait_ms: 0 })?;
    let mut id = None;
    while let Some(trial) = answer.get("trial").filter(|trial| !trial.is_null()) {
        let trial: TrialStatus = read(trial.clone())?;
        if id.is_none() {
            let mut to = stream::stderr(color);
            writeln!(
                to,
                "Trial {}: unless it is confirmed within {}, the document before it comes back. Confirm from a new \
                 session: homeostat confirm",
                trial.id,
                seconds(trial.left_ms)
            )?;
            if trial.left_ms < SHORT {
                writeln!(to, "warning: this is little time to open a new session")?;
            }
        } else if id != Some(trial.id) {
            break;
        }
        id = Some(trial.id);
        answer = ask(Request::Trial { id: trial.id, wait_ms: millis(ROUND) })?;
    }
    let end = ended(&answer)?.ok_or_else(|| {
        helped("the daemon does not know how the trial ended", "`homeostat events` may tell")
    })?;
    stream::print(color, |to| writeln!(to, "{}", end))?;
    Ok(match end {
        TrialEnd::Confirmed { .. } => ExitCode::SUCCESS,
        TrialEnd::RolledBack(_) => ExitCode::FAILURE,
    })
}

fn ended(answer: &Value) -> Result<Option<TrialEnd>> {
    answer.pointer("/last/ended").map(|end| read(end.clone())).transpose()
}

fn seconds(millis: u64) -> String {
    match millis.div_ceil(1000) {
        seconds if seconds % 60 == 0 && seconds > 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}
