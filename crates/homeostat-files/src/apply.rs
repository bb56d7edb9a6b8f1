//! The only writer: all steps as one swap.

use std::collections::BTreeSet;

use homeostat_core::{
    Desired as _, Failure, Outcome, Outcomes, Owner, Phase, Retry, Snapshot, WaitsOn, Work,
};

use crate::accounts::Accounts;
use crate::check::{Check, Verdict};
use crate::key::Key;
use crate::masking::masked;
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
            let trusted = program.check_programs();
            trusted.map_err(|failure| Trouble { item: None, why: Why::Failed(failure) })?;
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
            failure.error = masked(work.desired, &failure.error);
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
        let prepared = self.swap().and_then(|swap| self.note_moved(work).map(|()| swap));
        let mut swap = match prepared {
            Ok(swap) => swap,
            Err(failure) => return vec![Outcome::Failed(failure); work.steps.len()],
        };
        let writes = Writes::in_order(work, self.files.check.as_ref());
        let reloads = self.files.counters.reloads.get();
        let mut taken = Taken::Whole;
        let take_over = || {
            if writes.program.is_some() {
                taken = self.take_over(work)?;
            }
            Ok(())
        };
        match swap.run(&writes.items, || self.check(work, &writes.items), take_over) {
            Ok(done) => {
                let is_reloaded = self.files.counters.reloads.get() != reloads;
                self.record_done(work, &writes, is_reloaded);
                writes.outcomes_of_done(self.outcomes_of_success(work), &done, &taken)
            }
            Err(trouble) => {
                self.revive(work);
                writes.outcomes_of_trouble(self.outcomes_of_success(work), work, trouble)
            }
        }
    }

    /// The outcome of each step, if the swap succeeds.
    fn outcomes_of_success(&self, work: &Work<'_, Files>) -> Vec<Outcome<Object>> {
        let outcome = |step: &Step| match step {
            Step::Leave { before, .. } => Outcome::Settled { held: before.clone() },
            // A program that cannot be queried cannot be observed again.
            Step::Write { slot, .. } if is_program(step, work.desired) && !self.is_asked() => {
                Outcome::Applied { now: Some(work.desired.object(*slot)) }
            }
            _ => Outcome::Applied { now: None },
        };
        work.steps.iter().map(outcome).collect()
    }

    /// Records that the set is in place: its phases, the last good set, and which originals are still needed.
    fn record_done(&self, work: &Work<'_, Files>, writes: &Writes<'_>, is_reloaded: bool) {
        let objects = writes.items.len();
        let deployed = (objects > 0).then_some(Phase::Deployed { objects });
        let reloaded = writes.program.filter(|_| is_reloaded).map(|_| Phase::Reloaded);
        self.files.inputs.lock().phases.extend(deployed.into_iter().chain(reloaded));
        // Without it, edits are not healed while a newer content is refused.
        let _ = self.store.write_good(work.desired);
        if let (None, Some(program), Some((_, generation))) =
            (writes.program, &self.files.program, work.desired.generation())
        {
            program.files_are_back(generation);
        }
        // A copy that is left over costs room only.
        if work.moment.kept.is_empty() {
            let recorded = &work.moment.recorded;
            let _ = self.store.retain(|name| recorded.iter().any(|one| one.as_str() == name));
        }
    }

    /// Notes what others' files are like that are about to be moved away: the last one on a path is the one that returns.
    fn note_moved(&self, work: &Work<'_, Files>) -> Result<(), Failure> {
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
        if moved == former {
            return Ok(());
        }
        self.store.write_moved(&moved).map_err(|error| {
            let error = format!("what is moved away cannot be kept: {error}");
            Failure::new(error, Retry::Soon)
        })
    }
}

/// The steps of a set that write.
struct Writes<'a> {
    /// What becomes of each path, in the order of a swap.
    items: Vec<Item<'a>>,
    /// The number of the step of each item.
    steps: Vec<usize>,
    /// The number of the step of the program.
    program: Option<usize>,
}

impl<'a> Writes<'a> {
    /// Directories before what is in them, files before those that name them, removals last.
    fn in_order(work: &Work<'a, Files>, check: Option<&Check>) -> Self {
        let mut order: Vec<usize> = (0..work.steps.len()).collect();
        order.sort_by_key(|at| work.steps.get(*at).map(|step| rank(step, work.desired, check)));
        let items = order
            .into_iter()
            .filter_map(|at| Some((at, item(work.steps.get(at)?, work.desired, work.moment)?)));
        let (steps, items) = items.unzip();
        let program = work.steps.iter().position(|step| is_program(step, work.desired));
        Writes { items, steps, program }
    }

    /// Directories that others use stay, and so do servers with connections.
    fn outcomes_of_done(
        &self,
        mut outcomes: Vec<Outcome<Object>>,
        done: &[Done],
        taken: &Taken,
    ) -> Vec<Outcome<Object>> {
        for ((at, item), done) in self.steps.iter().zip(&self.items).zip(done) {
            if let (Done::Left, Some(outcome)) = (done, outcomes.get_mut(*at)) {
                *outcome = Outcome::Settled { held: item.before.clone() };
            }
        }
        let program = self.program.and_then(|at| outcomes.get_mut(at));
        if let (Taken::Leaving(servers), Some(outcome)) = (taken, program) {
            *outcome = Outcome::Pending { on: waits_on(servers) };
        }
        outcomes
    }

    /// Nothing was written: the step that is to blame failed, and the others wait for it.
    fn outcomes_of_trouble(
        &self,
        mut outcomes: Vec<Outcome<Object>>,
        work: &Work<'_, Files>,
        trouble: Trouble,
    ) -> Vec<Outcome<Object>> {
        let blamed = match trouble.item {
            Some(item) => self.steps.get(item).copied(),
            None => self.program,
        };
        let key = blamed.and_then(|at| work.steps.get(at));
        let key = key.map(|step| step.key_in(work.desired).to_string()).unwrap_or_default();
        for at in self.steps.iter().chain(&self.program) {
            if let Some(outcome) = outcomes.get_mut(*at) {
                *outcome = Outcome::Pending { on: WaitsOn::Key(key.clone()) };
            }
        }
        if let Some(outcome) = blamed.and_then(|at| outcomes.get_mut(at)) {
            *outcome = outcome_of(trouble);
        }
        outcomes
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

    async fn restore(&self, key: &Key, snapshot: &Snapshot) -> Outcome<Object> {
        let (Key::Attributes(path), Ok(wanted)) = (key, serde_json::from_str(&snapshot.0)) else {
            return Outcome::Failed(Failure::new("its record cannot be read", Retry::Never));
        };
        let set = self.swap().and_then(|mut swap| {
            swap.set_attributes_at(path, &wanted).map_err(|error| {
                let error = format!("owner, group and mode cannot be set: {error}");
                Failure::new(error, Retry::Soon)
            })
        });
        set.map_or_else(Outcome::Failed, |()| Outcome::Applied { now: None })
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
