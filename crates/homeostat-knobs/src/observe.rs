//! Reads the declared and the recorded knobs. It never writes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use homeostat_core::{
    Failure, Hint, Original, Owner, Record, Retry, See, Seen, Snapshot, Taken, View, WaitsOn,
};
use rustix::io::Errno;

use crate::absence::Absence;
use crate::cgroup::unit_of;
use crate::coupled::coupled_with;
use crate::coupling::{is_general, rewrites};
use crate::gate::{self, Gate};
use crate::hints::Hints;
use crate::ipv6_off::{Ipv6Objects, may_turn_off, turns_off};
use crate::key::Key;
use crate::knob_file::{Found, KnobFile, open_root};
use crate::model::Value;
use crate::source::Knobs;

/// What one observe learned beside the values.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// Why declared knobs are not there.
    pub absent: BTreeMap<Key, Absence>,
    /// Knobs whose file has no write permission.
    pub read_only: BTreeSet<Key>,
    /// What declared knobs hold that a step for another knob would rewrite.
    pub rewritten: BTreeMap<Key, Value>,
    /// What turning forwarding on waits on, if anything.
    pub gate: Option<WaitsOn>,
    /// The foreign objects that the kernel would delete if a knob turned IPv6 off.
    pub ipv6: BTreeMap<Key, Vec<Taken>>,
}

/// What is in one file.
#[derive(Debug)]
pub(crate) enum Look {
    Holds {
        value: Value,
        writable: bool,
    },
    /// Nothing: there is no such file, or none that could be managed.
    Absent(Absence),
    /// It could not be read.
    Unknown(String),
}

/// Reads knobs, and waits for hints.
#[derive(Debug)]
pub struct Reader {
    knobs: Knobs,
    hints: Hints,
    /// Declared, and held back by the closed gate.
    held: Vec<Key>,
}

impl Reader {
    pub(crate) fn new(knobs: Knobs) -> Self {
        Reader { knobs, hints: Hints::open(), held: Vec::new() }
    }
}

impl homeostat_core::Reader<Knobs> for Reader {
    async fn snapshots(
        &mut self,
        keys: &BTreeSet<Key>,
    ) -> Result<BTreeMap<Key, Snapshot>, Failure> {
        let knobs = &self.knobs;
        knobs.run(|| {
            let coupled = keys.iter().map(|key| (key, coupled_with(knobs, key)));
            let coupled = coupled.filter(|(_, coupled)| !coupled.values.is_empty());
            coupled.filter_map(|(key, coupled)| Some((key.clone(), coupled.snapshot()?))).collect()
        })
    }

    async fn observe(
        &mut self,
        view: &View<'_, Knobs>,
        see: &mut See<'_, Key, Value>,
    ) -> Result<Moment, Failure> {
        let keys = keys(view);
        let (knobs, hints) = (&self.knobs, &mut self.hints);
        let turning_off: Vec<bool> =
            keys.iter().map(|key| may_turn_off(view.desired, key)).collect();
        let (looks, lost) = knobs.run(|| {
            // A subscription after the read would miss what happens in between (law 10).
            hints.watch(knobs, &keys, view.focus);
            check_roots(knobs, &keys)?;
            let looks = keys.iter().map(|key| (look(knobs, key), owner(knobs, key)));
            let looks: Vec<_> = looks.collect();
            let lost = lost_with_ipv6(keys.iter().zip(&turning_off).zip(&looks));
            Ok((looks, lost))
        })??;
        // If it is opened after this, a hint follows.
        let gate = self.knobs.gate.as_ref().and_then(Gate::waits_on);
        self.held =
            if gate.is_some() { gate::held(view.desired, view.records) } else { Vec::new() };
        let mut moment = Moment { gate, ..Moment::default() };
        for (key, (look, owner)) in keys.into_iter().zip(looks) {
            let look = match lost.get(&key) {
                Some(Err(why)) => Look::Unknown(why.clone()),
                Some(Ok(lost)) => {
                    moment.ipv6.insert(key.clone(), lost.clone());
                    look
                }
                None => look,
            };
            let (value, writable) = match look {
                Look::Holds { value, writable } => (value, writable),
                Look::Absent(absence) => {
                    moment.absent.insert(key, absence);
                    continue;
                }
                Look::Unknown(why) => {
                    see(Seen::Unknown { key, why });
                    continue;
                }
            };
            if !writable {
                moment.read_only.insert(key.clone());
            }
            let record = view.records.get(&key);
            if view.focus.covers(&key) || record.is_some() {
                moment.rewritten.insert(key.clone(), value.clone());
            }
            // A recorded knob is ours even if another owner manages it: it was adopted.
            let owner = owner.filter(|_| record.is_none());
            let owner = owner.map_or(Owner::Nobody, |other| Owner::Foreign(other.into()));
            let object = match record.filter(|_| view.desired.wanted(&key).is_none()) {
                Some(record) => as_written(&key, record, value),
                None => value,
            };
            see(Seen::Present { key, object, owner });
        }
        Ok(moment)
    }

