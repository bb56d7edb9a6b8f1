//! A daemon that keeps guests while everything goes wrong at once, and commands from everybody at once.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use homeostat_pve_simulator::{End, Fault, Guest, Harm, Kind, Script};
use rustix::process::Signal;
use serde_json::Value;

use crate::guests::{GUEST, Ground, later};

/// What eight processes say that begin the same command under one name at once.
fn all_at_once(ground: &Ground, command: &str) -> Vec<Value> {
    let begin = |_| {
        let mut command = ground.world.homeostat(command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<_> = (0..8).map(begin).collect();
    let end = |child: std::process::Child| {
        let output = child.wait_with_output().unwrap();
        let refusal = || Value::from(String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| refusal())
    };
    all.into_iter().map(end).collect()
}

#[test]
fn a_command_of_one_name_from_many_processes_is_done_once() {
    let ground = Ground::new("");
    ground.takes(300);
    let daemon = ground.world.start("");
    let command = "guest start 101 --idempotency-key k --json";
    let answers = all_at_once(&ground, command);
    assert!(answers.iter().all(|answer| answer["outcome"] == "succeeded"), "{answers:?}");
    let first = answers.iter().filter(|answer| answer["stored"] == false).count();
    assert_eq!((ground.starts(), first), (1, 1), "{answers:?}");
    daemon.stop();
}

#[test]
fn without_a_daemon_many_processes_do_a_command_of_one_name_once() {
    let ground = Ground::new("");
    ground.takes(300);
    let command = "guest start 101 --idempotency-key k --json --document host.toml";
    let answers = all_at_once(&ground, command);
    assert_eq!(ground.starts(), 1, "{answers:?}");
    // One has the scope, others come before or after it, or are refused, with its holder.
    let is_locked =
        |answer: &Value| answer.as_str().is_some_and(|answer| answer.contains("is locked by"));
    let is_fine = |answer: &Value| answer["outcome"] == "succeeded" || is_locked(answer);
    assert!(answers.iter().all(is_fine), "{answers:?}");
    assert!(answers.iter().any(|answer| answer["stored"] == false), "{answers:?}");
}

const GUESTS: std::ops::Range<u32> = 101..105;

fn node(vmid: u32) -> &'static str {
    if vmid.is_multiple_of(2) { "pve1" } else { "pve2" }
}

/// A ground whose guests are all to run, and somebody who works against it.
struct Torment {
    ground: Ground,
    seed: u64,
    stops: u32,
}

impl Torment {
    fn new(seed: u64) -> Self {
        let ground = Ground::new("");
        ground.cluster.with(|world| {
            world.stale = Duration::ZERO;
            GUESTS.for_each(|vmid| world.put(vmid, Guest::new(Kind::Lxc, node(vmid))));
        });
        let torment = Torment { ground, seed, stops: 0 };
        torment.declare(1);
        torment
    }

    fn declare(&self, cores: u64) {
        let guest = |vmid: u32| {
            GUEST.replace("101", &vmid.to_string()).replace("pve1", node(vmid))
                + &format!("cores = {cores}\n")
        };
        let guests: String = GUESTS.map(guest).collect();
        self.ground.connect(
            "poll = \"100ms\"\ntimeout = \"1s\"\n",
            &format!("{guests}[settings.guests]\nresync = \"500ms\"\n"),
        );
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % sides
    }

    /// One more thing goes wrong.
    fn act(&mut self) {
        let (act, millis) = (self.roll(8), self.roll(400));
        let vmid = 101 + u32::try_from(self.roll(4)).unwrap();
        let cluster = &self.ground.cluster;
        match act {
            0..3 => {
                let script = Script { takes: Duration::from_millis(millis), end: End::Ok };
                // What runs is stopped by somebody; what is being started is left alone.
                self.stops += cluster.with(|world| {
                    world.settle();
                    let guest = world.guests.get_mut(&vmid).unwrap();
                    let stops = u32::from(std::mem::replace(&mut guest.running, false));
                    if stops > 0 {
                        world.script(vmid, script);
                    }
                    stops
                });
            }
            3 => cluster.with(|world| _ = world.nodes.insert("pve2".to_owned(), false)),
            4 => cluster.with(|world| {
                let slow = Harm::Slow(Duration::from_millis(4 * millis));
                world.fail(Fault::on(format!("/nodes/{}/", node(vmid)), slow).times(4));
            }),
            5 => cluster.with(|world| {
                world.fail(Fault::on("/status/start", Harm::DropResponse).times(1));
            }),
            6 => self.rotate(millis),
            _ => self.declare(1 + millis % 4),
        }
    }

    /// Another token counts, and the former one no longer.
    fn rotate(&self, nth: u64) {
        let name = format!("keeper@pve!t{nth}");
        self.ground
            .cluster
            .with(|world| world.tokens = [(name.clone(), "secret".to_owned())].into());
        self.ground.put_token(&format!("{name}=secret"), 0o600);
    }

    fn calm(&self) {
        self.ground.cluster.with(|world| {
            world.mend();
            world.nodes.values_mut().for_each(|online| *online = true);
        });
    }

    fn are_running(&self) -> bool {
        self.ground.cluster.with(|world| {
            world.settle();
            GUESTS.into_iter().all(|vmid| world.guests[&vmid].running)
        })
    }

    fn starts(&self) -> usize {
        let count = |vmid| self.ground.cluster.with(|world| world.count(vmid, "vzstart"));
        GUESTS.map(count).sum()
    }
}

#[test]
fn no_guest_is_started_twice_whatever_goes_wrong_and_however_often_we_die() {
    let is_soak = std::env::var_os("HOMEOSTAT_SOAK").is_some();
    let (seeds, rounds) = if is_soak { (4, 50) } else { (1, 8) };
    (0..seeds).for_each(|seed| survives(0x1234_5678_9abc + seed, rounds));
}

fn survives(seed: u64, rounds: u32) {
    let mut torment = Torment::new(seed);
    for round in 0..rounds {
        let daemon = torment.ground.world.start_watched("", None);
        for _ in 0..torment.roll(12) {
            torment.act();
            if torment.roll(3) == 0 {
                daemon.signal(Signal::HUP);
            }
            std::thread::park_timeout(Duration::from_millis(torment.roll(150)));
        }
        daemon.signal(Signal::KILL);
        drop(daemon);
        if round % 3 == 2 {
            torment.calm();
        }
    }
    torment.calm();
    let daemon = torment.ground.world.start_watched("", None);
    later(|| torment.are_running());
    torment.ground.world.run("status --wait").exits(0);
    let (starts, expected) = (torment.starts(), torment.stops + GUESTS.end - GUESTS.start);
    let journal = torment.ground.world.run("journal").exits(0).stdout;
    assert_eq!(starts, usize::try_from(expected).unwrap(), "seed {seed}\n{journal}");
    assert_eq!(torment.ground.cluster.with(|world| world.most_per_guest), 1, "{journal}");
    let size = fs::metadata(torment.ground.world.state().join("journal")).unwrap().len();
    assert!(size < 1 << 20, "{size} bytes of journal");
    daemon.stop();
}
