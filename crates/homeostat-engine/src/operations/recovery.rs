//! What was in flight when the last process ended, or lost its answer: adopted, closed, or known to be
//! unknown.
//!
//! The target is asked aside of the passes, which leave the keys in doubt alone meanwhile: one that does not
//! answer delays nobody else.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use homeostat_core::{Failure, Key, Recovery, Retry, Source, TaskEnd, Writer};
use tokio::task::AbortHandle;

use super::flight::{Flight, Landing};
use super::held::Held;
use super::shared::{Shared, State};
use super::{Awaits, Operations};
use crate::journal::{OpenStep, Repeat};

/// What the target was asked about a step.
pub(super) enum Question {
    /// It has not answered yet.
    Asked(Asking),
    /// The answer, for the next pass to act on.
    Answered(Box<OpenStep>, Recovery),
}

/// Whoever waits for an answer. Let go of, they stop: another one may be asked in their place.
pub(super) struct Asking(AbortHandle);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<K: Key> Operations<K> {
    /// Asks the target about every step of this source that has no end and is not followed, unless it has
    /// been asked already. Tells their keys: what was planned for them does not know of the answer, so they
    /// are left alone until they are looked at again. What the target cannot tell now stays open.
    pub(crate) async fn ask<S: Source<Key = K>>(&self, writer: &S::Writer) -> BTreeSet<K> {
        let mut doubted = self.act_on_answers::<S>(writer).await;
        for (key, open) in self.open_steps() {
            if open.intent.repeat == Repeat::Harmless {
                // What this pass has seen tells whether it is needed again.
                self.end(open.id, TaskEnd::Unknown("nobody heard the answer".to_owned())).await;
                continue;
            }
            self.ask_about::<S>(writer, (&key, open));
            doubted.insert(key);
        }
        doubted
    }

    /// Waits until the target has said something about each of these keys, or cannot be asked.
    pub(crate) async fn answered(&self, keys: &BTreeSet<K>) {
        loop {
            let moved = self.shared.moved.notified();
            if !self.shared.state().is_waiting_about(keys) {
                return;
            }
            moved.await;
        }
    }

    /// Closes or adopts the steps that the target has told of. Tells their keys, which are in the news.
    pub(crate) async fn act_on_answers<S: Source<Key = K>>(
        &self,
        writer: &S::Writer,
    ) -> BTreeSet<K> {
        let mut keys = BTreeSet::new();
        let answers = self.shared.state().take_answers();
        for (key, open, told) in answers {
            let now = self.journal().open_step(&self.subject(&key));
            if now.is_none_or(|now| now.id != open.id) {
                // Somebody else of this process has asked, too.
                self.shared.let_go_of_doubt(&key);
            } else if self.act_on::<S>(writer, (&key, &open), told).await.is_ok() {
                self.shared.state().news.insert(key.clone());
            }
            keys.insert(key);
        }
        self.shared.moved.notify_waiters();
        keys
    }

    /// Where no pass will come to act on answers, whoever enters next asks.
    pub(crate) fn leave_doubts(&self) {
        let mut state = self.shared.state();
        if state.awaits != Awaits::Passes {
            state.questions.clear();
            let doubtful = std::mem::take(&mut state.doubtful);
            drop(state);
            drop(doubtful);
        }
    }

    /// What is in doubt may be running: it takes its places before anybody else does.
    pub(super) fn take_doubts(&self) {
        let open = self.open_steps();
        let mut state = self.shared.state();
        for (key, open) in open.iter().filter(|(_, open)| open.intent.repeat == Repeat::Hurts) {
            state.doubt(key, open, &self.shared);
        }
    }

    /// Forgets what was asked: the next pass asks again, and maybe somebody else.
    pub(crate) fn ask_anew(&self) {
        self.shared.state().questions.clear();
    }

    /// The steps of this source that have no end, and that nobody follows.
    fn open_steps(&self) -> Vec<(K, OpenStep)> {
        let open = self.journal().open_steps().into_iter();
        let ours = open.filter_map(|open| Some((self.key_of(&open)?, open)));
        ours.filter(|(key, _)| !self.is_followed(key)).collect()
    }

    /// The lane of a key that is asked about is taken: what is in doubt may be running.
    fn ask_about<S: Source<Key = K>>(&self, writer: &S::Writer, (key, open): (&K, OpenStep)) {
        if self.shared.state().questions.contains_key(key) {
            return;
        }
        let answer = writer.recover(open.begun());
        let mut state = self.shared.state();
        state.doubt(key, &open, &self.shared);
        let (asked, shared) = (key.clone(), Arc::downgrade(&self.shared));
        let asking = self.shared.aside(async move {
            let panicked = |_| Err(Failure::new("asking about it panicked", Retry::Soon));
            let told = AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(panicked);
            if let Some(shared) = shared.upgrade() {
                shared.told(asked, open, told);
            }
        });
        state.questions.insert(key.clone(), Question::Asked(Asking(asking)));
    }

