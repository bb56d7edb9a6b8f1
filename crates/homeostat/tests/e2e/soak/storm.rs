//! Three saboteurs at once against one daemon, for long: what is left of it, and what it cost.

use super::dice::Dice;
use super::estate::Estate;
use super::picture::Picture;
use super::process::Usage;
use super::saboteur::{Sabotage, all_acts, attempt};
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

#[test]
fn each_act_of_sabotage_shows_while_the_daemon_pauses_and_is_mended_when_it_goes_on() {
    let (estate, _daemon) = Estate::build();
    let (mut dice, mut acts) = (Dice::new(SEED), all_acts());
    // All of them where there is time for it.
    while acts.len() > often(6, 100) {
        acts.remove(dice.below(acts.len()));
    }
    for (program, args) in acts {
        estate.world.run("pause").exits(0);
        attempt(program, &args);
        assert_ne!(Picture::of(&estate.world), estate.picture, "{program} {args}");
        estate.world.run("resume").exits(0);
        estate.is_restored(&format!("{program} {args}"));
    }
}
