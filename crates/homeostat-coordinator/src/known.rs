//! What a coordinator knows of its fleet: the records of the store, parsed when they change. Pure.
//!
//! It is kept for as long as the coordinator leads: who was absent before a list has been absent since then. Nodes are looked
//! at only while a rollout needs them, and leaves are listed only for such a rollout.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use homeostat_fleet::decide::{Act, Presence, Put, Rollout, Stored, View, cannot_follow, decide};
use homeostat_fleet::keys::Keys;
use homeostat_fleet::records::{
    Leaves, Phase, Record, Request, SignedStatement, State, Statement, Status, Verb, Want,
};
use homeostat_fleet::{Error, Name, Time};
use homeostat_store::{Entry, Revision};

/// Whether a statement is signed as it must be; if not, why.
pub(crate) type Verify = Arc<dyn Fn(&SignedStatement) -> Result<(), String> + Send + Sync>;

/// The records of a fleet that rollouts are decided on.
pub(crate) struct Known {
    keys: Keys,
    verify: Option<Verify>,
    rollouts: BTreeMap<Name, Parts>,
    /// Everything but the state and the request of a rollout, which [`Known::next`] puts into it.
    view: View,
}

/// A part of the store that is listed and watched as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Rollouts,
    Wants,
    Statuses,
    Presence,
}

impl Part {
    /// Those that tell about nodes. Wants come first: they must not be older than the states that are listed before them.
    pub(crate) const NODES: [Part; 3] = [Part::Wants, Part::Statuses, Part::Presence];

    pub(crate) fn prefix(self, keys: &Keys) -> String {
        keys.all(match self {
            Part::Rollouts => "rollout",
            Part::Wants => "node",
            Part::Statuses => "status",
            Part::Presence => "alive",
        })
    }
}

/// What the store has of one rollout.
#[derive(Default)]
struct Parts {
    statement: Option<Stated>,
    request: Option<Request>,
    state: StoredState,
    /// Made of the statement and its leaves, once they were listed; or why that cannot be.
    rollout: Option<Result<Rollout, String>>,
}

struct Stated {
    statement: Statement,
    modified: Revision,
    /// Why it must not be followed.
    refused: Option<String>,
}

#[derive(Default)]
enum StoredState {
    #[default]
    Absent,
    Present(Stored<State>),
    /// It cannot be understood, so nothing is done.
    Unreadable,
}

/// A record that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub(crate) key: String,
    pub(crate) why: String,
}

