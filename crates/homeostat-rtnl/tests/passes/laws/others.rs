//! The laws over nexthops, rules and neighbours.

use std::collections::BTreeMap;

use homeostat_netlink::Event;
use homeostat_netlink::uapi::{RTNLGRP_IPV4_RULE, RTNLGRP_NEIGH, RTNLGRP_NEXTHOP};
use homeostat_rtnl::Key;
use homeostat_testkit::laws::{Ability, DesiredState as Which, Disturbance};
use homeostat_testkit::namespace::Namespace;
use serde_json::Value;

use super::{Objects, check};
use crate::bench::{Declared, cable, ip, listed};

struct Others;

/// Puts something else on a key.
fn put(namespace: &Namespace, key: &Key, owner: &str) {
    let text = key.to_string();
    let text = text.replace("neighbour", "neigh replace").replace("rule", "rule add");
    let rest = match key {
        Key::Nexthop(id) => {
            let way = "via 10.0.0.99 dev va proto";
            return ip(namespace, &format!("nexthop replace id {id} {way} {owner}"));
        }
        Key::Rule(_) => "table 99",
        _ => "lladdr 02:00:00:00:00:99 nud permanent",
    };
    ip(namespace, &format!("{text} {rest} protocol {owner}"));
}

fn remove(namespace: &Namespace, key: &Key) {
    let text = key.to_string().replace("neighbour", "neigh del").replace("rule", "rule del");
    ip(namespace, &text.replace("nexthop", "nexthop del id"));
}

fn name(one: &Value) -> String {
    let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
    match (one.get("id"), one.get("priority")) {
        (Some(id), _) => format!("nexthop {id}"),
        (_, Some(priority)) => {
            let from = one.get("srclen").map(|len| format!(" from {}/{len}", text("src")));
            // The kernel keeps several rules of one key.
            let owner = Some(text("protocol")).filter(|owner| owner != "76");
            let owner = owner.map(|owner| format!(" of {owner}"));
            format!(
                "rule priority {priority}{}{}",
                from.unwrap_or_default(),
                owner.unwrap_or_default()
            )
        }
        _ => format!("neighbour {} dev {}", text("dst"), text("dev")),
    }
}

impl Objects for Others {
    const GROUPS: &'static [u32] = &[RTNLGRP_NEXTHOP, RTNLGRP_IPV4_RULE, RTNLGRP_NEIGH];

    fn prepare() -> Namespace {
        let namespace = cable();
        ip(&namespace, "address add 10.0.0.1/24 dev va");
        namespace
    }

    fn desired(which: Which) -> &'static [Declared<'static>] {
        match which {
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
        }
    }

    fn snapshot(namespace: &Namespace) -> BTreeMap<String, String> {
        let lists = ["-d nexthop show", "-d rule show", "-d neigh show nud permanent"];
        let all = lists.iter().flat_map(|args| listed(namespace, args));
        all.map(|one| (name(&one), one.to_string())).collect()
    }

    fn disturb(namespace: &Namespace, how: Disturbance<'_, Key>) {
        match how {
            Disturbance::Remove(key) => remove(namespace, key),
            Disturbance::Alter(key) => {
                if let Key::Rule(_) = key {
                    remove(namespace, key);
                }
                put(namespace, key, "76");
            }
            Disturbance::Stranger => {
                ip(namespace, "rule add priority 9 from 10.9.0.0/16 table 9 protocol bird");
            }
            Disturbance::Occupy(key) => put(namespace, key, "bird"),
        }
    }

    /// A gateway that cannot be reached. The kernel takes every good rule and neighbour.
    fn refuse(namespace: &Namespace, key: &Key) -> Ability {
        let Key::Nexthop(_) = key else { return Ability::Unable };
        ip(namespace, "address del 10.0.0.1/24 dev va");
        Ability::Done
    }

    fn mend(namespace: &Namespace) {
        ip(namespace, "address replace 10.0.0.1/24 dev va");
    }

    /// IPv6 finds neighbours by itself.
    fn is_by_itself(event: &Event<'_>) -> bool {
        match event {
            Event::Message(message) => message.payload.first() == Some(&10),
            Event::Lost => false,
        }
    }
}

#[test]
fn the_laws_hold_over_nexthops_rules_and_neighbours() {
    assert_eq!(check::<Others>(), [1, 4, 9]);
}
