//! What a general knob rewrites: recorded before the knob is first written, and put back when the knob is released with
//! its original.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use homeostat_core::Snapshot;

use crate::coupling::{is_general, partners, rewrites};
use crate::key::Key;
use crate::model::Value;
use crate::observe::Look;
use crate::source::Knobs;

/// The knobs that the kernel rewrote along with another one, with what they held before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coupled(pub(crate) BTreeMap<Key, Value>);

impl Coupled {
    pub(crate) fn parse(snapshot: &Snapshot) -> Self {
        let texts: BTreeMap<String, String> = serde_json::from_str(&snapshot.0).unwrap_or_default();
        let values = texts.into_iter().filter_map(|(key, text)| {
            let key: Key = key.parse().ok()?;
            let value = Value::of(&key, &text);
            Some((key, value))
        });
        Coupled(values.collect())
    }

    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let text = |(key, value): (&Key, &Value)| (key.to_string(), value.as_str().to_owned());
        let texts: BTreeMap<String, String> = self.0.iter().map(text).collect();
        serde_json::to_string(&texts).ok().map(Snapshot)
    }
}

impl Knobs {
    /// What the knobs hold that writing `general` would rewrite.
    pub(crate) fn coupled_with(&self, general: &Key) -> Coupled {
        let Key::Sysctl(path) = general else { return Coupled::default() };
        if !is_general(general) {
            return Coupled::default();
        }
        let mut keys: Vec<Key> = partners(path).filter_map(|path| Key::sysctl(path).ok()).collect();
        if let Some(family) = path.family() {
            for link in links(&self.roots.sysctl, family) {
                for name in [path.name(), "forwarding", "accept_redirects", "addr_gen_mode"] {
                    keys.extend(Key::sysctl(&format!("net/{family}/conf/{link}/{name}")).ok());
                }
            }
        }
        keys.retain(|key| rewrites(general, key));
        let values = keys.into_iter().filter_map(|key| match self.look(&key) {
            Look::Holds { value, writable: true } => Some((key, value)),
            _ => None,
        });
        Coupled(values.collect())
    }
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
        Key::Cgroup(_) => String::new(),
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
