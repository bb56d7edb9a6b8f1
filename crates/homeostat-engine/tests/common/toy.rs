//! The source for the toy target. How its steps fail is a type; what else it says of its steps is
//! scripted.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

use homeostat_engine::{
    Action, Change, ChangeList, Coverage, Desired as _, Draft, Fails, Failure, Line, Outcome,
    Outcomes, Owner, Reader, Retry, Reversibility, ScopeLock, See, Seen, Source, Step, Table,
    Taken, View, Work, Writer,
};

use super::world::{Fault, World};

pub(crate) type DesiredState = Table<String, u32>;

/// `KEY=NUMBER` rows.
pub(crate) fn desired(rows: &str) -> DesiredState {
    let parsed = rows.split_whitespace().map(|row| {
        let (key, number) = row.split_once('=').unwrap();
        (key.to_owned(), number.parse().unwrap())
    });
    Table::new(parsed).unwrap()
}

pub(crate) trait Mode: Send + Sync + 'static {
    const FAILS: Fails;
}

macro_rules! modes {
    ($($name:ident),*) => {$(
        pub(crate) struct $name;
        impl Mode for $name {
            const FAILS: Fails = Fails::$name;
        }
    )*};
}
modes!(Ordered, Independent, Atomic, Lanes);

/// What the source says of its steps.
#[derive(Clone, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent answers, named where they are given")]
pub(crate) struct Script {
    /// Whether new objects carry our mark.
    pub(crate) marks: bool,
    /// Whether the target answers a write with what it holds after it.
    pub(crate) echoes: bool,
    /// Whether the ledger must witness every step.
    pub(crate) recorded: bool,
    /// Keys whose changes become two steps.
    pub(crate) split: BTreeSet<String>,
    /// Keys that are removed in two steps.
    pub(crate) removed_in_two: BTreeSet<String>,
    /// Keys that are updated by removing them and making them again.
    pub(crate) remade: BTreeSet<String>,
    pub(crate) needs: BTreeMap<String, String>,
    pub(crate) takes: BTreeMap<String, Taken>,
    pub(crate) disturbs: BTreeMap<String, String>,
}

pub(crate) struct Toy<M> {
    pub(crate) world: World,
    pub(crate) script: Script,
    mode: PhantomData<M>,
}

impl<M> Toy<M> {
    pub(crate) fn new(world: World, script: Script) -> Self {
        Toy { world, script, mode: PhantomData }
    }
}

pub(crate) struct Write {
    key: String,
    /// The number to write; nothing removes the object.
    to: Option<u32>,
    action: Action,
    /// Of a value that stays when it is given up.
    stays: bool,
    phase: u8,
    recorded: bool,
    need: Option<String>,
    takes: Vec<Taken>,
    disturb: Option<String>,
}

impl Step<DesiredState> for Write {
    fn key(&self, _: &DesiredState) -> String {
        self.key.clone()
    }

    fn reversibility(&self, _desired: &DesiredState) -> Reversibility {
        match &self.key {
            key if key.starts_with("restarts") => Reversibility::Compensable("a restart".into()),
            key if key.starts_with("loses") => Reversibility::Irreversible("a loss".into()),
            _ => Reversibility::Reversible,
        }
    }

    fn action(&self) -> Action {
        self.action
    }

    fn phase(&self) -> u8 {
        self.phase
    }

    fn needs(&self, _: &DesiredState, need: &mut dyn FnMut(String)) {
        self.need.iter().cloned().for_each(need);
    }

    fn takes(&self) -> &[Taken] {
        &self.takes
    }

    fn disturbs(&self, _: &DesiredState, disturb: &mut dyn FnMut(String)) {
        self.disturb.iter().cloned().for_each(disturb);
    }

    fn is_recorded(&self) -> bool {
        self.recorded
    }

    fn explain(&self, _: &DesiredState, emit: &mut dyn FnMut(Line)) {
        let (action, key) = (self.action, self.key.clone());
        emit(Line { after: self.to.map(Into::into), ..Line::new(action, key) });
    }
}

impl<M: Mode> Source for Toy<M> {
    const NAME: &'static str = "toy";
    const FAILS: Fails = M::FAILS;
    const COVERAGE: Coverage = Coverage::None;

    type Key = String;
    type Object = u32;
    type Desired = DesiredState;
    type Step = Write;
    type Moment = ();
    type Reader = Eyes;
    type Writer = Hands;

    fn reader(&self) -> Result<Eyes, Failure> {
        Ok(Eyes(self.world.clone()))
    }

    fn writer(&self, _: &ScopeLock) -> Result<Hands, Failure> {
        Ok(Hands { world: self.world.clone(), script: self.script.clone() })
    }

    fn plan(
        &self,
        desired: &DesiredState,
        (): &(),
        changes: ChangeList<String, u32>,
    ) -> Draft<Self> {
        let steps = changes.into_iter().flat_map(|change| self.steps(desired, &change)).collect();
        Draft { steps, ..Draft::default() }
    }
}

