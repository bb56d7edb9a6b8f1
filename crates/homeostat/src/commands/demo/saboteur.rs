//! Writes to the kernel behind homeostat's back, as somebody with `ip` would.

use std::net::IpAddr;

use anyhow::{Context as _, Result, anyhow};
use homeostat_netlink::uapi::{
    IFLA_MASTER, NHA_ID, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, RT_SCOPE_UNIVERSE, RTA_DST,
    RTA_GATEWAY, RTA_NH_ID, RTA_OIF, RTA_PRIORITY, RTM_DELNEXTHOP, RTM_DELROUTE, RTM_NEWLINK,
    RTM_NEWROUTE, RTN_UNICAST, RTPROT_BIRD,
};
use homeostat_netlink::{Attrs, Batch, Connection, Family, MessageWriter};

use super::kernel_state::{KernelState, Key, Kind, Names, Object, index, look};

/// The mark of what is not homeostat's: that of a routing daemon.
pub(super) const FOREIGN: u8 = RTPROT_BIRD;

/// Where others have what is theirs.
pub(super) const THEIRS: &str = "bird0";

/// A route that comes and goes so that it is heard of.
pub(super) const SIGNAL: Route<'static> =
    Route { to: "172.31.255.0", length: 24, via: None, dev: THEIRS, metric: 0 };

const INET: u8 = 2;
const INET6: u8 = 10;
const TABLE_MAIN: u8 = 254;
pub(super) const DOWN: u32 = 0;
pub(super) const UP: u32 = 1;

/// Somebody else with access to the kernel.
pub(super) struct Saboteur {
    connection: Connection,
    batch: Batch,
    pub(super) names: Names,
}

/// A route as somebody else would write it.
#[derive(Clone, Copy)]
pub(super) struct Route<'a> {
    pub(super) to: &'a str,
    pub(super) length: u8,
    pub(super) via: Option<&'a str>,
    pub(super) dev: &'a str,
    pub(super) metric: u32,
}

impl Saboteur {
    pub(super) fn open() -> Result<Self> {
        let (connection, batch) = (Connection::open(Family::Route)?, Batch::new());
        Ok(Saboteur { connection, batch, names: Names::default() })
    }

    /// Everything that is there now.
    pub(super) fn look(&mut self) -> Result<KernelState> {
        look(&mut self.connection, &mut self.names)
    }

    /// Deletes objects, one after the other, by the messages that told of them.
    pub(super) fn delete(&mut self, all: &[(Key, Object)]) -> Result<()> {
        for (key, object) in all {
            let (kind, body) = (key.kind.delete(), &*object.body);
            match key.kind {
                Kind::Link => self.send(kind, &ifinfomsg(index(body).context("no link")?, 0, 0))?,
                Kind::Nexthop => self.delete_nexthop(&key.name)?,
                Kind::Route => self.delete_route(body)?,
                Kind::Address | Kind::Rule | Kind::Neighbour => self.send(kind, body)?,
            }
        }
        self.run()
    }

    /// Sets a link down, or up, one after the other.
    pub(super) fn set(&mut self, link: &str, flags: &[u32]) -> Result<()> {
        let index = self.index(link)?;
        for flags in flags {
            self.send(RTM_NEWLINK, &ifinfomsg(index, *flags, UP))?;
        }
        self.run()
    }

    /// Takes a link out of its bridge.
    pub(super) fn unplug(&mut self, link: &str) -> Result<()> {
        let index = self.index(link)?;
        self.write(RTM_NEWLINK, 0, |message| {
            message.fixed(&ifinfomsg(index, 0, 0)).attr_u32(IFLA_MASTER, 0);
        })?;
        self.run()
    }

    /// Puts a route of somebody else in the place of what is there.
    pub(super) fn replace(&mut self, route: Route<'_>) -> Result<()> {
        self.route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, route)?;
        self.run()
    }

    /// Adds routes of somebody else.
    pub(super) fn add<'a>(&mut self, routes: impl Iterator<Item = Route<'a>>) -> Result<()> {
        for route in routes {
            self.route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, route)?;
        }
        self.run()
    }

    /// Makes the kernel tell of something that is nobody's business.
    pub(super) fn signal(&mut self) -> Result<()> {
        self.route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, SIGNAL)?;
        self.route(RTM_DELROUTE, 0, SIGNAL)?;
        self.run()
    }

    fn route(&mut self, kind: u16, flags: u16, route: Route<'_>) -> Result<()> {
        let (to, via) = (octets(route.to)?, route.via.map(octets).transpose()?);
        let family = if to.len() == 4 { INET } else { INET6 };
        let scope = if via.is_none() && family == INET { 253 } else { RT_SCOPE_UNIVERSE };
        let index = self.index(route.dev)?;
        self.write(kind, flags, |message| {
            let (length, to_one) = (route.length, RTN_UNICAST);
            message.fixed(&[family, length, 0, 0, TABLE_MAIN, FOREIGN, scope, to_one, 0, 0, 0, 0]);
            message
                .attr(RTA_DST, &to)
                .attr_u32(RTA_OIF, index)
                .attr_u32(RTA_PRIORITY, route.metric);
            if let Some(via) = &via {
                message.attr(RTA_GATEWAY, via);
            }
        })
    }

    /// Quirk `nexthop-id-alone` (Linux 6.18): a route through a nexthop object is told with the gateway
    /// and link of that object, and the same message as a request is refused ("mutually exclusive").
    fn delete_route(&mut self, body: &[u8]) -> Result<()> {
        let (fixed, attrs) = body.split_at_checked(12).context("no route")?;
        let attrs: Vec<_> = Attrs::new(attrs).collect::<Result<_, _>>()?;
        let has_id = attrs.iter().any(|attr| attr.kind == RTA_NH_ID);
        self.write(RTM_DELROUTE, 0, |message| {
            message.fixed(fixed);
            for attr in attrs {
                if !has_id || ![RTA_GATEWAY, RTA_OIF].contains(&attr.kind) {
                    message.attr(attr.kind, attr.value);
                }
            }
        })
    }

    fn delete_nexthop(&mut self, name: &str) -> Result<()> {
        let id = name.strip_prefix("nexthop ").context("no nexthop")?.parse()?;
        self.write(RTM_DELNEXTHOP, 0, |message| {
            message.fixed(&[0; 8]).attr_u32(NHA_ID, id);
        })
    }

    fn send(&mut self, kind: u16, body: &[u8]) -> Result<()> {
        self.write(kind, 0, |message| {
            message.fixed(body);
        })
    }

    fn write(
        &mut self,
        kind: u16,
        flags: u16,
        fill: impl FnOnce(&mut MessageWriter<'_>),
    ) -> Result<()> {
        let mut message = self.batch.message(kind, flags);
        fill(&mut message);
        Ok(message.finish()?)
    }

    fn run(&mut self) -> Result<()> {
        let asked = self.connection.ask(&mut self.batch, &mut |_| {});
        self.batch.clear();
        asked.context("the kernel refused the sabotage")
    }

    fn index(&self, link: &str) -> Result<u32> {
        self.names.index(link).ok_or_else(|| anyhow!("the demo has no link `{link}`"))
    }
}

fn octets(ip: &str) -> Result<Vec<u8>> {
    Ok(match ip.parse::<IpAddr>()? {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    })
}

fn ifinfomsg(index: u32, flags: u32, change: u32) -> Vec<u8> {
    [[0; 4], index.to_ne_bytes(), flags.to_ne_bytes(), change.to_ne_bytes()].concat()
}
