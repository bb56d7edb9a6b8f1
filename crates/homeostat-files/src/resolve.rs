//! Decides what a set shall be at this moment.
//!
//! Values that are pending are tried together and then each alone; then those that are in force; and if even these cannot
//! be had, the set that was good last stands. A set is usable if its files can be made, do not shrink, and are not refused:
//! by the program that judges them, or, at an earlier try, by the one that reads them.

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat_core::{Desired as _, Failure, Fingerprint, Focus, Phase, Retry, View, WaitsOn};
use homeostat_render::{
    Facts, InputState, Needs, RenderCause, RenderError, Shrunk, Value, Verdict as InputVerdict,
};

use crate::check::Verdict;
use crate::exclusive::Undeclared;
use crate::key::Key;
use crate::live::{Following, Live, read_once};
use crate::model::{DesiredState, Resolution, Shortfall};
use crate::observe::{Ask, Reader};
use crate::recipe::{Made, Recipe};
use crate::source::{Files, Shrinking};
use crate::store::LastGood;

/// Why a set is not usable, with what is to blame.
struct Unusable {
    key: Key,
    shortfall: Shortfall,
    verdict: InputVerdict,
}

/// What the set shall be now. The same as before is the same object.
pub(crate) fn resolve_set(
    reader: &mut Reader,
    view: &View<'_, Files>,
) -> Result<Option<Arc<DesiredState>>, Failure> {
    if view.desired.is_empty() {
        return Ok(None);
    }
    if *view.focus == Focus::All {
        // The reason of a refusal may be outside of the set.
        reader.judged.retain(|judged| matches!(judged.verdict, Verdict::Valid { .. }));
    }
    reader.undeclared = Undeclared::find(&reader.files, &mut reader.packages, view)?;
    let mut resolved = match view.desired.recipe() {
        Some(recipe) => {
            let recipe = Arc::clone(recipe);
            let facts = gather(reader, &recipe)?;
            choose(reader, view, &recipe, facts.as_ref())?
        }
        None => settle(reader, view, (**view.desired).clone())?,
    };
    resolved = resolved.with_absent(&reader.undeclared.absent);
    resolved.resolution.stays = reader.undeclared.stays.clone();
    let former = reader.resolved.take();
    if former.as_ref().is_none_or(|former| !former.has_same_entries(&resolved)) {
        reader.files.inputs.lock().phases.extend(phases(&resolved));
    }
    let same = former.filter(|former| **former == resolved);
    let resolved = same.unwrap_or_else(|| Arc::new(resolved));
    reader.resolved = Some(Arc::clone(&resolved));
    Ok(Some(resolved))
}

/// Takes the answers of the inputs, and returns the facts.
fn gather(reader: &mut Reader, recipe: &Recipe) -> Result<Option<Arc<Facts>>, Failure> {
    let Files { set, store, inputs, network, .. } = &reader.files;
    inputs.lock().declare(&recipe.inputs, set, &store.directory().join("inputs"));
    if reader.follows {
        let known = reader.following.take().filter(|following| following.is_of(recipe));
        let following = match known {
            Some(following) => following,
            None => Following::start(recipe, network)?,
        };
        following.deliver(inputs);
        return Ok(reader.following.insert(following).facts());
    }
    if reader.has_read {
        return Ok(reader.read_facts.clone());
    }
    let read = read_once(recipe, network)?;
    let mut live = inputs.lock();
    for (name, answer) in read.answers {
        live.inputs.answer(&name, answer);
    }
    (reader.has_read, reader.read_facts) = (true, read.facts.clone());
    Ok(read.facts)
}

fn choose(
    reader: &mut Reader,
    view: &View<'_, Files>,
    recipe: &Arc<Recipe>,
    facts: Option<&Arc<Facts>>,
) -> Result<DesiredState, Failure> {
    let shared = reader.files.inputs.clone();
    let mut live = shared.lock();
    live.inputs.reconsider();
    let mut refused = BTreeMap::new();
    while let Some(proposal) = live.inputs.propose() {
        let values = proposal.values.clone();
        match make(reader, view, recipe, values, facts, &live)? {
            Ok(Made { mut desired, reads }) => {
                let is_other = |name: &String| !proposal.pending.contains(name);
                let mut shortfalls = input_shortfalls(&live, &refused, is_other);
                // Those that were refused together with these are tried after them.
                let others = refused.keys().filter(|name| is_other(name));
                for key in others.map(|name| Key::Input(name.clone())) {
                    if !shortfalls.iter().any(|(known, _)| *known == key) {
                        shortfalls.push((key, Shortfall::NotTried));
                    }
                }
                desired.resolution.shortfalls = shortfalls;
                desired.resolution.trial = Some((proposal, reads));
                return Ok(desired);
            }
            Err(Unusable { key, shortfall, verdict }) => {
                for name in &proposal.pending {
                    refused.insert(name.clone(), (key.clone(), shortfall.clone()));
                }
                // Nothing is accepted here, so nothing is kept.
                let _ = live.inputs.judge(&proposal, verdict);
            }
        }
    }
    let values = live.inputs.accepted();
    let mut shortfalls = input_shortfalls(&live, &refused, |_| true);
    match make(reader, view, recipe, values, facts, &live)? {
        Ok(Made { mut desired, .. }) => {
            desired.resolution.shortfalls = shortfalls;
            Ok(desired)
        }
        Err(Unusable { key, shortfall, .. }) => {
            // A value that has come is not waited for, but for what it was refused for.
            let (key, shortfall) = match &key {
                Key::Input(name) => refused.remove(name).unwrap_or((key, shortfall)),
                _ => (key, shortfall),
            };
            if !shortfalls.iter().any(|(other, _)| *other == key) {
                shortfalls.push((key, shortfall));
            }
            let mut desired = last_good(reader, view).unwrap_or_else(|| (**view.desired).clone());
            desired.resolution.shortfalls = shortfalls;
            Ok(desired)
        }
    }
}

