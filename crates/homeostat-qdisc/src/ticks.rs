//! The kernel's arithmetic of token buckets: how long so many bytes take at a rate, in its ticks of 64 ns. Pure.
//!
//! A bucket is declared in bytes and kept by the kernel as a time. Both directions are here, as the kernel computes them
//! (`psched_ratecfg_precompute` and `psched_l2t_ns`, Linux 6.18), so that what was written reads back equal.

/// A tick is 64 ns.
const SHIFT: u32 = 6;

/// How many ticks so many bytes take at a rate of bytes a second.
pub(crate) fn of_bytes(bytes: i64, rate: i64) -> i64 {
    let (bytes, rate) = (positive(bytes), positive(rate));
    let (mut factor, mut shift) = (1_000_000_000_u64, 0_u32);
    let mult = loop {
        let mult = factor.checked_div(rate).unwrap_or(1);
        if mult >> 31 != 0 || factor >> 63 != 0 {
            break mult;
        }
        factor <<= 1;
        shift += 1;
    };
    // Both have 32 bits.
    let nanos = (u128::from(bytes) * u128::from(mult & 0xffff_ffff)) >> shift;
    i64::try_from(nanos >> SHIFT).unwrap_or(i64::MAX)
}

/// A number of bytes that takes so many ticks at a rate: one in kilobytes if there is one, else the smallest. Where none
/// takes exactly so many, the smallest that takes more.
pub(crate) fn to_bytes(ticks: i64, rate: i64) -> i64 {
    let exact = (u128::from(positive(ticks)) << SHIFT) * u128::from(positive(rate)) / 1_000_000_000;
    let near = i64::try_from(exact).unwrap_or(i64::MAX);
    // The kernel's factor for a rate is not exact.
    let (mut low, mut high) = (0, near.saturating_mul(2).saturating_add(1024));
    while low < high {
        let middle = low + (high - low) / 2;
        if of_bytes(middle, rate) < ticks {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let round = low.saturating_add(1023) / 1024 * 1024;
    if of_bytes(round, rate) == ticks { round } else { low }
}

fn positive(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ten_megabits_take_800_ns_a_byte() {
        assert_eq!(of_bytes(32_768, 1_250_000), 32_768 * 800 / 64);
        assert_eq!(to_bytes(32_768 * 800 / 64, 1_250_000), 32_768);
        assert_eq!((of_bytes(0, 1), to_bytes(0, 1)), (0, 0));
    }

    proptest! {
        #[test]
        fn bytes_that_were_made_of_ticks_take_as_many_again(
            bytes in 0_i64..0x1000_0000,
            rate in 1_i64..1_000_000_000_000,
        ) {
            let ticks = of_bytes(bytes, rate);
            prop_assert_eq!(of_bytes(to_bytes(ticks, rate), rate), ticks);
        }
    }
}
