//! Between provider and source: inputs are rendered, and what was rendered is validated, before it is
//! a desired state.
//!
//! A [`Pipeline`] is itself a [`Provider`]. Its rules:
//!
//! 1. A desired state of several inputs is unknown until each of them has answered once.
//! 2. What an input says is *pending* until a desired state made of it was validated; then it is accepted. Of
//!    several that are pending together, those are accepted that are good by themselves.
//! 3. On any failure the last good desired state stands ([`Latest`](super::provider::Latest) hands it on), and
//!    the error names the phase: input, render or validate.
//! 4. What was refused is not tried again until some input says something else; a check that could not
//!    be run at all is.
//! 5. As long as no input says anything new, nothing is rendered.
//!
//! A new desired state that comes out is put into the loop as any other, which is a command: it waits for no
//! pacing.
//!
//! ```
//! use homeostat_kit::pipeline::{Pipeline, Template, Typed};
//! use homeostat_kit::provider::{Answer, Provider as _, Static};
//! use serde_json::json;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let template = Template::new("{% for door in doors %}{{ door }}={{ paint.colour }} {% endfor %}");
//! let check = Typed(|text: &str| match text.contains("pink") {
//!     true => Err("no pink doors"),
//!     false => Ok(text.trim().to_owned()),
//! });
//! let mut pipeline = Pipeline::new(template.unwrap(), check)
//!     .with("doors", Static::new(json!(["front", "back"])))
//!     .with("paint", Static::new(json!({ "colour": "green" })));
//! let Answer::DesiredState(desired) = pipeline.answer().await else { panic!() };
//! assert_eq!(*desired, "front=green back=green");
//! # });
//! ```

mod check;
mod template;

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use homeostat_engine::outcome::Later;
use homeostat_engine::{Event, EventKind, Events, Failure, Fingerprint, PassId, Retry};
use serde_json::Value;

pub use check::{Check, Program, Refused, Typed};
pub use template::{Template, host_facts};

use crate::provider::{Answer, Provider};

/// What the inputs say, by name.
pub type Facts = BTreeMap<String, Value>;

/// Makes text of facts.
pub trait Render: Send + Sync {
    /// The text, or why there is none.
    fn render(&self, facts: &Facts) -> Result<String, String>;
}

impl<F: Fn(&Facts) -> Result<String, String> + Send + Sync> Render for F {
    fn render(&self, facts: &Facts) -> Result<String, String> {
        self(facts)
    }
}

/// A part of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// An input answers.
    Input,
    /// The facts become text.
    Render,
    /// The text becomes a desired state.
    Validate,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Input => "input",
            Phase::Render => "render",
            Phase::Validate => "validate",
        })
    }
}

/// Why the pipeline has nothing new.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{phase}: {why}")]
pub struct Trouble {
    /// Where it failed.
    pub phase: Phase,
    /// How.
    pub why: String,
    /// Whether another try of the same could end otherwise.
    pub may_pass: bool,
}

/// The events that a pipeline publishes to, and what it calls itself there.
struct EventScope {
    events: Events,
    source: &'static str,
    scope: Arc<str>,
}

/// Inputs, a template and a check.
pub struct Pipeline<R, C: Check> {
    inputs: Vec<Input>,
    render: R,
    check: C,
    good: Option<Arc<C::DesiredState>>,
    trouble: Option<Trouble>,
    reports_to: Option<EventScope>,
}

impl<R: Render, C: Check> Pipeline<R, C> {
    /// A pipeline without inputs.
    pub fn new(render: R, check: C) -> Self {
        Pipeline { inputs: Vec::new(), render, check, good: None, trouble: None, reports_to: None }
    }

    /// Adds an input under a name.
    #[must_use]
    pub fn with(
        mut self,
        name: &str,
        provider: impl Provider<DesiredState = Value, Error = String> + 'static,
    ) -> Self {
        let (name, provider) = (name.to_owned(), Box::new(provider));
        let (accepted, pending) = (None, None);
        self.inputs.push(Input { name, provider, accepted, pending, is_refused: false });
        self
    }

