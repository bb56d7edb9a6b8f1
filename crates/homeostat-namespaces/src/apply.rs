//! The only writer: makes names, and takes them away after another look inside.

use homeostat_core::{Desired as _, Failure, Outcome, Outcomes, Retry, Taken, Work};
use homeostat_netns::{
    Error, Identity, Netns, create, create_over_leftover, remove, remove_leftover,
};

use crate::inside;
use crate::key::Key;
use crate::model::Namespace;
use crate::observe::failure;
use crate::source::Namespaces;
use crate::step::{Ground, Step};

/// Makes and removes names in `/run/netns`.
pub struct Writer {
    pub(crate) source: Namespaces,
}

impl Writer {
    /// Looks inside once more, right before: only what was agreed to may be lost.
    fn delete(&self, key: &Key, before: &Namespace, agreed: &[Taken]) -> Result<(), Failure> {
        let netns = match Netns::named(key.name()) {
            Err(Error::NoSuchName { .. }) => return Ok(()),
            opened => opened.map_err(|error| failure(&error))?,
        };
        let identity = Identity::of(&netns).map_err(|error| failure(&error))?;
        if before.identity.as_ref().is_some_and(|before| *before != identity) {
            let error = "another namespace of this name was created meanwhile";
            return Err(Failure::new(error, Retry::Now));
        }
        let foreign = inside::foreign(&netns, &self.source, key)?;
        if let Some(taken) = inside::first_new(&foreign, agreed) {
            let error = format!("`{}` came into it meanwhile", taken.key);
            return Err(Failure::new(error, Retry::Now));
        }
        remove(key.name()).map(|_| ()).map_err(|error| failure(&error))
    }
}

impl homeostat_core::Writer<Namespaces> for Writer {
    async fn apply(&self, work: Work<'_, Namespaces>, out: &dyn Outcomes<Namespace>) {
        for (at, step) in work.iter() {
            let done = match step {
                Step::Create { slot, ground } => make(&work.desired.key(*slot), *ground),
                Step::Clear { key } => cleared(key),
                Step::Delete { key, before, takes } => self.delete(key, before, takes),
            };
            // The second look shows which namespace it is, so there is no answer of our own.
            let outcome = match done {
                Ok(()) => Outcome::Applied { now: None },
                Err(failure) => Outcome::Failed(failure),
            };
            out.put(at..at + 1, outcome);
        }
    }
}

fn make(key: &Key, ground: Ground) -> Result<(), Failure> {
    let made = match ground {
        Ground::Free => create(key.name()),
        Ground::Leftover => create_over_leftover(key.name()),
    };
    match made {
        Ok(_) => Ok(()),
        Err(Error::AlreadyExists { .. } | Error::NotLeftover { .. }) => {
            Err(Failure::new("another program created it meanwhile", Retry::Now))
        }
        Err(error) => Err(failure(&error)),
    }
}

fn cleared(key: &Key) -> Result<(), Failure> {
    match remove_leftover(key.name()) {
        Ok(_) => Ok(()),
        Err(error @ Error::NotLeftover { .. }) => Err(Failure::from_error(&error, Retry::Now)),
        Err(error) => Err(failure(&error)),
    }
}
