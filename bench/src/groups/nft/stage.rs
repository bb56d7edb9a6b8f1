//! Filled namespaces that are kept over the rounds of a group.

use std::cell::RefCell;

use anyhow::{Context as _, Result, ensure};
use homeostat_engine::{Explain as _, Focus};
use homeostat_nft::Nft;
use homeostat_testkit::namespace::Namespace;

use super::super::scene::Scene;
use super::load::{Load, source};

/// A namespace that has its ruleset, and homeostat, which has seen all of it.
pub(super) struct Stage {
    namespace: Namespace,
    pub(super) scene: Scene<Nft>,
}

thread_local! {
    static KEPT: RefCell<Option<(Load, Stage)>> = const { RefCell::new(None) };
}

impl Stage {
    fn set(load: Load) -> Result<Self> {
        let namespace = Namespace::enter()?;
        let mut scene = Scene::listening(source(), load.wish()?)?;
        ensure!(scene.pass(Focus::All)?.is_converged(), "the ruleset could not be loaded");
        Ok(Stage { namespace, scene: scene.synced()? })
    }
}

/// Acts on the stage of a load. One of another load is struck.
pub(super) fn on_stage<T>(load: Load, act: impl FnOnce(&mut Stage) -> Result<T>) -> Result<T> {
    KEPT.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(known, _)| *known != load) {
            *kept = None;
            *kept = Some((load, Stage::set(load)?));
        }
        let (_, stage) = kept.as_mut().context("no stage")?;
        stage.namespace.netns().enter()?;
        act(stage)
    })
}

/// A fresh namespace that the calling thread is in, with nothing kept beside it.
pub(super) fn fresh() -> Result<Namespace> {
    KEPT.with_borrow_mut(|kept| *kept = None);
    Ok(Namespace::enter()?)
}
