//! Asks for the declared and the recorded settings. It never writes.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::{Failure, Hint, Original, Owner, Record, See, Seen, View};
use homeostat_netlink::{Connection, Error};

use crate::absence::Absence;
use crate::device::{Devices, Limits, Look};
use crate::hints::Hints;
use crate::key::Key;
use crate::model::Value;
use crate::source::Ethtool;

/// What one observe learned beside the values.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// Why declared settings are not there.
    pub absent: BTreeMap<Key, Absence>,
    /// What the settings can be.
    pub limits: BTreeMap<Key, Limits>,
}

/// Asks the kernel, and waits for its notifications.
pub struct Reader {
    source: Ethtool,
    connection: Option<Connection>,
    hints: Option<Hints>,
    /// The settings that notifications may be about.
    known: BTreeSet<Key>,
}

impl Reader {
    pub(crate) fn new(source: Ethtool) -> Self {
        Reader { source, connection: None, hints: None, known: BTreeSet::new() }
    }

    fn ask(&mut self, keys: &[Key]) -> Result<Devices, Error> {
        // A subscription after the read would miss what happens in between.
        if self.hints.is_none() {
            self.hints = Some(Hints::subscribe(&self.source)?);
        }
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.source.connect()?),
        };
        Devices::read(connection, keys)
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("known", &self.known).finish_non_exhaustive()
    }
}

impl homeostat_core::Reader<Ethtool> for Reader {
    async fn observe(
        &mut self,
        view: &View<'_, Ethtool>,
        see: &mut See<'_, Key, Value>,
    ) -> Result<Moment, Failure> {
        let declared = view.desired.iter().map(|(key, _)| key);
        self.known = declared.chain(view.records.keys()).cloned().collect();
        let keys: Vec<Key> =
            self.known.iter().filter(|key| view.focus.covers(key)).cloned().collect();
        let mut moment = Moment::default();
        if keys.is_empty() {
            return Ok(moment);
        }
        let devices = self.ask(&keys).map_err(|error| {
            // A connection that failed may be out of step.
            self.connection = None;
            Failure::soon(&error)
        })?;
        for key in keys {
            let record = view.records.get(&key);
            match devices.look(&key) {
                Look::Absent(absence) => _ = moment.absent.insert(key, absence),
                Look::Unknown(why) => see(Seen::Unknown { key, why }),
                Look::Is { value, limits } => {
                    moment.limits.insert(key.clone(), limits);
                    let other = self.source.others.get(&key).filter(|_| record.is_none());
                    let owner = other.map_or(Owner::Nobody, |owner| {
                        Owner::Foreign(format!("owner {owner}").into())
                    });
                    let object = match record.filter(|_| view.desired.wanted(&key).is_none()) {
                        Some(record) => as_written(record, value),
                        None => value,
                    };
                    see(Seen::Present { key, object, owner });
                }
            }
        }
        if let Some(hints) = &mut self.hints {
            let absent = moment.absent.iter().filter(|(_, why)| **why == Absence::NoLink);
            hints.absent = absent.map(|(key, _)| key.link.clone()).collect();
        }
        Ok(moment)
    }

    async fn hint(&mut self) -> Result<Hint<Key>, Failure> {
        let Some(hints) = &mut self.hints else { return std::future::pending().await };
        hints.next(&self.known).await.map_err(|error| Failure::soon(&error))
    }
}

/// A switch that we wrote stands for several features. If it still stands, it is shown as we wrote it, so that a release
/// knows it again; an original is shown as it is.
fn as_written(record: &Record<Value>, seen: Value) -> Value {
    let is_original = matches!(&record.original, Original::Was(original) if *original == seen);
    if !is_original && record.wrote.agrees(&seen) { record.wrote.clone() } else { seen }
}
