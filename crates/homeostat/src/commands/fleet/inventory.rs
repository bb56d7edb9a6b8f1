//! The inventory: nodes with their groups, labels, rings and values, as a file; and `fleet inventory`.
//!
//! ```toml
//! [values]                       # of all nodes
//! dns = ["192.0.2.53"]
//!
//! [groups.fra.values]            # of the nodes of a group
//! region = "eu"
//!
//! [nodes.r1]
//! groups = ["fra"]
//! labels = { rack = "a7" }
//! ring = 0                       # lower rings come earlier in a rollout
//! values = { address = "192.0.2.1/24" }
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use homeostat_fleet::Name;
use homeostat_fleet::records::{Inventory as Record_, Record as _};
use homeostat_store::Transaction;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use toml::Spanned;

use super::Call;
use super::args::InventoryArgs;
use super::connection::of_store;
use super::snapshot::Snapshot;
use crate::failure::helped;
use crate::output::line::plain;
use crate::output::stream;
use crate::wire::FORMAT_VERSION;

/// Writes of one transaction; etcd takes 128.
const MOST_WRITES: usize = 100;

#[derive(Debug, Default)]
pub(super) struct InventoryFile {
    pub(super) nodes: BTreeMap<Name, NodeEntry>,
}

#[derive(Clone, Debug)]
pub(super) struct NodeEntry {
    pub(super) record: Record_,
    /// Of all nodes, of its groups and its own, joined.
    pub(super) values: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    values: Map<String, Value>,
    #[serde(default)]
    groups: BTreeMap<Name, GroupText>,
    #[serde(default)]
    nodes: BTreeMap<Name, NodeText>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupText {
    #[serde(default)]
    values: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeText {
    #[serde(default)]
    groups: Vec<Spanned<Name>>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    ring: u32,
    #[serde(default)]
    values: Map<String, Value>,
}

impl InventoryFile {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&path.display().to_string(), &text)
    }

    fn parse(name: &str, text: &str) -> Result<Self> {
        let Text { values, groups, nodes } =
            toml::from_str(text).with_context(|| name.to_owned())?;
        let mut inventory = InventoryFile::default();
        for (node, entry) in nodes {
            let mut joined = values.clone();
            for group in &entry.groups {
                let Some(known) = groups.get(group.get_ref()) else {
                    let before = text.get(..group.span().start).unwrap_or_default();
                    let line = before.matches('\n').count() + 1;
                    return Err(helped(
                        format!(
                            "{name}:{line}: node {node} is in the group `{}`, which is not declared",
                            group.get_ref()
                        ),
                        format!("write [groups.{}], even if it has no values", group.get_ref()),
                    ));
                };
                join(&mut joined, &known.values);
            }
            join(&mut joined, &entry.values);
            let groups = entry.groups.into_iter().map(Spanned::into_inner).collect();
            let record = Record_ { labels: entry.labels, groups, ring: entry.ring };
            inventory.nodes.insert(node, NodeEntry { record, values: Value::Object(joined) });
        }
        if inventory.nodes.is_empty() {
            return Err(helped(
                format!("{name} has no nodes"),
                "write a table [nodes.NAME] for each of them",
            ));
        }
        Ok(inventory)
    }
}

/// Later values win; tables are joined.
fn join(values: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (key, value) in more {
        match (values.get_mut(key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => join(known, more),
            _ => drop(values.insert(key.clone(), value.clone())),
        }
    }
}

pub(super) async fn run(args: &InventoryArgs, call: &Call<'_>) -> Result<ExitCode> {
    let file = args.file.as_deref().map(InventoryFile::read).transpose()?;
    let fleet = call.connection.open()?;
    let snapshot = Snapshot::read(&fleet).await?;
    let stored: BTreeMap<&Name, &Record_> = snapshot
        .nodes
        .iter()
        .filter_map(|(name, node)| Some((name, node.inventory.as_ref()?)))
        .collect();
    let Some(file) = file else {
        stream::print(call.global.color, |to| {
            if call.is_json {
                return writeln!(
                    to,
                    "{}",
                    json!({ "format_version": FORMAT_VERSION, "nodes": stored })
                );
            }
            if stored.is_empty() {
                writeln!(to, "No nodes: `homeostat fleet enroll NAME` makes one.")?;
            }
            stored.iter().try_for_each(|(name, record)| writeln!(to, "{name}  {}", shown(record)))
        })?;
        return Ok(ExitCode::SUCCESS);
    };
    let is_other = |(name, entry): &(&Name, &NodeEntry)| stored.get(name) != Some(&&entry.record);
    let changed: Vec<_> = file.nodes.iter().filter(is_other).collect();
    let missing: Vec<_> = stored.keys().filter(|name| !file.nodes.contains_key(**name)).collect();
    if args.write {
        for part in changed.chunks(MOST_WRITES) {
            let transaction = part.iter().fold(Transaction::new(), |all, (name, entry)| {
                all.put(fleet.keys.inventory(name), entry.record.write())
            });
            let _ = fleet.store.commit(transaction).await.map_err(of_store)?;
        }
    }
    stream::print(call.global.color, |to| {
        if call.is_json {
            let changed: BTreeMap<_, _> =
                changed.iter().map(|(name, entry)| (name, &entry.record)).collect();
            let all = json!({
                "format_version": FORMAT_VERSION, "changed": changed, "not_in_file": missing, "written": args.write,
            });
            return writeln!(to, "{all}");
        }
        for (name, entry) in &changed {
            let sign = if stored.contains_key(name) { '~' } else { '+' };
            writeln!(to, "{sign} {name}  {}", shown(&entry.record))?;
        }
        for name in &missing {
            writeln!(
                to,
                "? {name} is in the store only; `homeostat fleet retire {name}` takes it out"
            )?;
        }
        let (count, nodes) = (changed.len(), file.nodes.len());
        match (count, args.write) {
            (0, _) => writeln!(to, "{nodes} nodes; the store has the same."),
            (_, true) => writeln!(to, "{nodes} nodes; {count} written."),
            (_, false) => {
                writeln!(to, "{nodes} nodes; {count} differ from the store. --write writes them.")
            }
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn shown(record: &Record_) -> String {
    let groups: Vec<_> = record.groups.iter().map(Name::as_str).collect();
    let labels: Vec<_> =
        record.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    plain(&format!(
        "ring {}  groups [{}]  labels [{}]",
        record.ring,
        groups.join(", "),
        labels.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[values]\ndns = { first = \"a\", second = \"b\" }\n\n[groups.fra.values]\nregion = \"eu\"\n\
                        dns = { second = \"c\" }\n\n[nodes.r1]\ngroups = [\"fra\"]\nvalues = { region = \"own\" }\n";

    #[test]
    fn values_of_the_node_win_over_those_of_its_groups_and_of_all() {
        let inventory = InventoryFile::parse("i.toml", TEXT).unwrap();
        let expected = json!({ "dns": { "first": "a", "second": "c" }, "region": "own" });
        assert_eq!(inventory.nodes[&"r1".parse().unwrap()].values, expected);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let check = |text: &str, expected: &str| {
            let error =
                InventoryFile::parse("i.toml", text).err().map(|error| format!("{error:#}"));
            let error = error.unwrap_or_default();
            assert!(error.contains(expected), "{error}");
        };
        check(&TEXT.replace("[\"fra\"]", "[\"par\"]"), "i.toml:9: node r1 is in the group `par`");
        check(&TEXT.replace("groups = ", "group = "), "line 9");
        check("", "i.toml has no nodes");
        check("[nodes.\"a/b\"]\n", "`a/b` is no name");
    }
}
