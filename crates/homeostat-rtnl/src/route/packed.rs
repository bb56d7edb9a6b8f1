//! Declared routes in little memory: a packed route is a few numbers, and what many routes have in common is a
//! template that is kept once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::net::Net;
use crate::number::{Metric, Table, Tos};
use crate::route::{Route, RouteKey};

/// A declared route: 20 bytes for IPv4, 32 for IPv6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedRoute<A> {
    pub(crate) table: u32,
    pub(crate) dst: A,
    pub(crate) len: u8,
    pub(crate) tos: u8,
    pub(crate) may_adopt: bool,
    pub(crate) metric: u32,
    pub(crate) template: u32,
}

impl<A: Copy> PackedRoute<A> {
    /// What rows are sorted by: table, destination, and then type of service and metric.
    fn place(&self) -> (u32, A, u64) {
        let rest = u64::from(self.len) << 40 | u64::from(self.tos) << 32 | u64::from(self.metric);
        (self.table, self.dst, rest)
    }

    fn key_to(&self, dst: IpAddr) -> RouteKey {
        RouteKey::new(Net::masked(dst, self.len))
            .in_table(Table(self.table))
            .with_metric(Metric(self.metric))
            .with_tos(Tos(self.tos))
    }
}

impl PackedRoute<u32> {
    pub(crate) fn sort(routes: &mut Vec<Self>) {
        let words = |route: &Self| {
            let (table, dst, rest) = route.place();
            [u64::from(table) << 32 | u64::from(dst), rest]
        };
        if !sort_by_bytes(routes, words) {
            routes.sort_unstable_by_key(Self::sort_key);
        }
    }

    /// The place as one number, so that sorting compares without a branch.
    fn sort_key(&self) -> u128 {
        let (table, dst, rest) = self.place();
        u128::from(table) << 80 | u128::from(dst) << 48 | u128::from(rest)
    }

    pub(crate) fn key(&self) -> RouteKey {
        self.key_to(Ipv4Addr::from_bits(self.dst).into())
    }
}

impl PackedRoute<u128> {
    pub(crate) fn sort(routes: &mut Vec<Self>) {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
        let words = |route: &Self| {
            let (table, dst, rest) = route.place();
            [table.into(), (dst >> 64) as u64, dst as u64, rest]
        };
        if !sort_by_bytes(routes, words) {
            routes.sort_unstable_by_key(Self::sort_key);
        }
    }

    /// The place as two numbers, of which the first nearly always decides.
    fn sort_key(&self) -> (u128, u128) {
        let (table, dst, rest) = self.place();
        (u128::from(table) << 96 | dst >> 32, (dst & 0xFFFF_FFFF) << 48 | u128::from(rest))
    }

    pub(crate) fn key(&self) -> RouteKey {
        self.key_to(Ipv6Addr::from_bits(self.dst).into())
    }
}

impl<A: Copy + Ord> PackedRoute<A> {
    pub(crate) fn compare(&self, other: &Self) -> std::cmp::Ordering {
        self.place().cmp(&other.place())
    }

    pub(crate) fn new(key: &RouteKey, dst: A, template: u32, may_adopt: bool) -> Self {
        PackedRoute {
            table: key.table.0,
            dst,
            len: key.dst.prefix_len(),
            tos: key.tos.0,
            may_adopt,
            metric: key.metric.0,
            template,
        }
    }
}

/// A network of one family, as routes have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network<A> {
    pub(crate) first: A,
    pub(crate) last: A,
    pub(crate) len: u8,
    /// The first address of the network of a length around an address.
    pub(crate) mask: fn(A, u8) -> A,
}

/// How many tables are looked into.
const MOST_TABLES: usize = 256;

/// The routes around a network and those inside of it, as parts of the sorted routes.
#[derive(Debug)]
pub(crate) struct Near<'a, A> {
    /// Those that its packets may take, by the length of their destinations, the longest first.
    pub(crate) around: Vec<&'a [PackedRoute<A>]>,
    pub(crate) inside: Vec<&'a [PackedRoute<A>]>,
}

impl<'a, A: Copy + Ord> Near<'a, A> {
    /// Found by binary search, in each table.
    pub(crate) fn of(sorted: &'a [PackedRoute<A>], network: Network<A>) -> Self {
        let Network { first, last, len, mask } = network;
        let (mut around, mut inside, mut rest) = (Vec::new(), Vec::new(), sorted);
        for _ in 0..MOST_TABLES {
            let Some(table) = rest.first().map(|route| route.table) else { break };
            let (routes, others) = rest.split_at(rest.partition_point(|one| one.table <= table));
            rest = others;
            let part = |from: (A, u64), to: (A, u64)| {
                let place = |route: &PackedRoute<A>| (route.dst, route.place().2);
                let start = routes.partition_point(|route| place(route) < from);
                let end = routes.partition_point(|route| place(route) < to);
                routes.get(start..end).unwrap_or_default()
            };
            let of_len = |len: u8| u64::from(len) << 40;
            for around_len in 0..=len {
                let dst = mask(first, around_len);
                around.push(part((dst, of_len(around_len)), (dst, of_len(around_len + 1))));
            }
            inside.push(part((first, of_len(len + 1)), (last, u64::MAX)));
        }
        around.retain(|routes| !routes.is_empty());
        around.sort_by_key(|routes| routes.first().map(|route| std::cmp::Reverse(route.len)));
        Near { around, inside }
    }
}

