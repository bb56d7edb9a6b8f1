//! What it costs to write down 200k changes, by the program as users start it.

use std::time::Duration;

use anyhow::Result;

use super::document::Document;
use super::network::TestNetwork;
use crate::program::Head;
use crate::{Budget, Group, Run, Unit};

const SIZE: usize = 200_000;
const TEXT: &str = "text";

pub(super) fn groups() -> Vec<Group> {
    vec![
        Group::new("report: a plan of 200k new routes", Unit::Seconds)
            .with(TEXT, |run| command(run, &["plan", "--full"]), &[])
            .with("JSON", |run| command(run, &["plan", "--json"]), &[Budget::Within(1.1, TEXT)]),
        Group::new("report: an apply of 200k new routes", Unit::Seconds)
            .with(TEXT, |run| command(run, &["apply", "--yes", "--full"]), &[])
            .with(
                "JSON",
                |run| command(run, &["apply", "--yes", "--json"]),
                &[Budget::Within(1.1, TEXT)],
            ),
        // The first line cannot come before the plan is made; no more is written than a pipe holds.
        Group::new("report: `plan --json | head` of 200k new routes", Unit::Seconds)
            .with("all lines", |run| command(run, &["plan", "--json"]), &[])
            .with(
                "first line",
                |run| head(run, |head| head.first),
                &[Budget::Within(0.9, "all lines")],
            )
            .with(
                "end after the reader went",
                |run| head(run, |head| head.end),
                &[Budget::AtMost(0.1)],
            ),
    ]
}

fn head(run: &mut Run, figure: fn(Head) -> Duration) -> Result<()> {
    let network = TestNetwork::new()?;
    let document = Document::of_routes(0..run.size(SIZE, 2000), "")?;
    network.enter()?;
    run.record(figure(document.head(&["plan", "--json"])?).as_secs_f64());
    Ok(())
}

/// In a namespace without routes.
fn command(run: &mut Run, words: &[&str]) -> Result<()> {
    let size = run.size(SIZE, 2000);
    let network = TestNetwork::new()?;
    let document = Document::of_routes(0..size, "")?;
    network.enter()?;
    run.time(size, || document.run(words))
}
