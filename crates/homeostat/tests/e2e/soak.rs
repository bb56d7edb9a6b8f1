//! The daemon under sabotage of every kind, killed, besieged and watched for leaks.
//!
//! [`estate`] is what it keeps and what is foreign beside it, [`saboteur`] works against it.
//! The dice are seeded: a run can be had again. `HOMEOSTAT_SOAK` makes all of them long.

mod beside;
mod client;
pub(crate) mod dice;
mod estate;
mod kill;
mod picture;
mod process;
mod raw;
mod saboteur;
mod siege;
mod storm;

/// How often something is done: this often in the tests, and this many times as often in a soak.
pub(crate) fn often(count: usize, soak: usize) -> usize {
    count * soak_factor(soak)
}

/// A soak may be asked to be longer still: the variable is a number then.
fn soak_factor(soak: usize) -> usize {
    let Some(word) = std::env::var_os("HOMEOSTAT_SOAK") else { return 1 };
    let times = word.to_str().and_then(|word| word.parse().ok()).unwrap_or(1);
    soak * times
}
