//! How a program binds ethtool: `ethtool` of links.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::{
    Focus, Ownership, Reader as _, Records, Seen, Source as _, StepKind, Undo, View,
};
use homeostat_registry::{
    BindResult, Binding, DocumentPlace, Error, MissingSections, Registration, Shown,
};

use crate::key::Key;
use crate::model::{DesiredState, Value};
use crate::section::{self, LinkEthtool, desired, links};
use crate::source::Ethtool;

/// What steps do, and how each kind is undone.
const STEP_KINDS: &[StepKind] =
    &[StepKind::new("a setting of a link's driver is written", Undo::Record)];

/// Ethtool, for a list of sources.
pub const REGISTRATION: Registration = Registration {
    steps: STEP_KINDS,
    written: |section, key| section::written(section, &key.parse().ok()?),
    waiting: |_, section| section::keys(section).map(|key| key.to_string()).collect(),
    show: |binding, _| show(binding),
    ..Registration::new(section::SECTIONS, bind)
};

fn bind(binding: &Binding<'_>) -> BindResult {
    let is_stated =
        binding.section.is_some_and(|section| links(section).any(|link| link.table.is_some()));
    if !is_stated && binding.holdings::<Ethtool>()?.is_empty() {
        return Ok(Vec::new());
    }
    let desired = binding.section.map(desired).unwrap_or_default();
    // What other owners of this state directory hold: a setting can be kept by one of them only.
    let others = binding.pages.others(&binding.ledger_key())?.into_iter();
    let others = others.filter_map(|(owner, key)| Some((key.parse().ok()?, owner))).collect();
    let source = Ethtool { others, ..source(binding) };
    let missing = binding.missing(|place| missing(binding, place));
    Ok(vec![binding.bound(source, desired, Ownership::Checkpoint, missing)])
}

fn source(binding: &Binding<'_>) -> Ethtool {
    Ethtool::new(Some(Arc::clone(&binding.scope.netns)))
}

#[derive(PartialEq)]
struct Missing {
    /// `[links]`.
    links: bool,
    /// The links that are written without a section of their own.
    without: BTreeSet<String>,
    place: DocumentPlace,
}

fn missing(binding: &Binding<'_>, place: DocumentPlace) -> MissingSections<Key> {
    let written = binding.section.into_iter().flat_map(links);
    let without = written.filter(|link| link.table.is_none()).map(|link| link.link.clone());
    let missing =
        Missing { links: !binding.states(LinkEthtool::SECTION), without: without.collect(), place };
    MissingSections::new(missing, Missing::why)
}

impl Missing {
    /// Why the removal of a key is held.
    fn why(&self, key: &Key) -> Option<String> {
        let table = |path: &[&str]| Some(self.place.missing_table(path));
        if self.links {
            return table(&[LinkEthtool::SECTION]);
        }
        let path = [LinkEthtool::SECTION, &key.link, LinkEthtool::FIELD];
        self.without.contains(&key.link).then(|| table(&path)).flatten()
    }
}

/// The settings that we keep, as they are now: a card has hundreds that nobody means to declare.
fn show(binding: &Binding<'_>) -> Result<Shown, Error> {
    let mut shown = Shown::default();
    let records = binding.holdings::<Ethtool>()?.records;
    if records.is_empty() {
        return Ok(shown);
    }
    match values(&source(binding), &records) {
        Ok(found) => shown.sections = section::show(found),
        Err(why) => shown.notes.push(format!("Settings of drivers cannot be shown: {why}")),
    }
    Ok(shown)
}

fn values(source: &Ethtool, records: &Records<Key, Value>) -> Result<Vec<(Key, Value)>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    let observed = runtime.block_on(async {
        let mut reader = source.reader()?;
        let (focus, desired) = (Focus::All, Arc::new(DesiredState::default()));
        let view = View::<Ethtool>::new(&focus, &desired, records);
        let mut see = |seen| {
            if let Seen::Present { key, object, .. } = seen {
                found.push((key, object));
            }
        };
        reader.observe(&view, &mut see).await
    });
    observed.map_err(|failure| failure.error)?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use homeostat_core::Slot;
    use homeostat_testkit::undoing::{self, Example};

    use super::*;
    use crate::step::Step;

    #[test]
    fn every_step_is_undone_as_the_list_of_its_kinds_says() {
        let key: Key = "ethtool eth0 feature tso".parse().unwrap();
        let desired = DesiredState::new([(key.clone(), Value::Switch(true))]);
        let before = Value::Switch(false);
        let set = Step::Set { slot: Slot::at(0), before: before.clone(), adopts: None };
        let release = Step::Release { key, before, restore: Some(Value::Switch(true)) };
        let kind = "a setting of a link's driver is written";
        let examples = [set, release].map(|step| Example::on_a_value(kind, step));
        undoing::check(STEP_KINDS, &desired, examples).unwrap();
    }

    #[test]
    fn a_lost_section_of_a_link_holds_what_it_declared() {
        let key: Key = "ethtool eth0 wol".parse().unwrap();
        let place = || DocumentPlace::Top;
        let missing = |links: bool, without: &[&str]| {
            let without = without.iter().map(|link| (*link).to_owned()).collect();
            Missing { links, without, place: place() }.why(&key)
        };
        assert!(missing(true, &[]).unwrap().starts_with("`[links]` is missing"));
        assert!(
            missing(false, &["eth0"]).unwrap().starts_with("`[links.eth0.ethtool]` is missing")
        );
        assert_eq!(missing(false, &["eth1"]), None);
    }
}
