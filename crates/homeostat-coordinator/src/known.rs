//! What a coordinator knows of its fleet: the records of the store, parsed when they change. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use homeostat_fleet::decide::{Act, Presence, Rollout, Stored, View, decide};
use homeostat_fleet::keys::Keys;
use homeostat_fleet::merkle::Leaf;
use homeostat_fleet::records::{
    Leaves, Record, Request, SignedStatement, State, Statement, Status, Want,
};
use homeostat_fleet::{Error, Name, Time};
use homeostat_store::{Entry, Revision};

/// The records of a fleet that rollouts are decided on.
pub(crate) struct Known {
    keys: Keys,
    rollouts: BTreeMap<Name, Parts>,
    /// Everything but the state and the request of a rollout, which [`Known::next`] puts into it.
    view: View,
}

/// What the store has of one rollout.
#[derive(Default)]
struct Parts {
    statement: Option<Statement>,
    leaves: BTreeMap<String, Vec<Leaf>>,
    request: Option<Request>,
    state: Option<Stored<State>>,
    /// Made of the statement and the leaves, once they fit.
    rollout: Option<Rollout>,
}

/// A record that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub(crate) key: String,
    pub(crate) why: String,
}

impl Known {
    pub(crate) fn new(fleet: &Name, term: Revision, ttl: Duration) -> Self {
        let view = View { term: signed(term), ttl, ..View::default() };
        Known { keys: Keys::new(fleet), rollouts: BTreeMap::new(), view }
    }

    /// Everything that was listed. Who was absent before has been absent since then.
    pub(crate) fn list(&mut self, entries: &BTreeMap<String, Entry>, now: Time) -> Vec<Unreadable> {
        let mut former = std::mem::take(&mut self.view.presence);
        former.retain(|_, presence| matches!(presence, Presence::Absent { .. }));
        self.rollouts.clear();
        self.view.wants.clear();
        self.view.statuses.clear();
        let taken = entries.iter().map(|(key, entry)| self.take(key, Some(entry), now));
        let unreadable = taken.filter_map(Result::err).collect();
        let nodes = self.view.wants.keys().chain(self.view.statuses.keys());
        let absent = nodes.filter(|node| !self.view.presence.contains_key(*node));
        let absent: Vec<_> = absent.cloned().collect();
        for node in absent {
            let since = former.remove(&node).unwrap_or(Presence::Absent { since: now });
            self.view.presence.insert(node, since);
        }
        unreadable
    }

    /// A key has another value, or none any more.
    pub(crate) fn take(
        &mut self,
        key: &str,
        entry: Option<&Entry>,
        now: Time,
    ) -> Result<(), Unreadable> {
        let unreadable = |error: Error| Unreadable { key: key.to_owned(), why: error.to_string() };
        let Some(rest) = key.strip_prefix(self.keys.prefix()) else { return Ok(()) };
        match rest.split_once('/') {
            Some(("rollout", rest)) => self.take_part(rest, entry).map_err(unreadable),
            Some(("node", _)) => {
                let Some(node) = self.keys.node_of(key) else { return Ok(()) };
                let want = stored::<Want>(entry).map_err(unreadable)?;
                set(&mut self.view.wants, node, want);
                Ok(())
            }
            Some(("status", _)) => {
                let Some(node) = self.keys.node_of(key) else { return Ok(()) };
                let status = read::<Status>(entry).map_err(unreadable)?;
                set(&mut self.view.statuses, node, status);
                Ok(())
            }
            Some(("alive", _)) => {
                let Some(node) = self.keys.node_of(key) else { return Ok(()) };
                let absent = Presence::Absent { since: now };
                let presence = entry.map_or(absent, |_| Presence::Alive);
                self.view.presence.insert(node, presence);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take_part(&mut self, rest: &str, entry: Option<&Entry>) -> Result<(), Error> {
        let Some((id, part)) = rest.split_once('/') else { return Ok(()) };
        let Ok(id) = id.parse::<Name>() else { return Ok(()) };
        let parts = self.rollouts.entry(id).or_default();
        match part {
            "statement" => {
                (parts.statement, parts.rollout) = (None, None);
                let signed = read::<SignedStatement>(entry)?;
                // Nodes verify it. Here it says only what is to be done.
                parts.statement =
                    signed.map(|signed| Statement::parse(&signed.statement)).transpose()?;
            }
            "request" => parts.request = read(entry)?,
            "state" => parts.state = stored(entry)?,
            _ if part.starts_with("leaves/") => {
                parts.rollout = None;
                let leaves = read::<Leaves>(entry)?.map(|record| record.leaves);
                set(&mut parts.leaves, part.to_owned(), leaves);
            }
            _ => {}
        }
        Ok(())
    }

    /// The next act of each rollout that is not over, the newest first. `revision` is that of the last whole transaction
    /// which was taken.
    pub(crate) fn next(&mut self, revision: Revision, now: Time) -> Vec<(Name, Act)> {
        self.view.wants_revision = signed(revision);
        let mut acts = Vec::new();
        let mut order: Vec<_> = self.rollouts.iter_mut().collect();
        order.sort_by_key(|(_, parts)| {
            std::cmp::Reverse(parts.statement.as_ref().map_or(0, |it| it.generation))
        });
        for (id, parts) in order {
            if !parts.is_complete() {
                continue;
            }
            let Some(rollout) = &parts.rollout else { continue };
            self.view.state.clone_from(&parts.state);
            self.view.request.clone_from(&parts.request);
            acts.push((id.clone(), decide(rollout, &self.view, now)));
        }
        acts
    }
}

impl Parts {
    /// Whether its statement and all its leaves are there, and nodes are to apply it. Leaves that do not fit are those of
    /// an operator who is still writing, or who made a mistake: nothing is decided on them.
    fn is_complete(&mut self) -> bool {
        let Some(statement) = self.statement.as_ref().filter(|statement| !statement.plan) else {
            return false;
        };
        if self.rollout.is_none() {
            let leaves: Vec<_> = self.leaves.values().flatten().cloned().collect();
            self.rollout = Rollout::new(statement.clone(), leaves).ok();
        }
        self.rollout.is_some()
    }
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => _ = map.insert(key, value),
        None => _ = map.remove(&key),
    }
}

fn read<R: Record>(entry: Option<&Entry>) -> Result<Option<R>, Error> {
    entry.map(|entry| R::read(&entry.value)).transpose()
}

fn stored<R: Record>(entry: Option<&Entry>) -> Result<Option<Stored<R>>, Error> {
    let stored = |entry: &Entry| {
        Ok(Stored { record: R::read(&entry.value)?, revision: signed(entry.modified) })
    };
    entry.map(stored).transpose()
}

pub(crate) fn signed(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}
