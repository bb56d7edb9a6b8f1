//! A source whose plan is written down: a step is `SIGN KEY[:PHASE][<NEED,NEED][#GROUP]`, where the
//! sign is one of `+ ~ % -` (create, update, replace, delete).

#![allow(clippy::unwrap_used, reason = "a row that cannot be read is a mistake in the test")]

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;

use homeostat_core::{
    Action, Batch, ChangeList, Changes, Coverage, Draft, Fails, Failure, Line, Outcomes, Plan,
    Reader, Reversibility, Schedule, ScopeLock, See, Source, Step, Strictness, Table, View, Work,
    Writer,
};

pub(crate) type Keys = Table<String, u32>;

/// How the steps of a scripted source fail.
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

pub(crate) struct Scripted<M> {
    pub(crate) steps: Vec<Scribble>,
    mode: PhantomData<M>,
}

impl<M> Scripted<M> {
    pub(crate) fn new(steps: Vec<Scribble>) -> Self {
        Scripted { steps, mode: PhantomData }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Scribble {
    pub(crate) key: String,
    pub(crate) action: Action,
    pub(crate) phase: u8,
    pub(crate) needs: Vec<String>,
    pub(crate) group: Option<String>,
}

pub(crate) fn steps(rows: &str) -> Vec<Scribble> {
    rows.split_whitespace().map(step).collect()
}

fn step(row: &str) -> Scribble {
    let (row, group) = row.split_once('#').map_or((row, None), |(row, group)| (row, Some(group)));
    let (row, needs) = row.split_once('<').unwrap_or((row, ""));
    let (row, phase) = row.split_once(':').unwrap_or((row, "0"));
    let action = match &row[..1] {
        "+" => Action::Create,
        "~" => Action::Update,
        "%" => Action::Replace,
        _ => Action::Delete,
    };
    Scribble {
        key: row[1..].to_owned(),
        action,
        phase: phase.parse().unwrap(),
        needs: needs.split(',').filter(|need| !need.is_empty()).map(str::to_owned).collect(),
        group: group.map(str::to_owned),
    }
}

impl Step<Keys> for Scribble {
    fn key(&self, _: &Keys) -> String {
        self.key.clone()
    }

    fn reversibility(&self, _desired: &Keys) -> Reversibility {
        Reversibility::Reversible
    }

    fn action(&self) -> Action {
        self.action
    }

    fn phase(&self) -> u8 {
        self.phase
    }

    fn needs(&self, _: &Keys, need: &mut dyn FnMut(String)) {
        self.needs.iter().cloned().for_each(need);
    }

    fn group(&self, _: &Keys) -> Option<String> {
        self.group.clone()
    }

    fn explain(&self, _: &Keys, emit: &mut dyn FnMut(Line)) {
        let (action, key) = (self.action, self.key.clone());
        emit(Line::new(action, key));
    }
}

impl<M: Mode> Source for Scripted<M> {
    const NAME: &'static str = "scripted";
    const FAILS: Fails = M::FAILS;
    const COVERAGE: Coverage = Coverage::None;

    type Key = String;
    type Object = u32;
    type Desired = Keys;
    type Step = Scribble;
    type Moment = ();
    type Reader = Nothing;
    type Writer = Nothing;

    fn reader(&self) -> Result<Nothing, Failure> {
        Ok(Nothing)
    }

    fn writer(&self, _: &ScopeLock) -> Result<Nothing, Failure> {
        Ok(Nothing)
    }

    fn plan(&self, _: &Keys, (): &(), _: ChangeList<String, u32>) -> Draft<Self> {
        Draft { steps: self.steps.clone(), ..Draft::default() }
    }
}

/// Neither sees nor writes.
pub(crate) struct Nothing;

impl<M: Mode> Reader<Scripted<M>> for Nothing {
    async fn observe(
        &mut self,
        _: &View<'_, Scripted<M>>,
        _: &mut See<'_, String, u32>,
    ) -> Result<(), Failure> {
        Ok(())
    }
}

impl<M: Mode> Writer<Scripted<M>> for Nothing {
    async fn apply(&self, _: Work<'_, Scripted<M>>, _: &dyn Outcomes<u32>) {}
}

pub(crate) fn plan<M: Mode>(steps: Vec<Scribble>) -> Plan<Scripted<M>> {
    plan_for(steps, Keys::default(), Changes::default())
}

pub(crate) fn plan_for<M: Mode>(
    steps: Vec<Scribble>,
    desired: Keys,
    found: Changes<String, u32>,
) -> Plan<Scripted<M>> {
    Plan::new(&Scripted::new(steps), Arc::new(desired), (), found)
}

/// Plays the engine: the steps of `bad` keys fail when they run, and those that wait went bad too.
pub(crate) fn turns<M: Mode>(
    plan: &Plan<Scripted<M>>,
    strictness: Strictness,
    bad: &BTreeSet<String>,
) -> Vec<Batch> {
    let mut schedule = Schedule::new(strictness);
    let mut turns = Vec::new();
    while let Some(turn) = schedule.next(plan) {
        let bad: Vec<_> = match &turn {
            Batch::Run(steps) => {
                steps.clone().filter(|at| bad.contains(&plan.steps[*at].key)).collect()
            }
            Batch::Wait { steps, .. } => steps.clone().collect(),
            Batch::Lanes(_) => vec![],
        };
        for at in bad {
            schedule.went_bad(plan, at);
        }
        turns.push(turn);
    }
    turns
}
