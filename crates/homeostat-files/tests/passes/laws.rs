//! The law suite over a set of files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use homeostat_engine::Ownership;
use homeostat_files::{DesiredState, Files, Key};
use homeostat_testkit::laws::{
    self, Ability, DesiredState as Which, Disturbance, Fault, Harness, Meter,
};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use crate::bench::{Bench, Declared, OWNERSHIP, block_on, desired, make_directory};

/// Each file has a directory of its own, so that one of them can refuse.
const DIRECTORIES: [&str; 5] = ["a", "b", "c", "d", "stranger"];

struct Tree {
    bench: Bench,
    writes: Arc<AtomicU64>,
}

impl Tree {
    fn new() -> Self {
        let (bench, writes) = (Bench::new(), Arc::new(AtomicU64::new(0)));
        for name in DIRECTORIES {
            make_directory(&bench.at(&format!("/etc/{name}")));
        }
        Tree { bench, writes }
    }

    fn set_immutable(&self, directory: &str, immutable: bool) -> std::io::Result<()> {
        let file = File::open(self.bench.at(directory))?;
        let mut flags = ioctl_getflags(&file)?;
        flags.set(IFlags::IMMUTABLE, immutable);
        Ok(ioctl_setflags(&file, flags)?)
    }

    fn put(&self, path: &str, text: &str) -> Ability {
        self.bench.put(path, text);
        Ability::Done
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.mend();
    }
}

impl Harness for Tree {
    type Source = Files;

    fn reset(&mut self) {
        *self = Tree::new();
    }

    fn source(&self) -> Files {
        let writes = Arc::clone(&self.writes);
        let tap = Arc::new(move |_: &'static str| _ = writes.fetch_add(1, Ordering::Relaxed));
        self.bench.source.clone().tapped(tap)
    }

    fn ownership(&self) -> Ownership {
        OWNERSHIP
    }

    fn desired(&self, which: Which) -> DesiredState {
        let file = |path, text| Declared::File(path, text);
        let declared = match which {
            Which::First => {
                vec![file("/etc/a/x", "1"), file("/etc/b/x", "2"), file("/etc/c/x", "3")]
            }
            Which::Second => {
                vec![file("/etc/a/x", "9"), file("/etc/c/x", "3"), file("/etc/d/x", "4")]
            }
            Which::Nothing => vec![],
        };
        desired(&self.bench.source, &declared)
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for directory in DIRECTORIES {
            for name in self.bench.names(&format!("/etc/{directory}")) {
                let path = format!("/etc/{directory}/{name}");
                let (text, about) = (self.bench.read(&path), fs::metadata(self.bench.at(&path)));
                let mode = about.unwrap().mode();
                all.insert(format!("file {path}"), format!("{text} {mode:o}"));
            }
        }
        all
    }

    fn meter(&self) -> Meter {
        let writes = Arc::clone(&self.writes);
        Arc::new(move || writes.load(Ordering::Relaxed))
    }

    fn disturb(&mut self, how: Disturbance<'_, Key>) -> Ability {
        match how {
            Disturbance::Remove(key) => {
                fs::remove_file(self.bench.at(key.path().unwrap().as_str())).unwrap();
            }
            Disturbance::Alter(key) => return self.put(key.path().unwrap().as_str(), "altered"),
            Disturbance::Stranger => return self.put("/etc/stranger/y", "theirs"),
            Disturbance::Occupy(key) => return self.put(key.path().unwrap().as_str(), "theirs"),
        }
        Ability::Done
    }

    fn inject(&mut self, fault: Fault<'_, Key>) -> Ability {
        match fault {
            Fault::Blind => fs::rename(self.bench.at(""), self.bench.temp.path().join("gone")).unwrap(),
            // Larger than any configuration.
            Fault::Unreadable(key) => {
                let file = File::create(self.bench.at(key.path().unwrap().as_str())).unwrap();
                file.set_len(1 << 30).unwrap();
            }
            Fault::Refuse(key) => self.set_immutable(key.path().unwrap().split().0, true).expect(
                "this test makes directories immutable: run it as root, with TMPDIR on a file system that can",
            ),
        }
        Ability::Done
    }

    fn mend(&mut self) {
        // Both fail where there is nothing to mend.
        let _ = fs::rename(self.bench.temp.path().join("gone"), self.bench.at(""));
        for name in DIRECTORIES {
            let _ = self.set_immutable(&format!("/etc/{name}"), false);
        }
    }
}

#[test]
fn the_laws_hold_over_files() {
    let verdict = block_on(async { Box::pin(laws::check(&mut Tree::new())).await });
    let verdict = verdict.unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(verdict.unchecked, []);
}

/// Its points are those of the ledger: between its own calls the tests of crashes kill it.
#[test]
fn a_crash_between_ledger_and_files_is_made_good() {
    let points = block_on(async { Box::pin(laws::check_crashes(&mut Tree::new())).await });
    let points = points.unwrap_or_else(|broken| panic!("{broken}"));
    assert!(points >= 4, "{points} points");
}
