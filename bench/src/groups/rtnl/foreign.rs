//! A few routes of ours among a million foreign ones that keep changing.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use homeostat_engine::{Action, Focus};
use homeostat_netlink::{
    Batch, Event, Family, Group as Multicast, Listener, Options, Socket, uapi,
};

use super::super::network::TestNetwork;
use super::super::wire::{FOREIGN, Ip, RouteMessages, Verb, send_all, send_raw};
use super::converged;
use super::fixture::{FEW, Fixture, Prepared, Setup, Whose, expect, key, with_prepared};
use crate::{Budget, Group, Run, Unit, clock};

pub(super) fn groups() -> Vec<Group> {
    vec![
        // CPU time per second: of the process that changes routes, or of one that listens.
        Group::new("rtnl: work a second, 10k changes/s of 1M foreign routes", Unit::Seconds)
            .with("the changes, nobody listens", alone, &[])
            .with(
                "the changes, homeostat listens",
                |run| beside_source(run, |work| work.changes),
                &[],
            )
            .with("a listener that hears all", receive_all, &[])
            .with(
                "homeostat, listening",
                |run| beside_source(run, |work| work.listening),
                &[Budget::AtMost(0.02)],
            ),
        // A full pass over a few routes of ours reads all the others.
        Group::new("rtnl: converged pass beside 1M foreign routes", Unit::Seconds)
            .with("raw dump", |run| converged::raw(run, Whose::Foreign), &[])
            .with(
                "homeostat",
                |run| converged::ours(run, Whose::Foreign),
                &[Budget::Within(1.5, "raw dump")],
            ),
    ]
}

const MESSAGES: RouteMessages = RouteMessages { ip: Ip::V4, protocol: FOREIGN };
const INTERVAL: Duration = Duration::from_millis(10);
/// Deleted and added again in each interval: 10k changes a second.
const ROUTES_PER_INTERVAL: usize = 50;

/// How often a listener checks whether the changes are over.
const CHECK: Duration = Duration::from_millis(100);

fn setup(run: &Run) -> Setup {
    Setup::full_table(run, Whose::Foreign)
}

/// CPU seconds per second.
struct Work {
    changes: f64,
    listening: f64,
}

/// The thread that changes routes, and returns its CPU time.
type Churn = JoinHandle<Result<Duration>>;

/// Changes routes at a steady pace, and calls `listen` meanwhile.
fn churn(
    run: &Run,
    network: &TestNetwork,
    listen: impl FnOnce(&Churn) -> Result<()>,
) -> Result<Work> {
    let intervals = run.size(200, 20);
    let socket = network.socket()?;
    let places = (0..intervals).map(|nth| nth * ROUTES_PER_INTERVAL);
    let sends = places.map(one_interval).collect::<Result<Vec<_>>>()?;
    let churn = thread::spawn(move || {
        let (changed, work) = clock::time_at_work(|| change(&socket, &sends));
        changed.map(|()| work)
    });
    let (listened, listening) = clock::time_at_work(|| listen(&churn));
    listened?;
    let changes =
        churn.join().map_err(|_| anyhow!("the thread that changes routes panicked"))??;
    // On a busy machine the changes may have taken longer than this.
    let lasts = INTERVAL.as_secs_f64() * f64::from(u32::try_from(intervals)?);
    Ok(Work { changes: changes.as_secs_f64() / lasts, listening: listening.as_secs_f64() / lasts })
}

/// Deletes a few routes and adds them again.
fn one_interval(first: usize) -> Result<[Batch; 2]> {
    let numbers = first..first + ROUTES_PER_INTERVAL;
    Ok([MESSAGES.send(Verb::Delete, numbers.clone())?, MESSAGES.send(Verb::Add, numbers)?])
}

fn change(socket: &Socket, sends: &[[Batch; 2]]) -> Result<()> {
    let start = clock::now();
    let mut next = Duration::ZERO;
    for batches in sends {
        thread::sleep(next.saturating_sub(start.elapsed()));
        send_all(socket, batches)?;
        next += INTERVAL;
    }
    Ok(())
}

fn alone(run: &mut Run) -> Result<()> {
    let network = TestNetwork::filled(MESSAGES, setup(run).size)?;
    run.record(churn(run, &network, |_| Ok(()))?.changes);
    Ok(())
}

fn beside_source(run: &mut Run, figure: fn(&Work) -> f64) -> Result<()> {
    let setup = setup(run);
    with_prepared(setup, |Prepared { network, fixture }| {
        fixture.drain()?;
        run.record(figure(&churn(run, network, |churn| listen(fixture, churn))?));
        still_heals(network, fixture, setup.size)
    })
}

/// Waits for hints; there must be none.
fn listen(fixture: &mut Fixture, churn: &Churn) -> Result<()> {
    while !churn.is_finished() {
        let hint = fixture.hint(CHECK)?;
        ensure!(hint.is_none(), "a hint about what is foreign: {hint:?}");
    }
    Ok(())
}

/// Checks that a deleted route of ours still causes a hint, and is restored.
fn still_heals(network: &TestNetwork, fixture: &mut Fixture, size: usize) -> Result<()> {
    let last = size + FEW - 1;
    let delete = RouteMessages::ours(Ip::V4).send(Verb::Delete, last..last + 1)?;
    send_raw(&network.socket()?, &delete)?;
    fixture.await_hint(&key(Ip::V4, last)?)?;
    expect(&fixture.pass(Focus::All)?, [Action::Create])
}

/// The simplest listener: it receives every change.
fn receive_all(run: &mut Run) -> Result<()> {
    with_prepared(setup(run), |prepared| {
        let groups = [Multicast(uapi::RTNLGRP_IPV4_ROUTE)];
        let mut listener = Listener::open(Family::Route, &groups, &Options::for_events())?;
        let mut count = 0;
        let work = churn(run, &prepared.network, |churn| {
            while !churn.is_finished() {
                listener.receive_within(CHECK, &mut |event| {
                    count += usize::from(matches!(event, Event::Message(_)));
                })?;
            }
            Ok(())
        })?;
        ensure!(count > 0, "no event was received");
        run.record(work.listening);
        Ok(())
    })
}
