//! Which value of each input is in force, and which is still to be tried.
//!
//! ```text
//! Unknown ──answer──▶ Pending ──accepted──▶ Accepted (kept, also through restarts) ──another answer──▶ Pending ...
//!                        └──refused──▶ Pending with the reason; what was accepted before stays in force
//! ```
//!
//! A new value is in force once the consumer has tried it: rendered, checked by the program that is to read the files, and
//! accepted. All pending values are tried together first. If they are refused together, each is tried alone, so that one bad
//! input does not hold the good ones. Nothing here waits or reads; start at [`Inputs::propose`].

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::error::Error;
use crate::kept::Kept;
use crate::value::Value;

/// The inputs of a set.
#[derive(Debug, Default)]
pub struct Inputs {
    entries: BTreeMap<String, Entry>,
    round: Round,
    /// Whether accepted values are not kept for the next start.
    is_only_read: bool,
}

/// One input.
#[derive(Debug, Default)]
struct Entry {
    accepted: Option<Value>,
    pending: Option<Pending>,
    /// Why the last question was not answered.
    silence: Option<String>,
    /// Where the accepted value is kept, if it is.
    kept: Option<Kept>,
}

/// A value that is not in force.
#[derive(Debug)]
struct Pending {
    value: Value,
    trial: Trial,
}

#[derive(Debug, PartialEq)]
enum Trial {
    /// To be tried in this round.
    Due,
    Refused {
        why: String,
    },
    /// No file has read it, or another input is missing.
    Unread,
}

/// How the values that are due are tried.
#[derive(Debug, Default)]
enum Round {
    #[default]
    Together,
    /// They were refused together, for this reason.
    Alone { why: String },
}

/// Values to be tried: some of them pending, the others accepted.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Proposal {
    /// By name; an input without a value is missing.
    pub values: BTreeMap<String, Value>,
    /// The names of those that are not in force yet.
    pub pending: BTreeSet<String>,
}

/// What became of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The files that were made of it may be used. These inputs were read for them.
    Accepted { reads: BTreeSet<String> },
    /// They may not, and trying the same again would not help.
    Refused { why: String },
    /// They could not be made, since an input that they read has no value.
    Incomplete,
    /// They could not be checked: the same is proposed again.
    Unchecked,
}

/// How an input stands, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum InputState {
    /// There is no value at all.
    Unknown { why: Option<String> },
    /// There is a newer value than the one in force, if there is one in force.
    Pending { has_accepted: bool, refused: Option<String> },
    /// The newest value is in force. It may be old, if its source is silent.
    Accepted { silence: Option<String> },
}

impl Inputs {
    /// Declares an input. A value that was accepted before a restart is in force at once, if it is kept.
    pub fn add(&mut self, name: impl Into<String>, kept: Option<Kept>) {
        let accepted = kept.as_ref().and_then(Kept::read);
        let entry = Entry { accepted, kept, ..Entry::default() };
        self.entries.insert(name.into(), entry);
    }

    /// Whether values that are accepted from now on are kept for the next start; by default they are. Who only plans
    /// writes nothing.
    pub fn keep_accepted(&mut self, is_kept: bool) {
        self.is_only_read = !is_kept;
    }

    /// Takes what an input has answered, or why it has not. True if there is something new to be tried.
    pub fn answer(&mut self, name: &str, answer: Result<Value, String>) -> bool {
        let Some(entry) = self.entries.get_mut(name) else { return false };
        let value = match answer {
            Ok(value) => value,
            Err(why) => {
                entry.silence = Some(why);
                return false;
            }
        };
        entry.silence = None;
        if entry.pending.as_ref().is_some_and(|pending| pending.value == value) {
            return false;
        }
        if entry.accepted.as_ref() == Some(&value) {
            entry.pending = None;
            return false;
        }
        entry.pending = Some(Pending { value, trial: Trial::Due });
        self.reconsider();
        true
    }

    /// Has all pending values tried again: a template, a fact or another input is not what it was.
    pub fn reconsider(&mut self) {
        self.round = Round::Together;
        for pending in self.entries.values_mut().filter_map(|entry| entry.pending.as_mut()) {
            pending.trial = Trial::Due;
        }
    }

    /// The values that are in force.
    #[must_use]
    pub fn accepted(&self) -> BTreeMap<String, Value> {
        let accepted =
            |(name, entry): (&String, &Entry)| Some((name.clone(), entry.accepted.clone()?));
        self.entries.iter().filter_map(accepted).collect()
    }

