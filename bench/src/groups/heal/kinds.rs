//! How soon one rule, address, neighbour, nexthop or link among many is restored, beside the two requests that it takes.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use homeostat_netlink::{
    Batch, Event, Family, Group as Multicast, Listener, Message, Options, Socket, uapi,
};

use super::super::network::{LINK_INDEX, TestNetwork};
use super::super::wire::{OURS, Verb, address, addresses, send_raw};
use super::daemon::Daemon;
use super::latency::record;
use crate::{Budget, Group, Run, Unit, clock};

/// From the deletion to the kernel's event of the return, the median of a round. The floor of each size is a deletion
/// and an add among as many objects: the kernel itself walks all rules for each, and all addresses of a link.
pub(super) fn groups() -> Vec<Group> {
    const FEW: &str = "of few";
    const MANY_FLOOR: &str = "floor of many: a deletion and an add";
    let group = |name, kind: Kind, few, many, against| {
        Group::new(name, Unit::Seconds)
            .with("floor of few: a deletion and an add", move |run| floor(run, kind, few), &[])
            .with(FEW, move |run| heals(run, kind, few), &[])
            .with(MANY_FLOOR, move |run| floor(run, kind, many), &[])
            .with("of many", move |run| heals(run, kind, many), &[Budget::Within(3.0, against)])
    };
    vec![
        group("heal: one deleted rule of 100 or 10k", Kind::Rule, 100, 10_000, MANY_FLOOR),
        group("heal: one deleted address of 100 or 20k", Kind::Address, 100, 20_000, MANY_FLOOR),
        group("heal: one deleted neighbour of 100 or 50k", Kind::Neighbour, 100, 50_000, FEW),
        group("heal: one deleted nexthop of 100 or 20k", Kind::Nexthop, 100, 20_000, FEW),
        group("heal: one changed link of 100 or 5k pairs", Kind::Mtu, 100, 5000, FEW),
        group("heal: one deleted link of 100 or 5k pairs", Kind::Pair, 100, 5000, FEW),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rule,
    Address,
    Neighbour,
    Nexthop,
    /// The MTU of a link, which is set to another one, and back.
    Mtu,
    /// A pair of links.
    Pair,
}

/// More than this on the same hundred keys would be contention.
const HEALS: usize = 50;

/// Longer than a busy machine needs.
const TIMEOUT: Duration = Duration::from_mins(2);

/// The lowest priority of the rules.
const PRIORITY: u32 = 1000;
const TABLE: u32 = 100;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const MTU: u32 = 1400;
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
/// A prime, so that all come before one is repeated.
const STRIDE: usize = 7919;

impl Kind {
    fn document(self, size: usize) -> Result<String> {
        let mut text = String::from(match self {
            Kind::Rule => "rules = [\n",
            Kind::Address => "[links.v0]\naddresses = [\n",
            Kind::Neighbour => "neighbours = [\n",
            Kind::Nexthop => "nexthops = [\n",
            Kind::Mtu | Kind::Pair => "",
        });
        for number in 0..size {
            let ip = address(number);
            match self {
                Kind::Rule => {
                    let priority = PRIORITY as usize + number;
                    writeln!(
                        text,
                        "{{ priority = {priority}, from = \"{ip}\", table = {TABLE} }},"
                    )?;
                }
                Kind::Address => writeln!(text, "\"{ip}/32\",")?,
                Kind::Neighbour => {
                    let mac = MAC.map(|byte| format!("{byte:02x}")).join(":");
                    writeln!(text, "{{ to = \"{ip}\", dev = \"v0\", mac = \"{mac}\" }},")?;
                }
                Kind::Nexthop => {
                    writeln!(
                        text,
                        "{{ id = {}, via = \"{GATEWAY}\", dev = \"v0\" }},",
                        number + 1
                    )?;
                }
                Kind::Mtu | Kind::Pair => {
                    let kind = "kind = \"veth\"";
                    writeln!(text, "[links.a{number}]\n{kind}\npeer = \"b{number}\"\nmtu = {MTU}")?;
                }
            }
        }
        text.push_str(if self.is_link() { "" } else { "]\n" });
        Ok(text)
    }

    fn is_link(self) -> bool {
        matches!(self, Kind::Mtu | Kind::Pair)
    }

    /// One acked request. What is added is as declared.
    fn request(self, verb: Verb, number: usize) -> Result<Batch> {
        const INET: u8 = 2;
        let (ip, [i0, i1, i2, i3]) = (address(number).octets(), LINK_INDEX.to_ne_bytes());
        let add = uapi::NLM_F_CREATE | uapi::NLM_F_EXCL;
        let (kind, flags) = match (self, verb) {
            (Kind::Rule, Verb::Add) => (uapi::RTM_NEWRULE, add),
            (Kind::Rule, Verb::Delete) => (uapi::RTM_DELRULE, 0),
            (Kind::Address, _) => return addresses(verb, number..number + 1),
            (Kind::Neighbour, Verb::Add) => (uapi::RTM_NEWNEIGH, add),
            (Kind::Neighbour, Verb::Delete) => (uapi::RTM_DELNEIGH, 0),
            (Kind::Nexthop, Verb::Add) => (uapi::RTM_NEWNEXTHOP, add),
            (Kind::Nexthop, Verb::Delete) => (uapi::RTM_DELNEXTHOP, 0),
            (Kind::Pair, Verb::Add) => (uapi::RTM_NEWLINK, add),
            (Kind::Pair, Verb::Delete) => (uapi::RTM_DELLINK, 0),
            (Kind::Mtu, _) => (uapi::RTM_NEWLINK, 0),
        };
        let mut batch = Batch::new();
        let mut message = batch.message(kind, flags | uapi::NLM_F_ACK);
        match self {
            Kind::Rule => {
                message.fixed(&[INET, 0, 32, 0, 0, 0, 0, uapi::FR_ACT_TO_TBL, 0, 0, 0, 0]);
                message.attr_u32(uapi::FRA_PRIORITY, PRIORITY + u32::try_from(number)?);
                message.attr(uapi::FRA_SRC, &ip);
                message.attr_u32(uapi::FRA_TABLE, TABLE);
                message.attr_u8(uapi::FRA_PROTOCOL, OURS);
            }
            Kind::Address => {}
            Kind::Neighbour => {
                let [s0, s1] = uapi::NUD_PERMANENT.to_ne_bytes();
                message.fixed(&[INET, 0, 0, 0, i0, i1, i2, i3, s0, s1, 0, 0]);
                if verb == Verb::Add {
                    message.attr_u8(uapi::NDA_PROTOCOL, OURS);
                    message.attr(uapi::NDA_LLADDR, &MAC);
                }
                message.attr(uapi::NDA_DST, &ip);
            }
            Kind::Nexthop => {
                let is_new = verb == Verb::Add;
                let (family, protocol) = if is_new { (INET, OURS) } else { (0, 0) };
                message.fixed(&[family, 0, protocol, 0, 0, 0, 0, 0]);
                message.attr_u32(uapi::NHA_ID, 1 + u32::try_from(number)?);
                if is_new {
                    message.attr_u32(uapi::NHA_OIF, LINK_INDEX);
                    message.attr(uapi::NHA_GATEWAY, &GATEWAY.octets());
                }
            }
            Kind::Mtu => {
                let mtu = if verb == Verb::Add { MTU } else { MTU + 1 };
                message.fixed(&[0; 16]);
                message.attr(uapi::IFLA_IFNAME, format!("a{number}\0").as_bytes());
                message.attr_u32(uapi::IFLA_MTU, mtu);
            }
            Kind::Pair => {
                message.fixed(&[0; 16]);
                message.attr(uapi::IFLA_IFNAME, format!("a{number}\0").as_bytes());
                if verb == Verb::Add {
                    message.attr_u32(uapi::IFLA_MTU, MTU);
                    message.nest_unmarked(uapi::IFLA_LINKINFO, |info| {
                        info.attr(uapi::IFLA_INFO_KIND, b"veth");
                        info.nest_unmarked(uapi::IFLA_INFO_DATA, |data| {
                            data.nest_unmarked(uapi::VETH_INFO_PEER, |peer| {
                                peer.fixed(&[0; 16]);
                                peer.attr(uapi::IFLA_IFNAME, format!("b{number}\0").as_bytes());
                            });
                        });
                    });
                }
            }
        }
        message.finish()?;
        Ok(batch)
    }

    fn multicast(self) -> Multicast {
        Multicast(match self {
            Kind::Rule => uapi::RTNLGRP_IPV4_RULE,
            Kind::Address => uapi::RTNLGRP_IPV4_IFADDR,
            Kind::Neighbour => uapi::RTNLGRP_NEIGH,
            Kind::Nexthop => uapi::RTNLGRP_NEXTHOP,
            Kind::Mtu | Kind::Pair => uapi::RTNLGRP_LINK,
        })
    }

    /// Whether an event says that the object of this number is as declared.
    fn is_back(self, message: &Message<'_>, number: usize) -> bool {
        let ip = address(number).octets();
        let has = |attrs: homeostat_netlink::Attrs<'_>, kind: u16, value: &[u8]| {
            attrs.first(kind).ok().flatten().is_some_and(|attr| attr.value == value)
        };
        match (self, message.kind) {
            (Kind::Rule, uapi::RTM_NEWRULE) => {
                message.split::<12>().is_ok_and(|(_, attrs)| has(attrs, uapi::FRA_SRC, &ip))
            }
            (Kind::Address, uapi::RTM_NEWADDR) => {
                message.split::<8>().is_ok_and(|(_, attrs)| has(attrs, uapi::IFA_LOCAL, &ip))
            }
            // One that is deleted is announced as new first, with a state in which it is of no use.
            (Kind::Neighbour, uapi::RTM_NEWNEIGH) => {
                message.split::<12>().is_ok_and(|([_, _, _, _, _, _, _, _, s0, s1, ..], attrs)| {
                    [*s0, *s1] == uapi::NUD_PERMANENT.to_ne_bytes()
                        && has(attrs, uapi::NDA_DST, &ip)
                })
            }
            (Kind::Nexthop, uapi::RTM_NEWNEXTHOP) => {
                message.split::<8>().is_ok_and(|(_, attrs)| {
                    let id = u32::try_from(number + 1).unwrap_or(u32::MAX);
                    has(attrs, uapi::NHA_ID, &id.to_ne_bytes())
                })
            }
            (Kind::Mtu | Kind::Pair, uapi::RTM_NEWLINK) => {
                message.split::<16>().is_ok_and(|(_, attrs)| {
                    let name = format!("a{number}\0");
                    has(attrs.clone(), uapi::IFLA_IFNAME, name.as_bytes())
                        && has(attrs, uapi::IFLA_MTU, &MTU.to_ne_bytes())
                })
            }
            _ => false,
        }
    }
}

