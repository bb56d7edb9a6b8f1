//! The laws over routes.

use std::collections::BTreeMap;

use homeostat_netlink::uapi::{RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE};
use homeostat_rtnl::Key;
use homeostat_testkit::laws::{Ability, DesiredState as Which, Disturbance};
use homeostat_testkit::namespace::Namespace;

use super::{Objects, check};
use crate::bench::{Declared, cable, ip, listed};

/// Routes by gateways, each in a subnet of its own.
struct Routes;

impl Objects for Routes {
    const GROUPS: &'static [u32] = &[RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV4_IFADDR];

    fn prepare() -> Namespace {
        let namespace = cable();
        for subnet in [0, 4, 5, 6] {
            ip(&namespace, &format!("address add 10.0.{subnet}.1/24 dev va"));
        }
        namespace
    }

    fn desired(which: Which) -> &'static [Declared<'static>] {
        match which {
            Which::First => &[
                ("route 10.4.0.0/16", "via 10.0.4.2 advmss 1300 quickack on"),
                ("route 10.5.0.0/16", "via 10.0.5.2 src 10.0.0.1"),
                ("route 10.6.0.0/16", "dev va src 10.0.6.1"),
            ],
            Which::Second => &[
                ("route 10.4.0.0/16", "via 10.0.4.3 initcwnd 20"),
                ("route 10.6.0.0/16", "dev va src 10.0.6.1"),
                ("route 10.7.0.0/16", "type blackhole"),
            ],
            Which::Nothing => &[],
        }
    }

    fn snapshot(namespace: &Namespace) -> BTreeMap<String, String> {
        let routes = listed(namespace, "-4 -d route show");
        let text = |route: &serde_json::Value| format!("route {}", route["dst"].as_str().unwrap());
        routes.iter().map(|route| (text(route), route.to_string())).collect()
    }

    fn disturb(namespace: &Namespace, how: Disturbance<'_, Key>) {
        let on = |key: &Key, verb: &str| key.to_string().replace("route", &format!("route {verb}"));
        match how {
            Disturbance::Remove(key) => ip(namespace, &on(key, "del")),
            Disturbance::Alter(key) => {
                ip(namespace, &format!("{} via 10.0.0.9 proto 76", on(key, "replace")));
            }
            Disturbance::Stranger => {
                ip(namespace, "route add 10.99.0.0/16 via 10.0.0.2 proto bird");
            }
            Disturbance::Occupy(key) => {
                ip(namespace, &format!("{} via 10.0.0.9 proto bird", on(key, "add")));
            }
        }
    }

    /// A gateway that cannot be reached, or a source address that is not there.
    fn refuse(namespace: &Namespace, key: &Key) -> Ability {
        let key = key.to_string();
        let subnet = key.split('.').nth(1).unwrap();
        ip(namespace, &format!("address del 10.0.{subnet}.1/24 dev va"));
        Ability::Done
    }

    fn mend(namespace: &Namespace) {
        for subnet in [4, 5, 6] {
            ip(namespace, &format!("address replace 10.0.{subnet}.1/24 dev va"));
        }
    }
}

#[test]
fn the_laws_hold_over_routes() {
    assert_eq!(check::<Routes>(), [1, 4]);
}
