//! Turns changes into one swap of the whole set, or says why there is none. Pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use homeostat_core::{
    Action, Change, ChangeList, Desired as _, Draft, Failure, Finding, HeldBy, Line, Owner, Retry,
    Reversibility, Slot, Taking, WaitsOn,
};

use crate::check::Verdict;
use crate::difference;
use crate::key::{FilePath, Key};
use crate::model::{Content, DesiredState, Object, Other, Shortfall};
use crate::observe::Moment;
use crate::place::Obstacle;
use crate::resolve::shrunk_words;
use crate::source::{Files, Shrinking};

/// Turns changes into steps. A set is written whole or not at all: what was checked is the whole.
pub(crate) fn draft(
    desired: &DesiredState,
    moment: &Moment,
    shrinking: Shrinking,
    changes: ChangeList<Key, Object>,
) -> Draft<Files> {
    let shortfalls = &desired.resolution.shortfalls;
    let behind = shortfalls.iter().find(|(_, shortfall)| shortfall.is_in_the_way());
    let mut drafting = Drafting { desired, moment, draft: Draft::default(), blocked: None, behind };
    drafting.tell_shortfalls(shrinking);
    drafting.find_blocks(&changes);
    for change in changes {
        drafting.take(change);
    }
    drafting.add_notes();
    drafting.tell_expiring();
    drafting.take_verdict();
    drafting.brake();
    drafting.hold_all();
    drafting.draft
}

struct Drafting<'a> {
    desired: &'a DesiredState,
    moment: &'a Moment,
    draft: Draft<Files>,
    /// A path that keeps the whole set from being written.
    blocked: Option<Key>,
    /// Why the newest content is not the desired one, if so.
    behind: Option<&'a (Key, Shortfall)>,
}

