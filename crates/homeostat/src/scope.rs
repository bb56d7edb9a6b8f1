//! The scopes of a document on this machine: which namespace each one is, and its lock.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_document::HOST;
use homeostat_engine::{NetnsLock, Place as LedgerPlace, ScopeLock};
use homeostat_netns::{Error, Identity, Netns, Place};

use crate::context::{Context, Top};

/// A scope that is there.
#[derive(Debug)]
pub(crate) struct Scope {
    /// Its name in plans and in the ledger.
    pub(crate) name: String,
    /// Its network namespace.
    pub(crate) netns: Arc<Netns>,
    /// What tells it from a former one of the same name.
    pub(crate) identity: String,
    /// Whether host-wide things belong to it.
    pub(crate) reach: Reach,
}

/// What belongs to a scope beside its network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The whole host.
    Host,
    /// Nothing: it is a namespace among others.
    Namespace,
    /// Nothing: it is a sandbox.
    Sandbox,
}

impl Scope {
    /// The scope that the top level of the document speaks of.
    pub(crate) fn top(context: &Context) -> Result<Self> {
        match &context.top {
            Top::Host => Self::new(HOST, Netns::current()?, Reach::Host),
            Top::Sandbox => Self::new("sandbox", Netns::current()?, Reach::Sandbox),
            Top::Netns(place) => {
                Self::new(&place.to_string(), Netns::open(place)?, Reach::Namespace)
            }
        }
    }

    /// A namespace by name, if it is there.
    pub(crate) fn named(name: &str) -> Result<Option<Self>> {
        let place: Place = name.parse()?;
        match Netns::open(&place) {
            Ok(netns) => Self::new(name, netns, Reach::Namespace).map(Some),
            Err(
                Error::NoSuchName { .. } | Error::NoSuchPath { .. } | Error::NoSuchProcess { .. },
            ) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot open the namespace `{name}`")),
        }
    }

    fn new(name: &str, netns: Netns, reach: Reach) -> Result<Self> {
        let identity = Identity::of(&netns)?.to_string();
        Ok(Scope { name: name.to_owned(), netns: Arc::new(netns), identity, reach })
    }

    /// Where the ledger files a source in this scope.
    pub(crate) fn place(&self, owner: &str, source: &str) -> LedgerPlace {
        LedgerPlace {
            owner: owner.to_owned(),
            source: source.to_owned(),
            scope: self.name.clone(),
            identity: self.identity.clone(),
        }
    }

    /// Becomes the only writer of `owner` in this scope.
    pub(crate) fn lock(&self, owner: &str) -> Result<ScopeLock> {
        let locked = self.netns.run(|| NetnsLock::take(owner))?;
        locked.with_context(|| format!("cannot write in `{}` as `{owner}`", self.name))
    }
}
