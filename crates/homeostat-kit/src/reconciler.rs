//! Reconciliation of an API in one call: a desired state goes in, a report comes out.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::outcome::Later;
use homeostat_engine::pacing::Resync;
use homeostat_engine::{
    Alone, Bound, Budget, Config, Control as _, Event, EventKind, Events, Ledger, LedgerKey, Loop,
    LoopDeps, MassDelete, MemoryLedger, OnStop, Pace, PassId, Retry, Source, Strictness,
};
#[cfg(feature = "sqlite")]
use homeostat_engine::{FileLock, SqliteLedger, SqlitePages};

use crate::Error;
use crate::applied::Applied;
use crate::once::{self, Until};
use crate::provider::{CurrentDesired, Latest, Provider, Verdict};
use crate::report::{Plan, Report};
use crate::simple::{Adapted, Api, DeletePolicy, DesiredObjects, place};
use crate::strategy::Strategy;

/// What an API should hold. A call takes it as it is, or as [`DesiredObjects`] with declarations that are not known.
pub type Objects<A> = BTreeMap<<A as Api>::Key, <A as Api>::Object>;

/// Makes an API as declared, once: `applied` is what the last call returned, or the default before the first. After an
/// error the old value is still valid. [`Reconciler`] has the other ways.
pub async fn reconcile<A: Api>(
    api: &Arc<A>,
    strategy: &Strategy,
    desired: impl Into<DesiredObjects<A>>,
    applied: &Applied,
) -> Result<(Report<A::Key>, Applied), Error> {
    let reconciler = Reconciler::shared(Arc::clone(api), strategy.clone()).since(applied)?;
    let report = reconciler.reconcile(desired).await?;
    Ok((report, reconciler.applied().await?))
}

/// Keeps one API as declared for one owner.
///
/// Without `state` (feature `sqlite`, on by default) ownership is remembered in memory, or handed in and out as a value
/// ([`Reconciler::since`], [`Reconciler::applied`]), and the caller vouches that no other process writes for the same
/// owner.
pub struct Reconciler<A: Api> {
    source: Adapted<A>,
    strategy: Strategy,
    ledger_key: LedgerKey,
    config: Config<A::Key>,
    adopt: BTreeSet<A::Key>,
    on_stop: OnStop,
    pace: Pace,
    state: State,
    events: Events,
}

/// Where ownership is remembered.
enum State {
    Ledger(Arc<dyn Ledger>),
    #[cfg(feature = "sqlite")]
    Directory(std::path::PathBuf),
}

impl<A: Api> Reconciler<A> {
    /// Keeps this API; `strategy` says which of its objects are ours.
    pub fn new(api: A, strategy: Strategy) -> Self {
        Self::shared(Arc::new(api), strategy)
    }

    /// The same for an API that others use too.
    pub fn shared(api: Arc<A>, strategy: Strategy) -> Self {
        Self::adapted(Adapted::shared(api), strategy)
    }

    /// The same for an adapted API, with its limits.
    #[must_use]
    pub fn adapted(source: Adapted<A>, strategy: Strategy) -> Self {
        let ledger_key = place::<A>(strategy.owner().unwrap_or("default"), "default");
        let mut config = Config::default();
        config.guards.options.mass_delete = "`Reconciler::allow_mass_delete`";
        config.ways_out.foreign =
            "it is left alone, unless its key may be adopted (`Reconciler::adopting`)";
        config.ways_out.lost_mark =
            "it is taken back if its key may be adopted (`Reconciler::adopting`)";
        Reconciler {
            source,
            strategy,
            ledger_key,
            config,
            adopt: BTreeSet::new(),
            on_stop: OnStop::Leave,
            pace: once::pace::<Adapted<A>>(),
            state: State::Ledger(Arc::new(MemoryLedger::default())),
            events: Events::default(),
        }
    }

    /// Names the owner, under whose name the state is filed and locked. By default it is the owner of the marker; without a
    /// marker it is `default`, so two programs that share a directory each need a name.
    #[must_use]
    pub fn owner(mut self, owner: &str) -> Self {
        owner.clone_into(&mut self.ledger_key.owner);
        self
    }

    /// Names the part of the world that this API is: one of several servers, accounts or clusters.
    #[must_use]
    pub fn scope(mut self, scope: &str) -> Self {
        scope.clone_into(&mut self.ledger_key.scope);
        self
    }

    /// Distinguishes this target from a former one under the same name (an id that it was given when it was set up):
    /// what was recorded about another one is void.
    #[must_use]
    pub fn identity(mut self, identity: &str) -> Self {
        identity.clone_into(&mut self.ledger_key.identity);
        self
    }

    /// Remembers ownership in a directory, and locks it while something may be written.
    #[cfg(feature = "sqlite")]
    #[must_use]
    pub fn state(mut self, directory: impl Into<std::path::PathBuf>) -> Self {
        self.state = State::Directory(directory.into());
        self
    }

