//! How a program binds sets of files: each `[files.NAME]` is a scope of its own.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use homeostat_core::{Failure, Ownership, Retry, StepKind, Undo};
use homeostat_document::{Checker, Diagnostic, Scope as Section, Section as _};
use homeostat_engine::ledger_page::holdings;
use homeostat_engine::{MassDelete, Planner};
use homeostat_registry::{
    BindResult, Binding, CapabilitySet, DocumentPlace, Error, Memory, MissingSections, OwnScopes,
    Reach, Registration, Sample, SampleKind, Scope, Shown, machine_identity,
};

use crate::brake::Brake;
use crate::check::{Check, Network};
use crate::counters::{Count, Counters, CountersBySet};
use crate::live::LiveInputs;
use crate::model::DesiredState;
use crate::plan::LOST_BY_A_RELOAD;
use crate::programs::Known;
use crate::resolver::{self, Resolver};
use crate::running::{Program, Reload, Request};
use crate::section::{self, ProgramSection, Set, Sets, sets};
use crate::source::{CERTIFICATE_DAYS, Files, Shrinking};
use crate::store::Store;
use crate::unit::Unit;

/// What steps do, and how each kind is undone.
const STEP_KINDS: &[StepKind] = &[
    StepKind::new("a file or a directory is made, changed or deleted", Undo::Record),
    StepKind::losing(
        "a program takes its files over, by a reload or a restart",
        Undo::Repeat,
        LOST_BY_A_RELOAD,
    ),
    StepKind::new(
        "a running HAProxy gets other servers, maps or certificates",
        Undo::FormerDesired,
    ),
];

/// Sets of files, for a list of sources.
pub const REGISTRATION: Registration = Registration {
    steps: STEP_KINDS,
    resolve: |section, _, checker| section::resolve(section, checker),
    waiting: |_, section| {
        sets(section).flat_map(section::keys).map(|key| key.to_string()).collect()
    },
    files: section::files,
    capabilities,
    namespaces: |section| {
        let names = sets(section).filter_map(|set| set.namespace.as_ref());
        names.map(|name| name.value.to_string()).collect()
    },
    show: |binding, _| show(binding),
    metrics,
    own_scopes: Some(OwnScopes { capabilities: CAPABILITIES }),
    ..Registration::new(section::SECTIONS, bind)
};

/// To give files to others, and to write where others may.
const CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// To build the view in which programs judge a set, and to let them behave there as they do when they start.
const OF_CHECKS: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID);

/// To know which process has changed a file.
const OF_HINTS: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// What it takes to reload a program and to ask it. Programs that are started for it are started as they are. Systemd and
/// sockets ask for nothing more than that we are root.
fn of_program(section: &ProgramSection) -> CapabilitySet {
    let ProgramSection { reload, restart, running, .. } = section;
    let starts = |request: &Request| matches!(request, Request::Run(_));
    let starts_reload = match reload {
        Reload::Send(request) => starts(request),
        Reload::Signal(_) | Reload::Unit(_) => false,
    };
    if starts_reload || restart.is_some() || running.as_ref().is_some_and(|one| starts(&one.ask)) {
        return CapabilitySet::all();
    }
    match reload {
        Reload::Signal(_) => CapabilitySet::KILL,
        Reload::Send(_) | Reload::Unit(_) => CapabilitySet::empty(),
    }
}

fn capabilities(section: &Section) -> CapabilitySet {
    let of = |set: &Set| {
        let check = set.check.as_ref().map(|_| OF_CHECKS);
        let program = set.program.as_ref().map(of_program);
        let all = [check, program, Some(OF_HINTS)].into_iter().flatten();
        all.fold(CAPABILITIES, CapabilitySet::union)
    };
    sets(section).map(of).fold(CapabilitySet::empty(), CapabilitySet::union)
}

/// In a sandbox this is an empty file system of its own, and everything else is the host's.
const OF_A_SANDBOX: &str = "/run/";

/// What a set is called among scopes.
const SCOPE: &str = "files/";

fn bind(binding: &Binding<'_>) -> BindResult {
    let declared: Vec<&Set> = binding.section.into_iter().flat_map(sets).collect();
    let is_own = |set: &&Set| set.paths().all(|path| path.as_str().starts_with(OF_A_SANDBOX));
    match binding.scope.reach {
        Reach::Host => {}
        Reach::Sandbox if declared.iter().all(is_own) => {}
        Reach::Sandbox | Reach::Namespace => {
            return refuse_elsewhere(binding, &declared).map(|()| Vec::new());
        }
    }
    let identity = machine_identity();
    // Those that the document names, and those that the ledger knows.
    let mut all: BTreeMap<String, Option<&Set>> = BTreeMap::new();
    for key in binding.pages.places(&binding.caller.owner)? {
        let is_ours = key.source == binding.source.name() && key.identity == identity;
        if let Some(name) = key.scope.strip_prefix(SCOPE).filter(|_| is_ours) {
            all.insert(name.to_owned(), None);
        }
    }
    all.extend(declared.iter().map(|set| (set.name.value.to_string(), Some(*set))));
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let store = store(binding)?;
    let bound = all.into_iter().map(|(name, set)| bind_set(binding, &store, &identity, &name, set));
    bound.collect()
}