/// Makes the set of these values; or says why it cannot be used.
fn make(
    reader: &mut Reader,
    view: &View<'_, Files>,
    recipe: &Arc<Recipe>,
    values: BTreeMap<String, Value>,
    facts: Option<&Arc<Facts>>,
    live: &Live,
) -> Result<Result<Made, Unusable>, Failure> {
    let made = recipe.make(reader.files.store.digests(), values, facts.cloned());
    let Made { desired, reads } = match made {
        Ok(made) => made,
        Err(error) => return Ok(Err(Unusable::unmade(&error, live))),
    };
    let desired = desired.made_by(recipe);
    Ok(match find_fault(reader, view, &desired, live.refused.as_ref())? {
        None => Ok(Made { desired, reads }),
        Some(unusable) => Err(unusable),
    })
}

/// A set that is as the document says. While it cannot be used, the one that was good last stands, if there is one.
fn settle(
    reader: &mut Reader,
    view: &View<'_, Files>,
    declared: DesiredState,
) -> Result<DesiredState, Failure> {
    let refused = reader.files.inputs.lock().refused.clone();
    let Some(Unusable { key, shortfall, .. }) =
        find_fault(reader, view, &declared, refused.as_ref())?
    else {
        return Ok(declared);
    };
    let Some(mut good) = last_good(reader, view) else { return Ok(declared) };
    good.resolution.shortfalls = vec![(key, shortfall)];
    Ok(good)
}

/// Why a set that was made cannot be used, if so.
fn find_fault(
    reader: &mut Reader,
    view: &View<'_, Files>,
    desired: &DesiredState,
    refused: Option<&(String, String)>,
) -> Result<Option<Unusable>, Failure> {
    let Files { store, set, .. } = &reader.files;
    let kept = store.refused(set);
    if let Some((key, target)) = desired.target()
        && let Some((_, why)) =
            [refused, kept.as_ref()].into_iter().flatten().find(|(one, _)| *one == target.identity)
    {
        let help = "the same files are not tried again; change the set";
        let failure = Failure::new(why.clone(), Retry::OnChange).with_help(help);
        return Ok(Some(Unusable::refused(key.clone(), failure)));
    }
    let mut desired = desired.clone().with_absent(&reader.undeclared.absent);
    desired.resolution.stays = reader.undeclared.stays.clone();
    let desired = Arc::new(desired);
    let view = View {
        focus: view.focus,
        desired: &desired,
        ..View::new(view.focus, &desired, view.records)
    };
    let mut moment = reader.look(&view, &mut |_| {}, Ask::Nobody)?;
    if !moment.differs {
        return Ok(None);
    }
    if let Some((key, shrunk)) = find_shrunk(reader, &desired) {
        let shortfall = Shortfall::Shrinks(shrunk);
        let why = shrunk_words(shrunk);
        return Ok(Some(Unusable { key, shortfall, verdict: InputVerdict::Refused { why } }));
    }
    reader.judge(&view, &mut moment);
    let Some(Verdict::Refused(_)) = &moment.verdict else { return Ok(None) };
    let failure = moment.verdict.as_ref().and_then(Verdict::failure);
    let first = desired.iter().map(|(key, _)| key).find(|key| matches!(key, Key::File(_)));
    Ok(failure.and_then(|(key, failure)| Some(Unusable::refused(key.or(first)?.clone(), failure))))
}

/// A file that would lose most of the lines that it had when the set was good last.
fn find_shrunk(reader: &Reader, desired: &DesiredState) -> Option<(Key, Shrunk)> {
    let Files { store, set, shrinking, .. } = &reader.files;
    let Shrinking::Hold { .. } = shrinking else { return None };
    let good = store.good(set)?;
    desired.iter().find_map(|(key, wanted)| {
        let (path, content) = (key.path()?, wanted.content.as_ref()?);
        let former = good.files.get(path.as_str())?;
        let lines = Shrunk::lines(content.bytes());
        Some((key.clone(), Shrunk::find_by_lines(former.lines, lines)?))
    })
}

