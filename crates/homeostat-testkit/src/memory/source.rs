//! The source in memory, in one variant for each way of failing, with its step, reader and writer. Its writer checks
//! preconditions as a good target does.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::MutexGuard;
use std::task::Poll;

use homeostat_engine::{
    Action, Change, ChangeList, Coverage, Desired, Draft, Fails, Failure, Focus, Hint, Line,
    Outcome, Outcomes, Owner, Reader, Retry, Reversibility, ScopeLock, See, Seen, Slot, Snapshot,
    Source, Stage, Step, Table, View, WaitsOn, Work, Writer,
};

use super::target::{Act, Echoes, Held, Mark, Target, World};

/// The constants of a source in memory.
pub trait Behaviour: Send + Sync + 'static {
    /// The name in plans and verdicts.
    const NAME: &'static str;
    const FAILS: Fails;
    const COVERAGE: Coverage = Coverage::All;
}

macro_rules! behaviour {
    ($(#[$doc:meta])* $name:ident, $text:literal, $fails:ident, $coverage:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl Behaviour for $name {
            const NAME: &'static str = $text;
            const FAILS: Fails = Fails::$fails;
            const COVERAGE: Coverage = Coverage::$coverage;
        }
    };
}

behaviour!(/// Fails by phases.
    Ordered, "memory-ordered", Ordered, All);
behaviour!(/// Fails step by step.
    Independent, "memory-independent", Independent, All);
behaviour!(/// Fails as a whole.
    Atomic, "memory-atomic", Atomic, All);
behaviour!(/// Fails key by key.
    Lanes, "memory-lanes", Lanes, All);
behaviour!(/// Fails step by step, and sends no hints.
    Quiet, "memory-quiet", Independent, None);

/// The source over a [`Target`].
#[derive(Debug)]
pub struct Memory<M> {
    access: Access,
    behaviour: PhantomData<fn() -> M>,
}

/// How a source, its reader and its writer see the target.
#[derive(Clone, Debug)]
struct Access {
    target: Target,
    marks: Marks,
    flaw: Option<Flaw>,
}

impl Access {
    fn is_flawed(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }
}

impl<M: Behaviour> Memory<M> {
    fn new(target: Target, marks: Marks) -> Self {
        Memory { access: Access { target, marks, flaw: None }, behaviour: PhantomData }
    }

    /// A source whose target holds marks.
    #[must_use]
    pub fn marked(target: Target) -> Self {
        Self::new(target, Marks::Held)
    }

    /// A source whose target cannot hold marks, for the other kinds of ownership.
    #[must_use]
    pub fn unmarked(target: Target) -> Self {
        Self::new(target, Marks::None)
    }

    /// A source of values that always exist and belong to nobody.
    #[must_use]
    pub fn values(target: Target) -> Self {
        Self::new(target, Marks::Nobody)
    }

    /// The same source with a flaw.
    #[must_use]
    pub fn with(mut self, flaw: Option<Flaw>) -> Self {
        self.access.flaw = flaw;
        self
    }
}

impl<M: Behaviour> Source for Memory<M> {
    const NAME: &'static str = M::NAME;
    const FAILS: Fails = M::FAILS;
    const COVERAGE: Coverage = M::COVERAGE;

    type Key = String;
    type Object = String;
    type Desired = Table<String, String>;
    type Step = Put;
    type Moment = ();
    type Reader = MemoryReader;
    type Writer = MemoryWriter;

    fn reader(&self) -> Result<MemoryReader, Failure> {
        self.access.target.note("subscribe".to_owned());
        if self.access.target.is_closed() {
            return Err(Failure::new("the target has no subscriptions", Retry::Soon));
        }
        Ok(MemoryReader(self.access.clone()))
    }

    fn writer(&self, _: &ScopeLock) -> Result<MemoryWriter, Failure> {
        Ok(MemoryWriter(self.access.clone()))
    }

    fn is_same(&self, other: &Self) -> bool {
        let (Access { target, marks, flaw }, other) = (&self.access, &other.access);
        target.is(&other.target) && (*marks, *flaw) == (other.marks, other.flaw)
    }

