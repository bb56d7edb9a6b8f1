//! How a program binds the firewall: `[nftables]`, a text in nft's own language.

use std::sync::Arc;

use homeostat_core::{Desired as _, Ownership, StepKind, Undo};
use homeostat_document::Section;
use homeostat_registry::{
    BindResult, Binding, CapabilitySet, Error, MissingSections, Registration, Shown, Start,
};
use serde_json::{Map, json};

use crate::compile::Compiler;
use crate::listing;
use crate::mark::Mark;
use crate::section::{self, Declared, Nftables, declared, desired};
use crate::source::{Nft, Wording};
use crate::step::TABLE_DATA;

/// What steps do, and how each kind is undone.
const STEP_KINDS: &[StepKind] = &[
    StepKind::new("a table is made or changed", Undo::FormerDesired),
    StepKind::new("a table of another owner is taken over", Undo::Record),
    StepKind::losing("a table is deleted", Undo::Aside, TABLE_DATA),
    StepKind::losing("a table is loaded whole over the former one", Undo::MadeAgain, TABLE_DATA),
];

/// The firewall, for a list of sources.
pub const REGISTRATION: Registration = Registration {
    steps: STEP_KINDS,
    resolve: |section, _, checker| section::resolve(section, checker),
    // Which tables there will be is not known before the text is compiled.
    waiting: |_, section| match declared(section) {
        Some(_) => vec!["the tables of [nftables]".to_owned()],
        None => Vec::new(),
    },
    // Which table is where in the text is not known before it is compiled.
    written: |section, _| match declared(section)? {
        Declared::File(path) => Some(path.span),
        Declared::Text(text) => Some(text.span),
    },
    files: section::files,
    // Rules are compiled in a scratch namespace.
    capabilities: |section| match section.get::<Nftables>() {
        Some(_) => CapabilitySet::SYS_ADMIN,
        None => CapabilitySet::empty(),
    },
    show: |binding, _| show(binding),
    // What a table lets through is known to the kernel alone.
    carries: |_, _| true,
    start: Start::Firewall,
    ..Registration::new(section::SECTIONS, bind)
};

/// The marks are in the kernel: without a section, there is something to do only where some are found.
fn bind(binding: &Binding<'_>) -> BindResult {
    let for_people = binding.caller.is_for_people;
    let wording = if for_people { Wording::Listed } else { Wording::Parts };
    let source = source(binding).with_wording(wording);
    let stated = binding.section.and_then(|section| section.get::<Nftables>());
    if stated.is_none() && binding.holdings::<Nft>()?.is_empty() && !source.owns_any() {
        return Ok(Vec::new());
    }
    // It remembers rulesets, so that one that is bound again is not compiled again.
    let compiler: Compiler = binding.caller.memory.of();
    let desired = stated.map(|nftables| desired(binding.document, nftables, &compiler, &source));
    let desired = desired.transpose()?.unwrap_or_default();
    let missing = binding.missing(|place| match stated {
        None => MissingSections::all(place.missing_table(&[<Nftables as Section>::NAME])),
        Some(nftables) if desired.is_empty() => {
            no_tables(nftables, &place.path(&[<Nftables as Section>::NAME]))
        }
        Some(_) => MissingSections::default(),
    });
    Ok(vec![binding.bound(source, desired, Ownership::Marked, missing)])
}

fn source(binding: &Binding<'_>) -> Nft {
    Nft::of(Arc::clone(&binding.scope.netns), Mark::new(&binding.caller.owner))
}

/// Whether a section that makes no table means that. A file can be empty because a disk was full or because
/// it is being written, and a text can be commented out; an empty `ruleset`, or a section without anything,
/// was written so.
fn no_tables<K: 'static>(nftables: &Nftables, section: &str) -> MissingSections<K> {
    let what = match &nftables.ruleset {
        None if nftables.adopt => format!("`{section}` names no ruleset"),
        None => return MissingSections::default(),
        Some(Declared::Text(text)) if text.is_empty() => return MissingSections::default(),
        Some(Declared::Text(_)) => format!("`ruleset` of `{section}` makes no table"),
        Some(Declared::File(path)) => format!("the ruleset `{}` makes no table", path.display()),
    };
    MissingSections::all(format!(
        "{what}; to delete the tables, write `ruleset = \"\"` in `{section}`"
    ))
}

/// Our tables of a scope as a text.
fn show(binding: &Binding<'_>) -> Result<Shown, Error> {
    let held = binding.holdings::<Nft>()?;
    let shown = listing::show(&source(binding), &held.records)?;
    let mut sections = Map::new();
    if !shown.ruleset.is_empty() {
        sections.insert(<Nftables as Section>::NAME.into(), json!({ "ruleset": shown.ruleset }));
    }
    let foreign = shown.foreign.iter().filter(|key| !held.broken.keys.contains_key(key));
    let names: Vec<String> = foreign.map(ToString::to_string).collect();
    let note =
        (!names.is_empty()).then(|| format!("Not ours, and not shown: {}", names.join(", ")));
    let notes = note.into_iter().chain(Binding::notes_of(&held)).collect();
    Ok(Shown { sections, notes, ..Shown::default() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use homeostat_core::{Action, Owner};
    use homeostat_testkit::undoing::{self, Example};

    use super::*;
    use crate::desired::DesiredState;
    use crate::key::Key;
    use crate::model::{Handle, ObjectId, Stateful, Table};
    use crate::plan::Op;
    use crate::step::Step;

    /// A table with a named counter.
    fn counting(key: &Key) -> Arc<Table> {
        let [definition, dumped, counts] = [(); 3].map(|()| Box::default());
        let counter = Stateful { handle: Handle(2), definition, dumped, counts };
        let id = ObjectId { kind: 1, name: "packets".to_owned() };
        Arc::new(Table {
            key: key.clone(),
            handle: Handle(1),
            flags: 0,
            comment: String::new(),
            chains: BTreeMap::new(),
            sets: BTreeMap::new(),
            objects: BTreeMap::from([(id, counter)]),
            flowtables: BTreeMap::new(),
            texts: BTreeMap::new(),
            script: None,
        })
    }

    #[test]
    fn every_step_is_undone_as_the_list_of_its_kinds_says() {
        let key: Key = "table inet f".parse().unwrap();
        let table = Some(counting(&key));
        let step = |action| Step::new(key.clone(), action);
        let made =
            Step { desired: table.clone(), ops: vec![Op::CreateTable], ..step(Action::Create) };
        let changed = Step {
            desired: table.clone(),
            seen: table.clone(),
            ops: vec![Op::SetFlags],
            ..step(Action::Update)
        };
        let adopts = Some(Owner::foreign("somebody"));
        let taken_over = Step { adopts, ..changed.clone() };
        let loaded = Step { ops: vec![Op::DeleteTable, Op::CreateTable], ..changed.clone() };
        let deleted = Step { seen: table, ops: vec![Op::DeleteTable], ..step(Action::Delete) };
        let examples = [
            Example::new("a table is made or changed", made),
            Example::new("a table is made or changed", changed),
            Example::adopting("a table of another owner is taken over", taken_over),
            Example::new("a table is deleted", deleted),
            Example::new("a table is loaded whole over the former one", loaded),
        ];
        undoing::check(STEP_KINDS, &DesiredState::default(), examples).unwrap();
    }
}
