//! A document of the network as a model: rendered as TOML for homeostat, and as commands of `ip` that
//! give the same objects.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

/// One command of `ip`, and the key of the object that it makes or changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) key: String,
    pub(super) line: String,
}

/// A network by number, and whether it is of IPv6.
pub(super) type Network = (usize, bool);

/// What an entry cannot be without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A link of this name.
    Link(String),
    /// An address in this network, on a link that is up.
    Network(Network),
    /// The same on this link, which has a carrier.
    NetworkOn(Network, String),
    Nexthop(u32),
}

/// An element of `routes`, `rules`, `neighbours` or `nexthops`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The inline table.
    pub(super) toml: String,
    /// `-6 ` where `ip` cannot derive the family by itself.
    pub(super) family: &'static str,
    /// What follows `ip route add` and the like.
    pub(super) add: String,
    /// The command that deletes it behind our back.
    pub(super) delete: String,
    pub(super) needs: Vec<Need>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// The fields that say what it is, and the command that creates it; none if it is only configured.
    pub(super) kind: Option<(String, String)>,
    pub(super) parent: Option<String>,
    pub(super) up: Option<bool>,
    pub(super) mtu: Option<u32>,
    pub(super) mac: Option<String>,
    pub(super) alias: Option<String>,
    pub(super) master: Option<String>,
    /// Address and length, and the network that it is in.
    pub(super) addresses: BTreeMap<String, Network>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) links: BTreeMap<String, Link>,
    /// By section, then by key.
    pub(super) entries: BTreeMap<&'static str, BTreeMap<String, Entry>>,
}

/// In the order in which `ip` can make them.
pub(super) const SECTIONS: [(&str, &str); 4] = [
    ("nexthops", "nexthop add"),
    ("routes", "route add"),
    ("rules", "rule add"),
    ("neighbours", "neighbour add"),
];

impl Document {
    /// Says of every section that it is empty.
    pub(super) fn empty() -> Self {
        let entries = SECTIONS.map(|(section, _)| (section, BTreeMap::new()));
        Document { links: BTreeMap::new(), entries: entries.into() }
    }

    pub(super) fn toml(&self) -> String {
        let mut text = String::new();
        for (section, entries) in &self.entries {
            let _ = write!(text, "{section} = [");
            for entry in entries.values() {
                let _ = write!(text, "\n    {{ {} }},", entry.toml);
            }
            text.push_str(if entries.is_empty() { "]\n" } else { "\n]\n" });
        }
        text.push_str("[links]\n");
        for (name, link) in &self.links {
            let _ = writeln!(text, "{name} = {{ {} }}", link.toml());
        }
        text
    }

    /// The commands that make all of it in a world that has nothing of it.
    pub(super) fn commands(&self) -> Vec<Command> {
        let links = || self.links.iter();
        let mut commands: Vec<Command> = Vec::new();
        // What has a parent comes after its parent, and no parent has one.
        for is_stacked in [false, true] {
            let these = links().filter(|(_, link)| link.parent.is_some() == is_stacked);
            commands.extend(these.filter_map(|(name, link)| {
                let (_, create) = link.kind.as_ref()?;
                // Not every kind takes another address later.
                let mac =
                    link.mac.as_ref().map_or_else(String::new, |mac| format!(" address {mac}"));
                let line = create.replacen(" type ", &format!("{mac} type "), 1);
                Some(Command { key: format!("link {name}"), line })
            }));
        }
        // A bridge follows a smaller port, unless its MTU was changed: the declared one is set once more.
        for field in ["mac", "mtu", "alias", "master", "mtu", "up"] {
            commands.extend(links().filter_map(|(name, link)| link.command(name, field)));
        }
        for (name, link) in links() {
            commands.extend(link.addresses.keys().map(|address| Command {
                key: format!("address {address} dev {name}"),
                line: format!("address add {address} dev {name}"),
            }));
        }
        for (section, add) in SECTIONS {
            let mut entries: Vec<_> = self.entries[section].iter().collect();
            // A group of nexthops comes after its members.
            entries.sort_by_key(|(_, entry)| entry.toml.contains("group"));
            commands.extend(entries.into_iter().map(|(key, entry)| Command {
                key: key.clone(),
                line: format!("{}{add} {}", entry.family, entry.add),
            }));
        }
        commands
    }

    /// Commands that destroy or change an object of the document.
    pub(super) fn sabotage(&self) -> Vec<Command> {
        let mut all = Vec::new();
        let mut say = |key: String, line: String| all.push(Command { key, line });
        for (name, link) in &self.links {
            for address in link.addresses.keys() {
                say(
                    format!("address {address} dev {name}"),
                    format!("address del {address} dev {name}"),
                );
            }
            if link.mtu.is_some() {
                say(format!("link {name} mtu"), format!("link set {name} mtu 1444"));
            }
            if link.kind.is_some() {
                say(format!("link {name}"), format!("link del {name}"));
                say(format!("link {name}"), format!("link set {name} down"));
            }
        }
        for (key, entry) in self.entries.values().flatten() {
            say(key.clone(), entry.delete.clone());
        }
        all
    }

