//! What the kernel holds, read without our own reader.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::program::output;
use crate::world::World;

fn file(key: &str) -> PathBuf {
    assert!(key.starts_with("net/"), "{key} is not a knob of the namespace alone");
    Path::new("/proc/sys").join(key)
}

#[expect(
    clippy::unused_self,
    reason = "having a world proves that the thread is not in the host's"
)]
impl World {
    /// A knob's value, as the kernel writes it.
    #[track_caller]
    pub(crate) fn knob(&self, key: &str) -> String {
        let text = fs::read_to_string(file(key)).unwrap_or_else(|error| panic!("{key}: {error}"));
        text.trim_end().replace('\t', " ")
    }

    /// Somebody else turns a knob.
    pub(crate) fn meddle(&self, key: &str, value: &str) {
        fs::write(file(key), value).unwrap_or_else(|error| panic!("{key}: {error}"));
    }

    /// All knobs of the namespace; those that cannot be read have the reason in place of a value.
    pub(crate) fn knobs(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        gather(Path::new("/proc/sys/net"), &mut all);
        assert!(all.len() > 300, "{} knobs: is /proc mounted?", all.len());
        all
    }

    /// Makes two links that are one pair.
    pub(crate) fn add_pair(&self, one: &str, other: &str) {
        self.namespace.ip(&["link", "add", one, "type", "veth", "peer", "name", other]).unwrap();
    }
}

impl World {
    /// Runs `ip`, among the names of this world.
    #[track_caller]
    pub(crate) fn ip(&self, args: &str) -> String {
        let mut command = self.command("ip");
        command.args(args.split_whitespace());
        output(command)
    }

    /// What `ip` lists.
    #[track_caller]
    pub(crate) fn listed(&self, args: &str) -> Vec<Value> {
        let text = self.ip(&format!("-j {args}"));
        let listed: Value = serde_json::from_str(&text).unwrap_or_else(|_| Value::Array(vec![]));
        listed.as_array().unwrap().clone()
    }
}

fn gather(directory: &Path, all: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            gather(&entry.path(), all);
        } else {
            let value = fs::read_to_string(entry.path());
            all.insert(entry.path(), value.unwrap_or_else(|error| error.to_string()));
        }
    }
}

impl World {
    /// Somebody else runs a command of nft.
    pub(crate) fn sabotage(&self, command: &str) {
        let output = self.command("nft").args(command.split(' ')).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
