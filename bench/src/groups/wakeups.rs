//! A million wakeups through our loop and through that of kube-rs, where nothing has to be done.
//!
//! Both sides get the same keys, each once. The first group compares the bare queues: wakeups in, keys out. The
//! second compares whole loops: for each wakeup the object is looked up, found as it should be, and left alone.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::{StreamExt as _, stream};
use homeostat_engine::outcome::Later;
use homeostat_engine::pacing::{KeyPacer, Time};
use homeostat_engine::{
    Alone, Control as _, Coverage, Exclusive, Failure, Hint, Loop, LoopDeps, MemoryLedger, Owner,
    Pace, Retry, Seen,
};
use homeostat_kit::simple::{Adapted, Api, DesiredObjects, Listed, Refusal, Watch, Written, place};
use homeostat_kit::strategy::Strategy;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_runtime::controller::{Action, Config, ReconcileReason, ReconcileRequest, applier};
use kube_runtime::reflector::ObjectRef;
use kube_runtime::reflector::store::Writer;
use kube_runtime::scheduler::{ScheduleRequest, scheduler};
use kube_runtime::watcher;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::{Group, Run, Unit};

pub(super) fn groups() -> Vec<Group> {
    vec![
        Group::new("wakeups: in and out of the queue", Unit::PerSecond)
            .with("kube-runtime scheduler", their_queue, &[])
            .with("homeostat, per key", our_queue, &[]),
        Group::new("wakeups: looked at and left alone", Unit::PerSecond)
            .with("kube-runtime applier", their_loop, &[])
            .with("homeostat loop", our_loop, &[]),
    ]
}

fn count(run: &Run) -> usize {
    run.size(1_000_000, 5_000)
}

/// Keys in an order that is not theirs: an odd number modulo a power of two visits each once.
fn keys(count: usize) -> impl Iterator<Item = usize> {
    let room = count.next_power_of_two();
    (0..room).map(move |at| at.wrapping_mul(40_503) % room).filter(move |key| *key < count)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_time().build()?)
}

fn their_queue(run: &mut Run) -> Result<()> {
    let count = count(run);
    let runtime = runtime()?;
    let out = run.time(count, || {
        runtime.block_on(async {
            let now = Instant::now();
            let requests = keys(count).map(|message| ScheduleRequest { message, run_at: now });
            // When requests end, the content of the queue is lost: these stay open.
            let mut queue = pin!(scheduler(stream::iter(requests).chain(stream::pending())));
            let mut out = 0;
            while out < count && queue.as_mut().hold_unless(|_| true).next().await.is_some() {
                out += 1;
            }
            out
        })
    });
    ensure!(out == count, "{out} of {count} came out");
    Ok(())
}

fn our_queue(run: &mut Run) -> Result<()> {
    let count = count(run);
    let out = run.time(count, || {
        let mut queue = KeyPacer::new(Duration::from_millis(100));
        keys(count).for_each(|key| queue.on_hint(key, Time::EPOCH));
        queue.take_due(Time::EPOCH).len()
    });
    ensure!(out == count, "{out} of {count} came out");
    Ok(())
}

