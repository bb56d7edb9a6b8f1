//! Declared keys that are there only while a check is good: what sources declare, what checks have found, and how the
//! keys of a loop stand by that. Who runs checks writes to the [`HealthBoard`]; loops follow it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use educe::Educe;
use homeostat_core::health::{Condition, State};
use homeostat_core::{Focus, Key, Standing, Standings, WaitsOn};
use tokio::sync::watch;
use tokio::time::Instant;

/// What the checks of a program have found so far. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct HealthBoard(Arc<watch::Sender<Verdicts>>);

/// By scope and condition.
type Verdicts = BTreeMap<(String, Condition), Verdict>;

/// How a condition stands in a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct Verdict {
    pub state: State,
    /// Since when; none while nothing is decided.
    pub since: Option<Instant>,
    /// Why the check failed the last time, if it ever did.
    pub reason: Option<String>,
    /// Until when it does not count as good, because it failed soon after it had come back.
    pub held_until: Option<Instant>,
    /// How often it began to fail.
    pub failures: u64,
}

impl Verdict {
    /// Of a check that has only just begun to run.
    #[must_use]
    pub fn undecided() -> Self {
        Verdict {
            state: State::Undecided,
            since: None,
            reason: None,
            held_until: None,
            failures: 0,
        }
    }
}

impl HealthBoard {
    /// Notes how a condition stands in a scope.
    pub fn set(&self, scope: &str, condition: &Condition, verdict: Verdict) {
        self.0.send_if_modified(|verdicts| {
            let key = (scope.to_owned(), condition.clone());
            let has_changed = verdicts.get(&key) != Some(&verdict);
            verdicts.insert(key, verdict);
            has_changed
        });
    }

    /// Forgets a condition whose check does not run any more.
    pub fn remove(&self, scope: &str, condition: &Condition) {
        let key = (scope.to_owned(), condition.clone());
        self.0.send_if_modified(|verdicts| verdicts.remove(&key).is_some());
    }

    /// All of them, by scope and condition.
    #[must_use]
    pub fn verdicts(&self) -> BTreeMap<(String, Condition), Verdict> {
        self.0.borrow().clone()
    }
}

/// The conditions of a source's keys in one scope.
#[derive(Clone, Debug, Educe)]
#[educe(Default)]
pub struct Conditions<K> {
    keys: Arc<BTreeMap<K, Condition>>,
    board: HealthBoard,
    scope: String,
    /// How the keys stand for as long as a pass takes, whatever checks find meanwhile.
    fixed: Option<Arc<Standings<K>>>,
}

impl<K: Key> Conditions<K> {
    /// The conditions of these keys, by what a board says about a scope.
    #[must_use]
    pub fn new(keys: BTreeMap<K, Condition>, board: HealthBoard, scope: impl Into<String>) -> Self {
        Conditions { keys: Arc::new(keys), board, scope: scope.into(), fixed: None }
    }

    /// What has to be checked; a condition of many keys once.
    #[must_use]
    pub fn to_check(&self) -> BTreeSet<Condition> {
        self.keys.values().cloned().collect()
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.keys == other.keys
    }

    /// How the keys stand now.
    #[must_use]
    pub fn standings(&self) -> Arc<Standings<K>> {
        if let Some(fixed) = &self.fixed {
            return Arc::clone(fixed);
        }
        if self.keys.is_empty() {
            return Arc::default();
        }
        let verdicts = self.board.0.borrow();
        let mut known = BTreeMap::<&Condition, Option<Standing>>::new();
        let mut standings = Standings::new();
        for (key, condition) in &*self.keys {
            let standing = known.entry(condition).or_insert_with(|| {
                standing(condition, verdicts.get(&(self.scope.clone(), condition.clone())))
            });
            standings.extend(standing.clone().map(|standing| (key.clone(), standing)));
        }
        Arc::new(standings)
    }
}

/// None while the condition holds.
fn standing(condition: &Condition, verdict: Option<&Verdict>) -> Option<Standing> {
    let on = |why: String| WaitsOn::Check { check: condition.check.to_string(), why };
    let Some(verdict) = verdict else {
        return Some(Standing::Undecided(on("only a daemon runs it".to_owned())));
    };
    let reason = verdict.reason.clone();
    match verdict.state {
        State::Good => None,
        State::Failing => Some(Standing::Withdrawn(on(reason.unwrap_or_default()))),
        State::Undecided => {
            let why = reason.unwrap_or_else(|| "it has not run often enough yet".to_owned());
            Some(Standing::Undecided(on(why)))
        }
    }
}

/// Follows the conditions of a loop.
pub(crate) struct HealthWatch<K> {
    conditions: Conditions<K>,
    verdicts: watch::Receiver<Verdicts>,
    /// As the loop was last told.
    standings: Arc<Standings<K>>,
    /// The keys that may be there again, until a pass has looked at them.
    returned: BTreeSet<K>,
}

