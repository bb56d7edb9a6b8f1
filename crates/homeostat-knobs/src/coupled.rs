//! What a general knob rewrites: recorded before the knob is first written, and put back when the knob is released with
//! its original. In a trial it is recorded before each write, and put back by the rollback.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use homeostat_core::Snapshot;
use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketType, socket};
use serde::{Deserialize, Serialize};

use crate::coupling::{is_general, partners, phase, rewrites};
use crate::key::Key;
use crate::model::Value;
use crate::observe::{Look, look};
use crate::source::Knobs;

/// The knobs that the kernel rewrote along with another one, with what they held before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coupled {
    pub(crate) values: BTreeMap<Key, Value>,
    /// The numbers of the links that have some of them: a link may have another name later.
    pub(crate) links: BTreeMap<String, u32>,
}

/// How a snapshot has them.
#[derive(Default, Deserialize, Serialize)]
struct Texts {
    #[serde(default)]
    links: BTreeMap<String, u32>,
    #[serde(flatten)]
    values: BTreeMap<String, String>,
}

impl Coupled {
    pub(crate) fn parse(snapshot: &Snapshot) -> Self {
        let Texts { links, values } = serde_json::from_str(&snapshot.0).unwrap_or_default();
        let values = values.into_iter().filter_map(|(key, text)| {
            let key: Key = key.parse().ok()?;
            let value = Value::of(&key, &text);
            Some((key, value))
        });
        Coupled { values: values.collect(), links }
    }

    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let text = |(key, value): (&Key, &Value)| (key.to_string(), value.as_str().to_owned());
        let values = self.values.iter().map(text).collect();
        serde_json::to_string(&Texts { links: self.links.clone(), values }).ok().map(Snapshot)
    }

    /// The same by the present names of the links, general ones first. Knobs of links that are gone are left out.
    pub(crate) fn by_present_names(&self) -> Vec<(Key, Value)> {
        let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None);
        let now = |key: &Key| {
            let number = key.link().and_then(|link| self.links.get(link));
            let Some(number) = number else { return Some(key.clone()) };
            let name = index_to_name(socket.as_ref().ok()?, *number).ok()?;
            key.of_link(&name)
        };
        let values = self.values.iter().filter_map(|(key, value)| Some((now(key)?, value.clone())));
        let mut values: Vec<_> = values.collect();
        values.sort_by_key(|(key, _)| phase(key));
        values
    }
}

/// What the knobs hold that writing `general` would rewrite.
pub(crate) fn coupled_with(knobs: &Knobs, general: &Key) -> Coupled {
    let Key::Sysctl(path) = general else { return Coupled::default() };
    if !is_general(general) {
        return Coupled::default();
    }
    let mut keys: Vec<Key> = partners(path).filter_map(|path| Key::sysctl(path).ok()).collect();
    if let Some(family) = path.family() {
        for link in links(&knobs.roots.sysctl, family) {
            for name in [path.name(), "forwarding", "accept_redirects", "addr_gen_mode"] {
                keys.extend(Key::sysctl(&format!("net/{family}/conf/{link}/{name}")).ok());
            }
        }
    }
    keys.retain(|key| rewrites(general, key));
    let values = keys.into_iter().filter_map(|key| match look(knobs, &key) {
        Look::Holds { value, writable: true } => Some((key, value)),
        _ => None,
    });
    let values: BTreeMap<Key, Value> = values.collect();
    let mut coupled = Coupled { values, ..Coupled::default() };
    if let Ok(socket) = socket(AddressFamily::UNIX, SocketType::DGRAM, None) {
        let links = coupled.values.keys().filter_map(Key::link);
        let links = links.filter_map(|it| Some((it.to_owned(), name_to_index(&socket, it).ok()?)));
        coupled.links = links.collect();
    }
    coupled
}

/// The links that have knobs of their own, with `all` and `default`.
fn links(root: &Path, family: &str) -> Vec<String> {
    let entries = fs::read_dir(root.join("net").join(family).join("conf")).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// What the kernel made of a coupled knob when the general one got its value: the same value; of redirects, which only
/// hosts accept, the opposite; and, where the two are ways to say one thing, nothing.
pub(crate) fn caused(general: &Key, value: &Value, coupled: &Key) -> Value {
    let name = |key: &Key| match key {
        Key::Sysctl(path) => path.name().to_owned(),
        Key::Cgroup(_) | Key::Sysfs(_) => String::new(),
    };
    let is_same = name(general) == name(coupled)
        || name(general) == "ip_forward" && name(coupled) == "forwarding"
        || name(general) == "forwarding" && name(coupled) == "ip_forward";
    match name(coupled).as_str() {
        _ if is_same => value.clone(),
        "accept_redirects" if value.as_str() == "0" => Value::of(coupled, "1"),
        _ => Value::of(coupled, "0"),
    }
}
