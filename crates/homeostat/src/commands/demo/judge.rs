//! Measures when everything is back as it was, by the kernel's own events and dumps.
//!
//! A healing is measured from just before the saboteur's write to the event of the last object that
//! came back, as an independent listener took it in. Both ends err on the long side: on a busy machine a
//! listener that wakes up late would make the time since the *event* of the loss look shorter than it was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Result;
use homeostat_netlink::{Connection, Family};
use homeostat_netns::{Error, Name, Netns};

use super::kernel_events::{self, ObservedChange, now};
use super::kernel_state::{Change, KernelState, Key, Kind, Names, look};
use super::saboteur::{FOREIGN, SIGNAL, Saboteur};

/// How long a healing may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Nothing more is expected after so long a silence, so that a look disturbs nothing.
const QUIET: Duration = Duration::from_millis(3);

/// How a healing went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Healing {
    pub(super) took: Duration,
    /// How many objects came back, as far as events say.
    pub(super) objects: usize,
}

/// What everything has to look like, here and in the namespace of the lab.
pub(super) struct Judge {
    events: Receiver<ObservedChange>,
    /// Whether the tour is to end, and waits for no healing.
    stop: Arc<AtomicBool>,
    lab: Name,
    pub(super) wanted: KernelState,
    wanted_lab: KernelState,
    /// What the events said last.
    known: BTreeMap<Key, String>,
}

/// What the events of one act have said so far.
#[derive(Default)]
struct Course {
    has_begun: bool,
    back: BTreeMap<Key, Instant>,
    missing: BTreeSet<Key>,
}

impl Judge {
    /// Takes what is there now for what has to be.
    pub(super) fn new(saboteur: &mut Saboteur, lab: Name, stop: Arc<AtomicBool>) -> Result<Self> {
        let wanted = saboteur.look()?;
        let events = kernel_events::start(saboteur.names.clone())?;
        let known =
            wanted.iter().map(|(key, object)| (key.clone(), object.fields.clone())).collect();
        let wanted_lab = inside(&lab)?.unwrap_or_default();
        Ok(Judge { events, stop, lab, wanted, wanted_lab, known })
    }

    /// Takes in all events so far; none of them belongs to the next act.
    pub(super) fn begin(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.known.insert(event.key, event.object.fields);
        }
    }

    /// Waits until everything here is back. `sent` is when the sabotage began.
    pub(super) fn healed(
        &mut self,
        saboteur: &mut Saboteur,
        sent: Instant,
    ) -> Result<Option<Healing>> {
        let mut course = Course::default();
        while is_awaited(sent, &self.stop) {
            match self.events.recv_timeout(QUIET) {
                Ok(event) => self.note(event, &mut course),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {
                    if course.has_begun && saboteur.look()? == self.wanted {
                        self.catch_up(saboteur, &mut course)?;
                        if let Some(healing) = course.healing(sent) {
                            return Ok(Some(healing));
                        }
                    }
                }
            }
        }
        Ok(None)
    }

    /// Receives all events up to now: a look can be ahead of a listener that is late. A route of others that is
    /// added and deleted is the last of them.
    fn catch_up(&mut self, saboteur: &mut Saboteur, course: &mut Course) -> Result<()> {
        saboteur.signal()?;
        while let Ok(event) = self.events.recv_timeout(PATIENCE) {
            let signal = format!("{}/24 ", SIGNAL.to);
            let is_signal = event.change == Change::Vanished && event.key.name.starts_with(&signal);
            self.note(event, course);
            if is_signal {
                break;
            }
        }
        Ok(())
    }

    /// The same for what is also inside the lab, where no listener can be: it would keep a namespace
    /// alive that has to go. So it is looked at, again and again.
    pub(super) fn healed_inside(
        &mut self,
        saboteur: &mut Saboteur,
        sent: Instant,
    ) -> Result<Option<Healing>> {
        while is_awaited(sent, &self.stop) {
            let lab = inside(&self.lab)?;
            let at = now();
            if lab.as_ref() == Some(&self.wanted_lab) && saboteur.look()? == self.wanted {
                self.begin();
                let took = at.saturating_duration_since(sent);
                return Ok(Some(Healing { took, objects: self.wanted_lab.len() }));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(None)
    }

    /// Takes what others have added since for what has to stay.
    pub(super) fn accept_foreign(&mut self, saboteur: &mut Saboteur) -> Result<()> {
        let added = saboteur.look()?.into_iter().filter(|(_, object)| object.mark == FOREIGN);
        self.wanted.extend(added);
        Ok(())
    }

    /// What is not as it has to be.
    pub(super) fn differences(&self, saboteur: &mut Saboteur) -> Result<Vec<String>> {
        let there = saboteur.look()?;
        let wrong = self.wanted.iter().filter(|(key, object)| there.get(key) != Some(object));
        let too_many = there.keys().filter(|key| !self.wanted.contains_key(key));
        Ok(wrong.map(|(key, _)| key).chain(too_many).map(|key| key.name.clone()).collect())
    }

    fn note(&mut self, event: ObservedChange, course: &mut Course) {
        let ObservedChange { at, change, key, object } = event;
        let wanted = self.wanted.get(&key).map(|wanted| &wanted.fields);
        let is_wanted = change == Change::Appeared && wanted == Some(&object.fields);
        let before = match change {
            Change::Appeared => self.known.insert(key.clone(), object.fields),
            Change::Vanished => self.known.remove(&key),
        };
        if wanted.is_none() {
            return;
        }
        // The kernel sends no event for routes and nexthops that go with a link, so one that comes counts
        // whatever was known of it. For links and addresses it sends the same event again and again.
        let was_missing = matches!(key.kind, Kind::Route | Kind::Nexthop)
            || before.as_ref() != wanted
            || course.missing.contains(&key);
        if !is_wanted {
            course.has_begun = true;
            course.back.remove(&key);
            course.missing.insert(key);
        } else if was_missing {
            course.has_begun = true;
            course.missing.remove(&key);
            course.back.entry(key).or_insert(at);
        }
    }
}

impl Course {
    /// How it went, once all that was lost is back, by the events.
    fn healing(&self, sent: Instant) -> Option<Healing> {
        let ended = self.back.values().max().filter(|_| self.missing.is_empty())?;
        Some(Healing { took: ended.saturating_duration_since(sent), objects: self.back.len() })
    }
}

/// Whether a healing is still waited for.
pub(super) fn is_awaited(sent: Instant, stop: &AtomicBool) -> bool {
    sent.elapsed() < PATIENCE && !stop.load(Ordering::Relaxed)
}

/// What is inside the lab, if it is there.
fn inside(lab: &Name) -> Result<Option<KernelState>> {
    let netns = match Netns::named(lab) {
        Ok(netns) => netns,
        Err(Error::NoSuchName { .. } | Error::NotNetns { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut connection = Connection::open_in(&netns, Family::Route)?;
    look(&mut connection, &mut Names::default()).map(Some)
}
