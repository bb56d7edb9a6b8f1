//! Where and as whom a command works: the global options joined with the document's settings.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_document::{DEFAULT_OWNER, HOST, OwnerName, Settings};
use homeostat_engine::{
    Guards, Ledger, MassDelete, NetnsLock, OnRelease, ScopeLock, Strictness, WaysOut,
};
use homeostat_netns::{Netns, Place, Sandbox};
use homeostat_registry::{
    Caller, Mark, Memory, OwnerJournal, Reach, SANDBOX, Scope, Turns, record_mark, scope_name,
};

use crate::cli::{Color, Global};
use crate::failure::{helped, of_source};
use crate::journal;
use crate::machine::Gates;
use crate::mark;
use crate::orders::Right;
use crate::output::text::Detail;
use crate::way_out::Invocation;
use crate::wire::Leave;

pub(crate) const STATE_DIR: &str = "/var/lib/homeostat";
/// `/run` is a fresh tmpfs in the sandbox.
const SANDBOX_STATE_DIR: &str = "/run/homeostat";
const SOCKET_DIR: &str = "/run/homeostat";

/// Which scope the top level of a document is for.
#[derive(Clone, Debug)]
pub(crate) enum Top {
    /// The namespace that the program was started in, and the whole host.
    Host,
    /// One network namespace.
    Netns(Place),
    /// A fresh sandbox.
    Sandbox,
}

/// Where and as whom.
#[derive(Clone)]
pub(crate) struct Context {
    /// As whom, and how.
    pub(crate) caller: Caller,
    /// What the guards let through.
    pub(crate) leave: Leave,
    /// By what right it is done.
    pub(crate) right: Right,
    /// Where the owner's daemon listens.
    pub(crate) socket: PathBuf,
    pub(crate) top: Top,
    /// The namespace of the top level, if it is kept whatever becomes of the process or the file that names it.
    pinned: Option<Arc<Netns>>,
    pub(crate) color: Color,
    pub(crate) detail: Detail,
    /// What forwarding waits for, scope by scope.
    pub(crate) gates: Gates,
    /// The scopes in which a dropped piece declared something: its objects are deleted, whatever part of all they are.
    pub(crate) unguarded: Option<Arc<BTreeSet<String>>>,
}

/// The guards, with the flags by which our users lift them.
fn guards() -> Guards {
    let mut guards = Guards::default();
    guards.options.mass_delete = "--allow-mass-delete";
    guards.options.cascades = "--allow-cascades";
    guards.options.losses = "--accept-loss";
    guards
}

/// What our users can do about findings.
pub(crate) fn ways_out() -> WaysOut {
    let mut ways_out = WaysOut::default();
    ways_out.foreign = "`adopt = true` would take it";
    ways_out.lost_mark = "`adopt = true` takes it back";
    ways_out.doubt = "`homeostat journal` has the step; the wait ends when the target shows its result, or shows \
                      nothing for long enough. Nothing is sent until then: if it cannot wait, do it by hand";
    ways_out
}

impl Context {
    /// Joins the options with the settings, and moves into the sandbox if that was asked for. Must
    /// come before any thread exists, and after every file was read that only root may read.
    pub(crate) fn enter(global: Global, settings: &Settings) -> Result<Self> {
        let (owner, mark) = owner(&global, settings)?;
        let default_state = if global.sandbox { SANDBOX_STATE_DIR } else { STATE_DIR };
        let context = Context {
            detail: global.detail(),
            leave: global.leave(),
            right: global.right.clone(),
            socket: socket(global.state_dir.as_deref(), &owner),
            caller: Caller {
                owner,
                state_dir: global.state_dir.clone().unwrap_or_else(|| default_state.into()),
                mark,
                guards: global.leave().apply(guards()),
                ways_out: ways_out(),
                on_release: if global.revert_on_release {
                    OnRelease::Restore
                } else {
                    OnRelease::Leave
                },
                strictness: Strictness::Lenient,
                progress: None,
                trial: None,
                undo: None,
                recorded: Arc::default(),
                is_for_people: true,
                journal: None,
                memory: Memory::default(),
                turns: Turns::default(),
            },
            top: top(global.sandbox, global.netns),
            pinned: None,
            color: global.color,
            gates: Gates::default(),
            unguarded: None,
        };
        if matches!(context.top, Top::Sandbox) {
            Sandbox::enter()?;
        }
        Ok(context)
    }

