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
    /// The place as one number, so that sorting compares without a branch.
    pub(crate) fn sort_key(&self) -> u128 {
        let (table, dst, rest) = self.place();
        u128::from(table) << 80 | u128::from(dst) << 48 | u128::from(rest)
    }

    pub(crate) fn key(&self) -> RouteKey {
        self.key_to(Ipv4Addr::from_bits(self.dst).into())
    }
}

impl PackedRoute<u128> {
    /// The place as two numbers, of which the first nearly always decides.
    pub(crate) fn sort_key(&self) -> (u128, u128) {
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
