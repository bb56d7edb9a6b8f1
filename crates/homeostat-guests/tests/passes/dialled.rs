//! Clients that reach their server another way than by TCP: judged and given up all the same.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use homeostat_core::{Failure, Reader as _};
use homeostat_engine::{Focus, Source as _, View};
use homeostat_guests::{Client, Guests, Run, Timeouts, Token, Trust};
use homeostat_pve_simulator::{Guest, InMemory, Kind, Simulator, World};
use tokio::io::DuplexStream;
use tokio::time::Instant;

use crate::ground::{desired, runs};

fn cluster() -> InMemory {
    InMemory::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1"))).unwrap()
}

/// A client that trusts a certificate, and would reach its server by TCP.
fn client(fingerprint: &str) -> Client {
    let trust = Trust::Pinned(fingerprint.parse().unwrap());
    let token = Token::parse(&Simulator::token()).unwrap();
    Client::new(InMemory::endpoint().parse().unwrap(), token, &trust).unwrap()
}

/// Looks at guest 101.
async fn look(client: &Client) -> Result<(), Failure> {
    let source = Guests::new(client, "default", Timeouts::default());
    let (focus, records) = (Focus::All, std::collections::BTreeMap::new());
    let desired = desired([(101, runs(Run::Running))]);
    let view = View::new(&focus, &desired, &records);
    source.reader().unwrap().observe(&view, &mut |_| {}).await.map(|_| ())
}

#[tokio::test(start_paused = true)]
async fn a_client_is_led_to_its_endpoint_and_keeps_its_connections() {
    let (cluster, dials) = (cluster(), Arc::new(AtomicUsize::new(0)));
    let (dialled, counted) = (cluster.clone(), Arc::clone(&dials));
    let client = client(cluster.fingerprint()).through(move |to| {
        counted.fetch_add(1, Ordering::Relaxed);
        let stream = (to.to_string() == InMemory::endpoint()).then(|| dialled.dial());
        async move { stream.ok_or_else(|| io::Error::other("no connection was expected")) }
    });
    look(&client).await.unwrap();
    let before = dials.load(Ordering::Relaxed);
    look(&client).await.unwrap();
    assert!(before > 0 && before == dials.load(Ordering::Relaxed), "the second look needs none");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_reached_another_way_is_judged_by_its_certificate() {
    let cluster = cluster();
    let (dialled, pin) = (cluster.clone(), ["AB"; 32].join(":"));
    let client = client(&pin).through(move |_| {
        let stream = dialled.dial();
        async move { Ok(stream) }
    });
    let failure = look(&client).await.unwrap_err();
    assert!(failure.error.contains(cluster.fingerprint()), "{failure:?}");
    assert_eq!(cluster.with(|world| world.calls.len()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_way_that_leads_nowhere_is_given_up_in_time() {
    let cluster = cluster();
    let nowhere = client(cluster.fingerprint())
        .through(|_| async { Err::<DuplexStream, _>(io::Error::other("the tunnel is down")) });
    let failure = look(&nowhere).await.unwrap_err();
    assert!(failure.error.contains("the tunnel is down"), "{failure:?}");
    let endless = client(cluster.fingerprint()).through(|_| pending::<io::Result<DuplexStream>>());
    let begun = Instant::now();
    let failure = look(&endless).await.unwrap_err();
    assert!(failure.error.contains("cannot reach https://localhost:8006"), "{failure:?}");
    assert_eq!(begun.elapsed().as_secs(), Timeouts::default().answer.as_secs());
    assert!(begun.elapsed() < Timeouts::default().answer + Duration::from_secs(1));
}
