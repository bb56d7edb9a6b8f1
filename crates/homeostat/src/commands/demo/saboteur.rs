//! Writes to the kernel behind homeostat's back, as an operator with `ip` would.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, anyhow};
use homeostat_netlink::uapi::{
    IFLA_MASTER, NHA_ID, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, RT_SCOPE_LINK, RT_SCOPE_UNIVERSE,
    RTA_DST, RTA_GATEWAY, RTA_NH_ID, RTA_OIF, RTM_DELNEXTHOP, RTM_DELROUTE, RTM_NEWLINK,
    RTM_NEWROUTE, RTN_UNICAST, RTPROT_BIRD,
};
use homeostat_netlink::{Attrs, Batch, Connection, Family, MessageWriter};

use super::kernel_state::{KernelState, Key, Kind, Names, Object, index, look};

/// The mark of what is not homeostat's: that of a routing daemon.
pub(super) const FOREIGN: u8 = RTPROT_BIRD;

/// Where others have what is theirs.
pub(super) const THEIRS: &str = "bird0";

/// A route that is added and deleted for its events.
pub(super) const SIGNAL: Route =
    Route { to: Ipv4Addr::new(172, 31, 255, 0), via: None, dev: THEIRS };

const INET: u8 = 2;
const TABLE_MAIN: u8 = 254;
pub(super) const DOWN: u32 = 0;
pub(super) const UP: u32 = 1;

/// Another program with access to the kernel.
pub(super) struct Saboteur {
    connection: Connection,
    batch: Batch,
    pub(super) names: Names,
}

/// A route to 256 addresses, as another program would write it.
#[derive(Clone, Copy)]
pub(super) struct Route {
    pub(super) to: Ipv4Addr,
    pub(super) via: Option<Ipv4Addr>,
    pub(super) dev: &'static str,
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

    /// Deletes objects, one after the other, by the messages that described them.
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

    /// Puts a route of another program in the place of what is there.
    pub(super) fn replace(&mut self, route: Route) -> Result<()> {
        self.route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, route)?;
        self.run()
    }

    /// Adds routes of another program.
    pub(super) fn add(&mut self, routes: impl Iterator<Item = Route>) -> Result<()> {
        for route in routes {
            self.route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, route)?;
        }
        self.run()
    }

    /// Causes an event that marks this moment: all earlier events have been received once it is.
    pub(super) fn signal(&mut self) -> Result<()> {
        self.route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, SIGNAL)?;
        self.route(RTM_DELROUTE, 0, SIGNAL)?;
        self.run()
    }

    fn route(&mut self, kind: u16, flags: u16, route: Route) -> Result<()> {
        let scope = if route.via.is_none() { RT_SCOPE_LINK } else { RT_SCOPE_UNIVERSE };
        let index = self.index(route.dev)?;
        self.write(kind, flags, |message| {
            let kind = RTN_UNICAST;
            message.fixed(&[INET, 24, 0, 0, TABLE_MAIN, FOREIGN, scope, kind, 0, 0, 0, 0]);
            message.attr(RTA_DST, &route.to.octets()).attr_u32(RTA_OIF, index);
            if let Some(via) = route.via {
                message.attr(RTA_GATEWAY, &via.octets());
            }
        })
    }

    /// Quirk `nexthop-id-alone` (Linux 6.18): a route through a nexthop object is reported with the gateway
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

fn ifinfomsg(index: u32, flags: u32, change: u32) -> Vec<u8> {
    [[0; 4], index.to_ne_bytes(), flags.to_ne_bytes(), change.to_ne_bytes()].concat()
}
