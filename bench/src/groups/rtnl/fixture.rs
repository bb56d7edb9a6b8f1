//! The rtnl source in a namespace, and wishes for it.

use std::sync::Arc;

use anyhow::Result;
use homeostat_rtnl::{Key, Net, Route, RouteKey, Rtnl, Wish};

pub(super) use super::super::fixture::expect;
use super::super::wire::Ip;

pub(super) type Fixture = super::super::fixture::Fixture<Rtnl>;

impl Fixture {
    /// Opens the source in the calling thread's namespace, as a loop does.
    pub(super) fn open(wish: impl Into<Arc<Wish>>) -> Result<Self> {
        Self::with_hints(Rtnl::here(), wish.into())
    }

    /// Opens it for one pass, as `apply` does.
    pub(super) fn once(wish: impl Into<Arc<Wish>>) -> Result<Self> {
        Self::without_hints(Rtnl::here(), wish.into())
    }
}

/// A wish for these routes.
pub(super) fn wish(ip: Ip, numbers: std::ops::Range<usize>) -> Result<Wish> {
    let mut builder = Wish::builder();
    for number in numbers {
        builder.route(route_key(ip, number)?, Route::via(ip.gateway()))?;
    }
    Ok(builder.build()?)
}

/// The key of a route by its number.
pub(super) fn key(ip: Ip, number: usize) -> Result<Key> {
    Ok(route_key(ip, number)?.into())
}

fn route_key(ip: Ip, number: usize) -> Result<RouteKey> {
    let (dst, len) = ip.destination(number);
    Ok(RouteKey::new(Net::new(dst, len)?))
}