fn named(key: usize) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(key.to_string()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn their_loop(run: &mut Run) -> Result<()> {
    let count = count(run);
    let runtime = runtime()?;
    let mut store = Writer::<ConfigMap>::default();
    store.apply_watcher_event(&watcher::Event::Init);
    for key in 0..count {
        store.apply_watcher_event(&watcher::Event::InitApply(named(key)));
    }
    store.apply_watcher_event(&watcher::Event::InitDone);
    let requests: Vec<_> = keys(count).map(|key| ObjectRef::from_obj(&named(key))).collect();
    let out = run.time(count, || {
        runtime.block_on(async {
            let requests = requests.into_iter().map(|obj_ref| {
                let reason = ReconcileReason::ObjectUpdated;
                Ok::<_, Infallible>(ReconcileRequest { obj_ref, reason })
            });
            let reconcile = |object: Arc<ConfigMap>, _: Arc<()>| {
                black_box(object.metadata.name.is_some());
                std::future::ready(Ok(Action::await_change()))
            };
            let policy = |_: Arc<ConfigMap>, _: &Infallible, _: Arc<()>| Action::await_change();
            // When a queue ends, its content is lost: this one stays open.
            let queue = stream::iter(requests).chain(stream::pending());
            let done = applier(
                reconcile,
                policy,
                Arc::new(()),
                store.as_reader(),
                queue,
                Config::default(),
            );
            done.take(count).filter(|done| std::future::ready(done.is_ok())).count().await
        })
    });
    ensure!(out == count, "{out} of {count} were reconciled");
    Ok(())
}

/// Objects that are always as desired, and one hint about each of them.
struct Calm {
    count: usize,
    begin: watch::Receiver<bool>,
    looked: Arc<watch::Sender<usize>>,
}

impl Calm {
    fn seen(key: usize) -> Seen<usize, u8> {
        Seen::Present { key, object: 0, owner: Owner::Unmarked }
    }
}

impl Api for Calm {
    const NAME: &'static str = "calm";
    const COVERAGE: Coverage = Coverage::All;
    type Key = usize;
    type Object = u8;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        Ok((0..self.count).map(Self::seen).collect())
    }

    async fn look(&self, keys: &BTreeSet<usize>) -> Result<Listed<Self>, Failure> {
        self.looked.send_modify(|looked| *looked += keys.len());
        Ok(keys.iter().copied().map(Self::seen).collect())
    }

    async fn create(&self, _: &usize, _: &u8) -> Written<Self> {
        Ok(Some(0))
    }

    async fn update(&self, _: &usize, _: &u8, _: &u8) -> Written<Self> {
        Ok(Some(0))
    }

    async fn delete(&self, _: &usize, _: &u8) -> Result<(), Refusal> {
        Ok(())
    }

    async fn watch(&self) -> Result<Box<dyn Watch<usize>>, Failure> {
        let (left, begin) = (keys(self.count).collect(), self.begin.clone());
        Ok(Box::new(Hints { left, begin }))
    }
}

struct Hints {
    left: Vec<usize>,
    begin: watch::Receiver<bool>,
}

impl Watch<usize> for Hints {
    fn next(&mut self) -> Later<'_, Result<Hint<usize>, Failure>> {
        Box::pin(async {
            let over = |_| Failure::new("over", Retry::Never);
            self.begin.wait_for(|begin| *begin).await.map_err(over)?;
            match self.left.pop() {
                Some(key) => Ok(Hint::keys([key])),
                None => std::future::pending().await,
            }
        })
    }
}

fn our_loop(run: &mut Run) -> Result<()> {
    let count = count(run);
    let runtime = runtime()?;
    let (looked, begin) = (Arc::new(watch::Sender::new(0)), watch::Sender::new(false));
    let api = Calm { count, begin: begin.subscribe(), looked: Arc::clone(&looked) };
    let desired = DesiredObjects::new((0..count).map(|key| (key, 0)))?;
    let strategy = Strategy::Exclusive(Exclusive::everything_in_this_scope_is_mine());
    let bound = Adapted::new(api).bind(&strategy, desired, place::<Calm>("bench", "here"))?;
    let (lock, ledger) = (Arc::new(Alone::i_am_the_only_writer()), Arc::<MemoryLedger>::default());
    let deps = LoopDeps::new(lock, ledger);
    let pace = Pace::of::<Adapted<Calm>>(1).with_resync(Duration::from_hours(1))?;
    let (kept, handle) = Loop::new(bound, deps, pace);
    runtime.spawn(kept.run());
    runtime.block_on(handle.wait_for(|status| status.is_ready))?;
    let mut seen = looked.subscribe();
    run.time(count, || {
        begin.send_replace(true);
        runtime.block_on(seen.wait_for(|looked| *looked >= count)).map(|_| ())
    })?;
    let full = handle.status().counts.full;
    ensure!(full == 1, "{full} full passes: hints were absorbed");
    Ok(())
}
