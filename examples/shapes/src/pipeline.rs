//! Between provider and source: inputs are rendered, and what was rendered is validated, before it is
//! a desired state.
//!
//! A [`Pipeline`] is itself a [`Provider`]. Its rules:
//!
//! 1. A desired state of several inputs is unknown until each of them has answered once.
//! 2. What an input says is *pending* until a desired state made of it was validated; then it is accepted. Of
//!    several that are pending together, those are accepted that are good by themselves.
//! 3. On any failure the last good desired state stands ([`Latest`](homeostat_kit::provider::Latest) hands it on),
//!    and the error names the phase: input, render or validate.
//! 4. What was refused is not tried again until some input says something else.
//! 5. As long as no input says anything new, nothing is rendered.
//!
//! A new desired state that comes out is put into the loop as any other, which is a command: it waits for no
//! pacing.
//!
//! ```
//! use std::sync::Arc;
//!
//! use homeostat_kit::provider::{Answer, Provider as _};
//! use homeostat_shapes::pipeline::Pipeline;
//! use homeostat_shapes::template::Template;
//! use serde_json::json;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let template = Template::new("{% for door in doors %}{{ door }}={{ paint.colour }} {% endfor %}");
//! let check = |text: &str| match text.contains("pink") {
//!     true => Err("no pink doors"),
//!     false => Ok(text.trim().to_owned()),
//! };
//! let mut pipeline = Pipeline::new(template.unwrap(), check)
//!     .with("doors", Arc::new(json!(["front", "back"])))
//!     .with("paint", Arc::new(json!({ "colour": "green" })));
//! let Answer::DesiredState(desired) = pipeline.answer().await else { panic!() };
//! assert_eq!(*desired, "front=green back=green");
//! # });
//! ```

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use homeostat_engine::outcome::Later;
use homeostat_engine::{Event, EventKind, Events, Failure, Fingerprint, PassId, Retry};
use homeostat_kit::provider::{Answer, Provider};
use serde_json::Value;

use crate::template::{Facts, Template};

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
    pub phase: Phase,
    pub why: String,
}

type Check<D> = Box<dyn Fn(&str) -> Result<D, String> + Send + Sync>;

/// Inputs, a template and a check.
pub struct Pipeline<D> {
    inputs: Vec<Input>,
    template: Template,
    check: Check<D>,
    good: Option<Arc<D>>,
    trouble: Option<Trouble>,
    /// Where it reports, as which source in which scope.
    reports_to: Option<(Events, &'static str, Arc<str>)>,
}

impl<D> Pipeline<D> {
    /// A pipeline without inputs. `check` makes a desired state of the rendered text, or says why it is none.
    pub fn new<E: fmt::Display>(
        template: Template,
        check: impl Fn(&str) -> Result<D, E> + Send + Sync + 'static,
    ) -> Self {
        let check: Check<D> = Box::new(move |text| check(text).map_err(|error| error.to_string()));
        Pipeline { inputs: vec![], template, check, good: None, trouble: None, reports_to: None }
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
        self.reports_to = Some((events, source, scope.into()));
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
        if let Some((events, source, scope)) = &self.reports_to {
            let (pass, scope) = (PassId::default(), Arc::clone(scope));
            events.publish(Event::new(pass, source, scope, kind));
        }
    }

    /// Asks the inputs and, if any of them has something new to say, makes another desired state of it.
    async fn update(&mut self) -> Result<(), Trouble> {
        let mut silent = Ok(());
        for input in &mut self.inputs {
            silent = silent.and(input.ask().await);
        }
        silent.map_err(|why| Trouble { phase: Phase::Input, why })?;
        if !self.inputs.iter().any(|input| input.pending.is_some() && !input.is_refused) {
            // Nothing is new: what was refused stays refused.
            let is_open = self.pending().next().is_some() || self.good.is_none();
            return self.trouble.clone().filter(|_| is_open).map_or(Ok(()), Err);
        }
        match self.make(|_| true) {
            Ok(desired) => {
                self.accept(desired, |_| true);
                Ok(())
            }
            Err(trouble) => {
                self.accept_some();
                Err(trouble)
            }
        }
    }

