//! What goes wrong, by dice that fall the same way for the same seed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use homeostat_guests::{Run, Vmid};
use homeostat_pve_simulator::{End, Fault, Harm, Script, World};
use tokio::time::Instant;

use super::stage::{FIRST, Stage, node};

/// Another client stopped a guest that shall run, or started one that shall not.
pub(crate) struct Disturbance {
    pub(crate) at: Instant,
    pub(crate) vmid: u32,
    pub(crate) runs: bool,
}

/// What ends by itself.
enum Relief {
    Unlock(u32),
    Online(String),
    Reach,
}

/// What a target says too much, in bytes.
const LONG: usize = 900_000;

pub(crate) struct Trouble<'a> {
    stage: &'a Stage,
    dice: u64,
    troubled: u32,
    reliefs: Vec<(Instant, Relief)>,
    /// Bodies of answers that make no sense, or too much of it.
    bodies: [Arc<str>; 4],
    pub(crate) disturbances: Vec<Disturbance>,
}

impl<'a> Trouble<'a> {
    pub(crate) fn new(stage: &'a Stage, (seed, troubled): (u64, u32)) -> Self {
        let dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let long = "x".repeat(LONG);
        let bodies = [
            format!(r#"{{"data":null,"message":"{long}"}}"#),
            format!(r#"{{"data":[{}]}}"#, vec!["{}"; LONG / 3].join(",")),
            format!(r#"{{"data":"UPID:{long}"}}"#),
            r#"{"data":{"status":["running"],"vmid":{}}}"#.to_owned(),
        ];
        let (reliefs, disturbances) = (Vec::new(), Vec::new());
        let bodies = bodies.map(Arc::from);
        Trouble { stage, dice, troubled, reliefs, bodies, disturbances }
    }

    fn roll(&mut self, sides: u32) -> u32 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        u32::try_from(self.dice % u64::from(sides)).unwrap()
    }

    fn seconds(&mut self, most: u32) -> Duration {
        Duration::from_millis(u64::from(self.roll(most * 1000) + 1))
    }

    /// The time to the next trouble: ten seconds, more or less, so that nothing falls into step with it.
    pub(crate) fn pause(&mut self) -> Duration {
        Duration::from_secs(5) + self.seconds(10)
    }

    pub(crate) fn rarely(&mut self) -> bool {
        self.roll(15) == 0
    }

    /// A bit of everything.
    pub(crate) fn stir(&mut self) {
        self.relieve();
        let guests = u32::try_from(self.stage.desired.iter().count()).unwrap();
        for _ in 0..self.roll(self.troubled) {
            let vmid = FIRST + self.roll(guests);
            match self.roll(12) {
                0..6 => self.disturb(vmid),
                6 => self.edit(vmid),
                7 => self.occupy(vmid),
                8 => self.lock(vmid),
                9 => self.relocate(vmid),
                _ => {}
            }
            self.harm(vmid);
        }
        match self.roll(16) {
            0 => self.hang(),
            1 => self.flap(),
            2 => self.take_offline(),
            3 => self.slow_down(),
            4 => self.cut_off(),
            5..9 => {
                let shy = self.roll(4);
                self.world(|world| world.hidden_queries = shy);
            }
            _ => {}
        }
    }

    /// Nothing goes wrong any more.
    pub(crate) fn end(&mut self) {
        for (at, _) in &mut self.reliefs {
            *at = Instant::now();
        }
        self.relieve();
        self.world(|world| {
            world.mend();
            world.hidden_queries = 0;
        });
    }

    fn relieve(&mut self) {
        let now = Instant::now();
        let (due, rest) =
            std::mem::take(&mut self.reliefs).into_iter().partition(|(at, _)| *at <= now);
        self.reliefs = rest;
        let due: Vec<_> = due;
        for (_, relief) in due {
            match relief {
                Relief::Unlock(vmid) => self.guest(vmid, |guest| guest.lock = None),
                Relief::Online(node) => self.world(|world| _ = world.nodes.insert(node, true)),
                Relief::Reach => self.stage.is_cut_off.store(false, Ordering::Relaxed),
            }
        }
    }

    fn world<T>(&self, what: impl FnOnce(&mut World) -> T) -> T {
        self.stage.cluster.with(what)
    }

    fn guest<T>(
        &self,
        vmid: u32,
        what: impl FnOnce(&mut homeostat_pve_simulator::Guest) -> T,
    ) -> T {
        self.world(|world| what(world.guests.get_mut(&vmid).unwrap()))
    }

    /// A guest stops, or is started by hand, and what is done about it may go wrong, too.
    fn disturb(&mut self, vmid: u32) {
        let wanted = self.stage.desired.wanted(&Vmid(vmid)).and_then(|wanted| wanted.run);
        let runs = wanted != Some(Run::Running);
        let was = self.guest(vmid, |guest| {
            if guest.is_ha && guest.running != runs {
                // A client that does that asks the resource manager, too.
                guest.managed = Some(if runs { "started" } else { "stopped" }.to_owned());
            }
            std::mem::replace(&mut guest.running, runs)
        });
        if was != runs {
            self.disturbances.push(Disturbance { at: Instant::now(), vmid, runs });
        }
        if was != runs && self.roll(4) > 0 {
            let longest = if self.roll(20) == 0 { 400 } else { 45 };
            let (takes, end) = (self.seconds(longest), self.ending());
            self.world(|world| world.script(vmid, Script { takes, end }));
        }
    }

    fn ending(&mut self) -> End {
        match self.roll(10) {
            0 => End::Warnings(1),
            1 | 2 => End::Error("startup for container failed".to_owned()),
            3 if self.roll(4) == 0 => End::Error("x".repeat(LONG)),
            3 => End::Killed,
            4 => End::KilledAfterEffect,
            _ => End::Ok,
        }
    }

    fn edit(&mut self, vmid: u32) {
        self.guest(vmid, |guest| {
            guest.config.insert("description".to_owned(), "by hand\n".to_owned());
        });
    }

    fn occupy(&mut self, vmid: u32) {
        let takes = self.seconds(150);
        self.world(|world| world.occupy(vmid, "vzdump", takes));
    }

    fn lock(&mut self, vmid: u32) {
        self.guest(vmid, |guest| guest.lock = Some("backup".to_owned()));
        let until = Instant::now() + self.seconds(90);
        self.reliefs.push((until, Relief::Unlock(vmid)));
    }

    /// A guest that may be on any node goes to another one, unless something is at work on it.
    fn relocate(&mut self, vmid: u32) {
        let to = node(self.roll(10));
        let is_pinned =
            self.stage.desired.wanted(&Vmid(vmid)).is_none_or(|wanted| wanted.node.is_some());
        self.world(|world| {
            let mut tasks = world.tasks().iter();
            let is_busy = tasks.any(|task| task.upid.vmid == vmid && task.is_running());
            if !is_pinned && !is_busy {
                world.guests.get_mut(&vmid).unwrap().node = to;
            }
        });
    }

    /// The next request of some kind about a guest goes wrong.
    fn harm(&mut self, vmid: u32) {
        let harm = match self.roll(12) {
            0 => Harm::DropRequest,
            1 | 2 => Harm::DropResponse,
            3 => Harm::Mask(596, "Broken pipe".to_owned()),
            4 => Harm::Refuse(599, "Too many redirections".to_owned()),
            5 => Harm::Slow(self.seconds(30)),
            6 => Harm::Late(self.seconds(30)),
            7 | 8 => {
                let body = usize::try_from(self.roll(4)).unwrap();
                let status = if self.roll(2) == 0 { 200 } else { 500 };
                Harm::Answer(status, Arc::clone(&self.bodies[body]))
            }
            9 => return self.delay_or_repeat(vmid),
            _ => return,
        };
        let on = |path: String| Fault::on(path, harm);
        let fault = match self.roll(8) {
            0..4 => on(format!("/{vmid}/status/")).method("POST"),
            4 => on(format!("/{vmid}/config")).method("PUT"),
            5 => on(format!("/{vmid}/")),
            6 if self.roll(2) == 0 => on(format!("/nodes/{}/lxc", node(vmid))).method("GET"),
            6 => on(format!(":{vmid}:")),
            _ => on(format!("/nodes/{}/tasks", node(vmid))),
        };
        let times = 1 + self.roll(2);
        self.fail(fault.times(times), 60);
    }

    /// A start begins long after it was sent, or a change of options arrives twice.
    fn delay_or_repeat(&mut self, vmid: u32) {
        let fault = match self.roll(2) {
            0 => {
                let late = Harm::BeginLater(self.seconds(19));
                Fault::on(format!("/{vmid}/status/"), late).method("POST")
            }
            _ => Fault::on(format!("/{vmid}/config"), Harm::Twice).method("PUT"),
        };
        self.fail(fault.times(1), 60);
    }

    fn fail(&mut self, fault: Fault, most: u32) {
        let until = Instant::now() + self.seconds(most);
        self.world(|world| world.fail(fault.until(until)));
    }

    fn on_a_node(&mut self, harm: Harm) -> Fault {
        Fault::on(format!("/nodes/{}/", node(self.roll(10))), harm)
    }

    /// A node takes requests and answers none.
    fn hang(&mut self) {
        let fault = self.on_a_node(Harm::Slow(Duration::from_hours(2)));
        self.fail(fault, 300);
    }

    fn flap(&mut self) {
        let harm = match self.roll(2) {
            0 => Harm::DropResponse,
            _ => Harm::Mask(596, "Connection timed out".to_owned()),
        };
        let between = 1 + self.roll(4);
        let fault = self.on_a_node(harm).flapping(between);
        self.fail(fault, 120);
    }

    fn slow_down(&mut self) {
        let pause = self.seconds(8);
        let fault = self.on_a_node(Harm::Slow(pause));
        self.fail(fault, 120);
    }

    fn take_offline(&mut self) {
        let node = node(self.roll(10));
        self.world(|world| world.nodes.insert(node.clone(), false));
        let until = Instant::now() + self.seconds(180);
        self.reliefs.push((until, Relief::Online(node)));
    }

    fn cut_off(&mut self) {
        self.stage.is_cut_off.store(true, Ordering::Relaxed);
        let until = Instant::now() + self.seconds(40);
        self.reliefs.push((until, Relief::Reach));
    }
}