impl Drafting<'_> {
    fn tell_shortfalls(&mut self, shrinking: Shrinking) {
        for (key, shortfall) in &self.desired.resolution.shortfalls {
            let finding = match shortfall {
                Shortfall::Waits(WaitsOn::Input { why, .. }) => {
                    let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                    Finding::Pending { on: WaitsOn::Condition(format!("its first answer{why}")) }
                }
                Shortfall::Waits(on) => Finding::Pending { on: on.clone() },
                Shortfall::Refused(failure) => Finding::refused(failure.clone()),
                Shortfall::Shrinks(shrunk) => {
                    let mut why = shrunk_words(*shrunk);
                    if let Shrinking::Hold { option } = shrinking {
                        // Writing to a string cannot fail.
                        let _ = write!(why, "; if that is meant, use {option}");
                    }
                    Finding::Held { action: Action::Update, by: HeldBy::DeleteBudget, why }
                }
                Shortfall::NotTried => Finding::Pending { on: WaitsOn::NextPass },
                Shortfall::Silent { why } => {
                    let on = format!("its source, while its last accepted value stands in: {why}");
                    Finding::Pending { on: WaitsOn::Condition(on) }
                }
            };
            self.draft.findings.push((key.clone(), finding));
        }
        let stays = self.desired.resolution.stays.iter().filter(|(key, _)| key.is_directory());
        let stays = stays.map(|(key, finding)| (key.clone(), finding.clone()));
        self.draft.findings.extend(stays);
    }

    /// What keys wait for whose content is not known, or that would leave together with the newest content.
    fn wait_for_newest(&mut self, key: Key) {
        match self.behind {
            Some((blamed, _)) if *blamed == key => {}
            Some((_, Shortfall::Waits(on))) => self.draft.wait(key, on.clone()),
            Some((blamed, _)) => self.draft.wait(key, WaitsOn::Key(blamed.to_string())),
            None => self.draft.wait(key, WaitsOn::NextPass),
        }
    }

    /// Conflicts and paths that cannot be read are found by the diff, which gives them no change.
    fn find_blocks(&mut self, changes: &ChangeList<Key, Object>) {
        let adopted: BTreeSet<Key> = changes
            .others()
            .iter()
            .filter_map(|change| match change {
                Change::Update { slot, adopts: Some(_), .. } => Some(self.desired.key(*slot)),
                _ => None,
            })
            .collect();
        let Moment { foreign, unknown, .. } = self.moment;
        let foreign = foreign.iter().filter(|key| !adopted.contains(key));
        self.blocked = foreign.chain(unknown).next().cloned();
    }

    fn take(&mut self, change: Change<Key, Object>) {
        match change {
            Change::Create { slot } => self.write(slot, Object::Nothing, None),
            Change::Update { slot, before, adopts } => self.write(slot, before, adopts),
            Change::Delete { key, .. }
            | Change::Release { key, .. }
            | Change::GiveBack { key, .. }
                if self.behind.is_some() =>
            {
                self.wait_for_newest(key);
            }
            Change::Delete { key, before } => {
                let content = self.moment.contents.get(&key).cloned();
                self.draft.steps.push(Step::Remove { key, before, content });
            }
            Change::Release { key, before, restore, .. } => self.release(key, before, restore),
            // Nothing is recorded by which a file could be given back in another way.
            Change::GiveBack { key, before, .. } => self.release(key, before, None),
        }
    }

    fn write(&mut self, slot: Slot, before: Object, adopts: Option<Owner>) {
        let key = self.desired.key(slot);
        if self.desired.at(slot).1.is_nothing() {
            self.move_away(slot, key, before);
            return;
        }
        if !self.desired.at(slot).1.is_known() {
            self.wait_for_newest(key);
            return;
        }
        if let (Key::Program(_), Some(on)) = (&key, &self.moment.down) {
            // Its files are written all the same: it will read them when it starts.
            self.draft.wait(key, WaitsOn::Condition(on.clone()));
            return;
        }
        if let Some(failure) = self.refusal(&key, &before, adopts.as_ref()) {
            self.refuse(key, failure);
            return;
        }
        if let Some(missing) = self.moment.no_account.get(&key) {
            self.blocked.get_or_insert_with(|| key.clone());
            self.draft.wait(key, WaitsOn::Condition(format!("{missing}, which does not exist")));
            return;
        }
        let content = self.moment.contents.get(&key).cloned();
        self.draft.steps.push(Step::Write { slot, before, adopts, content, says: None });
    }

    /// Others' files in an exclusive directory. What stays of them holds nothing else.
    fn move_away(&mut self, slot: Slot, key: Key, before: Object) {
        match self.desired.resolution.stays.get(&key) {
            Some(finding) => self.draft.findings.push((key, finding.clone())),
            // It went by itself.
            None if before == Object::Nothing => {}
            None => {
                let says = "its directory is exclusive: moved away, and kept".to_owned();
                let (adopts, content, says) = (None, None, Some(says));
                self.draft.steps.push(Step::Write { slot, before, adopts, content, says });
            }
        }
    }

    fn refuse(&mut self, key: Key, failure: Failure) {
        self.blocked.get_or_insert_with(|| key.clone());
        self.draft.refuse(key, failure);
    }

    fn refusal(&self, key: &Key, before: &Object, adopts: Option<&Owner>) -> Option<Failure> {
        match self.moment.obstacles.get(key) {
            Some(Obstacle::Missing(_)) if key.path().is_some_and(|path| self.is_made(path)) => {}
            Some(obstacle) => return Some(obstacle.failure()),
            None => {}
        }
        let Object::Other { what } = before else { return None };
        // Only a link or a special file can be replaced, and only where a file of ours was.
        let is_replaced = !key.is_directory() && *what != Other::Directory && adopts.is_none();
        (!is_replaced).then(|| {
            let failure = Failure::new(format!("{what} is there"), Retry::OnChange);
            let path = key.path().map(ToString::to_string).unwrap_or_default();
            failure.with_help(format!("remove {path}, if nothing needs it"))
        })
    }

    /// Whether this set declares the directory that a path is in.
    fn is_made(&self, path: &FilePath) -> bool {
        let above: Result<FilePath, _> = path.split().0.parse();
        above.is_ok_and(|above| self.desired.wanted(&Key::Directory(above)).is_some())
    }

    fn release(&mut self, key: Key, before: Object, restore: Option<Object>) {
        let original = restore.filter(|original| *original != before);
        // What was moved away from others would be lost, if it did not return.
        let returning = self.moment.returning.get(&key).filter(|_| before == Object::Nothing);
        let step = match original {
            _ if before == Object::Nothing => match returning.cloned() {
                Some((file, content)) => {
                    let (original, content, now) = (Object::File(file), Some(content), None);
                    Step::Restore { key, before, original, content, now }
                }
                None => Step::Leave { key, before, why: Left::NoOriginal },
            },
            Some(original @ Object::Directory(_)) => {
                let (content, now) = (None, None);
                Step::Restore { key, before, original, content, now }
            }
            Some(original) => match self.moment.originals.get(&key).cloned() {
                Some(content) => {
                    let (content, now) = (Some(content), self.moment.contents.get(&key).cloned());
                    Step::Restore { key, before, original, content, now }
                }
                None => Step::Leave { key, before, why: Left::NoOriginal },
            },
            None if self.moment.drifted.contains(&key) => {
                Step::Leave { key, before, why: Left::Drifted }
            }
            None => Step::Leave { key, before, why: Left::Released },
        };
        self.draft.steps.push(step);
    }

    /// What operators have set in the program is left as it is, and shown.
    fn add_notes(&mut self) {
        let notes = &self.moment.notes;
        let Some((key, _)) = self.desired.target().filter(|_| !notes.is_empty()) else { return };
        let of_program = |step: &&mut Step| step.key_in(self.desired) == key;
        match self.draft.steps.iter_mut().find(of_program) {
            Some(Step::Write { says, .. }) => *says = Some(notes.join("; ")),
            Some(_) => {}
            None => {
                let wanted = self.desired.wanted(key).map(|wanted| wanted.object.shown());
                let wanted = Box::new(wanted.unwrap_or_default());
                let held = Box::new(notes.join("; ").into());
                self.draft.findings.push((key.clone(), Finding::Settled { wanted, held }));
            }
        }
    }

    /// Nobody should learn of the end of a certificate from clients.
    fn tell_expiring(&mut self) {
        for (key, days) in &self.moment.expiring {
            let on = match days {
                ..0 => "a new certificate: this one has ended".to_owned(),
                0 => "a new certificate: this one ends today".to_owned(),
                1 => "a new certificate: this one ends in a day".to_owned(),
                days => format!("a new certificate: this one ends in {days} days"),
            };
            let finding = Finding::Pending { on: WaitsOn::Condition(on) };
            self.draft.findings.push((key.clone(), finding));
        }
    }

    /// What its program refuses is not written, nor what could not be checked.
    fn take_verdict(&mut self) {
        let writes = |step: &&Step| !matches!(step, Step::Leave { .. });
        let Some(first) = self.draft.steps.iter().find(writes) else { return };
        if let (Some(why), Some((key, _))) = (&self.moment.refused, self.desired.target()) {
            let failure = Failure::new(why.clone(), Retry::Never);
            let help = "the same files are not tried again; change the set";
            self.refuse(key.clone(), failure.with_help(help));
            return;
        }
        match &self.moment.verdict {
            Some(Verdict::Valid { warnings }) if !warnings.is_empty() => {
                let said = format!("its program says: {}", warnings.replace('\n', "; "));
                let mut steps = self.draft.steps.iter_mut();
                if let Some(Step::Write { says, .. }) =
                    steps.find(|step| matches!(step, Step::Write { says: None, .. }))
                {
                    *says = Some(said);
                }
            }
            Some(verdict) => {
                if let Some((key, failure)) = verdict.failure() {
                    let key = key.unwrap_or_else(|| first.key_in(self.desired)).clone();
                    self.refuse(key, failure);
                }
            }
            None => {}
        }
    }

    /// A program that may not be reloaded now gets its new files when it may.
    fn brake(&mut self) {
        let Some(wait) = &self.moment.wait else { return };
        let is_program = |step: &Step| matches!(step.key_in(self.desired), Key::Program(_));
        let program = self.draft.steps.iter().find(|step| is_program(step));
        let Some(key) = program.map(|step| step.key_in(self.desired).clone()) else { return };
        if self.blocked.is_none() {
            self.draft.wait(key.clone(), WaitsOn::Condition(wait.to_string()));
            self.blocked = Some(key);
        }
    }

    /// If one path cannot be written, none is. What is merely given up needs no write.
    fn hold_all(&mut self) {
        let Some(blocked) = &self.blocked else { return };
        let steps = std::mem::take(&mut self.draft.steps);
        for step in steps {
            match step {
                Step::Leave { .. } => self.draft.steps.push(step),
                step if step.key_in(self.desired) == blocked => {}
                step => {
                    let key = step.key_in(self.desired).clone();
                    self.draft.wait(key, WaitsOn::Key(blocked.to_string()));
                }
            }
        }
    }
}