    /// The lane of a key that the target works on, whatever the limits say. If somebody else of this process
    /// has taken it meanwhile, they know the step: it is not lost at all.
    fn held_anyhow(&self, key: &K, node: &String) -> Option<Held<K>> {
        let mut state = self.shared.state();
        let kept = state.doubtful.remove(key);
        if kept.is_some() {
            // It may be at work elsewhere than we thought.
            state.lanes.end(key);
        }
        let is_ours = state.lanes.occupy(key, node);
        drop(state);
        self.shared.pump();
        is_ours.then(|| kept.unwrap_or_else(|| Held::new(key.clone(), &self.shared)))
    }

    /// Whether somebody of this process knows how the key's step goes on.
    fn is_followed(&self, key: &K) -> bool {
        let state = self.shared.state();
        let is_doubtful = state.doubtful.contains_key(key);
        state.in_flight.contains_key(key) || state.lanes.node_of(key).is_some() && !is_doubtful
    }

    /// The key of a step of ours.
    fn key_of(&self, open: &OpenStep) -> Option<K> {
        let subject = &open.intent.subject;
        let is_ours =
            (&subject.source, &subject.scope) == (&self.shared.source, &self.shared.scope);
        K::from_str(&subject.key).ok().filter(|_| is_ours)
    }

    async fn act_on<S: Source<Key = K>>(
        &self,
        writer: &S::Writer,
        (key, open): (&K, &OpenStep),
        told: Recovery,
    ) -> Result<(), Failure> {
        let (task, node) = match told {
            Recovery::Ended(TaskEnd::GivenUp(why)) => return Err(Failure::new(why, Retry::Soon)),
            Recovery::Ended(ended) => {
                self.end(open.id, ended.clone()).await;
                self.shared.state().landed(key, Landing { told: None, ended });
                self.shared.let_go_of_doubt(key);
                return Ok(());
            }
            Recovery::Running { task, node } => (task, node),
        };
        if open.task.is_none() {
            let written = self.journal().dispatched(open.id, &task).await;
            written.map_err(|error| Failure::from_error(&error, Retry::Soon))?;
        }
        let Some(held) = self.held_anyhow(key, &node) else { return Ok(()) };
        let end = writer.follow(&task);
        self.follow(Flight { held, id: open.id, task, told: None }, end);
        Ok(())
    }
}

impl<K: Key> State<K> {
    /// Takes the lane of a key in doubt, on the node of its open step, unless it is taken.
    fn doubt(&mut self, key: &K, open: &OpenStep, shared: &Arc<Shared<K>>) {
        if !self.doubtful.contains_key(key) && self.lanes.occupy(key, &open.intent.node) {
            self.doubtful.insert(key.clone(), Held::new(key.clone(), shared));
        }
    }

    fn is_waiting_about(&self, keys: &BTreeSet<K>) -> bool {
        keys.iter().any(|key| matches!(self.questions.get(key), Some(Question::Asked(_))))
    }

    fn take_answers(&mut self) -> Vec<(K, OpenStep, Recovery)> {
        let is_answered = |_: &K, it: &mut Question| matches!(it, Question::Answered(..));
        let answers = self.questions.extract_if(.., is_answered);
        let answers = answers.filter_map(|(key, question)| match question {
            Question::Asked(_) => None,
            Question::Answered(open, told) => Some((key, *open, told)),
        });
        answers.collect()
    }
}

impl<K: Key> Shared<K> {
    /// Takes in an answer, if it is still waited for.
    fn told(&self, key: K, open: OpenStep, told: Result<Recovery, Failure>) {
        let mut state = self.state();
        let asking = match state.questions.get(&key) {
            Some(Question::Asked(Asking(asking))) => asking.id(),
            _ => return,
        };
        if tokio::task::id() != asking {
            return;
        }
        state.questions.remove(&key);
        if let Ok(told) = told {
            state.questions.insert(key.clone(), Question::Answered(Box::new(open), told));
            state.news.insert(key);
        }
        drop(state);
        self.moved.notify_waiters();
    }

    fn let_go_of_doubt(&self, key: &K) {
        let kept = self.state().doubtful.remove(key);
        drop(kept);
    }
}
