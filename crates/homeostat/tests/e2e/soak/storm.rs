//! Three saboteurs at once against one daemon, for long: what is left of it, and what it cost.

use super::estate::Estate;
use super::process::Usage;
use super::saboteur::Sabotage;
use super::{often, soak_factor};

const SEED: u64 = 4;

/// Beyond this it would be a leak: an allocator keeps some of what was needed at once.
const KILOBYTES: usize = 6 << 10;

#[test]
fn a_storm_of_sabotage_leaves_everything_as_declared_the_foreign_untouched_and_nothing_leaked() {
    let (estate, daemon) = Estate::build();
    // The first storm fills what is kept of the past, and may take memory for it.
    Sabotage::start(&estate.world, SEED, 150).end();
    estate.is_restored("after the first storm");
    let before = Usage::of(daemon.pid());
    for round in 0..soak_factor(30) {
        let seed = SEED + 1 + u64::try_from(round).unwrap();
        Sabotage::start(&estate.world, seed, often(600, 1)).end();
        estate.is_restored(&format!("after the storm of seed {seed}"));
        Usage::has_not_grown(daemon.pid(), before, KILOBYTES);
    }
}
