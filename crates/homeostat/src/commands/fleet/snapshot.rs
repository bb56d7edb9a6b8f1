//! What the store has of a fleet, without the content of documents.

use std::collections::BTreeMap;

use anyhow::Result;
use homeostat_fleet::Name;
use homeostat_fleet::merkle::Leaf;
use homeostat_fleet::records::{
    Inventory, Leaves, NodePhase, Record, Request, SignedStatement, State, Statement, Status, Take,
    Want,
};
use homeostat_store::{Entry, Keys as Range, Revision};

use super::connection::{Fleet, of_store};
use crate::failure::helped;

#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// When the rollouts were read; the rest is newer.
    pub(super) revision: Revision,
    /// Who leads.
    pub(super) leader: Option<String>,
    pub(super) rollouts: BTreeMap<Name, RolloutRecords>,
    pub(super) nodes: BTreeMap<Name, NodeRecords>,
    /// Keys whose values cannot be understood, and why.
    pub(super) unreadable: Vec<(String, String)>,
}

#[derive(Debug, Default)]
pub(super) struct RolloutRecords {
    pub(super) signed: Option<SignedStatement>,
    pub(super) statement: Option<Statement>,
    pub(super) leaves: Vec<Leaf>,
    pub(super) request: Option<Request>,
    pub(super) request_modified: Option<Revision>,
    pub(super) state: Option<State>,
    pub(super) state_modified: Option<Revision>,
}

#[derive(Debug, Default)]
pub(super) struct NodeRecords {
    pub(super) want: Option<Want>,
    pub(super) status: Option<Status>,
    pub(super) is_alive: bool,
    pub(super) inventory: Option<Inventory>,
}

/// How a node stands, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    Good,
    /// Good, with keys that are not as declared.
    Diverged,
    /// It has not answered its want yet.
    Waiting,
    Trial,
    Held,
    Stale,
    RolledBack,
    Refused,
    Absent,
    /// It has no document yet.
    Unassigned,
}

impl Standing {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Standing::Good => "good",
            Standing::Diverged => "diverged",
            Standing::Waiting => "waiting",
            Standing::Trial => "trial",
            Standing::Held => "held",
            Standing::Stale => "stale",
            Standing::RolledBack => "rolled-back",
            Standing::Refused => "refused",
            Standing::Absent => "absent",
            Standing::Unassigned => "unassigned",
        }
    }
}

impl NodeRecords {
    pub(super) fn standing(&self) -> Standing {
        if !self.is_alive {
            return Standing::Absent;
        }
        let Some(want) = &self.want else { return Standing::Unassigned };
        let Some(status) = &self.status else { return Standing::Waiting };
        if (status.generation, status.take) != (want.generation, want.take) {
            return Standing::Waiting;
        }
        match status.phase {
            NodePhase::Good if status.converged => Standing::Good,
            NodePhase::Good => Standing::Diverged,
            NodePhase::Trial => Standing::Trial,
            NodePhase::RolledBack => Standing::RolledBack,
            NodePhase::Refused => Standing::Refused,
            NodePhase::Held => Standing::Held,
            NodePhase::Stale => Standing::Stale,
        }
    }
}

impl Snapshot {
    /// Lists everything but documents and chunks.
    pub(super) async fn read(fleet: &Fleet) -> Result<Self> {
        let mut snapshot = Snapshot::default();
        for kind in ["rollout", "leaves", "node", "status", "alive", "inventory", "lead"] {
            let listed = fleet.store.list(Range::Below(fleet.keys.all(kind))).await;
            let listed = listed.map_err(of_store)?;
            if kind == "rollout" {
                snapshot.revision = listed.revision;
            }
            for (key, entry) in &listed.values {
                if let Err(error) = snapshot.take(fleet, key, entry) {
                    snapshot.unreadable.push((key.clone(), error.to_string()));
                }
            }
        }
        // Requests for plans are no rollouts.
        let is_rollout =
            |records: &RolloutRecords| records.statement.as_ref().is_some_and(|it| !it.plan);
        snapshot.rollouts.retain(|_, records| is_rollout(records));
        Ok(snapshot)
    }

