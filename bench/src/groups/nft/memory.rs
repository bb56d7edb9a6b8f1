//! What a loaded ruleset takes in memory once it has been seen.

use anyhow::{Result, ensure};
use homeostat_engine::{Explain as _, Focus};
use homeostat_nft::Nft;

use super::super::scene::Scene;
use super::load::{self, Load, source};
use super::stage::fresh;
use crate::contest::{Contestant, Group};
use crate::run::Run;
use crate::unit::Unit;

/// Wish and source after a pass; the peak is that of compiling and loading.
pub const GROUP: Group = Group {
    name: "nft: memory",
    unit: Unit::Bytes,
    contestants: &[
        Contestant {
            name: "1k rules, 100k elements",
            run: |run| ours(run, load::ELEMENTS),
            budgets: &[],
        },
        Contestant { name: "10k rules", run: |run| ours(run, load::RULES), budgets: &[] },
        Contestant {
            name: "1k rules, 1M elements",
            run: |run| ours(run, load::MANY),
            budgets: &[],
        },
    ],
};

fn ours(run: &mut Run, load: Load) -> Result<()> {
    let load = load.at(run);
    let _namespace = fresh()?;
    let scene = run.weigh(load.count(), || -> Result<Scene<Nft>> {
        let mut scene = Scene::listening(source(), load.wish()?)?;
        ensure!(scene.pass(Focus::All)?.is_converged(), "not converged");
        scene.synced()
    })?;
    drop(scene);
    Ok(())
}