impl<K: Key> HealthWatch<K> {
    pub(crate) fn new(conditions: Conditions<K>) -> Self {
        let verdicts = conditions.board.0.subscribe();
        let standings = conditions.standings();
        HealthWatch { conditions, verdicts, standings, returned: BTreeSet::new() }
    }

    /// Follows other conditions from now on. A full pass is to come.
    pub(crate) fn replace(&mut self, conditions: Conditions<K>) {
        if !self.conditions.is_same(&conditions) {
            *self = HealthWatch::new(conditions);
        }
    }

    /// Waits until keys stand in another way, and names them. Cancel-safe.
    pub(crate) async fn changed(&mut self) -> BTreeSet<K> {
        loop {
            if self.conditions.keys.is_empty() || self.verdicts.changed().await.is_err() {
                return std::future::pending().await;
            }
            let keys = self.learn();
            if !keys.is_empty() {
                return keys;
            }
        }
    }

    /// Takes over how the keys stand now, and names those that stand in another way than before.
    fn learn(&mut self) -> BTreeSet<K> {
        let now = self.conditions.standings();
        let way =
            |standings: &Standings<K>, key: &K| standings.get(key).map(std::mem::discriminant);
        let keys = self.conditions.keys.keys();
        let changed = keys.filter(|key| way(&now, key) != way(&self.standings, key)).cloned();
        let changed: BTreeSet<K> = changed.collect();
        for key in &changed {
            if now.contains_key(key) {
                self.returned.remove(key);
            } else {
                self.returned.insert(key.clone());
            }
        }
        self.standings = now;
        changed
    }

    /// The conditions for one pass, which must not change under it.
    pub(crate) fn of_pass(&self) -> Conditions<K> {
        let mut standings = Arc::clone(&self.standings);
        if !self.returned.is_empty() {
            let returned = self.returned.iter().map(|key| (key.clone(), Standing::Returned));
            Arc::make_mut(&mut standings).extend(returned);
        }
        Conditions { fixed: Some(standings), ..self.conditions.clone() }
    }

    /// A pass has looked at these keys.
    pub(crate) fn passed(&mut self, focus: &Focus<K>) {
        self.returned.retain(|key| !focus.covers(key));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn condition(check: &str) -> Condition {
        Condition::new(check.parse().unwrap())
    }

    fn verdict(state: State) -> Verdict {
        Verdict { state, reason: Some("refused".to_owned()), ..Verdict::undecided() }
    }

    /// The keys that stand in another way, in one word each.
    fn words(standings: &Standings<String>) -> Vec<String> {
        let word = |standing: &Standing| match standing {
            Standing::Withdrawn(on) => format!("withdrawn, {on}"),
            Standing::Undecided(on) => format!("undecided, {on}"),
            Standing::Returned => "returned".to_owned(),
        };
        standings.iter().map(|(key, standing)| format!("{key}: {}", word(standing))).collect()
    }

    #[test]
    fn keys_follow_their_own_check_in_their_own_scope() {
        let (board, [one, other]) =
            (HealthBoard::default(), ["tcp:127.0.0.1:53", "ping:127.0.0.1"].map(condition));
        let keys = [("a", &one), ("b", &one), ("c", &other)];
        let keys = keys.map(|(key, condition)| (key.to_owned(), condition.clone()));
        let conditions = Conditions::new(keys.into(), board.clone(), "host");
        assert_eq!(conditions.to_check().len(), 2, "a check that many keys name runs once");
        let mut watch = HealthWatch::new(conditions);
        let daemon = "only a daemon runs it";
        assert_eq!(
            words(&watch.of_pass().standings()),
            [
                format!("a: undecided, check tcp:127.0.0.1:53: {daemon}"),
                format!("b: undecided, check tcp:127.0.0.1:53: {daemon}"),
                format!("c: undecided, check ping:127.0.0.1: {daemon}"),
            ]
        );
        board.set("host", &one, verdict(State::Failing));
        board.set("blue", &other, verdict(State::Failing));
        assert_eq!(watch.changed().now_or_never(), Some(["a", "b"].map(str::to_owned).into()));
        assert_eq!(
            words(&watch.of_pass().standings())[0],
            "a: withdrawn, check tcp:127.0.0.1:53: refused"
        );
        // Another reason is no news for a loop.
        board.set("host", &one, Verdict { reason: None, ..verdict(State::Failing) });
        assert_eq!(watch.changed().now_or_never(), None);
        board.set("host", &one, verdict(State::Good));
        assert_eq!(watch.changed().now_or_never(), Some(["a", "b"].map(str::to_owned).into()));
        assert_eq!(words(&watch.of_pass().standings())[..2], ["a: returned", "b: returned"]);
        watch.passed(&Focus::Keys(["a".to_owned()].into()));
        assert_eq!(words(&watch.of_pass().standings())[0], "b: returned");
        watch.passed(&Focus::All);
        assert_eq!(watch.of_pass().standings().len(), 1, "only the undecided one is left");
    }
}