    /// What is to be tried next, if anything is. Call it until it returns nothing, with a [verdict](Self::judge) for each
    /// proposal; after [`Verdict::Unchecked`], wait before.
    #[must_use]
    pub fn propose(&self) -> Option<Proposal> {
        let mut due = self.entries.iter().filter(|(_, entry)| entry.due().is_some());
        let pending: BTreeSet<String> = match self.round {
            Round::Together => due.map(|(name, _)| name.clone()).collect(),
            Round::Alone { .. } => due.next().map(|(name, _)| name.clone()).into_iter().collect(),
        };
        let mut values = self.accepted();
        for name in &pending {
            let value = self.entries.get(name).and_then(Entry::due);
            values.extend(value.map(|value| (name.clone(), value.clone())));
        }
        (!pending.is_empty()).then_some(Proposal { values, pending })
    }

    /// Says what became of a proposal. An answer that came meanwhile is not touched. The error says that an accepted
    /// value could not be kept for the next start; it is in force all the same.
    pub fn judge(&mut self, proposal: &Proposal, verdict: Verdict) -> Result<(), Error> {
        match verdict {
            Verdict::Unchecked => Ok(()),
            Verdict::Accepted { reads } => self.accept(proposal, &reads),
            Verdict::Incomplete => {
                let trial = match &self.round {
                    Round::Alone { why } => Trial::Refused { why: why.clone() },
                    Round::Together => Trial::Unread,
                };
                for entry in self.tried(proposal) {
                    entry.end_trial(&trial);
                }
                Ok(())
            }
            Verdict::Refused { why } if proposal.pending.len() > 1 => {
                self.round = Round::Alone { why };
                Ok(())
            }
            Verdict::Refused { why } => {
                for entry in self.tried(proposal) {
                    entry.end_trial(&Trial::Refused { why: why.clone() });
                }
                Ok(())
            }
        }
    }

    fn accept(&mut self, proposal: &Proposal, reads: &BTreeSet<String>) -> Result<(), Error> {
        let mut kept = Ok(());
        let mut has_accepted = false;
        for name in &proposal.pending {
            let (Some(entry), Some(value)) =
                (self.entries.get_mut(name), proposal.values.get(name))
            else {
                continue;
            };
            if !reads.contains(name) {
                if entry.due() == Some(value) {
                    entry.end_trial(&Trial::Unread);
                }
                continue;
            }
            has_accepted = true;
            entry.accepted = Some(value.clone());
            if entry.due() == Some(value) {
                entry.pending = None;
            }
            if let (Some(place), false) = (&entry.kept, self.is_only_read) {
                kept = kept.and(place.write(value));
            }
        }
        // What was refused alone may fit to what is in force from here on.
        if let (Round::Alone { .. }, true) = (&self.round, has_accepted) {
            for pending in self.entries.values_mut().filter_map(|entry| entry.pending.as_mut()) {
                pending.trial = Trial::Due;
            }
        }
        kept
    }

    /// The inputs whose pending value was in a proposal, and is still the newest.
    fn tried<'a>(&'a mut self, proposal: &'a Proposal) -> impl Iterator<Item = &'a mut Entry> {
        let tried = self.entries.iter_mut().filter(|(name, entry)| {
            let value = entry.due().filter(|_| proposal.pending.contains(*name));
            value.is_some_and(|value| proposal.values.get(*name) == Some(value))
        });
        tried.map(|(_, entry)| entry)
    }

    /// How each input stands.
    pub fn states(&self) -> impl Iterator<Item = (&str, InputState)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry.state()))
    }
}

impl Entry {
    fn due(&self) -> Option<&Value> {
        let due = self.pending.as_ref().filter(|pending| pending.trial == Trial::Due);
        due.map(|pending| &pending.value)
    }

    fn end_trial(&mut self, trial: &Trial) {
        if let Some(pending) = &mut self.pending {
            pending.trial = match trial {
                Trial::Due => Trial::Due,
                Trial::Unread => Trial::Unread,
                Trial::Refused { why } => Trial::Refused { why: why.clone() },
            };
        }
    }

