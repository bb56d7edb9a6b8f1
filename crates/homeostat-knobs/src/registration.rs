//! How a program binds knobs: `[sysctl]`, a link's `sysctl`, `[sysfs]` and `[cgroups]`.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::{Ownership, StepKind, Undo};
use homeostat_document::{Checker, Diagnostic, Diagnostics, Scope as Section, Section as _};
use homeostat_registry::{
    BindResult, Binding, CapabilitySet, DocumentPlace, Error, Extent, MissingSections, Reach,
    Registration, Shown, Start,
};

use crate::gate::Gate;
use crate::key::Key;
use crate::plan::ONE_WAY;
use crate::section::{self, Cgroups, LinkSysctl, Sysctl, SysfsKnobs, desired, is_stated, knobs};
use crate::show;
use crate::source::{Knobs, Roots};

/// What steps do, and how each kind is undone.
const STEP_KINDS: &[StepKind] = &[
    StepKind::new("a sysctl, a file of sysfs or a limit is written", Undo::Record),
    StepKind::losing(
        "IPv6 is turned off where others have addresses, routes or neighbours",
        Undo::Never,
        "those objects",
    ),
    StepKind::losing("`kernel.modules_disabled` is written", Undo::Never, ONE_WAY[0].1),
    StepKind::losing("`kernel.kexec_load_disabled` is written", Undo::Never, ONE_WAY[1].1),
    StepKind::losing("`kernel.unprivileged_bpf_disabled` is written", Undo::Never, ONE_WAY[2].1),
    StepKind::losing("`kernel.yama.ptrace_scope` is written", Undo::Never, ONE_WAY[3].1),
    StepKind::losing(
        "`devices/system/cpu/smt/control` of sysfs is written",
        Undo::Never,
        ONE_WAY[4].1,
    ),
    StepKind::losing(
        "`module/apparmor/parameters/lock_policy` of sysfs is written",
        Undo::Never,
        ONE_WAY[5].1,
    ),
];

/// Knobs, for a list of sources.
pub const REGISTRATION: Registration = Registration {
    steps: STEP_KINDS,
    resolve: |section, _, checker| section::resolve(section, checker),
    waiting: |_, section| knobs(section).map(|knob| knob.key.to_string()).collect(),
    written: |section, key| {
        knobs(section).find(|knob| knob.key.to_string() == key).map(|knob| knob.key.span)
    },
    capabilities,
    show,
    start: Start::BeforeLinks,
    ..Registration::new(section::SECTIONS, bind)
};

/// Below `net/` the kernel asks for nothing else, but for the compiler of filters. The sysfs of a namespace is mounted.
fn capabilities(section: &Section) -> CapabilitySet {
    let needed = |key: &Key| match key {
        Key::Sysctl(path) if key.is_host_wide() || path.as_str().contains("bpf_jit") => {
            CapabilitySet::all()
        }
        Key::Sysfs(_) if key.is_host_wide() => CapabilitySet::all(),
        Key::Sysfs(_) => CapabilitySet::SYS_ADMIN,
        Key::Sysctl(_) | Key::Cgroup(_) => CapabilitySet::empty(),
    };
    knobs(section).map(|knob| needed(&knob.key)).fold(CapabilitySet::empty(), CapabilitySet::union)
}

fn bind(binding: &Binding<'_>) -> BindResult {
    let held = binding.holdings::<Knobs>()?;
    let owned: Vec<Key> = held.keys().into_iter().cloned().collect();
    if !binding.section.is_some_and(is_stated) && held.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(section) = binding.section {
        refuse_host_wide(binding, section)?;
    }
    let desired = binding.section.map(desired).transpose();
    let desired = desired.map_err(|error| Error::failed(&error))?.unwrap_or_default();
    // What other owners of this state directory hold: a knob can be kept by one of them only.
    let others = binding.pages.others(&binding.ledger_key())?.into_iter();
    let others = others.filter_map(|(owner, key)| Some((key.parse().ok()?, owner))).collect();
    let gate = Gate { is_open: binding.gate.subscribe(), on: binding.gate.on().into() };
    let source = Knobs { others, gate: Some(gate), ..source(binding) };
    let missing = binding.missing(|place| missing(binding, &owned, place));
    Ok(vec![binding.bound(source, desired, Ownership::Checkpoint, missing)])
}