    /// Removes routes whose gateway is in a network that several links have: which of them it is on depends on which
    /// one had the network first.
    pub(super) fn leave_out_ambiguous(&mut self) {
        let places = |network: &Network| -> BTreeSet<String> {
            let all = self.networks().into_iter().filter(|(one, _)| one == network);
            all.map(|(_, link)| link).collect()
        };
        let mut routes = self.entries.get("routes").cloned().unwrap_or_default();
        routes.retain(|_, route| {
            !route.needs.iter().any(|need| match need {
                Need::Network(network) => places(network).len() > 1,
                _ => false,
            })
        });
        self.entries.insert("routes", routes);
    }

    /// Removes what lacks something that it needs, and what needs that. Returns whether there was any.
    pub(super) fn prune(&mut self) -> bool {
        // A document that has both is refused.
        for link in self.links.values_mut().filter(|link| link.mtu < Some(1280)) {
            link.addresses.retain(|_, (_, is_ipv6)| link.mtu.is_none() || !*is_ipv6);
        }
        let (links, networks, carriers) = (self.link_names(), self.networks(), self.carriers());
        let ids: BTreeSet<String> = self.entries["nexthops"].keys().cloned().collect();
        let mut is_changed = false;
        let has = |need: &Need| match need {
            Need::Link(name) => links.contains(name),
            Need::Network(network) => networks.iter().any(|(one, _)| one == network),
            Need::NetworkOn(network, link) => {
                networks.contains(&(*network, link.clone())) && carriers.contains(link)
            }
            Need::Nexthop(id) => ids.contains(&format!("nexthop {id}")),
        };
        for entries in self.entries.values_mut() {
            let before = entries.len();
            entries.retain(|_, entry| entry.needs.iter().all(has));
            is_changed |= entries.len() != before;
        }
        let before = self.links.len();
        self.links.retain(|_, link| link.parent.as_ref().is_none_or(|name| links.contains(name)));
        for link in self.links.values_mut() {
            if link.master.as_ref().is_some_and(|name| !links.contains(name)) {
                link.master = None;
            }
        }
        if is_changed || self.links.len() != before {
            self.prune();
            return true;
        }
        false
    }

    /// What there is once it was applied after `before` and some keys were held back. Of a link whose key was, only a
    /// part may have been: `ip` says which values it has.
    pub(super) fn with_held(
        &self,
        before: &Document,
        held: &BTreeSet<String>,
        shown: &BTreeMap<String, Value>,
    ) -> Self {
        let mut effective = self.clone();
        for key in held {
            let words: Vec<&str> = key.split(' ').collect();
            match words.as_slice() {
                ["link", name] => {
                    let former = before.links.get(*name).cloned().unwrap_or_default();
                    let declared = self.links.get(*name).cloned().unwrap_or_default();
                    let link = match shown.get(*name) {
                        Some(shown) => declared.written_part(former, shown),
                        None => Link { addresses: declared.addresses, ..former },
                    };
                    effective.links.insert((*name).to_owned(), link);
                }
                ["link", name, field] => {
                    let former = before.links.get(*name).cloned().unwrap_or_default();
                    let link = effective.links.entry((*name).to_owned()).or_default();
                    match *field {
                        "mtu" => link.mtu = former.mtu,
                        "mac" => link.mac = former.mac,
                        "master" => link.master = former.master,
                        "alias" => link.alias = former.alias,
                        _ => link.up = former.up,
                    }
                }
                ["address", address, "dev", name] => {
                    let former =
                        before.links.get(*name).and_then(|link| link.addresses.get(*address));
                    let link = effective.links.entry((*name).to_owned()).or_default();
                    match former {
                        Some(network) => link.addresses.insert((*address).to_owned(), *network),
                        None => link.addresses.remove(*address),
                    };
                }
                _ => {
                    for (section, entries) in &mut effective.entries {
                        match before.entries[section].get(key) {
                            Some(former) => entries.insert(key.clone(), former.clone()),
                            None => entries.remove(key),
                        };
                    }
                }
            }
        }
        effective
    }

    /// The links that it creates, with both ends of a pair.
    fn made(&self) -> BTreeSet<String> {
        let made = self.links.iter().filter(|(_, link)| link.kind.is_some());
        let peers = made.clone().filter_map(|(_, link)| link.peer());
        made.map(|(name, _)| name.clone()).chain(peers).collect()
    }

