//! The rtnl source in a namespace, and its desired states.

use std::sync::Arc;

use anyhow::Result;
use homeostat_rtnl::{DesiredState, Key, Net, Route, RouteKey, Rtnl};

pub(super) use super::super::fixture::expect;
use super::super::wire::Ip;

pub(super) type Fixture = super::super::fixture::Fixture<Rtnl>;

impl Fixture {
    /// Opens the source in the calling thread's namespace, as a loop does.
    pub(super) fn open(desired: DesiredState) -> Result<Self> {
        Self::with_hints(Rtnl::here(), Arc::new(desired))
    }

    /// Opens it for one pass, as `apply` does.
    pub(super) fn once(desired: DesiredState) -> Result<Self> {
        Self::without_hints(Rtnl::here(), Arc::new(desired))
    }
}

/// A desired state of these routes.
pub(super) fn desired(ip: Ip, numbers: std::ops::Range<usize>) -> Result<DesiredState> {
    let mut builder = DesiredState::builder();
    for number in numbers {
        builder.route(route_key(ip, number)?, Route::via(ip.gateway()))?;
    }
    Ok(builder.build()?)
}

/// The key of a route by its number.
pub(super) fn key(ip: Ip, number: usize) -> Result<Key> {
    Ok(Key::Route(route_key(ip, number)?))
}

fn route_key(ip: Ip, number: usize) -> Result<RouteKey> {
    let (dst, len) = ip.destination(number);
    Ok(RouteKey::new(Net::new(dst, len)?))
}
