//! Everything that a network namespace holds, as the system's own programs list it: two dumps are equal if a rollback
//! has brought back what was there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::keeping::comes;
use crate::program::output;
use crate::world::World;

/// What is listed, with a stroke for each time; tables and sysctls by their names.
pub(crate) type Dump = BTreeMap<String, String>;

/// What `ip` lists, with the words to ask for it. Links have their numbers and MAC addresses.
const LISTS: [(&str, &str); 9] = [
    ("links", "-j -d link show"),
    ("addresses", "-j address show"),
    ("routes", "-j -4 route show table all"),
    ("routes of IPv6", "-j -6 route show table all"),
    ("rules", "-j -4 rule show"),
    ("rules of IPv6", "-j -6 rule show"),
    ("nexthops", "-j nexthop show"),
    ("neighbours", "-j neighbour show nud permanent"),
    ("bridge ports", "-j -d link show type bridge_slave"),
];

/// The same of `bridge`: what ports are like, their VLANs, and the addresses that were not learnt.
const BRIDGE_LISTS: [(&str, &str); 3] = [
    ("ports of bridges", "-j -d link show"),
    ("VLANs of bridges", "-j vlan show"),
    ("addresses of bridges", "-j fdb show"),
];

/// Values that move by themselves.
const MOVING: [&str; 3] = ["nf_conntrack_count", "nf_conntrack_expect_count", "flush"];

impl World {
    /// All links, addresses in their order, routes, rules, nexthops, tables and sysctls.
    pub(crate) fn dump(&self) -> Dump {
        dump(|program| self.command(program))
    }

    /// Everything comes to be as it was.
    #[track_caller]
    pub(crate) fn is_again(&self, before: &Dump) {
        self.is_again_after(before, "");
    }

    /// The same; the context is printed if it is not so.
    #[track_caller]
    pub(crate) fn is_again_after(&self, before: &Dump, story: &str) {
        comes_again(before, || self.dump(), story);
    }
}

/// What the programs list that `command` starts, and the sysctls of the namespace of this thread.
pub(crate) fn dump(command: impl Fn(&str) -> Command) -> Dump {
    let mut dump = Dump::new();
    let mut own_addresses = BTreeSet::new();
    let lists = LISTS.map(|list| ("ip", list)).into_iter();
    for (program, (name, args)) in lists.chain(BRIDGE_LISTS.map(|list| ("bridge", list))) {
        let mut list = command(program);
        list.args(args.split(' '));
        let text = output(list);
        let mut list: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
        list.iter_mut().for_each(stop_timers);
        list.iter_mut().for_each(take_out_history);
        own_addresses.extend(list.iter().filter_map(own_address));
        let is_of_bridge = |entry: &Value| {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            own_addresses.contains(&(text("master"), text("mac")))
        };
        list.retain(|entry| !is_left_over(entry) && !is_learnt(entry) && !is_of_bridge(entry));
        // The order is that of the kernel's tables, not of what they hold.
        for entry in &list {
            let count = dump.entry(format!("{name}: {entry}")).or_default();
            count.push('|');
        }
    }
    let mut nft = command("nft");
    nft.args(["list", "ruleset"]);
    dump.insert("tables".to_owned(), output(nft));
    read_knobs(Path::new("/proc/sys/net"), &mut dump);
    dump
}

/// Waits until everything is as it was; the context is printed if it does not come.
#[track_caller]
pub(crate) fn comes_again(before: &Dump, dump: impl Fn() -> Dump, story: &str) {
    if comes(|| dump() == *before) {
        return;
    }
    let now = dump();
    let names: BTreeSet<_> = before.keys().chain(now.keys()).collect();
    let others = names.into_iter().filter(|name| before.get(*name) != now.get(*name));
    let others: Vec<_> = others
        .map(|name| format!("{name}\n  before {:?}\n  now {:?}", before.get(name), now.get(name)))
        .collect();
    panic!("{story}\nnot as before:\n{}", others.join("\n"));
}

/// Takes out what the kernel keeps of whether a link was ever up: it has no queue before, and one for good from then on. And
/// it decides whether a link takes all packets, for what stands on it, only while the link is up.
fn take_out_history(value: &mut Value) {
    if value.get("qdisc").is_some_and(|queue| queue == "noop") {
        value["qdisc"] = "noqueue".into();
    }
    let mut flags = value["flags"].as_array().into_iter().flatten();
    if !flags.any(|flag| flag == "UP")
        && let Some(fields) = value.as_object_mut()
    {
        fields.remove("promiscuity");
    }
}

/// The kernel makes a route for multicast when a link gets its first IPv6 address, or a carrier, and keeps it when the address
/// goes. So a link without a carrier has one if it ever had an address.
fn is_left_over(route: &Value) -> bool {
    let flags = route["flags"].as_array().into_iter().flatten();
    route["dst"] == "ff00::/8" && flags.into_iter().any(|flag| flag == "linkdown")
}

/// Whether a bridge has learnt an address from a packet, or a link listens to a group, which follows its state. Only
/// entries of such a table have a MAC address and a state.
fn is_learnt(entry: &Value) -> bool {
    let Some(mac) = entry.get("mac").and_then(Value::as_str) else { return false };
    let is_group = ["33:33:", "01:00:5e:"].iter().any(|group| mac.starts_with(group));
    is_group || !["permanent", "static"].iter().any(|one| entry["state"] == *one)
}

/// A link and its address. A bridge has an entry for its own, which the kernel lists at the bridge or at the port that the address
/// is from, whichever had it first. It follows from both links, which are compared.
fn own_address(link: &Value) -> Option<(String, String)> {
    let text = |name: &str| link.get(name)?.as_str().map(str::to_owned);
    Some((text("ifname")?, text("address")?))
}

/// Takes out how long the timers of a bridge have still to run.
fn stop_timers(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, _| !name.ends_with("_timer"));
        fields.values_mut().for_each(stop_timers);
    }
}

fn read_knobs(directory: &Path, dump: &mut Dump) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            read_knobs(&path, dump);
        } else if !MOVING.iter().any(|moving| name == **moving) {
            // One that cannot be read has no value to compare.
            dump.insert(path.display().to_string(), fs::read_to_string(&path).unwrap_or_default());
        }
    }
}