/// The knobs of a scope on the real machine.
fn source(binding: &Binding<'_>) -> Knobs {
    let here = match binding.scope.reach {
        Reach::Host => None,
        Reach::Namespace => Some("a network namespace"),
        Reach::Sandbox => Some("a sandbox"),
    };
    let refusal = |here| {
        format!(
            "{here} has only `net` knobs of its own, and `class/net` in sysfs; this one belongs to the whole host"
        )
    };
    let knobs = Knobs::new(Roots::of_the_system(), Some(Arc::clone(&binding.scope.netns)));
    Knobs { host_wide_refusal: here.map(refusal), ..knobs }
}

/// A knob of the whole host must not be reached from a smaller scope.
fn refuse_host_wide(binding: &Binding<'_>, section: &Section) -> Result<(), Diagnostics> {
    let here = match binding.scope.reach {
        Reach::Host => return Ok(()),
        Reach::Namespace => "a network namespace",
        Reach::Sandbox => "the sandbox",
    };
    let mut checker = Checker::new(binding.document.files.clone());
    for knob in knobs(section).filter(|knob| knob.key.is_host_wide()) {
        let message = format!("`{}` belongs to the whole host, not to {here}", knob.key.value);
        let help = "only knobs under `net`, and `class/net` in sysfs, exist once per namespace";
        checker.report(Diagnostic::new(knob.key.span, message).help(help));
    }
    checker.into_result()
}

/// Which sections are missing. A knob of a link may have been declared in `[sysctl]` or in the link's own section, and
/// the ledger does not say where: it is held if the link is written without its section, or if `[sysctl]` is missing and
/// was there, as other knobs of ours show, or no link is written.
fn missing(binding: &Binding<'_>, owned: &[Key], place: DocumentPlace) -> MissingSections<Key> {
    let is_global = |key: &Key| matches!(key, Key::Sysctl(_)) && key.link().is_none();
    let links = binding.section.into_iter().flat_map(Section::extensions::<LinkSysctl>);
    let without = links.filter(|link| link.knobs.is_none());
    let sysctl = !binding.states(Sysctl::NAME);
    let had_sysctl = owned.iter().any(is_global) || !binding.states(LinkSysctl::SECTION);
    let missing = Missing {
        cgroups: !binding.states(Cgroups::NAME),
        sysctl,
        sysfs: !binding.states(SysfsKnobs::NAME),
        every_link: sysctl && had_sysctl,
        links: without.map(|link| link.link.clone()).collect(),
        place,
    };
    MissingSections::new(missing, Missing::why)
}

#[derive(PartialEq)]
struct Missing {
    cgroups: bool,
    /// `[sysctl]`.
    sysctl: bool,
    sysfs: bool,
    /// Whether `[sysctl]` may have declared the knobs of any link.
    every_link: bool,
    /// The links that are written without a section of their own.
    links: BTreeSet<String>,
    place: DocumentPlace,
}

impl Missing {
    /// Why the removal of a key is held.
    fn why(&self, key: &Key) -> Option<String> {
        let sysctl = || self.place.missing_table(&[Sysctl::NAME]);
        match (key, key.link()) {
            (Key::Cgroup(_), _) => self.cgroups.then(|| self.place.missing_table(&[Cgroups::NAME])),
            (Key::Sysfs(_), _) => self.sysfs.then(|| self.place.missing_table(&[SysfsKnobs::NAME])),
            (_, None) => self.sysctl.then(sysctl),
            (_, Some(_)) if self.every_link => Some(sysctl()),
            (_, Some(link)) => self
                .links
                .contains(link)
                .then(|| self.place.missing_table(&[LinkSysctl::SECTION, link, LinkSysctl::FIELD])),
        }
    }
}

