//! How a program binds services: `[services]` at the top level.

use homeostat_core::{Ownership, StepKind, Undo};
use homeostat_document::{Checker, Diagnostic, Diagnostics, Section as _};
use homeostat_registry::{
    BindResult, Binding, CapabilitySet, MissingSections, OwnScopes, Reach, Registration, Start,
    machine_identity,
};

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
