//! The scopes of a document on this machine: which namespace each one is, and its lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, anyhow};
use homeostat_document::{HOST, NamespaceName};
use homeostat_engine::{LedgerKey, NetnsLock, ScopeLock};
use homeostat_netns::{Error, Identity, Name, Netns, Place};

use crate::context::{Context, Top};
use crate::registry::{Gate, new_gate};

/// What the top level speaks of in a sandbox.
const SANDBOX: &str = "sandbox";

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
    /// What forwarding in it waits for.
    pub(crate) gate: Gate,
}

/// What is found where a scope is named.
pub(crate) enum Lookup {
    Found(Scope),
    Absent,
    /// Something else than a network namespace is there.
    NotNetns {
        error: Error,
        help: String,
    },
}

impl Lookup {
    fn found(self) -> Option<Scope> {
        match self {
            Lookup::Found(scope) => Some(scope),
            Lookup::Absent | Lookup::NotNetns { .. } => None,
        }
    }
}

/// The gates of scopes, each the same for as long as its namespace is there: loops that go on keep theirs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gates(Arc<Mutex<BTreeMap<String, Gate>>>);

impl Gates {
    /// The gate of the namespace with this identity.
    pub(crate) fn of(&self, identity: &str) -> Gate {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates.entry(identity.to_owned()).or_insert_with(new_gate).clone()
    }

    /// Forgets those of other namespaces.
    pub(crate) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates.retain(|identity, _| is_there(identity));
    }
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
            Top::Sandbox => Self::new(SANDBOX, Netns::current()?, Reach::Sandbox),
            Top::Netns(place) => Self::new(&called(place)?, Netns::open(place)?, Reach::Namespace),
        }
    }

    /// A namespace that the document names. A name of digits is a name.
    pub(crate) fn named(name: &NamespaceName) -> Result<Lookup> {
        let place = named(name)?;
        let scope = Self::at(&called(&place)?, &place);
        scope.with_context(|| format!("cannot open the namespace `{name}`"))
    }

    /// The namespace that a link refers to, if it is there; `host` is the one that we run in.
    pub(crate) fn referred(name: &NamespaceName) -> Result<Option<Arc<Netns>>> {
        if name.as_str() == HOST {
            return Ok(Some(Arc::new(Netns::current()?)));
        }
        Ok(Self::named(name)?.found().map(|scope| scope.netns))
    }

    /// A scope by its name in the ledger, if it is there.
    pub(crate) fn recorded(name: &str) -> Result<Option<Self>> {
        let found = recorded(name).and_then(|place| Self::at(name, &place));
        let found = found.map(Lookup::found);
        found.with_context(|| format!("cannot look into `{name}`, where we own something"))
    }

    fn at(name: &str, place: &Place) -> Result<Lookup> {
        match Netns::open(place) {
            Ok(netns) => Self::new(name, netns, Reach::Namespace).map(Lookup::Found),
            Err(
                Error::NoSuchName { .. } | Error::NoSuchPath { .. } | Error::NoSuchProcess { .. },
            ) => Ok(Lookup::Absent),
            Err(error @ Error::NotNetns { .. }) => {
                let help = error.help().unwrap_or_default();
                Ok(Lookup::NotNetns { error, help })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn new(name: &str, netns: Netns, reach: Reach) -> Result<Self> {
        let identity = Identity::of(&netns)?.to_string();
        let (netns, gate) = (Arc::new(netns), new_gate());
        Ok(Scope { name: name.to_owned(), netns, identity, reach, gate })
    }

    /// Where the ledger files a source in this scope.
    pub(crate) fn place(&self, owner: &str, source: &str) -> LedgerKey {
        LedgerKey {
            owner: owner.to_owned(),
            source: source.to_owned(),
            scope: self.name.clone(),
            identity: self.identity.clone(),
        }
    }

    /// Becomes the only writer in this scope that has this owner or its mark.
    pub(crate) fn lock(&self, context: &Context) -> Result<ScopeLock> {
        let Context { owner, mark, .. } = context;
        let names = [format!("owner/{owner}"), format!("protocol/{mark}")];
        let locked = self.netns.run(|| NetnsLock::take(&names))?;
        locked.with_context(|| {
            format!("cannot write in `{}` as `{owner}` with protocol {mark}", self.name)
        })
    }
}

/// The name of a scope that the document names, as plans and the ledger have it.
pub(crate) fn name_of(name: &NamespaceName) -> Result<String> {
    called(&named(name)?)
}

fn named(name: &NamespaceName) -> Result<Place> {
    Ok(Place::Named(Name::new(name.as_str())?))
}

/// What a scope is called, so that [`recorded`] finds it again: a name has no slash in it, a path
/// has. A process is called by its path, for digits are a name; so is a name that means another
/// scope.
pub(crate) fn called(place: &Place) -> Result<String> {
    match place {
        Place::Named(name) if ![HOST, SANDBOX].contains(&name.as_str()) => Ok(name.to_string()),
        other => {
            let path = std::path::absolute(other.path())?.into_os_string();
            path.into_string().map_err(|path| anyhow!("the path {} is not UTF-8", path.display()))
        }
    }
}

fn recorded(name: &str) -> Result<Place> {
    Ok(if name.contains('/') { Place::At(name.into()) } else { Place::Named(Name::new(name)?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_scope_is_called_leads_back_to_it_and_to_nothing_else() {
        let check = |given: &str, expected: &str| {
            let place: Place = given.parse().unwrap();
            let name = called(&place).unwrap();
            assert_eq!(name, expected, "{given}");
            let back = recorded(&name).unwrap();
            assert_eq!(back.path(), std::path::absolute(place.path()).unwrap(), "{given}");
        };
        check("blue", "blue");
        check("pid 12", "pid 12");
        check("12", "/proc/12/ns/net");
        check("/proc/12/ns/net", "/proc/12/ns/net");
        check("host", "/run/netns/host");
        check("sandbox", "/run/netns/sandbox");
        let here = std::env::current_dir().unwrap();
        check("./blue", here.join("blue").to_str().unwrap());
    }

    #[test]
    fn a_name_of_digits_in_a_document_is_a_name() {
        let name: NamespaceName = "12".parse().unwrap();
        assert_eq!(name_of(&name).unwrap(), "12");
        assert_eq!(named(&name).unwrap().path().to_str(), Some("/run/netns/12"));
        assert_eq!(recorded("12").unwrap(), named(&name).unwrap());
    }
}
