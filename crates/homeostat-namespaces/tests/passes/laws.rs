//! The law suite over real namespaces.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use homeostat_engine::Ownership;
use homeostat_namespaces::{DesiredState, Key, Namespaces};
use homeostat_testkit::laws::{self, Ability, DesiredState as Which, Disturbance, Harness, Meter};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::world::{World, desired, source};

struct Names {
    world: World,
    writes: Arc<Mutex<Writes>>,
}

/// Counts names that come and go, by whosever hand.
struct Writes {
    queue: OwnedFd,
    count: u64,
}

impl Writes {
    fn count(&mut self) -> u64 {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.queue, &mut space);
        while reader.next().is_ok() {
            self.count += 1;
        }
        self.count
    }
}

impl Names {
    fn new() -> Self {
        let world = World::new();
        std::fs::create_dir("/run/netns").unwrap();
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let flags = WatchFlags::CREATE | WatchFlags::DELETE;
        inotify::add_watch(&queue, "/run/netns", flags).unwrap();
        Names { world, writes: Arc::new(Mutex::new(Writes { queue, count: 0 })) }
    }

    fn add(&self, name: &str) -> Ability {
        self.world.ip(&format!("netns add {name}"));
        self.world.ip(&format!("-n {name} link set lo up"));
        Ability::Done
    }
}

impl Harness for Names {
    type Source = Namespaces;

    fn reset(&mut self) {
        *self = Names::new();
    }

    fn source(&self) -> Namespaces {
        source()
    }

    fn ownership(&self) -> Ownership {
        Ownership::Checkpoint
    }

    fn desired(&self, which: Which) -> DesiredState {
        desired(match which {
            Which::First => "blue green red",
            Which::Second => "green red white",
            Which::Nothing => "",
        })
    }

    fn objects_differ(&self) -> bool {
        false
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        // Strangers have theirs up, and every target must show the same: so no inode.
        let lo = |name: &String| self.world.ip(&format!("-n {name} -o link show lo"));
        let names = self.world.names().into_iter();
        names.map(|name| (format!("namespace {name}"), lo(&name))).collect()
    }

    fn meter(&self) -> Meter {
        let writes = self.writes.clone();
        Arc::new(move || writes.lock().unwrap_or_else(PoisonError::into_inner).count())
    }

    fn disturb(&mut self, how: Disturbance<'_, Key>) -> Ability {
        match how {
            Disturbance::Remove(key) => {
                self.world.ip(&format!("netns delete {}", key.name()));
                Ability::Done
            }
            // Nothing about a namespace is managed but that it is there.
            Disturbance::Alter(_) => Ability::Unable,
            Disturbance::Stranger => self.add("stranger"),
            Disturbance::Occupy(key) => self.add(key.name().as_str()),
        }
    }
}

#[test]
fn the_laws_hold_over_namespaces() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let verdict = runtime.block_on(async { laws::check(&mut Names::new()).await });
    let verdict = verdict.unwrap_or_else(|broken| panic!("{broken}"));
    // `/run/netns` can neither be blinded nor be made to refuse a good name, and nothing about a
    // namespace can be altered.
    let laws: Vec<_> = verdict.unchecked.iter().map(|(law, _)| *law).collect();
    assert_eq!(laws, [1, 1, 9, 10], "{:?}", verdict.unchecked);
}
