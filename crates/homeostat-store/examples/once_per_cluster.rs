//! A loop that runs on one of two machines, and goes on at the other when the first one dies.
//!
//! Here both are tasks over a store in memory, in virtual time; with `homeostat_etcd::EtcdStore` and
//! [`BootTime`](homeostat_store::BootTime) they are processes on machines.

#![expect(clippy::print_stdout, reason = "it is an example")]

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use homeostat_store::{Candidate, Held, Holder, MemoryStore, RuntimeTime};
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_secs(5);
/// The longest time that the loop waits for an answer of its target.
const ANSWER: Duration = Duration::from_secs(2);

/// The loop. Each round looks at the target first: what the machine before has done is learnt from there.
async fn lamps(name: &'static str, held: Held, began: Instant) {
    println!("{:>4.1?} {name} looks at everything", began.elapsed());
    held.until_clear().await;
    loop {
        // Right before each request that must not be sent twice, and by somebody who does not lead never.
        let Ok(dispatch) = held.dispatch() else { return };
        println!("{:>4.1?} {name} switches a lamp", began.elapsed());
        dispatch.answered();
        sleep(Duration::from_secs(3)).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    tokio::time::pause();
    let (store, began) = (MemoryStore::new(), Instant::now());
    let machine = |name: &'static str| {
        let (store, clock) = (Arc::new(store.clone()), Arc::new(RuntimeTime::new()));
        let candidate = Candidate::new(store, clock, "/lead/lamps", name, LEASE);
        tokio::spawn(async move {
            let holder = Holder::new(candidate, ANSWER);
            holder.while_held(|held| lamps(name, held, began), pending()).await;
        })
    };
    let first = machine("one");
    sleep(Duration::from_secs(1)).await;
    let second = machine("two");
    sleep(Duration::from_secs(7)).await;
    println!("{:>4.1?} one dies", began.elapsed());
    first.abort();
    // The lease expires, and what the first one has sent has arrived before anything is sent again.
    let _ = timeout(Duration::from_secs(20), second).await;
}
