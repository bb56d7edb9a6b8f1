//! Keeps a target as declared without the loop: a timer and the single pass, both public.
//!
//! It has no hints, no backoff and no patience with a fight, and it looks at everything each time.
//! Run it with `cargo run -p homeostat-engine --example timer`.

#[path = "declared/bound.rs"]
mod bound;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{Alone, Explain as _, Hints, MemoryLedger, Session};
use homeostat_testkit::memory::Target;

use self::bound::bound;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    keep(&Target::default()).await
}

async fn keep(target: &Target) -> Result<(), Box<dyn Error>> {
    let (lock, ledger) = (Alone::i_am_the_only_writer(), Arc::new(MemoryLedger::default()));
    let bound = bound(target)?;
    let mut session = Session::open(&bound, &lock, ledger, Hints::Ignore).await?;
    let mut timer = tokio::time::interval(Duration::from_millis(10));
    for _ in 0..3 {
        timer.tick().await;
        let report = session.pass(&bound).await?;
        if !report.is_converged() {
            return Err("this target never refuses".into());
        }
        target.remove("door"); // Another program deletes it, and it comes back.
    }
    session.pass(&bound).await?;
    Ok(())
}