/// A namespace with a daemon that keeps many of a kind.
struct Fixture {
    // Dropped first.
    _daemon: Daemon,
    listener: Listener,
    socket: Socket,
    network: TestNetwork,
    kind: Kind,
    size: usize,
    next: usize,
}

thread_local! {
    /// Kept for all rounds of a group.
    static KEPT: RefCell<Vec<Fixture>> = const { RefCell::new(Vec::new()) };
}

fn heals(run: &mut Run, kind: Kind, full: usize) -> Result<()> {
    let size = run.size(full, full.min(200));
    KEPT.with_borrow_mut(|kept| {
        kept.retain(|fixture| fixture.kind == kind);
        if !kept.iter().any(|fixture| fixture.size == size) {
            let network = TestNetwork::new()?;
            let daemon = Daemon::of(&kind.document(size)?)?;
            let options = Options::for_events();
            let listener = Listener::open(Family::Route, &[kind.multicast()], &options)?;
            let socket = network.socket()?;
            kept.push(Fixture { _daemon: daemon, listener, socket, network, kind, size, next: 0 });
        }
        let fixture = kept.iter_mut().find(|fixture| fixture.size == size).context("no fixture")?;
        fixture.network.enter()?;
        let times: Result<Vec<Duration>> = (0..HEALS).map(|_| fixture.heal_another()).collect();
        let mut times = times?;
        times.sort_unstable();
        record(run, &times, 50)
    })
}

