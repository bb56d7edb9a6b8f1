//! The scopes of a document on this machine: which namespace each one is, and what it is called.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use homeostat_document::{Document, FoundAt, HOST, NamespaceName, Scope as Section};
use homeostat_engine::{Failure, LedgerKey, Pages, Record, Retry};
use homeostat_netns::{Error as NetnsError, Identity, Name, Netns, Place};
use serde::de::IgnoredAny;

use crate::error::Error;

/// The name of a sandbox, which the top level of the document is for.
pub const SANDBOX: &str = "sandbox";

/// A scope that exists.
#[derive(Debug)]
pub struct Scope {
    /// Its name in plans and in the ledger.
    pub name: String,
    pub netns: Arc<Netns>,
    /// What distinguishes it from a former one of the same name.
    pub identity: String,
    /// Whether host-wide things belong to it.
    pub reach: Reach,
}

/// What belongs to a scope beside its network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The whole host.
    Host,
    /// Nothing: it is a namespace among others.
    Namespace,
    /// Nothing: it is a sandbox.
    Sandbox,
}

/// What is found where a scope is named.
pub enum Lookup {
    Found(Scope),
    Absent,
    /// Something else than a network namespace is there.
    NotNetns(NetnsError),
}

impl Scope {
    /// The scope of this name in a namespace that is open.
    pub fn new(name: &str, netns: impl Into<Arc<Netns>>, reach: Reach) -> Result<Self, NetnsError> {
        let netns = netns.into();
        let identity = Identity::of(&netns)?.to_string();
        Ok(Scope { name: name.to_owned(), netns, identity, reach })
    }

    /// A scope by its name, as [`scope_name`] and [`declared_name`] give it.
    pub fn find(name: &str) -> Result<Lookup, Error> {
        let found = ScopePlace::of(name).and_then(|place| Self::look_up(name, &place));
        found.map_err(|error| with_context(&format!("cannot open the namespace `{name}`"), &error))
    }

    /// The namespace that a link refers to, if it exists; `host` is the one that we run in.
    pub fn referred(
        document: &Document,
        name: &NamespaceName,
    ) -> Result<Option<Arc<Netns>>, Error> {
        if name.as_str() == HOST {
            return Ok(Some(Arc::new(Netns::current()?)));
        }
        match Self::find(&declared_name(document, name)?)? {
            Lookup::Found(scope) => Ok(Some(scope.netns)),
            Lookup::Absent | Lookup::NotNetns(_) => Ok(None),
        }
    }

    /// A scope by its name in the ledger, if it exists.
    pub fn recorded(name: &str) -> Result<Option<Self>, Error> {
        Ok(match Self::find(name)? {
            Lookup::Found(scope) => Some(scope),
            Lookup::Absent | Lookup::NotNetns(_) => None,
        })
    }

    /// Whether this scope is still what its name leads to.
    #[must_use]
    pub fn is_there(name: &str, netns: &Netns) -> bool {
        let place = ScopePlace::of(name).ok().and_then(|place| place.now());
        let found = place.and_then(|place| Netns::open(&place).ok());
        found.is_some_and(|found| found.same_as(netns).unwrap_or(false))
    }

    fn look_up(name: &str, place: &ScopePlace) -> Result<Lookup, NetnsError> {
        let Some(place) = place.now() else { return Ok(Lookup::Absent) };
        match Netns::open(&place) {
            Ok(netns) => Self::new(name, netns, Reach::Namespace).map(Lookup::Found),
            Err(
                NetnsError::NoSuchName { .. }
                | NetnsError::NoSuchPath { .. }
                | NetnsError::NoSuchProcess { .. },
            ) => Ok(Lookup::Absent),
            Err(error @ NetnsError::NotNetns { .. }) => Ok(Lookup::NotNetns(error)),
            Err(error) => Err(error),
        }
    }

    /// Where the ledger files a source in this scope.
    #[must_use]
    pub fn ledger_key(&self, owner: &str, source: &str) -> LedgerKey {
        LedgerKey::new(owner, source, &self.name).with_identity(&self.identity)
    }
}

/// What the ledger says that we own in a scope, whichever source keeps it.
#[derive(Debug, Default)]
pub struct Owned {
    /// Whether there are records, or something was applied: what carries a mark in the kernel needs no record.
    pub is_any: bool,
    /// Keys whose records say which object it is, in the target's own words.
    pub identities: Vec<(String, String)>,
}

impl Owned {
    /// What `owner` has in `scope`.
    pub fn read(pages: &dyn Pages, owner: &str, scope: &Scope) -> Result<Self, Error> {
        let mut all = Owned::default();
        for key in pages.places_in(owner, &scope.name)? {
            if key.identity != scope.identity {
                continue;
            }
            let page = pages.page(&key)?;
            all.is_any |=
                !page.records.is_empty() || page.desired.is_some_and(|desired| !desired.is_empty());
            all.identities.extend(page.records.into_iter().filter_map(|(key, record)| {
                // A record that cannot be read is reported by its own source.
                let record: Record<IgnoredAny> = serde_json::from_str(&record).ok()?;
                Some((key, record.identity?))
            }));
        }
        Ok(all)
    }
}

