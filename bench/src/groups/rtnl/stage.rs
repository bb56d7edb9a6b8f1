//! Filled namespaces that are kept over the rounds of a group: to fill one takes longer than most of
//! what is measured in it.

use std::cell::RefCell;

use anyhow::{Context as _, Result};
use homeostat_engine::Focus;
use homeostat_rtnl::Wish;

use super::super::ground::Ground;
use super::super::wire::{FOREIGN, Ip, OURS, Pen};

use super::scene::{Scene, wish};

/// A full namespace, and homeostat, which has seen all of it.
pub(super) struct Stage {
    pub(super) ground: Ground,
    pub(super) scene: Scene,
}

/// What stands on a stage, for whom.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Play {
    /// The groups that share it.
    pub(super) name: &'static str,
    /// Whose routes fill it.
    pub(super) whose: Whose,
    /// How many there are.
    pub(super) size: usize,
}

/// Whose routes fill a stage.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// All are ours.
    Ours,
    /// A few of ours, which follow them by number, are beside many foreign ones.
    Foreign,
}

/// How many of ours are beside the foreign ones.
pub(super) const FEW: usize = 100;

thread_local! {
    static KEPT: RefCell<Vec<(Play, Stage)>> = const { RefCell::new(Vec::new()) };
}

impl Stage {
    fn set(play: Play) -> Result<Self> {
        let Play { whose, size, .. } = play;
        let (protocol, wished) = match whose {
            Whose::Ours => (OURS, 0..size),
            Whose::Foreign => (FOREIGN, size..size + FEW),
        };
        let ground = Ground::filled(Pen { ip: Ip::V4, protocol }, size)?;
        let mut scene = Scene::open(wish(Ip::V4, wished)?)?;
        if whose == Whose::Foreign {
            scene.pass(Focus::All)?;
        }
        Ok(Stage { ground, scene: scene.synced()? })
    }

    /// Acts while homeostat is not there. Its place is held by one that listens elsewhere.
    pub(super) fn alone<T>(&mut self, act: impl FnOnce(&Ground) -> Result<T>) -> Result<T> {
        let elsewhere = Ground::new()?;
        let wish = std::mem::replace(&mut self.scene, Scene::open(Wish::default())?).into_wish();
        drop(elsewhere);
        self.ground.enter()?;
        let done = act(&self.ground);
        self.scene = Scene::open(wish)?.synced()?;
        done
    }
}

/// Acts on the stage of a play. Those of other names are struck.
pub(super) fn on_stage<T>(play: Play, act: impl FnOnce(&mut Stage) -> Result<T>) -> Result<T> {
    KEPT.with_borrow_mut(|kept| {
        kept.retain(|(known, _)| known.name == play.name);
        if !kept.iter().any(|(known, _)| *known == play) {
            kept.push((play, Stage::set(play)?));
        }
        let stage = kept.iter_mut().find(|(known, _)| *known == play);
        let (_, stage) = stage.context("no stage")?;
        stage.ground.enter()?;
        act(stage)
    })
}

/// Strikes all stages.
pub(super) fn clear() {
    KEPT.with_borrow_mut(Vec::clear);
}

/// A fresh namespace, with nothing kept beside it.
pub(super) fn fresh() -> Result<Ground> {
    clear();
    Ground::new()
}
