//! The law suite over the units of a real systemd.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use homeostat_engine::Ownership;
use homeostat_engine::outcome::Later;
use homeostat_services::{Aspect, DesiredState, Key, Services};
use homeostat_testkit::laws::{
    self, Ability, DesiredState as Which, Disturbance, Fault, Harness, Meter,
};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::bench::{Machine, block_on, desired};

const UNITS: [&str; 5] = ["a", "b", "c", "d", "stranger"];

/// Where links to units are.
const LINKS: [&str; 2] =
    ["etc/systemd/system/multi-user.target.wants", "run/systemd/system/multi-user.target.wants"];

struct World {
    machine: Machine,
    links: Arc<Links>,
}

/// Counts what happens to links of units, by whomever.
struct Links {
    queue: OwnedFd,
    events: AtomicU64,
}

impl Links {
    fn count(&self) -> u64 {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.queue, &mut space);
        while reader.next().is_ok() {
            self.events.fetch_add(1, Ordering::Relaxed);
        }
        self.events.load(Ordering::Relaxed)
    }
}

impl World {
    fn new() -> Self {
        let machine = Machine::with_units(&UNITS);
        let queue = inotify::init(CreateFlags::NONBLOCK).unwrap();
        for path in LINKS {
            machine.write(&format!("{path}/.keep"), "");
            let flags = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
            inotify::add_watch(&queue, machine.0.path().join(path), flags).unwrap();
        }
        let mut world =
            World { machine, links: Arc::new(Links { queue, events: AtomicU64::new(0) }) };
        world.reset();
        world
    }

    fn socket(&self) -> std::path::PathBuf {
        self.machine.0.path().join("run/dbus/system_bus_socket")
    }

    fn is(&self, unit: &str, question: &str) -> String {
        self.machine.says(&format!("{question} {unit}"))
    }
}

impl Harness for World {
    type Source = Services;

    /// `c` is enabled until the next boot, which is neither what is declared first nor second. A machine is booted
    /// once: its units are put back.
    fn reset(&mut self) {
        self.mend();
        let all = UNITS.map(|unit| format!("{unit}.service")).join(" ");
        self.machine.systemctl(&format!("stop {all}"));
        self.machine.systemctl(&format!("--quiet disable {all}"));
        self.machine.systemctl(&format!("--quiet disable --runtime {all}"));
        self.machine.systemctl("--quiet enable --runtime c.service");
    }

    fn source(&self) -> Services {
        self.machine.source()
    }

    fn ownership(&self) -> Ownership {
        Ownership::Checkpoint
    }

    fn desired(&self, which: Which) -> DesiredState {
        desired(match which {
            Which::First => &[
                ("a.service active", true),
                ("b.service active", true),
                ("c.service enabled", true),
            ],
            Which::Second => &[
                ("b.service active", true),
                ("c.service enabled", false),
                ("d.service active", true),
            ],
            Which::Nothing => &[],
        })
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        let all = UNITS.map(|unit| format!("{unit}.service")).join(" ");
        let shown =
            self.machine.says(&format!("show --property=Id,ActiveState,UnitFileState {all}"));
        let mut values = BTreeMap::new();
        for block in shown.split("\n\n") {
            let field = |name: &str| {
                let mut lines = block.lines().filter_map(|line| line.split_once('='));
                lines.find(|(key, _)| *key == name).unwrap().1.to_owned()
            };
            let (unit, active, file) = (field("Id"), field("ActiveState"), field("UnitFileState"));
            let usual = if unit == "c.service" { "enabled-runtime" } else { "disabled" };
            if file != usual {
                values.insert(format!("service {unit} enabled"), file);
            }
            if active != "inactive" {
                values.insert(format!("service {unit} active"), active);
            }
        }
        values
    }

    fn meter(&self) -> Meter {
        let (links, path) = (self.links.clone(), self.machine.0.path().join("run/starts"));
        Arc::new(move || {
            let starts = std::fs::read_to_string(&path).unwrap().lines().count() as u64;
            starts + links.count()
        })
    }

    fn disturb(&mut self, how: Disturbance<'_, Key>) -> Ability {
        match how {
            Disturbance::Alter(key) => {
                let unit = &key.unit;
                let line = match (key.aspect, self.is(unit.as_str(), "is-active").as_str()) {
                    (Aspect::Active, "active") => format!("stop {unit}"),
                    (Aspect::Active, _) => format!("start {unit}"),
                    _ if self.is(unit.as_str(), "is-enabled") == "enabled" => {
                        format!("--quiet disable {unit}")
                    }
                    _ => format!("--quiet enable {unit}"),
                };
                self.machine.systemctl(&line);
                Ability::Done
            }
            Disturbance::Stranger => {
                self.machine.systemctl("start stranger");
                Ability::Done
            }
            // A value goes only with its unit, and has no owner.
            Disturbance::Remove(_) | Disturbance::Occupy(_) => Ability::Unable,
        }
    }

    fn inject(&mut self, fault: Fault<'_, Key>) -> Ability {
        match fault {
            Fault::Blind => {
                let socket = self.socket();
                std::fs::rename(&socket, socket.with_extension("away")).unwrap();
                std::fs::write(&socket, "").unwrap();
                Ability::Done
            }
            Fault::Refuse(key) if key.aspect == Aspect::Active => {
                let path = format!("run/systemd/system/{}.d/refuse.conf", key.unit);
                self.machine.write(&path, "[Service]\nExecStartPre=false\n");
                self.machine.systemctl("daemon-reload");
                Ability::Done
            }
            // A file that is in the way of the link.
            Fault::Refuse(key) => {
                self.machine.write(&format!("{}/{}", LINKS[0], key.unit), "");
                Ability::Done
            }
            Fault::Unreadable(_) => Ability::Unable,
        }
    }

    fn mend(&mut self) {
        // It fails where there is nothing to mend.
        let socket = self.socket();
        let _ = std::fs::rename(socket.with_extension("away"), &socket);
        for unit in UNITS {
            let link = self.machine.0.path().join(format!("{}/{unit}.service", LINKS[0]));
            if link.is_file() && !link.is_symlink() {
                std::fs::remove_file(link).unwrap();
            }
            let path = format!("run/systemd/system/{unit}.service.d/refuse.conf");
            let _ = std::fs::remove_file(self.machine.0.path().join(path));
        }
        self.machine.systemctl("daemon-reload");
        self.machine.systemctl("reset-failed");
    }

    /// Signals come from other processes. None comes for a foreign unit; the wait for it is as long.
    fn patience(&self) -> Later<'_, ()> {
        let nothing = std::future::pending::<()>();
        Box::pin(async move { _ = tokio::time::timeout(Duration::from_secs(3), nothing).await })
    }
}

#[test]
fn the_laws_hold_over_services() {
    let verdict = block_on(async { laws::check(&mut World::new()).await });
    let verdict = verdict.unwrap_or_else(|broken| panic!("{broken}"));
    // Systemd always says what a unit is, and a value goes only with its unit and is never foreign.
    let unchecked = [
        (1, "an object that cannot be read"),
        (4, "a foreign object on a declared key"),
        (5, "an object of ours that vanished"),
    ];
    assert_eq!(verdict.unchecked, unchecked);
}
