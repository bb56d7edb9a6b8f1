//! `fleet plan`: asks every node what a signed rollout would do there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use homeostat_fleet::Name;
use homeostat_fleet::decide::Rollout;
use homeostat_fleet::merkle::{Leaf, Tree};
use homeostat_fleet::records::{PlanAnswer, PlanResult, Record as _, Statement, Take, Want};
use homeostat_store::{Committed, Keys as Range, Revision, Transaction, WatchEvent};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::args::PlanArgs;
use super::bundle::{Bundle, PLAN};
use super::connection::{Fleet, of_store};
use super::snapshot::Snapshot;
use super::start::upload_documents;
use super::{Call, named, now};
use crate::commands::plan::NOT_CONVERGED;
use crate::output::line::plain;
use crate::output::stream;
use crate::wire::FORMAT_VERSION;

/// Requests vanish after this time: nobody waits for their answers any more.
const REQUESTS_LAST: Duration = Duration::from_mins(10);
/// Requests of one transaction; each has about 3 KiB.
const MOST_WRITES: usize = 60;
/// After a failure of the store.
const PAUSE: Duration = Duration::from_millis(500);
/// Answers are read again after this time without one: watches can lose events.
const LOOK: Duration = Duration::from_secs(5);

pub(super) async fn run(args: &PlanArgs, call: &Call<'_>) -> Result<ExitCode> {
    let bundle = Bundle::read(&args.bundle)?;
    Bundle::check_signatures(&args.bundle, PLAN, &bundle.plan, &call.connection)?;
    let fleet = call.connection.open()?;
    bundle.is_for(&fleet.name)?;
    let snapshot = Snapshot::read(&fleet).await?;
    let is_alive = |leaf: &&Leaf| snapshot.nodes.get(&leaf.node).is_some_and(|node| node.is_alive);
    let (alive, absent): (Vec<&Leaf>, Vec<&Leaf>) =
        bundle.rollout.leaves().iter().partition(is_alive);
    upload_documents(&bundle, &fleet).await?;
    let asked = ask(&fleet, &bundle, &alive).await?;
    let answers = collect(&fleet, &asked, args.timeout.get()).await?;
    let silent = asked.nodes.into_iter().filter(|node| !answers.contains_key(node)).collect();
    let absent = absent.into_iter().map(|leaf| leaf.node.clone()).collect();
    let summary = Summary::new(answers, silent, absent);
    stream::print(call.global.color, |to| {
        if call.is_json { writeln!(to, "{}", summary.as_json()) } else { summary.draw(to) }
    })?;
    Ok(if summary.is_complete() { ExitCode::SUCCESS } else { ExitCode::from(NOT_CONVERGED) })
}

/// Who was asked for plans of which statement.
struct Asked {
    rollout: Name,
    nodes: BTreeSet<Name>,
    /// When: what was answered before is about an earlier request.
    since: Revision,
}

/// Writes the statement, then a request for each node. All of it vanishes with a lease.
async fn ask(fleet: &Fleet, bundle: &Bundle, nodes: &[&Leaf]) -> Result<Asked> {
    let statement = Statement::parse(&bundle.plan.statement)?;
    let lease = fleet.store.grant(REQUESTS_LAST).await.map_err(of_store)?;
    let wants = wants(&bundle.rollout, &statement);
    let key = fleet.keys.statement(&statement.id);
    let transaction = Transaction::new().put_leased(key, bundle.plan.write(), lease.id);
    let mut since = None;
    let committed = fleet.store.commit(transaction).await.map_err(of_store)?;
    if let Committed::Done { revision } = committed {
        since = Some(revision);
    }
    for part in nodes.chunks(MOST_WRITES) {
        let transaction = part.iter().fold(Transaction::new(), |all, leaf| {
            let Some(want) = wants.get(&leaf.node) else { return all };
            all.put_leased(fleet.keys.plan_request(&leaf.node), want.write(), lease.id)
        });
        let _ = fleet.store.commit(transaction).await.map_err(of_store)?;
    }
    let nodes = nodes.iter().map(|leaf| leaf.node.clone()).collect();
    Ok(Asked { rollout: statement.id, nodes, since: since.unwrap_or_default() })
}

fn wants<'a>(rollout: &'a Rollout, statement: &Statement) -> BTreeMap<&'a Name, Want> {
    let leaves = rollout.leaves();
    let tree = Tree::new(leaves.iter().map(Leaf::hash));
    let want = |(index, leaf): (usize, &Leaf)| Want {
        rollout: statement.id.clone(),
        generation: statement.generation,
        take: Take::Document,
        document: leaf.document,
        fallback: leaf.fallback,
        class: leaf.class,
        index: index as u64,
        proof: tree.proof(index).unwrap_or_default(),
        at: now(),
    };
    let wants = leaves.iter().enumerate();
    wants.map(|(index, leaf)| (&leaf.node, want((index, leaf)))).collect()
}