    /// Remembers ownership in a ledger of the caller's, for example in a store that several machines reach. A *ledger* is
    /// the durable record of what is ours where the target cannot say so, and of what was applied last. The caller
    /// vouches that no other process writes for the same owner.
    #[must_use]
    pub fn ledger(mut self, ledger: Arc<dyn Ledger>) -> Self {
        self.state = State::Ledger(ledger);
        self
    }

    /// Remembers ownership in memory, beginning with what an earlier call [handed out](Self::applied).
    pub fn since(mut self, applied: &Applied) -> Result<Self, Error> {
        self.state = State::Ledger(Arc::new(applied.to_ledger(&self.ledger_key)?));
        Ok(self)
    }

    /// What is applied by now, for the next call. With a state directory, it is read from there instead.
    pub async fn applied(&self) -> Result<Applied, Error> {
        match &self.state {
            State::Ledger(ledger) => Applied::load(ledger, &self.ledger_key).await,
            #[cfg(feature = "sqlite")]
            State::Directory(directory) => {
                let (directory, place) = (directory.clone(), self.ledger_key.clone());
                on_pool(move || Applied::of(&SqlitePages::open(&directory)?, &place)).await
            }
        }
    }

    /// Says for each key whether it may be deleted once it is no longer declared.
    #[must_use]
    pub fn on_delete(
        mut self,
        policy: impl Fn(&A::Key) -> DeletePolicy + Send + Sync + 'static,
    ) -> Self {
        self.source = self.source.on_delete(policy);
        self
    }

    /// Allows a pass to delete most of what is ours, which is otherwise held back.
    #[must_use]
    pub fn allow_mass_delete(mut self) -> Self {
        self.config.guards.mass_delete = MassDelete::Allow;
        self
    }

    /// Sets how much one pass may delete without permission.
    #[must_use]
    pub fn delete_budget(mut self, budget: Budget) -> Self {
        self.config.guards.budget = budget;
        self
    }

