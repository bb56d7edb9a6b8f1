//! The law suite over the nexthops, rules and neighbours of a real network namespace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use homeostat_engine::Ownership;
use homeostat_netlink::uapi::{RTNLGRP_IPV4_RULE, RTNLGRP_NEIGH, RTNLGRP_NEXTHOP};
use homeostat_netlink::{Event, Family, Group, Listener, Options};
use homeostat_rtnl::{Key, Rtnl, Wish};
use homeostat_testkit::laws::{self, Ability, Disturbance, Harness, Meter, Wish as Which};
use homeostat_testkit::namespace::Namespace;
use serde_json::Value;

use crate::bench::{block_on, cable, ip, listed, wish};

struct Network {
    namespace: Namespace,
    writes: Arc<Mutex<Writes>>,
}

/// Counts what the kernel announces, by whomever it was written.
struct Writes {
    listener: Listener,
    count: u64,
}

impl Writes {
    /// IPv6 finds neighbours by itself.
    fn count(&mut self) -> u64 {
        let Writes { listener, count } = self;
        let is_ipv6 = |event: &Event<'_>| match event {
            Event::Message(message) => message.payload.first() == Some(&10),
            Event::Lost => false,
        };
        while listener.receive(&mut |event| *count += u64::from(!is_ipv6(&event))).unwrap() {}
        *count
    }
}

impl Network {
    fn new() -> Self {
        let namespace = cable();
        ip(&namespace, "address add 10.0.0.1/24 dev va");
        let groups = [RTNLGRP_NEXTHOP, RTNLGRP_IPV4_RULE, RTNLGRP_NEIGH].map(Group);
        let listener = Listener::open(Family::Route, &groups, &Options::for_events()).unwrap();
        Network { namespace, writes: Arc::new(Mutex::new(Writes { listener, count: 0 })) }
    }

    /// Puts something else on a key.
    fn put(&self, key: &Key, owner: &str) {
        let text = key.to_string();
        let text = text.replace("neighbour", "neigh replace").replace("rule", "rule add");
        let rest = match key {
            Key::Nexthop(id) => {
                let way = "via 10.0.0.99 dev va proto";
                return ip(&self.namespace, &format!("nexthop replace id {id} {way} {owner}"));
            }
            Key::Rule(_) => "table 99",
            _ => "lladdr 02:00:00:00:00:99 nud permanent",
        };
        ip(&self.namespace, &format!("{text} {rest} protocol {owner}"));
    }

    fn remove(&self, key: &Key) {
        let text = key.to_string().replace("neighbour", "neigh del").replace("rule", "rule del");
        ip(&self.namespace, &text.replace("nexthop", "nexthop del id"));
    }
}

fn name(one: &Value) -> String {
    let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
    match (one.get("id"), one.get("priority")) {
        (Some(id), _) => format!("nexthop {id}"),
        (_, Some(priority)) if one.get("srclen").is_some() => {
            format!("rule priority {priority} from {}/{}", text("src"), one["srclen"])
        }
        (_, Some(priority)) => format!("rule priority {priority}"),
        _ => format!("neighbour {} dev {}", text("dst"), text("dev")),
    }
}

impl Harness for Network {
    type Source = Rtnl;

    fn reset(&mut self) {
        *self = Network::new();
    }

    fn source(&self) -> Rtnl {
        Rtnl::here()
    }

    fn ownership(&self) -> Ownership {
        Ownership::Marked
    }

    fn wish(&self, which: Which) -> Wish {
        wish(match which {
            Which::First => &[
                ("nexthop 10", "via 10.0.0.2 dev va"),
                ("rule priority 1000 from 10.0.0.0/8", "table 7"),
                ("rule priority 1001", "table 7"),
                ("neighbour 10.0.0.9 dev va", "02:00:00:00:00:09"),
                ("neighbour 10.0.0.10 dev va", "02:00:00:00:00:10"),
            ],
            Which::Second => &[
                ("nexthop 10", "via 10.0.0.3 dev va"),
                ("nexthop 11", "member 10*1"),
                ("rule priority 1000 from 10.0.0.0/8", "table 8"),
                ("neighbour 10.0.0.9 dev va", "02:00:00:00:00:09"),
            ],
            Which::Nothing => &[],
        })
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        let lists = ["-d nexthop show", "-d rule show", "-d neigh show nud permanent"];
        let all = lists.iter().flat_map(|args| listed(&self.namespace, args));
        all.map(|one| (name(&one), one.to_string())).collect()
    }

    fn meter(&self) -> Meter {
        let writes = self.writes.clone();
        Arc::new(move || writes.lock().unwrap_or_else(PoisonError::into_inner).count())
    }

    fn disturb(&mut self, how: Disturbance<'_, Key>) -> Ability {
        match how {
            Disturbance::Remove(key) => self.remove(key),
            Disturbance::Alter(key) => {
                if let Key::Rule(_) = key {
                    self.remove(key);
                }
                self.put(key, "76");
            }
            Disturbance::Stranger => {
                ip(&self.namespace, "rule add priority 9 from 10.9.0.0/16 table 9 protocol bird");
            }
            Disturbance::Occupy(key) => self.put(key, "bird"),
        }
        Ability::Done
    }
}

#[test]
fn the_laws_hold_over_nexthops_rules_and_neighbours() {
    let verdict = block_on(async { laws::check(&mut Network::new()).await });
    let verdict = verdict.unwrap_or_else(|broken| panic!("{broken}"));
    // The kernel can neither be blinded nor be made to refuse a good object.
    let laws: Vec<_> = verdict.unchecked.iter().map(|(law, _)| *law).collect();
    assert_eq!(laws, [1, 1, 9], "{:?}", verdict.unchecked);
}