/// The declared files with the contents that were good last; nothing, if none are known.
fn last_good(reader: &Reader, view: &View<'_, Files>) -> Option<DesiredState> {
    let Files { store, set, .. } = &reader.files;
    let good: LastGood = store.good(set)?;
    let files = store.good_files(set, &good);
    let is_declared = |key: &Key| view.desired.wanted(key).is_some();
    files.keys().any(is_declared).then(|| {
        view.desired.with_contents(reader.files.store.digests(), &files, good.generation.as_deref())
    })
}

/// Values are in force once the files that were made of them are there, and the program has them.
pub(crate) fn accept(reader: &mut Reader, desired: &DesiredState) {
    let Resolution { trial: Some((proposal, reads)), .. } = &desired.resolution else { return };
    let mut live = reader.files.inputs.lock();
    // A value that could not be kept is in force all the same; after a restart its input has to answer.
    let verdict = InputVerdict::Accepted { reads: reads.clone() };
    let _ = live.inputs.judge(proposal, verdict);
    reader.wants_look |= live.inputs.propose().is_some();
}

impl Unusable {
    fn refused(key: Key, failure: Failure) -> Self {
        let verdict = InputVerdict::Refused { why: failure.error.clone() };
        Unusable { key, shortfall: Shortfall::Refused(failure), verdict }
    }

    fn unmade(error: &RenderError, live: &Live) -> Self {
        let verdict = error.verdict();
        let path = error.file.to_str().and_then(|path| path.parse().ok());
        let key = path.map_or_else(|| Key::Input("template".to_owned()), Key::File);
        match &error.cause {
            RenderCause::Needs(Needs::Input(name)) => {
                let why = live.inputs.states().find_map(|(found, state)| match state {
                    InputState::Unknown { why } if found == name => why,
                    _ => None,
                });
                let on = WaitsOn::Input { name: name.clone(), why };
                let (key, shortfall) = (Key::Input(name.clone()), Shortfall::Waits(on));
                Unusable { key, shortfall, verdict }
            }
            RenderCause::Needs(Needs::Facts) => {
                let on = WaitsOn::Condition("the facts of this machine".to_owned());
                Unusable { key, shortfall: Shortfall::Waits(on), verdict }
            }
            _ => {
                let failure = Failure::new(error.to_string(), error.retry());
                Unusable { verdict, ..Unusable::refused(key, failure) }
            }
        }
    }
}

/// A set that was made; it is valid, since it was chosen.
fn phases(resolved: &DesiredState) -> Vec<Phase> {
    let contents = resolved.iter().filter_map(|(_, wanted)| wanted.content.as_ref());
    let bytes = contents.map(|content| content.bytes().len()).sum();
    let objects: Vec<_> = resolved.iter().map(|(_, wanted)| &wanted.object).collect();
    let is_made = resolved.iter().any(|(_, wanted)| wanted.content.is_some());
    let is_newest = !resolved.resolution.shortfalls.iter().any(|(_, one)| one.is_in_the_way());
    let rendered = Phase::Rendered { bytes, print: Fingerprint::of_object(&objects) };
    let validated = is_newest.then_some(Phase::Validated);
    is_made.then_some(rendered).into_iter().chain(validated.filter(|_| is_made)).collect()
}

/// What has to be said of inputs: values that were refused, and sources that do not answer.
fn input_shortfalls(
    live: &Live,
    refused: &BTreeMap<String, (Key, Shortfall)>,
    is_told: impl Fn(&String) -> bool,
) -> Vec<(Key, Shortfall)> {
    let mut shortfalls: Vec<(Key, Shortfall)> = Vec::new();
    for (name, state) in live.inputs.states() {
        let name = name.to_owned();
        match (state, refused.get(&name)) {
            (InputState::Accepted { silence: Some(why) }, _) => {
                shortfalls.push((Key::Input(name), Shortfall::Silent { why }));
            }
            // A file that is held names what is held.
            (InputState::Pending { .. }, Some((key, shortfall @ Shortfall::Shrinks(_))))
                if is_told(&name) =>
            {
                let held = (key.clone(), shortfall.clone());
                if !shortfalls.contains(&held) {
                    shortfalls.push(held);
                }
            }
            (InputState::Pending { refused: Some(_), .. }, Some((_, shortfall)))
                if is_told(&name) =>
            {
                shortfalls.push((Key::Input(name), shortfall.clone()));
            }
            _ => {}
        }
    }
    shortfalls
}

pub(crate) fn shrunk_words(shrunk: Shrunk) -> String {
    let Shrunk { from_lines, to_lines } = shrunk;
    format!("it would have {to_lines} lines in place of {from_lines}")
}
