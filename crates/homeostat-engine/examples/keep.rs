//! Keeps a target as declared, with the loop.
//!
//! Run it with `cargo run -p homeostat-engine --example keep`.

#[path = "declared/bound.rs"]
mod bound;

use std::error::Error;
use std::sync::Arc;

use homeostat_engine::{Alone, Control as _, Loop, LoopDeps, MemoryLedger, OnStop, Pace};
use homeostat_testkit::memory::Target;

use self::bound::{Source, bound};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    keep(&Target::default()).await
}

async fn keep(target: &Target) -> Result<(), Box<dyn Error>> {
    let (lock, ledger) = (Arc::new(Alone::i_am_the_only_writer()), MemoryLedger::default());
    let deps = LoopDeps::new(lock, Arc::new(ledger));
    let (kept, handle) = Loop::new(bound(target)?, deps, Pace::of::<Source>(1));
    let running = tokio::spawn(kept.run());
    handle.wait_for(|status| status.is_converged).await?;
    target.remove("door"); // Another program deletes it, and it comes back.
    handle.wait_for(|status| status.counts.applied == 3).await?;
    handle.stop(OnStop::Leave).await;
    Ok(running.await?)
}