    /// The links that there are when it is applied: those of the world have names that begin with `f`.
    pub(super) fn link_names(&self) -> BTreeSet<String> {
        let mut names = self.made();
        names.extend(super::generate::FOREIGN_LINKS.map(str::to_owned));
        names.extend(self.links.keys().filter(|name| name.starts_with('f')).cloned());
        names
    }

    /// Networks with an address, and the links on which they are, if those are up.
    fn networks(&self) -> BTreeSet<(Network, String)> {
        let is_up = |(name, link): &(&String, &Link)| {
            link.up == Some(true) || name.starts_with('f') && link.up.is_none()
        };
        let links = self.links.iter().filter(is_up);
        let mut networks: BTreeSet<_> = links
            .flat_map(|(name, link)| link.addresses.values().map(|one| (*one, name.clone())))
            .collect();
        networks.extend([false, true].map(|is_ipv6| ((0, is_ipv6), "fa".to_owned())));
        networks
    }

    /// Links of which it is sure that they have a carrier.
    fn carriers(&self) -> BTreeSet<String> {
        let is_up = |name: &str| self.links.get(name).is_some_and(|link| link.up == Some(true));
        let mut names: BTreeSet<String> = ["fbr", "o3"].map(str::to_owned).into();
        if self.links.get("fb").is_none_or(|link| link.up != Some(false)) {
            names.insert("fa".to_owned());
        }
        if is_up("o0") && is_up("p0") {
            names.extend(["o0", "p0"].map(str::to_owned));
        }
        names
    }
}

impl Link {
    fn toml(&self) -> String {
        let mut fields: Vec<String> = self.kind.iter().map(|(fields, _)| fields.clone()).collect();
        let quoted = |name: &str, value: &String| format!("{name} = \"{value}\"");
        fields.extend(self.parent.as_ref().map(|value| quoted("parent", value)));
        fields.extend(self.up.map(|up| format!("up = {up}")));
        fields.extend(self.mtu.map(|mtu| format!("mtu = {mtu}")));
        fields.extend(self.mac.as_ref().map(|value| quoted("mac", value)));
        fields.extend(self.alias.as_ref().map(|value| quoted("alias", value)));
        fields.extend(self.master.as_ref().map(|value| quoted("master", value)));
        let addresses: Vec<String> =
            self.addresses.keys().map(|address| format!("\"{address}\"")).collect();
        fields.push(format!("addresses = [{}]", addresses.join(", ")));
        fields.join(", ")
    }

    /// It with those of its values that a link has by now, and with the former ones for the rest.
    fn written_part(self, former: Link, shown: &Value) -> Link {
        let options = &shown["linkinfo"]["info_data"];
        let has_options = self.kind.as_ref().is_some_and(|(fields, _)| {
            let is_kind = fields.contains(&format!("kind = {}", shown["linkinfo"]["info_kind"]));
            let has = |option: &str| {
                let value = &options[option];
                value.is_null() || fields.contains(&format!("{option} = {value}"))
            };
            is_kind && self.parent == former.parent && has("mode") && has("id")
        });
        let flags = shown["flags"].as_array().unwrap();
        let is_up = flags.iter().any(|flag| flag == "UP");
        let alias = shown["ifalias"].as_str().unwrap_or_default();
        let has_alias = |alias_of: &String| alias.split(" homeostat:").next() == Some(alias_of);
        Link {
            kind: if has_options { self.kind } else { former.kind },
            parent: former.parent,
            up: self.up.filter(|up| *up == is_up).or(former.up),
            mtu: self.mtu.filter(|mtu| shown["mtu"] == *mtu).or(former.mtu),
            mac: self.mac.filter(|mac| shown["address"] == **mac).or(former.mac),
            alias: self.alias.filter(has_alias).or(former.alias),
            master: self.master.filter(|master| shown["master"] == **master).or(former.master),
            addresses: self.addresses,
        }
    }

    /// The other end of a pair.
    pub(super) fn peer(&self) -> Option<String> {
        let (fields, _) = self.kind.as_ref()?;
        let (_, rest) = fields.split_once("peer = \"")?;
        rest.split('"').next().map(str::to_owned)
    }

    fn command(&self, name: &str, field: &str) -> Option<Command> {
        let value = match field {
            "mac" if self.kind.is_some() => return None,
            "mac" => format!("address {}", self.mac.as_ref()?),
            "mtu" => format!("mtu {}", self.mtu?),
            "alias" => format!("alias {}", self.alias.as_ref()?),
            "master" => format!("master {}", self.master.as_ref()?),
            _ => (if self.up? { "up" } else { "down" }).to_owned(),
        };
        // The fields of a link that is made are part of the link.
        let key = match self.kind {
            Some(_) => format!("link {name}"),
            None => format!("link {name} {field}"),
        };
        Some(Command { key, line: format!("link set {name} {value}") })
    }
}
