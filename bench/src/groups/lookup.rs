//! Finding keys in a million: why a desired state is a sorted slice and not a tree.

use std::collections::BTreeSet;
use std::hint::black_box;

use anyhow::{Result, ensure};

use crate::{Budget, Contestant, Group, Run, Unit};

/// Every key is looked for once, in an order that is not the keys'.
pub const GROUP: Group = Group {
    name: "lookup",
    unit: Unit::PerSecond,
    contestants: &[
        Contestant::new("tree", tree, &[]),
        Contestant::new(
            "sorted slice",
            sorted_slice,
            &[Budget::Within(1.5, "tree"), Budget::BytesEach(8.5)],
        ),
    ],
};

fn tree(run: &mut Run) -> Result<()> {
    let keys = keys(run);
    let tree = run.weigh(keys.len(), || keys.iter().copied().collect::<BTreeSet<u64>>());
    look_up(run, &keys, |key| tree.contains(&key))
}

fn sorted_slice(run: &mut Run) -> Result<()> {
    let keys = keys(run);
    let sorted = run.weigh(keys.len(), || {
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        sorted
    });
    look_up(run, &keys, |key| sorted.binary_search(&key).is_ok())
}

fn look_up(run: &mut Run, keys: &[u64], has: impl Fn(u64) -> bool) -> Result<()> {
    let found = run.time(keys.len(), || keys.iter().filter(|key| has(black_box(**key))).count());
    ensure!(found == keys.len(), "found {found} of {} keys", keys.len());
    Ok(())
}

fn keys(run: &Run) -> Vec<u64> {
    (0..run.size(1_000_000, 10_000) as u64).map(scattered).collect()
}

/// Spreads small numbers over all of `u64` without collisions: odd factors and shifts can be undone.
fn scattered(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::run_group;
    use crate::run::Scale;

    #[test]
    fn both_contestants_find_all_keys_and_weigh_them() {
        let rows = run_group(&GROUP, 1, Scale::Quick).unwrap().rows;
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!(row.memory.map(|memory| memory.objects), Some(10_000), "{}", row.contestant);
        }
    }
}
