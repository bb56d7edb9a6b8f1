//! Observes: opens what is declared or recorded, and looks inside what is to go.
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
    pub(crate) source: Namespaces,
}

impl Reader {
    /// What is at a name; an error if that cannot be known.
    fn look(
        &self,
        key: &Key,
        view: &View<'_, Namespaces>,
        moment: &mut Moment,
    ) -> Result<Option<Namespace>, Failure> {
        let (record, is_declared) = (view.records.get(key), view.desired.policy(key).is_some());
        let is_interrupted = record.is_some_and(is_interrupted);
        let netns = match Netns::named(key.name()) {
            Err(Error::NoSuchName { .. }) => return Ok(None),
            Err(Error::NotNetns { .. }) if is_interrupted && is_leftover(key.name()) => {
                moment.leftovers.insert(key.clone());
                // A declared one is absent, and made over the file; else there is a file to remove.
                return Ok((!is_declared).then(Namespace::default));
            }
            opened => opened.map_err(|error| failure(&error))?,
        };
        let identity = Identity::of(&netns).map_err(|error| failure(&error))?;
        let is_ours = record.is_some_and(|record| record.is_about(Some(&identity.to_string())));
        if is_ours && !is_declared {
            moment.foreign.insert(key.clone(), inside::foreign(&netns, &self.source, key)?);
        }
        Ok(Some(Namespace { identity: Some(identity) }))
    }
}

impl homeostat_core::Reader<Namespaces> for Reader {
    async fn observe(
        &mut self,
        view: &View<'_, Namespaces>,
        see: &mut See<'_, Key, Namespace>,
    ) -> Result<Moment, Failure> {
        let mut moment = Moment::default();
        let keys: BTreeSet<&Key> = view.desired.keys().chain(view.records.keys()).collect();
        for key in keys.into_iter().filter(|key| view.focus.covers(key)).cloned() {
            match self.look(&key, view, &mut moment) {
                Ok(None) => {}
                Ok(Some(object)) => see(Seen::Present { key, object, owner: Owner::Unmarked }),
                Err(failure) => {
                    let help = failure.help.as_ref().map(|help| format!("; {help}"));
                    let why = format!("{failure}{}", help.unwrap_or_default());
                    see(Seen::Unknown { key, why });
                }
            }
        }
        Ok(moment)
    }
}

/// Whether we were about to make it, and it is not known how far that came. Removals need no such sign: they leave no
/// file, whenever they are interrupted.
fn is_interrupted(record: &Record<Namespace>) -> bool {
    record.stage == Stage::Intent || record.identity.is_none()
}

/// An error of the namespace as the contract has it.
pub(crate) fn failure(error: &Error) -> Failure {
    Failure::soon(error).with_known_help(error.help())
}
