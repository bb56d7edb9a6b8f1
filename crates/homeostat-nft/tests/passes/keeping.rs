//! The loop over real tables without hints: the timer heals what hints would have.
//!
//! The loop and the test share a thread, so that the loop moves only while the test waits.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{
    Alone, Bound, Control as _, Handle, Hints, LedgerKey, Loop, LoopDeps, MemoryLedger, Ownership,
    Pace,
};
use homeostat_nft::{DesiredState, Mark, Nft};

use crate::world::{World, by_hand, done, listed, nft};

const TEXT: &str = "table inet a {
    set s { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 }; }
    chain x { type filter hook input priority 0; policy drop; tcp dport 22 accept; ip saddr @s accept; }
}
table ip b { chain y { udp dport 53 accept; }; }";

/// However busy the machine is, what takes longer does not come.
const PATIENCE: Duration = Duration::from_mins(1);

#[test]
fn without_hints_the_timer_heals() {
    done(heals_by_timer());
}

async fn heals_by_timer() {
    let world = World::new();
    let (handle, looped) = looped(Nft::here(Mark::new("test")), world.desired(TEXT));
    tokio::spawn(looped.run());
    handle.wait_for(|status| status.is_converged).await.unwrap();
    let whole = listed();
    let rule = handle_of("tcp dport 22");
    let sabotage = [
        "flush ruleset".to_owned(),
        format!("delete rule inet a x handle {rule}"),
        "flush set inet a s".to_owned(),
        "add chain inet a x { policy accept; }".to_owned(),
    ];
    // A flushed ruleset comes back with other handles, so that the deleted rule comes first.
    for act in [1, 2, 3, 0].map(|nth: usize| &sabotage[nth]) {
        by_hand(act);
        assert_ne!(listed(), whole, "{act}");
        let healed = async {
            handle.wait_for(|_| listed() == whole).await.unwrap();
        };
        let seen = tokio::time::timeout(PATIENCE, healed).await;
        assert!(seen.is_ok(), "{act} is never healed: {:#?}", handle.status());
    }
    let counts = handle.status().counts;
    assert_eq!((counts.focused, counts.drift_by_hint), (0, 0), "there are no hints");
    assert!(counts.drift_by_resync >= 4, "{counts:?}");
}

fn handle_of(words: &str) -> String {
    let listing = nft(&["-a", "list", "table", "inet", "a"], "").unwrap();
    let line = listing.lines().find(|line| line.contains(words)).unwrap();
    line.rsplit(' ').next().unwrap().to_owned()
}

fn looped(source: Nft, desired: Arc<DesiredState>) -> (Handle<Nft>, Loop<Nft>) {
    let ledger_key = LedgerKey::new("test", "nft", "test");
    let bound = Bound::new(source, desired, Ownership::Marked, ledger_key);
    let lock = Arc::new(Alone::i_am_the_only_writer());
    let deps = LoopDeps::new(lock, Arc::new(MemoryLedger::default()));
    let mut pace = Pace::of::<Nft>(1).with_resync(Duration::from_millis(100)).unwrap();
    pace.hints = Hints::Ignore;
    let (looped, handle) = Loop::new(bound, deps, pace);
    (handle, looped)
}
