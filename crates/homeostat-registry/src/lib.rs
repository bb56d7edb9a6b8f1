//! What a program must know of a source to bind it to a document and a scope.
//!
//! A source crate describes itself by one [`Registration`], behind its feature `document`; a program lists the
//! registrations of all its sources, and names no source anywhere else. Start at [`Registration`], then
//! [`Binding`], which is what a source is bound with.
//!
//! ```
//! use homeostat_document::SourceSections;
//! use homeostat_registry::Registration;
//!
//! const SECTIONS: SourceSections = SourceSections::new("lamps", &[]);
//!
//! /// A source that has nothing to do in any scope.
//! pub const REGISTRATION: Registration = Registration::new(SECTIONS, |_binding| Ok(Vec::new()));
//! assert_eq!(REGISTRATION.name(), "lamps");
//! ```

mod binding;
mod condition;
mod connection;
mod error;
mod gate;
mod marks;
mod missing;
mod scope;
mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use homeostat_document::{Checker, Diagnostic, Document, Scope as Section, SourceSections, Span};
pub use homeostat_engine::MissingSections;
use homeostat_engine::outcome::Later;
use homeostat_engine::{Planner, ScopeLock, StepKind};
pub use rustix::thread::CapabilitySet;
use serde_json::{Map, Value};

pub use binding::{Binding, Caller, Mark, Memory, OwnerJournal, Recorded};
pub use condition::{DeclaredCheck, DeclaredCondition};
pub use connection::{Connection, Way};
pub use error::Error;
pub use gate::Gate;
pub use marks::{forget_marks, former_marks, record_mark};
pub use missing::{DocumentPlace, missing, table};
pub use scope::{
    Lookup, Owned, Reach, SANDBOX, Scope, ScopePlace, declared_name, machine_id, machine_identity,
    scope_name,
};
pub use shared::{Leader, SharedTarget, Standby, Turn, Turns};

/// A bound source, once for each scope of its own; nothing if the source has nothing to do in the scope.
pub type BindResult = Result<Vec<Box<dyn Planner>>, Error>;

/// The answer to a command of a source.
pub type CommandResult = Later<'static, Result<Value, Error>>;

/// What a program must know of a source. Everything but sections and `bind` has a default: see [`Registration::new`].
pub struct Registration {
    /// What it adds to documents, under its name.
    pub sections: SourceSections,
    /// Binds the source to a scope.
    pub bind: fn(&Binding<'_>) -> BindResult,
    /// Checks the source's part of a section, without looking at the machine.
    pub resolve: fn(&Section, Lists, &mut Checker),
    /// What is possible, and is probably not what the author of the document wants.
    pub warnings: fn(&Section) -> Vec<Diagnostic>,
    /// The keys that wait for a namespace that is not there.
    pub waiting: fn(&Document, &Section) -> Vec<String>,
    /// The other namespaces that a scope refers to, by name.
    pub namespaces: fn(&Section) -> Vec<String>,
    /// Where a scope of the document declares a key, if it is known.
    pub written: fn(&Section, &str) -> Option<Span>,
    /// The files beside the document that a scope names.
    pub files: fn(&Document, &Section, &mut NamedFiles),
    /// The capabilities that a scope needs beside those for every network.
    pub capabilities: fn(&Section) -> CapabilitySet,
    /// What is observed in a scope, as sections of a document.
    pub show: fn(&Binding<'_>, Extent) -> Result<Shown, Error>,
    /// Whether a change of this key may cut a connection.
    pub carries: fn(&str, &Connection) -> bool,
    /// What its steps do, and how each kind is undone.
    pub steps: &'static [StepKind],
    /// When a daemon starts it.
    pub start: Start,
    /// What is different about a target on another machine.
    pub remote: Option<Remote>,
    /// Set for a source whose target several machines can write to: in a fleet, the elected one does.
    pub shared: Option<SharedTarget>,
    /// Set for a source whose objects are scopes. It is bound to the first scope only, and driven before the scopes
    /// inside can be opened.
    pub scopes: Option<ScopeCreator>,
    /// Set for a source whose scopes are not networks, such as sets of files, or all units of systemd. It is bound
    /// to the first scope only, writes under the lock of that scope, and finds what the ledger knows by itself.
    pub own_scopes: Option<OwnScopes>,
    /// What it has counted, beside what its loops count.
    pub metrics: fn(&Memory) -> Vec<Sample>,
    /// Carries out a command of the source. Request and answer are known to the source and its client only.
    pub command: Option<fn(CommandDeps, Value) -> CommandResult>,
    /// What such a request asks for, and of which key. An error, if it is no request.
    pub describe: fn(&Value) -> Result<Described, Error>,
}

impl Registration {
    /// A source that refers to nothing beside its own sections, needs no privileges of its own and shows nothing.
    #[must_use]
    pub const fn new(sections: SourceSections, bind: fn(&Binding<'_>) -> BindResult) -> Self {
        Registration {
            sections,
            bind,
            resolve: |_, _, _| {},
            warnings: |_| Vec::new(),
            waiting: |_, _| Vec::new(),
            namespaces: |_| Vec::new(),
            written: |_, _| None,
            files: |_, _, _| {},
            capabilities: |_| CapabilitySet::empty(),
            show: |_, _| Ok(Shown::default()),
            carries: |_, _| false,
            steps: &[],
            start: Start::Usual,
            remote: None,
            shared: None,
            scopes: None,
            own_scopes: None,
            metrics: |_| Vec::new(),
            command: None,
            describe: |_| Ok(Described::default()),
        }
    }

    /// The source's name in plans, settings and the ledger.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.sections.source
    }
}

/// A request for a command of a source, as an order for it must say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// One of the words of [`SourceSections::commands`].
    pub action: &'static str,
    pub key: String,
}

/// Whether long lists beside the document are checked, too: binding reads them anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    Read,
    Skip,
}

