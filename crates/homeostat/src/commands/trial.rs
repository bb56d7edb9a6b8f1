//! Trials: `homeostat confirm`, and `apply --confirm-within` while it waits for the end of its trial.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use homeostat_document::{DEFAULT_OWNER, SHORT_TRIAL, Settings};
use homeostat_engine::{Ledger, SqliteLedger};
use serde_json::{Value, json};

use crate::cli::{Color, ConfirmArgs, Global, RollbackArgs};
use crate::client::{Client, Ended, is_daemon_absent, read, socket_path};
use crate::commands::control::run_passes;
use crate::commands::{holder, left_trial};
use crate::confirmed::{ConfirmedDocuments, absolute};
use crate::context::{Context, STATE_DIR, state_dir};
use crate::failure::helped;
use crate::output::stream;
use crate::wire::{
    ConfirmBy, FORMAT_VERSION, OlderDocument, Request, TrialEnd, TrialStatus, millis,
};

/// How long one request waits for the end of a trial.
const ROUND: Duration = Duration::from_secs(30);
/// How often is looked whether a trial has ended whose holder cannot be asked, and how many times.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: u32 = 600;

/// Confirms the open trial, or lets it go on.
pub(super) fn confirm(args: &ConfirmArgs, global: &Global) -> Result<ExitCode> {
    let request = Request::Confirm {
        extend_ms: args.extend.map(|time| millis(time.get())),
        same_session: args.same_session,
    };
    let socket = socket_path(global);
    if is_daemon_absent(&socket) {
        return Err(no_holder(&socket, global));
    }
    let answer = match Client::connect(&socket).and_then(|client| client.ask(request)) {
        // It was killed a moment ago.
        Err(error) if error.is::<Ended>() => {
            holder::wait_for_end(&socket);
            let confirmed = ConfirmedDocuments::of(&state_dir(global), global.owner_name());
            let is_open = confirmed.open_trial().is_some();
            return Err(if is_open { no_holder(&socket, global) } else { unknown_end() });
        }
        answer => answer?,
    };
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

/// Why there is nothing to confirm or to roll back where no process listens.
fn no_holder(socket: &Path, global: &Global) -> anyhow::Error {
    let confirmed = ConfirmedDocuments::of(&state_dir(global), global.owner_name());
    match confirmed.open_trial() {
        Some(left) => helped(
            format!(
                "the process that held trial {} has ended, so it cannot be confirmed",
                left.record.id
            ),
            "`homeostat rollback` brings back what was before it, and so does the next `homeostat apply` or `run`",
        ),
        None => helped(
            format!("there is no open trial: no daemon listens at {}", socket.display()),
            "`homeostat apply DOC --confirm-within 2m` begins one; if a daemon runs, give the --owner and --state-dir \
             that it was started with",
        ),
    }
}

/// Ends the open trial, or tries an older document.
pub(super) fn roll_back(args: &RollbackArgs, global: Global) -> Result<ExitCode> {
    let socket = socket_path(&global);
    let confirmed = ConfirmedDocuments::of(&state_dir(&global), global.owner_name());
    if !is_daemon_absent(&socket) {
        match roll_back_by(&socket, args, &global) {
            // It was killed a moment ago, and the trial is still to be ended.
            Err(error) if error.is::<Ended>() && confirmed.open_trial().is_some() => {
                holder::wait_for_end(&socket);
            }
            ended => return ended,
        }
    }
    let Some(number) = args.to else {
        return match confirmed.open_trial() {
            Some(_) => end_left(&confirmed, global),
            None => Err(no_holder(&socket, &global)),
        };
    };
    let document = confirmed.load(&confirmed.entry(number)?)?;
    let arguments = holder::arguments(&global);
    let context = Context::enter(global.clone(), &document.settings)?.writing();
    holder::start(&context, arguments)?;
    let code = roll_back_by(&socket, args, &global)?;
    holder::wait_for_end(&context.socket);
    Ok(code)
}

/// Brings back what was before a trial whose holder has ended.
fn end_left(confirmed: &ConfirmedDocuments, global: Global) -> Result<ExitCode> {
    let context = Context::enter(global, &Settings::default())?.writing();
    let ledger: Arc<dyn Ledger> = Arc::new(SqliteLedger::open(&context.caller.state_dir)?);
    left_trial::roll_back(&context, &ledger)?;
    match confirmed.open_trial() {
        None => Ok(ExitCode::SUCCESS),
        Some(open) => Err(helped(
            format!("trial {} is not rolled back: another process works on it", open.record.id),
            "`homeostat history` shows when that has ended",
        )),
    }
}

fn roll_back_by(socket: &Path, args: &RollbackArgs, global: &Global) -> Result<ExitCode> {
    let to = args.to.map(|number| OlderDocument {
        number,
        confirm_within_ms: millis(args.confirm_within.get()),
    });
    let code = run_passes(args.form, global, |ask| Request::Rollback { ask, to })?;
    if to.is_none() {
        return Ok(code);
    }
    follow(&Following {
        socket,
        confirmed: ConfirmedDocuments::of(&state_dir(global), global.owner_name()),
        within_ms: millis(args.confirm_within.get()),
        confirm: confirm_command(&state_dir(global), global.owner_name()),
        color: global.color,
        json: args.form.json,
    })
}

/// Where the end of a trial is learnt, and how it is printed.
pub(super) struct Following<'a> {
    pub(super) socket: &'a Path,
    pub(super) confirmed: ConfirmedDocuments,
    /// The time that was asked for; less is left when the trial has begun.
    pub(super) within_ms: u64,
    /// The command that confirms it.
    pub(super) confirm: String,
    pub(super) color: Color,
    pub(super) json: bool,
}