    fn plan(
        &self,
        desired: &Table<String, String>,
        (): &(),
        changes: ChangeList<String, String>,
    ) -> Draft<Self> {
        self.access.target.panic_if_due(Act::Plan);
        let mut steps: Vec<Put> =
            changes.into_iter().map(|change| Put::new(desired, change)).collect();
        let deleted = steps.iter().filter(|step| step.action() == Action::Delete);
        let deleted: Vec<String> = deleted.map(|step| step.key(desired)).collect();
        for step in steps.iter_mut().filter(|step| step.action() == Action::Delete) {
            let key = step.key(desired);
            step.users =
                deleted.iter().filter(|user| parent(user) == Some(&key)).cloned().collect();
        }
        match self.access.flaw {
            Some(Flaw::Fickle) => self.shuffle(&mut steps),
            Some(Flaw::Restless) => steps.extend(rewrites(desired)),
            Some(Flaw::Unordered) => {
                for step in steps.iter_mut().filter(|step| step.action() != Action::Delete) {
                    step.depth = DEEPEST - step.depth;
                }
            }
            Some(Flaw::DeletesParentsFirst) => {
                for step in steps.iter_mut().filter(|step| step.action() == Action::Delete) {
                    step.depth = DEEPEST - step.depth;
                    step.users.clear();
                }
            }
            _ => {}
        }
        Draft { steps, ..Draft::default() }
    }
}

impl<M> Memory<M> {
    /// Another order at every other plan.
    fn shuffle(&self, steps: &mut [Put]) {
        let mut world = self.access.target.world();
        world.plans += 1;
        if world.plans.is_multiple_of(2) {
            steps.reverse();
        }
    }
}

/// An update of the first object that changes nothing.
fn rewrites(desired: &Table<String, String>) -> Option<Put> {
    let (_, value) = desired.iter().next()?;
    let change = Change::Update { slot: Slot(0), before: value.clone(), adopts: None };
    Some(Put::new(desired, change))
}

/// What the target knows about owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marks {
    /// It holds marks.
    Held,
    /// It cannot hold marks.
    None,
    /// Its values belong to nobody.
    Nobody,
}

/// The step of one change.
#[derive(Clone, Debug)]
pub struct Put {
    change: Change<String, String>,
    depth: u8,
    /// The children that are deleted too, if this is a delete.
    users: Vec<String>,
}

impl Put {
    fn new(desired: &Table<String, String>, change: Change<String, String>) -> Self {
        let depth = change.key(desired).matches('/').count();
        let depth = u8::try_from(depth).unwrap_or(DEEPEST).min(DEEPEST);
        Put { change, depth, users: Vec::new() }
    }
}

/// Deeper than any key of a test.
const DEEPEST: u8 = 100;

/// The part before the last slash: what must exist first.
fn parent(key: &str) -> Option<&str> {
    key.rsplit_once('/').map(|(parent, _)| parent)
}

impl Step<Table<String, String>> for Put {
    fn key(&self, desired: &Table<String, String>) -> String {
        self.change.key(desired)
    }

    fn reversibility(&self, _desired: &Table<String, String>) -> Reversibility {
        Reversibility::Reversible
    }

    fn action(&self) -> Action {
        self.change.action()
    }

    /// Parents are created before their children and deleted after them; deletes come last.
    fn phase(&self) -> u8 {
        match self.action() {
            Action::Delete => 2 * DEEPEST + 1 - self.depth,
            _ => self.depth,
        }
    }

    fn needs(&self, desired: &Table<String, String>, need: &mut dyn FnMut(String)) {
        self.users.iter().cloned().for_each(&mut *need);
        if self.action() != Action::Delete
            && let Some(parent) = parent(&self.key(desired))
        {
            need(parent.to_owned());
        }
    }

    fn group(&self, desired: &Table<String, String>) -> Option<String> {
        parent(&self.key(desired)).map(str::to_owned)
    }

    fn explain(&self, desired: &Table<String, String>, emit: &mut dyn FnMut(Line)) {
        emit(self.change.line(desired));
    }
}

/// The reader of [`Memory`].
#[derive(Debug)]
pub struct MemoryReader(Access);

