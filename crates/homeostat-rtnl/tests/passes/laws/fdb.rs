//! The laws over forwarding entries, which carry no mark.

use std::collections::BTreeMap;

use homeostat_netlink::uapi::RTNLGRP_NEIGH;
use homeostat_rtnl::Key;
use homeostat_testkit::laws::{Ability, DesiredState as Which, Disturbance};
use homeostat_testkit::namespace::Namespace;
use serde_json::Value;

use super::{Objects, check};
use crate::bench::{Declared, ip};
use crate::fdb::{bridge, wired};

struct Entries;

/// The key as `bridge fdb` takes it.
fn words(key: &Key) -> String {
    let text = key.to_string();
    let text = text.strip_prefix("fdb ").unwrap();
    if text.contains("self") { text.to_owned() } else { format!("{text} master") }
}

/// The key of what `bridge` shows.
fn name(one: &Value) -> String {
    let text = |field: &str| one[field].as_str().unwrap_or_default();
    let end = match (text("dst"), text("mac")) {
        ("", _) => String::new(),
        (dst, "00:00:00:00:00:00") => format!(" self dst {dst}"),
        _ => " self".to_owned(),
    };
    format!("fdb {} dev {}{end}", text("mac"), text("ifname"))
}

impl Objects for Entries {
    const GROUPS: &'static [u32] = &[RTNLGRP_NEIGH];

    fn prepare() -> Namespace {
        let namespace = wired();
        ip(&namespace, "link set va down");
        ip(&namespace, "link set vb down");
        namespace
    }

    fn desired(which: Which) -> &'static [Declared<'static>] {
        match which {
            Which::First => &[
                ("fdb 02:00:00:00:00:09 dev va", ""),
                ("fdb 02:00:00:00:00:0a dev va", ""),
                ("fdb 02:00:00:00:00:09 dev vx self", "dst 192.0.2.1"),
                ("fdb 00:00:00:00:00:00 dev vx self dst 192.0.2.1", ""),
            ],
            Which::Second => &[
                ("fdb 02:00:00:00:00:09 dev va", "sticky"),
                ("fdb 02:00:00:00:00:09 dev vx self", "dst 192.0.2.2"),
                ("fdb 00:00:00:00:00:00 dev vx self dst 192.0.2.2", ""),
            ],
            Which::Nothing => &[],
        }
    }

    fn snapshot(namespace: &Namespace) -> BTreeMap<String, String> {
        let all: Value = serde_json::from_slice(&bridge(namespace, "-j fdb show")).unwrap();
        let made = |one: &&Value| one["state"] == "static" || one["dst"].is_string();
        let made = all.as_array().unwrap().iter().filter(made);
        made.map(|one| (name(one), one.to_string())).collect()
    }

    fn disturb(namespace: &Namespace, how: Disturbance<'_, Key>) {
        let run = |args: &str| _ = bridge(namespace, &format!("fdb {args}"));
        match how {
            Disturbance::Remove(key) => run(&format!("del {}", words(key))),
            Disturbance::Alter(key) | Disturbance::Occupy(key) => {
                let words = words(key);
                match words.contains("self") {
                    true if words.contains("dst") => run(&format!("append {words}")),
                    true => run(&format!("replace {words} dst 192.0.2.99")),
                    false => run(&format!("replace {words} static sticky")),
                }
            }
            Disturbance::Stranger => run("add 02:00:00:00:00:77 dev va master static"),
        }
    }

    /// The kernel takes every good entry.
    fn refuse(_namespace: &Namespace, _key: &Key) -> Ability {
        Ability::Unable
    }

    fn mend(_namespace: &Namespace) {}
}

#[test]
fn the_laws_hold_over_forwarding_entries() {
    assert_eq!(check::<Entries>(), [1, 4, 9]);
}
