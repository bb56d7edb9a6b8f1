//! `fleet start`: uploads a signed rollout, content first and the statement last.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use homeostat_fleet::chunks::deflate;
use homeostat_fleet::records::Record as _;
use homeostat_fleet::{Digest, Name};
use homeostat_store::{Committed, Entry, Guard, Keys as Range, Transaction};
use serde_json::json;

use super::args::StartArgs;
use super::bundle::{Bundle, STATEMENT, leaf_parts};
use super::connection::{Fleet, of_store};
use super::rollout::person;
use super::snapshot::Snapshot;
use super::{Call, named, now, wait};
use crate::failure::helped;
use crate::output::stream;
use crate::wire::FORMAT_VERSION;

/// A request to etcd may have 1.5 MiB and 128 operations.
const MOST_BYTES: usize = 1 << 20;
const MOST_WRITES: usize = 60;
/// How often everything is uploaded anew because somebody has begun to delete meanwhile.
const TRIES: usize = 5;

pub(super) async fn run(args: &StartArgs, call: &Call<'_>) -> Result<ExitCode> {
    let bundle = Bundle::read(&args.bundle)?;
    Bundle::check_signatures(&args.bundle, STATEMENT, &bundle.signed, &call.connection)?;
    let fleet = call.connection.open()?;
    bundle.is_for(&fleet.name)?;
    let snapshot = Snapshot::read(&fleet).await?;
    refuse_old(&bundle, &snapshot)?;
    let statement = bundle.statement();
    let id = &statement.id;
    let uploaded = start(&bundle, &fleet).await?;
    if !args.wait || !call.is_json {
        stream::print(call.global.color, |to| {
            if call.is_json {
                let all = json!({
                    "format_version": FORMAT_VERSION, "rollout": id, "generation": statement.generation,
                    "nodes": statement.nodes, "uploaded": uploaded, "leader": snapshot.leader,
                });
                return writeln!(to, "{all}");
            }
            writeln!(
                to,
                "Started rollout {id}: generation {}, {} nodes, {uploaded} values uploaded.",
                statement.generation, statement.nodes
            )?;
            match &snapshot.leader {
                Some(_) => Ok(()),
                None => {
                    writeln!(to, "No coordinator leads now: start `homeostat fleet coordinate`.")
                }
            }
        })?;
    }
    if args.wait {
        wait::follow(&fleet, id, None, false, call).await
    } else {
        Ok(ExitCode::SUCCESS)
    }
}

/// Uploads everything and writes the statement; says how many values the store did not have.
pub(super) async fn start(bundle: &Bundle, fleet: &Fleet) -> Result<usize> {
    let id = &bundle.statement().id;
    let mut uploaded = 0;
    for _ in 0..TRIES {
        let not_pruned = not_pruned(fleet).await?;
        uploaded += upload_documents(bundle, fleet).await?;
        let leaves = write_leaves(bundle, fleet).await?;
        // Nobody begins before this is there, and everything that it points to is. Leaves that another operator has written
        // for a rollout of the same name are not taken for these.
        let key = fleet.keys.statement(id);
        let guarded = Transaction::new()
            .only_if(Guard::Absent { key: key.clone() })
            .only_if(not_pruned.clone());
        let guarded = leaves.into_iter().fold(guarded, Transaction::only_if);
        let transaction = guarded.put(key.clone(), bundle.signed.write());
        let committed = fleet.store.commit(transaction).await.map_err(of_store)?;
        let Committed::Refused { current, .. } = committed else { return Ok(uploaded) };
        if current.contains_key(&key) || is_as_guarded(&not_pruned, &current) {
            return Err(refused(id, current.contains_key(&key)));
        }
        // What was uploaded may have been taken for what nobody needs.
    }
    Err(helped(
        "other operators delete old rollouts again and again while this one is uploaded",
        "start it again once `homeostat fleet prune` has ended",
    ))
}

/// Holds as long as nobody has begun to delete what nobody needs any more.
async fn not_pruned(fleet: &Fleet) -> Result<Guard> {
    let key = fleet.keys.prune_began();
    let listed = fleet.store.list(Range::One(key.clone())).await.map_err(of_store)?;
    Ok(match listed.values.get(&key) {
        Some(entry) => Guard::Unmodified { key, since: entry.modified },
        None => Guard::Absent { key },
    })
}

fn is_as_guarded(guard: &Guard, current: &BTreeMap<String, Entry>) -> bool {
    let modified = current.get(guard.key()).map(|entry| entry.modified);
    match guard {
        Guard::Unmodified { since, .. } => modified == Some(*since),
        _ => modified.is_none(),
    }
}

fn refused(id: &Name, is_started: bool) -> anyhow::Error {
    if is_started {
        return helped(
            format!("there is a rollout `{id}` already"),
            "`homeostat fleet status` shows it; sign anew for another one",
        );
    }
    helped(
        format!("another operator is starting a rollout `{id}`"),
        "agree who does it; then start it again, or sign anew for another one",
    )
}

