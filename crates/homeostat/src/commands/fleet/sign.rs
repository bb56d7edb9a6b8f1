//! `fleet sign`: renders one document for each node, and has the root over all of them signed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use homeostat_fleet::decide::Rollout;
use homeostat_fleet::judge::NAMESPACE;
use homeostat_fleet::merkle::{Leaf, Tree};
use homeostat_fleet::records::{Record as _, Statement};
use homeostat_fleet::{Digest, Name, chunks};
use homeostat_registry::Lists;
use serde_json::json;

use super::args::SignArgs;
use super::bundle::{self, Bundle};
use super::connection::Connection;
use super::documents::{Files, Templates};
use super::inventory::{InventoryFile, NodeEntry};
use super::programs;
use super::snapshot::Snapshot;
use super::{Call, named, now};
use crate::failure::helped;
use crate::output::stream;
use crate::provider::load;
use crate::registry;
use crate::wire::FORMAT_VERSION;

pub(super) async fn run(args: &SignArgs, call: &Call<'_>) -> Result<ExitCode> {
    let (Some(inventory), Some(out)) = (&args.inventory, &args.out) else {
        return add(args, call);
    };
    if out.exists() {
        return Err(helped(
            format!("{} is there already", out.display()),
            "give another name, or remove it",
        ));
    }
    let inventory = InventoryFile::read(inventory)?;
    let nodes = choose(args, &inventory)?;
    let fleet = call.connection.fleet_name()?;
    let templates = Templates::read(&args.directory)?;
    let (generation, id, fallbacks) = match args.offline {
        Some(generation) => (generation, default_id(args, |_| false), previous(args)?),
        None => online(args, &call.connection).await?,
    };
    let empty = chunks::empty().document;
    let (mut documents, mut leaves) = (BTreeMap::<Digest, Files>::new(), Vec::new());
    let mut examples: BTreeMap<Digest, Name> = BTreeMap::new();
    for (node, entry) in nodes {
        let files = templates.render(&fleet, node, entry)?;
        let document = bundle::pack(&files).document;
        examples.entry(document).or_insert_with(|| node.clone());
        documents.entry(document).or_insert(files);
        let fallback = fallbacks.get(node).copied().unwrap_or(empty);
        leaves.push(Leaf { node: node.clone(), document, fallback, class: args.class.into() });
    }
    let statement = Statement {
        fleet,
        id,
        generation,
        not_after: args.not_after.unwrap_or_else(|| now().after(args.valid_for.get())),
        root: Tree::new(leaves.iter().map(Leaf::hash)).root(),
        nodes: leaves.len() as u64,
        waves: args.waves.clone(),
        max_in_flight: args.max_in_flight,
        max_failed: args.max_failed,
        settle: args.settle,
        confirm_within: args.confirm_within,
        soak: args.soak,
        accept: args.accept.clone(),
        plan: false,
    };
    // What could not be followed is not signed.
    Statement::parse(&String::from_utf8_lossy(&statement.write()))?;
    bundle::write(out, &statement, &leaves, &documents)?;
    if !args.no_check {
        check(out, &examples)?;
    }
    let key = args.signing_key.as_deref().or(call.connection.signing_key.as_deref());
    if let Some(key) = key {
        bundle::sign(out, |message| programs::sign(key, NAMESPACE, message))?;
    }
    let is_signed = key.is_some();
    // Everything is read as `start` will read it.
    Bundle::read(out)?;
    let changed = leaves.iter().filter(|leaf| leaf.document != leaf.fallback).count();
    stream::print(call.global.color, |to| {
        if call.is_json {
            let all = json!({
                "format_version": FORMAT_VERSION, "bundle": out, "id": statement.id, "generation": generation,
                "nodes": leaves.len(), "changed": changed, "documents": documents.len(), "root": statement.root,
                "waves": statement.wave_ends(), "not_after": statement.not_after, "signed": is_signed,
            });
            return writeln!(to, "{all}");
        }
        let Statement { id, not_after, .. } = &statement;
        writeln!(to, "Rollout {id}, generation {generation}, in {}", out.display())?;
        let (nodes, count) = (leaves.len(), documents.len());
        writeln!(
            to,
            "  {nodes} nodes, {count} different documents, {changed} nodes change theirs"
        )?;
        let waves: Vec<_> = statement.wave_ends().iter().map(u64::to_string).collect();
        writeln!(to, "  waves up to {} nodes, valid until {not_after}", waves.join(", "))?;
        let fresh: Vec<_> =
            leaves.iter().filter(|leaf| leaf.fallback == empty).map(|leaf| &leaf.node).collect();
        if !fresh.is_empty() {
            writeln!(
                to,
                "  without a former document, so they fall back to the one in their own files: {}",
                named(fresh)
            )?;
        }
        let shown = out.display();
        if is_signed {
            return writeln!(
                to,
                "Signed. Next: `homeostat fleet plan {shown}`, then `homeostat fleet start {shown}`."
            );
        }
        writeln!(to, "Not signed yet. Sign it, and the request for plans:")?;
        let files = [bundle::STATEMENT, bundle::PLAN]
            .map(|name| programs::sign_command(NAMESPACE, &out.join(name)));
        files.iter().try_for_each(|command| writeln!(to, "  {command}"))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Adds a signature to a bundle that was written before.
fn add(args: &SignArgs, call: &Call<'_>) -> Result<ExitCode> {
    let directory = &args.directory;
    Bundle::read(directory)?;
    let key = args.signing_key.as_deref().or(call.connection.signing_key.as_deref());
    let key = key.ok_or_else(|| {
        helped(
            "there is no key to sign with",
            "give --signing-key FILE, or write `signing-key` to the configuration file",
        )
    })?;
    bundle::sign(directory, |message| programs::sign(key, NAMESPACE, message))?;
    let count = Bundle::read(directory)?.signed.signatures.len();
    stream::print(call.global.color, |to| {
        if call.is_json {
            let all = json!({ "format_version": FORMAT_VERSION, "bundle": directory, "signatures": count });
            return writeln!(to, "{all}");
        }
        writeln!(to, "{} has {count} signatures.", directory.display())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The nodes that were asked for, in the order of the waves.
fn choose<'a>(
    args: &SignArgs,
    inventory: &'a InventoryFile,
) -> Result<Vec<(&'a Name, &'a NodeEntry)>> {
    if let Some(unknown) = args.nodes.iter().find(|name| !inventory.nodes.contains_key(*name)) {
        return Err(helped(
            format!("the inventory has no node `{unknown}`"),
            format!("write a table [nodes.{unknown}]"),
        ));
    }
    let is_chosen = |(name, entry): &(&Name, &NodeEntry)| {
        let groups = &entry.record.groups;
        (args.nodes.is_empty() || args.nodes.contains(name))
            && (args.groups.is_empty() || args.groups.iter().any(|group| groups.contains(group)))
            && args
                .labels
                .iter()
                .all(|(label, value)| entry.record.labels.get(label) == Some(value))
    };
    let mut nodes: Vec<_> = inventory.nodes.iter().filter(is_chosen).collect();
    nodes.sort_by_key(|(_, entry)| entry.record.ring);
    if nodes.is_empty() {
        return Err(helped(
            "no node of the inventory is chosen",
            "look at --node, --group and --label",
        ));
    }
    Ok(nodes)
}

type Fallbacks = BTreeMap<Name, Digest>;

/// What the store says: the next generation, a name that is free, and what each node falls back to.
async fn online(args: &SignArgs, connection: &Connection) -> Result<(u64, Name, Fallbacks)> {
    let snapshot = Snapshot::read(&connection.open()?).await?;
    if let Some(id) = args.id.as_ref().filter(|id| snapshot.rollouts.contains_key(*id)) {
        return Err(helped(format!("there is a rollout `{id}` already"), "give another --id"));
    }
    let id = default_id(args, |id| snapshot.rollouts.contains_key(id));
    let nodes = snapshot.nodes.keys();
    let fallbacks = nodes.filter_map(|node| Some((node.clone(), snapshot.last_good(node)?)));
    let fallbacks: Fallbacks = fallbacks.collect();
    check_fallbacks(&fallbacks, &snapshot, connection)?;
    let generation = snapshot.generation().checked_add(1).ok_or_else(|| {
        helped(
            "a statement or a node says that it has the last generation that there can be",
            "`homeostat fleet status --all --json` shows which; mend it, or give --offline GENERATION",
        )
    })?;
    Ok((generation, id, fallbacks))
}

/// The store is not trusted: a fallback is signed only if an allowed key has signed it for this node before.
fn check_fallbacks(
    fallbacks: &Fallbacks,
    snapshot: &Snapshot,
    connection: &Connection,
) -> Result<()> {
    let empty = chunks::empty().document;
    let mut open = fallbacks.iter().filter(|(_, document)| **document != empty).peekable();
    if open.peek().is_none() {
        return Ok(());
    }
    let Some((signers, needed)) = connection.allowed_signers()? else {
        return Err(helped(
            "nodes have documents, and without `allowed-signers` nobody can tell whether they were signed",
            "write `allowed-signers = \"FILE\"` to the configuration file, or sign with --offline and --previous",
        ));
    };
    let mut known = BTreeSet::new();
    for records in snapshot.rollouts.values() {
        let (Some(signed), Some(statement)) = (&records.signed, &records.statement) else {
            continue;
        };
        let message = signed.statement.as_bytes();
        // Times of keys and statements do not matter here: it was good when nodes took it.
        let is_signed =
            signers.verify(message, NAMESPACE, &signed.signatures, needed, None).is_ok();
        let is_whole = || Rollout::new(statement.clone(), records.leaves.clone()).is_ok();
        if is_signed && statement.fleet == connection.fleet_name()? && is_whole() {
            let leaves = records.leaves.iter();
            known.extend(
                leaves.flat_map(|leaf| [(&leaf.node, leaf.document), (&leaf.node, leaf.fallback)]),
            );
        }
    }
    match open.find(|(node, document)| !known.contains(&(*node, **document))) {
        None => Ok(()),
        Some((node, document)) => Err(helped(
            format!(
                "{node} says that it has {document}, which no rollout in the store has for it with valid signatures"
            ),
            "look at the node itself; then sign with --offline and --previous, which do not ask the store",
        )),
    }
}

fn previous(args: &SignArgs) -> Result<Fallbacks> {
    let Some(directory) = &args.previous else { return Ok(Fallbacks::new()) };
    let bundle = Bundle::read(directory)?;
    Ok(bundle.rollout.leaves().iter().map(|leaf| (leaf.node.clone(), leaf.document)).collect())
}

/// The date and a number.
fn default_id(args: &SignArgs, is_used: impl Fn(&Name) -> bool) -> Name {
    if let Some(id) = &args.id {
        return id.clone();
    }
    let now = now().to_string();
    let day = now.split('T').next().unwrap_or_default();
    let names = (1_u32..).filter_map(|nth| format!("{day}.{nth}").parse().ok());
    names.into_iter().find(|name| !is_used(name)).unwrap_or_else(Name::all)
}

/// Finds mistakes in documents before they are signed, and names a node that has them.
fn check(bundle: &Path, examples: &BTreeMap<Digest, Name>) -> Result<()> {
    for (digest, node) in examples {
        let directory = bundle.join("documents").join(digest.hex());
        let checked = load(&[directory]).and_then(|document| {
            registry::resolve(&document, Lists::Read).map(drop).map_err(anyhow::Error::from)
        });
        if let Err(error) = checked {
            // What is not good is not left to be signed.
            std::fs::remove_dir_all(bundle)
                .with_context(|| format!("cannot remove {}", bundle.display()))?;
            let text = crate::failure::text(&error);
            return Err(helped(
                format!("the document of node {node} has mistakes:\n{}", text.trim_end()),
                "if it names files that are on the nodes only, give --no-check; nothing was signed",
            ));
        }
    }
    Ok(())
}
