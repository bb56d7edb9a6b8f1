//! The desired state: tables as `nft` understood them, in key order.
//!
//! Rules can mean links by number. Which number a link has is known only where and when a pass looks, so
//! a text that asks for links is compiled again when they are others than they were.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use homeostat_core::desired::find_near;
use homeostat_core::{Agreement, Desired, Failure, Fingerprint, Retry, Slot};

use crate::compile::CompileInput;
use crate::key::Key;
use crate::links::Link;
use crate::model::Table;
use crate::object::Object;
use crate::program::run_on_thread;

/// The tables that shall be.
#[derive(Debug, Default)]
pub struct DesiredState {
    compiled: RwLock<Arc<Compiled>>,
    /// How it is compiled again; nothing if links do not matter to it.
    input: Option<Arc<CompileInput>>,
    /// One for each table, taken before links change what it is compiled to: the engine distinguishes drift from a
    /// changed text by them, and a link that got another number changes no text.
    prints: OnceLock<Vec<u64>>,
    may_adopt: bool,
}

/// A text as it was understood at one moment.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    pub(crate) tables: Vec<(Key, Object)>,
    pub(crate) notes: Vec<String>,
    /// The links that it was understood by.
    pub(crate) links: Vec<Link>,
    /// The names of all links that it names, also by what it includes, present or not.
    pub(crate) named_links: BTreeSet<String>,
    /// Tables that name a link that is not there, with that link.
    pub(crate) waiting: BTreeMap<Key, String>,
}

impl Compiled {
    pub(crate) fn new(tables: impl IntoIterator<Item = Table>) -> Self {
        let object = |table: Table| (table.key.clone(), Object::desired(Arc::new(table)));
        let mut tables: Vec<_> = tables.into_iter().map(object).collect();
        tables.sort_by(|a, b| a.0.cmp(&b.0));
        Compiled { tables, ..Compiled::default() }
    }

    pub(crate) fn table(&self, slot: Slot) -> Option<&Arc<Table>> {
        self.tables.get(slot.index()).and_then(|(_, object)| object.table.as_ref())
    }
}

impl DesiredState {
    /// No tables.
    #[must_use]
    pub fn nothing() -> Self {
        DesiredState::default()
    }

    pub(crate) fn new(compiled: Arc<Compiled>, input: Option<CompileInput>) -> Self {
        let (compiled, input) = (RwLock::new(compiled), input.map(Arc::new));
        DesiredState { compiled, input, ..DesiredState::default() }
    }

    /// Permits taking these tables over from any owner.
    #[must_use]
    pub fn adopting(mut self) -> Self {
        self.may_adopt = true;
        self
    }

