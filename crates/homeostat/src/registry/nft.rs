//! The firewall: `[nftables]`, a text in nft's own language.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use homeostat_document::Section;
use homeostat_engine::book::holdings;
use homeostat_engine::{Bound, Desired as _, LedgerKey, MissingSections, Ownership, Pages};
use homeostat_nft::section::{self, Declared, Nftables, declared, desired};
use homeostat_nft::{Compiler, DesiredState, Mark, Nft, Wording};
use rustix::thread::CapabilitySet;
use serde_json::{Map, json};

use crate::failure::{Helped, Misfit};
use crate::registry::{Bind, Binding, Registered, Showing, Shown, Start};

/// The firewall in the registry.
pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    sections: section::SECTIONS,
    resolve: |_, section, _, checker| section::resolve(section, checker),
    bind,
    // Which tables there will be, nobody knows before the text is compiled.
    wait: |_, section| match declared(section) {
        Some(_) => vec!["the tables of [nftables]".to_owned()],
        None => Vec::new(),
    },
    namespaces: |_| Vec::new(),
    files: |document, section, named| {
        let (file, included) = section::files(document, section);
        named.files.extend(file.into_iter().chain(included.files));
        named.directories.extend(included.directories);
    },
    // Rules are compiled in a scratch namespace.
    capabilities: |section| match section.get::<Nftables>() {
        Some(_) => CapabilitySet::SYS_ADMIN,
        None => CapabilitySet::empty(),
    },
    show,
    start: Start::Firewall,
    remote: None,
};

pub(crate) const NAME: &str = <Nft as homeostat_engine::Source>::NAME;

/// The marks are in the kernel: without a section, there is business only where some are found.
fn bind(binding: &Binding<'_>) -> Bind {
    let source = Nft::of(Arc::clone(&binding.scope.netns), Mark::new(&binding.context.owner));
    let for_people = binding.context.is_for_people;
    let source = source.with_wording(if for_people { Wording::Listed } else { Wording::Parts });
    let place = binding.place(NAME);
    let stated = binding.section.and_then(|section| section.get::<Nftables>());
    if stated.is_none()
        && holdings::<Nft>(binding.pages, &place)?.records.is_empty()
        && !source.owns_any()
    {
        return Ok(None);
    }
    // It remembers rulesets, so that one that is bound again is not compiled again.
    let compiler: Compiler = binding.context.memory.of();
    let desired = stated.map(|nftables| desired(binding.document, nftables, &compiler, &source));
    let desired = desired.transpose().map_err(Misfit::from)?;
    let desired = desired.unwrap_or_default();
    let name = <Nftables as Section>::NAME;
    let missing = binding.missing(|home| match stated {
        None => MissingSections::all(home.table(&[name])),
        Some(nftables) if desired.is_empty() => no_tables(nftables, &home.path(&[name])),
        Some(_) => MissingSections::default(),
    });
    let config = binding.config(NAME, missing);
    let (desired, ownership) = (Arc::new(desired), Ownership::Marked);
    let nothing = Some(Arc::new(DesiredState::nothing()));
    Ok(Some(Box::new(Bound { source, desired, ownership, config, place, nothing })))
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
        "{what}; to delete the tables, write `ruleset = \"\"` in `{section}`, or use \
         --allow-mass-delete"
    ))
}

/// Our tables of a scope as a text.
fn show(showing: &Showing<'_>) -> Result<Shown> {
    let Showing { context, scope, pages, .. } = showing;
    let source = Nft::of(Arc::clone(&scope.netns), Mark::new(&context.owner));
    let records = holdings::<Nft>(*pages, &scope.place(&context.owner, NAME))?.records;
    let shown = source.show(&records).map_err(|failure| match failure.help {
        Some(help) => Helped::error(failure.error, help),
        None => anyhow!(failure.error),
    })?;
    let mut sections = Map::new();
    if !shown.ruleset.is_empty() {
        sections.insert(<Nftables as Section>::NAME.into(), json!({ "ruleset": shown.ruleset }));
    }
    let names: Vec<String> = shown.foreign.iter().map(ToString::to_string).collect();
    let note =
        (!names.is_empty()).then(|| format!("Not ours, and not shown: {}", names.join(", ")));
    Ok(Shown { sections, notes: note.into_iter().collect() })
}

/// The tables that were taken over, by name and the kernel's number: they carry no mark.
pub(crate) fn taken_over(place: &LedgerKey, pages: &dyn Pages) -> Result<Vec<(String, u64)>> {
    let records = holdings::<Nft>(pages, place)?.records;
    let tables = records.iter().filter_map(|(key, record)| {
        let handle = record.identity.as_ref()?.parse().ok()?;
        Some((key.to_string(), handle))
    });
    Ok(tables.collect())
}
