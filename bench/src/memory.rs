//! Counts the heap: live bytes, and the most at once.
//!
//! The counting allocator serves this whole crate, its tests included. It costs two relaxed atomic
//! operations per allocation, the same for every contestant. Memory that does not come from the
//! allocator (maps, stacks, other processes) is not seen.

#![expect(
    unsafe_code,
    reason = "GlobalAlloc is an unsafe trait; this module only counts and forwards"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde::Serialize;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

/// The heap memory of some work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Weight {
    /// Bytes that its result still holds.
    #[serde(rename = "held_bytes")]
    pub held: usize,
    /// The most bytes at any moment above those at its start.
    #[serde(rename = "peak_bytes")]
    pub peak: usize,
}

/// Does `work` and measures its heap memory. Allocations of other threads count as well, and there is one peak for
/// the process: measure one thing at a time.
pub fn weigh<T>(work: impl FnOnce() -> T) -> (T, Weight) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let made = work();
    let held = LIVE.load(Relaxed).saturating_sub(before);
    let peak = PEAK.load(Relaxed).saturating_sub(before);
    (made, Weight { held, peak })
}

/// The system's allocator with counters.
struct Counting;

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(live, Relaxed);
}

fn shrink(bytes: usize) {
    LIVE.fetch_sub(bytes, Relaxed);
}

// SAFETY: every call is forwarded unchanged to the system's allocator, which keeps the trait's
// contract; the counters are atomics and touch no allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises about `layout` are passed on.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            grow(layout.size());
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises about `layout` are passed on.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            grow(layout.size());
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the caller promises that `block` came from this allocator with `layout`, and
        // every block of this allocator is the system's.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`, and the caller promises that `size` is a valid one.
        let moved = unsafe { System.realloc(block, layout, size) };
        if !moved.is_null() {
            shrink(layout.size());
            grow(size);
        }
        moved
    }
}