    /// The same for a process that writes: the owner's journal may be opened.
    pub(crate) fn writing(mut self) -> Self {
        let directory = journal::directory(&self.caller.state_dir, &self.caller.owner);
        self.caller.journal = Some(OwnerJournal::new(directory, journal::clock()));
        self
    }

    /// The same in the namespace that the file at `path` is, which is called as the options say.
    pub(crate) fn in_pinned(mut self, path: &Path) -> Result<Self> {
        self.pinned = Some(Arc::new(Netns::at(path)?));
        Ok(self)
    }

    /// Where a namespace is kept for the holder of a trial, if a process or a descriptor is all that names it.
    pub(crate) fn pin_path(&self) -> Option<PathBuf> {
        let Top::Netns(place) = &self.top else { return None };
        let file = format!("{}.netns", self.caller.owner);
        place.path().starts_with("/proc").then(|| self.caller.state_dir.join(file))
    }

    /// The namespace that the top level of the document is for, if it is one that may go: what its scope is called.
    pub(crate) fn top_namespace(&self) -> Result<Option<String>> {
        match &self.top {
            Top::Host | Top::Sandbox => Ok(None),
            Top::Netns(_) if self.pinned.is_some() => Ok(None),
            Top::Netns(place) => scope_name(place).map(Some).map_err(of_source),
        }
    }

    /// The process in whose namespace the top level is.
    pub(crate) fn top_process(&self) -> Option<u32> {
        match self.top {
            Top::Netns(Place::OfPid(pid)) if self.pinned.is_none() => Some(pid),
            _ => None,
        }
    }

    /// How people reach the daemon of this owner.
    pub(crate) fn invocation(&self) -> Invocation {
        let Caller { owner, state_dir, .. } = &self.caller;
        let place = state_dir.to_string_lossy();
        let is_usual = *state_dir == Path::new(STATE_DIR);
        let options = [
            Some(("--owner", &**owner)).filter(|_| owner != DEFAULT_OWNER),
            Some(("--state-dir", &*place)).filter(|_| !is_usual),
        ];
        Invocation::with(&options.into_iter().flatten().collect::<Vec<_>>())
    }

    /// The scope that the top level of the document is for.
    pub(crate) fn top_scope(&self) -> Result<Scope> {
        Ok(match &self.top {
            Top::Host => Scope::new(HOST, Netns::current()?, Reach::Host)?,
            Top::Sandbox => Scope::new(SANDBOX, Netns::current()?, Reach::Sandbox)?,
            Top::Netns(place) => {
                let name = scope_name(place).map_err(of_source)?;
                let netns = match &self.pinned {
                    Some(pinned) => Arc::clone(pinned),
                    None => Arc::new(Netns::open(place)?),
                };
                Scope::new(&name, netns, Reach::Namespace)?
            }
        })
    }

    /// Whether a scope is there, whatever becomes of what it is called by.
    pub(crate) fn is_pinned(&self, netns: &Netns) -> bool {
        self.pinned.as_ref().is_some_and(|pinned| pinned.same_as(netns).unwrap_or(false))
    }