/// Files that a document names, and directories in which more of them may appear.
#[derive(Debug, Default)]
pub struct NamedFiles {
    pub files: BTreeSet<PathBuf>,
    pub directories: BTreeSet<PathBuf>,
}

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Every knob, not only those that we own and that people set most.
    pub every_knob: bool,
    /// Also what other programs keep: leases, routes of routing daemons, links of container engines.
    pub kept_by_others: bool,
}

/// What is observed.
#[derive(Debug, Default)]
pub struct Shown {
    /// By the names of the document.
    pub sections: Map<String, Value>,
    /// What people should know of what is not shown.
    pub notes: Vec<String>,
    /// The keys that other programs keep and that were left out, by program.
    pub kept_by_others: BTreeMap<String, Vec<String>>,
}

/// When a daemon starts a source. No host forwards before its firewall is there, and links that are created
/// take over what `default` says. The knobs of those links come after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Start {
    /// Before all others, which wait for its first pass, whether it worked or not: what the others need of the kernel.
    First,
    /// Before all others, which wait for its first pass; the [`Gate`] of the scope is closed until it has converged.
    Firewall,
    /// Before links are created; its first pass is waited for.
    BeforeLinks,
    /// With the rest.
    Usual,
    /// With the rest, but the daemon is ready once its first pass has ended, also if that failed: a boot may bring its target
    /// after those that wait for the daemon.
    Late,
}

/// A target that is not on this machine.
pub struct Remote {
    /// The section that says where it is.
    pub section: &'static str,
    /// What its records are bound to: it outlives every boot of this machine.
    pub identity: &'static str,
    /// How often everything there is looked at.
    pub resync: Duration,
}

/// What is special about a source whose objects are scopes.
pub struct ScopeCreator {
    /// Whether the section asks for its scope to be created.
    pub creates: fn(&Section) -> bool,
    /// The name of the scope that the object with this key is.
    pub scope: fn(&str) -> Option<String>,
}

/// What is special about a source with scopes of its own.
pub struct OwnScopes {
    /// The capabilities that they need, also while the ledger alone knows them.
    pub capabilities: CapabilitySet,
}

/// A number that a source has counted in one of its scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub kind: SampleKind,
    /// Without the prefix of the program.
    pub name: &'static str,
    pub help: &'static str,
    pub scope: String,
    pub value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKind {
    /// It only grows.
    Counter,
    Gauge,
}

/// What a command of a source is carried out with.
#[derive(Clone)]
pub struct CommandDeps {
    pub memory: Memory,
    /// The lock of the first scope.
    pub lock: Arc<ScopeLock>,
}
