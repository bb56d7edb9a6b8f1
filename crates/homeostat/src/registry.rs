//! The only list of sources, and what the binary must know of each.

use std::time::Duration;

use anyhow::Result;
use homeostat_document::{Document, Scope as Section, Settings, SourceSettings};
use homeostat_engine::{Budget, Config, Guards, Key, Pages, Place, Planner, Section as Stated};

use crate::context::Context;
use crate::failure::{Misfit, Misfits};
use crate::scope::Scope;
use crate::sources::{guests, knobs, namespaces, nft, rtnl};

/// A bound source, if it has business in the scope.
pub(crate) type Bind = Result<Option<Box<dyn Planner>>>;

/// What the binary must know of a source. Adding one is one line in [`SOURCES`].
pub(crate) struct Registered {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its settings in a document.
    pub(crate) settings: fn(&Settings) -> &SourceSettings,
    /// Checks the source's part of a document, without looking at the machine.
    pub(crate) check: fn(&Section, Lists, &mut Misfits<'_>),
    /// Binds the source's part to a scope; nothing if the source has no business there.
    pub(crate) bind: fn(&Binding<'_>) -> Bind,
    /// What waits for a namespace that is not there.
    pub(crate) wait: fn(&Document, &Section) -> Vec<String>,
    /// What is different about a target on another machine.
    pub(crate) remote: Option<Remote>,
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

/// Whether long lists beside the document are checked, too: whoever binds it reads them anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lists {
    Read,
    Skip,
}

/// The source of namespaces: driven before the scopes inside them can be opened.
pub(crate) const FIRST: Registered = namespaces::REGISTERED;

/// Every other source, in the order in which they are driven.
pub(crate) const SOURCES: &[Registered] =
    &[nft::REGISTERED, rtnl::REGISTERED, knobs::REGISTERED, guests::REGISTERED];

/// A source by its name.
pub(crate) fn known(name: &str) -> &'static Registered {
    SOURCES.iter().find(|source| source.name == name).unwrap_or(&FIRST)
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
    pub(crate) fn place(&self, source: &str) -> Place {
        let place = self.scope.place(&self.context.owner, source);
        match &known(source).remote {
            Some(remote) => Place { identity: remote.identity.to_owned(), ..place },
            None => place,
        }
    }

    /// How passes of a source behave, and whether the document says anything of it.
    pub(crate) fn config<K: Key>(
        &self,
        settings: fn(&Settings) -> &SourceSettings,
        section: Stated,
    ) -> Config<K> {
        let declared = settings(&self.document.settings).delete_budget.as_ref();
        let percent = declared.map(|percent| percent.value.get());
        let budget = percent.map_or_else(Budget::default, |percent| Budget { percent });
        let context = self.context;
        Config {
            guards: Guards { section, budget, ..context.guards },
            strictness: context.strictness,
            on_release: context.on_release,
            progress: context.progress.clone(),
            ..Config::default()
        }
    }
}

/// Checks every source's part of a document.
pub(crate) fn resolve(document: &Document, lists: Lists) -> Result<(), Misfit> {
    let mut misfits = Misfits::in_document(document);
    for (_, section) in document.scopes() {
        for source in SOURCES {
            (source.check)(section, lists, &mut misfits);
        }
    }
    misfits.into_result()
}
