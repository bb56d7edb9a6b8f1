//! The law suite over the links of a real network namespace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use homeostat_engine::Ownership;
use homeostat_netlink::uapi::RTNLGRP_LINK;
use homeostat_netlink::{Family, Group, Listener, Options};
use homeostat_rtnl::{Key, Rtnl, Wish};
use homeostat_testkit::laws::{self, Ability, Disturbance, Harness, Meter, Wish as Which};
use homeostat_testkit::namespace::Namespace;

use crate::bench::{block_on, ip, listed, wish};

/// A namespace without a link that is up, so that nothing in it changes by itself.
struct Switchboard {
    namespace: Namespace,
    writes: Arc<Mutex<(Listener, u64)>>,
}

impl Switchboard {
    fn new() -> Self {
        let namespace = Namespace::enter().unwrap();
        let groups = [Group(RTNLGRP_LINK)];
        let listener = Listener::open(Family::Route, &groups, &Options::for_events()).unwrap();
        Switchboard { namespace, writes: Arc::new(Mutex::new((listener, 0))) }
    }

    fn ip(&self, args: &str) -> Ability {
        ip(&self.namespace, args);
        Ability::Done
    }
}

impl Harness for Switchboard {
    type Source = Rtnl;

    fn reset(&mut self) {
        *self = Switchboard::new();
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
                ("link a0", "bridge mtu 1400"),
                ("link b0", "ifb mtu 1400"),
                ("link c0", "vxlan id 5 mtu 1400"),
            ],
            Which::Second => &[
                ("link a0", "bridge mtu 1300"),
                ("link c0", "vxlan id 5 mtu 1400"),
                ("link d0", "macvlan parent a0 mtu 1300"),
            ],
            Which::Nothing => &[],
        })
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        let links = listed(&self.namespace, "-d link show");
        // Numbers and hardware addresses are others for each link that is made again.
        let parts = ["mtu", "ifalias", "group", "master", "flags"];
        let part = |link: &serde_json::Value| parts.map(|part| link[part].to_string()).join(" ");
        let key = |link: &serde_json::Value| format!("link {}", link["ifname"].as_str().unwrap());
        links.iter().map(|link| (key(link), part(link))).collect()
    }

    fn meter(&self) -> Meter {
        let writes = self.writes.clone();
        Arc::new(move || {
            let mut writes = writes.lock().unwrap_or_else(PoisonError::into_inner);
            let (listener, count) = &mut *writes;
            while listener.receive(&mut |_| *count += 1).unwrap() {}
            *count
        })
    }

    fn disturb(&mut self, how: Disturbance<'_, Key>) -> Ability {
        let name = |key: &Key| key.to_string().replace("link ", "");
        match how {
            Disturbance::Remove(key) => self.ip(&format!("link del {}", name(key))),
            Disturbance::Alter(key) => self.ip(&format!("link set {} mtu 1234", name(key))),
            Disturbance::Stranger => self.ip("link add stranger type ifb"),
            Disturbance::Occupy(key) => {
                self.ip(&format!("link add {} mtu 900 type ifb", name(key)))
            }
        }
    }
}

#[test]
fn the_laws_hold_over_links() {
    let verdict = block_on(async { laws::check(&mut Switchboard::new()).await });
    let verdict = verdict.unwrap_or_else(|broken| panic!("{broken}"));
    // The kernel can neither be blinded nor be made to refuse a good link.
    let laws: Vec<_> = verdict.unchecked.iter().map(|(law, _)| *law).collect();
    assert_eq!(laws, [1, 1, 9], "{:?}", verdict.unchecked);
}
