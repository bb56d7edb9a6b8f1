//! How a program binds services: `[services]` at the top level.

use std::sync::Arc;

use homeostat_core::{
    Focus, Ownership, Reader as _, Records, Seen, Source as _, StepKind, Undo, View,
};
use homeostat_document::{Checker, Diagnostic, Diagnostics, Section as _};
use homeostat_engine::ledger_page::holdings;
use homeostat_registry::{
    BindResult, Binding, CapabilitySet, Error, MissingSections, OwnScopes, Reach, Registration,
    Shown, Start, machine_identity,
};

use crate::key::Key;
use crate::model::{DesiredState, State};
use crate::section::{self, ServiceSection, desired, keys};
use crate::source::Services;
use crate::step::LOST_BY_A_STOP;

/// What steps do, and how each kind is undone.
const STEP_KINDS: &[StepKind] = &[
    StepKind::new("a unit is enabled, disabled, masked or unmasked", Undo::Record),
    StepKind::new("a unit is started", Undo::Record),
    StepKind::losing("a unit is stopped", Undo::Repeat, LOST_BY_A_STOP),
];

/// Services, for a list of sources.
pub const REGISTRATION: Registration = Registration {
    steps: STEP_KINDS,
    own_scopes: Some(OwnScopes { capabilities: CapabilitySet::empty() }),
    // Links of a trial that a power loss ended are restored before their programs start. But without systemd's own socket
    // there is only the system bus, which comes after the network, which waits for the daemon.
    start: Start::Late,
    show: |binding, _| show(binding),
    written: |section, key| {
        let key: Key = key.parse().ok()?;
        let services = section.get::<ServiceSection>()?.0.iter();
        let mut services = services.filter(|service| service.unit.as_ref() == Some(&key.unit));
        services.next().map(|service| service.name.span)
    },
    waiting: |_, section| keys(section).map(|key| key.to_string()).collect(),
    ..Registration::new(section::SECTIONS, bind)
};

fn bind(binding: &Binding<'_>) -> BindResult {
    if binding.scope.reach != Reach::Host {
        refuse(binding)?;
        return Ok(Vec::new());
    }
    let is_stated = binding.states(ServiceSection::NAME);
    // Links to units are on the disk, and outlive every boot.
    let ledger_key = binding.ledger_key().with_identity(machine_identity());
    let is_ours = binding.pages.places(&binding.caller.owner)?.contains(&ledger_key);
    if !is_stated && !is_ours {
        return Ok(Vec::new());
    }
    let desired = binding.section.map(desired).unwrap_or_default();
    // What other owners of this state directory hold: a value can be kept by one of them only.
    let others = binding.pages.others(&ledger_key)?.into_iter();
    let others = others.filter_map(|(owner, key)| Some((key.parse().ok()?, owner))).collect();
    let source = Services { others, ..Services::of_the_system() };
    let missing = binding.missing(|place| {
        let why = (!is_stated).then(|| place.missing_table(&[ServiceSection::NAME]));
        MissingSections::new(why, |why, _| why.clone())
    });
    let mut bound = binding.bound(source, desired, Ownership::Checkpoint, missing);
    bound.ledger_key = ledger_key;
    Ok(vec![bound])
}

/// The values that we keep, as they are now: a machine has hundreds of units that nobody means to declare.
fn show(binding: &Binding<'_>) -> Result<Shown, Error> {
    let mut shown = Shown::default();
    if binding.scope.reach != Reach::Host {
        return Ok(shown);
    }
    let ledger_key = binding.ledger_key().with_identity(machine_identity());
    let records = holdings::<Services>(binding.pages, &ledger_key)?.records;
    if records.is_empty() {
        return Ok(shown);
    }
    match values(&records) {
        Ok(found) => shown.sections = section::show(found),
        Err(why) => shown.notes.push(format!("Units that are kept here cannot be shown: {why}")),
    }
    Ok(shown)
}

/// What systemd says of recorded values. What is neither true nor false is left out.
fn values(records: &Records<Key, State>) -> Result<Vec<(Key, bool)>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    let observed = runtime.block_on(async {
        let mut reader = Services::of_the_system().reader_without_hints()?;
        let (focus, desired) = (Focus::All, Arc::new(DesiredState::default()));
        let view = View::<Services>::new(&focus, &desired, records);
        let mut see = |seen| {
            if let Seen::Present { key, object: State::Is(value), .. } = seen {
                found.push((key, value));
            }
        };
        reader.observe(&view, &mut see).await
    });
    observed.map_err(|failure| failure.error)?;
    Ok(found)
}

/// Units belong to the whole host, so a run about one namespace keeps none.
fn refuse(binding: &Binding<'_>) -> Result<(), Diagnostics> {
    let mut checker = Checker::new(binding.document.files.clone());
    for service in binding.section.into_iter().flat_map(section::services) {
        let message = format!("`{}` belongs to the host, not to a namespace", service.name.value);
        let help = "run it for the host, or leave `[services]` out";
        checker.report(Diagnostic::new(service.name.span, message).help(help));
    }
    checker.into_result()
}

#[cfg(test)]
mod tests {
    use homeostat_core::Slot;
    use homeostat_testkit::undoing::{self, Example};

    use super::*;
    use crate::key::Aspect;
    use crate::step::Step;

    fn kind_of(step: &Step, desired: &DesiredState) -> &'static str {
        let Some((key, value)) = step.write(desired) else {
            return "a unit is enabled, disabled, masked or unmasked";
        };
        match (key.aspect, value) {
            (Aspect::Enabled | Aspect::Masked, _) => {
                "a unit is enabled, disabled, masked or unmasked"
            }
            (Aspect::Active, true) => "a unit is started",
            (Aspect::Active, false) => "a unit is stopped",
        }
    }

    #[test]
    fn every_step_is_undone_as_the_list_of_its_kinds_says() {
        let key = |word: &str| format!("service a.service {word}").parse::<Key>().unwrap();
        let words = ["active", "enabled", "masked"];
        for value in [true, false] {
            let desired = DesiredState::new(words.map(|word| (key(word), value)));
            let set = |at| {
                let (before, adopts, phase) = (State::Is(!value), None, 0);
                Step::Set { slot: Slot::at(at), before, adopts, phase }
            };
            let released = words.into_iter().flat_map(|word| {
                [None, Some(true), Some(false)].map(|restore| {
                    let before = State::Is(value);
                    Step::Release { key: key(word), before, restore }
                })
            });
            let steps = (0..3).map(set).chain(released);
            let examples = steps.map(|step| Example::on_a_value(kind_of(&step, &desired), step));
            undoing::check(STEP_KINDS, &desired, examples).unwrap();
        }
    }
}
