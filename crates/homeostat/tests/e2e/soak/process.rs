//! What a process takes of the machine: memory, descriptors, threads.

use std::fs;

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

    /// Fails if the process has grown by more than this since then.
    #[track_caller]
    pub(super) fn has_not_grown(pid: u32, before: Usage, kilobytes: usize) {
        let mut after = Usage::of(pid);
        // A client that has just gone may not have been noticed yet.
        for _ in 0..10_000 {
            if after.descriptors <= before.descriptors && after.threads <= before.threads {
                break;
            }
            std::thread::yield_now();
            after = Usage::of(pid);
        }
        let told = format!("{before:?} before, {after:?} after");
        assert!(after.descriptors <= before.descriptors, "descriptors leak: {told}");
        assert!(after.threads <= before.threads, "threads leak: {told}");
        assert!(after.kilobytes <= before.kilobytes + kilobytes, "memory leaks: {told}");
    }
}
