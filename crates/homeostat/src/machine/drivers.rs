//! What can write, with the locks that allow it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use homeostat_document::Document;
use homeostat_engine::report::{JOURNAL, LEDGER};
use homeostat_engine::{
    Driver, Entry, Error, Explain, Failure, Kind, Ledger, Place, Planner, Retry, ScopeLock,
};

use super::Machine;
use super::broken::Broken;
use super::firewalls::Firewalls;
use super::landed;
use super::unapplied::Unapplied;
use super::waiting::{self, Waiting};
use crate::context::Context;
use crate::output::text::Detail;
use crate::output::{Told, is_converged, summary};
use crate::sources::namespaces;

/// A pass can bring to light what only the next one can mend (a knob that another one rewrote).
const MOST_PASSES: usize = 3;

/// Milliseconds that an apply waits for what it has set moving: three seconds in all.
const PAUSES: [u64; 6] = [50, 100, 200, 400, 800, 1450];

/// Every source that is bound, each in its mode.
pub(crate) struct Drivers<'a> {
    pub(super) context: &'a Context,
    pub(super) document: &'a Document,
    /// The namespaces of our own, if there are any: driven before all others.
    pub(super) spaces: Vec<Driven>,
    pub(super) driven: Vec<Driven>,
    /// Of each scope, in which something can be written.
    pub(super) locks: Vec<Option<ScopeLock>>,
    pub(super) firewalls: Firewalls,
    pub(super) waiting: Vec<(Place, Waiting)>,
    pub(super) gone: Vec<Place>,
    pub(super) ledger: Arc<dyn Ledger>,
}

/// One source in one scope. One that only observes has no way to write.
pub(super) enum Driven {
    Healing(Box<dyn Driver>),
    Observing(Box<dyn Planner>),
}

impl Drivers<'_> {
    /// Plans everything.
    pub(crate) async fn plan(&mut self) -> Result<Vec<Told>> {
        let (mut all, mut going) = (Vec::new(), BTreeSet::new());
        for driven in &mut self.spaces {
            let (place, what) = (driven.place().clone(), driven.plan(&self.ledger).await?);
            going.extend(namespaces::going(&*what)?);
            all.push(Told { place, what });
        }
        for driven in &mut self.driven {
            let place = driven.place().clone();
            if !going.contains(&place.scope) {
                all.push(Told { place, what: driven.plan(&self.ledger).await? });
            }
        }
        all.extend(self.waiting.iter().map(waiting::told));
        Ok(all)
    }

    /// Drops the records of scopes that are gone: nothing of ours can be in them.
    pub(crate) fn prune(&self) -> Result<()> {
        for place in &self.gone {
            self.ledger.clear(place)?;
        }
        Ok(())
    }

    /// Runs passes until all is as declared, or nothing moves any more. What this run has set moving
    /// gets a little time: an IPv6 address is probed for a second before a route may use it.
    pub(crate) async fn converge(&mut self) -> Result<Vec<Told>> {
        let mut told = settle(&mut self.spaces, (&self.firewalls, &self.ledger)).await;
        if summary(&told).total() > 0 {
            let why = "namespaces were made or removed, but the scopes cannot be opened after it";
            self.open_anew().context(why)?;
        }
        let mut all = settle(&mut self.driven, (&self.firewalls, &self.ledger)).await;
        for pause in PAUSES {
            if is_converged(&all) || summary(&all).total() == 0 || !needs_time(&all) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
            all = after(all, settle(&mut self.driven, (&self.firewalls, &self.ledger)).await);
        }
        told.extend(self.land(all).await?);
        told.extend(self.waiting.iter().map(waiting::told));
        Ok(told)
    }

    /// Looks again whenever work has ended that the target does by itself, until there is none. Work that
    /// ends badly is begun again a few times, and then told.
    async fn land(&mut self, mut all: Vec<Told>) -> Result<Vec<Told>> {
        let desk = &self.context.desk;
        let color = (self.context.detail != Detail::Quiet).then_some(self.context.color);
        let (mut said, mut tries) = (BTreeSet::new(), BTreeMap::<String, usize>::new());
        while let Some(ended) = desk.wait(&mut said, color).await? {
            for key in ended {
                *tries.entry(key).or_default() += 1;
            }
            let is_tried = |key| tries.get(key).is_some_and(|tries| *tries >= MOST_PASSES);
            if desk.is_idle() && landed::waiting(&all).iter().all(is_tried) {
                let failed = desk.failures();
                return Ok(all.into_iter().map(|told| landed::given_up(told, &failed)).collect());
            }
            let now = settle(&mut self.driven, (&self.firewalls, &self.ledger)).await;
            let pairs = all.into_iter().zip(now);
            all = pairs.map(|(before, now)| landed::after(before, now)).collect();
        }
        Ok(all)
    }

    /// Opens the scopes that are there now, and lets go of the others: whoever holds a namespace
    /// keeps it alive. The first scope stays locked all along.
    fn open_anew(&mut self) -> Result<()> {
        let first = self.locks.first_mut().and_then(Option::take);
        (self.driven, self.locks) = (Vec::new(), Vec::new());
        let machine = Machine::bind(self.context, self.document, &*self.ledger)?;
        *self = machine.unlock_under(first, &self.ledger)?;
        self.prune()
    }
}