impl Access {
    fn owner(&self, held: &Held, is_declared: bool) -> Owner {
        let taken = if is_declared { Flaw::Usurps } else { Flaw::Steals };
        match (self.marks, held.mark) {
            (Marks::None, _) => Owner::Unmarked,
            (Marks::Nobody, _) => Owner::Nobody,
            (Marks::Held, Mark::Ours) if self.is_flawed(Flaw::Unmarked) => Owner::Unmarked,
            (Marks::Held, Mark::Foreign) if !self.is_flawed(taken) => Owner::foreign("a stranger"),
            (Marks::Held, _) => Owner::Ours,
        }
    }

    fn seen(&self, world: &World, held: &Held, context: Context) -> Option<Seen<String, String>> {
        let key = held.key.clone();
        if world.faults.unreadable.contains(&key) {
            let why = "the target does not let it be read".to_owned();
            let is_reported = !self.is_flawed(Flaw::UnreadableIsAbsent);
            return is_reported.then_some(Seen::Unknown { key, why });
        }
        let object = match self.flaw {
            Some(Flaw::NotNormalized) => held.value.to_uppercase(),
            Some(Flaw::NormalizesAgain) => format!("{}.", held.value),
            Some(Flaw::Credulous) if context.is_hinted => format!("{}?", held.value),
            _ => held.value.clone(),
        };
        Some(Seen::Present { key, object, owner: self.owner(held, context.is_declared) })
    }
}

/// What some flaws depend on.
#[derive(Clone, Copy)]
struct Context {
    is_declared: bool,
    is_hinted: bool,
}

impl<M: Behaviour> Reader<Memory<M>> for MemoryReader {
    async fn observe(
        &mut self,
        view: &View<'_, Memory<M>>,
        see: &mut See<'_, String, String>,
    ) -> Result<(), Failure> {
        let MemoryReader(access) = self;
        access.target.note(looked(view.focus));
        access.target.fail_if_due(Act::Observe).await;
        let mut world = access.target.world();
        world.writes += u64::from(access.is_flawed(Flaw::LooksWrite));
        if world.faults.blind {
            let failure = Failure::new("the target cannot be seen", Retry::Soon);
            return if access.is_flawed(Flaw::BlindIsEmpty) { Ok(()) } else { Err(failure) };
        }
        let in_focus = world.objects.iter().filter(|held| view.focus.covers(&held.key));
        for (at, held) in in_focus.enumerate() {
            if world.faults.torn_after == Some(at) {
                return Err(Failure::new("the look was cut short", Retry::Soon));
            }
            let is_declared = view.desired.iter().any(|(key, _)| *key == held.key);
            let context = Context { is_declared, is_hinted: *view.focus != Focus::All };
            access.seen(&world, held, context).into_iter().for_each(&mut *see);
        }
        if access.is_flawed(Flaw::TrustsIntents) {
            let is_held = |key: &String| world.objects.iter().any(|held| held.key == *key);
            let intents = view.records.iter().filter(|(_, record)| record.stage == Stage::Intent);
            for (key, record) in intents.filter(|(key, _)| !is_held(key)) {
                let (key, object) = (key.clone(), record.wrote.clone());
                see(Seen::Present { key, object, owner: Owner::Unmarked });
            }
        }
        Ok(())
    }

    async fn snapshots(
        &mut self,
        keys: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, Snapshot>, Failure> {
        let world = self.0.target.world();
        if world.faults.blind {
            return Err(Failure::new("the target cannot be seen", Retry::Soon));
        }
        let taken = world.objects.iter().filter(|held| keys.contains(&held.key));
        Ok(taken.map(|held| (held.key.clone(), Snapshot(held.value.clone()))).collect())
    }

    async fn hint(&mut self) -> Result<Hint<String>, Failure> {
        let is_silent = M::COVERAGE == Coverage::None && !self.0.is_flawed(Flaw::Chatty);
        if is_silent || self.0.is_flawed(Flaw::Deaf) {
            return std::future::pending().await;
        }
        poll_fn(|context| self.0.target.poll_hint(context)).await
    }
}

fn looked(focus: &Focus<String>) -> String {
    match focus {
        Focus::All => "look at all".to_owned(),
        Focus::Keys(keys) => {
            format!("look at {}", keys.iter().cloned().collect::<Vec<_>>().join(" "))
        }
    }
}

/// The writer of [`Memory`].
#[derive(Debug)]
pub struct MemoryWriter(Access);

impl Access {
    fn answer(&self, at: usize, outcome: Outcome<String>, out: &dyn Outcomes<String>) {
        if self.is_flawed(Flaw::AnswersTwice) {
            out.put(at..at + 1, outcome.clone());
        }
        if !(self.is_flawed(Flaw::Mute) && at == 0) {
            out.put(at..at + 1, outcome);
        }
    }

