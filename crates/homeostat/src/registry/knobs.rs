//! Knobs: `[sysctl]`, a link's `sysctl`, and `[cgroups]`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Result;
use homeostat_document::{Checker, Diagnostic, Scope as Section, Section as _};
use homeostat_engine::book::holdings;
use homeostat_engine::{Bound, LedgerKey, MissingSections, Ownership, Pages};
use homeostat_knobs::section::{self, Cgroups, LinkSysctl, Sysctl, desired, is_stated, knobs};
use homeostat_knobs::{DesiredState, Key, Knobs, Roots};
use rustix::thread::CapabilitySet;

use crate::failure::Misfit;
use crate::missing::Home;
use crate::registry::{Bind, Binding, Registered, Showing, Shown, Start};
use crate::scope::{Reach, Scope};

/// Knobs in the registry.
pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    sections: section::SECTIONS,
    resolve: |_, section, _, checker| section::resolve(section, checker),
    bind,
    wait: |_, section| knobs(section).map(|knob| knob.key.to_string()).collect(),
    namespaces: |_| Vec::new(),
    files: |_, _, _| {},
    capabilities,
    show,
    start: Start::BeforeLinks,
    remote: None,
};

const NAME: &str = <Knobs as homeostat_engine::Source>::NAME;

/// Below `net/` the kernel asks for nothing else, but for the compiler of filters.
fn capabilities(section: &Section) -> CapabilitySet {
    let is_beyond = |key: &Key| match key {
        Key::Sysctl(path) => key.is_host_wide() || path.as_str().contains("bpf_jit"),
        Key::Cgroup(_) => false,
    };
    let beyond = knobs(section).any(|knob| is_beyond(&knob.key));
    if beyond { CapabilitySet::all() } else { CapabilitySet::empty() }
}

/// Which sections are missing. A knob of a link may have been declared in `[sysctl]` or in the link's own
/// section, and the ledger does not say where: it is held if both are missing, or if other knobs of ours show
/// that `[sysctl]` was there and is lost.
fn missing(binding: &Binding<'_>, owned: &[Key], home: Home) -> MissingSections<Key> {
    let cgroups = (!binding.states(Cgroups::NAME)).then(|| home.table(&[Cgroups::NAME]));
    if binding.states(Sysctl::NAME) {
        return MissingSections::new(cgroups, |cgroups, key| match key {
            Key::Cgroup(_) => cgroups.clone(),
            Key::Sysctl(_) => None,
        });
    }
    let sysctl = home.table(&[Sysctl::NAME]);
    let is_global = |key: &Key| matches!(key, Key::Sysctl(_)) && key.link().is_none();
    let is_lost = owned.iter().any(is_global) || !binding.states(LinkSysctl::SECTION);
    let links = binding.section.into_iter().flat_map(Section::extensions::<LinkSysctl>);
    let without = links.filter(|link| link.knobs.is_none());
    let without: BTreeSet<String> = without.map(|link| link.link.clone()).collect();
    let missing = Missing { cgroups, sysctl, is_lost, without, home };
    MissingSections::new(missing, |missing, key: &Key| match (key, key.link()) {
        (Key::Cgroup(_), _) => missing.cgroups.clone(),
        (Key::Sysctl(_), Some(link)) if !missing.is_lost => {
            let path = [LinkSysctl::SECTION, link, LinkSysctl::FIELD];
            missing.without.contains(link).then(|| missing.home.table(&path))
        }
        (Key::Sysctl(_), _) => Some(missing.sysctl.clone()),
    })
}

/// Why what sections declared is held, where `[sysctl]` is missing.
#[derive(PartialEq)]
struct Missing {
    cgroups: Option<String>,
    sysctl: String,
    /// Whether `[sysctl]` was there and is lost.
    is_lost: bool,
    /// The links that are written without their knobs.
    without: BTreeSet<String>,
    home: Home,
}

/// A knob of the whole host must not be reached from a smaller scope.
fn refuse_host_wide(binding: &Binding<'_>, section: &Section) -> Result<(), Misfit> {
    let here = match binding.scope.reach {
        Reach::Host => return Ok(()),
        Reach::Namespace => "a network namespace",
        Reach::Sandbox => "the sandbox",
    };
    let mut checker = Checker::new(binding.document.files.clone());
    for knob in knobs(section).filter(|knob| knob.key.is_host_wide()) {
        let message = format!("`{}` belongs to the whole host, not to {here}", knob.key.value);
        let help = "only knobs under `net` exist once per namespace";
        checker.report(Diagnostic::new(knob.key.span, message).help(help));
    }
    Ok(checker.into_result()?)
}

fn bind(binding: &Binding<'_>) -> Bind {
    let stated = binding.section.is_some_and(is_stated);
    let place = binding.place(NAME);
    let owned: Vec<Key> = holdings::<Knobs>(binding.pages, &place)?.records.into_keys().collect();
    if !stated && owned.is_empty() {
        return Ok(None);
    }
    if let Some(section) = binding.section {
        refuse_host_wide(binding, section)?;
    }
    let desired = binding.section.map(desired).transpose()?.unwrap_or_default();
    let missing = binding.missing(|home| missing(binding, &owned, home));
    let config = binding.config(NAME, missing);
    let source = Knobs { others: others(binding.pages, &place)?, ..source(binding.scope) };
    let ownership = Ownership::Checkpoint;
    let nothing = Some(Arc::new(DesiredState::default()));
    let bound = Bound { source, desired: Arc::new(desired), ownership, config, place, nothing };
    Ok(Some(Box::new(bound)))
}

/// What other owners of this state directory hold: a knob can be kept by one of them only.
fn others(pages: &dyn Pages, place: &LedgerKey) -> Result<BTreeMap<Key, String>> {
    let others = pages.others(place)?.into_iter();
    Ok(others.filter_map(|(owner, key)| Some((key.parse().ok()?, owner))).collect())
}

/// The knobs of a scope on the real machine.
fn source(scope: &Scope) -> Knobs {
    let here = match scope.reach {
        Reach::Host => None,
        Reach::Namespace => Some("a network namespace"),
        Reach::Sandbox => Some("a sandbox"),
    };
    let refusal = |here| {
        format!("{here} has only `net` knobs of its own; this one belongs to the whole host")
    };
    let (host_wide_refusal, gate) = (here.map(refusal), Some(scope.gate.clone()));
    let knobs = Knobs::new(Roots::of_the_system(), Some(Arc::clone(&scope.netns)));
    Knobs { host_wide_refusal, gate, ..knobs }
}

/// The owned knobs, and others.
fn show(showing: &Showing<'_>) -> Result<Shown> {
    let Showing { context, scope, pages, is_full } = showing;
    let knobs = source(scope);
    let owned = holdings::<Knobs>(*pages, &scope.place(&context.owner, NAME))?.records.into_keys();
    let others = if *is_full { knobs.all()? } else { knobs.common()? };
    let found = others.into_iter().chain(knobs.values(owned)?);
    let found = found.map(|(key, value)| (key, value.as_str().to_owned()));
    Ok(Shown { sections: section::show(found), notes: Vec::new() })
}