    /// Publishes what it does, as a source in a scope.
    #[must_use]
    pub fn with_events(mut self, events: Events, source: &'static str, scope: &str) -> Self {
        self.reports_to = Some(EventScope { events, source, scope: scope.into() });
        self
    }

    /// What is wrong, if anything is; the last good desired state may stand all the same.
    #[must_use]
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// The names of inputs whose last value waits for acceptance, or was refused it.
    pub fn pending(&self) -> impl Iterator<Item = &str> {
        let pending = self.inputs.iter().filter(|input| input.pending.is_some());
        pending.map(|input| input.name.as_str())
    }

    fn publish(&self, kind: EventKind) {
        if let Some(EventScope { events, source, scope }) = &self.reports_to {
            let (pass, scope) = (PassId::default(), Arc::clone(scope));
            events.publish(Event { pass, source, scope, kind });
        }
    }

    /// Asks the inputs and, if any of them has something new to say, makes another desired state of it.
    async fn update(&mut self) -> Result<(), Trouble> {
        let mut silent = None;
        for input in &mut self.inputs {
            if let Err(why) = input.ask().await {
                silent.get_or_insert(Trouble { phase: Phase::Input, why, may_pass: true });
            }
        }
        if let Some(trouble) = silent {
            return Err(trouble);
        }
        if !self.inputs.iter().any(Input::is_worth_a_try) {
            return self.standing_trouble();
        }
        let facts = self.facts(|_| true);
        match self.make(facts).await {
            Ok(desired) => {
                self.accept(desired, |_| true);
                Ok(())
            }
            Err(trouble) => self.accept_some(trouble).await,
        }
    }

    /// Nothing is new: what was refused stays refused.
    fn standing_trouble(&self) -> Result<(), Trouble> {
        let is_open =
            self.inputs.iter().any(|input| input.pending.is_some()) || self.good.is_none();
        match &self.trouble {
            Some(trouble) if is_open => Err(trouble.clone()),
            _ => Ok(()),
        }
    }

    /// What the inputs say: the pending value of those that are `fresh`, else the accepted one.
    fn facts(&self, fresh: impl Fn(usize) -> bool) -> Facts {
        let values = self.inputs.iter().enumerate();
        values.filter_map(|(at, input)| input.value(fresh(at))).collect()
    }

    async fn make(&mut self, facts: Facts) -> Result<C::DesiredState, Trouble> {
        let failed = |phase, why, may_pass| Trouble { phase, why, may_pass };
        let rendered = self.render.render(&facts);
        let text = rendered.map_err(|why| failed(Phase::Render, why, false))?;
        self.publish(EventKind::Rendered {
            bytes: text.len(),
            print: Fingerprint::of_object(&text),
        });
        let desired = self.check.check(text).await.map_err(|refused| match refused {
            Refused::Bad(why) => failed(Phase::Validate, why, false),
            Refused::Unchecked(why) => failed(Phase::Validate, why, true),
        })?;
        self.publish(EventKind::Validated);
        Ok(desired)
    }

    /// All together are no good: those are accepted that are good by themselves.
    async fn accept_some(&mut self, trouble: Trouble) -> Result<(), Trouble> {
        if trouble.may_pass {
            return Err(trouble);
        }
        let inputs = self.inputs.iter().enumerate();
        let pending: Vec<usize> =
            inputs.filter(|(_, input)| input.pending.is_some()).map(|(at, _)| at).collect();
        let are_several = pending.len() > 1 && self.good.is_some();
        for at in pending.into_iter().filter(|_| are_several) {
            let facts = self.facts(|other| other == at);
            if let Ok(desired) = self.make(facts).await {
                self.accept(desired, |other| other == at);
            }
        }
        self.inputs.iter_mut().for_each(Input::refuse);
        Err(trouble)
    }

    fn accept(&mut self, desired: C::DesiredState, whose: impl Fn(usize) -> bool) {
        self.good = Some(Arc::new(desired));
        for (_, input) in self.inputs.iter_mut().enumerate().filter(|(at, _)| whose(*at)) {
            input.accept();
        }
    }

