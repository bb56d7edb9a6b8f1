//! What it costs to write down 200k changes, by the program as users start it.

use anyhow::Result;

use super::document::Document;
use super::network::TestNetwork;
use crate::{Budget, Group, Run, Unit};

const SIZE: usize = 200_000;
const TEXT: &str = "text";

pub(super) fn groups() -> Vec<Group> {
    vec![
        Group::new("report: a plan of 200k new routes", Unit::Seconds)
            .with(TEXT, |run| command(run, &["plan", "--full"]), &[])
            .with("JSON", |run| command(run, &["plan", "--json"]), &[Budget::Within(1.1, TEXT)]),
        Group::new("report: an apply of 200k new routes", Unit::Seconds)
            .with(TEXT, |run| command(run, &["apply", "--yes"]), &[])
            .with(
                "JSON",
                |run| command(run, &["apply", "--yes", "--json"]),
                &[Budget::Within(1.1, TEXT)],
            ),
    ]
}

/// In a namespace without routes.
fn command(run: &mut Run, words: &[&str]) -> Result<()> {
    let size = run.size(SIZE, 2000);
    let network = TestNetwork::new()?;
    let document = Document::of_routes(0..size, "")?;
    network.enter()?;
    run.time(size, || document.run(words))
}
