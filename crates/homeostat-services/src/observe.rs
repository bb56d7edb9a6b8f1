//! Asks systemd for the declared and the recorded values. It never writes.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::{Failure, Hint, Owner, Retry, See, Seen, View};
use homeostat_systemd::{Error, Signal, Signals, Systemd, Unit, UnitName};

use crate::key::{Aspect, Key};
use crate::model::State;
use crate::source::Services;

/// What one observe learned beside the values.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// Whether there is a systemd.
    pub has_systemd: bool,
    /// Units that do not exist.
    pub missing: BTreeSet<UnitName>,
    pub masked: BTreeSet<UnitName>,
    /// Services that end by themselves when their work is done.
    pub ends_by_itself: BTreeSet<UnitName>,
}

/// Asks systemd, and waits for its signals.
#[derive(Debug)]
pub struct Reader {
    services: Services,
    systemd: Option<Systemd>,
    wants_signals: bool,
    /// Subscribed to before the first look.
    signals: Option<Signals>,
    /// The values that signals may be about.
    known: BTreeSet<Key>,
}

impl Reader {
    pub(crate) fn new(services: Services) -> Self {
        Reader { wants_signals: true, ..Reader::without_signals(services) }
    }

    pub(crate) fn without_signals(services: Services) -> Self {
        Reader {
            services,
            systemd: None,
            wants_signals: false,
            signals: None,
            known: BTreeSet::new(),
        }
    }

    async fn connect(&mut self) -> Result<Systemd, Error> {
        if self.wants_signals && self.signals.is_none() {
            self.signals = Some(Signals::subscribe(&self.services.root).await?);
        }
        if let Some(systemd) = &self.systemd {
            return Ok(systemd.clone());
        }
        let systemd = Systemd::connect(&self.services.root).await?;
        Ok(self.systemd.insert(systemd).clone())
    }

    /// Everything that the values of some units need to be known.
    async fn look(&mut self, units: &BTreeSet<&UnitName>) -> Result<Vec<Found>, Error> {
        let systemd = self.connect().await?;
        let names: Vec<&UnitName> = units.iter().copied().collect();
        let mut all = Vec::new();
        for unit in systemd.units(&names).await? {
            let file_state = systemd.file_state(&unit.name).await?;
            let ends_by_itself = systemd.ends_by_itself(&unit).await?;
            all.push(Found { unit, file_state, ends_by_itself });
        }
        Ok(all)
    }
}

struct Found {
    unit: Unit,
    file_state: Option<String>,
    ends_by_itself: bool,
}

impl Found {
    fn is_missing(&self) -> bool {
        self.unit.load == "not-found" && self.file_state.is_none()
    }

    fn is_masked(&self) -> bool {
        let is_mask = |state: &str| matches!(state, "masked" | "masked-runtime");
        self.unit.load == "masked" || self.file_state.as_deref().is_some_and(is_mask)
    }

    fn state(&self, aspect: Aspect) -> State {
        let file_state = self.file_state.as_deref().unwrap_or("transient");
        match aspect {
            Aspect::Masked => State::Is(self.is_masked()),
            Aspect::Enabled => match file_state {
                "enabled" => State::Is(true),
                "disabled" => State::Is(false),
                // Enabled until the next boot only.
                other => State::Neither(other.to_owned()),
            },
            Aspect::Active => match (self.unit.active.as_str(), self.unit.sub.as_str()) {
                ("active" | "reloading" | "refreshing", _) => State::Is(true),
                ("inactive" | "failed", _) => State::Is(false),
                (active, "auto-restart") => State::Neither(format!("{active} (auto-restart)")),
                (active, _) => State::Neither(active.to_owned()),
            },
        }
    }
}

impl homeostat_core::Reader<Services> for Reader {
    async fn observe(
        &mut self,
        view: &View<'_, Services>,
        see: &mut See<'_, Key, State>,
    ) -> Result<Moment, Failure> {
        let declared = view.desired.iter().map(|(key, _)| key);
        let known: BTreeSet<Key> = declared.chain(view.records.keys()).cloned().collect();
        self.known = known;
        let keys: Vec<Key> =
            self.known.iter().filter(|key| view.focus.covers(key)).cloned().collect();
        let units: BTreeSet<&UnitName> = keys.iter().map(|key| &key.unit).collect();
        let mut moment = Moment::default();
        if units.is_empty() {
            return Ok(moment);
        }
        let found = match self.look(&units).await {
            Ok(found) => found,
            Err(error) if error.is_absent() => {
                self.systemd = None;
                // Declared units wait. Our other units are unknown, not gone: their records stay.
                for key in keys.into_iter().filter(|key| view.records.contains_key(key)) {
                    see(Seen::Unknown { key, why: error.to_string() });
                }
                return Ok(moment);
            }
            Err(error) => {
                self.systemd = None;
                return Err(Failure::soon(&error));
            }
        };
        moment.has_systemd = true;
        let found: BTreeMap<UnitName, Found> =
            found.into_iter().map(|found| (found.unit.name.clone(), found)).collect();
        for key in keys {
            // An alias is listed under the name of the unit that it stands for.
            let Some(found) = found.get(&key.unit) else {
                let why = format!("systemd has {} under another name; declare that one", key.unit);
                see(Seen::Unknown { key, why });
                continue;
            };
            if found.is_masked() {
                moment.masked.insert(key.unit.clone());
            }
            if found.ends_by_itself {
                moment.ends_by_itself.insert(key.unit.clone());
            }
            // Also what does not exist can be masked.
            if found.is_missing() && key.aspect != Aspect::Masked {
                moment.missing.insert(key.unit.clone());
                continue;
            }
            let is_ours = view.records.contains_key(&key);
            let other = self.services.others.get(&key).filter(|_| !is_ours);
            let owner = other
                .map_or(Owner::Nobody, |owner| Owner::Foreign(format!("owner {owner}").into()));
            let object = found.state(key.aspect);
            see(Seen::Present { key, object, owner });
        }
        Ok(moment)
    }

    async fn hint(&mut self) -> Result<Hint<Key>, Failure> {
        let Some(signals) = &mut self.signals else { return std::future::pending().await };
        loop {
            let signal = signals.next().await;
            let signal = signal.map_err(|error| Failure::from_error(&error, Retry::Soon))?;
            let keys: Vec<Key> = match signal {
                Signal::Unit(unit) => {
                    self.known.iter().filter(|key| key.unit == unit).cloned().collect()
                }
                Signal::Files => self.known.iter().cloned().collect(),
            };
            if !keys.is_empty() {
                return Ok(Hint::keys(keys));
            }
        }
    }
}
