//! How soon a daemon with many routes ends after SIGTERM, at rest and in the middle of a long write.

use anyhow::{Result, ensure};

use super::document::Document;
use super::network::TestNetwork;
use super::wire::Ip;
use crate::{Budget, Group, Run, Unit};

pub(super) fn group() -> Group {
    // As the docs promise.
    let budget = [Budget::AtMost(0.9)];
    Group::new("stop: a daemon with 400k routes", Unit::Seconds)
        .with("at rest", |run| stop(run, false), &budget)
        .with("while it replaces all of them", |run| stop(run, true), &budget)
}

fn stop(run: &mut Run, is_writing: bool) -> Result<()> {
    let size = run.size(400_000, 4000);
    let network = TestNetwork::new()?;
    let before = Document::of_routes(0..size, "")?;
    let after = Document::of_routes(size..2 * size, "")?;
    let mut running = before.keep()?;
    let client = if is_writing {
        let client = before.begin(&["apply", "--yes", "--allow-mass-delete"], &after)?;
        let (destination, length) = Ip::V4.destination(size);
        let first = format!("{destination}/{length}");
        while network.listed(&["route", "show", &first])?.as_array().is_none_or(Vec::is_empty) {
            ensure!(running.is_alive()?, "the daemon has ended by itself");
        }
        Some(client)
    } else {
        None
    };
    run.time(1, || running.stop())?;
    drop(client);
    Ok(())
}