/// With more bytes that differ than this, comparing is faster than moving everything once for each of them.
const MOST_BYTES: u32 = 4;

/// Fewer routes than this are not worth the table of counts.
const FEWEST_ROUTES: usize = 1 << 12;

/// Sorts by the bytes of some numbers, the first of which counts most, without a comparison: the routes are put in the
/// order of each byte in turn, the least one first, and bytes that all of them share are left out. Many routes of one
/// table with one metric differ in few bytes. False, and nothing is sorted, if that would not be faster.
fn sort_by_bytes<T: Copy, const N: usize>(
    routes: &mut Vec<T>,
    words: impl Fn(&T) -> [u64; N],
) -> bool {
    let Some(first) = routes.first().copied().filter(|_| routes.len() >= FEWEST_ROUTES) else {
        return false;
    };
    let mut differing = [0; N];
    for route in &*routes {
        let pairs = words(route).into_iter().zip(words(&first));
        differing.iter_mut().zip(pairs).for_each(|(bits, (one, other))| *bits |= one ^ other);
    }
    let differs = |word: usize, byte: u32| {
        differing.get(word).is_some_and(|bits| bits.to_le_bytes()[byte as usize] != 0)
    };
    let bytes = (0..N).rev().flat_map(|word| (0..u64::BITS / 8).map(move |byte| (word, byte)));
    let bytes: Vec<(usize, u32)> = bytes.filter(|(word, byte)| differs(*word, *byte)).collect();
    if bytes.len() > MOST_BYTES as usize {
        return false;
    }
    let mut sorted = vec![first; routes.len()];
    for (word, byte) in bytes {
        let digit = |route: &T| {
            let word = words(route).get(word).copied().unwrap_or_default();
            usize::from(word.to_le_bytes()[byte as usize])
        };
        let mut ends = [0_usize; 256];
        for route in &*routes {
            ends[digit(route)] += 1;
        }
        let mut end = 0;
        for count in &mut ends {
            end += std::mem::replace(count, end);
        }
        for route in &*routes {
            let place = &mut ends[digit(route)];
            if let Some(to) = sorted.get_mut(*place) {
                *to = *route;
            }
            *place += 1;
        }
        std::mem::swap(routes, &mut sorted);
    }
    true
}

/// Two to the power of this many places.
const BITS: u32 = 10;

/// The number of a template for each hash of a way. Only a guess: the caller compares.
#[derive(Clone, Debug, Default)]
pub(crate) struct TemplateCache {
    guesses: Vec<u32>,
}

impl TemplateCache {
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

    /// So many routes, of which the numbers of destinations are spread over these bits.
    fn scattered<A: Copy + Ord>(dst: impl Fn(u32) -> A, metrics: u32) -> Vec<PackedRoute<A>> {
        let count = u32::try_from(FEWEST_ROUTES).unwrap() + 77;
        let numbers = (0..count).map(|number| number.wrapping_mul(0x9E37_79B1));
        let route = |number: u32| PackedRoute {
            table: 254,
            dst: dst(number),
            len: 24,
            tos: 0,
            may_adopt: false,
            metric: 1 + number % metrics,
            template: number % 8,
        };
        numbers.map(route).collect()
    }

    #[test]
    fn sorting_by_bytes_gives_the_order_of_places() {
        let v6 = |number: u32| 0x2001 << 112 | u128::from(number) << 80;
        let everywhere = |number: u32| u128::from(number).wrapping_mul(u128::MAX / 12_345);
        for mut routes in [scattered(v6, 1), scattered(v6, 300), scattered(everywhere, 9)] {
            let mut expected = routes.clone();
            expected.sort_by(PackedRoute::compare);
            PackedRoute::<u128>::sort(&mut routes);
            assert!(
                routes.iter().map(PackedRoute::place).eq(expected.iter().map(PackedRoute::place))
            );
        }
        for mut routes in [scattered(|number| number >> 8 << 8, 1), scattered(|number| number, 700)]
        {
            let mut expected = routes.clone();
            expected.sort_by(PackedRoute::compare);
            PackedRoute::<u32>::sort(&mut routes);
            assert!(
                routes.iter().map(PackedRoute::place).eq(expected.iter().map(PackedRoute::place))
            );
        }
    }

    #[test]
    fn few_routes_and_routes_without_much_in_common_are_compared() {
        let words = |route: &PackedRoute<u32>| [route.dst.into(), route.metric.into()];
        assert!(sort_by_bytes(&mut scattered(|number| number, 1), words));
        assert!(!sort_by_bytes(&mut scattered(|number| number, 700), words));
        assert!(!sort_by_bytes(&mut scattered(|number| number, 1)[..10].to_vec(), words));
        assert!(!sort_by_bytes(&mut Vec::new(), words));
    }

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
