//! A set that is as declared costs little: nothing is written, and no content is read.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bench::{Bench, Declared};

/// The bytes that this thread has read so far.
fn bytes_read() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

#[test]
fn a_converged_pass_over_100_files_writes_nothing_and_reads_no_content() {
    const FILES: usize = 100;
    const SIZE: usize = 100_000;
    let mut bench = Bench::new();
    let written = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&written);
    bench.source = bench.source.clone().tapped(Arc::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    let text = "x".repeat(SIZE);
    let paths: Vec<String> = (0..FILES).map(|n| format!("/etc/{n}.conf")).collect();
    let declared: Vec<_> = paths.iter().map(|path| Declared::File(path, &text)).collect();
    let desired = bench.desired(&declared);
    bench.converge(&desired);
    assert!(written.load(Ordering::Relaxed) > FILES);
    written.store(0, Ordering::Relaxed);
    bench.assert_quiet(&desired);
    assert_eq!(written.load(Ordering::Relaxed), 0);
    // A file that has just changed is read again: the clock of its file system ticks slowly.
    let mut looking = bench.looking();
    let is_at_rest = (0..10_000).any(|_| {
        let before = bytes_read();
        assert!(looking.look(&desired).steps.is_empty());
        bytes_read() - before < SIZE as u64
    });
    assert!(is_at_rest, "contents are read by each look");
}