    /// Renders the pending value of those inputs that are `fresh`, of others the accepted one, and checks the text.
    fn make(&self, fresh: impl Fn(usize) -> bool) -> Result<D, Trouble> {
        let values = self.inputs.iter().enumerate();
        let facts: Facts = values.filter_map(|(at, input)| input.value(fresh(at))).collect();
        let rendered = self.template.render(&facts);
        let text = rendered.map_err(|why| Trouble { phase: Phase::Render, why })?;
        let (bytes, print) = (text.len(), Fingerprint::of_object(&text));
        self.publish(EventKind::Rendered { bytes, print });
        let checked = (self.check)(&text);
        let desired = checked.map_err(|why| Trouble { phase: Phase::Validate, why })?;
        self.publish(EventKind::Validated);
        Ok(desired)
    }

    /// All together are no good: those are accepted that are good by themselves.
    fn accept_some(&mut self) {
        if self.pending().count() > 1 && self.good.is_some() {
            for at in 0..self.inputs.len() {
                if self.inputs[at].pending.is_some()
                    && let Ok(desired) = self.make(|other| other == at)
                {
                    self.accept(desired, |other| other == at);
                }
            }
        }
        for input in &mut self.inputs {
            input.is_refused = input.pending.is_some();
        }
    }

    fn accept(&mut self, desired: D, whose: impl Fn(usize) -> bool) {
        self.good = Some(Arc::new(desired));
        for (_, input) in self.inputs.iter_mut().enumerate().filter(|(at, _)| whose(*at)) {
            input.is_refused = false;
            input.accepted = input.pending.take().or(input.accepted.take());
        }
    }
}

impl<D: Send + Sync + 'static> Provider for Pipeline<D> {
    type DesiredState = D;
    type Error = String;

    fn answer(&mut self) -> Later<'_, Answer<D>> {
        Box::pin(async {
            let before = self.good.clone();
            let trouble = self.update().await.err();
            if let Some(trouble) = &trouble
                && self.trouble.as_ref() != Some(trouble)
            {
                let retry =
                    if trouble.phase == Phase::Input { Retry::Soon } else { Retry::OnChange };
                let failure = Failure::new(trouble.to_string(), retry);
                self.publish(EventKind::Failed { failure });
            }
            self.trouble = trouble;
            let is_new =
                |good: &Arc<D>| before.as_ref().is_none_or(|before| !Arc::ptr_eq(before, good));
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
        let mut waiting: Vec<_> =
            self.inputs.iter_mut().map(|input| input.provider.changed()).collect();
        Box::pin(poll_fn(move |context| {
            let is_ready = waiting.iter_mut().any(|one| one.as_mut().poll(context).is_ready());
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        }))
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
            Answer::DesiredState(value) => {
                if self.accepted.as_ref() == Some(&value) {
                    (self.pending, self.is_refused) = (None, false);
                } else if self.pending.as_ref() != Some(&value) {
                    (self.pending, self.is_refused) = (Some((*value).clone()), false);
                }
                Ok(())
            }
            Answer::Unknown { .. } | Answer::Nothing if self.accepted.is_some() => Ok(()),
            Answer::Unknown { .. } if self.pending.is_some() => Ok(()),
            Answer::Unknown { why } => Err(format!("`{}` has not answered yet: {why}", self.name)),
            Answer::Nothing => Err(format!("`{}` has nothing to say", self.name)),
        }
    }

    /// The name with the pending value, if `fresh` and there is one, else with the accepted one.
    fn value(&self, fresh: bool) -> Option<(String, Value)> {
        let pending = self.pending.as_ref().filter(|_| fresh);
        Some((self.name.clone(), pending.or(self.accepted.as_ref())?.clone()))
    }
}
