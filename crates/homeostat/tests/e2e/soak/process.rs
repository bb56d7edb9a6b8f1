//! What a process takes of the machine: memory, descriptors, threads.

use std::cell::Cell;
use std::fs;

use crate::keeping::comes;

const FEW: usize = 2;

/// What a process has at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) kilobytes: usize,
    pub(super) descriptors: usize,
    pub(super) threads: usize,
}

impl Usage {
    /// What this process has.
    #[track_caller]
    pub(super) fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        Usage {
            // Pages of files come and go as the kernel likes.
            kilobytes: number("RssAnon:"),
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(),
            threads: number("Threads:"),
        }
    }

    /// Fails if the process has grown by more than this since then. What is opened at its first use is no
    /// leak: a few descriptors and threads more are not counted, however long it lives.
    #[track_caller]
    pub(super) fn has_not_grown(pid: u32, before: Usage, kilobytes: usize) {
        // A client that has just gone may not have been noticed yet.
        let last = Cell::new(before);
        let is_small = || {
            let after = Usage::of(pid);
            last.set(after);
            after.descriptors <= before.descriptors + FEW && after.threads <= before.threads + FEW
        };
        let usage = || format!("{before:?} before, {:?} after, {:?}", last.get(), descriptors(pid));
        assert!(comes(is_small), "descriptors or threads leak: {}", usage());
        let (after, usage) = (last.get(), usage());
        assert!(after.kilobytes <= before.kilobytes + kilobytes, "memory leaks: {usage}");
    }
}

/// What the descriptors of a process are.
fn descriptors(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets.map(|target| target.display().to_string()).collect()
}