/// The owned knobs, and others.
fn show(binding: &Binding<'_>, extent: Extent) -> Result<Shown, Error> {
    let knobs = source(binding);
    let others = if extent.every_knob { show::all(&knobs)? } else { show::common(&knobs)? };
    let held = binding.holdings::<Knobs>()?;
    let owned = show::values(&knobs, held.keys().into_iter().cloned())?;
    let found = others.into_iter().chain(owned);
    let found = found.map(|(key, value)| (key, value.as_str().to_owned()));
    Ok(Shown {
        sections: section::show(found),
        notes: Binding::notes_of(&held),
        ..Shown::default()
    })
}

#[cfg(test)]
mod tests {
    use homeostat_core::{Desired as _, Owner, Taken};
    use homeostat_testkit::undoing::{self, Example};

    use super::*;
    use crate::coupled::Coupled;
    use crate::model::{DesiredState, Value};
    use crate::plan::{Step, Why};

    fn nothing() -> Missing {
        let (cgroups, sysctl, sysfs, every_link) = (false, false, false, false);
        let (links, place) = (BTreeSet::new(), DocumentPlace::Top);
        Missing { cgroups, sysctl, sysfs, every_link, links, place }
    }

    /// The rest is tested with the program: control groups need a kernel whose hierarchy is ours.
    #[test]
    fn a_lost_section_of_cgroups_is_named() {
        let key = "cgroup machine/web memory.max".parse().unwrap();
        let lost = Missing { cgroups: true, ..nothing() }.why(&key).unwrap();
        assert!(lost.starts_with("`[cgroups]` is missing from the document"), "{lost}");
        assert!(lost.ends_with("write an empty `[cgroups]`"), "{lost}");
        assert_eq!(nothing().why(&key), None);
    }

    /// The list names each knob that cannot be set back.
    fn kind_of(step: &Step, desired: &DesiredState) -> &'static str {
        let is_taking = match step {
            Step::Set { takes, .. } | Step::Release { takes, .. } => !takes.is_empty(),
        };
        let path = step.key_in(desired).path();
        let at = ONE_WAY.iter().position(|(knob, _)| path.ends_with(knob));
        let at = if is_taking { 1 } else { at.map_or(0, |at| at + 2) };
        STEP_KINDS[at].step
    }

    #[test]
    fn every_step_is_undone_as_the_list_of_its_kinds_says() {
        let off = Key::sysctl("net.ipv6.conf.lo.disable_ipv6").unwrap();
        let of_sysctl = |path: &str| path.starts_with("kernel/");
        let one_way = ONE_WAY.map(|(path, _)| {
            if of_sysctl(path) { Key::sysctl(path) } else { Key::sysfs(path) }.unwrap()
        });
        let forward = Key::sysctl("net.ipv4.ip_forward").unwrap();
        let knobs: Vec<Key> = one_way.into_iter().chain([forward, off.clone()]).collect();
        let builder = knobs
            .iter()
            .cloned()
            .fold(DesiredState::builder(), |builder, knob| builder.knob(knob, "1").unwrap());
        let desired = builder.build().unwrap();
        let lost = Taken::new("address 2001:db8::1/64 dev lo", Owner::foreign("somebody"));
        let steps = knobs.into_iter().flat_map(|key| {
            let slot = desired.slot(&key, None).unwrap();
            let before = Value::of(&key, "0");
            let takes = if key == off { vec![lost.clone()] } else { Vec::new() };
            let (why, restore) = (Why::Differs, Some(Value::of(&key, "1")));
            let set =
                Step::Set { slot, before: before.clone(), why, phase: 0, takes: takes.clone() };
            [set, Step::Release { key, before, restore, coupled: Coupled::default(), takes }]
        });
        let examples = steps.map(|step| Example::on_a_value(kind_of(&step, &desired), step));
        undoing::check(STEP_KINDS, &desired, examples).unwrap();
    }
}
