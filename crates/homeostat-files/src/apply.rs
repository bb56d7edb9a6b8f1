//! The only writer: all steps as one swap.

use std::collections::BTreeSet;

use homeostat_core::{
    Desired as _, Failure, Outcome, Outcomes, Owner, Phase, Retry, WaitsOn, Work,
};

use crate::accounts::Accounts;
use crate::check::{Check, Verdict};
use crate::key::Key;
use crate::model::{DesiredState, Object};
use crate::observe::Moment;
use crate::place::Root;
use crate::plan::Step;
use crate::program::now;
use crate::programs::Known;
use crate::programs::haproxy::ServerName;
use crate::running::{Program, Taken};
use crate::source::Files;
use crate::store::SetStore;
use crate::swap::{Act, Done, Item, Swap, Trouble, Why};

/// Swaps sets of files.
#[derive(Debug)]
pub struct Writer {
    files: Files,
    store: SetStore,
}

impl Writer {
    /// Opens the writer, and ends what a process that died had begun.
    pub(crate) fn open(files: Files) -> Result<Self, Failure> {
        let store = files.store.set(&files.set, &files.disk).map_err(|error| {
            let directory = files.store.directory().display();
            Failure::new(format!("{directory} cannot be written: {error}"), Retry::Soon)
        })?;
        files.inputs.lock().keep_accepted();
        let writer = Writer { files, store };
        let recovered = writer.swap().and_then(|mut swap| {
            swap.recover().map_err(|error| {
                let error = format!("a swap that was interrupted cannot be ended: {error}");
                Failure::new(error, Retry::Soon)
            })
        });
        recovered.map(|()| writer)
    }

