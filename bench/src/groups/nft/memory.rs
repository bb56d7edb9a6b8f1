//! What a loaded ruleset takes in memory once it has been seen.

use anyhow::{Result, ensure};
use homeostat_engine::{Explain as _, Focus};
use homeostat_nft::Nft;

use super::super::fixture::Fixture;
use super::load::{self, Load, source};
use super::prepared::fresh;
use crate::{Group, Run, Unit};

/// Desired state and source after a pass; the peak is that of compiling and loading.
pub(super) fn group() -> Group {
    Group::new("nft: memory", Unit::Bytes)
        .with("1k rules, 100k elements", |run| ours(run, load::ELEMENTS), &[])
        .with("10k rules", |run| ours(run, load::RULES), &[])
        .with("1k rules, 1M elements", |run| ours(run, load::MANY), &[])
}

fn ours(run: &mut Run, load: Load) -> Result<()> {
    let load = load.at(run);
    let _namespace = fresh()?;
    run.weigh(load.count(), || -> Result<Fixture<Nft>> {
        let mut fixture = Fixture::with_hints(source(), load.desired()?)?;
        ensure!(fixture.pass(Focus::All)?.is_converged(), "not converged");
        fixture.synced()
    })
    .map(drop)
}
