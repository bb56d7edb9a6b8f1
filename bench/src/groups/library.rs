//! The rtnetlink crate: what a Rust user would write today.

use std::net::IpAddr;

use anyhow::Result;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rtnetlink::packet_route::route::RouteProtocol;
use rtnetlink::{Handle, RouteMessageBuilder, new_connection};

use super::wire::{Ip, OURS};

/// Adds the first `size` routes in the calling thread's namespace, with so many requests under way at once.
pub(super) fn add(ip: Ip, size: usize, in_flight: usize) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (connection, handle, _events) = new_connection()?;
        let connection = tokio::spawn(connection);
        let adds = stream::iter(0..size).map(|number| add_one(&handle, ip, number));
        let added = adds.buffer_unordered(in_flight).try_collect::<()>().await;
        connection.abort();
        added
    })
}

async fn add_one(handle: &Handle, ip: Ip, number: usize) -> Result<()> {
    let (dst, len) = ip.destination(number);
    let route = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(dst, len)?
        .gateway(ip.gateway())?
        .protocol(RouteProtocol::Other(OURS));
    Ok(handle.route().add(route.build()).execute().await?)
}
