//! Everything that is there, declared or not: where a first document comes from.

use std::sync::Arc;

use homeostat_core::{Failure, Focus, Owner, Records, Seen, View};

use crate::desired::DesiredState;
use crate::key::Key;
use crate::model::Object;
use crate::observe::Reader;
use crate::source::Rtnl;

/// One object that is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Its key.
    pub key: Key,
    /// The managed part of it.
    pub object: Object,
    /// Whose it is.
    pub owner: Owner,
}

impl Rtnl {
    /// Looks at everything once. What the kernel makes by itself is among it, as its own.
    pub fn everything(&self) -> Result<Vec<Found>, Failure> {
        let mut found = Vec::new();
        let (desired, records) = (Arc::new(DesiredState::default()), Records::new());
        let view = View { focus: &Focus::All, desired: &desired, records: &records };
        Reader::open(self.clone(), None)?.look(&view, &mut |seen| {
            if let Seen::Present { key, object, owner } = seen {
                found.push(Found { key, object, owner });
            }
        })?;
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }
}
