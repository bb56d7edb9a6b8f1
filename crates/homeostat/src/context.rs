//! Where and as whom a command works: the global options joined with the document's settings.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use homeostat_document::{DEFAULT_OWNER, OwnerName, Settings};
use homeostat_engine::{Cascades, Guards, MassDelete, OnRelease, Progress, Strictness};
use homeostat_netns::{Name, Place, Sandbox};

use crate::cli::{Color, Global};
use crate::failure::Helped;
use crate::journal;
use crate::mark::Mark;
use crate::output::text::Detail;
use crate::scope::Gates;

const STATE_DIR: &str = "/var/lib/homeostat";
/// `/run` is a fresh tmpfs in the sandbox.
const SANDBOX_STATE_DIR: &str = "/run/homeostat";
const SOCKET_DIR: &str = "/run/homeostat";

/// Which scope the top level of a document speaks of.
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
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) owner: String,
    /// The other half of the owner's identity.
    pub(crate) mark: Mark,
    pub(crate) state_dir: PathBuf,
    /// Where the owner's daemon listens.
    pub(crate) socket: PathBuf,
    pub(crate) top: Top,
    pub(crate) guards: Guards,
    pub(crate) on_release: OnRelease,
    pub(crate) strictness: Strictness,
    pub(crate) progress: Option<Arc<dyn Progress>>,
    pub(crate) color: Color,
    pub(crate) detail: Detail,
    /// Whether people read what is planned here, and nobody waits for it.
    pub(crate) is_for_people: bool,
    /// The directory of the journal of writes that must not be sent twice; none, in a process that only reads.
    pub(crate) journal: Option<PathBuf>,
    /// What forwarding waits for, scope by scope.
    pub(crate) gates: Gates,
    /// What sources keep from one binding to the next.
    pub(crate) memory: Memory,
}

/// Values that outlive a binding, one of each type. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send>>>>);

impl Memory {
    /// The value of a type, made when it is first asked for. The clones of a value share what they hold.
    pub(crate) fn of<T: Clone + Default + Send + 'static>(&self) -> T {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(T::default()));
        value.downcast_ref::<T>().cloned().unwrap_or_default()
    }
}

impl Context {
    /// Joins the options with the settings, and moves into the sandbox if that was asked for. Must
    /// come before any thread exists, and after every file was read that only root may read.
    pub(crate) fn enter(global: Global, settings: &Settings) -> Result<Self> {
        let (owner, mark) = owner(&global, settings)?;
        let default_state = if global.sandbox { SANDBOX_STATE_DIR } else { STATE_DIR };
        let mass_delete =
            if global.allow_mass_delete { MassDelete::Allow } else { MassDelete::Hold };
        let cascades = if global.allow_cascades { Cascades::Allow } else { Cascades::Hold };
        let context = Context {
            socket: socket(global.state_dir.as_deref(), &owner),
            owner,
            mark,
            state_dir: global.state_dir.unwrap_or_else(|| default_state.into()),
            top: top(global.sandbox, global.netns),
            guards: Guards { mass_delete, cascades, ..Guards::default() },
            on_release: if global.revert_on_release {
                OnRelease::Restore
            } else {
                OnRelease::Leave
            },
            strictness: Strictness::Lenient,
            progress: None,
            color: global.color,
            detail: match (global.quiet, global.verbose) {
                (true, _) => Detail::Quiet,
                (_, true) => Detail::Verbose,
                _ => Detail::Normal,
            },
            is_for_people: true,
            journal: None,
            gates: Gates::default(),
            memory: Memory::default(),
        };
        if matches!(context.top, Top::Sandbox) {
            Sandbox::enter()?;
        }
        Ok(context)
    }
}

impl Context {
    /// The same for a process that writes: the owner's journal may be opened.
    pub(crate) fn writing(self) -> Self {
        let directory = journal::directory(&self.state_dir, &self.owner);
        Context { journal: Some(directory), ..self }
    }

    /// Refuses settings that only a fresh start can take over.
    pub(crate) fn check_same(&self, settings: &Settings) -> Result<()> {
        let owner = settings.owner.as_ref().map(|owner| owner.as_str());
        let protocol = settings.protocol.as_ref().map(|protocol| Mark::resolve(&protocol.value));
        let mark = protocol.transpose()?;
        let is_other = owner.is_some_and(|owner| owner != self.owner)
            || mark.is_some_and(|mark| mark != self.mark);
        if is_other {
            return Err(Helped::error(
                "the new document has another owner or protocol",
                "restart the daemon for it",
            ));
        }
        Ok(())
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

/// A path into `/run/netns` is the name that it ends in: one namespace has one name in the ledger.
fn top(sandbox: bool, netns: Option<Place>) -> Top {
    match netns {
        _ if sandbox => Top::Sandbox,
        None => Top::Host,
        Some(Place::At(path)) => {
            let name = path.strip_prefix("/run/netns").ok().and_then(|name| name.to_str());
            let named = name.and_then(|name| Name::new(name).ok()).map(Place::Named);
            Top::Netns(named.unwrap_or(Place::At(path)))
        }
        Some(place) => Top::Netns(place),
    }
}

/// Owner and mark are one identity, so another owner needs another mark.
fn owner(global: &Global, settings: &Settings) -> Result<(String, Mark)> {
    let declared = settings.owner.as_ref().map(|owner| owner.as_str());
    let owner = global.owner.as_ref().map(OwnerName::as_str).or(declared);
    let owner = owner.unwrap_or(DEFAULT_OWNER).to_owned();
    let declared = settings.protocol.as_ref().map(|protocol| &protocol.value);
    let mark = global.protocol.as_ref().or(declared).map(Mark::resolve).transpose()?;
    let mark = mark.unwrap_or(Mark::DEFAULT);
    if owner != DEFAULT_OWNER && mark == Mark::DEFAULT {
        return Err(Helped::error(
            format!("the owner `{owner}` needs a mark of its own in the kernel"),
            "add --protocol with a free number, such as 77, that only this owner uses",
        ));
    }
    Ok((owner, mark))
}