impl<M> Toy<M> {
    fn steps(&self, desired: &DesiredState, change: &Change<String, u32>) -> Vec<Write> {
        let key = change.key(desired);
        let (action, to) = match change {
            Change::Create { slot } => (Action::Create, Some(desired.object(*slot))),
            Change::Update { slot, .. } => (Action::Update, Some(desired.object(*slot))),
            Change::Delete { .. } | Change::GiveBack { .. } => (Action::Delete, None),
            Change::Release { restore, .. } => (Action::Delete, *restore),
        };
        let late = u8::from(action == Action::Delete) * 4
            + u8::from(self.script.needs.contains_key(&key)) * 2;
        let step = |(part, (action, to)): (u8, (Action, Option<u32>))| Write {
            key: key.clone(),
            to,
            action,
            stays: matches!(change, Change::Release { .. }),
            phase: late + part,
            recorded: self.script.recorded,
            need: self.script.needs.get(&key).cloned(),
            takes: self.script.takes.get(&key).cloned().into_iter().collect(),
            disturb: self.script.disturbs.get(&key).cloned(),
        };
        (0..).zip(self.parts(&key, action, to)).map(step).collect()
    }

    fn parts(&self, key: &str, action: Action, to: Option<u32>) -> Vec<(Action, Option<u32>)> {
        match action {
            Action::Create if self.script.split.contains(key) => {
                vec![(Action::Create, Some(0)), (Action::Update, to)]
            }
            Action::Delete if self.script.removed_in_two.contains(key) => vec![(action, to); 2],
            Action::Update if self.script.remade.contains(key) => {
                vec![(Action::Delete, None), (Action::Create, to)]
            }
            _ => vec![(action, to)],
        }
    }
}

pub(crate) struct Eyes(World);

impl<M: Mode> Reader<Toy<M>> for Eyes {
    async fn observe(
        &mut self,
        view: &View<'_, Toy<M>>,
        see: &mut See<'_, String, u32>,
    ) -> Result<(), Failure> {
        let mut state = self.0.state();
        let state = &mut *state;
        state.log.push(match view.focus {
            homeostat_engine::Focus::All => "look at all".to_owned(),
            homeostat_engine::Focus::Keys(keys) => {
                format!("look at {}", keys.iter().cloned().collect::<Vec<_>>().join(" "))
            }
        });
        if let Some(left) = &mut state.looks_left {
            *left = left.checked_sub(1).ok_or_else(|| Failure::new("it is dark", Retry::Soon))?;
        }
        for (key, (object, owner)) in state.objects.iter().filter(|(key, _)| view.focus.covers(key))
        {
            let (key, object, owner) = (key.clone(), *object, owner.clone());
            see(if state.unreadable.contains(&key) {
                Seen::Unknown { key, why: "unreadable".to_owned() }
            } else {
                Seen::Present { key, object, owner }
            });
        }
        match state.torn_looks.checked_sub(1) {
            None => Ok(()),
            Some(left) => {
                state.torn_looks = left;
                Err(Failure::new("it moved", Retry::Now))
            }
        }
    }
}

pub(crate) struct Hands {
    world: World,
    script: Script,
}

impl<M: Mode> Writer<Toy<M>> for Hands {
    async fn apply(&self, work: Work<'_, Toy<M>>, out: &dyn Outcomes<u32>) {
        for (at, step) in work.iter() {
            if let Some(outcome) = self.run(step) {
                out.put(at..at + 1, outcome);
            }
        }
    }
}

impl Hands {
    fn run(&self, step: &Write) -> Option<Outcome<u32>> {
        let key = &step.key;
        let number = step.to.map_or("none".to_owned(), |number| number.to_string());
        let fault = self.world.fault(key);
        self.world.note(format!("write {key}={number}"));
        let kept = match fault {
            Some(Fault::Settle(held) | Fault::Rewrite(held)) => step.to.map(|_| held),
            _ => step.to,
        };
        if matches!(fault, None | Some(Fault::LoseAnswer | Fault::Settle(_) | Fault::Rewrite(_))) {
            self.keep(step, kept);
        }
        if fault == Some(Fault::Overtake) {
            self.world.holds(&format!("{key}=1@bird"));
        }
        let now = self.script.echoes.then_some(kept).flatten();
        Some(match fault {
            None | Some(Fault::Pretend | Fault::Overtake | Fault::Rewrite(_)) => {
                Outcome::Applied { now }
            }
            Some(Fault::Settle(held)) => Outcome::Settled { held },
            Some(Fault::Refuse) => Outcome::Failed(Failure::new("refused", Retry::Soon)),
            Some(Fault::Taken) => Outcome::Conflict { owner: Owner::foreign("bird") },
            Some(Fault::LoseAnswer) => Outcome::Unknown { why: "the answer was lost".to_owned() },
            Some(Fault::Postpone) => Outcome::Waiting { task: "7".to_owned() },
            Some(Fault::Ignore) => return None,
        })
    }

    fn keep(&self, step: &Write, number: Option<u32>) {
        let mut state = self.world.state();
        let owner = match state.objects.get(&step.key) {
            Some((_, Owner::Nobody)) => Owner::Nobody,
            Some((_, Owner::Unmarked)) | None if !self.script.marks => Owner::Unmarked,
            _ => Owner::Ours,
        };
        match number {
            Some(number) => drop(state.objects.insert(step.key.clone(), (number, owner))),
            None if !step.stays => drop(state.objects.remove(&step.key)),
            None => {}
        }
        if let Some((other, number)) = state.couplings.get(&step.key).cloned()
            && let Some((held, _)) = state.objects.get_mut(&other)
        {
            *held = number;
        }
    }
}