fn bind_set(
    binding: &Binding<'_>,
    store: &Store,
    identity: &str,
    name: &str,
    set: Option<&Set>,
) -> Result<Box<dyn Planner>, Error> {
    let desired = set.map(|set| desired(binding, set)).transpose()?;
    let missing = binding.missing(|place| missing(binding, name, set, &place));
    let network = set.map_or(Ok(Network::Here), |set| network(binding, set))?;
    let arguments = set.and_then(|set| set.check.clone());
    let section = set.and_then(|set| set.program.clone());
    let known = section.as_ref().and_then(|section| section.known.as_ref());
    // Another program that judges the set has its own words.
    let is_of_profile = |known: &&Known| {
        let of_profile = (known.profile.check)(&known.main);
        arguments.as_ref().is_some_and(|arguments| arguments.first() == of_profile.first())
    };
    let profile = known.filter(is_of_profile).map(|known| known.profile);
    // A sandbox may not make the mounts of a view; what it has is read by none of the host's programs.
    let arguments = arguments.filter(|_| binding.scope.reach != Reach::Sandbox);
    let check = arguments.map(|arguments| Check { arguments, network: network.clone(), profile });
    let program = section.map(|section| {
        let ProgramSection { reload, known, pid_file, unit, restart, running, within, limits } =
            section;
        let unit = unit.map(Unit::of_the_system);
        let (network, note) = (network.clone(), None);
        Program { reload, pid_file, unit, restart, running, within, limits, network, note, known }
    });
    let brakes: Brakes = binding.caller.memory.of();
    let mut brakes = brakes.0.lock().unwrap_or_else(PoisonError::into_inner);
    let brake =
        Arc::clone(brakes.entry((store.directory().to_owned(), name.to_owned())).or_default());
    let source = Files::new(name, store.clone()).checked_by(check).read_by(program);
    let counters = binding.caller.memory.of::<CountersBySet>().of(name);
    let shrinking = match binding.caller.guards.mass_delete {
        MassDelete::Allow => Shrinking::Allow,
        MassDelete::Hold => Shrinking::Hold { option: binding.caller.guards.options.mass_delete },
    };
    let source =
        source.braked_by(brake).counted_by(counters).sharing(live_inputs(binding, store, name));
    let certificate_days = set.and_then(|set| set.certificate_days).unwrap_or(CERTIFICATE_DAYS);
    let source = Files { shrinking, certificate_days, network, ..source };
    let desired: DesiredState = desired.unwrap_or_default();
    let mut bound = binding.bound(source, desired, Ownership::Checkpoint, missing);
    bound.ledger_key.scope = format!("{SCOPE}{name}");
    identity.clone_into(&mut bound.ledger_key.identity);
    Ok(bound)
}

/// What a set declares: it is made when it is looked at.
fn desired(binding: &Binding<'_>, set: &Set) -> Result<DesiredState, Error> {
    let values = binding.section.map(section::values).unwrap_or_default();
    let recipe = set.recipe(&binding.document.files.directory(set.name.span), values);
    let recipe = recipe.map_err(|unusable| {
        let mut checker = Checker::new(binding.document.files.clone());
        unusable.report(set, &mut checker);
        checker.into_result().err().map_or_else(
            || Error::from(Failure::new("a template cannot be read", Retry::Soon)),
            Error::from,
        )
    })?;
    Ok(DesiredState::made_of(Arc::new(recipe)))
}

/// The values of a set's inputs, which outlive the binding.
fn live_inputs(binding: &Binding<'_>, store: &Store, set: &str) -> LiveInputs {
    let all: AllInputs = binding.caller.memory.of();
    let mut all = all.0.lock().unwrap_or_else(PoisonError::into_inner);
    all.entry(store.directory().join(set)).or_default().clone()
}

#[derive(Clone, Default)]
struct AllInputs(Arc<Mutex<HashMap<PathBuf, LiveInputs>>>);

fn network(binding: &Binding<'_>, set: &Set) -> Result<Network, Error> {
    Ok(match &set.namespace {
        None => Network::Here,
        Some(name) => match Scope::referred(binding.document, &name.value)? {
            Some(netns) => Network::In(netns),
            None => Network::Missing(name.value.to_string()),
        },
    })
}