    /// The names of the tables.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        self.compiled().tables.iter().map(|(key, _)| key.clone()).collect()
    }

    /// How it is understood at present.
    pub(crate) fn compiled(&self) -> Arc<Compiled> {
        Arc::clone(&self.compiled.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn prints(&self) -> &[u64] {
        self.prints.get_or_init(|| {
            let compiled = self.compiled();
            let objects = compiled.tables.iter().map(|(_, object)| object.digest());
            objects.map(|print| Fingerprint::of_text(&print)).collect()
        })
    }

    /// What matters to it of links, if anything does.
    pub(crate) fn input(&self) -> Option<&CompileInput> {
        self.input.as_deref()
    }

    /// Whether it may mean a link of this name.
    pub(crate) fn may_name(&self, link: &str) -> bool {
        let input = self.input.as_ref();
        input.is_some_and(|input| input.may_name(link, &self.compiled().named_links))
    }

    /// The links that it may mean.
    pub(crate) fn relevant(&self, links: &[Link]) -> Vec<Link> {
        let input = self.input.as_ref();
        input.map_or_else(Vec::new, |input| input.relevant(links, &self.compiled().named_links))
    }

    /// Understands it by the links that are there now; nothing is done if they are the same.
    pub(crate) async fn resolve(&self, links: &[Link]) -> Result<(), Failure> {
        let (former, Some(input)) = (self.compiled(), &self.input) else { return Ok(()) };
        if former.links == self.relevant(links) {
            return Ok(());
        }
        let (input, links) = (Arc::clone(input), links.to_vec());
        let compiled = run_on_thread(move || input.compile(&links, &former.named_links)).await;
        let compiled = compiled.map_err(|error| Failure::from_error(&error, Retry::Soon))?;
        let compiled = compiled.map_err(|error| error.failure())?;
        self.prints();
        // Set by who looks: what it means never changes under a pass that did not wait for it.
        *self.compiled.write().unwrap_or_else(PoisonError::into_inner) = compiled;
        Ok(())
    }
}

impl Desired for DesiredState {
    type Key = Key;
    type Object = Object;

    fn len(&self) -> usize {
        self.compiled().tables.len()
    }

    fn slot(&self, key: &Key, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.compiled().tables, near, |desired| desired.0.cmp(key))
    }

    fn key(&self, slot: Slot) -> Key {
        self.compiled().tables[slot.index()].0.clone()
    }

    fn object(&self, slot: Slot) -> Object {
        self.compiled().tables[slot.index()].1.clone()
    }

    fn compare(&self, slot: Slot, seen: &Object) -> Agreement {
        match (self.compiled().table(slot), &seen.table) {
            // The kernel's own words have shown it.
            (Some(desired), Some(table)) if Arc::ptr_eq(desired, table) => Agreement::Agrees,
            (Some(desired), Some(_)) => Agreement::when(seen.ops(desired).is_empty()),
            _ => Agreement::when(self.object(slot) == *seen),
        }
    }

    /// A table that creates its chains again has those of the same hooks created again that come behind it.
    fn dependants(&self, key: &Key, emit: &mut dyn FnMut(Key)) {
        let compiled = self.compiled();
        let table = self.slot(key, None).and_then(|slot| compiled.table(slot));
        let Some(table) = table else { return };
        for (key, other) in &compiled.tables {
            let is_behind =
                |other: &Arc<Table>| other.handle > table.handle && table.shares_hooks(other);
            if other.table.as_ref().is_some_and(is_behind) {
                emit(key.clone());
            }
        }
    }

    fn may_adopt(&self, _slot: Slot) -> bool {
        self.may_adopt
    }

    /// Tables are written together, so that a change of one is a change of all.
    fn is_same(&self, _slot: Slot, other: &Self, _there: Slot) -> bool {
        self.is_same_desired(other)
    }

    /// The compiler hands out the same tables for the same text and links. Tables are not compared: what
    /// counts as the same in the kernel may be less than what the text says.
    fn is_same_desired(&self, other: &Self) -> bool {
        let (compiled, others) = (self.compiled(), other.compiled());
        let is_nothing = |desired: &Self, compiled: &Compiled| {
            desired.input.is_none() && compiled.tables.is_empty() && compiled.waiting.is_empty()
        };
        let hash = |desired: &Self| desired.input.as_ref().map(|input| input.hash);
        let is_same = Arc::ptr_eq(&compiled, &others)
            || is_nothing(self, &compiled) && is_nothing(other, &others);
        is_same && hash(self) == hash(other) && self.may_adopt == other.may_adopt
    }

    /// The kernel gives each table a handle, so that one of the same name that was created later is another. One
    /// with our mark is ours however often it was created.
    fn identity(&self, seen: &Object) -> Option<String> {
        if seen.is_marked {
            return None;
        }
        seen.table.as_ref().map(|table| table.handle.0.to_string())
    }

    /// Without the prints of elements, which are not for people.
    fn shown(&self, object: &Object) -> serde_json::Value {
        format!("content {}", object.digest()).into()
    }

    fn object_print(&self, slot: Slot) -> u64 {
        self.prints().get(slot.index()).copied().unwrap_or_default()
    }
}
