//! Gateways that a lease or a router advertisement has brought: those of the default routes that others have put on a
//! link. A declared route may follow one (`gateway-of`): it is written with the gateway that is there, and one that goes
//! through it is seen as declared.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use homeostat_core::WaitsOn;
use homeostat_netlink::Error;
use homeostat_netlink::uapi::{RTA_OIF, RTM_GETROUTE};

use crate::desired::DesiredState;
use crate::link::{IfIndex, LinkName, Links};
use crate::message::{AF_INET, AF_INET6, LinkNames};
use crate::net::Family;
use crate::number::{Protocol, Table};
use crate::observe::{Observation, collect_all, request_for};
use crate::route::message::{SeenRoute, decode_with_way};
use crate::route::rare::Preference;
use crate::route::{Route, RouteKey, RouteKind};

/// The gateways of default routes of others, by link and family of the routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gateways(BTreeMap<(LinkName, Family), Gateway>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gateway {
    via: IpAddr,
    /// Whether it is taken to be on the link whatever its address is.
    onlink: bool,
}

impl Gateways {
    /// Looks at the default routes of the main table that go through some links.
    pub(crate) fn observe(
        observation: &mut Observation<'_, '_>,
        links: &Links,
        names: &BTreeSet<LinkName>,
    ) -> Result<Self, Error> {
        let ours = observation.source.protocol;
        let mut candidates = Vec::new();
        for IfIndex(index) in names.iter().filter_map(|name| links.index(*name)) {
            for family in [AF_INET, AF_INET6] {
                let mut request = homeostat_netlink::Batch::new();
                let fixed = [family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                request_for(&mut request, RTM_GETROUTE, &fixed, Some(Table::MAIN), |message| {
                    message.attr_u32(RTA_OIF, index);
                })?;
                let mut link_names = LinkNames::new(links);
                let found = collect_all(observation.connection, request, |message| {
                    decode_with_way(message, &mut link_names)
                });
                match found {
                    Ok(found) => candidates.extend(found),
                    // The link is gone by now, or the table was never used.
                    Err(Error::Refused(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Self::of(&candidates, names, ours))
    }

    /// The gateways of the best default routes that are not ours.
    fn of(candidates: &[SeenRoute], names: &BTreeSet<LinkName>, ours: Protocol) -> Self {
        let mut best = BTreeMap::new();
        for seen in candidates.iter().filter(|seen| is_default_of_another(seen, ours)) {
            for (link, gateway) in ways(&seen.route).filter(|(link, _)| names.contains(link)) {
                let place = (link, Family::of(seen.key.dst.addr()));
                let preference = match seen.route.rare.pref {
                    Some(Preference::High) => 0,
                    Some(Preference::Low) => 2,
                    _ => 1,
                };
                let rank = (seen.key.metric, preference, gateway.via);
                let known: &mut (_, Gateway) = best.entry(place).or_insert((rank, gateway));
                if rank < known.0 {
                    *known = (rank, gateway);
                }
            }
        }
        Gateways(best.into_iter().map(|(place, (_, gateway))| (place, gateway)).collect())
    }

    /// Whether a route has all that it is made of: the gateway that it follows, if it follows one.
    pub(crate) fn have(&self, key_is_ipv4: bool, route: &Route) -> bool {
        route.rare.gateway_of.is_none_or(|link| self.get(key_is_ipv4, link).is_some())
    }

    fn get(&self, is_ipv4: bool, link: LinkName) -> Option<&Gateway> {
        self.0.get(&(link, if is_ipv4 { Family::V4 } else { Family::V6 }))
    }

    /// The route as it is written: with the gateway that it follows. None, if that is not there.
    pub(crate) fn resolve(&self, key: &RouteKey, route: &Route) -> Option<Route> {
        let gateway = self.get(key.is_ipv4(), route.rare.gateway_of?)?;
        let onlink = route.onlink.or(gateway.onlink.then_some(true));
        Some(Route { via: Some(gateway.via), onlink, ..route.clone() })
    }

    /// Says of a route through the gateway that the declared one follows that it follows it.
    pub(crate) fn put_into_words(&self, desired: &DesiredState, key: &RouteKey, seen: &mut Route) {
        if !seen.dev.is_some_and(|link| desired.relations.follow_gateway_of(link)) {
            return;
        }
        let template = desired.route_slot(key, None).and_then(|slot| desired.template_at(slot));
        let followed = template.and_then(|template| template.route.rare.gateway_of);
        let Some(link) = followed.filter(|link| seen.dev == Some(*link)) else { return };
        if self.get(key.is_ipv4(), link).is_some_and(|gateway| seen.via == Some(gateway.via)) {
            seen.via = None;
            seen.rare.edit().gateway_of = Some(link);
        }
    }
}

/// The links of which declared routes follow the gateway and that an event of a default route may be about.
pub(crate) fn concerned_by(
    desired: &DesiredState,
    seen: &SeenRoute,
    replaces: bool,
    ours: Protocol,
) -> BTreeSet<LinkName> {
    if !is_default_of_another(seen, ours) {
        return BTreeSet::new();
    }
    let followed = desired.relations.followed_links();
    // What was replaced may have been on another link.
    let is_near = |link: &LinkName| {
        replaces || seen.route.links().any(|other| other == *link)
        // The way of a route through a nexthop object is not said here.
        || seen.route.nexthop.is_some()
    };
    followed.filter(is_near).collect()
}

/// What a route waits for that follows the gateway of a link without one.
pub(crate) fn no_gateway(link: LinkName) -> WaitsOn {
    WaitsOn::Condition(format!("a gateway: no gateway on {link} yet"))
}

fn is_default_of_another(seen: &SeenRoute, ours: Protocol) -> bool {
    let SeenRoute { key, route, protocol } = seen;
    key.dst.prefix_len() == 0
        && key.table == Table::MAIN
        && *protocol != ours
        && route.kind == RouteKind::UNICAST
        && route.rare.expires != Some(0)
}

fn ways(route: &Route) -> impl Iterator<Item = (LinkName, Gateway)> {
    let onlink = |onlink: Option<bool>| onlink == Some(true);
    let single = (route.dev, route.via, onlink(route.onlink));
    let hops = route.hops.iter().map(move |hop| (hop.dev, hop.via, onlink(hop.onlink)));
    let all = std::iter::once(single).chain(hops);
    all.filter_map(|(dev, via, onlink)| Some((dev?, Gateway { via: via?, onlink })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::number::Metric;

    fn link(text: &str) -> LinkName {
        text.parse().unwrap()
    }

    fn seen(dst: &str, metric: u32, via: &str, dev: &str, protocol: u8) -> SeenRoute {
        let Ok(Key::Route(key)) = format!("route {dst}").parse() else { panic!("{dst}") };
        let route = Route { dev: Some(link(dev)), ..Route::via(via.parse().unwrap()) };
        let key = key.with_metric(Metric(metric));
        SeenRoute { key, route, protocol: Protocol(protocol) }
    }

    fn found(candidates: &[SeenRoute]) -> Gateways {
        Gateways::of(candidates, &BTreeSet::from([link("wan")]), Protocol::HOMEOSTAT)
    }

    fn via(gateways: &Gateways, is_ipv4: bool) -> Option<String> {
        gateways.get(is_ipv4, link("wan")).map(|gateway| gateway.via.to_string())
    }

    #[test]
    fn the_best_default_route_of_another_on_the_link_has_the_gateway() {
        let all = [
            seen("0.0.0.0/0", 200, "10.0.0.9", "wan", 16),
            seen("0.0.0.0/0", 100, "10.0.0.1", "wan", 16),
            seen("0.0.0.0/0", 1, "10.1.0.1", "lan", 16),
            seen("0.0.0.0/0", 2, "10.0.0.7", "wan", 76),
            seen("10.0.0.0/8", 3, "10.0.0.8", "wan", 16),
            seen("::/0", 1024, "fe80::1", "wan", 9),
        ];
        let gateways = found(&all);
        assert_eq!(via(&gateways, true).as_deref(), Some("10.0.0.1"));
        assert_eq!(via(&gateways, false).as_deref(), Some("fe80::1"));
        assert_eq!(via(&found(&all[2..5]), true), None, "ours, another link, no default");
    }

    #[test]
    fn a_router_that_is_preferred_comes_first_and_one_that_has_expired_not_at_all() {
        let mut preferred = seen("::/0", 1024, "fe80::2", "wan", 9);
        preferred.route.rare.edit().pref = Some(Preference::High);
        let plain = || seen("::/0", 1024, "fe80::1", "wan", 9);
        let mut over = seen("::/0", 1, "fe80::3", "wan", 9);
        over.route.rare.edit().expires = Some(0);
        assert_eq!(via(&found(&[plain(), preferred, over]), false).as_deref(), Some("fe80::2"));
    }
}