/// What distinguishes this machine from another one that has a copy of its disk: what is on the disk outlives every boot.
#[must_use]
pub fn machine_identity() -> String {
    machine_id().map_or_else(|| "this machine".to_owned(), |id| format!("machine {id}"))
}

/// The id of this machine, if it has one.
#[must_use]
pub fn machine_id() -> Option<String> {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

fn with_context(what: &str, error: &NetnsError) -> Error {
    let Failure { error: cause, .. } = Failure::from_error(error, Retry::Soon);
    let failure = Failure::new(format!("{what}: {cause}"), Retry::Soon);
    Error::Failed(failure.with_known_help(error.help()))
}

/// Before the path of a file with a process id: no name and no path begins with it.
const PID_FILE: &str = "pid-file ";

/// What a scope is called, so that [`Scope::find`] finds it again: a name has no slash in it, a path
/// has. A process is called by its path, for digits are a name; so is a name that means another
/// scope.
pub fn scope_name(place: &Place) -> Result<String, Error> {
    match place {
        Place::Named(name) if ![HOST, SANDBOX].contains(&name.as_str()) => Ok(name.to_string()),
        other => absolute(&other.path()),
    }
}

/// What the scope of a namespace is called that the document names.
pub fn declared_name(document: &Document, name: &NamespaceName) -> Result<String, Error> {
    match document.namespace(name).and_then(Section::found_at) {
        None => scope_name(&Place::Named(Name::new(name.as_str())?)),
        Some(FoundAt::Path(path)) => scope_name(&Place::of_path(path.clone())),
        Some(FoundAt::PidFile(path)) => Ok(format!("{PID_FILE}{}", absolute(path)?)),
    }
}

fn absolute(path: &Path) -> Result<String, Error> {
    let path = std::path::absolute(path).map_err(|error| Error::failed(&error))?;
    path.into_os_string().into_string().map_err(|path| {
        let text = format!("the path {} is not UTF-8", path.display());
        Failure::new(text, Retry::Never).into()
    })
}

/// Where a scope is looked for.
#[derive(Debug, PartialEq, Eq)]
pub enum ScopePlace {
    At(Place),
    /// In the process whose id is in this file.
    PidFile(PathBuf),
}

impl ScopePlace {
    /// Where the scope of a name is.
    pub fn of(name: &str) -> Result<Self, NetnsError> {
        if let Some(path) = name.strip_prefix(PID_FILE) {
            return Ok(ScopePlace::PidFile(path.into()));
        }
        let is_path = name.contains('/');
        let named = || Name::new(name).map(Place::Named);
        Ok(ScopePlace::At(if is_path { Place::of_path(name.into()) } else { named()? }))
    }

    /// Where it is at this moment; nothing if no file says it.
    #[must_use]
    pub fn now(&self) -> Option<Place> {
        match self {
            ScopePlace::At(place) => Some(place.clone()),
            ScopePlace::PidFile(path) => {
                let text = std::fs::read_to_string(path).ok()?;
                text.trim().parse().ok().map(Place::OfPid)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use homeostat_engine::{Edit, Ledger as _, MemoryLedger};

    use super::*;

    #[test]
    fn what_a_scope_is_called_leads_back_to_it_and_to_nothing_else() {
        let check = |given: &str, expected: &str| {
            let place: Place = given.parse().unwrap();
            let name = scope_name(&place).unwrap();
            assert_eq!(name, expected, "{given}");
            let back = ScopePlace::of(&name).unwrap().now().unwrap();
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
        let named = Place::Named(Name::new("12").unwrap());
        assert_eq!(scope_name(&named).unwrap(), "12");
        assert_eq!(named.path().to_str(), Some("/run/netns/12"));
        assert_eq!(ScopePlace::of("12").unwrap(), ScopePlace::At(named));
        let name: NamespaceName = "12".parse().unwrap();
        let name = declared_name(&Document::default(), &name).unwrap();
        assert!(matches!(Scope::find(&name).unwrap(), Lookup::Absent), "process 12 is not meant");
    }

    #[test]
    fn what_any_source_of_the_owner_has_in_a_scope_is_owned_and_nothing_else() {
        let scope = Scope::new("blue", Netns::current().unwrap(), Reach::Namespace).unwrap();
        let ledger = MemoryLedger::default();
        let put = |key: &str, record: &str| Edit::Put { key: key.into(), record: record.into() };
        let table = r#"{"wrote":1,"original":"absent","stage":"done","identity":"7"}"#;
        let other = scope.ledger_key("me", "nft").with_identity("former");
        for (place, key) in [
            (scope.ledger_key("me", "nft"), "table inet ours"),
            (scope.ledger_key("you", "nft"), "table inet yours"),
            (other, "table inet former"),
        ] {
            ledger.write(&place, &[put(key, table)]).unwrap();
        }
        ledger.write(&scope.ledger_key("me", "rtnl"), &[put("route", "not JSON")]).unwrap();
        let owned = Owned::read(&ledger, "me", &scope).unwrap();
        assert!(owned.is_any);
        assert_eq!(owned.identities, [("table inet ours".to_owned(), "7".to_owned())]);
        assert!(!Owned::read(&ledger, "nobody", &scope).unwrap().is_any);
    }
}
