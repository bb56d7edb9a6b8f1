//! A running loop whose source is erased, so that one program can hold many kinds.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use homeostat_core::outcome::Later;
use homeostat_core::pacing::Time;
use homeostat_core::{PassReport, Source};
use tokio::time::Instant;

use super::handle::{Ended, Handle, OnStop, Told};
use super::settle::Patience;
use super::status::Status;
use super::{Loop, LoopDeps, Pace};
use crate::bound::{Bound, Planner};
use crate::error::Error;
use crate::ledger::LedgerKey;

/// Why a command about a key came to nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The loop has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
    /// The text is no key of this source.
    #[error("`{0}` is no key of this source")]
    NotAKey(String),
    /// The desired state is for another source.
    #[error("this desired state is for another source")]
    AnotherSource,
}

/// What can be asked of a running loop of any source.
pub trait Control: Send + Sync {
    /// Where the ledger files the source.
    fn place(&self) -> &LedgerKey;
    /// Gives the loop another desired state, as in [`Handle::put`]. It must be bound to the same source.
    fn put(&self, planner: Box<dyn Planner>) -> Result<bool, Refused>;
    /// Gives the loop a declare somebody who asks for it, as in [`Handle::replace`].
    fn replace(&self, planner: Box<dyn Planner>) -> Result<(), Refused>;
    /// Runs a full pass now, and waits for its report.
    fn pass(&self) -> Later<'_, Result<Told, Refused>>;
    /// Waits until the loop is converged, or until only findings remain that time cannot cure. Hands out
    /// the reports of the passes made meanwhile, in order.
    fn settle(&self, patience: Patience) -> Later<'_, Result<Vec<PassReport>, Refused>>;
    /// Looks at one key, and tells how it stands. Writes nothing.
    fn look<'a>(&'a self, key: &'a str) -> Later<'a, Result<Told, Refused>>;
    /// Takes once what is on a declared key now, from whoever has it.
    fn adopt<'a>(&'a self, key: &'a str) -> Later<'a, Result<Told, Refused>>;
    /// Drops what the ledger knows of a key, and tells whether it knew anything.
    fn forget<'a>(&'a self, key: &'a str) -> Later<'a, Result<Result<bool, Arc<Error>>, Refused>>;
    /// Holds passes off, for some time or until resumed.
    fn pause(&self, during: Option<Duration>) -> Result<(), Refused>;
    /// Lets passes go on, beginning with a full one.
    fn resume(&self) -> Result<(), Refused>;
    /// Ends the loop, and waits until it has ended.
    fn stop(&self, policy: OnStop) -> Later<'_, ()>;
    /// How the loop stands.
    fn status(&self) -> Status;
    /// When a moment of the status is, or was.
    fn at(&self, time: Time) -> Instant;
    /// Waits until the loop stands another way than `status` tells.
    fn changed(&self) -> Later<'_, Result<(), Refused>>;
}

/// A loop that somebody has to drive, and the way to speak with it.
pub struct LoopTask {
    /// The way to speak with it.
    pub control: Arc<dyn Control>,
    /// The loop itself; nothing happens until it is driven.
    pub run: Later<'static, ()>,
}

struct Controlled<S: Source> {
    place: LedgerKey,
    handle: Handle<S>,
    epoch: Instant,
}

impl<S: Source> Bound<S> {
    /// Becomes a loop.
    #[must_use]
    pub fn into_loop(self, deps: LoopDeps, pace: Pace) -> LoopTask {
        let filed = self.place.clone();
        let (looped, handle) = Loop::new(self, deps, pace);
        let epoch = Instant::now();
        let control: Arc<dyn Control> = Arc::new(Controlled { place: filed, handle, epoch });
        LoopTask { control, run: Box::pin(looped.run()) }
    }
}

fn bound<S: Source>(planner: Box<dyn Planner>) -> Result<Bound<S>, Refused> {
    let any: Box<dyn Any> = planner.into_any();
    any.downcast::<Bound<S>>().map(|bound| *bound).map_err(|_| Refused::AnotherSource)
}

fn key<S: Source>(text: &str) -> Result<S::Key, Refused> {
    text.parse().map_err(|_| Refused::NotAKey(text.to_owned()))
}

impl<S: Source> Control for Controlled<S> {
    fn place(&self) -> &LedgerKey {
        &self.place
    }

    fn put(&self, planner: Box<dyn Planner>) -> Result<bool, Refused> {
        Ok(self.handle.put(bound(planner)?)?)
    }

    fn replace(&self, planner: Box<dyn Planner>) -> Result<(), Refused> {
        Ok(self.handle.replace(bound(planner)?)?)
    }

    fn pass(&self) -> Later<'_, Result<Told, Refused>> {
        Box::pin(async { Ok(self.handle.pass().await?) })
    }

    fn settle(&self, patience: Patience) -> Later<'_, Result<Vec<PassReport>, Refused>> {
        Box::pin(async move { Ok(self.handle.settle(patience).await?) })
    }

    fn look<'a>(&'a self, text: &'a str) -> Later<'a, Result<Told, Refused>> {
        Box::pin(async move { Ok(self.handle.look(key::<S>(text)?).await?) })
    }

    fn adopt<'a>(&'a self, text: &'a str) -> Later<'a, Result<Told, Refused>> {
        Box::pin(async move { Ok(self.handle.adopt(key::<S>(text)?).await?) })
    }

    fn forget<'a>(&'a self, text: &'a str) -> Later<'a, Result<Result<bool, Arc<Error>>, Refused>> {
        Box::pin(async move { Ok(self.handle.forget(key::<S>(text)?).await?) })
    }

    fn pause(&self, during: Option<Duration>) -> Result<(), Refused> {
        Ok(self.handle.pause(during)?)
    }

    fn resume(&self) -> Result<(), Refused> {
        Ok(self.handle.resume()?)
    }

    fn stop(&self, policy: OnStop) -> Later<'_, ()> {
        Box::pin(self.handle.stop(policy))
    }

    fn status(&self) -> Status {
        self.handle.status()
    }

    fn at(&self, time: Time) -> Instant {
        self.epoch + time.since_epoch()
    }

    fn changed(&self) -> Later<'_, Result<(), Refused>> {
        Box::pin(async { Ok(self.handle.changed().await?) })
    }
}
