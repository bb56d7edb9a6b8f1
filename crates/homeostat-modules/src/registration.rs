//! How a program binds modules: `modules` at the top level.

use homeostat_core::{Ownership, StepKind, Undo};
use homeostat_document::{Checker, Diagnostic, Diagnostics, Section as _};
use homeostat_registry::{
    BindResult, Binding, CapabilitySet, MissingSections, Reach, Registration, Start,
};

use crate::key::Key;
use crate::section::{self, ModuleSection, desired, modules};
use crate::source::Modules;
use crate::step::STAYS;

/// What steps do, and how each kind is undone.
const STEP_KINDS: &[StepKind] = &[StepKind::losing("a module is loaded", Undo::Repeat, STAYS)];

/// Modules, for a list of sources.
pub const REGISTRATION: Registration = Registration {
    steps: STEP_KINDS,
    start: Start::First,
    capabilities: |section| {
        let is_declared = modules(section).next().is_some();
        if is_declared { CapabilitySet::SYS_MODULE } else { CapabilitySet::empty() }
    },
    written: |section, key| {
        let Key(name) = key.parse().ok()?;
        modules(section).find(|module| module.value == name).map(|module| module.span)
    },
    waiting: |_, section| section::keys(section).map(|key| key.to_string()).collect(),
    ..Registration::new(section::SECTIONS, bind)
};

fn bind(binding: &Binding<'_>) -> BindResult {
    if binding.scope.reach != Reach::Host {
        refuse(binding)?;
        return Ok(Vec::new());
    }
    let is_stated = binding.states(ModuleSection::NAME);
    if !is_stated && binding.holdings::<Modules>()?.is_empty() {
        return Ok(Vec::new());
    }
    let desired = binding.section.map(desired).unwrap_or_default();
    // Nothing goes with a list that is missing, so nothing of it is held.
    let missing = binding.missing(|_| MissingSections::new((), |(), _| None));
    Ok(vec![binding.bound(Modules::of_the_system(), desired, Ownership::Checkpoint, missing)])
}

/// The kernel is the whole host's, so a run about one namespace loads nothing.
fn refuse(binding: &Binding<'_>) -> Result<(), Diagnostics> {
    let here = match binding.scope.reach {
        Reach::Sandbox => "a sandbox",
        Reach::Host | Reach::Namespace => "a namespace",
    };
    let mut checker = Checker::new(binding.document.files.clone());
    for name in binding.section.into_iter().flat_map(modules) {
        let message = format!("the module `{}` belongs to the host, not to {here}", name.value);
        let help = "run it for the host, or leave `modules` out";
        checker.report(Diagnostic::new(name.span, message).help(help));
    }
    checker.into_result()
}

#[cfg(test)]
mod tests {
    use homeostat_core::Slot;
    use homeostat_testkit::undoing::{self, Example};

    use super::*;
    use crate::model::DesiredState;
    use crate::step::Step;

    #[test]
    fn every_step_is_undone_as_the_list_of_its_kinds_says() {
        let desired = DesiredState::new(["8021q".parse().unwrap()]);
        let load = Example::on_a_value("a module is loaded", Step::Load { slot: Slot::at(0) });
        undoing::check(STEP_KINDS, &desired, [load]).unwrap();
    }
}
