//! Kills without mercy at any moment of sabotage: the next daemon mends what was left half done.

use std::fmt::Write as _;

use super::dice::Dice;
use super::estate::Estate;
use super::often;
use super::saboteur::Sabotage;

const SEED: u64 = 76;

/// How many acts a daemon lives to see, at most; its start takes some of them.
const MOMENTS: usize = 120;

#[test]
fn a_daemon_killed_at_any_moment_of_sabotage_is_followed_by_one_that_mends_everything() {
    let (estate, daemon) = Estate::build();
    let (mut dice, mut living) = (Dice::new(SEED), Some(daemon));
    let mut kills = 0;
    while kills < often(20, 25) {
        let sabotage = Sabotage::start(&estate.world, SEED + kills as u64, MOMENTS);
        // Some die young, before or in their first pass.
        let mut case = format!("seed {SEED}, kills before: {kills}");
        for _ in 0..=dice.below(3) {
            let daemon = living.take().unwrap_or_else(|| estate.keep());
            let moment = dice.below(MOMENTS);
            sabotage.acts(moment);
            daemon.kill();
            kills += 1;
            write!(case, ", killed after {moment} acts").unwrap();
        }
        sabotage.end();
        living = Some(estate.keep());
        estate.is_restored(&case);
    }
}
