//! Commands that only look leave no trace: not in the kernel, not on the disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::world::World;

const LOOKS: [&str; 9] = [
    "check host.toml",
    "plan host.toml",
    "plan --json --full --detailed-exitcode host.toml",
    "plan --revert-on-release --allow-mass-delete host.toml",
    "verify host.toml",
    "verify --json host.toml",
    "show",
    "show --full --json",
    "--owner other --protocol 77 plan host.toml",
];

/// Every file of a directory, with its content.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut directories) = (BTreeMap::new(), vec![directory.to_owned()]);
    while let Some(directory) = directories.pop() {
        for path in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                directories.push(path);
            } else {
                found.insert(path.clone(), std::fs::read(path).unwrap());
            }
        }
    }
    found
}

#[test]
fn looking_writes_to_no_knob_and_makes_no_state() {
    let world = World::with(
        "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.nosuch\" = 1\n\
         [links.eth9.sysctl]\n\"ipv4/rp_filter\" = 1\n",
    );
    let before = world.knobs();
    for look in LOOKS {
        let ran = world.run(look);
        assert_eq!(ran.stderr, "", "{look}");
        assert!(!world.state().exists(), "`{look}` made a state directory");
        assert!(world.knobs() == before, "`{look}` turned a knob");
    }
}

#[test]
fn looking_leaves_the_ledger_as_it_is() {
    let world = World::new();
    world.apply("[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.tcp_retries1\" = 4\n");
    world.meddle("net/ipv4/ip_forward", "0");
    world.write("host.toml", "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    let (knobs, state) = (world.knobs(), files(&world.state()));
    for look in LOOKS {
        world.run(look);
        assert!(files(&world.state()) == state, "`{look}` touched the state directory");
        assert!(world.knobs() == knobs, "`{look}` turned a knob");
    }
}