    /// As whom a scope is kept.
    pub(crate) fn caller_in(&self, scope: &str) -> Cow<'_, Caller> {
        if self.unguarded.as_ref().is_none_or(|scopes| !scopes.contains(scope)) {
            return Cow::Borrowed(&self.caller);
        }
        let mut caller = self.caller.clone();
        caller.guards.mass_delete = MassDelete::Allow;
        Cow::Owned(caller)
    }

    /// Becomes the only writer in a scope that has this owner or its mark.
    pub(crate) fn lock(&self, scope: &Scope) -> Result<ScopeLock> {
        let Caller { owner, mark: Mark(mark), .. } = &self.caller;
        let names = NetnsLock::names(owner, *mark);
        let locked = scope.netns.run(|| NetnsLock::take(&names))?;
        locked.with_context(|| {
            format!("cannot write in `{}` as `{owner}` with protocol {mark}", scope.name)
        })
    }

    /// The same for who keeps a scope as declared, and so gives objects there the mark.
    pub(crate) fn lock_to_mark(&self, scope: &Scope, ledger: &dyn Ledger) -> Result<ScopeLock> {
        let locked = self.lock(scope)?;
        // A ledger that cannot be written stops no healing: then only a later change of the mark goes unnoticed.
        let _ = record_mark(ledger, scope, &self.caller.owner, self.caller.mark);
        Ok(locked)
    }

    /// Refuses settings that only a fresh start can take over.
    pub(crate) fn check_same(&self, settings: &Settings) -> Result<()> {
        let owner = settings.owner.as_ref().map(|owner| owner.as_str());
        let protocol = settings.protocol.as_ref().map(|protocol| mark::resolve(&protocol.value));
        let mark = protocol.transpose()?;
        let is_other = owner.is_some_and(|owner| owner != self.caller.owner)
            || mark.is_some_and(|mark| mark != self.caller.mark);
        if is_other {
            return Err(helped(
                "the new document has another owner or protocol",
                "restart the daemon for it",
            ));
        }
        Ok(())
    }
}

/// What the scope is called that the top level of a document is for. A sandbox is always a new one.
pub(crate) fn scope_name_of(global: &Global) -> Option<String> {
    match top(global.sandbox, global.netns.clone()) {
        Top::Host => Some(HOST.to_owned()),
        Top::Netns(place) => scope_name(&place).ok(),
        Top::Sandbox => None,
    }
}

/// Where an owner's state is, outside of a sandbox.
pub(crate) fn state_dir(global: &Global) -> PathBuf {
    global.state_dir.clone().unwrap_or_else(|| STATE_DIR.into())
}

/// Where an owner's daemon listens: in the state directory, if one was given.
pub(crate) fn socket(state_dir: Option<&Path>, owner: &str) -> PathBuf {
    state_dir.unwrap_or(Path::new(SOCKET_DIR)).join(format!("{owner}.sock"))
}

fn top(sandbox: bool, netns: Option<Place>) -> Top {
    match netns {
        _ if sandbox => Top::Sandbox,
        None => Top::Host,
        Some(Place::At(path)) => Top::Netns(Place::of_path(path)),
        Some(place) => Top::Netns(place),
    }
}

/// Owner and mark are one identity, so another owner needs another mark.
pub(crate) fn owner(global: &Global, settings: &Settings) -> Result<(String, Mark)> {
    let declared = settings.owner.as_ref().map(|owner| owner.as_str());
    let owner = global.owner.as_ref().map(OwnerName::as_str).or(declared);
    let owner = owner.unwrap_or(DEFAULT_OWNER).to_owned();
    let declared = settings.protocol.as_ref().map(|protocol| &protocol.value);
    let mark = global.protocol.as_ref().or(declared).map(mark::resolve).transpose()?;
    let mark = mark.unwrap_or(mark::DEFAULT);
    if owner != DEFAULT_OWNER && mark == mark::DEFAULT {
        return Err(helped(
            format!("the owner `{owner}` needs a mark of its own in the kernel"),
            "add `protocol = 77` to [settings], or --protocol, with a free number that only this owner uses",
        ));
    }
    Ok((owner, mark))
}