    /// Starts nothing after the first failure.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.config.strictness = Strictness::Strict;
        self
    }

    /// Allows to take these keys from any owner, as often as needed, if they are declared.
    #[must_use]
    pub fn adopting(mut self, keys: impl IntoIterator<Item = A::Key>) -> Self {
        self.adopt.extend(keys);
        self
    }

    /// What [`run`](Self::run) does with our objects when it ends. By default they stay, and stay ours.
    #[must_use]
    pub fn on_stop(mut self, on_stop: OnStop) -> Self {
        self.on_stop = on_stop;
        self
    }

    /// How often [`run`](Self::run) makes a *resync*: a pass that looks at everything, whatever was announced since the
    /// last one. By default it is every 5 seconds, and every 30 where [`Api::COVERAGE`] is
    /// [`Coverage::All`](crate::Coverage::All). Each period is up to a tenth shorter or longer, so that many programs do
    /// not move in step. It is at least 100 milliseconds and at most a day; what lies outside becomes the nearest of them.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.pace.resync = Resync::nearest(period, self.pace.seed);
        self
    }

    /// Where everything that happens is published.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// What would be done. It has no writer, so it cannot write.
    pub async fn plan(&self, desired: impl Into<DesiredObjects<A>>) -> Result<Plan<A::Key>, Error> {
        let bound = self.bind(desired.into())?;
        once::plan(&bound, &self.applied().await?.to_ledger(&self.ledger_key)?).await
    }

    /// Makes the API as declared, in one pass. The report lists keys that have to wait.
    pub async fn reconcile(
        &self,
        desired: impl Into<DesiredObjects<A>>,
    ) -> Result<Report<A::Key>, Error> {
        Ok(once::reconcile(self.bind(desired.into())?, self.deps().await?, Until::Passed).await)
    }

    /// Makes the API as declared, with more passes while something waits or may be cured by another try, but not for
    /// longer than `within`.
    pub async fn converge(
        &self,
        desired: impl Into<DesiredObjects<A>>,
        within: Duration,
    ) -> Result<Report<A::Key>, Error> {
        Ok(once::reconcile(
            self.bind(desired.into())?,
            self.deps().await?,
            Until::Converged(within),
        )
        .await)
    }

    /// Keeps the API as the provider declares it, until `shutdown` is over. Nothing is written before the provider
    /// has answered for the first time. While it cannot answer, or its answer cannot be used, the last good one
    /// stands, and the trouble is [published](Self::events) once.
    ///
    /// A new desired state is applied at once. Drift, which is what others change, is healed at once where
    /// [`Api::watch`] announces it, and else at the next [resync](Self::resync): without `watch` that is after 5 seconds
    /// at most, and a tenth. A key that failed, or that another writer changes again and again, is tried after growing pauses.
    pub async fn run<P>(&self, provider: P, shutdown: impl Future<Output = ()>) -> Result<(), Error>
    where
        P: Provider<DesiredState: PartialEq>,
        DesiredObjects<A>: for<'a> From<&'a P::DesiredState>,
    {
        let deps = self.deps().await?;
        let mut shutdown = pin!(shutdown);
        let mut input =
            Input { latest: Latest::new(provider), is_answered: false, given: None, trouble: None };
        let first = loop {
            tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                next = self.next(&mut input) => if let Next::Bound(bound) = next { break *bound },
            }
        };
        let (looped, handle) = Loop::new(first, deps, self.pace.clone());
        let feeding = async {
            let mut passes = handle.record();
            loop {
                let next = tokio::select! {
                    biased;
                    () = &mut shutdown => break,
                    Some(_) = passes.next() => Next::Same,
                    next = self.next(&mut input) => next,
                };
                // The loop ends only on a stop command.
                let _ = match next {
                    Next::Bound(bound) => {
                        handle.resume().and_then(|()| handle.put(*bound).map(drop))
                    }
                    Next::Nothing => handle.pause(None),
                    Next::Same => Ok(()),
                };
                if handle.status().has_passed {
                    input
                        .latest
                        .passed(&|key| key.parse().map_or(true, |key| handle.is_open(&key)));
                }
            }
            handle.stop(self.on_stop).await;
        };
        // Boxed: with the futures of a client in it, its type would be too deep for the compiler.
        tokio::join!(feeding, Box::pin(looped.run()) as Later<'_, ()>);
        Ok(())
    }

    /// What the provider says next. Dropping the future loses nothing.
    async fn next<P>(&self, input: &mut Input<P>) -> Next<Adapted<A>>
    where
        P: Provider<DesiredState: PartialEq>,
        DesiredObjects<A>: for<'a> From<&'a P::DesiredState>,
    {
        loop {
            if input.is_answered {
                input.latest.changed().await;
                input.is_answered = false;
            }
            let current = input.latest.ask().await;
            input.is_answered = true;
            let trouble = match current {
                CurrentDesired::Fresh(desired) if input.given.as_ref() == Some(&desired) => {
                    input.latest.judged(Verdict::Accepted);
                    input.trouble = None;
                    return Next::Same;
                }
                CurrentDesired::Fresh(desired) => match self.bind((&*desired).into()) {
                    Ok(bound) => {
                        input.latest.judged(Verdict::Accepted);
                        (input.given, input.trouble) = (Some(desired), None);
                        return Next::Bound(Box::new(bound));
                    }
                    Err(error) => {
                        let why = error.to_string();
                        input.latest.judged(Verdict::Refused { why: why.clone() });
                        format!("the desired state cannot be used: {why}")
                    }
                },
                CurrentDesired::Nothing => {
                    input.trouble = None;
                    if input.given.take().is_some() {
                        return Next::Nothing;
                    }
                    continue;
                }
                CurrentDesired::Stale { why, .. } | CurrentDesired::Unknown { why } => {
                    format!("the desired state is not known: {why}")
                }
            };
            if input.trouble.as_ref() != Some(&trouble) {
                self.publish_trouble(&trouble);
            }
            input.trouble = Some(trouble);
        }
    }

    fn publish_trouble(&self, why: &str) {
        let failure = homeostat_engine::Failure::new(why, Retry::Soon);
        let (pass, scope) = (PassId::default(), self.ledger_key.scope.as_str().into());
        self.events.publish(Event::new(pass, A::NAME, scope, EventKind::Failed { failure }));
    }

    fn bind(&self, desired: DesiredObjects<A>) -> Result<Bound<Adapted<A>>, Error> {
        let desired = desired.adopting(self.adopt.iter().cloned());
        let bound = self.source.bind(&self.strategy, desired, self.ledger_key.clone())?;
        Ok(bound.with_config(self.config.clone()))
    }

    /// What a loop needs to write.
    #[cfg_attr(
        not(feature = "sqlite"),
        expect(clippy::unused_async, reason = "only a state directory has to be opened")
    )]
    async fn deps(&self) -> Result<LoopDeps, Error> {
        let deps = match &self.state {
            State::Ledger(ledger) => {
                LoopDeps::new(Alone::i_am_the_only_writer(), Arc::clone(ledger))
            }
            #[cfg(feature = "sqlite")]
            State::Directory(directory) => {
                let (directory, owner) = (directory.clone(), self.ledger_key.owner.clone());
                on_pool(move || {
                    let lock = FileLock::take(&directory, &owner, A::NAME)?;
                    let ledger = SqliteLedger::open(&directory)?.offloaded();
                    Ok(LoopDeps::new(lock, Arc::new(ledger)))
                })
                .await?
            }
        };
        Ok(deps.with_events(self.events.clone()))
    }
}

/// Works with the disk, on the runtime's pool for blocking work: the other tasks of this thread do not wait for it.
#[cfg(feature = "sqlite")]
async fn on_pool<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| homeostat_engine::Error::ReadLedger(Box::new(error)))?
}

/// Where desired states come from while a reconciler runs.
struct Input<P: Provider> {
    latest: Latest<P>,
    /// Whether it was asked since it changed.
    is_answered: bool,
    /// The one that is in force.
    given: Option<Arc<P::DesiredState>>,
    /// What was published last.
    trouble: Option<String>,
}

/// What a provider says next.
enum Next<S: Source> {
    /// Another desired state.
    Bound(Box<Bound<S>>),
    /// The one that is in force.
    Same,
    /// There is none to keep any more.
    Nothing,
}