    fn take(
        &mut self,
        fleet: &Fleet,
        key: &str,
        entry: &Entry,
    ) -> Result<(), homeostat_fleet::Error> {
        let rest = key.strip_prefix(fleet.keys.prefix()).unwrap_or_default();
        if key == fleet.keys.leader() {
            self.leader = Some(String::from_utf8_lossy(&entry.value).into_owned());
        }
        if let Some((id, part)) = rest.strip_prefix("rollout/").and_then(|it| it.split_once('/')) {
            return self.rollouts.entry(id.parse()?).or_default().take(part, entry);
        }
        if let Some((id, _)) = rest.strip_prefix("leaves/").and_then(|it| it.split_once('/')) {
            let leaves = Leaves::read(&entry.value)?.leaves;
            self.rollouts.entry(id.parse()?).or_default().leaves.extend(leaves);
            return Ok(());
        }
        let Some(node) = fleet.keys.node_of(key) else { return Ok(()) };
        let records = self.nodes.entry(node).or_default();
        match rest.split_once('/') {
            Some(("node", _)) => records.want = Some(Want::read(&entry.value)?),
            Some(("status", _)) => records.status = Some(Status::read(&entry.value)?),
            Some(("alive", _)) => records.is_alive = true,
            Some(("inventory", _)) => records.inventory = Some(Inventory::read(&entry.value)?),
            _ => {}
        }
        Ok(())
    }

    /// The newest rollout, or the one that was asked for.
    pub(super) fn rollout(&self, id: Option<&Name>) -> Result<(&Name, &RolloutRecords)> {
        match id {
            Some(id) => self.rollouts.get_key_value(id).ok_or_else(|| {
                helped(
                    format!("there is no rollout `{id}`"),
                    "`homeostat fleet history` lists them",
                )
            }),
            None => self.newest().ok_or_else(|| {
                helped("there is no rollout yet", "`homeostat fleet start BUNDLE` starts one")
            }),
        }
    }

    pub(super) fn newest(&self) -> Option<(&Name, &RolloutRecords)> {
        self.rollouts.iter().max_by_key(|(_, records)| records.generation())
    }

    /// The newest generation that any statement has, or any node has accepted.
    pub(super) fn generation(&self) -> u64 {
        let stated = self.rollouts.values().map(RolloutRecords::generation);
        let accepted = self.nodes.values().filter_map(|node| Some(node.status.as_ref()?.accepted));
        stated.chain(accepted).max().unwrap_or_default()
    }

    /// The document that a node had last that was good there.
    pub(super) fn last_good(&self, node: &Name) -> Option<homeostat_fleet::Digest> {
        let records = self.nodes.get(node)?;
        let status = records.status.as_ref();
        let good = status.filter(|it| it.phase == NodePhase::Good).map(|it| it.document);
        // While it tries one, or has gone back from it, that one's fallback is what was good before.
        let before = records.want.as_ref().map(|want| want.fallback);
        good.or(before)
    }
}

impl RolloutRecords {
    pub(super) fn generation(&self) -> u64 {
        self.statement.as_ref().map_or(0, |statement| statement.generation)
    }

    fn take(&mut self, part: &str, entry: &Entry) -> Result<(), homeostat_fleet::Error> {
        match part {
            "statement" => {
                let signed = SignedStatement::read(&entry.value)?;
                self.statement = Some(Statement::parse(&signed.statement)?);
                self.signed = Some(signed);
            }
            "request" => {
                self.request = Some(Request::read(&entry.value)?);
                self.request_modified = Some(entry.modified);
            }
            "state" => {
                self.state = Some(State::read(&entry.value)?);
                self.state_modified = Some(entry.modified);
            }
            _ => {}
        }
        Ok(())
    }
}

/// The word for what a node takes.
pub(super) const fn take_word(take: Take) -> &'static str {
    match take {
        Take::Document => "document",
        Take::Fallback => "fallback",
    }
}
