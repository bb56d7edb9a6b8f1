//! A boot in which links to units change: what it starts was decided by the links as they were when it began.

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::client::{JobKind, Systemd, UnitRow};
use crate::error::Error;
use crate::name::UnitName;

/// By which properties a unit names those that start it along with themselves.
const STARTED_BY: [&str; 4] = ["WantedBy", "RequiredBy", "BoundBy", "UpheldBy"];
/// By which it names those that are started along with it.
const STARTS: [&str; 4] = ["Wants", "Requires", "BindsTo", "Upholds"];

/// Has a boot that goes on start what it would have started, had the links of these units been as they are from the beginning.
/// systemd must have read the links. A unit that runs already is left alone.
///
/// A unit that nothing wants any more is not started, and neither is what only such a unit wants; a unit that is wanted by one
/// that is or will be active is started.
pub async fn follow_links(systemd: &Systemd, changed: &BTreeSet<UnitName>) -> Result<(), Error> {
    let mut open: Vec<String> = changed.iter().map(ToString::to_string).collect();
    let mut seen = BTreeSet::new();
    while let Some(name) = open.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let Some(unit) = systemd.rows(&[&name]).await?.into_iter().next() else { continue };
        if unit.active != "inactive" {
            continue;
        }
        let is_wanted = unit.load == "loaded" && is_wanted(systemd, &unit).await?;
        let own = name.parse().ok().filter(|name| changed.contains(name));
        match (&unit.job, is_wanted, own) {
            (None, true, Some(name)) => {
                systemd.job(JobKind::Start, &name, Instant::now()).await?;
            }
            (Some(job), false, _) if job.kind == "start" => {
                open.extend(named(systemd, &unit, &STARTS).await?);
                systemd.cancel(job.number).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a unit that is active, or will be, starts this one along with itself.
async fn is_wanted(systemd: &Systemd, unit: &UnitRow) -> Result<bool, Error> {
    let by = named(systemd, unit, &STARTED_BY).await?;
    let by: Vec<&str> = by.iter().map(String::as_str).collect();
    if by.is_empty() {
        // An empty list would be taken for all units.
        return Ok(false);
    }
    let will_be = |by: &UnitRow| match &by.job {
        Some(job) => job.kind != "stop",
        None => matches!(by.active.as_str(), "active" | "activating" | "reloading"),
    };
    Ok(systemd.rows(&by).await?.iter().any(will_be))
}

async fn named(
    systemd: &Systemd,
    unit: &UnitRow,
    properties: &[&'static str],
) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for property in properties {
        match systemd.unit_property::<Vec<String>>(unit, property).await {
            Ok(more) => names.extend(more),
            // systemd before 249 knows no `Upholds`.
            Err(Error::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(names)
}
