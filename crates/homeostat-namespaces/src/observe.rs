//! The eyes of the source: opens what is declared or recorded, and looks inside what is to go.
//!
//! Namespaces that are neither declared nor recorded cannot matter, so they are not opened: a host may
//! have thousands of them.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::{Failure, Owner, Record, See, Seen, Stage, Taken, View};
use homeostat_netns::{Error, Identity, Netns, is_leftover};

use crate::inside;
use crate::key::Key;
use crate::model::Namespace;
use crate::source::Namespaces;

/// What one observe learned beside the namespaces.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// What is inside the namespaces that are to go, and is not ours.
    pub(crate) foreign: BTreeMap<Key, Vec<Taken>>,
    /// Names with an empty file of ours in place of a namespace.
    pub(crate) leftovers: BTreeSet<Key>,
}

/// Looks at `/run/netns`.
pub struct Reader {
    source: Namespaces,
}

/// What is found at a name.
enum Found {
    Nothing,
    /// A file that no namespace is mounted on.
    PlainFile(Error),
    Namespace(Netns, Namespace),
}

impl Reader {
    pub(crate) fn new(source: Namespaces) -> Self {
        Reader { source }
    }

    fn look(&self, key: &Key, view: &View<'_, Namespaces>, moment: &mut Moment) -> Option<Told> {
        let record = view.records.get(key);
        match find(key) {
            Ok(Found::Nothing) => None,
            Ok(Found::PlainFile(_))
                if record.is_some_and(is_interrupted) && is_leftover(key.name()) =>
            {
                moment.leftovers.insert(key.clone());
                // A declared one is absent, and made over the file; else there is a file to remove.
                let (key, object) = (key.clone(), Namespace::default());
                let is_declared = view.desired.means(&key).is_some();
                (!is_declared).then_some(Seen::Present { key, object, owner: Owner::Unmarked })
            }
            Ok(Found::PlainFile(error)) | Err(error) => Some(unknown(key, &failure(&error))),
            Ok(Found::Namespace(netns, namespace)) => {
                let identity = namespace.identity.map(|identity| identity.to_string());
                let is_ours = record.is_some_and(|record| record.is_about(identity.as_deref()));
                if is_ours && view.desired.means(key).is_none() {
                    match inside::foreign(&netns, self.source.signs(key)) {
                        Ok(foreign) => moment.foreign.insert(key.clone(), foreign),
                        Err(failure) => return Some(unknown(key, &failure)),
                    };
                }
                let (key, owner) = (key.clone(), Owner::Unmarked);
                Some(Seen::Present { key, object: namespace, owner })
            }
        }
    }
}

type Told = Seen<Key, Namespace>;

impl homeostat_core::Reader<Namespaces> for Reader {
    async fn observe(
        &mut self,
        view: &View<'_, Namespaces>,
        see: &mut See<'_, Key, Namespace>,
    ) -> Result<Moment, Failure> {
        let mut moment = Moment::default();
        let keys: BTreeSet<&Key> = view.desired.keys().chain(view.records.keys()).collect();
        for key in keys.into_iter().filter(|key| view.focus.covers(key)) {
            if let Some(seen) = self.look(key, view, &mut moment) {
                see(seen);
            }
        }
        Ok(moment)
    }
}

/// Whether we were about to make it, and nobody knows how far that came. Removals need no such sign: they leave no
/// file, whenever they are interrupted.
fn is_interrupted(record: &Record<Namespace>) -> bool {
    record.stage == Stage::Intent || record.identity.is_none()
}

fn find(key: &Key) -> Result<Found, Error> {
    match Netns::named(key.name()) {
        Err(Error::NoSuchName { .. }) => Ok(Found::Nothing),
        Err(error @ Error::NotNetns { .. }) => Ok(Found::PlainFile(error)),
        Err(error) => Err(error),
        Ok(netns) => {
            let identity = Some(Identity::of(&netns)?);
            Ok(Found::Namespace(netns, Namespace { identity }))
        }
    }
}

fn unknown(key: &Key, failure: &Failure) -> Told {
    let help = failure.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
    Seen::Unknown { key: key.clone(), why: format!("{failure}{help}") }
}

/// An error of the namespace as the contract tells it.
pub(crate) fn failure(error: &Error) -> Failure {
    let failure = Failure::from_error(error, homeostat_core::Retry::Soon);
    match error.help() {
        Some(help) => failure.with_help(help),
        None => failure,
    }
}
