//! The rtnetlink crate: what a Rust user would write today.

use std::net::IpAddr;

use anyhow::{Result, bail};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol};
use rtnetlink::{Handle, RouteMessageBuilder, new_connection};

use super::wire::{Ip, OURS};

/// How many requests are under way at once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// The next one follows the answer.
    OneByOne,
    /// As many as the default receive buffer has room for answers.
    Pipelined,
}

impl Pace {
    fn in_flight(self) -> usize {
        match self {
            Pace::OneByOne => 1,
            Pace::Pipelined => 256,
        }
    }
}

/// Adds the first `size` routes in the calling thread's namespace.
pub(super) fn add(ip: Ip, size: usize, pace: Pace) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (connection, handle, _events) = new_connection()?;
        let connection = tokio::spawn(connection);
        let adds = stream::iter(0..size).map(|number| add_one(&handle, ip, number));
        let added = adds.buffer_unordered(pace.in_flight()).try_collect::<()>().await;
        connection.abort();
        added
    })
}

async fn add_one(handle: &Handle, ip: Ip, number: usize) -> Result<()> {
    Ok(handle.route().add(route(ip, number)?).execute().await?)
}

fn route(ip: Ip, number: usize) -> Result<RouteMessage> {
    let (dst, len) = ip.destination(number);
    let protocol = RouteProtocol::Other(OURS);
    Ok(match (dst, ip.gateway()) {
        (IpAddr::V4(dst), IpAddr::V4(gateway)) => RouteMessageBuilder::<std::net::Ipv4Addr>::new()
            .destination_prefix(dst, len)
            .gateway(gateway)
            .protocol(protocol)
            .build(),
        (IpAddr::V6(dst), IpAddr::V6(gateway)) => RouteMessageBuilder::<std::net::Ipv6Addr>::new()
            .destination_prefix(dst, len)
            .gateway(gateway)
            .protocol(protocol)
            .build(),
        _ => bail!("two versions in one route"),
    })
}