/// What a program may lose when it takes files over.
pub(crate) const LOST_BY_A_RELOAD: &str =
    "what the program drops by that: connections that are kept open, caches";

/// One path of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes a path what is declared; `content` is what is there, if it may be shown.
    Write {
        slot: Slot,
        before: Object,
        adopts: Option<Owner>,
        content: Option<Content>,
        /// What the program of the set says, although it accepts it.
        says: Option<String>,
    },
    /// Removes what we made.
    Remove { key: Key, before: Object, content: Option<Content> },
    /// Puts the original back: `content`, in place of `now`.
    Restore {
        key: Key,
        before: Object,
        original: Object,
        content: Option<Content>,
        now: Option<Content>,
    },
    /// Gives a path up, and writes nothing.
    Leave { key: Key, before: Object, why: Left },
}

/// Why a path that is given up stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It was there before us, and nothing else is asked for.
    Released,
    /// Others have changed it since.
    Drifted,
    /// Its original was not kept.
    NoOriginal,
}

impl Step {
    pub(crate) fn key_in<'a>(&'a self, desired: &'a DesiredState) -> &'a Key {
        match self {
            Step::Write { slot, .. } => desired.at(*slot).0,
            Step::Remove { key, .. } | Step::Restore { key, .. } | Step::Leave { key, .. } => key,
        }
    }