/// A set that is not written while others are was removed on purpose.
fn missing<K: 'static>(
    binding: &Binding<'_>,
    name: &str,
    set: Option<&Set>,
    place: &DocumentPlace,
) -> MissingSections<K> {
    let section = if name == resolver::SET { Resolver::NAME } else { Sets::NAME };
    if set.is_some() || binding.states(section) {
        return MissingSections::default();
    }
    MissingSections::all(place.missing_table(&[section]))
}

/// What is kept of all sets of an owner. Its key must stay the same until it is written.
fn store(binding: &Binding<'_>) -> Result<Store, Error> {
    let caller = binding.caller;
    let directory = caller.state_dir.join("files").join(&caller.owner);
    let stores: Stores = caller.memory.of();
    let mut stores = stores.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(store) = stores.get(&directory) {
        return Ok(store.clone());
    }
    let store = Store::open(&directory).map_err(|error| {
        let text = format!("{} cannot be read: {error}", directory.display());
        Failure::new(text, Retry::Soon).with_help("it can be read by root only")
    })?;
    stores.insert(directory, store.clone());
    Ok(store)
}

/// A file does not say what it was made of, so a document cannot be made of files: the sets are only named.
fn show(binding: &Binding<'_>) -> Result<Shown, Error> {
    let (identity, mut kept) = (machine_identity(), Vec::new());
    for key in binding.pages.places(&binding.caller.owner)? {
        let is_ours = key.source == binding.source.name() && key.identity == identity;
        let Some(name) = key.scope.strip_prefix(SCOPE).filter(|_| is_ours) else { continue };
        let paths = holdings::<Files>(binding.pages, &key)?.records.into_keys();
        let paths: Vec<String> = paths.map(|key| key.to_string()).collect();
        if !paths.is_empty() {
            kept.push(format!("{name} ({})", paths.join(", ")));
        }
    }
    let mut shown = Shown::default();
    if !kept.is_empty() {
        let kept = kept.join(", ");
        shown.notes.push(format!("Sets of files that are kept here, and not shown: {kept}"));
    }
    Ok(shown)
}

/// What is counted of a set: how it is called, and for people.
type Metric = (SampleKind, &'static str, &'static str, fn(&Counters) -> &Count);

const METRICS: [Metric; 5] = [
    (SampleKind::Counter, "files_reloads", "Reloads of programs", |all| &all.reloads),
    (
        SampleKind::Counter,
        "files_runtime_changes",
        "Commands to running programs that took the place of a reload",
        |all| &all.runtime_changes,
    ),
    (
        SampleKind::Counter,
        "files_runtime_refused",
        "Changes of running programs that they did not take, and that became a reload",
        |all| &all.refused_changes,
    ),
    (SampleKind::Counter, "files_checks_refused", "Sets that a check has refused", |all| {
        &all.refused_checks
    }),
    (
        SampleKind::Gauge,
        "files_old_processes",
        "Processes that a reload replaced and that still serve connections",
        |all| &all.old_processes,
    ),
];

const DAYS_METRIC: &str = "files_certificate_days";

fn metrics(memory: &Memory) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (set, counters) in memory.of::<CountersBySet>().all() {
        samples.extend(METRICS.map(|(kind, name, help, read)| {
            let (scope, value) = (format!("{SCOPE}{set}"), read(&counters).get());
            Sample { kind, name, help, scope, value }
        }));
        samples.extend(counters.certificate_days.get().map(|value| Sample {
            kind: SampleKind::Gauge,
            name: DAYS_METRIC,
            help: "Whole days until the first certificate of a set ends",
            scope: format!("{SCOPE}{set}"),
            value,
        }));
    }
    samples
}

#[derive(Clone, Default)]
struct Stores(Arc<Mutex<HashMap<PathBuf, Store>>>);

/// When programs were reloaded last, by the state directory and the name of their sets.
#[derive(Clone, Default)]
struct Brakes(Arc<Mutex<BrakesBySet>>);

type BrakesBySet = HashMap<(PathBuf, String), Arc<Mutex<Brake>>>;