/// The command that confirms a trial of this owner.
pub(super) fn confirm_command(state_dir: &Path, owner: &str) -> String {
    let mut words = vec!["homeostat confirm".to_owned()];
    if owner != DEFAULT_OWNER {
        words.push(format!("--owner {owner}"));
    }
    if state_dir != Path::new(STATE_DIR) {
        words.push(format!("--state-dir {}", absolute(state_dir).display()));
    }
    words.join(" ")
}

/// Waits for the end of the trial that was just begun. Ending this wait changes nothing about the trial.
pub(super) fn follow(following: &Following<'_>) -> Result<ExitCode> {
    let (id, end) = follow_to_end(following)?;
    let said = if following.json {
        json!({ "format_version": FORMAT_VERSION, "trial": id, "ended": end }).to_string()
    } else {
        end.to_string()
    };
    stream::print(following.color, |to| writeln!(to, "{said}"))?;
    Ok(match end {
        TrialEnd::Confirmed { .. } => ExitCode::SUCCESS,
        TrialEnd::RolledBack(_) => ExitCode::FAILURE,
    })
}

fn follow_to_end(following: &Following<'_>) -> Result<(u64, TrialEnd)> {
    let (mut id, mut wait_ms) = (0, 0);
    loop {
        let asked = Client::connect(following.socket)
            .and_then(|client| client.ask(Request::Trial { id, wait_ms }));
        // The holder has ended, or died: what it left on the disk says how the trial ended.
        let Ok(answer) = asked else { return recorded_end(&following.confirmed, id) };
        let Some(trial) = answer.get("trial").filter(|trial| !trial.is_null()) else {
            let last = answer.pointer("/last/id").and_then(Value::as_u64);
            let end = ended(&answer)?.ok_or_else(unknown_end)?;
            // It was over before it could be announced.
            if id == 0 && matches!(end, TrialEnd::RolledBack(_)) {
                warn_of_short_time(following)?;
            }
            return Ok((last.unwrap_or(id), end));
        };
        let trial: TrialStatus = read(trial.clone())?;
        if id == 0 {
            announce(&trial, following)?;
        } else if id != trial.id {
            return recorded_end(&following.confirmed, id);
        }
        (id, wait_ms) = (trial.id, millis(ROUND));
    }
}

fn announce(trial: &TrialStatus, following: &Following<'_>) -> Result<()> {
    let mut to = stream::stderr(following.color);
    match trial.confirm_by {
        ConfirmBy::Person => {}
        ConfirmBy::Passes | ConfirmBy::Node => return Ok(()),
        ConfirmBy::Checks => {
            let (id, left) = (trial.id, seconds(trial.left_ms));
            let line = "unless its checks are good three times in a row";
            writeln!(to, "Trial {id}: {line} within {left}, what was before it comes back.")?;
            return Ok(());
        }
    }
    writeln!(
        to,
        "Trial {}: unless it is confirmed within {}, what was before it comes back. Confirm from a new session: {}",
        trial.id,
        seconds(trial.left_ms),
        following.confirm
    )?;
    warn_of_short_time(following)
}

fn warn_of_short_time(following: &Following<'_>) -> Result<()> {
    if following.within_ms < millis(SHORT_TRIAL) {
        let mut to = stream::stderr(following.color);
        writeln!(to, "warning: this is little time to open a new session")?;
    }
    Ok(())
}

/// How a trial ended whose holder cannot be asked. Who watches the holder, or takes the lock next, ends the trial.
fn recorded_end(confirmed: &ConfirmedDocuments, id: u64) -> Result<(u64, TrialEnd)> {
    for _ in 0..LOOKS {
        match confirmed.open_trial() {
            Some(open) if id == 0 || open.record.id == id => std::thread::sleep(LOOK),
            _ => break,
        }
    }
    let rolled_back = confirmed.rolled_back().into_iter().rev();
    let mut rolled_back = rolled_back.map(|ended| (ended.trial.record.id, ended.end));
    if let Some((id, end)) = rolled_back.find(|(ended, _)| id == 0 || *ended == id) {
        return Ok((id, TrialEnd::RolledBack(end)));
    }
    let newest = confirmed.entries()?.pop().filter(|_| confirmed.open_trial().is_none());
    let newest = newest.ok_or_else(unknown_end)?;
    let by = newest.confirmer().to_string();
    Ok((id, TrialEnd::Confirmed { number: newest.number, by }))
}

fn unknown_end() -> anyhow::Error {
    helped(
        "the process that held the trial cannot be asked how it ended",
        "`homeostat history` shows whether it was confirmed; the next `homeostat apply` or `run` ends one that is left",
    )
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
