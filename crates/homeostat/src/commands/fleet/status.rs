//! `fleet status`: the newest rollout, and nodes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use homeostat_fleet::Name;
use serde_json::{Value, json};

use super::args::StatusArgs;
use super::snapshot::{NodeRecords, Snapshot, Standing, take_word};
use super::{Call, rollout};
use crate::commands::plan::NOT_CONVERGED;
use crate::output::line::plain;
use crate::output::stream;
use crate::wire::FORMAT_VERSION;

pub(super) async fn run(args: &StatusArgs, call: &Call<'_>) -> Result<ExitCode> {
    let fleet = call.connection.open()?;
    let snapshot = Snapshot::read(&fleet).await?;
    stream::print(call.global.color, |to| {
        if call.is_json {
            writeln!(to, "{}", as_json(&fleet.name, &snapshot))
        } else {
            draw(&fleet.name, &snapshot, args.all, to)
        }
    })?;
    let is_good = snapshot.nodes.values().all(|node| node.standing() == Standing::Good);
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(NOT_CONVERGED) })
}

fn as_json(fleet: &Name, snapshot: &Snapshot) -> Value {
    let nodes: BTreeMap<&Name, Value> =
        snapshot.nodes.iter().map(|(name, node)| (name, node_json(node))).collect();
    let unreadable = snapshot.unreadable.iter().map(|(key, why)| json!({ "key": key, "why": why }));
    json!({
        "format_version": FORMAT_VERSION,
        "fleet": fleet,
        "leader": snapshot.leader,
        "rollout": snapshot.newest().map(|(id, records)| rollout::as_json(id, records)),
        "nodes": nodes,
        "unreadable": unreadable.collect::<Vec<_>>(),
    })
}

fn node_json(node: &NodeRecords) -> Value {
    let want = node.want.as_ref().map(
        |want| json!({ "rollout": want.rollout, "generation": want.generation, "take": want.take }),
    );
    json!({
        "standing": node.standing().word(), "alive": node.is_alive, "want": want, "status": node.status,
        "inventory": node.inventory,
    })
}

fn draw(fleet: &Name, snapshot: &Snapshot, with_good: bool, to: &mut dyn Write) -> io::Result<()> {
    match &snapshot.leader {
        Some(leader) => writeln!(to, "Fleet {fleet}, led by {}", plain(leader))?,
        None => writeln!(to, "Fleet {fleet}, led by nobody: start `homeostat fleet coordinate`")?,
    }
    if let Some((id, records)) = snapshot.newest() {
        write!(to, "Rollout ")?;
        rollout::draw(id, records, to)?;
    }
    let mut counts: BTreeMap<Standing, usize> = BTreeMap::new();
    for node in snapshot.nodes.values() {
        *counts.entry(node.standing()).or_default() += 1;
    }
    let counts = counts.iter().map(|(standing, count)| format!("{count} {}", standing.word()));
    let counts = counts.collect::<Vec<_>>().join(", ");
    match snapshot.nodes.len() {
        0 => writeln!(to, "No nodes: `homeostat fleet enroll NAME` makes one.")?,
        all => writeln!(to, "{all} nodes: {counts}")?,
    }
    let width = snapshot.nodes.keys().map(|name| name.as_str().len()).max().unwrap_or_default();
    for (name, node) in &snapshot.nodes {
        let standing = node.standing();
        if standing == Standing::Good && !with_good {
            continue;
        }
        let wanted = node
            .want
            .as_ref()
            .map(|want| format!("  {} of generation {}", take_word(want.take), want.generation));
        let why =
            node.status.as_ref().map(|status| status.why.as_str()).filter(|why| !why.is_empty());
        let why = why.map(|why| format!(": {}", plain(why)));
        let (name, wanted, why) =
            (name.as_str(), wanted.unwrap_or_default(), why.unwrap_or_default());
        writeln!(to, "  {name:width$}  {}{wanted}{why}", standing.word())?;
    }
    for (key, why) in &snapshot.unreadable {
        writeln!(to, "  {} cannot be understood: {}", plain(key), plain(why))?;
    }
    Ok(())
}
