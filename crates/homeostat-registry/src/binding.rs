//! What a source is bound with: who binds it, the document, the scope, and what the ledger knows.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use homeostat_document::{Document, Scope as Section};
use homeostat_engine::journal::{Clock, JournalError};
use homeostat_engine::ledger_page::holdings;
use homeostat_engine::{
    Bound, Budget, Condition, Conditions, Config, Guards, HealthBoard, Holdings, Journal, Key,
    LedgerKey, Losses, MissingSections, OnRelease, Ownership, Pages, Progress, Snapshot, Source,
    Strictness, UndoList, WaysOut,
};

use crate::Registration;
use crate::error::Error;
use crate::gate::Gate;
use crate::missing::DocumentPlace;
use crate::scope::Scope;
use crate::shared::{Turn, Turns};

/// Who binds sources, and how their passes behave.
#[derive(Clone)]
pub struct Caller {
    pub owner: String,
    /// Where everything is that must outlive the process.
    pub state_dir: PathBuf,
    /// The other half of the owner's identity.
    pub mark: Mark,
    pub guards: Guards,
    pub ways_out: WaysOut,
    pub on_release: OnRelease,
    pub strictness: Strictness,
    /// During a trial: whether something may be done that cannot be undone.
    pub trial: Option<Losses>,
    /// During a trial: where objects of other owners are recorded that go as a side effect.
    pub undo: Option<Arc<dyn UndoList>>,
    /// During a rollback: what was recorded of our objects that the trial took away.
    pub recorded: Arc<Vec<Recorded>>,
    pub progress: Option<Arc<dyn Progress>>,
    /// Whether people read what is planned, and no loop waits for it.
    pub is_for_people: bool,
    /// None in a process that only reads.
    pub journal: Option<OwnerJournal>,
    /// What sources keep from one binding to the next.
    pub memory: Memory,
    /// Which machine acts on targets that several share.
    pub turns: Turns,
}

/// What was recorded of an object before a step took it away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub source: String,
    pub scope: String,
    pub key: String,
    pub snapshot: Snapshot,
}

/// What the kernel stores with each object of one owner: the number of a routing protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(pub u8);

/// Values that outlive a binding, one of each type. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send>>>>);

impl Memory {
    /// The value of a type, created when it is first asked for. The clones of a value share what they hold.
    #[must_use]
    pub fn of<T: Clone + Default + Send + 'static>(&self) -> T {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(T::default()));
        value.downcast_ref::<T>().cloned().unwrap_or_default()
    }
}

/// The owner's journal of writes that must not be sent twice, opened when it is first needed. Clones share it.
#[derive(Clone)]
pub struct OwnerJournal {
    directory: PathBuf,
    clock: Clock,
    journal: Arc<Mutex<Option<Arc<Journal>>>>,
}

impl OwnerJournal {
    /// The journal in this directory, which may not exist yet.
    #[must_use]
    pub fn new(directory: PathBuf, clock: Clock) -> Self {
        OwnerJournal { directory, clock, journal: Arc::default() }
    }

    pub fn open(&self) -> Result<Arc<Journal>, JournalError> {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(journal) = &*journal {
            return Ok(Arc::clone(journal));
        }
        let OwnerJournal { directory, clock, .. } = self;
        let created = std::fs::create_dir_all(directory);
        let failed =
            |source| JournalError::Open { path: directory.clone(), source: Arc::new(source) };
        created.map_err(failed)?;
        let opened = Journal::open(directory, Arc::clone(clock))?;
        Ok(Arc::clone(journal.insert(Arc::new(opened))))
    }

    /// The clock by which records are dated.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// A source, a scope, and what the document says of it.
#[derive(Clone, Copy)]
pub struct Binding<'a> {
    pub source: &'a Registration,
    pub caller: &'a Caller,
    pub document: &'a Document,
    pub scope: &'a Scope,
    /// None if the document does not name the scope.
    pub section: Option<&'a Section>,
    pub pages: &'a dyn Pages,
    /// What forwarding in the scope waits for.
    pub gate: &'a Gate,
}