/// Writes the leaves as long as the rollout has no statement. What an interrupted upload has left is replaced. Returns what
/// holds as long as nobody else writes them.
async fn write_leaves(bundle: &Bundle, fleet: &Fleet) -> Result<Vec<Guard>> {
    let id = &bundle.statement().id;
    let mut left = fleet.store.list(Range::Below(fleet.keys.all_leaves(id))).await;
    let left = &mut left.as_mut().map_err(|error| of_store(error.clone()))?.values;
    let not_started = || {
        let key = fleet.keys.statement(id);
        Transaction::new().only_if(Guard::Absent { key })
    };
    let mut written = Vec::new();
    for (nth, part) in leaf_parts(&bundle.rollout).enumerate() {
        let key = fleet.keys.leaves(id, nth);
        let guard = match left.remove(&key) {
            Some(entry) if entry.value == part => {
                written.push(Guard::Unmodified { key, since: entry.modified });
                continue;
            }
            Some(entry) => Guard::Unmodified { key: key.clone(), since: entry.modified },
            None => Guard::Absent { key: key.clone() },
        };
        let put = not_started().only_if(guard).put(key.clone(), part);
        match fleet.store.commit(put).await.map_err(of_store)? {
            Committed::Done { revision } => {
                written.push(Guard::Unmodified { key, since: revision });
            }
            Committed::Refused { current, .. } => {
                return Err(refused(id, current.contains_key(&fleet.keys.statement(id))));
            }
        }
    }
    for (key, entry) in std::mem::take(left) {
        let guard = Guard::Unmodified { key: key.clone(), since: entry.modified };
        let delete = not_started().only_if(guard).delete(key.clone());
        if let Committed::Refused { current, .. } =
            fleet.store.commit(delete).await.map_err(of_store)?
        {
            return Err(refused(id, current.contains_key(&fleet.keys.statement(id))));
        }
        written.push(Guard::Absent { key });
    }
    Ok(written)
}

fn refuse_old(bundle: &Bundle, snapshot: &Snapshot) -> Result<()> {
    let statement = bundle.statement();
    let newest = snapshot.generation();
    if snapshot.rollouts.contains_key(&statement.id) {
        return Err(helped(
            format!("there is a rollout `{}` already", statement.id),
            "`homeostat fleet status` shows it; sign anew for another one",
        ));
    }
    if statement.generation <= newest {
        return Err(helped(
            format!(
                "generation {} is not newer than {newest}, so nodes would refuse it",
                statement.generation
            ),
            "sign it anew: `homeostat fleet sign` takes the next generation",
        ));
    }
    if statement.not_after <= now() {
        return Err(helped(
            format!("the statement was valid until {}", statement.not_after),
            "sign it anew: `homeostat fleet sign`",
        ));
    }
    Ok(())
}

/// Uploads chunks, then manifests, as far as the store does not have them; says how many. Who is deleting what nobody needs
/// stops at the first of these.
pub(super) async fn upload_documents(bundle: &Bundle, fleet: &Fleet) -> Result<usize> {
    let group = Name::all();
    let begins = Transaction::new().put(fleet.keys.uploads(), person().into_bytes());
    let _ = fleet.store.commit(begins).await.map_err(of_store)?;
    let packed = bundle.documents.values();
    let raw: BTreeMap<&Digest, &Vec<u8>> = packed.clone().flat_map(|one| &one.chunks).collect();
    let mut values = Values { fleet, pending: Vec::new(), bytes: 0, written: 0 };
    for (digest, chunk) in raw {
        values.put(fleet.keys.blob(&group, digest), deflate(chunk)).await?;
    }
    values.flush().await?;
    for one in packed {
        values.put(fleet.keys.document(&group, &one.document), one.manifest.clone()).await?;
    }
    values.flush().await?;
    // A fallback that is not here cannot be fetched by a node that has lost its own copy.
    let mut missing: BTreeMap<Digest, BTreeSet<&Name>> = BTreeMap::new();
    for leaf in bundle.rollout.leaves() {
        if !bundle.documents.contains_key(&leaf.fallback) {
            missing.entry(leaf.fallback).or_default().insert(&leaf.node);
        }
    }
    for (digest, nodes) in missing {
        let key = fleet.keys.document(&group, &digest);
        let listed = fleet.store.list(Range::One(key)).await.map_err(of_store)?;
        if listed.values.is_empty() {
            return Err(helped(
                format!(
                    "the store has not the document that these nodes would fall back to: {}",
                    named(nodes)
                ),
                "sign with `--offline GENERATION --previous BUNDLE`, with a bundle that has it and was uploaded",
            ));
        }
    }
    Ok(values.written)
}

/// Values that never change, written in transactions that are not too large.
struct Values<'a> {
    fleet: &'a Fleet,
    pending: Vec<(String, Vec<u8>)>,
    bytes: usize,
    written: usize,
}

impl Values<'_> {
    async fn put(&mut self, key: String, value: Vec<u8>) -> Result<()> {
        if self.bytes + value.len() > MOST_BYTES || self.pending.len() == MOST_WRITES {
            self.flush().await?;
        }
        self.bytes += value.len();
        self.pending.push((key, value));
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        self.bytes = 0;
        let mut pending = std::mem::take(&mut self.pending);
        while !pending.is_empty() {
            let transaction = pending.iter().fold(Transaction::new(), |all, (key, value)| {
                all.only_if(Guard::Absent { key: key.clone() }).put(key, value.clone())
            });
            let committed = self.fleet.store.commit(transaction).await;
            match committed.map_err(of_store).context("cannot upload documents")? {
                Committed::Done { .. } => {
                    self.written += pending.len();
                    return Ok(());
                }
                Committed::Refused { current, .. } => {
                    // What is there under its hash is the same, unless it was damaged.
                    for (key, value) in &pending {
                        let Some(entry) = current.get(key).filter(|entry| entry.value != *value)
                        else {
                            continue;
                        };
                        let guard = Guard::Unmodified { key: key.clone(), since: entry.modified };
                        let repair = Transaction::new().only_if(guard).put(key, value.clone());
                        let _ = self.fleet.store.commit(repair).await.map_err(of_store)?;
                        self.written += 1;
                    }
                    pending.retain(|(key, _)| !current.contains_key(key));
                }
            }
        }
        Ok(())
    }
}