impl Known {
    pub(crate) fn new(fleet: &Name, term: Revision, ttl: Duration, verify: Option<Verify>) -> Self {
        let view = View { term: signed(term), ttl, ..View::default() };
        Known { keys: Keys::new(fleet), verify, rollouts: BTreeMap::new(), view }
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Everything that was listed of a part, at this revision.
    pub(crate) fn list(
        &mut self,
        part: Part,
        entries: &BTreeMap<String, Entry>,
        revision: Revision,
        now: Time,
    ) -> Vec<Unreadable> {
        let mut former = BTreeMap::new();
        match part {
            Part::Rollouts => {
                let ids = entries.keys().filter_map(|key| self.rollout_of(key));
                let ids: BTreeSet<_> = ids.collect();
                self.rollouts.retain(|id, _| ids.contains(id));
                for parts in self.rollouts.values_mut() {
                    (parts.request, parts.state) = (None, StoredState::Absent);
                    // What could not be used may have been mended.
                    parts.rollout = parts.rollout.take().filter(Result::is_ok);
                }
            }
            Part::Wants => {
                self.view.wants.clear();
                self.view.unreadable.clear();
                self.view.wants_revision = self.view.wants_revision.max(signed(revision));
            }
            Part::Statuses => self.view.statuses.clear(),
            Part::Presence => former = std::mem::take(&mut self.view.presence),
        }
        let taken = entries.iter().map(|(key, entry)| {
            let result = self.take(key, entry.modified, Some(entry), now);
            result.err()
        });
        let unreadable = taken.flatten().collect();
        if part == Part::Presence {
            self.remember_absent(&former, now);
        }
        unreadable
    }

    /// Who was absent before has been absent since then.
    fn remember_absent(&mut self, former: &BTreeMap<Name, Presence>, now: Time) {
        let View { wants, statuses, presence, .. } = &mut self.view;
        for node in wants.keys().chain(statuses.keys()) {
            presence.entry(node.clone()).or_insert_with(|| match former.get(node) {
                Some(absent @ Presence::Absent { .. }) => *absent,
                _ => Presence::Absent { since: now },
            });
        }
    }

    /// Nodes are not looked at any more: what was known of them would be old.
    pub(crate) fn forget_nodes(&mut self) {
        self.view.wants.clear();
        self.view.unreadable.clear();
        self.view.statuses.clear();
        self.view.presence.clear();
    }

    /// A key has another value since a revision, or none any more.
    pub(crate) fn take(
        &mut self,
        key: &str,
        revision: Revision,
        entry: Option<&Entry>,
        now: Time,
    ) -> Result<(), Unreadable> {
        let unreadable = |error: Error| Unreadable { key: key.to_owned(), why: error.to_string() };
        let Some(rest) = key.strip_prefix(self.keys.prefix()) else { return Ok(()) };
        match rest.split_once('/') {
            Some(("rollout", rest)) => {
                let Some((id, part)) = rest.split_once('/') else { return Ok(()) };
                let Ok(id) = id.parse::<Name>() else { return Ok(()) };
                let parts = self.rollouts.entry(id).or_default();
                parts.take(part, revision, entry, self.verify.as_ref()).map_err(unreadable)
            }
            Some(("node", _)) => {
                let Some(node) = self.keys.node_of(key) else { return Ok(()) };
                let known = self.view.wants.get(&node).map_or(0, |want| want.revision);
                // The watch may be behind what was written from here.
                if known > signed(revision) {
                    return Ok(());
                }
                let want = stored::<Want>(entry);
                let why = want.as_ref().err().map(ToString::to_string);
                set(&mut self.view.unreadable, node.clone(), why);
                set(&mut self.view.wants, node, want.as_ref().ok().cloned().flatten());
                want.map(drop).map_err(unreadable)
            }
            Some(("status", _)) => {
                let Some(node) = self.keys.node_of(key) else { return Ok(()) };
                let status = read::<Status>(entry);
                set(&mut self.view.statuses, node, status.as_ref().ok().cloned().flatten());
                status.map(drop).map_err(unreadable)
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

    /// What an act has written. It counts at once: the watch tells it later.
    pub(crate) fn wrote(&mut self, puts: &[Put], revision: Revision, now: Time) {
        for Put { key, value } in puts {
            let entry = Entry::new(value.clone(), revision, revision);
            // It was written from here, so it can be read.
            let _ = self.take(key, revision, Some(&entry), now);
        }
        self.view.wants_revision = self.view.wants_revision.max(signed(revision));
    }

    fn rollout_of(&self, key: &str) -> Option<Name> {
        let rest = key.strip_prefix(&Part::Rollouts.prefix(&self.keys))?;
        rest.split_once('/')?.0.parse().ok()
    }

    /// Whether any rollout needs to know about nodes.
    pub(crate) fn needs_nodes(&self) -> bool {
        self.rollouts.values().any(Parts::is_open)
    }

    /// The rollouts whose leaves have to be listed.
    pub(crate) fn lacks_leaves(&self) -> Vec<Name> {
        let lacks = |(_, parts): &(&Name, &Parts)| parts.is_open() && parts.rollout.is_none();
        self.rollouts.iter().filter(lacks).map(|(id, _)| id.clone()).collect()
    }

    /// The leaves of a rollout, as they were listed.
    pub(crate) fn take_leaves(&mut self, id: &Name, entries: &BTreeMap<String, Entry>) {
        let Some(parts) = self.rollouts.get_mut(id) else { return };
        let Some(Stated { statement, refused: None, .. }) = &parts.statement else { return };
        let mut leaves = Vec::new();
        let read = entries.values().try_for_each(|entry| {
            leaves.extend(Leaves::read(&entry.value)?.leaves);
            Ok::<_, Error>(())
        });
        let rollout = read.and_then(|()| Rollout::new(statement.clone(), leaves));
        parts.rollout = Some(rollout.map_err(|error| error.to_string()));
    }

    /// The next act of each rollout that is not over, the newest first.
    pub(crate) fn next(&mut self, now: Time) -> Vec<(Name, Act)> {
        let mut acts = Vec::new();
        let mut order: Vec<_> = self.rollouts.iter().filter(|(_, parts)| parts.is_open()).collect();
        order.sort_by_key(|(_, parts)| {
            std::cmp::Reverse(parts.statement.as_ref().map_or(0, |it| it.statement.generation))
        });
        for (id, parts) in order {
            let Some(Stated { statement, refused, .. }) = &parts.statement else { continue };
            self.view.state = match &parts.state {
                StoredState::Absent => None,
                StoredState::Present(state) => Some(state.clone()),
                StoredState::Unreadable => continue,
            };
            self.view.request.clone_from(&parts.request);
            let act = match (refused, &parts.rollout) {
                (Some(why), _) | (None, Some(Err(why))) => {
                    cannot_follow(statement, &self.view, why)
                }
                (None, Some(Ok(rollout))) => decide(rollout, &self.view, now),
                (None, None) => continue,
            };
            acts.push((id.clone(), act));
        }
        acts
    }
}

impl Parts {
    /// Whether there may be something to do. What is done is looked at again only if it is to be undone.
    fn is_open(&self) -> bool {
        let Some(Stated { statement, .. }) = &self.statement else { return false };
        let is_abort = || self.request.as_ref().is_some_and(|it| it.verb == Verb::Abort);
        !statement.plan
            && match &self.state {
                StoredState::Absent => true,
                StoredState::Unreadable => false,
                StoredState::Present(state) => match state.record.phase {
                    Phase::Running | Phase::Paused | Phase::Stopping => true,
                    Phase::Done => is_abort(),
                    Phase::Stopped | Phase::Superseded => false,
                },
            }
    }

    fn take(
        &mut self,
        part: &str,
        revision: Revision,
        entry: Option<&Entry>,
        verify: Option<&Verify>,
    ) -> Result<(), Error> {
        match part {
            "statement" => {
                let former = self.statement.take();
                let Some(entry) = entry else {
                    self.rollout = None;
                    return Ok(());
                };
                if former.is_none_or(|former| former.modified != entry.modified) {
                    self.rollout = None;
                }
                let signed = SignedStatement::read(&entry.value)?;
                let statement = Statement::parse(&signed.statement)?;
                let refused = verify.and_then(|verify| verify(&signed).err());
                self.statement = Some(Stated { statement, modified: entry.modified, refused });
            }
            "request" => self.request = read(entry)?,
            "state" => {
                if let StoredState::Present(known) = &self.state
                    && known.revision > signed(revision)
                {
                    return Ok(());
                }
                let state = stored(entry);
                self.state = match &state {
                    Ok(None) => StoredState::Absent,
                    Ok(Some(state)) => StoredState::Present(state.clone()),
                    Err(_) => StoredState::Unreadable,
                };
                state?;
            }
            _ => {}
        }
        Ok(())
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