    fn before(&self) -> &Object {
        match self {
            Step::Write { before, .. }
            | Step::Remove { before, .. }
            | Step::Restore { before, .. }
            | Step::Leave { before, .. } => before,
        }
    }

    fn note(&self) -> Option<String> {
        match self {
            Step::Write { adopts, says, .. } => {
                let taken = adopts.as_ref().map(|owner| format!("taken over from {owner}"));
                let notes: Vec<String> = taken.into_iter().chain(says.clone()).collect();
                (!notes.is_empty()).then(|| notes.join("; "))
            }
            Step::Remove { .. } => None,
            Step::Restore { .. } => Some("released, original restored".to_owned()),
            Step::Leave { why, .. } => Some(match why {
                Left::Released => "released, it stays as it is".to_owned(),
                Left::Drifted => "released, it stays: others have changed it".to_owned(),
                Left::NoOriginal => "released, it stays: its original was not kept".to_owned(),
            }),
        }
    }

    /// How the content changes, in lines.
    fn difference(&self, desired: &DesiredState) -> Option<String> {
        let (before, after, is_secret) = match self {
            Step::Write { slot, content, .. } => {
                let wanted = desired.at(*slot).1;
                (content.as_ref(), wanted.content.as_ref(), wanted.object.is_secret())
            }
            Step::Remove { content, before, .. } => (content.as_ref(), None, before.is_secret()),
            // Whether others keep secret what was moved away from them is not known.
            Step::Leave { .. } | Step::Restore { before: Object::Nothing, .. } => return None,
            Step::Restore { content, now, before, .. } => {
                (now.as_ref(), content.as_ref(), before.is_secret())
            }
        };
        if is_secret {
            return None;
        }
        let bytes = |content: Option<&Content>| content.map(|content| content.bytes().to_vec());
        difference::text(&bytes(before).unwrap_or_default(), &bytes(after).unwrap_or_default())
    }
}

