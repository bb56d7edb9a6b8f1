//! The laws over links.

use std::collections::BTreeMap;

use homeostat_netlink::uapi::RTNLGRP_LINK;
use homeostat_rtnl::Key;
use homeostat_testkit::laws::{Ability, DesiredState as Which, Disturbance};
use homeostat_testkit::namespace::Namespace;

use super::{Objects, check};
use crate::bench::{Declared, ip, listed};

/// Links in a namespace without one that is up, so that nothing in it changes by itself.
struct Links;

fn name(key: &Key) -> String {
    key.to_string().replace("link ", "")
}

impl Objects for Links {
    const GROUPS: &'static [u32] = &[RTNLGRP_LINK];

    fn prepare() -> Namespace {
        Namespace::enter().unwrap()
    }

    fn desired(which: Which) -> &'static [Declared<'static>] {
        match which {
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
        }
    }

    fn snapshot(namespace: &Namespace) -> BTreeMap<String, String> {
        let links = listed(namespace, "-d link show");
        // Numbers and hardware addresses are others for each link that is made again.
        let parts = ["mtu", "ifalias", "group", "master", "flags"];
        let part = |link: &serde_json::Value| parts.map(|part| link[part].to_string()).join(" ");
        let key = |link: &serde_json::Value| format!("link {}", link["ifname"].as_str().unwrap());
        links.iter().map(|link| (key(link), part(link))).collect()
    }

    fn disturb(namespace: &Namespace, how: Disturbance<'_, Key>) {
        match how {
            Disturbance::Remove(key) => ip(namespace, &format!("link del {}", name(key))),
            Disturbance::Alter(key) => ip(namespace, &format!("link set {} mtu 1234", name(key))),
            Disturbance::Stranger => ip(namespace, "link add stranger type ifb"),
            Disturbance::Occupy(key) => {
                ip(namespace, &format!("link add {} mtu 900 type ifb", name(key)));
            }
        }
    }

    /// The name is a second name of another link.
    fn refuse(namespace: &Namespace, key: &Key) -> Ability {
        ip(namespace, &format!("link property add dev lo altname {}", name(key)));
        Ability::Done
    }

    fn mend(namespace: &Namespace) {
        for link in listed(namespace, "link show dev lo") {
            for other in link["altnames"].as_array().into_iter().flatten() {
                ip(
                    namespace,
                    &format!("link property del dev lo altname {}", other.as_str().unwrap()),
                );
            }
        }
    }
}

#[test]
fn the_laws_hold_over_links() {
    assert_eq!(check::<Links>(), [1]);
}
