//! Work that the target did by itself: told as applied, or as failed, once it has ended.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_engine::{
    Action, Audience, Cause, Entry, Explain, Failure, Kind, Line, Retry, Summary,
};

use crate::output::Told;

/// What reports call it when the target works on something.
const TASK: &str = "task ";

/// What one report and the next tell together: what was under way in the first and is nothing to be told
/// of in the second was done.
pub(super) fn after(before: Told, now: Told) -> Told {
    let open = mentioned(&*now.what);
    let mut done = under_way(&*before.what);
    done.retain(|key, _| !open.contains(key));
    if done.is_empty() {
        return now.after(before);
    }
    let place = now.place.clone();
    now.after(Told { place, what: Box::new(Landed(done)) }).after(before)
}

/// The same report, with work that ended badly told as such.
pub(super) fn given_up(told: Told, failed: &BTreeMap<String, String>) -> Told {
    let mut failures = under_way(&*told.what);
    failures.retain(|key, why| {
        let known = failed.get(key).cloned();
        *why = known.clone().unwrap_or_default();
        known.is_some()
    });
    let Told { place, what } = told;
    Told { place, what: Box::new(GivenUp { failures, rest: what }) }
}

/// The keys that wait for work of the target, their own or that of others.
pub(super) fn waiting(all: &[Told]) -> BTreeSet<String> {
    const FOR_OTHERS: [&str; 2] = ["a free place", "what is under way"];
    let mut keys = BTreeSet::new();
    for told in all {
        told.what.explain(Kind::Pending, &mut |entry| match entry {
            Entry::Pending { key, on }
                if on.starts_with(TASK) || FOR_OTHERS.iter().any(|it| on.starts_with(it)) =>
            {
                keys.insert(key);
            }
            _ => {}
        });
    }
    keys
}

/// The keys on which the target works, with its names for the work.
pub(super) fn under_way(what: &dyn Explain) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    what.explain(Kind::Pending, &mut |entry| {
        if let Entry::Pending { key, on } = entry
            && let Some(task) = on.strip_prefix(TASK)
        {
            found.insert(key, task.to_owned());
        }
    });
    found
}

fn mentioned(what: &dyn Explain) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for kind in [Kind::Pending, Kind::Failed, Kind::Unknown, Kind::Conflict, Kind::Held] {
        what.explain(kind, &mut |entry| match entry {
            Entry::Pending { key, .. }
            | Entry::Failed { key, .. }
            | Entry::Unknown { key, .. }
            | Entry::Conflict { key, .. }
            | Entry::Held { key, .. } => {
                keys.insert(key);
            }
            _ => {}
        });
    }
    keys
}

struct Landed(BTreeMap<String, String>);

impl Explain for Landed {
    fn explain(&self, kind: Kind, tell: &mut dyn FnMut(Entry)) {
        if kind != Kind::Applied {
            return;
        }
        for (key, task) in &self.0 {
            let note = Some(format!("task {task}"));
            let (key, action) = (key.clone(), Action::Update);
            tell(Entry::Applied(
                Line { action, key, before: None, after: None, note },
                Cause::Config,
            ));
        }
    }

    fn sample(&self, kind: Kind, audience: &mut dyn Audience) {
        if audience.wants(Cause::Config) {
            self.explain(kind, &mut |entry| audience.hear(entry));
        }
    }

    fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        self.0.iter().for_each(|_| summary.count(Action::Update));
        summary
    }

    fn is_converged(&self) -> bool {
        true
    }
}

struct GivenUp {
    failures: BTreeMap<String, String>,
    rest: Box<dyn Explain>,
}

impl Explain for GivenUp {
    fn explain(&self, kind: Kind, tell: &mut dyn FnMut(Entry)) {
        if kind == Kind::Failed {
            for (key, why) in &self.failures {
                let failure = Failure::new(why.clone(), Retry::Soon).with_help(
                    "look at the task's log in the target; `homeostat journal` tells its name",
                );
                tell(Entry::Failed { action: Some(Action::Update), key: key.clone(), failure });
            }
        }
        self.rest.explain(kind, &mut |entry| match &entry {
            Entry::Pending { key, .. } if self.failures.contains_key(key) => {}
            _ => tell(entry),
        });
    }

    fn sample(&self, kind: Kind, audience: &mut dyn Audience) {
        self.rest.sample(kind, audience);
    }

    fn summary(&self) -> Summary {
        self.rest.summary()
    }

    fn is_converged(&self) -> bool {
        self.failures.is_empty() && self.rest.is_converged()
    }
}
