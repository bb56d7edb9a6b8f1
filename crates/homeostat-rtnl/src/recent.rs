//! Remembers where recent shapes of routes are: a list of a million has but a few of them, in no
//! order, and a full hash of each route would be a good part of building the desired state.

use std::net::IpAddr;

use crate::route::Route;

/// Two to the power of this many places.
const BITS: u32 = 10;

/// A guess for each way: the number of the shape that was there last. Only a guess: whoever asks
/// compares.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    guesses: Vec<u32>,
}

impl Recent {
    /// The place for a guess about routes with this way.
    pub(crate) fn guess(&mut self, route: &Route) -> Option<&mut u32> {
        // A desired state without routes needs no room for them.
        if self.guesses.is_empty() {
            self.guesses.resize(1 << BITS, 0);
        }
        self.guesses.get_mut(place(route))
    }
}

/// The upper bits of a product depend on all of the lower ones.
fn place(route: &Route) -> usize {
    let via = match route.via {
        Some(IpAddr::V4(gateway)) => u128::from(gateway.to_bits()),
        Some(IpAddr::V6(gateway)) => gateway.to_bits(),
        None => 0,
    };
    let dev = route.dev.map_or(0, |dev| u128::from_le_bytes(*dev.bytes()));
    let mixed = via ^ dev.rotate_left(40);
    let product = (mixed ^ mixed >> 64).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_0605_CEDC_8341);
    usize::try_from(product >> (u128::BITS - BITS)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ways_that_differ_a_little_seldom_share_a_place() {
        let v4 = (1..=100).map(|last| Route::via([10, 0, 0, last].into()));
        let v6 = (1..=100).map(|last| Route::via([0xfe80, 0, 0, 0, 0, 0, 0, last].into()));
        let dev = (0..100).map(|last| Route::dev(format!("eth{last}").parse().unwrap()));
        let routes: Vec<Route> = v4.chain(v6).chain(dev).collect();
        let places: BTreeSet<usize> = routes.iter().map(place).collect();
        assert!(places.len() > 200, "{} places for {} ways", places.len(), routes.len());
        assert!(places.iter().all(|place| *place < 1 << BITS));
    }
}
