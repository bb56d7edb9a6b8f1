//! What a person may mean by an address, a network or the name of a link: the routes to it, the longest destination
//! first, or everything on the link. Looked up, not searched for: there may be a million routes. Pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use homeostat_core::FoundKeys;

use crate::desired::{DesiredState, LinkSet};
use crate::key::Key;
use crate::link::LinkName;
use crate::net::Net;
use crate::route::RouteKey;
use crate::route::packed::{Near, Network, PackedRoute};

/// The declared keys that are meant, at most `limit` of them.
pub(crate) fn find(desired: &DesiredState, text: &str, limit: usize) -> FoundKeys<Key> {
    let mut found = Found { keys: FoundKeys::default(), limit };
    let word = text.strip_prefix("route ").unwrap_or(text);
    if word == "default" {
        for any in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
            found.routes(desired, Net::masked(any, 0), Inside::Leave);
        }
    } else if let Ok(ip) = word.parse::<IpAddr>() {
        found.routes(desired, Net::masked(ip, u8::MAX), Inside::Leave);
        found.addresses(desired, ip);
    } else if let Ok(net) = word.parse::<Net>() {
        found.routes(desired, net, Inside::Add);
        found.addresses(desired, net.addr());
    } else if let Ok(link) = text.parse::<LinkName>()
        && desired.relations.names_link(link)
    {
        found.on_link(desired, link);
    } else {
        let others = desired.others.iter().map(|declared| declared.key.clone());
        return FoundKeys::with_text(text, limit, others);
    }
    found.keys
}

/// Whether routes inside of a network are meant, too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Add,
    Leave,
}

struct Found {
    keys: FoundKeys<Key>,
    limit: usize,
}

impl Found {
    fn add(&mut self, key: Key) {
        self.keys.add(key, self.limit);
    }

    /// A long list, of which only those are made into keys for which there is room.
    fn add_all(&mut self, count: usize, keys: impl Iterator<Item = RouteKey>) {
        let room = self.limit.saturating_sub(self.keys.keys.len());
        self.keys.keys.extend(keys.take(room).map(Key::Route));
        self.keys.total += count;
    }