    /// Each step by itself.
    async fn apply_each<M: Behaviour>(
        &self,
        work: &Work<'_, Memory<M>>,
        out: &dyn Outcomes<String>,
    ) {
        let mut given_up = false;
        for (at, step) in work.iter() {
            self.target.fail_if_due(Act::Apply).await;
            let outcome = if given_up {
                Outcome::Failed(Failure::new("gave up", Retry::Soon))
            } else {
                self.write(&mut self.target.world(), work.desired, step)
            };
            let is_created = matches!(step.change, Change::Create { .. }) && outcome.is_good();
            if is_created && self.is_flawed(Flaw::MarksLater) {
                self.mark_later(&step.key(work.desired)).await;
            }
            given_up |= self.is_flawed(Flaw::GivesUp) && !outcome.is_good();
            self.answer(at, outcome, out);
        }
    }

    /// The mark of an object that was just created is set in a second call.
    async fn mark_later(&self, key: &str) {
        self.target.mark(key, Mark::Foreign);
        let mut has_waited = false;
        poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut has_waited, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.target.mark(key, Mark::Ours);
    }

    /// All steps or none.
    fn apply_all<M: Behaviour>(&self, work: &Work<'_, Memory<M>>, out: &dyn Outcomes<String>) {
        let mut world = self.target.world();
        let before = world.objects.clone();
        let outcomes: Vec<_> = work
            .iter()
            .map(|(at, step)| (at, self.write(&mut world, work.desired, step)))
            .collect();
        let bad = outcomes.iter().find(|(_, outcome)| !outcome.is_good()).cloned();
        if bad.is_some() {
            world.objects = before;
        }
        for (at, outcome) in outcomes {
            let rolled_back = || Outcome::Pending {
                on: WaitsOn::Condition("the transaction, which was refused".into()),
            };
            let outcome = if outcome.is_good() && bad.is_some() { rolled_back() } else { outcome };
            self.answer(at, outcome, out);
        }
    }

    fn write(
        &self,
        world: &mut MutexGuard<'_, World>,
        desired: &Table<String, String>,
        step: &Put,
    ) -> Outcome<String> {
        world.writes += 1;
        let key = step.key(desired);
        world.log.push(format!("write {key}"));
        let refused = world.faults.refused.contains(&key);
        if refused || world.faults.refuse_write == Some(world.writes) {
            let usual = if self.is_flawed(Flaw::Storms) { Retry::Now } else { Retry::Soon };
            let retry = world.faults.refused_until.unwrap_or(usual);
            let error = world.faults.refused_with.as_deref().unwrap_or("the target refused");
            return Outcome::Failed(Failure::new(error, retry));
        }
        if let Some(owner) = self.conflicting_owner(world, &key, step) {
            return Outcome::Conflict { owner };
        }
        let outcome = put(world, desired, step);
        if world.faults.echoes == Echoes::Received {
            world.notify(&key);
        }
        if self.is_flawed(Flaw::Sprawls) {
            let (key, value) = ("sprawl".to_owned(), String::new());
            world.objects.retain(|held| held.key != key);
            world.objects.push(Held { key, value, mark: Mark::Foreign });
        }
        outcome
    }

