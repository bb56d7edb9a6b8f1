//! The counting allocator counts right. Alone in its process, because the counts are the process's.

use std::hint::black_box;

use homeostat_bench::memory::weigh;

const LARGE: usize = 64 << 20;
/// What the test harness itself may take meanwhile.
const NOISE: usize = 1 << 20;

#[test]
fn held_bytes_are_those_of_what_was_returned_and_the_peak_those_of_all_work() {
    let ((), nothing) = weigh(|| drop(black_box(vec![1_u8; LARGE])));
    assert!(nothing.held < NOISE, "{nothing:?}");
    assert!((LARGE..LARGE + NOISE).contains(&nothing.peak), "{nothing:?}");

    let (kept, weight) = weigh(|| black_box(vec![0_u8; LARGE]));
    assert!((LARGE..LARGE + NOISE).contains(&weight.held), "{weight:?}");

    let (grown, weight) = weigh(|| {
        let mut grown = kept;
        grown.reserve_exact(2 * LARGE);
        grown
    });
    assert_eq!(grown.capacity(), 3 * LARGE);
    assert!((2 * LARGE..2 * LARGE + NOISE).contains(&weight.held), "counted once: {weight:?}");
}
