//! A source with its wish and scope, erased, so that a registry can hold many kinds.
//!
//! Planning and writing are two types: a [`Planner`] becomes a [`Driver`] only by handing over the
//! scope's lock.

use std::any::Any;
use std::sync::Arc;

use homeostat_core::outcome::Later;
use homeostat_core::{Explain, Focus, Ownership, ScopeLock, Source};

use crate::book::{Book, holdings};
use crate::config::{Config, Order};
use crate::error::Error;
use crate::keep::control::Kept;
use crate::keep::{Means, Pace};
use crate::ledger::{Ledger, Pages, Place};
use crate::observer::Observer;
use crate::pass;

/// One source in one scope with its wish.
pub struct Bound<S: Source> {
    /// The source.
    pub source: S,
    /// The wish.
    pub wish: Arc<S::Desired>,
    /// How our objects are told from others'.
    pub ownership: Ownership,
    /// How passes behave.
    pub config: Config<S::Key>,
    /// Where the ledger files it.
    pub place: Place,
    /// The wish for nothing, by which everything is taken back; without it nobody can ask for that.
    pub nothing: Option<Arc<S::Desired>>,
}

impl<S: Source> Bound<S> {
    fn order(&self) -> Order<'_, S> {
        Order {
            source: &self.source,
            wish: Arc::clone(&self.wish),
            ownership: &self.ownership,
            focus: Focus::All,
            config: &self.config,
        }
    }
}

/// What can be asked of a bound source without a lock.
pub trait Planner: Send {
    /// The place of the source.
    fn place(&self) -> &Place;

    /// Observes and plans; reads the ledger, writes nothing.
    fn plan<'a>(&'a self, pages: &'a dyn Pages) -> Later<'a, Result<Box<dyn Explain>, Error>>;

    /// Becomes a driver, by proof that nobody else writes in the scope.
    fn unlock(
        self: Box<Self>,
        lock: &ScopeLock,
        ledger: Arc<dyn Ledger>,
    ) -> Result<Box<dyn Driver>, Error>;

    /// The usual pace of a loop over the source.
    fn pace(&self, seed: u64) -> Pace;

    /// Becomes a loop.
    fn keep(self: Box<Self>, means: Means, pace: Pace) -> Kept;

    /// The bound source itself, for whoever knows its type.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// A bound source that can write.
pub trait Driver: Send {
    /// The place of the source.
    fn place(&self) -> &Place;

    /// Observes and plans.
    fn plan(&mut self) -> Later<'_, Result<Box<dyn Explain>, Error>>;

    /// One full pass.
    fn pass(&mut self) -> Later<'_, Result<Box<dyn Explain>, Error>>;
}

impl<S: Source> Planner for Bound<S> {
    fn place(&self) -> &Place {
        &self.place
    }

    fn plan<'a>(&'a self, pages: &'a dyn Pages) -> Later<'a, Result<Box<dyn Explain>, Error>> {
        Box::pin(async move {
            let held = holdings::<S>(pages, &self.place)?;
            let mut observer = Observer::without_hints(&self.source, &self.place.scope)?;
            let plan = pass::plan(&self.order(), &mut observer, &held).await?;
            Ok(Box::new(plan) as Box<dyn Explain>)
        })
    }

    fn unlock(
        self: Box<Self>,
        lock: &ScopeLock,
        ledger: Arc<dyn Ledger>,
    ) -> Result<Box<dyn Driver>, Error> {
        let scope = &self.place.scope;
        let writer = self.source.writer(lock).map_err(|failure| Error::Writer {
            name: S::NAME,
            scope: scope.clone(),
            failure,
        })?;
        let observer = Observer::without_hints(&self.source, scope)?;
        let book = Book::open(ledger, self.place.clone())?;
        Ok(Box::new(Unlocked { bound: *self, observer, writer, book }))
    }

    fn pace(&self, seed: u64) -> Pace {
        Pace::of::<S>(seed)
    }

    fn keep(self: Box<Self>, means: Means, pace: Pace) -> Kept {
        Bound::keep(*self, means, pace)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

struct Unlocked<S: Source> {
    bound: Bound<S>,
    observer: Observer<S>,
    writer: S::Writer,
    book: Book<S>,
}

impl<S: Source> Driver for Unlocked<S> {
    fn place(&self) -> &Place {
        &self.bound.place
    }

    fn plan(&mut self) -> Later<'_, Result<Box<dyn Explain>, Error>> {
        Box::pin(async move {
            let order = self.bound.order();
            let plan = pass::plan(&order, &mut self.observer, self.book.holdings()).await?;
            Ok(Box::new(plan) as Box<dyn Explain>)
        })
    }

    fn pass(&mut self) -> Later<'_, Result<Box<dyn Explain>, Error>> {
        Box::pin(async move {
            let order = self.bound.order();
            let (observer, writer) = (&mut self.observer, &self.writer);
            let report = pass::pass(&order, observer, writer, &mut self.book).await?;
            Ok(Box::new(report) as Box<dyn Explain>)
        })
    }
}