    /// The owner of an object that forbids the step: a create needs a free key, other steps an object of ours.
    fn conflicting_owner(&self, world: &World, key: &str, step: &Put) -> Option<Owner> {
        let held = world.objects.iter().find(|held| held.key == key)?;
        let lies = self.is_flawed(Flaw::Usurps) || self.is_flawed(Flaw::Steals);
        let blocked = match &step.change {
            Change::Create { .. } => !self.is_flawed(Flaw::Greedy),
            Change::Update { adopts: Some(_), .. } => false,
            _ => {
                let is_checked = !lies && !self.is_flawed(Flaw::Heedless);
                self.marks == Marks::Held && held.mark == Mark::Foreign && is_checked
            }
        };
        blocked.then(|| Owner::foreign("a stranger"))
    }
}

fn put(world: &mut World, desired: &Table<String, String>, step: &Put) -> Outcome<String> {
    let key = step.key(desired);
    let wanted = match &step.change {
        Change::Create { slot } | Change::Update { slot, .. } => desired.object(*slot),
        Change::Release { restore: Some(original), .. } => original.clone(),
        Change::Release { before, restore: None, .. } => before.clone(),
        Change::GiveBack { taken, .. } => taken.snapshot.0.clone(),
        Change::Delete { .. } => {
            world.objects.retain(|held| held.key != key);
            return Outcome::Applied { now: None };
        }
    };
    let value = world.faults.rewrite.map_or_else(|| wanted.clone(), |rewrite| rewrite(&wanted));
    store(world, &key, &value, &step.change);
    if world.faults.answer_lost.contains(&key) {
        return Outcome::Unknown { why: "the answer was lost".to_owned() };
    }
    match world.faults.no_read_back {
        true => Outcome::Applied { now: None },
        false if value != wanted => Outcome::Settled { held: value },
        false => Outcome::Applied { now: Some(value) },
    }
}

fn store(world: &mut World, key: &str, value: &str, change: &Change<String, String>) {
    let found = world.objects.iter_mut().find(|held| held.key == key);
    let (key, value) = (key.to_owned(), value.to_owned());
    match found {
        Some(held) => {
            held.value = value;
            match change {
                Change::Update { adopts: Some(_), .. } => held.mark = Mark::Ours,
                Change::GiveBack { .. } => held.mark = Mark::Foreign,
                _ => {}
            }
        }
        None => world.objects.push(Held { key, value, mark: Mark::Ours }),
    }
}

impl<M: Behaviour> Writer<Memory<M>> for MemoryWriter {
    async fn apply(&self, work: Work<'_, Memory<M>>, out: &dyn Outcomes<String>) {
        match M::FAILS {
            Fails::Atomic => self.0.apply_all(&work, out),
            _ => self.0.apply_each(&work, out).await,
        }
    }
}

/// What a source does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Law 1: observe writes.
    LooksWrite,
    /// Law 1: a failed observe is reported as an empty target.
    BlindIsEmpty,
    /// Law 1: an object that could not be read is reported as absent.
    UnreadableIsAbsent,
    /// Law 2: objects do not read back as they were written.
    NotNormalized,
    /// Law 2: the normal form ends with a dot, and one is added each time that an object is read.
    NormalizesAgain,
    /// Law 3: the same input gives another plan the next time.
    Fickle,
    /// Law 4: a write touches an object that its step does not name.
    Sprawls,
    /// Law 4: a step gets no outcome.
    Mute,
    /// Law 4: a step gets two outcomes.
    AnswersTwice,
    /// Law 4: a foreign object on a desired key is reported as ours.
    Usurps,
    /// Law 4: a create writes over what appeared since the look.
    Greedy,
    /// Law 4: an update or a delete touches what replaced our object since the look.
    Heedless,
    /// Law 5: a foreign object on another key is reported as ours.
    Steals,
    /// Law 6: every plan has a step.
    Restless,
    /// Law 7: an object is reported as changed because of a hint.
    Credulous,
    /// Law 8: created objects have no mark, and are not recorded.
    Unmarked,
    /// Law 8, after a crash: the mark is set in a second call, and nothing is recorded before the first.
    MarksLater,
    /// Law 8, after a crash: what was announced in the ledger is reported as present.
    TrustsIntents,
    /// Law 9: after a refused step all others fail.
    GivesUp,
    /// Law 9: children are created before their parents.
    Unordered,
    /// Law 9: parents are deleted before their children.
    DeletesParentsFirst,
    /// Law 9: what is refused is to be tried again at once.
    Storms,
    /// Law 10: hints are promised, and none arrive.
    Deaf,
    /// Law 10: no hints are promised, and some arrive.
    Chatty,
}