/// The answers that have come until all are there or the time is over.
async fn collect(
    fleet: &Fleet,
    asked: &Asked,
    limit: Duration,
) -> Result<BTreeMap<Name, PlanResult>> {
    let began = Instant::now();
    let range = Range::Below(fleet.keys.all("plan"));
    loop {
        let left = limit.saturating_sub(began.elapsed());
        let listed = match fleet.store.list(range.clone()).await {
            Ok(listed) => listed,
            Err(error) if left.is_zero() => return Err(of_store(error)),
            Err(_) => {
                sleep(PAUSE).await;
                continue;
            }
        };
        let answers = listed.values.iter().filter_map(|(key, entry)| {
            let node = fleet.keys.node_of(key).filter(|node| asked.nodes.contains(node))?;
            let answer = PlanAnswer::read(&entry.value).ok()?;
            let is_new = entry.modified > asked.since && answer.rollout == asked.rollout;
            is_new.then_some((node, answer.result))
        });
        let answers: BTreeMap<_, _> = answers.collect();
        if answers.len() == asked.nodes.len() || left.is_zero() {
            return Ok(answers);
        }
        let change = async {
            let mut watch = fleet.store.watch(range.clone(), listed.revision).await.ok()?;
            while let Ok(WatchEvent::Progress { .. }) = watch.next().await {}
            Some(())
        };
        if let Ok(None) = timeout(left.min(LOOK), change).await {
            sleep(PAUSE.min(left)).await;
        }
    }
}

/// All answers, equal ones together.
struct Summary {
    groups: Vec<Group>,
    silent: Vec<Name>,
    absent: Vec<Name>,
}

struct Group {
    nodes: Vec<Name>,
    result: PlanResult,
}

impl Summary {
    fn new(answers: BTreeMap<Name, PlanResult>, silent: Vec<Name>, absent: Vec<Name>) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        for (node, result) in answers {
            match groups.iter_mut().find(|group| is_equal(&group.result, &result)) {
                Some(group) => group.nodes.push(node),
                None => groups.push(Group { nodes: vec![node], result }),
            }
        }
        // Refusals first, then what most nodes do.
        groups.sort_by_key(|group| {
            let is_planned = matches!(group.result, PlanResult::Planned { .. });
            (is_planned, std::cmp::Reverse(group.nodes.len()))
        });
        Summary { groups, silent, absent }
    }

    fn is_complete(&self) -> bool {
        let is_planned = |group: &Group| matches!(group.result, PlanResult::Planned { .. });
        self.silent.is_empty() && self.absent.is_empty() && self.groups.iter().all(is_planned)
    }

    fn as_json(&self) -> serde_json::Value {
        let groups = self
            .groups
            .iter()
            .map(|Group { nodes, result }| json!({ "nodes": nodes, "result": result }));
        json!({
            "format_version": FORMAT_VERSION, "groups": groups.collect::<Vec<_>>(), "silent": self.silent,
            "absent": self.absent,
        })
    }

    fn draw(&self, to: &mut dyn Write) -> io::Result<()> {
        for Group { nodes, result } in &self.groups {
            let count = match nodes.len() {
                1 => "1 node".to_owned(),
                many => format!("{many} nodes"),
            };
            let mut shown: &[String] = &[];
            match result {
                PlanResult::Refused { why } => {
                    writeln!(to, "{count} would refuse it: {}", plain(why))?;
                }
                PlanResult::Planned { create: 0, update: 0, delete: 0, open: 0, .. } => {
                    writeln!(to, "{count}: no changes")?;
                }
                PlanResult::Planned { create, update, delete, open, lines, .. } => {
                    let open =
                        if *open > 0 { format!(", {open} not as declared") } else { String::new() };
                    writeln!(
                        to,
                        "{count}: {create} to create, {update} to update, {delete} to delete{open}"
                    )?;
                    shown = lines;
                }
            }
            writeln!(to, "  {}", named(nodes))?;
            for line in shown {
                writeln!(to, "    {}", plain(line))?;
            }
        }
        if !self.silent.is_empty() {
            writeln!(to, "No answer from: {}", named(&self.silent))?;
        }
        if !self.absent.is_empty() {
            writeln!(to, "Absent: {}", named(&self.absent))?;
        }
        Ok(())
    }
}

fn is_equal(one: &PlanResult, other: &PlanResult) -> bool {
    match (one, other) {
        (PlanResult::Planned { digest: one, .. }, PlanResult::Planned { digest: other, .. }) => {
            one == other
        }
        (PlanResult::Refused { why: one }, PlanResult::Refused { why: other }) => one == other,
        _ => false,
    }
}