impl homeostat_core::Step<DesiredState> for Step {
    fn key(&self, desired: &DesiredState) -> Key {
        self.key_in(desired).clone()
    }

    fn slot(&self) -> Option<Slot> {
        match self {
            Step::Write { slot, .. } => Some(*slot),
            _ => None,
        }
    }

    fn action(&self) -> Action {
        match self {
            Step::Write { before: Object::Nothing, .. } => Action::Create,
            Step::Write { .. } => Action::Update,
            Step::Remove { .. } | Step::Restore { .. } | Step::Leave { .. } => Action::Delete,
        }
    }

    /// A change at runtime can be undone at runtime; a reload is only made good by another one.
    fn reversibility(&self, desired: &DesiredState) -> Reversibility {
        let is_at_runtime =
            matches!(self.before(), Object::Program { differences, .. } if !differences.is_empty());
        match self {
            Step::Write { .. }
                if matches!(self.key_in(desired), Key::Program(_)) && !is_at_runtime =>
            {
                Reversibility::Compensable(LOST_BY_A_RELOAD.into())
            }
            _ => Reversibility::Reversible,
        }
    }

    fn is_recorded(&self) -> bool {
        true
    }

    /// A document that leaves owner, group or mode open does not bring them back.
    fn records(&self, desired: &DesiredState, record: &mut dyn FnMut(Key, Taking)) {
        let is_there = matches!(self.before(), Object::File(_) | Object::Directory(_));
        let is_written = is_there && !matches!(self, Step::Leave { .. });
        if let Some(path) = self.key_in(desired).path().filter(|_| is_written) {
            record(Key::Attributes(path.clone()), Taking::Around);
        }
    }

    fn explain(&self, desired: &DesiredState, emit: &mut dyn FnMut(Line)) {
        let after = match self {
            Step::Write { slot, .. } => Some(desired.at(*slot).1.object.shown()),
            Step::Restore { original, .. } => Some(original.shown()),
            Step::Remove { .. } | Step::Leave { .. } => None,
        };
        let after = after.filter(|shown| !shown.is_null());
        let before = Some(self.before().shown()).filter(|shown| !shown.is_null());
        let attributes = difference::attributes(before.as_ref(), after.as_ref());
        let is_secret = self.before().is_secret()
            || matches!(self, Step::Write { slot, .. } if desired.at(*slot).1.object.is_secret());
        let secret = is_secret.then(|| "its content is secret".to_owned());
        let first: Vec<String> = [attributes, secret].into_iter().flatten().collect();
        let mut text = first.join(", ");
        if let Some(difference) = self.difference(desired) {
            text.push('\n');
            text.push_str(&difference);
        }
        let (action, key) = (homeostat_core::Step::action(self), self.key_in(desired).to_string());
        let text = match self.before() {
            Object::Program { differences, .. } => {
                let lines: Vec<String> = differences.iter().map(ToString::to_string).collect();
                (!lines.is_empty()).then(|| format!("without a reload\n{}", lines.join("\n")))
            }
            _ => self.key_in(desired).path().map(|_| text),
        };
        emit(Line { before, after, note: self.note(), text, ..Line::new(action, key) });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use homeostat_core::Step as _;

    use super::*;
    use crate::digest::DigestKey;
    use crate::model::Difference;

    #[test]
    fn a_reload_is_made_good_by_another_and_what_needs_none_is_undone() {
        let digests = DigestKey::generate().unwrap();
        let (files, directories) = (BTreeMap::new(), BTreeMap::new());
        let desired = DesiredState::with_program(&digests, files, directories, Some(("web", "2")));
        let is_reversible = |differences: Vec<Difference>| {
            let before = Object::Program { generation: Some("1".to_owned()), differences };
            let (slot, content) = (Slot::at(0), None);
            let step = Step::Write { slot, before, adopts: None, content, says: None };
            step.reversibility(&desired) == Reversibility::Reversible
        };
        assert!(!is_reversible(Vec::new()));
        assert!(is_reversible(vec![Difference::new("server web/s1 weight".to_owned(), "1", "2")]));
    }
}
