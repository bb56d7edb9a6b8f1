//! A declared route as a row of a few numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::key::RouteKey;
use crate::net::Net;
use crate::number::{Metric, Table, Tos};

/// A declared route: 20 bytes for IPv4, 32 for IPv6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<A> {
    pub(crate) table: u32,
    pub(crate) dst: A,
    pub(crate) len: u8,
    pub(crate) tos: u8,
    pub(crate) may_adopt: bool,
    pub(crate) metric: u32,
    pub(crate) shape: u32,
}

impl<A: Copy> Row<A> {
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

impl Row<u32> {
    /// The place as one number, so that sorting compares without a branch.
    pub(crate) fn packed(&self) -> u128 {
        let (table, dst, rest) = self.place();
        u128::from(table) << 80 | u128::from(dst) << 48 | u128::from(rest)
    }

    pub(crate) fn key(&self) -> RouteKey {
        self.key_to(Ipv4Addr::from_bits(self.dst).into())
    }
}

impl Row<u128> {
    /// The place as two numbers, of which the first nearly always decides.
    pub(crate) fn packed(&self) -> (u128, u128) {
        let (table, dst, rest) = self.place();
        (u128::from(table) << 96 | dst >> 32, (dst & 0xFFFF_FFFF) << 48 | u128::from(rest))
    }

    pub(crate) fn key(&self) -> RouteKey {
        self.key_to(Ipv6Addr::from_bits(self.dst).into())
    }
}

impl<A: Copy + Ord> Row<A> {
    pub(crate) fn compare(&self, other: &Self) -> std::cmp::Ordering {
        self.place().cmp(&other.place())
    }

    pub(crate) fn new(key: &RouteKey, dst: A, shape: u32) -> Self {
        Row {
            table: key.table().0,
            dst,
            len: key.dst().prefix_len(),
            tos: key.tos().0,
            may_adopt: false,
            metric: key.metric().0,
            shape,
        }
    }
}
