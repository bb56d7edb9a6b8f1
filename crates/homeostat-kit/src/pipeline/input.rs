//! One input of a pipeline, with its accepted word and the one that waits for acceptance.

use std::future::poll_fn;
use std::task::Poll;

use homeostat_engine::outcome::Later;
use serde_json::Value;

use crate::provider::{Answer, Provider};

/// One input.
pub(super) struct Input {
    name: String,
    provider: Box<dyn Provider<DesiredState = Value, Error = String>>,
    accepted: Option<Value>,
    pending: Option<Value>,
    /// Whether the pending word was refused as it is.
    is_refused: bool,
}

impl Input {
    pub(super) fn new(
        name: &str,
        provider: impl Provider<DesiredState = Value, Error = String> + 'static,
    ) -> Self {
        let (name, provider) = (name.to_owned(), Box::new(provider));
        Input { name, provider, accepted: None, pending: None, is_refused: false }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Asks the provider. An input that has answered once and cannot now keeps its word.
    pub(super) async fn ask(&mut self) -> Result<(), String> {
        match self.provider.answer().await {
            Answer::DesiredState(word) => self.heard((*word).clone()),
            Answer::Unknown { .. } | Answer::Nothing if self.accepted.is_some() => {}
            Answer::Unknown { why } if self.pending.is_none() => {
                return Err(format!("`{}` has not answered yet: {why}", self.name));
            }
            Answer::Unknown { .. } => {}
            Answer::Nothing => return Err(format!("`{}` has nothing to say", self.name)),
        }
        Ok(())
    }

    fn heard(&mut self, word: Value) {
        if self.accepted.as_ref() == Some(&word) {
            (self.pending, self.is_refused) = (None, false);
        } else if self.pending.as_ref() != Some(&word) {
            (self.pending, self.is_refused) = (Some(word), false);
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    pub(super) fn is_worth_a_try(&self) -> bool {
        self.pending.is_some() && !self.is_refused
    }

    /// The name with the pending word, if `fresh` and there is one, else with the accepted one.
    pub(super) fn word(&self, fresh: bool) -> Option<(String, Value)> {
        let pending = self.pending.as_ref().filter(|_| fresh);
        Some((self.name.clone(), pending.or(self.accepted.as_ref())?.clone()))
    }

    pub(super) fn accept(&mut self) {
        self.is_refused = false;
        if let Some(word) = self.pending.take() {
            self.accepted = Some(word);
        }
    }

    pub(super) fn refuse(&mut self) {
        self.is_refused = self.pending.is_some();
    }

    pub(super) fn changed(&mut self) -> Later<'_, ()> {
        self.provider.changed()
    }
}

/// Waits for the first of several futures; for ever if there are none.
pub(super) async fn first_of<'a>(waiting: impl Iterator<Item = Later<'a, ()>>) {
    let mut waiting: Vec<_> = waiting.collect();
    poll_fn(|context| {
        let is_ready = waiting.iter_mut().any(|one| one.as_mut().poll(context).is_ready());
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
