//! Keeps the last good desired state while a provider cannot answer.

use std::sync::Arc;

use super::{Answer, Provider};

/// How a desired state stands after its provider was asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Standing<W> {
    /// The provider's own answer.
    Fresh(Arc<W>),
    /// The provider cannot answer; this was its last good one.
    Stale {
        /// The last good desired state.
        desired: Arc<W>,
        /// Why there is none that is newer.
        why: String,
    },
    /// The provider has never answered: run no pass.
    Unknown {
        /// Why it has not.
        why: String,
    },
    /// There is no desired state here: run no pass.
    Nothing,
}

impl<W> Standing<W> {
    /// The request to run a pass for, if there is one.
    #[must_use]
    pub fn desired(&self) -> Option<&Arc<W>> {
        match self {
            Standing::Fresh(desired) | Standing::Stale { desired, .. } => Some(desired),
            Standing::Unknown { .. } | Standing::Nothing => None,
        }
    }
}

/// A provider whose last good desired state stands.
#[derive(Debug)]
pub struct Latest<P: Provider> {
    provider: P,
    good: Option<Arc<P::DesiredState>>,
    handed: Option<Arc<P::DesiredState>>,
    trouble: Option<String>,
}

impl<P: Provider> Latest<P> {
    /// Has not asked yet.
    pub fn new(provider: P) -> Self {
        Latest { provider, good: None, handed: None, trouble: None }
    }

    /// Asks the provider.
    pub async fn ask(&mut self) -> Standing<P::DesiredState> {
        let answer = self.provider.answer().await;
        self.trouble = match &answer {
            Answer::Unknown { why } => Some(why.clone()),
            Answer::DesiredState(_) | Answer::Nothing => None,
        };
        match (answer, &self.good) {
            (Answer::DesiredState(desired), _) => {
                self.good = Some(desired.clone());
                Standing::Fresh(desired)
            }
            (Answer::Unknown { why }, Some(good)) => Standing::Stale { desired: good.clone(), why },
            (Answer::Unknown { why }, None) => Standing::Unknown { why },
            (Answer::Nothing, _) => {
                self.good = None;
                Standing::Nothing
            }
        }
    }

    /// Waits until asking again may bring something else.
    pub async fn changed(&mut self) {
        self.provider.changed().await;
    }

    /// The provider.
    pub fn provider(&self) -> &P {
        &self.provider
    }

    /// Why the last answer was none, if it was none.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

impl<P: Provider<DesiredState: PartialEq>> Latest<P> {
    /// Waits for a desired state that is another than the last one from here: what a loop is fed with. What
    /// cannot be answered is waited out. Dropping the future loses nothing.
    pub async fn next_desired(&mut self) -> Arc<P::DesiredState> {
        loop {
            if let Standing::Fresh(desired) = self.ask().await
                && self.handed.as_ref() != Some(&desired)
            {
                self.handed = Some(Arc::clone(&desired));
                return desired;
            }
            self.changed().await;
        }
    }
}
