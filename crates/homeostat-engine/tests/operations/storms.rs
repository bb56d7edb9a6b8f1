//! Everything at once, by chance: faults, silent nodes, slow looks, commands, pauses, reloads and kills.

use std::time::Duration;

use homeostat_engine::{Control as _, Journal, Limits, Pages as _};
use tokio::task::JoinSet;

use crate::crashes::Dice;
use crate::server::{Fault, Id, Moment, Server};
use crate::stage::{MINUTE, Process, bound, let_pass, state_directory};

const SECOND: Duration = Duration::from_secs(1);
const GUESTS: u32 = 20;
const LIMITS: Limits = Limits { total: 12, per_node: 1 };

struct Storm {
    server: Server,
    process: Process,
    commands: JoinSet<()>,
    dice: Dice,
}

impl Storm {
    fn guest(&mut self) -> u32 {
        100 + u32::try_from(self.dice.roll(GUESTS.into())).unwrap()
    }

    fn seconds(&mut self, most: u64) -> Duration {
        SECOND / 10 * u32::try_from(self.dice.roll(most * 10)).unwrap()
    }

    /// A command holds a lane for a while, or gives up waiting for it.
    fn command(&mut self) {
        let (guest, operations) = (Id(self.guest()), self.process.operations.clone());
        let (waits, holds, starts) = (self.seconds(30), self.seconds(10), self.dice.roll(2) == 0);
        let server = self.server.clone();
        self.commands.spawn(async move {
            let entered =
                tokio::time::timeout(waits, operations.enter(&guest, &guest.node())).await;
            if let Ok(_held) = entered {
                let_pass(holds).await;
                if starts {
                    server.start(guest.0);
                }
            }
        });
    }

    /// A caller asks the loop for something, and may not wait for the answer.
    fn speak(&mut self) {
        let (key, verb, waits) = (Id(self.guest()), self.dice.roll(3), self.seconds(10));
        let handle = self.process.handle.clone();
        self.commands.spawn(async move {
            let asked = async {
                match verb {
                    0 => _ = handle.pass().await,
                    1 => _ = handle.look(&key.to_string()).await,
                    _ => _ = handle.adopt(&key.to_string()).await,
                }
            };
            let _ = tokio::time::timeout(waits, asked).await;
        });
    }

    fn fault(&mut self) {
        use Fault::{DropAnswer, DropRequest, FailTask, Hang, Idle, PanicInSend, Refuse};
        let faults = [DropAnswer, DropRequest, FailTask, Refuse, Hang, PanicInSend, Idle];
        let (guest, late) = (self.guest(), self.seconds(10));
        let fault = faults[usize::try_from(self.dice.roll(7)).unwrap()];
        self.server.stop(guest);
        self.server.breaks(guest, fault);
        self.server.world.lock().unwrap().late.insert(Id(guest), late);
    }

    fn look(&mut self) {
        let tells = if self.dice.roll(2) == 0 { Moment::Beginning } else { Moment::End };
        let (takes, is_hidden) = (self.seconds(4), self.dice.roll(4) == 0);
        let mut world = self.server.world.lock().unwrap();
        (world.looks_take, world.looks_tell) = (takes, tells);
        world.hidden = is_hidden.then_some("connection refused");
    }

    /// A guest cannot be seen for a while, or all can again.
    fn hide(&mut self, guest: u32) {
        let mut world = self.server.world.lock().unwrap();
        if self.dice.roll(3) == 0 {
            world.unseen.clear();
        } else {
            world.unseen.insert(Id(guest));
        }
    }

    /// Some guests leave the document.
    fn desired_less(&mut self) {
        let guests: Vec<u32> = (100..100 + GUESTS).filter(|_| self.dice.roll(3) > 0).collect();
        self.process.put(&self.server, &guests);
    }

    fn limit(&mut self) {
        let total = usize::try_from(self.dice.roll(12)).unwrap();
        self.process.operations.limit(Limits { total, per_node: 1 });
    }

    fn step(&mut self) {
        let guest = self.guest();
        match self.dice.roll(16) {
            0 | 1 => self.fault(),
            2 => self.server.stop(guest),
            3 => self.look(),
            4 => self.server.silence(&Id(guest).node()),
            5 => self.server.mend(),
            6 => self.process.put_again(&self.server),
            7 => self.process.handle.pause(None).unwrap(),
            8 => self.process.handle.resume().unwrap(),
            9 => self.speak(),
            10 => self.hide(guest),
            11 => self.desired_less(),
            12 => self.limit(),
            _ => self.command(),
        }
    }

    async fn calm(mut self, seed: u64) {
        {
            let mut world = self.server.world.lock().unwrap();
            (world.looks_take, world.hidden) = (Duration::ZERO, None);
            world.late.clear();
            world.unseen.clear();
        }
        self.process.operations.limit(LIMITS);
        self.process.put_again(&self.server);
        self.server.mend();
        self.process.handle.resume().unwrap();
        while self.commands.join_next().await.is_some() {}
        let all = self.process.converge();
        tokio::time::timeout(MINUTE * 30, all).await.unwrap_or_else(|_| {
            let (status, operations) = (self.process.handle.status(), &self.process.operations);
            panic!("seed {seed}: {status:?} {operations:?} {:?}", self.server.running())
        });
        self.process.operations.tasks_finished().await;
        let_pass(MINUTE * 3).await;
        assert!(self.server.running().iter().all(|running| *running), "seed {seed}");
        assert_eq!(self.process.operations.busy(), 0, "seed {seed}");
        let page = self.process.ledger.page(&bound(&self.server, &[]).ledger_key).unwrap();
        let open = page.records.iter().filter(|(_, record)| !record.contains("\"done\"")).count();
        assert_eq!(open, 0, "seed {seed}: {:?}", page.records);
        let journal: &Journal = self.process.operations.journal();
        assert!(journal.open_steps().is_empty(), "seed {seed}");
        let counts = self.process.handle.status().counts;
        let_pass(MINUTE * 10).await;
        let later = self.process.handle.status().counts;
        assert!(later.full - counts.full < 200, "seed {seed}: passes without a pause");
        assert!(later.focused - counts.focused < 10, "seed {seed}: {counts:?} {later:?}");
        let world = self.server.world.lock().unwrap();
        assert_eq!(world.breaches, Vec::<String>::new(), "seed {seed}");
        assert_eq!(world.most_per_node, 1, "seed {seed}");
    }
}

async fn weather(seed: u64, rounds: u32) {
    let state = state_directory();
    let server = Server::new(100..100 + GUESTS, SECOND * 5);
    server.world.lock().unwrap().recorded.extend((100..105).map(Id));
    server.world.lock().unwrap().questions_take = Some(SECOND * 20);
    let process = Process::start(&server, state.path(), LIMITS).await;
    let (commands, dice) = (JoinSet::new(), Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let mut storm = Storm { server, process, commands, dice };
    for _ in 0..rounds {
        let_pass(storm.seconds(3)).await;
        storm.step();
        if storm.dice.roll(60) == 0 {
            storm.commands.shutdown().await;
            storm.process.kill().await;
            storm.process = Process::start(&storm.server, state.path(), LIMITS).await;
        }
    }
    storm.calm(seed).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_storm_all_is_as_declared_and_nothing_was_sent_twice() {
    let is_soak = std::env::var_os("HOMEOSTAT_SOAK").is_some();
    for seed in 1..=if is_soak { 500 } else { 10 } {
        weather(seed, 200).await;
    }
}