    fn state(&self) -> InputState {
        match (&self.pending, &self.accepted) {
            (Some(pending), accepted) => InputState::Pending {
                has_accepted: accepted.is_some(),
                refused: match &pending.trial {
                    Trial::Refused { why } => Some(why.clone()),
                    Trial::Due | Trial::Unread => None,
                },
            },
            (None, Some(_)) => InputState::Accepted { silence: self.silence.clone() },
            (None, None) => InputState::Unknown { why: self.silence.clone() },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn inputs(names: &[&str]) -> Inputs {
        let mut inputs = Inputs::default();
        for name in names {
            inputs.add(*name, None);
        }
        inputs
    }

    fn answer(inputs: &mut Inputs, name: &str, value: &str) -> bool {
        inputs.answer(name, Ok(Value::from(value)))
    }

    /// Tries proposals until there is none; the rule says whether values may be used. Returns how many were tried.
    fn settle(inputs: &mut Inputs, rule: impl Fn(&BTreeMap<String, Value>) -> Verdict) -> usize {
        for tries in 0..1000 {
            let Some(proposal) = inputs.propose() else { return tries };
            inputs.judge(&proposal, rule(&proposal.values)).unwrap();
        }
        panic!("it does not end");
    }

    /// Reads all inputs, and refuses those that say "bad".
    fn no_bad(values: &BTreeMap<String, Value>) -> Verdict {
        match values.iter().find(|(_, value)| **value == Value::from("bad")) {
            Some((name, _)) => Verdict::Refused { why: format!("{name} is bad") },
            None => Verdict::Accepted { reads: values.keys().cloned().collect() },
        }
    }

    fn accepted(inputs: &Inputs) -> Vec<(String, Value)> {
        inputs.accepted().into_iter().collect()
    }

    fn values(expected: &[(&str, &str)]) -> Vec<(String, Value)> {
        expected.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect()
    }

    fn state(inputs: &Inputs, name: &str) -> InputState {
        inputs.states().find(|(found, _)| *found == name).unwrap().1
    }

    #[test]
    fn a_value_is_in_force_once_it_was_accepted() {
        let mut inputs = inputs(&["a"]);
        assert_eq!(state(&inputs, "a"), InputState::Unknown { why: None });
        assert!(inputs.propose().is_none());
        assert!(answer(&mut inputs, "a", "1"));
        assert_eq!(accepted(&inputs), []);
        assert_eq!(state(&inputs, "a"), InputState::Pending { has_accepted: false, refused: None });
        assert_eq!(settle(&mut inputs, no_bad), 1);
        assert_eq!(accepted(&inputs), values(&[("a", "1")]));
        assert!(!answer(&mut inputs, "a", "1"), "it says the same again");
        assert_eq!(state(&inputs, "a"), InputState::Accepted { silence: None });
    }

    #[test]
    fn a_silent_or_refused_input_keeps_its_last_good_value() {
        let mut inputs = inputs(&["a"]);
        answer(&mut inputs, "a", "1");
        settle(&mut inputs, no_bad);
        answer(&mut inputs, "a", "bad");
        assert_eq!(settle(&mut inputs, no_bad), 1);
        assert_eq!(accepted(&inputs), values(&[("a", "1")]));
        let refused = Some("a is bad".to_owned());
        assert_eq!(state(&inputs, "a"), InputState::Pending { has_accepted: true, refused });
        assert!(!answer(&mut inputs, "a", "bad"), "what was refused is not tried again");
        answer(&mut inputs, "a", "1");
        assert!(!inputs.answer("a", Err("no route to host".to_owned())));
        let silence = Some("no route to host".to_owned());
        assert_eq!(state(&inputs, "a"), InputState::Accepted { silence });
        assert_eq!(accepted(&inputs), values(&[("a", "1")]));
    }

    #[test]
    fn a_good_value_is_accepted_although_another_is_refused() {
        let mut inputs = inputs(&["a", "b", "c"]);
        for name in ["a", "b", "c"] {
            answer(&mut inputs, name, "1");
        }
        settle(&mut inputs, no_bad);
        answer(&mut inputs, "a", "2");
        answer(&mut inputs, "b", "bad");
        answer(&mut inputs, "c", "2");
        settle(&mut inputs, no_bad);
        assert_eq!(accepted(&inputs), values(&[("a", "2"), ("b", "1"), ("c", "2")]));
        assert_eq!(
            state(&inputs, "b"),
            InputState::Pending { has_accepted: true, refused: Some("b is bad".to_owned()) }
        );
    }

    /// `a` is only valid with the new `b`; `c` is bad.
    #[test]
    fn a_value_that_needs_another_is_tried_again_when_that_is_in_force() {
        let rule = |values: &BTreeMap<String, Value>| {
            let is = |name, value| values.get(name) == Some(&Value::from(value));
            if is("a", "2") && !is("b", "2") {
                return Verdict::Refused { why: "a needs b".to_owned() };
            }
            no_bad(values)
        };
        let mut inputs = inputs(&["a", "b", "c"]);
        for name in ["a", "b", "c"] {
            answer(&mut inputs, name, "1");
        }
        settle(&mut inputs, rule);
        answer(&mut inputs, "a", "2");
        answer(&mut inputs, "b", "2");
        answer(&mut inputs, "c", "bad");
        settle(&mut inputs, rule);
        assert_eq!(accepted(&inputs), values(&[("a", "2"), ("b", "2"), ("c", "1")]));
    }

    #[test]
    fn an_input_that_nobody_reads_is_neither_waited_for_nor_accepted() {
        let reads_a = |values: &BTreeMap<String, Value>| match values.get("a") {
            Some(_) => Verdict::Accepted { reads: BTreeSet::from(["a".to_owned()]) },
            None => Verdict::Incomplete,
        };
        let mut inputs = inputs(&["a", "b", "never"]);
        answer(&mut inputs, "b", "1");
        assert_eq!(settle(&mut inputs, reads_a), 1, "it waits for a");
        answer(&mut inputs, "a", "1");
        assert_eq!(settle(&mut inputs, reads_a), 1);
        assert_eq!(accepted(&inputs), values(&[("a", "1")]));
        assert!(inputs.propose().is_none());
        // Another template reads it.
        inputs.reconsider();
        assert_eq!(settle(&mut inputs, no_bad), 1);
        assert_eq!(accepted(&inputs), values(&[("a", "1"), ("b", "1")]));
    }

    #[test]
    fn at_the_first_start_the_reason_is_that_of_all_together() {
        let needs_both = |values: &BTreeMap<String, Value>| {
            if values.len() < 2 { Verdict::Incomplete } else { no_bad(values) }
        };
        let mut inputs = inputs(&["a", "b"]);
        answer(&mut inputs, "a", "1");
        answer(&mut inputs, "b", "bad");
        settle(&mut inputs, needs_both);
        assert_eq!(accepted(&inputs), []);
        let refused = Some("b is bad".to_owned());
        assert_eq!(state(&inputs, "a"), InputState::Pending { has_accepted: false, refused });
        answer(&mut inputs, "b", "1");
        assert_eq!(settle(&mut inputs, needs_both), 1);
        assert_eq!(accepted(&inputs), values(&[("a", "1"), ("b", "1")]));
    }

    #[test]
    fn an_answer_during_a_trial_is_not_lost() {
        let mut inputs = inputs(&["a"]);
        answer(&mut inputs, "a", "1");
        let proposal = inputs.propose().unwrap();
        answer(&mut inputs, "a", "2");
        inputs.judge(&proposal, no_bad(&proposal.values)).unwrap();
        assert_eq!(accepted(&inputs), values(&[("a", "1")]));
        assert_eq!(inputs.propose().unwrap().values["a"], Value::from("2"));
        let proposal = inputs.propose().unwrap();
        answer(&mut inputs, "a", "3");
        inputs.judge(&proposal, Verdict::Refused { why: "x".to_owned() }).unwrap();
        assert_eq!(inputs.propose().unwrap().values["a"], Value::from("3"));
        // What could not be checked is proposed again.
        let proposal = inputs.propose().unwrap();
        inputs.judge(&proposal, Verdict::Unchecked).unwrap();
        assert_eq!(inputs.propose(), Some(proposal));
    }

    proptest! {
        /// Whatever comes in whatever order: trials end, nothing bad is ever in force, and the newest good value is.
        #[test]
        fn trials_end_with_the_newest_good_values_in_force(
            steps in prop::collection::vec((0usize..4, 0u8..5, any::<bool>()), 1..40),
        ) {
            let names = ["a", "b", "c", "d"];
            let mut inputs = inputs(&names);
            for name in names {
                answer(&mut inputs, name, "first");
            }
            settle(&mut inputs, no_bad);
            let mut newest = BTreeMap::from(names.map(|name| (name.to_owned(), "first".to_owned())));
            let mut good = newest.clone();
            for (index, value, is_settled) in steps {
                let name = names[index];
                let value = if value == 0 { "bad".to_owned() } else { value.to_string() };
                answer(&mut inputs, name, &value);
                newest.insert(name.to_owned(), value);
                if is_settled {
                    settle(&mut inputs, no_bad);
                    good.extend(newest.clone().into_iter().filter(|(_, value)| value != "bad"));
                }
                let good = good.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
                prop_assert_eq!(inputs.accepted(), good.collect());
            }
        }
    }
}
