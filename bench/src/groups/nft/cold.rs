//! From nothing to everything: the first message until all is verified, and what the result takes in memory.

use anyhow::{Result, ensure};
use homeostat_engine::{Explain as _, Focus};
use homeostat_nft::Nft;

use super::super::fixture::Fixture;
use super::load::{self, File, Load, source};
use super::prepared::fresh;
use super::raw;
use crate::{Budget, Group, Run, Unit};

pub(super) fn groups() -> Vec<Group> {
    vec![
        group("nft: cold load of 1k rules and 100k elements", load::ELEMENTS),
        group("nft: cold load of 10k rules", load::RULES),
    ]
}

fn group(name: &'static str, load: Load) -> Group {
    Group::new(name, Unit::Seconds)
        .with("floor", move |run| floor(run, load), &[])
        .with("homeostat", move |run| ours(run, load), &[])
        .with(PARTS, move |run| parts(run, load), &[])
        .with(
            "homeostat, from text",
            move |run| from_text(run, load),
            &[Budget::WithinEither([(1.0, PARTS), (1.5, NFT)])],
        )
        .with(NFT, move |run| theirs(run, load), &[])
}

const NFT: &str = "nft -f";
const PARTS: &str = "nft -f, two raw dumps and one raw commit";

/// What a load from text cannot avoid: `nft` compiles the text in a scratch namespace, which is dumped; what was dumped
/// is committed in the target, which is dumped to verify it.
fn parts(run: &mut Run, load: Load) -> Result<()> {
    let load = load.at(run);
    let (file, requests) = (File::of(load)?, raw::requests(load)?);
    let _model = fresh()?;
    file.load()?;
    let whole = raw::whole(load)?;
    run.time(load.count(), || {
        let _scratch = fresh()?;
        file.load()?;
        raw::read(&raw::socket(0)?, &requests)?;
        let _target = fresh()?;
        let socket = raw::socket(2 * whole.bytes().len())?;
        raw::commit(&socket, &whole)?;
        raw::read(&socket, &requests).map(|_| ())
    })
}

/// Fails unless the namespace has as much as the load says, by the bytes of a dump.
fn expect(load: Load) -> Result<()> {
    const LEAST: usize = 16;
    let bytes = raw::read(&raw::socket(0)?, &raw::requests(load)?)?;
    ensure!(bytes > load.count() * LEAST, "only {bytes} bytes");
    Ok(())
}

fn floor(run: &mut Run, load: Load) -> Result<()> {
    let load = load.at(run);
    let _model = fresh()?;
    File::of(load)?.load()?;
    let whole = raw::whole(load)?;
    let _namespace = fresh()?;
    let socket = raw::socket(2 * whole.bytes().len())?;
    run.time(load.count(), || raw::commit(&socket, &whole))?;
    expect(load)
}

fn ours(run: &mut Run, load: Load) -> Result<()> {
    let load = load.at(run);
    let _namespace = fresh()?;
    let mut fixture = Fixture::without_hints(source(), load.desired()?)?;
    let report = run.time(load.count(), || fixture.pass(Focus::All))?;
    ensure!(report.is_converged(), "not converged");
    expect(load)
}

fn from_text(run: &mut Run, load: Load) -> Result<()> {
    let load = load.at(run);
    let _namespace = fresh()?;
    let report = run.time(load.count(), || {
        Fixture::without_hints(source(), load.desired()?)?.pass(Focus::All)
    })?;
    ensure!(report.is_converged(), "not converged");
    expect(load)
}

fn theirs(run: &mut Run, load: Load) -> Result<()> {
    let load = load.at(run);
    let _namespace = fresh()?;
    let file = File::of(load)?;
    run.time(load.count(), || file.load())?;
    expect(load)
}

/// Desired state and source after a pass; the peak is that of compiling and loading.
pub(super) fn memory_group() -> Group {
    Group::new("nft: memory", Unit::Bytes)
        .with("1k rules, 100k elements", |run| hold(run, load::ELEMENTS), &[])
        .with("10k rules", |run| hold(run, load::RULES), &[])
        .with("1k rules, 1M elements", |run| hold(run, load::MANY), &[])
}

fn hold(run: &mut Run, load: Load) -> Result<()> {
    let load = load.at(run);
    let _namespace = fresh()?;
    run.weigh(load.count(), || -> Result<Fixture<Nft>> {
        let mut fixture = Fixture::with_hints(source(), load.desired()?)?;
        ensure!(fixture.pass(Focus::All)?.is_converged(), "not converged");
        fixture.synced()
    })
    .map(drop)
}