    async fn hint(&mut self) -> Result<Hint<Key>, Failure> {
        let (Some(gate), false) = (&self.knobs.gate, self.held.is_empty()) else {
            return self.hints.next().await;
        };
        tokio::select! {
            opened = gate.opened(&self.held) => {
                self.held.clear();
                Ok(opened)
            }
            hint = self.hints.next() => hint,
        }
    }
}

/// What other owners lose with each knob that is on its way to turn IPv6 off. If that cannot be seen, the knob counts as
/// unknown, and is not written.
fn lost_with_ipv6<'k>(
    looks: impl Iterator<Item = ((&'k Key, &'k bool), &'k (Look, Option<String>))>,
) -> BTreeMap<Key, Result<Vec<Taken>, String>> {
    let is_still_on = |key: &Key, look: &Look| matches!(look, Look::Holds { value, .. } if !turns_off(key, value));
    let keys = looks.filter(|((key, may), (look, _))| **may && is_still_on(key, look));
    let keys: Vec<&Key> = keys.map(|((key, _), _)| key).collect();
    // Lists of routes may be long, and are read only where it matters.
    if keys.is_empty() {
        return BTreeMap::new();
    }
    let objects = Ipv6Objects::list()
        .map_err(|error| format!("cannot see what turning IPv6 off would remove: {error}"));
    let lost = |key: &Key| match &objects {
        Ok(objects) => Ok(objects.lost_with(key)),
        Err(why) => Err(why.clone()),
    };
    keys.into_iter().map(|key| (key.clone(), lost(key))).collect()
}

/// The declared and the recorded knobs in focus, and the declared ones that a step for them would
/// rewrite.
fn keys(view: &View<'_, Knobs>) -> BTreeSet<Key> {
    let declared = view.desired.iter().map(|(key, _)| key);
    let known = declared.chain(view.records.keys());
    let mut keys: BTreeSet<&Key> = known.filter(|key| view.focus.covers(key)).collect();
    let generals: Vec<&Key> = keys.iter().copied().filter(|key| is_general(key)).collect();
    let declared = view.desired.iter().map(|(key, _)| key);
    keys.extend(declared.filter(|key| generals.iter().any(|general| rewrites(general, key))));
    keys.into_iter().cloned().collect()
}

/// What we wrote may be less than what is there (a quota without its period). If it still stands, it
/// is shown as we wrote it, so that a release knows it again; an original is shown as it is.
fn as_written(key: &Key, record: &Record<Value>, seen: Value) -> Value {
    let is_original = matches!(&record.original, Original::Was(original) if *original == seen);
    if !is_original && record.wrote.agrees(key, &seen) { record.wrote.clone() } else { seen }
}

/// Another owner of a knob: one of this machine, or systemd for the group of a unit.
fn owner(knobs: &Knobs, key: &Key) -> Option<String> {
    if let Some(other) = knobs.others.get(key) {
        return Some(format!("owner {other}"));
    }
    let (Key::Cgroup(file), Some(root), true) = (key, &knobs.roots.cgroup, knobs.roots.systemd)
    else {
        return None;
    };
    unit_of(root, file.group()).map(|unit| format!("systemd ({unit})"))
}

/// Without its root, nothing can be said of a knob: that is no reason to call it absent.
fn check_roots(knobs: &Knobs, keys: &BTreeSet<Key>) -> Result<(), Failure> {
    let roots = keys.iter().filter_map(|key| knobs.root(key).ok()?.directory());
    let roots: BTreeSet<&Path> = roots.collect();
    for root in roots {
        open_root(root).map_err(|error| {
            let error = format!("{} cannot be opened: {error}", root.display());
            Failure::new(error, Retry::Soon)
        })?;
    }
    Ok(())
}

/// Reads one file.
pub(crate) fn look(knobs: &Knobs, key: &Key) -> Look {
    let file = match find_file(knobs, key) {
        Ok(Ok(file)) => file,
        Ok(Err(absence)) => return Look::Absent(absence),
        Err(error) => return Look::Unknown(error.to_string()),
    };
    let writable = file.is_writable();
    if writable && !file.is_readable() {
        return Look::Absent(Absence::WriteOnly);
    }
    match file.read() {
        Ok(text) => Look::Holds { value: Value::of(key, &text), writable },
        Err(error) if is_unset(key, &error) => Look::Holds { value: Value::of(key, ""), writable },
        Err(error) => Look::Unknown(error.to_string()),
    }
}

/// Finds the file of a knob, or why there is none.
pub(crate) fn find_file(knobs: &Knobs, key: &Key) -> io::Result<Result<KnobFile, Absence>> {
    let root = match knobs.root(key) {
        Ok(root) => root,
        Err(absence) => return Ok(Err(absence)),
    };
    Ok(match root.find(key)? {
        Found::File(file) => Ok(file),
        Found::Other(what) => Err(Absence::NotAKnob { what }),
        Found::Missing(missing) => Err(Absence::of(key, &missing)),
    })
}

/// Quirk `stable-secret-unset` (Linux 6.18): `cat net/ipv6/conf/lo/stable_secret` fails with EIO as
/// long as no secret was set.
fn is_unset(key: &Key, error: &io::Error) -> bool {
    let is_secret = matches!(key, Key::Sysctl(path) if path.name() == "stable_secret");
    is_secret && error.raw_os_error() == Some(Errno::IO.raw_os_error())
}
