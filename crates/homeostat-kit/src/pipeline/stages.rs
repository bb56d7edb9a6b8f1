//! The stages of a pipeline, one after the other.

use std::sync::Arc;

use homeostat_engine::{EventKind, Fingerprint};

use super::check::{Check, Refused};
use super::input::Input;
use super::{Facts, Phase, Pipeline, Render, Trouble};

impl<R: Render, C: Check> Pipeline<R, C> {
    /// Asks the inputs and, if any of them has something new to say, makes another desired state of it.
    pub(super) async fn update(&mut self) -> Result<(), Trouble> {
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
        let is_open = self.inputs.iter().any(Input::is_pending) || self.good.is_none();
        match &self.trouble {
            Some(trouble) if is_open => Err(trouble.clone()),
            _ => Ok(()),
        }
    }

    /// What the inputs say: the pending word of those that are `fresh`, else the accepted one.
    fn facts(&self, fresh: impl Fn(usize) -> bool) -> Facts {
        let words = self.inputs.iter().enumerate();
        words.filter_map(|(at, input)| input.word(fresh(at))).collect()
    }

    async fn make(&mut self, facts: Facts) -> Result<C::DesiredState, Trouble> {
        let failed = |phase, why, may_pass| Trouble { phase, why, may_pass };
        let rendered = self.render.render(&facts);
        let text = rendered.map_err(|why| failed(Phase::Render, why, false))?;
        self.tell(EventKind::Rendered { bytes: text.len(), print: Fingerprint::of_object(&text) });
        let desired = self.check.check(text).await.map_err(|refused| match refused {
            Refused::Bad(why) => failed(Phase::Validate, why, false),
            Refused::Unchecked(why) => failed(Phase::Validate, why, true),
        })?;
        self.tell(EventKind::Validated);
        Ok(desired)
    }

    /// All together are no good: those are accepted that are good by themselves.
    async fn accept_some(&mut self, trouble: Trouble) -> Result<(), Trouble> {
        if trouble.may_pass {
            return Err(trouble);
        }
        let pending: Vec<usize> =
            (0..self.inputs.len()).filter(|at| self.is_pending(*at)).collect();
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

    fn is_pending(&self, at: usize) -> bool {
        self.inputs.get(at).is_some_and(Input::is_pending)
    }

    fn accept(&mut self, desired: C::DesiredState, whose: impl Fn(usize) -> bool) {
        self.good = Some(Arc::new(desired));
        for (_, input) in self.inputs.iter_mut().enumerate().filter(|(at, _)| whose(*at)) {
            input.accept();
        }
    }
}
