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
mod facts;
mod input;
mod program;
mod stages;
mod template;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use homeostat_engine::outcome::Later;
use homeostat_engine::{Event, EventKind, Events, Failure, PassId, Retry};
use serde_json::Value;

pub use check::{Check, Refused, Typed};
pub use facts::host_facts;
pub use program::Program;
pub use template::Template;

use super::provider::{Answer, Provider};
use input::Input;

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

/// Where a pipeline tells what it did.
struct Teller {
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
    teller: Option<Teller>,
}

impl<R: Render, C: Check> Pipeline<R, C> {
    /// A pipeline without inputs.
    pub fn new(render: R, check: C) -> Self {
        Pipeline { inputs: Vec::new(), render, check, good: None, trouble: None, teller: None }
    }

    /// Adds an input under a name.
    #[must_use]
    pub fn with(
        mut self,
        name: &str,
        provider: impl Provider<DesiredState = Value, Error = String> + 'static,
    ) -> Self {
        self.inputs.push(Input::new(name, provider));
        self
    }

    /// Tells what it does, as a source in a scope.
    #[must_use]
    pub fn telling(mut self, events: Events, source: &'static str, scope: &str) -> Self {
        self.teller = Some(Teller { events, source, scope: scope.into() });
        self
    }

    /// What is wrong, if anything is; the last good desired state may stand all the same.
    #[must_use]
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// The names of inputs whose last word waits for acceptance, or was refused it.
    pub fn pending(&self) -> impl Iterator<Item = &str> {
        self.inputs.iter().filter(|input| input.is_pending()).map(Input::name)
    }

    fn tell(&self, kind: EventKind) {
        if let Some(Teller { events, source, scope }) = &self.teller {
            let (pass, scope) = (PassId::default(), Arc::clone(scope));
            events.publish(Event { pass, source, scope, kind });
        }
    }

    /// Notes what is wrong, and tells it once.
    fn note(&mut self, trouble: Option<Trouble>) {
        if let Some(trouble) = trouble.as_ref().filter(|one| self.trouble.as_ref() != Some(one)) {
            let retry = if trouble.may_pass { Retry::Soon } else { Retry::OnChange };
            self.tell(EventKind::Failed { failure: Failure::new(trouble.to_string(), retry) });
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
        Box::pin(input::first_of(self.inputs.iter_mut().map(Input::changed)))
    }
}
