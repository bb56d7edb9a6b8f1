//! The law suite over the routes of a real network namespace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use homeostat_engine::Ownership;
use homeostat_netlink::uapi::{RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE};
use homeostat_netlink::{Family, Group, Listener, Options};
use homeostat_rtnl::{Key, Rtnl, Wish};
use homeostat_testkit::laws::{self, Ability, Disturbance, Harness, Meter, Wish as Which};
use homeostat_testkit::namespace::Namespace;

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
    fn count(&mut self) -> u64 {
        let Writes { listener, count } = self;
        while listener.receive(&mut |_| *count += 1).unwrap() {}
        *count
    }
}

impl Network {
    fn new() -> Self {
        let namespace = cable();
        ip(&namespace, "address add 10.0.0.1/24 dev va");
        let groups = [Group(RTNLGRP_IPV4_ROUTE), Group(RTNLGRP_IPV4_IFADDR)];
        let listener = Listener::open(Family::Route, &groups, &Options::for_events()).unwrap();
        Network { namespace, writes: Arc::new(Mutex::new(Writes { listener, count: 0 })) }
    }

    fn ip(&self, args: &str) -> Ability {
        ip(&self.namespace, args);
        Ability::Done
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
                ("route 10.4.0.0/16", "via 10.0.0.2"),
                ("route 10.5.0.0/16", "via 10.0.0.2 src 10.0.0.1"),
                ("route 10.6.0.0/16", "dev va"),
            ],
            Which::Second => &[
                ("route 10.4.0.0/16", "via 10.0.0.3"),
                ("route 10.6.0.0/16", "dev va"),
                ("route 10.7.0.0/16", "type blackhole"),
            ],
            Which::Nothing => &[],
        })
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        let routes = listed(&self.namespace, "-4 -d route show");
        let text = |route: &serde_json::Value| format!("route {}", route["dst"].as_str().unwrap());
        routes.iter().map(|route| (text(route), route.to_string())).collect()
    }

    fn meter(&self) -> Meter {
        let writes = self.writes.clone();
        Arc::new(move || writes.lock().unwrap_or_else(PoisonError::into_inner).count())
    }

    fn disturb(&mut self, how: Disturbance<'_, Key>) -> Ability {
        match how {
            Disturbance::Remove(key) => self.ip(&key.to_string().replace("route", "route del")),
            Disturbance::Alter(key) => {
                let replace = key.to_string().replace("route", "route replace");
                self.ip(&format!("{replace} via 10.0.0.9 proto 76"))
            }
            Disturbance::Stranger => self.ip("route add 10.99.0.0/16 via 10.0.0.2 proto bird"),
            Disturbance::Occupy(key) => {
                let add = key.to_string().replace("route", "route add");
                self.ip(&format!("{add} via 10.0.0.9 proto bird"))
            }
        }
    }
}

#[test]
fn the_laws_hold_over_routes() {
    let verdict = block_on(async { laws::check(&mut Network::new()).await });
    let verdict = verdict.unwrap_or_else(|broken| panic!("{broken}"));
    // The kernel can neither be blinded nor be made to refuse a good route.
    let laws: Vec<_> = verdict.unchecked.iter().map(|(law, _)| *law).collect();
    assert_eq!(laws, [1, 1, 9], "{:?}", verdict.unchecked);
}
