//! The loop heals by hints alone whatever another program does to its tables, and touches no others.
//!
//! The loop and the test share a thread, so that the loop moves only while the test waits.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{
    Alone, Bound, Control as _, Handle, LedgerKey, Loop, LoopDeps, MemoryLedger, Ownership, Pace,
};
use homeostat_nft::{DesiredState, Mark, Nft};

use crate::storm::Dice;
use crate::world::{World, by_hand, done, listed_if_readable, nft};

const TEXT: &str = "table inet a {
    counter c { }
    set s { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2, 10.0.0.3 }; }
    set i { type ipv4_addr; flags interval; elements = { 10.0.0.0/24, 10.2.0.0/16 }; }
    set p { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/24 . 1-3 }; }
    map m { type ipv4_addr : verdict; elements = { 10.0.0.1 : accept, 10.0.0.2 : jump y }; }
    chain y { counter; tcp dport { 7, 8 } accept; }
    chain x { type filter hook input priority 0; policy drop; tcp dport 22 accept; ip saddr @s accept; ip saddr vmap @m; ip saddr @i drop; }
}
table ip b { chain y { udp dport 53 accept; udp dport 54 accept; }; }";

const STRANGER: &str = "table ip stranger {
    set s { type ipv4_addr; }
    chain x { type filter hook input priority 5; counter packets 7 bytes 8; tcp dport { 1, 2 } drop; }
}
table inet other { set n { type ipv4_addr; }; }";

const SABOTAGE: [&str; 18] = [
    "flush ruleset",
    "delete table inet a",
    "flush chain inet a x",
    "flush set inet a s; add element inet a s { 10.9.9.9 }",
    "add element inet a i { 10.1.0.0/16 }",
    "delete element inet a p { 10.0.0.0/24 . 1-3 }",
    "delete element inet a m { 10.0.0.2 }; add element inet a m { 10.0.0.2 : drop }",
    "insert rule inet a x accept",
    "insert rule inet a x accept; insert rule inet a x tcp dport 99 accept",
    "add rule inet a x index 0 tcp dport 80 accept",
    "insert rule ip b y index 1 counter",
    "add chain inet a x { policy accept; }",
    "add chain inet a x; add table inet a { flags dormant; }",
    "add chain inet a z; add rule inet a z drop; add rule inet a y jump z",
    "rename chain inet a y w",
    "delete counter inet a c",
    "add limit inet a l { rate 1/second; }",
    "add set inet a t { type ipv4_addr; elements = { 1.1.1.1 }; }; add rule inet a y ip saddr @t drop",
];

/// The loop takes its time against a program that never gives up: the clock is moved to when it goes on. What is not
/// healed by then waits for the timer, which is far away.
const PATIENCE: Duration = Duration::from_hours(2);

fn looped(desired: Arc<DesiredState>) -> (Handle<Nft>, Loop<Nft>) {
    let (source, place) = (Nft::here(Mark::new("test")), LedgerKey::new("test", "nft", "test"));
    let bound = Bound::new(source, desired, Ownership::Marked, place);
    let lock = Arc::new(Alone::i_am_the_only_writer());
    let deps = LoopDeps::new(lock, Arc::new(MemoryLedger::default()));
    // Only a hint is in time.
    let every = Pace::of::<Nft>(1).with_resync(Duration::from_hours(10)).unwrap();
    let (looped, handle) = Loop::new(bound, deps, every);
    (handle, looped)
}

/// The tables of others, with handles.
fn strangers() -> String {
    nft(&["-a", "list", "table", "ip", "stranger"], "").unwrap()
}

async fn heals_by_hint(rounds: u32) {
    let world = World::new();
    by_hand(STRANGER);
    let (handle, looped) = looped(world.desired(TEXT));
    tokio::spawn(looped.run());
    handle.wait_for(|status| status.is_converged).await.unwrap();
    tokio::time::pause();
    let (whole, mut dice) = (listed_if_readable(), Dice::new(7));
    for round in 0..rounds {
        let mut acts = Vec::new();
        for _ in 0..=dice.roll(4) {
            let act = *dice.one_of(&SABOTAGE);
            // What went already cannot be harmed.
            if nft(&["-f", "-"], act).is_ok() {
                acts.push(act);
            }
        }
        if listed_if_readable() == whole {
            continue;
        }
        if nft(&["list", "table", "ip", "stranger"], "").is_err() {
            by_hand(STRANGER);
        }
        let before = strangers();
        let healed = async {
            handle.wait_for(|_| listed_if_readable() == whole).await.unwrap();
        };
        let seen = tokio::time::timeout(PATIENCE, healed).await;
        assert!(seen.is_ok(), "round {round}: {acts:?} is never healed: {:#?}", handle.status());
        assert_eq!(strangers(), before, "round {round}: {acts:?}");
    }
    let counts = handle.status().counts;
    assert_eq!(counts.drift_by_resync, 0, "{counts:?}");
    assert!(counts.drift_by_hint > 0, "{counts:?}");
}

#[test]
fn any_sabotage_is_healed_by_hint() {
    let rounds = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 300 } else { 40 };
    done(heals_by_hint(rounds));
}

/// A program that never pauses while we heal.
async fn outlasts(commits: u32) {
    let world = World::new();
    by_hand(STRANGER);
    let (handle, looped) = looped(world.desired(TEXT));
    tokio::spawn(looped.run());
    handle.wait_for(|status| status.is_converged).await.unwrap();
    let (whole, before) = (listed_if_readable(), strangers());
    let netns = homeostat_netns::Netns::current().unwrap();
    let saboteur = std::thread::spawn(move || {
        netns.enter().unwrap();
        let mut dice = Dice::new(11);
        for nth in 0..commits {
            // All but the first, which harms everybody.
            let act = *dice.one_of(&SABOTAGE[1..]);
            let _ = nft(&["-f", "-"], act);
            by_hand(&format!("add element inet other n {{ 10.7.{}.{} }}", nth >> 8, nth & 255));
        }
    });
    while !saboteur.is_finished() {
        let _ = tokio::time::timeout(Duration::from_millis(20), handle.wait_for(|_| false)).await;
    }
    saboteur.join().unwrap();
    tokio::time::pause();
    let other = nft(&["list", "table", "inet", "other"], "").unwrap();
    assert_eq!(other.matches("10.7.").count(), usize::try_from(commits).unwrap());
    by_hand("flush set inet other n");
    let healed = async {
        handle.wait_for(|_| listed_if_readable() == whole).await.unwrap();
    };
    let seen = tokio::time::timeout(PATIENCE, healed).await;
    assert!(seen.is_ok(), "never healed: {:#?}", handle.status());
    assert_eq!(strangers(), before);
    assert_eq!(handle.status().counts.drift_by_resync, 0, "{:?}", handle.status().counts);
}

#[test]
fn a_saboteur_that_never_rests_is_outlasted_by_hint() {
    done(outlasts(if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 2000 } else { 150 }));
}
