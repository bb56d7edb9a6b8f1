//! The only list of sources, and what the binary must know of each. How each is bound to a scope is in the
//! file of its name.

pub(crate) mod guests;
mod knobs;
mod namespaces;
mod nft;
mod rtnl;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use homeostat_document::{Checker, Document, DocumentReader, Scope as Section, SourceSections};
use homeostat_engine::{Budget, Config, Guards, Key, LedgerKey, MissingSections, Pages, Planner};
pub(crate) use homeostat_knobs::Gate;
pub(crate) use homeostat_namespaces::section::is_made;
pub(crate) use homeostat_rtnl::section::Lists;
pub(crate) use namespaces::{going, refuse as refuse_namespaces};
use rustix::thread::CapabilitySet;
use serde_json::{Map, Value};

use crate::context::Context;
use crate::failure::Misfit;
use crate::missing::Home;
use crate::scope::Scope;

/// A bound source, if it has business in the scope.
pub(crate) type Bind = Result<Option<Box<dyn Planner>>>;

/// What the binary must know of a source. Adding one is one line in [`SOURCES`].
pub(crate) struct Registered {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it adds to documents.
    pub(crate) sections: SourceSections,
    /// Checks the source's part of a document, without looking at the machine.
    pub(crate) resolve: fn(&Document, &Section, Lists, &mut Checker),
    /// Binds the source's part to a scope; nothing if the source has no business there.
    pub(crate) bind: fn(&Binding<'_>) -> Bind,
    /// What waits for a namespace that is not there.
    pub(crate) wait: fn(&Document, &Section) -> Vec<String>,
    /// The other namespaces that a scope refers to, by name.
    pub(crate) namespaces: fn(&Section) -> Vec<String>,
    /// The files beside the document that a scope names.
    pub(crate) files: fn(&Document, &Section, &mut NamedFiles),
    /// The capabilities that a scope needs beside those for every network.
    pub(crate) capabilities: fn(&Section) -> CapabilitySet,
    /// What is observed in a scope, as sections of a document.
    pub(crate) show: fn(&Showing<'_>) -> Result<Shown>,
    /// When a daemon starts it.
    pub(crate) start: Start,
    /// What is different about a target on another machine.
    pub(crate) remote: Option<Remote>,
}

/// Files that a document names, and directories in which more of them may come.
#[derive(Default)]
pub(crate) struct NamedFiles {
    pub(crate) files: BTreeSet<PathBuf>,
    pub(crate) directories: BTreeSet<PathBuf>,
}

/// What is to be shown.
pub(crate) struct Showing<'a> {
    pub(crate) context: &'a Context,
    pub(crate) scope: &'a Scope,
    pub(crate) pages: &'a dyn Pages,
    /// Everything, not only what people set most.
    pub(crate) is_full: bool,
}

/// What is observed.
#[derive(Default)]
pub(crate) struct Shown {
    /// By the names of the document.
    pub(crate) sections: Map<String, Value>,
    /// What people should know of what is not shown.
    pub(crate) notes: Vec<String>,
}

/// When a daemon starts a source. No host forwards before its firewall is there, and links that are made
/// take over what `default` says. The knobs of those links come after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Start {
    /// Before all others, which wait for its first pass; forwarding waits until it has converged.
    Firewall,
    /// Before links are made; its first pass is waited for.
    BeforeLinks,
    /// With the rest.
    Usual,
}

/// A target that is not on this machine.
pub(crate) struct Remote {
    /// The section that says where it is.
    pub(crate) section: &'static str,
    /// What its records are bound to: it outlives every boot of this machine.
    pub(crate) identity: &'static str,
    /// How often everything there is looked at.
    pub(crate) resync: Duration,
}

/// The source of namespaces: driven before the scopes inside them can be opened.
pub(crate) const FIRST: Registered = namespaces::REGISTERED;

/// Every other source, in the order in which they are driven.
pub(crate) const SOURCES: &[Registered] =
    &[nft::REGISTERED, rtnl::REGISTERED, knobs::REGISTERED, guests::REGISTERED];

/// Reads documents with the sections of all sources.
pub(crate) const READER: DocumentReader = DocumentReader::new(&SECTIONS);

const SECTIONS: [SourceSections; SOURCES.len() + 1] = {
    let mut all = [FIRST.sections; SOURCES.len() + 1];
    let mut next = 0;
    while next < SOURCES.len() {
        all[next + 1] = SOURCES[next].sections;
        next += 1;
    }
    all
};

/// A gate that forwarding waits for, until the firewall of its scope has converged.
pub(crate) fn new_gate() -> Gate {
    Gate::waiting_on("nft's first pass")
}

/// A source by its name.
pub(crate) fn known(name: &str) -> &'static Registered {
    SOURCES.iter().find(|source| source.name == name).unwrap_or(&FIRST)
}

/// Every source.
pub(crate) fn all() -> impl Iterator<Item = &'static Registered> {
    std::iter::once(&FIRST).chain(SOURCES)
}

/// A scope, and what the document says of it.
pub(crate) struct Binding<'a> {
    pub(crate) context: &'a Context,
    pub(crate) document: &'a Document,
    pub(crate) scope: &'a Scope,
    /// Nothing, if the scope has left the document.
    pub(crate) section: Option<&'a Section>,
    pub(crate) pages: &'a dyn Pages,
}

impl Binding<'_> {
    /// Where the ledger files a source in this scope.
    pub(crate) fn place(&self, source: &str) -> LedgerKey {
        let place = self.scope.place(&self.context.owner, source);
        match &known(source).remote {
            Some(remote) => LedgerKey { identity: remote.identity.to_owned(), ..place },
            None => place,
        }
    }

    /// The sections that are missing here, by a function that is given where they would stand. None are,
    /// if the document writes an empty `[namespaces]` and the scope is one of those that it had named.
    pub(crate) fn missing<K>(
        &self,
        sections: impl FnOnce(Home) -> MissingSections<K>,
    ) -> MissingSections<K> {
        match Home::of(self) {
            Home::Unwritten(_) if self.document.states_no_namespaces() => {
                MissingSections::default()
            }
            home => sections(home),
        }
    }

    /// Whether the document writes a section for this scope.
    pub(crate) fn states(&self, name: &str) -> bool {
        self.section.is_some_and(|section| section.states(name))
    }

    /// How passes of a source behave, and which of its sections are missing.
    pub(crate) fn config<K: Key>(&self, source: &str, missing: MissingSections<K>) -> Config<K> {
        let declared = self.document.settings.source(source).delete_budget;
        let percent = declared.map(|percent| percent.value.get());
        let budget = percent.map_or_else(Budget::default, |percent| Budget { percent });
        let context = self.context;
        Config {
            guards: Guards { budget, ..context.guards },
            missing,
            strictness: context.strictness,
            on_release: context.on_release,
            progress: context.progress.clone(),
            ..Config::default()
        }
    }
}

/// Checks every source's part of a document.
pub(crate) fn resolve(document: &Document, lists: Lists) -> Result<(), Misfit> {
    let mut checker = Checker::new(document.files.clone());
    for (_, section) in document.scopes() {
        for source in all() {
            (source.resolve)(document, section, lists, &mut checker);
        }
    }
    Ok(checker.into_result()?)
}

#[cfg(test)]
mod tests;