impl Fixture {
    fn heal_another(&mut self) -> Result<Duration> {
        self.next = (self.next + STRIDE) % self.size;
        let (kind, number) = (self.kind, self.next);
        let delete = kind.request(Verb::Delete, number)?;
        while self.listener.receive(&mut |_| ())? {}
        let Fixture { socket, listener, .. } = self;
        let (healed, elapsed) = clock::time(|| {
            send_raw(socket, &delete)?;
            let mut is_back = false;
            while !is_back {
                let received = listener.receive_within(TIMEOUT, &mut |event| {
                    if let Event::Message(message) = event {
                        is_back |= kind.is_back(&message, number);
                    }
                })?;
                ensure!(received, "it is not restored");
            }
            Ok(())
        });
        healed.map(|()| elapsed)
    }
}

/// A namespace with many of a kind, and no daemon that keeps them.
struct Unkept {
    socket: Socket,
    network: TestNetwork,
    kind: Kind,
    size: usize,
    next: usize,
}

thread_local! {
    /// Kept for all rounds of a group.
    static UNKEPT: RefCell<Vec<Unkept>> = const { RefCell::new(Vec::new()) };
}

fn floor(run: &mut Run, kind: Kind, full: usize) -> Result<()> {
    let size = run.size(full, full.min(200));
    UNKEPT.with_borrow_mut(|kept| {
        kept.retain(|fixture| fixture.kind == kind);
        if !kept.iter().any(|fixture| fixture.size == size) {
            kept.push(Unkept::new(kind, size)?);
        }
        let fixture = kept.iter_mut().find(|fixture| fixture.size == size).context("no fixture")?;
        fixture.network.enter()?;
        let mut times: Vec<Duration> = Vec::new();
        for _ in 0..HEALS {
            fixture.next = (fixture.next + STRIDE) % size;
            let verbs = [Verb::Delete, Verb::Add];
            let [delete, add] = verbs.map(|verb| kind.request(verb, fixture.next));
            let requests = [delete?, add?];
            let socket = &fixture.socket;
            let (sent, elapsed) =
                clock::time(|| requests.iter().try_for_each(|request| send_raw(socket, request)));
            sent?;
            times.push(elapsed);
        }
        times.sort_unstable();
        record(run, &times, 50)
    })
}

impl Unkept {
    fn new(kind: Kind, size: usize) -> Result<Self> {
        let network = TestNetwork::new()?;
        let socket = network.socket()?;
        // A link that is changed has to be there before.
        let made = if kind.is_link() { Kind::Pair } else { kind };
        for number in 0..size {
            send_raw(&socket, &made.request(Verb::Add, number)?)?;
        }
        Ok(Unkept { socket, network, kind, size, next: 0 })
    }
}
