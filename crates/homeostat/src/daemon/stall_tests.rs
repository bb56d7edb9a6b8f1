//! A loop in virtual time that is driven, or not, and what others see of it then.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use homeostat_engine::{
    Alone, Bound, Events, LedgerKey, LoopDeps, LoopTask, MemoryLedger, Ownership, Pace, Table,
};
use homeostat_testkit::memory::{Independent, Memory, Target};
use tokio::sync::watch;

use super::http;
use super::loops_snapshot::LoopsSnapshot;
use super::systemd::Systemd;

/// A loop that does not run yet, by its handle.
fn undriven() -> (LoopTask, watch::Sender<LoopsSnapshot>, Events) {
    let events = Events::default();
    let deps = LoopDeps::new(Alone::i_am_the_only_writer(), Arc::new(MemoryLedger::default()))
        .with_events(events.clone());
    let source = Memory::<Independent>::marked(Target::default());
    let desired = Table::new([("a".to_owned(), "1".to_owned())]).unwrap();
    let place = LedgerKey::new("default", "memory", "host");
    let bound = Bound::new(source, desired, Ownership::Marked, place);
    let kept = bound.into_loop(deps, Pace::of::<Memory<Independent>>(1));
    let loops = vec![Arc::clone(&kept.control)];
    let snapshot = LoopsSnapshot { loops, is_arranged: true, ..LoopsSnapshot::default() };
    (kept, watch::Sender::new(snapshot), events)
}

/// Lets virtual time pass.
async fn later(seconds: u64) {
    let time = Duration::from_secs(seconds);
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

#[tokio::test(start_paused = true)]
async fn health_is_denied_while_a_loop_is_stuck_and_no_longer() {
    let (kept, snapshot, _events) = undriven();
    let site = http::site_of(snapshot.subscribe());
    let status = |path| {
        // Nothing is waited for: these are answered from what is known.
        let answer = site.answer(path, "").now_or_never();
        answer.map_or(0, |answer| answer.status().as_u16())
    };
    assert_eq!(status("/healthz"), 200);
    later(3600).await;
    assert_eq!((status("/healthz"), status("/readyz")), (503, 503));
    assert_eq!(status("/api/v1/status"), 200, "that can still be read");
    tokio::spawn(kept.run);
    later(60).await;
    assert_eq!((status("/healthz"), status("/readyz")), (200, 200));
    later(24 * 3600).await;
    assert_eq!(status("/healthz"), 200, "idle is healthy");
}

/// What systemd received since the last call.
fn received(socket: &UnixDatagram) -> Vec<String> {
    let next = || {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(buffer.get(..length)?).into_owned())
    };
    std::iter::from_fn(next).collect()
}

fn alive(socket: &UnixDatagram) -> usize {
    received(socket).iter().filter(|words| *words == "WATCHDOG=1").count()
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_is_fed_only_while_no_loop_is_stuck() {
    let (kept, snapshot, events) = undriven();
    let name = format!("homeostat-watchdog-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    socket.set_nonblocking(true).unwrap();
    let systemd = Systemd::towards(address, Duration::from_secs(10));
    tokio::spawn(systemd.follow(snapshot.subscribe(), events.subscribe()));
    later(35).await;
    assert_eq!(alive(&socket), 3, "nothing is wrong yet");
    later(60).await;
    received(&socket);
    later(60).await;
    assert_eq!(alive(&socket), 0, "it is stuck");
    tokio::spawn(kept.run);
    later(60).await;
    assert!(alive(&socket) >= 4, "it goes on");
}
