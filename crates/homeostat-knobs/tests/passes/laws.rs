//! The law suite over a fake tree of knobs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use homeostat_engine::Ownership;
use homeostat_knobs::{DesiredState, Key, Knobs};
use homeostat_testkit::laws::{
    self, Ability, DesiredState as Which, Disturbance, Fault, Harness, Meter,
};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::bench::{block_on, desired, roots_below};

/// Knobs that hold `0` are as the kernel left them: nothing was written to them.
const KNOBS: [&str; 5] = ["net/a", "net/b", "net/c", "net/d", "net/stranger"];

struct Tree {
    root: TempDir,
    watch: Arc<Watch>,
}

/// Counts what is written to the tree, by whomever.
struct Watch {
    queue: OwnedFd,
    writes: AtomicU64,
}

impl Watch {
    fn count(&self) -> u64 {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.queue, &mut space);
        while reader.next().is_ok() {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        self.writes.load(Ordering::Relaxed)
    }
}

impl Tree {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys/net")).unwrap();
        for path in KNOBS {
            fs::write(root.path().join("sys").join(path), "0\n").unwrap();
        }
        let queue = inotify::init(CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&queue, root.path().join("sys/net"), WatchFlags::MODIFY).unwrap();
        Tree { root, watch: Arc::new(Watch { queue, writes: AtomicU64::new(0) }) }
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.root.path().join("sys").join(key.path())
    }

    /// Makes a file refuse writes, even those of root, without showing it in its mode.
    fn set_immutable(&self, key: &Key, immutable: bool) -> rustix::io::Result<()> {
        let file = File::open(self.path(key)).map_err(|_| Errno::NOENT)?;
        let mut flags = ioctl_getflags(&file)?;
        flags.set(IFlags::IMMUTABLE, immutable);
        ioctl_setflags(&file, flags)
    }

    fn write(&self, key: &Key, text: &str) -> Ability {
        fs::write(self.path(key), text).unwrap();
        Ability::Done
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.mend();
    }
}

impl Harness for Tree {
    type Source = Knobs;

    fn reset(&mut self) {
        *self = Tree::new();
    }

    fn source(&self) -> Knobs {
        Knobs::new(roots_below(self.root.path()), None)
    }

    fn ownership(&self) -> Ownership {
        Ownership::Checkpoint
    }

    fn desired(&self, which: Which) -> DesiredState {
        desired(match which {
            Which::First => &[("net.a", "1"), ("net.b", "2"), ("net.c", "3")],
            Which::Second => &[("net.a", "9"), ("net.c", "3"), ("net.d", "4")],
            Which::Nothing => &[],
        })
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        let held = KNOBS.iter().filter_map(|path| {
            let key = Key::sysctl(path).unwrap();
            let text = fs::read(self.path(&key)).ok()?;
            let text = String::from_utf8_lossy(&text).trim_end().to_owned();
            (text != "0").then(|| (key.to_string(), text))
        });
        held.collect()
    }

    fn meter(&self) -> Meter {
        let watch = self.watch.clone();
        Arc::new(move || watch.count())
    }

    fn disturb(&mut self, how: Disturbance<'_, Key>) -> Ability {
        match how {
            Disturbance::Alter(key) => self.write(key, "7\n"),
            Disturbance::Stranger => self.write(&Key::sysctl("net.stranger").unwrap(), "5\n"),
            // A sysctl goes only with its link, and belongs to the one that writes it.
            Disturbance::Remove(_) | Disturbance::Occupy(_) => Ability::Unable,
        }
    }

    fn inject(&mut self, fault: Fault<'_, Key>) -> Ability {
        let path = self.root.path();
        match fault {
            Fault::Blind => fs::rename(path.join("sys"), path.join("gone")).unwrap(),
            Fault::Unreadable(key) => fs::write(self.path(key), b"\xff").unwrap(),
            Fault::Refuse(key) => self.set_immutable(key, true).expect(
                "this test makes files immutable: run it as root, with TMPDIR on a file system \
                 that can",
            ),
        }
        Ability::Done
    }

    fn mend(&mut self) {
        let path = self.root.path();
        // Both fail where there is nothing to mend.
        let _ = fs::rename(path.join("gone"), path.join("sys"));
        for knob in KNOBS {
            let _ = self.set_immutable(&Key::sysctl(knob).unwrap(), false);
        }
    }
}

#[test]
fn the_laws_hold_over_knobs() {
    let verdict = block_on(async { laws::check(&mut Tree::new()).await });
    let verdict = verdict.unwrap_or_else(|broken| panic!("{broken}"));
    // A sysctl is never foreign, and goes only with its link.
    let unchecked =
        [(4, "a foreign object on a declared key"), (5, "an object of ours that vanished")];
    assert_eq!(verdict.unchecked, unchecked);
}
