//! A kill before and after every record and every call, and a long life full of faults.

use std::time::Duration;

use homeostat_engine::Limits;

use crate::server::{Fault, Id, SENT, Server};
use crate::stage::{MINUTE, Process, WIDE, let_pass, state_directory};

/// A life that ends at the given point, unless it is over before; says whether it did. One guest answers
/// only after some time, so that it goes on without its pass.
async fn dies_at(point: u32, (fault, late): (Option<Fault>, Duration)) -> bool {
    let (server, state) = (Server::new(100..103, MINUTE), state_directory());
    if let Some(fault) = fault {
        server.breaks(101, fault);
    }
    {
        let mut world = server.world.lock().unwrap();
        world.late.insert(Id(101), late);
        world.fuse = Some(point);
    }
    let process = Process::start(&server, state.path(), WIDE).await;
    let died = tokio::select! {
        () = server.crashed.notified() => true,
        () = process.converge() => false,
    };
    process.kill().await;
    server.world.lock().unwrap().fuse = None;
    let process = Process::start(&server, state.path(), WIDE).await;
    process.converge().await;
    process.operations.tasks_finished().await;
    assert!(process.operations.journal().open_steps().is_empty(), "{fault:?} at {point}");
    let world = server.world.lock().unwrap();
    assert_eq!(world.breaches, Vec::<String>::new(), "{fault:?} at {point}");
    let expected = if fault == Some(Fault::FailTask) { 4 } else { 3 };
    assert_eq!(world.calls.len(), expected, "{fault:?} at {point}: {:?}", world.calls);
    died
}

#[tokio::test(start_paused = true)]
async fn a_kill_at_any_point_sends_nothing_twice_and_loses_nothing() {
    use Fault::{DropAnswer, DropRequest, FailTask, Refuse};
    for fault in [None, Some(DropAnswer), Some(DropRequest), Some(Refuse), Some(FailTask)] {
        for late in [Duration::ZERO, MINUTE / 4] {
            let mut point = 0;
            while dies_at(point, (fault, late)).await {
                point += 1;
            }
            assert!(point > 10, "{fault:?}, {late:?}: only {point} points");
        }
    }
}

pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Guests stop by themselves, requests and answers are lost or late, tasks fail, nodes fall silent, the desired state is
/// put again, the process is killed.
async fn a_life(seed: u64, (guests, minutes): (u32, u32)) {
    use Fault::{DropAnswer, DropRequest, FailTask, Refuse};
    let (server, state) = (Server::new(100..100 + guests, MINUTE / 2), state_directory());
    let limits = Limits { total: 24, per_node: 4 };
    let mut dice = Dice(seed);
    let mut process = Process::start(&server, state.path(), limits).await;
    for _ in 0..minutes * 6 {
        let_pass(Duration::from_secs(10)).await;
        for _ in 0..dice.roll(u64::from(guests / 5)) {
            let guest = 100 + u32::try_from(dice.roll(guests.into())).unwrap();
            let faults = [DropAnswer, DropRequest, FailTask, Refuse];
            server.stop(guest);
            server.breaks(guest, faults[usize::try_from(dice.roll(4)).unwrap()]);
            let late = Duration::from_secs(dice.roll(4) * dice.roll(10));
            server.world.lock().unwrap().late.insert(Id(guest), late);
        }
        match dice.roll(12) {
            0 => server.silence(&format!("pve{}", dice.roll(10))),
            1 | 2 => server.mend(),
            3 => process.put_again(&server),
            _ => {}
        }
        if dice.roll(30) == 0 {
            process.kill().await;
            process = Process::start(&server, state.path(), limits).await;
        }
    }
    server.mend();
    process.converge().await;
    process.operations.tasks_finished().await;
    assert!(server.running().iter().all(|running| *running), "seed {seed}");
    let world = server.world.lock().unwrap();
    assert_eq!(world.breaches, Vec::<String>::new(), "seed {seed}");
    let most = (world.most_per_node, world.most_in_all);
    assert_eq!(most, (4, 24), "seed {seed}: as many as may be, and no more");
    let length = std::fs::metadata(state.path().join("journal")).unwrap().len();
    let (sent, needed) = (world.calls.len() * SENT, usize::try_from(guests).unwrap() * SENT);
    // Of a guest an open step and the last one that ended; and the file may grow to twice that.
    let most = (1 << 20).max(4 * needed);
    assert!(sent > most, "seed {seed}: {sent} bytes are too few to need a bound");
    assert!(length < most as u64, "seed {seed}: the journal has {length} bytes of {sent}");
}

#[tokio::test(start_paused = true)]
async fn guests_on_ten_nodes_come_through_an_hour_of_faults() {
    let is_soak = std::env::var_os("HOMEOSTAT_SOAK").is_some();
    let (size, seeds) = if is_soak { ((500, 60), 3) } else { ((100, 15), 2) };
    for seed in 1..=seeds {
        a_life(seed, size).await;
    }
}