    fn swap(&self) -> Result<Swap<'_>, Failure> {
        let Files { root, store, disk, .. } = &self.files;
        let opened = Root::open(root).map_err(|error| {
            Failure::new(format!("{} cannot be opened: {error}", root.display()), Retry::Soon)
        })?;
        Ok(Swap {
            root: opened,
            accounts: Accounts::read(root),
            digests: store.digests(),
            store: &self.store,
            disk,
        })
    }

    /// Asks the program of the set once more, right before the swap: what it reads beside the set may have changed.
    fn check(&self, work: &Work<'_, Files>, items: &[Item<'_>]) -> Result<(), Trouble> {
        // What runs already needs no judge.
        if work.moment.is_structure_running {
            return Ok(());
        }
        let is_told = work.steps.iter().any(|step| is_program(step, work.desired));
        if let Some(program) = self.files.program.as_ref().filter(|_| is_told) {
            try_out(program, work, items)?;
        }
        let (Some(check), false) = (&self.files.check, work.desired.is_empty()) else {
            return Ok(());
        };
        let verdict = check.ask(work.desired, work.moment.removed.clone());
        let Some((key, failure)) = verdict.failure() else { return Ok(()) };
        if matches!(verdict, Verdict::Refused(_)) {
            self.files.counters.refused_checks.add(1);
        }
        let is_blamed = |item: &Item<'_>| key.and_then(Key::path) == Some(item.path);
        let item = items.iter().position(is_blamed).unwrap_or_default();
        Err(Trouble { item: Some(item), why: Why::Failed(failure) })
    }

    /// Lets the program of the set take the files over that are in place now.
    fn take_over(&self, work: &Work<'_, Files>) -> Result<Taken, Trouble> {
        let (Some(program), Some((_, target))) = (&self.files.program, work.desired.target())
        else {
            return Ok(Taken::Whole);
        };
        let keys = work.desired.iter().filter_map(|(key, _)| key.path());
        let (keys, reloads) = (keys.map(ToString::to_string), self.files.counters.reloads.get());
        let taken = program.take_over(target, keys, &self.store, &self.files.counters);
        if self.files.counters.reloads.get() != reloads {
            self.files.brake().ended(now());
        }
        taken.map_err(|mut failure| {
            // Without a note of it, the same is tried once more.
            let _ = self.store.write_refused(&target.identity, &failure.error);
            let refused = (target.identity.clone(), failure.error.clone());
            self.files.inputs.lock().refused = Some(refused);
            let back = Phase::RolledBack { failure: failure.clone() };
            self.files.inputs.lock().phases.push(back);
            if work.desired.resolution.trial.is_some() {
                // Other values are tried in place of these.
                failure.retry = Retry::Now;
            }
            Trouble { item: None, why: Why::Failed(failure) }
        })
    }

    fn is_asked(&self) -> bool {
        self.files.program.as_ref().is_some_and(|program| program.running.is_some())
    }

    /// Starts the program on the files that are back, if it died.
    fn revive(&self, work: &Work<'_, Files>) {
        if let (Some(program), Some((_, target))) = (&self.files.program, work.desired.target()) {
            program.revive(&target.generation);
        }
    }

    fn run(&self, work: &Work<'_, Files>) -> Vec<Outcome<Object>> {
        let mut swap = match self.swap() {
            Ok(swap) => swap,
            Err(failure) => return vec![Outcome::Failed(failure); work.steps.len()],
        };
        // In the order of a swap: directories before what is in them, files before those that name them, removals last.
        let mut order: Vec<usize> = (0..work.steps.len()).collect();
        let check = self.files.check.as_ref();
        order.sort_by_key(|at| work.steps.get(*at).map(|step| rank(step, work.desired, check)));
        let items: Vec<(usize, Item<'_>)> = order
            .into_iter()
            .filter_map(|at| Some((at, item(work.steps.get(at)?, work.desired, work.moment)?)))
            .collect();
        let (numbers, items): (Vec<usize>, Vec<Item<'_>>) = items.into_iter().unzip();
        let held = |step: &Step| match step {
            Step::Leave { before, .. } => Outcome::Settled { held: before.clone() },
            // Who cannot be asked cannot be looked at again.
            Step::Write { slot, .. } if is_program(step, work.desired) && !self.is_asked() => {
                Outcome::Applied { now: Some(work.desired.object(*slot)) }
            }
            _ => Outcome::Applied { now: None },
        };
        let mut outcomes: Vec<_> = work.steps.iter().map(held).collect();
        if let Err(error) = self.note_moved(work) {
            let error = format!("what is moved away cannot be kept: {error}");
            return vec![Outcome::Failed(Failure::new(error, Retry::Soon)); work.steps.len()];
        }
        let check = || self.check(work, &items);
        let program = work.steps.iter().position(|step| is_program(step, work.desired));
        let reloads = self.files.counters.reloads.get();
        let mut running = Taken::Whole;
        let take_over = || {
            if program.is_some() {
                running = self.take_over(work)?;
            }
            Ok(())
        };
        let taken = swap.run(&items, check, take_over);
        if taken.is_err() {
            self.revive(work);
        }
        match taken {
            Ok(done) => {
                let left = numbers.iter().zip(&items).zip(done);
                for ((at, item), _) in left.filter(|(_, done)| *done == Done::Left) {
                    if let Some(outcome) = outcomes.get_mut(*at) {
                        *outcome = Outcome::Settled { held: item.before.clone() };
                    }
                }
                let deployed = Phase::Deployed { objects: items.len() };
                let is_reloaded = self.files.counters.reloads.get() != reloads;
                let reloaded = program.filter(|_| is_reloaded).map(|_| Phase::Reloaded);
                let deployed = (!items.is_empty()).then_some(deployed);
                self.files.inputs.lock().phases.extend(deployed.into_iter().chain(reloaded));
                // Without it, edits are not healed while a newer content is refused.
                let _ = self.store.write_good(work.desired);
                if let (Taken::Leaving(servers), Some(outcome)) =
                    (&running, program.and_then(|at| outcomes.get_mut(at)))
                {
                    *outcome = Outcome::Pending { on: waits_on(servers) };
                }
                if let (None, Some(asked), Some((_, generation))) =
                    (program, &self.files.program, work.desired.generation())
                {
                    asked.files_are_back(generation);
                }
                // A copy that is left over costs room only.
                let kept = &work.moment.recorded;
                let claimed = &work.moment.kept;
                if claimed.is_empty() {
                    let is_needed = |name: &str| kept.iter().any(|digest| digest.as_str() == name);
                    let _ = self.store.retain(is_needed);
                }
            }
            Err(trouble) => {
                let blame = match trouble.item {
                    Some(item) => numbers.get(item).copied(),
                    None => program,
                };
                let key = blame.and_then(|at| work.steps.get(at));
                let key = key.map(|step| step.key_in(work.desired).to_string());
                for at in numbers.iter().chain(&program) {
                    if let Some(outcome) = outcomes.get_mut(*at) {
                        let on = WaitsOn::Key(key.clone().unwrap_or_default());
                        *outcome = Outcome::Pending { on };
                    }
                }
                if let Some(outcome) = blame.and_then(|at| outcomes.get_mut(at)) {
                    *outcome = outcome_of(trouble);
                }
            }
        }
        outcomes
    }
}

impl Writer {
    /// Notes what others' files are like that are about to be moved away: the last one on a path is the one that returns.
    fn note_moved(&self, work: &Work<'_, Files>) -> std::io::Result<()> {
        let former = self.files.store.moved(&self.files.set);
        let mut moved = former.clone();
        moved.retain(|path, _| work.moment.moved.iter().any(|known| known.as_str() == path));
        for step in work.steps {
            if let (Step::Write { slot, before: Object::File(file), .. }, Some(path)) =
                (step, step.key_in(work.desired).path())
                && work.desired.at(*slot).1.is_nothing()
            {
                moved.insert(path.to_string(), file.clone());
            }
        }
        if moved == former { Ok(()) } else { self.store.write_moved(&moved) }
    }
}

fn waits_on(servers: &BTreeSet<ServerName>) -> WaitsOn {
    const MOST: usize = 5;
    let names = servers.iter().take(MOST).map(|(backend, server)| format!("{backend}/{server}"));
    let names = names.collect::<Vec<_>>().join(", ");
    let more = servers.len().saturating_sub(MOST);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    WaitsOn::Condition(format!("the connections of {names}{more}, which leave when they end"))
}

impl homeostat_core::Writer<Files> for Writer {
    async fn apply(&self, work: Work<'_, Files>, out: &dyn Outcomes<Object>) {
        for (at, outcome) in (work.first..).zip(self.run(&work)) {
            out.put(at..at + 1, outcome);
        }
    }
}

fn outcome_of(trouble: Trouble) -> Outcome<Object> {
    match trouble.why {
        Why::Failed(failure) => Outcome::Failed(failure),
        Why::Moved => Outcome::Failed(Failure::new(
            "another program has changed it since it was looked at",
            Retry::Now,
        )),
        Why::Occupied => {
            Outcome::Conflict { owner: Owner::foreign("another program, or a person") }
        }
    }
}

fn rank(step: &Step, desired: &DesiredState, check: Option<&Check>) -> (u8, Key) {
    let key = step.key_in(desired).clone();
    let is_moved = matches!(step, Step::Write { slot, .. } if desired.at(*slot).1.is_nothing());
    let rank = match step {
        _ if is_moved => 3,
        Step::Write { .. } | Step::Restore { .. } if key.is_directory() => 0,
        Step::Write { .. } | Step::Restore { .. } => {
            if check.is_some_and(|check| check.names(&key)) { 2 } else { 1 }
        }
        Step::Remove { .. } if !key.is_directory() => 3,
        Step::Remove { .. } | Step::Leave { .. } => 4,
    };
    (rank, key)
}

/// Tries what a check does not: whether the program could work with its new main file.
fn try_out(program: &Program, work: &Work<'_, Files>, items: &[Item<'_>]) -> Result<(), Trouble> {
    let Some(Known { main, .. }) = &program.known else { return Ok(()) };
    let Some(item) = items.iter().position(|item| item.path == main) else { return Ok(()) };
    let key = Key::File(main.clone());
    if work.moment.edited.contains(&key) {
        // What it runs is not what is there, so it is unknown what is new.
        return Ok(());
    }
    let wanted = work.desired.wanted(&key);
    let Some(after) = wanted.and_then(|wanted| wanted.content.as_ref()) else { return Ok(()) };
    let before = std::fs::read(main.as_str()).unwrap_or_default();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let tried = program.try_out(&text(&before), &text(after.bytes()));
    tried.map_err(|failure| Trouble { item: Some(item), why: Why::Failed(failure) })
}

