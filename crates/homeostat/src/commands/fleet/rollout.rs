//! `fleet pause`, `resume`, `abort` and `history`, and how a rollout is shown.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use homeostat_fleet::Name;
use homeostat_fleet::records::{Phase, Record as _, Request, State, Verb, Why};
use homeostat_store::{Committed, Guard, Transaction};
use serde_json::{Value, json};

use super::args::RolloutArgs;
use super::connection::of_store;
use super::snapshot::{RolloutRecords, Snapshot};
use super::{Call, named};
use crate::failure::helped;
use crate::output::line::plain;
use crate::output::stream;
use crate::wire::FORMAT_VERSION;

/// How often a request is written anew that met another one.
const TRIES: usize = 5;

/// Writes what the operator asks for; the coordinator carries it out.
pub(super) async fn request(args: &RolloutArgs, verb: Verb, call: &Call<'_>) -> Result<ExitCode> {
    let fleet = call.connection.open()?;
    for _ in 0..TRIES {
        let snapshot = Snapshot::read(&fleet).await?;
        let (id, records) = snapshot.rollout(args.id.as_ref())?;
        refuse_useless(id, records, verb)?;
        let serial = records.request.as_ref().map_or(0, |request| request.serial) + 1;
        let record = Request { verb, serial, by: person() };
        let key = fleet.keys.request(id);
        let guard = match records.request_modified {
            Some(since) => Guard::Unmodified { key: key.clone(), since },
            None => Guard::Absent { key: key.clone() },
        };
        let transaction = Transaction::new().only_if(guard).put(key, record.write());
        if let Committed::Refused { .. } =
            fleet.store.commit(transaction).await.map_err(of_store)?
        {
            continue;
        }
        let is_led = snapshot.leader.is_some();
        let answer = json!({
            "format_version": FORMAT_VERSION, "rollout": id, "request": verb, "serial": serial,
            "leader": snapshot.leader,
        });
        stream::print(call.global.color, |to| {
            if call.is_json {
                return writeln!(to, "{answer}");
            }
            writeln!(to, "Asked the coordinator to {} rollout {id}.", words(verb))?;
            if is_led {
                Ok(())
            } else {
                writeln!(to, "No coordinator leads now: start `homeostat fleet coordinate`.")
            }
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    Err(helped("other operators write requests for this rollout at the same time", "try again"))
}

const fn words(verb: Verb) -> &'static str {
    match verb {
        Verb::Run => "go on with",
        Verb::Pause => "pause",
        Verb::Abort => "abort",
    }
}

fn refuse_useless(id: &Name, records: &RolloutRecords, verb: Verb) -> Result<()> {
    let Some(state) = &records.state else { return Ok(()) };
    let can_go_back = verb == Verb::Abort && state.phase == Phase::Done;
    if !state.phase.is_over() || can_go_back {
        return Ok(());
    }
    let help = match state.phase {
        Phase::Done => "`homeostat fleet abort` sends its nodes back",
        _ => "sign and start another one",
    };
    Err(helped(format!("rollout {id} is {}", phase(state.phase)), help))
}

/// Who asks, for people.
pub(super) fn person() -> String {
    let user = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    format!("{}@{host}", user.unwrap_or_else(|| "unknown".to_owned()))
}

pub(super) async fn history(call: &Call<'_>) -> Result<ExitCode> {
    let fleet = call.connection.open()?;
    let snapshot = Snapshot::read(&fleet).await?;
    let mut all: Vec<_> = snapshot.rollouts.iter().collect();
    all.sort_by_key(|(_, records)| std::cmp::Reverse(records.generation()));
    stream::print(call.global.color, |to| {
        if call.is_json {
            let rollouts: Vec<_> = all.iter().map(|(id, records)| as_json(id, records)).collect();
            return writeln!(
                to,
                "{}",
                json!({ "format_version": FORMAT_VERSION, "rollouts": rollouts })
            );
        }
        if all.is_empty() {
            writeln!(to, "There was no rollout yet.")?;
        }
        all.iter().try_for_each(|(id, records)| draw(id, records, to))
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn as_json(id: &Name, records: &RolloutRecords) -> Value {
    let statement = records.statement.as_ref();
    let state = records.state.as_ref();
    json!({
        "id": id,
        "generation": statement.map(|it| it.generation),
        "nodes": statement.map(|it| it.nodes),
        "waves": statement.map(homeostat_fleet::records::Statement::wave_ends),
        "not_after": statement.map(|it| it.not_after),
        "phase": state.map(|it| it.phase),
        "wave": state.map(|it| it.wave + 1),
        "why": state.and_then(|it| it.why.as_ref()),
        "set_aside": state.map(|it| &it.set_aside),
        "counts": state.map(|it| it.counts),
        "request": records.request,
    })
}

/// A rollout in a few lines.
pub(super) fn draw(id: &Name, records: &RolloutRecords, to: &mut dyn Write) -> io::Result<()> {
    let generation = records.generation();
    let Some(state) = &records.state else {
        let nodes = records.statement.as_ref().map_or(0, |statement| statement.nodes);
        return writeln!(to, "{id}  generation {generation}  not begun, {nodes} nodes");
    };
    writeln!(to, "{id}  generation {generation}  {}", progress(records, state))?;
    if let Some(why) = &state.why {
        writeln!(to, "    because {}", plain(&reason(why)))?;
    }
    if !state.set_aside.is_empty() {
        writeln!(to, "    absent, and not waited for: {}", named(&state.set_aside))?;
    }
    match &records.request {
        Some(Request { verb: Verb::Pause | Verb::Abort, by, .. }) if !by.is_empty() => {
            writeln!(to, "    asked for by {}", plain(by))
        }
        _ => Ok(()),
    }
}

/// How far it is, on one line.
pub(super) fn progress(records: &RolloutRecords, state: &State) -> String {
    let counts = &state.counts;
    let waves = records.statement.as_ref().map_or(0, |statement| statement.wave_ends().len());
    let wave = match state.phase {
        Phase::Running | Phase::Paused if waves > 0 => {
            format!(", wave {} of {waves}", state.wave + 1)
        }
        _ => String::new(),
    };
    let more = [("in flight", counts.in_flight), ("failed", counts.failed)];
    let more = more.iter().filter(|(_, count)| *count > 0);
    let more: Vec<_> = more.map(|(what, count)| format!(", {count} {what}")).collect();
    let more = more.concat();
    let touched = match state.phase {
        Phase::Stopping | Phase::Stopped => {
            format!("{} of {} nodes touched", counts.touched, counts.nodes)
        }
        _ => format!("{} of {} nodes good", counts.good, counts.nodes),
    };
    format!("{}{wave}: {touched}{more}", phase(state.phase))
}

pub(super) const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Running => "running",
        Phase::Paused => "paused",
        Phase::Stopping => "stopping",
        Phase::Done => "done",
        Phase::Stopped => "stopped",
        Phase::Superseded => "superseded",
    }
}

/// Why it does not go on, and what an operator can do.
pub(super) fn reason(why: &Why) -> String {
    match why {
        Why::Asked => "an operator asked for it".to_owned(),
        Why::StoreBehind { node, accepted } => format!(
            "{node} has accepted generation {accepted}, which is newer: the store was set back to an older backup. \
             Sign and start a rollout anew"
        ),
        Why::Expired { since } => {
            format!("the statement was valid until {since}: sign and start it anew")
        }
        Why::MostAbsent { absent, wave } => format!(
            "{absent} of {wave} nodes of the wave are absent: look at the network and the store. It goes on when they \
             are back; `homeostat fleet resume` goes on without them"
        ),
        Why::Failed { count, nodes } => format!("{count} failed: {}", some_of(nodes, *count)),
        Why::Newer { node, generation } => {
            format!("{node} belongs to a newer rollout, of generation {generation}")
        }
        Why::Unreadable { node, why } => format!(
            "what {node} shall have cannot be understood: {why}. Coordinate with the newest version that was used, or \
             delete that key"
        ),
        Why::Unusable { why } => format!("it cannot be followed: {why}. Sign and start it anew"),
        Why::Diverged { count, nodes } => format!(
            "{count} good nodes of the wave are not as declared any more: {}. It goes on when they are; look at them, or \
             `homeostat fleet abort`",
            some_of(nodes, *count)
        ),
    }
}

/// The first names of so many.
fn some_of(nodes: &[Name], count: u64) -> String {
    let more = count.saturating_sub(nodes.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let names: Vec<_> = nodes.iter().map(Name::as_str).collect();
    format!("{}{more}", names.join(", "))
}