/// Runs passes as long as each brings something.
async fn settle(driven: &mut [Driven], with: (&Firewalls, &Arc<dyn Ledger>)) -> Vec<Told> {
    let mut all = pass(driven, with).await;
    for _ in 1..MOST_PASSES {
        let may_move = summary(&all).total() > 0 || has_moved_under_us(&all);
        if is_converged(&all) || !may_move || is_unrecorded(&all) {
            break;
        }
        let again = pass(driven, with).await;
        let moved = summary(&again).total() > 0 || has_moved_under_us(&again);
        all = after(all, again);
        if !moved {
            break;
        }
    }
    all
}

/// One pass over every source. One that fails keeps no other from its pass or its report.
async fn pass(
    driven: &mut [Driven],
    (firewalls, ledger): (&Firewalls, &Arc<dyn Ledger>),
) -> Vec<Told> {
    let mut all = Vec::new();
    for driven in driven {
        let place = driven.place().clone();
        firewalls.before(&place);
        let what = driven.pass(ledger).await;
        let what = what.unwrap_or_else(|error| Box::new(Broken::by(&error, &place)));
        firewalls.after(&place, &*what);
        all.push(Told { place, what });
    }
    all
}

impl Driven {
    pub(super) fn place(&self) -> &Place {
        match self {
            Driven::Healing(driver) => driver.place(),
            Driven::Observing(planner) => planner.place(),
        }
    }

    async fn plan(&mut self, ledger: &Arc<dyn Ledger>) -> Result<Box<dyn Explain>, Error> {
        match self {
            Driven::Healing(driver) => driver.plan().await,
            Driven::Observing(planner) => Unapplied::plan(&**planner, &**ledger).await,
        }
    }

    async fn pass(&mut self, ledger: &Arc<dyn Ledger>) -> Result<Box<dyn Explain>, Error> {
        match self {
            Driven::Healing(driver) => driver.pass().await,
            Driven::Observing(planner) => Unapplied::plan(&**planner, &**ledger).await,
        }
    }
}

/// How often and when a pass of somebody else's loops is worth another, by the same measure.
#[derive(Default)]
pub(crate) struct Settling {
    passes: usize,
    pauses: usize,
}

impl Settling {
    /// How long to wait for the next pass; nothing, if it would bring nothing.
    pub(crate) fn next(&mut self, all: &[Told]) -> Option<Duration> {
        if is_converged(all) || is_unrecorded(all) {
            return None;
        }
        let moves = summary(all).total() > 0 || has_moved_under_us(all);
        self.passes += 1;
        if moves && self.passes < MOST_PASSES {
            return Some(Duration::ZERO);
        }
        let pause = PAUSES.get(self.pauses).filter(|_| moves && needs_time(all))?;
        self.pauses += 1;
        Some(Duration::from_millis(*pause))
    }
}

/// What was told of every source before, and now.
fn after(before: Vec<Told>, now: Vec<Told>) -> Vec<Told> {
    before.into_iter().zip(now).map(|(before, now)| now.after(before)).collect()
}

/// Whether something failed that may work in a moment.
fn needs_time(all: &[Told]) -> bool {
    has_failed(all, |_, failure| failure.retry == Retry::Soon)
}

/// Whether a target moved under its plan, so that another look is all that is needed.
fn has_moved_under_us(all: &[Told]) -> bool {
    has_failed(all, |_, failure| failure.retry == Retry::Now)
}

/// Whether outcomes could not be recorded: another pass would only fail at that.
fn is_unrecorded(all: &[Told]) -> bool {
    has_failed(all, |key, _| key == LEDGER || key == JOURNAL)
}

fn has_failed(all: &[Told], so: impl Fn(&str, &Failure) -> bool) -> bool {
    let mut found = false;
    for told in all {
        told.what.explain(Kind::Failed, &mut |entry| {
            found |= matches!(&entry, Entry::Failed { key, failure, .. } if so(key, failure));
        });
    }
    found
}
