//! `fleet prune`: deletes rollouts that are over, and the documents and chunks that nobody needs any more.
//!
//! It may run while others start rollouts. Whoever uploads says so first, and each deletion stands on that nobody has done so
//! since it began; what was uploaded before that, and has no statement yet, is uploaded again ([`super::start::start`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use homeostat_fleet::chunks::{Chunks, Manifest, inflate};
use homeostat_fleet::records::{Record as _, Want};
use homeostat_fleet::{Digest, Name};
use homeostat_store::{Committed, Guard, Keys as Range, Revision, Transaction};
use serde_json::json;

use super::Call;
use super::args::PruneArgs;
use super::connection::{Fleet, of_store};
use super::rollout::person;
use super::snapshot::Snapshot;
use crate::failure::helped;
use crate::output::stream;
use crate::wire::FORMAT_VERSION;

/// A request to etcd may have 128 operations.
const MOST_DELETES: usize = 60;

/// What was deleted, or would be.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pruned {
    rollouts: BTreeSet<Name>,
    documents: usize,
    chunks: usize,
    /// Rollouts.
    kept: usize,
}

pub(super) async fn run(args: &PruneArgs, call: &Call<'_>) -> Result<ExitCode> {
    let fleet = call.connection.open()?;
    let pruned = prune(&fleet, args.keep, args.dry_run).await?;
    stream::print(call.global.color, |to| {
        if call.is_json {
            let all = json!({
                "format_version": FORMAT_VERSION, "dry_run": args.dry_run, "rollouts": pruned.rollouts,
                "documents": pruned.documents, "chunks": pruned.chunks, "kept": pruned.kept,
            });
            return writeln!(to, "{all}");
        }
        pruned.draw(args.dry_run, to)
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Pruned {
    fn draw(&self, is_dry_run: bool, to: &mut dyn Write) -> io::Result<()> {
        let Pruned { rollouts, documents, chunks, kept } = self;
        if rollouts.is_empty() && *documents == 0 && *chunks == 0 {
            return writeln!(to, "Nothing to delete. Rollouts kept: {kept}.");
        }
        let verb = if is_dry_run { "Would delete" } else { "Deleted" };
        writeln!(
            to,
            "{verb} rollouts: {}, documents: {documents}, chunks: {chunks}. Rollouts kept: {kept}.",
            rollouts.len()
        )
    }
}

/// Deletes all but the newest `keep` rollouts, those that are not over and those of which a node still wants something, and
/// what only the others need.
async fn prune(fleet: &Fleet, keep: usize, is_dry_run: bool) -> Result<Pruned> {
    let deletion = if is_dry_run { None } else { Some(Deletion::begin(fleet).await?) };
    let snapshot = Snapshot::read(fleet).await?;
    if let Some((key, why)) = snapshot.unreadable.first() {
        return Err(helped(
            format!("{key} cannot be understood: {why}"),
            "nothing was deleted, since this may need it; use the newest homeostat that operators of the fleet have",
        ));
    }
    let wants = wants(fleet).await?;
    let old = old_rollouts(&snapshot, &wants, keep);
    let needed = needed_documents(&snapshot, &wants, &old);
    let documents = Documents::read(fleet, &needed).await?;
    if let Some(deletion) = &deletion {
        // What points to something goes before it.
        for id in &old {
            deletion.delete_rollout(&snapshot, id).await?;
        }
        deletion.delete(&documents.unneeded).await?;
    }
    let chunks = delete_chunks(fleet, deletion.as_ref(), &documents.chunks).await?;
    let kept = snapshot.rollouts.len() - old.len();
    Ok(Pruned { rollouts: old, documents: documents.unneeded.len(), chunks, kept })
}

/// What nodes want now, and what they are asked to plan.
async fn wants(fleet: &Fleet) -> Result<Vec<Want>> {
    let listed = fleet.store.list(Range::Below(fleet.keys.all("node"))).await.map_err(of_store)?;
    let read = |(key, entry): (&String, &homeostat_store::Entry)| {
        Want::read(&entry.value).with_context(|| format!("{key} cannot be understood"))
    };
    listed.values.iter().map(read).collect()
}

fn old_rollouts(snapshot: &Snapshot, wants: &[Want], keep: usize) -> BTreeSet<Name> {
    let wanted: BTreeSet<&Name> = wants.iter().map(|want| &want.rollout).collect();
    let mut newest: Vec<_> = snapshot.rollouts.iter().collect();
    newest.sort_by_key(|(_, records)| std::cmp::Reverse(records.generation()));
    let is_over = |id: &Name| {
        let state = snapshot.rollouts.get(id).and_then(|records| records.state.as_ref());
        state.is_some_and(|state| state.phase.is_over())
    };
    let old = newest.into_iter().skip(keep).map(|(id, _)| id);
    old.filter(|id| !wanted.contains(id) && is_over(id)).cloned().collect()
}

/// The documents of the rollouts that stay, of what nodes want, and of what they have.
fn needed_documents(snapshot: &Snapshot, wants: &[Want], old: &BTreeSet<Name>) -> BTreeSet<Digest> {
    let kept = snapshot.rollouts.iter().filter(|(id, _)| !old.contains(*id));
    let leaves = kept.flat_map(|(_, records)| &records.leaves);
    let in_rollouts = leaves.flat_map(|leaf| [leaf.document, leaf.fallback]);
    let wanted = wants.iter().flat_map(|want| [want.document, want.fallback]);
    let had = snapshot.nodes.values().filter_map(|node| Some(node.status.as_ref()?.document));
    in_rollouts.chain(wanted).chain(had).collect()
}

/// The documents of the store.
struct Documents {
    /// The keys of manifests.
    unneeded: Vec<String>,
    /// Those of the needed ones.
    chunks: BTreeSet<Digest>,
}

impl Documents {
    async fn read(fleet: &Fleet, needed: &BTreeSet<Digest>) -> Result<Self> {
        let group = Name::all();
        let listed = fleet.store.list(Range::Below(fleet.keys.all("doc"))).await;
        let listed = listed.map_err(of_store)?.values;
        let needed: BTreeMap<String, &Digest> =
            needed.iter().map(|digest| (fleet.keys.document(&group, digest), digest)).collect();
        let mut chunks = BTreeSet::new();
        for (key, digest) in &needed {
            let Some(entry) = listed.get(key) else { continue };
            let manifest = Manifest::of_document(digest, &entry.value)
                .with_context(|| format!("{key} cannot be understood"))?;
            chunks.extend(chunks_of(fleet, &manifest).await?);
        }
        let unneeded = listed.into_keys().filter(|key| !needed.contains_key(key)).collect();
        Ok(Documents { unneeded, chunks })
    }
}

/// All chunks of a document, also those that list others.
async fn chunks_of(fleet: &Fleet, manifest: &Manifest) -> Result<BTreeSet<Digest>> {
    let mut lists = BTreeMap::new();
    for file in &manifest.files {
        let Chunks::In(parts) = &file.chunks else { continue };
        for part in parts {
            let key = fleet.keys.blob(&Name::all(), part);
            let listed = fleet.store.list(Range::One(key.clone())).await.map_err(of_store)?;
            let list = listed.values.get(&key).and_then(|entry| inflate(&entry.value, part).ok());
            let list = list.ok_or_else(|| {
                helped(
                    format!("a document that is needed lacks a part of it: {key}"),
                    "upload it again: sign a rollout that has it, and start that",
                )
            })?;
            lists.insert(*part, list);
        }
    }
    let mut chunks = manifest.missing(|part| lists.get(part).cloned(), |_| false)?;
    chunks.extend(lists.into_keys());
    Ok(chunks)
}

/// Deletes the chunks that are not needed; without a deletion it only counts them.
async fn delete_chunks(
    fleet: &Fleet,
    deletion: Option<&Deletion<'_>>,
    needed: &BTreeSet<Digest>,
) -> Result<usize> {
    let group = Name::all();
    let needed: BTreeSet<String> =
        needed.iter().map(|digest| fleet.keys.blob(&group, digest)).collect();
    let mut deleted = 0;
    // A list has the values, too, and all of them may be a gigabyte.
    for first in 0..=u8::MAX {
        let some = Range::Below(format!("{}{group}/{first:02x}", fleet.keys.all("blob")));
        let listed = fleet.store.list(some).await.map_err(of_store)?;
        let unneeded = listed.values.into_keys().filter(|key| !needed.contains(key));
        let unneeded: Vec<String> = unneeded.collect();
        if let Some(deletion) = deletion {
            deletion.delete(&unneeded).await?;
        }
        deleted += unneeded.len();
    }
    Ok(deleted)
}

/// A right to delete that ends when somebody uploads.
struct Deletion<'a> {
    fleet: &'a Fleet,
    since: Revision,
}

impl<'a> Deletion<'a> {
    /// From now on who has uploaded something, but not started it, uploads it again.
    async fn begin(fleet: &'a Fleet) -> Result<Self> {
        let by = person();
        let begins = Transaction::new()
            .put(fleet.keys.prune_began(), by.clone())
            .put(fleet.keys.uploads(), by);
        match fleet.store.commit(begins).await.map_err(of_store)? {
            Committed::Done { revision } => Ok(Deletion { fleet, since: revision }),
            Committed::Refused { .. } => Err(anyhow!("the store refused a write without a guard")),
        }
    }

    fn guarded(&self) -> Transaction {
        let guard = Guard::Unmodified { key: self.fleet.keys.uploads(), since: self.since };
        Transaction::new().only_if(guard)
    }

    async fn commit(&self, transaction: Transaction) -> Result<()> {
        match self.fleet.store.commit(transaction).await.map_err(of_store)? {
            Committed::Done { .. } => Ok(()),
            Committed::Refused { .. } => Err(helped(
                "another operator starts, plans, aborts or deletes something at this moment",
                "nothing was deleted that is needed; run it again for the rest",
            )),
        }
    }

    async fn delete(&self, keys: &[String]) -> Result<()> {
        for some in keys.chunks(MOST_DELETES) {
            self.commit(some.iter().cloned().fold(self.guarded(), Transaction::delete)).await?;
        }
        Ok(())
    }

    /// Unless its coordinator or an operator has written anything since it was read.
    async fn delete_rollout(&self, snapshot: &Snapshot, id: &Name) -> Result<()> {
        let keys = &self.fleet.keys;
        let Some(records) = snapshot.rollouts.get(id) else { return Ok(()) };
        let unmodified = |key: String, since: Option<Revision>| match since {
            Some(since) => Guard::Unmodified { key, since },
            None => Guard::Absent { key },
        };
        let (statement, request, state) = (keys.statement(id), keys.request(id), keys.state(id));
        let transaction = self
            .guarded()
            .only_if(unmodified(request.clone(), records.request_modified))
            .only_if(unmodified(state.clone(), records.state_modified))
            .delete(statement)
            .delete(request)
            .delete(state);
        self.commit(transaction).await?;
        let leaves = self.fleet.store.list(Range::Below(keys.all_leaves(id))).await;
        let leaves: Vec<String> = leaves.map_err(of_store)?.values.into_keys().collect();
        self.delete(&leaves).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use homeostat_fleet::Time;
    use homeostat_fleet::chunks::{Packed, empty, pack};
    use homeostat_fleet::decide::Rollout;
    use homeostat_fleet::keys::Keys;
    use homeostat_fleet::merkle::{Class, Leaf, Tree};
    use homeostat_fleet::records::{Phase, SignedStatement, State, Statement, Wave};
    use homeostat_store::{Fault, MemoryStore};

    use super::super::bundle::Bundle;
    use super::super::start::start;
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn fleet(store: &MemoryStore) -> Fleet {
        let edge = name("edge");
        Fleet { keys: Keys::new(&edge), name: edge, store: Arc::new(store.clone()) }
    }

    /// Documents of so many routes, which differ in one of them.
    fn document(version: usize, routes: usize) -> Packed {
        let line = |number: usize| {
            let via = if number == routes / 2 { version + 2 } else { 1 };
            let [.., high, low] = number.to_be_bytes();
            format!("10.0.{high}.{low}/32 via 192.0.2.{via}\n")
        };
        let text: String = (0..routes).map(line).collect();
        pack([("all.routes", text.as_bytes())], &[])
    }

    /// So long that the list of its chunks is itself in chunks.
    const LONG: usize = 60_000;
    const SHORT: usize = 2000;

    /// A rollout of one document to one node.
    fn bundle(generation: u64, document: &Packed, fallback: &Packed) -> Bundle {
        let leaf = Leaf {
            node: name("r1"),
            document: document.document,
            fallback: fallback.document,
            class: Class::Reversible,
        };
        let period = |text: &str| text.parse().unwrap();
        let statement = Statement {
            fleet: name("edge"),
            id: name(&format!("g{generation}")),
            generation,
            not_after: Time::of_millis(u64::MAX >> 1),
            root: Tree::new([leaf.hash()]).root(),
            nodes: 1,
            waves: vec![Wave::Nodes(1)],
            max_in_flight: 1,
            max_failed: 0,
            settle: period("10s"),
            confirm_within: period("1m"),
            soak: period("1s"),
            accept: Vec::new(),
            plan: false,
        };
        let text = String::from_utf8(statement.write()).unwrap();
        let signed = SignedStatement { statement: text, signatures: Vec::new() };
        Bundle {
            rollout: Rollout::new(statement, vec![leaf]).unwrap(),
            plan: signed.clone(),
            signed,
            documents: [empty(), document.clone()].map(|one| (one.document, one)).into(),
        }
    }

    async fn end(fleet: &Fleet, generation: u64) {
        let rollout = name(&format!("g{generation}"));
        let state = State {
            rollout: rollout.clone(),
            generation,
            phase: Phase::Done,
            wave: 0,
            complete: None,
            why: None,
            set_aside: BTreeSet::new(),
            counts: homeostat_fleet::records::Counts::default(),
            request: 0,
            acts: 1,
        };
        let put = Transaction::new().put(fleet.keys.state(&rollout), state.write());
        let _ = fleet.store.commit(put).await.unwrap();
    }

    /// Rollouts of documents 1 to 4, each over; each falls back to the one before.
    async fn four_rollouts(fleet: &Fleet, routes: usize) -> Vec<Packed> {
        let mut documents = vec![empty()];
        for generation in 1..=4 {
            let new = document(generation, routes);
            let bundle = bundle(generation as u64, &new, documents.last().unwrap());
            start(&bundle, fleet).await.unwrap();
            end(fleet, generation as u64).await;
            documents.push(new);
        }
        documents
    }

    async fn keys_below(fleet: &Fleet, kind: &str) -> BTreeSet<String> {
        let listed = fleet.store.list(Range::Below(fleet.keys.all(kind))).await.unwrap();
        listed.values.into_keys().collect()
    }

    /// A node that has nothing could fetch each document of each rollout.
    async fn all_is_there(fleet: &Fleet) {
        let snapshot = Snapshot::read(fleet).await.unwrap();
        assert!(snapshot.unreadable.is_empty());
        for (id, records) in &snapshot.rollouts {
            assert!(!records.leaves.is_empty() && records.statement.is_some(), "{id}");
            for digest in records.leaves.iter().flat_map(|leaf| [leaf.document, leaf.fallback]) {
                let key = fleet.keys.document(&Name::all(), &digest);
                let listed = fleet.store.list(Range::One(key.clone())).await.unwrap();
                let manifest = Manifest::of_document(&digest, &listed.values[&key].value).unwrap();
                for chunk in chunks_of(fleet, &manifest).await.unwrap() {
                    let key = fleet.keys.blob(&Name::all(), &chunk);
                    let listed = fleet.store.list(Range::One(key.clone())).await.unwrap();
                    inflate(&listed.values[&key].value, &chunk).unwrap();
                }
            }
        }
    }

    #[tokio::test]
    async fn what_only_old_rollouts_need_goes_and_nothing_else() {
        let store = MemoryStore::new();
        let fleet = &fleet(&store);
        let documents = four_rollouts(fleet, LONG).await;
        let manifest = Manifest::of_document(&documents[1].document, &documents[1].manifest);
        assert!(matches!(manifest.unwrap().files[0].chunks, Chunks::In(_)));
        let before = keys_below(fleet, "blob").await;
        let looked = prune(fleet, 1, true).await.unwrap();
        assert_eq!(keys_below(fleet, "blob").await, before, "a dry run deletes nothing");
        let pruned = prune(fleet, 1, false).await.unwrap();
        assert_eq!(pruned, looked);
        assert_eq!(pruned.rollouts, ["g1", "g2", "g3"].map(name).into());
        // The fallback of the last one stays.
        assert_eq!((pruned.documents, pruned.kept), (3, 1));
        let left = keys_below(fleet, "doc").await;
        let expected = [&documents[3], &documents[4]]
            .map(|one| fleet.keys.document(&Name::all(), &one.document));
        assert_eq!(left, expected.into());
        assert_eq!(keys_below(fleet, "blob").await.len(), before.len() - pruned.chunks);
        assert!(pruned.chunks >= 2, "each document has a chunk of its own, and a list of chunks");
        assert_eq!(keys_below(fleet, "leaves").await.len(), 1);
        all_is_there(fleet).await;
        let again = prune(fleet, 1, false).await.unwrap();
        assert_eq!(again, Pruned { kept: 1, ..Pruned::default() });
    }

    #[tokio::test]
    async fn a_rollout_that_runs_stays_with_its_documents() {
        let store = MemoryStore::new();
        let fleet = &fleet(&store);
        four_rollouts(fleet, SHORT).await;
        start(&bundle(5, &document(1, SHORT), &document(4, SHORT)), fleet).await.unwrap();
        start(&bundle(6, &document(2, SHORT), &document(4, SHORT)), fleet).await.unwrap();
        end(fleet, 6).await;
        let pruned = prune(fleet, 1, false).await.unwrap();
        assert_eq!(pruned.rollouts, ["g1", "g2", "g3", "g4"].map(name).into());
        assert_eq!(pruned.kept, 2);
        all_is_there(fleet).await;
    }

    #[tokio::test]
    async fn what_cannot_be_understood_keeps_everything() {
        let store = MemoryStore::new();
        let fleet = &fleet(&store);
        four_rollouts(fleet, SHORT).await;
        let put = Transaction::new().put(fleet.keys.status(&name("r1")), "of a newer version");
        let _ = fleet.store.commit(put).await.unwrap();
        let before = keys_below(fleet, "blob").await;
        let why = prune(fleet, 1, false).await.unwrap_err().to_string();
        assert!(why.starts_with("/homeostat/v1/edge/status/r1 cannot be understood"), "{why}");
        assert_eq!(keys_below(fleet, "blob").await, before);
    }

    /// Whatever comes first, a rollout that is started has all of its documents, also those that only old ones had.
    #[tokio::test(start_paused = true)]
    async fn an_upload_at_the_same_time_loses_nothing() {
        let (mut stopped, mut finished) = (0, 0);
        for seed in 0..60_u64 {
            let store = MemoryStore::new();
            let fleet = &fleet(&store);
            let documents = four_rollouts(fleet, SHORT).await;
            let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            store.set_faults(move |_| {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                Fault::Delay(Duration::from_millis(dice % 20 * (dice >> 8 & 1)))
            });
            // Its document is one that is to be deleted.
            let bundle = bundle(5, &documents[1], &documents[4]);
            // From its first call to some time after its last one.
            let begins = Duration::from_millis(seed * 40);
            let started = async {
                // Time is paused: this is over at once.
                let _ = tokio::time::timeout(begins, std::future::pending::<()>()).await;
                start(&bundle, fleet).await
            };
            let (started, pruned) = tokio::join!(started, prune(fleet, 1, false));
            started.unwrap();
            *if pruned.is_ok() { &mut finished } else { &mut stopped } += 1;
            store.clear_faults();
            all_is_there(fleet).await;
        }
        assert!(stopped > 5 && finished > 5, "{stopped} {finished}");
    }
}