fn refuse_elsewhere(binding: &Binding<'_>, declared: &[&Set]) -> Result<(), Error> {
    let here = match binding.scope.reach {
        Reach::Host | Reach::Namespace => "a network namespace",
        Reach::Sandbox => "the sandbox",
    };
    let mut checker = Checker::new(binding.document.files.clone());
    for set in declared {
        let message =
            format!("the files of `{}` belong to the whole host, not to {here}", set.name.value);
        let help =
            format!("a sandbox keeps files below {OF_A_SANDBOX} only, and does not check them");
        checker.report(Diagnostic::new(set.name.span, message).help(help));
    }
    Ok(checker.into_result()?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use homeostat_core::Slot;
    use homeostat_systemd::JobKind;
    use homeostat_testkit::undoing::{self, Example};
    use rustix::process::Signal;

    use super::*;
    use crate::brake::Limits;
    use crate::digest::DigestKey;
    use crate::key::Key;
    use crate::model::{Attributes, Difference, FileObject, Object};
    use crate::plan::{Left, Step};
    use crate::running::Running;

    #[test]
    fn the_docs_name_every_metric_and_no_other() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/daemon.md");
        let page = std::fs::read_to_string(page).unwrap();
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let words = page.split(|letter| !is_part(letter));
        let documented: std::collections::BTreeSet<&str> =
            words.filter(|word| word.starts_with("homeostat_files_")).collect();
        let names = METRICS.iter().map(|(kind, name, ..)| match kind {
            SampleKind::Counter => format!("homeostat_{name}_total"),
            SampleKind::Gauge => format!("homeostat_{name}"),
        });
        let names: Vec<String> = names.chain([format!("homeostat_{DAYS_METRIC}")]).collect();
        assert_eq!(documented, names.iter().map(String::as_str).collect());
    }

    #[test]
    fn a_program_that_nobody_starts_costs_few_capabilities() {
        let run = || Request::Run(vec!["/bin/true".to_owned()]);
        let socket = || Request::Socket { path: PathBuf::from("/run/a"), send: String::new() };
        let section = |reload, ask: Option<Request>, restart| ProgramSection {
            reload,
            known: None,
            pid_file: None,
            unit: None,
            restart,
            running: ask.map(|ask| Running { ask, is: String::new() }),
            within: Duration::ZERO,
            limits: Limits::default(),
        };
        let none = CapabilitySet::empty();
        for (reload, ask, restart, expected) in [
            (Reload::Unit(JobKind::Reload), Some(socket()), None, none),
            (Reload::Send(socket()), Some(socket()), None, none),
            (Reload::Signal(Signal::HUP), None, None, CapabilitySet::KILL),
            (Reload::Send(run()), None, None, CapabilitySet::all()),
            (Reload::Unit(JobKind::Reload), Some(run()), None, CapabilitySet::all()),
            (Reload::Signal(Signal::HUP), None, Some(Vec::new()), CapabilitySet::all()),
        ] {
            assert_eq!(of_program(&section(reload, ask, restart)), expected);
        }
    }

    fn kind_of(step: &Step, desired: &DesiredState) -> &'static str {
        let before = match step {
            Step::Write { before, .. } if matches!(step.key_in(desired), Key::Program(_)) => before,
            Step::Write { .. }
            | Step::Remove { .. }
            | Step::Restore { .. }
            | Step::Leave { .. } => return "a file or a directory is made, changed or deleted",
        };
        match before {
            Object::Program { differences, .. } if !differences.is_empty() => {
                "a running HAProxy gets other servers, maps or certificates"
            }
            _ => "a program takes its files over, by a reload or a restart",
        }
    }

    #[test]
    fn every_step_is_undone_as_the_list_of_its_kinds_says() {
        let digests = DigestKey::generate().unwrap();
        let (files, directories) = (BTreeMap::new(), BTreeMap::new());
        let desired = DesiredState::with_program(&digests, files, directories, Some(("web", "2")));
        let program = |differences| {
            let before = Object::Program { generation: Some("1".to_owned()), differences };
            let (slot, content) = (Slot::at(0), None);
            let step = Step::Write { slot, before, adopts: None, content, says: None };
            Example::new(kind_of(&step, &desired), step)
        };
        let weight = Difference::new("server web/s1 weight".to_owned(), "1", "2");
        let key: Key = "file /etc/a".parse().unwrap();
        let attributes = Attributes::default();
        let file = |digest: &[u8]| {
            let (digest, size) = (digests.digest(digest), 1);
            let attributes = attributes.clone();
            Object::File(FileObject { digest, size, attributes, secret: false })
        };
        let mut examples = vec![program(Vec::new()), program(vec![weight])];
        let paths = [
            Step::Remove { key: key.clone(), before: file(b"a"), content: None },
            Step::Restore {
                key: key.clone(),
                before: file(b"a"),
                original: file(b"b"),
                content: None,
                now: None,
            },
            Step::Leave { key, before: file(b"a"), why: Left::Released },
        ];
        let paths = paths.map(|step| Example::on_a_value(kind_of(&step, &desired), step));
        examples.extend(paths);
        undoing::check(STEP_KINDS, &desired, examples).unwrap();
    }
}