    /// Notes what is wrong, and publishes it once.
    fn note(&mut self, trouble: Option<Trouble>) {
        if let Some(trouble) = trouble.as_ref().filter(|one| self.trouble.as_ref() != Some(one)) {
            let retry = if trouble.may_pass { Retry::Soon } else { Retry::OnChange };
            self.publish(EventKind::Failed { failure: Failure::new(trouble.to_string(), retry) });
        }
        self.trouble = trouble;
    }
}

impl<R: Render, C: Check> Provider for Pipeline<R, C> {
    type DesiredState = C::DesiredState;
    type Error = String;

    fn answer(&mut self) -> Later<'_, Answer<C::DesiredState>> {
        Box::pin(async {
            let before = self.good.clone();
            let trouble = self.update().await.err();
            self.note(trouble);
            let is_new = |good: &Arc<C::DesiredState>| {
                before.as_ref().is_none_or(|it| !Arc::ptr_eq(it, good))
            };
            match (&self.trouble, &self.good) {
                // Some of what was pending is good by itself: it does not wait for the rest.
                (Some(_), Some(good)) if is_new(good) => Answer::DesiredState(Arc::clone(good)),
                (Some(trouble), _) => Answer::Unknown { why: trouble.to_string() },
                (None, Some(good)) => Answer::DesiredState(Arc::clone(good)),
                (None, None) => Answer::Unknown { why: "the pipeline has no inputs".to_owned() },
            }
        })
    }

    fn changed(&mut self) -> Later<'_, ()> {
        Box::pin(first_of(self.inputs.iter_mut().map(|input| input.provider.changed())))
    }
}

/// One input, with its accepted value and the one that waits for acceptance.
struct Input {
    name: String,
    provider: Box<dyn Provider<DesiredState = Value, Error = String>>,
    accepted: Option<Value>,
    pending: Option<Value>,
    /// Whether the pending value was refused as it is.
    is_refused: bool,
}

impl Input {
    /// Asks the provider. An input that has answered once and cannot answer now keeps its value.
    async fn ask(&mut self) -> Result<(), String> {
        match self.provider.answer().await {
            Answer::DesiredState(value) => self.receive((*value).clone()),
            Answer::Unknown { .. } | Answer::Nothing if self.accepted.is_some() => {}
            Answer::Unknown { why } if self.pending.is_none() => {
                return Err(format!("`{}` has not answered yet: {why}", self.name));
            }
            Answer::Unknown { .. } => {}
            Answer::Nothing => return Err(format!("`{}` has nothing to say", self.name)),
        }
        Ok(())
    }

    fn receive(&mut self, value: Value) {
        if self.accepted.as_ref() == Some(&value) {
            (self.pending, self.is_refused) = (None, false);
        } else if self.pending.as_ref() != Some(&value) {
            (self.pending, self.is_refused) = (Some(value), false);
        }
    }

    fn is_worth_a_try(&self) -> bool {
        self.pending.is_some() && !self.is_refused
    }

    /// The name with the pending value, if `fresh` and there is one, else with the accepted one.
    fn value(&self, fresh: bool) -> Option<(String, Value)> {
        let pending = self.pending.as_ref().filter(|_| fresh);
        Some((self.name.clone(), pending.or(self.accepted.as_ref())?.clone()))
    }

    fn accept(&mut self) {
        self.is_refused = false;
        if let Some(value) = self.pending.take() {
            self.accepted = Some(value);
        }
    }

    fn refuse(&mut self) {
        self.is_refused = self.pending.is_some();
    }
}

/// Waits for the first of several futures; for ever if there are none.
async fn first_of<'a>(waiting: impl Iterator<Item = Later<'a, ()>>) {
    let mut waiting: Vec<_> = waiting.collect();
    poll_fn(|context| {
        let is_ready = waiting.iter_mut().any(|one| one.as_mut().poll(context).is_ready());
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