fn is_program(step: &Step, desired: &DesiredState) -> bool {
    let key = step.key_in(desired);
    matches!((step, key), (Step::Write { .. }, Key::Program(_)))
}

/// What a step writes; nothing, if it writes nothing.
fn item<'a>(step: &'a Step, desired: &'a DesiredState, moment: &Moment) -> Option<Item<'a>> {
    let key = step.key_in(desired);
    let (before, after, content) = match step {
        Step::Write { slot, before, .. } => {
            let wanted = desired.at(*slot).1;
            (before, Some(&wanted.object), wanted.content.as_ref())
        }
        Step::Restore { before, original, content, .. } => {
            (before, Some(original), content.as_ref())
        }
        Step::Remove { before, .. } => (before, None, None),
        Step::Leave { .. } => return None,
    };
    let act = match (after, content) {
        (Some(Object::File(file)), Some(content)) => Act::Write {
            content: content.bytes(),
            attributes: &file.attributes,
            is_secret: file.secret,
            keeps: matches!(step, Step::Write { .. }) && moment.kept.contains(key),
        },
        (Some(Object::Directory(attributes)), _) if *before == Object::Nothing => {
            Act::MakeDirectory(attributes)
        }
        (Some(Object::Directory(attributes)), _) => Act::SetDirectory(attributes),
        (Some(Object::Nothing), _) => Act::Remove { keeps: true },
        (Some(_), _) => return None,
        (None, _) if key.is_directory() => Act::RemoveDirectory,
        (None, _) => Act::Remove { keeps: false },
    };
    Some(Item { path: key.path()?, before, act })
}