    fn routes(&mut self, desired: &DesiredState, net: Net, inside: Inside) {
        let len = net.prefix_len();
        match (net.addr(), net.last()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                let (first, last) = (first.to_bits(), last.to_bits());
                let mask = |dst: u32, len: u8| {
                    dst & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
                };
                let near = Near::of(&desired.v4, Network { first, last, len, mask });
                let within = near.inside.into_iter().filter(|_| inside == Inside::Add);
                for part in near.around.into_iter().chain(within) {
                    self.add_all(part.len(), part.iter().map(PackedRoute::<u32>::key));
                }
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                let (first, last) = (first.to_bits(), last.to_bits());
                let mask = |dst: u128, len: u8| {
                    dst & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
                };
                let near = Near::of(&desired.v6, Network { first, last, len, mask });
                let within = near.inside.into_iter().filter(|_| inside == Inside::Add);
                for part in near.around.into_iter().chain(within) {
                    self.add_all(part.len(), part.iter().map(PackedRoute::<u128>::key));
                }
            }
            // Both ends of a network are of one family.
            _ => {}
        }
    }

    /// The addresses whose network has this one, and neighbours with it.
    fn addresses(&mut self, desired: &DesiredState, ip: IpAddr) {
        for address in desired.addresses().filter(|address| address.net().contains(ip)) {
            self.add(Key::Address(address));
        }
        for declared in &desired.others {
            if matches!(&declared.key, Key::Neighbour(key) if key.ip == ip) {
                self.add(declared.key.clone());
            }
        }
    }

    fn on_link(&mut self, desired: &DesiredState, link: LinkName) {
        if let Some((maker, _)) = desired.maker_of(link) {
            self.add(Key::Link(maker));
        }
        desired.fields_of(link).for_each(|key| self.add(key));
        desired.addresses_on(link).for_each(|key| self.add(Key::Address(key)));
        desired.neighbours_on(link).for_each(|key| self.add(Key::Neighbour(key)));
        desired.fdb_on(link).for_each(|key| self.add(key.clone()));
        let set = LinkSet::new(desired, BTreeSet::from([link]));
        set.nexthops.iter().for_each(|id| self.add(Key::Nexthop(*id)));
        desired.relations.referring_to(link).iter().for_each(|key| self.add(key.clone()));
        let templates = set.templates(desired);
        let templates = templates.into_iter().filter_map(|at| desired.templates.get(at as usize));
        for template in templates {
            self.add_all(template.routes.len(), desired.routes_of(template));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Object;
    use crate::route::Route;

    fn desired() -> DesiredState {
        let mut builder = DesiredState::builder();
        let route = |via: &str| Route { via: via.parse().ok(), ..Route::default() };
        for (key, via) in [
            ("route 0.0.0.0/0", "192.0.2.1"),
            ("route 10.0.0.0/8", "192.0.2.2"),
            ("route 10.1.0.0/16", "192.0.2.2"),
            ("route 10.1.0.0/16 metric 50", "192.0.2.3"),
            ("route 10.1.0.0/16 table 7", "192.0.2.3"),
            ("route 10.1.2.0/24", "192.0.2.2"),
            ("route 10.2.0.0/16", "192.0.2.2"),
            ("route ::/0", "2001:db8::1"),
            ("route 2001:db8:1::/48", "2001:db8::2"),
        ] {
            builder.add(key.parse().unwrap(), Object::Route(route(via))).unwrap();
        }
        let address = Object::Address(crate::address::Address::default());
        builder.add("address 192.0.2.9/24 dev br0".parse().unwrap(), address).unwrap();
        builder.build().unwrap()
    }

    #[test]
    fn an_address_finds_the_routes_that_its_packets_may_take_the_longest_first() {
        let found = |text: &str| {
            let found = find(&desired(), text, 100);
            assert_eq!(found.keys.len(), found.total);
            found.keys.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            found("10.1.2.3"),
            [
                "route 10.1.2.0/24",
                "route 10.1.0.0/16 table 7",
                "route 10.1.0.0/16",
                "route 10.1.0.0/16 metric 50",
                "route 10.0.0.0/8",
                "route 0.0.0.0/0",
            ]
        );
        assert_eq!(found("198.51.100.1"), ["route 0.0.0.0/0"]);
        assert_eq!(found("2001:db8:1::9"), ["route 2001:db8:1::/48", "route ::/0"]);
        assert_eq!(found("default"), ["route 0.0.0.0/0", "route ::/0"]);
        assert_eq!(found("192.0.2.77"), ["route 0.0.0.0/0", "address 192.0.2.9/24 dev br0"]);
    }

    #[test]
    fn a_network_finds_what_is_around_it_and_then_what_is_inside() {
        let found = find(&desired(), "10.1.0.0/16", 5);
        let keys: Vec<String> = found.keys.iter().map(ToString::to_string).collect();
        assert_eq!(
            keys,
            [
                "route 10.1.0.0/16 table 7",
                "route 10.1.0.0/16",
                "route 10.1.0.0/16 metric 50",
                "route 10.0.0.0/8",
                "route 0.0.0.0/0",
            ]
        );
        assert_eq!(found.total, 6, "and 10.1.2.0/24");
    }

    #[test]
    fn a_link_finds_what_is_on_it_and_other_words_what_has_them() {
        let found = find(&desired(), "br0", 100);
        let keys: Vec<String> = found.keys.iter().map(ToString::to_string).collect();
        assert_eq!(keys[0], "address 192.0.2.9/24 dev br0");
        assert_eq!(found.total, 8, "with the IPv4 routes whose gateways are in its network");
        assert_eq!(find(&desired(), "dev br", 100).total, 1);
        assert_eq!(find(&desired(), "no such thing", 100).total, 0);
    }
}