impl Binding<'_> {
    /// Where the ledger files the source in this scope.
    #[must_use]
    pub fn ledger_key(&self) -> LedgerKey {
        let key = self.scope.ledger_key(&self.caller.owner, self.source.name());
        match &self.source.remote {
            Some(remote) => key.with_identity(remote.identity),
            None => key,
        }
    }

    /// Who acts on the target of the source.
    #[must_use]
    pub fn turn(&self) -> Turn {
        self.caller.turns.of(self.source.name())
    }

    /// What the ledger has of the source in this scope.
    pub fn holdings<S: Source>(&self) -> Result<Holdings<S::Key, S::Object>, Error> {
        Ok(holdings::<S>(self.pages, &self.ledger_key())?)
    }

    /// What people should know of records that cannot be read.
    #[must_use]
    pub fn notes_of<K: fmt::Display, O>(held: &Holdings<K, O>) -> Vec<String> {
        let known = held.broken.keys.keys().map(ToString::to_string);
        let unkeyed = held.broken.unkeyed.iter().map(|one| one.stored.clone());
        let note = |key| format!("The ledger's record of `{key}` cannot be read");
        known.chain(unkeyed).map(note).collect()
    }

    /// What was recorded of objects of the source in this scope that are made again, by their keys.
    pub fn recorded(&self) -> impl Iterator<Item = (&str, &Snapshot)> {
        let LedgerKey { source, scope, .. } = self.ledger_key();
        let all = self.caller.recorded.iter();
        let here = all.filter(move |one| one.source == source && one.scope == scope);
        here.map(|one| (one.key.as_str(), &one.snapshot))
    }

    /// Whether the document writes a section for this scope.
    #[must_use]
    pub fn states(&self, name: &str) -> bool {
        self.section.is_some_and(|section| section.states(name))
    }

    /// The sections that are missing here, by a function that is given where they would be written. None are,
    /// if the document writes an empty `[namespaces]` and the scope is one of those that it had named.
    pub fn missing<K>(
        &self,
        sections: impl FnOnce(DocumentPlace) -> MissingSections<K>,
    ) -> MissingSections<K> {
        match DocumentPlace::of(self) {
            DocumentPlace::Unwritten(_) if self.document.states_no_namespaces() => {
                MissingSections::default()
            }
            place => sections(place),
        }
    }

    /// The conditions of keys, by what checks find in this scope.
    #[must_use]
    pub fn conditions<K: Key>(&self, keys: BTreeMap<K, Condition>) -> Conditions<K> {
        Conditions::new(keys, self.caller.memory.of::<HealthBoard>(), &*self.scope.name)
    }

    /// The source with its desired state; passes behave as the document and the caller say.
    pub fn bound<S: Source<Desired: Default>>(
        &self,
        source: S,
        desired: S::Desired,
        ownership: Ownership,
        missing: MissingSections<S::Key>,
    ) -> Box<Bound<S>> {
        let settings = self.document.settings.source(self.source.name());
        let percent = settings.delete_budget.as_ref().map(|percent| percent.value.get());
        let budget = percent.map_or_else(Budget::default, Budget::percent);
        let Caller { guards, ways_out, strictness, on_release, trial, undo, progress, .. } =
            self.caller;
        let mut config = Config::default();
        config.guards = *guards;
        config.guards.budget = budget;
        config.guards.losses = trial.unwrap_or_default();
        config.parks = trial.is_some();
        config.undo.clone_from(undo);
        config.missing = missing;
        config.strictness = *strictness;
        config.on_release = *on_release;
        config.ways_out = *ways_out;
        config.progress.clone_from(progress);
        let bound = Bound::new(source, desired, ownership, self.ledger_key());
        Box::new(bound.with_config(config).with_nothing(S::Desired::default()))
    }
}
