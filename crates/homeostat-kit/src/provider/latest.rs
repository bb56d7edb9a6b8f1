//! Keeps the last good wish while a provider cannot answer.

use std::sync::Arc;

use super::{Answer, Provider};

/// How a wish stands after its provider was asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Standing<W> {
    /// The provider's own answer.
    Fresh(Arc<W>),
    /// The provider cannot answer; this was its last good one.
    Stale {
        /// The last good wish.
        wish: Arc<W>,
        /// Why there is none that is newer.
        why: String,
    },
    /// The provider has never answered: run no pass.
    Unknown {
        /// Why it has not.
        why: String,
    },
    /// There is no wish here: run no pass.
    Nothing,
}

impl<W> Standing<W> {
    /// The wish to run a pass for, if there is one.
    #[must_use]
    pub fn wish(&self) -> Option<&Arc<W>> {
        match self {
            Standing::Fresh(wish) | Standing::Stale { wish, .. } => Some(wish),
            Standing::Unknown { .. } | Standing::Nothing => None,
        }
    }
}

/// A provider whose last good wish stands.
#[derive(Debug)]
pub struct Latest<P: Provider> {
    provider: P,
    good: Option<Arc<P::Wish>>,
    handed: Option<Arc<P::Wish>>,
    trouble: Option<String>,
}

impl<P: Provider> Latest<P> {
    /// Has not asked yet.
    pub fn new(provider: P) -> Self {
        Latest { provider, good: None, handed: None, trouble: None }
    }

    /// Asks the provider.
    pub async fn ask(&mut self) -> Standing<P::Wish> {
        let answer = self.provider.answer().await;
        self.trouble = match &answer {
            Answer::Unknown { why } => Some(why.clone()),
            Answer::Wish(_) | Answer::Nothing => None,
        };
        match (answer, &self.good) {
            (Answer::Wish(wish), _) => {
                self.good = Some(wish.clone());
                Standing::Fresh(wish)
            }
            (Answer::Unknown { why }, Some(good)) => Standing::Stale { wish: good.clone(), why },
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

impl<P: Provider<Wish: PartialEq>> Latest<P> {
    /// Waits for a wish that is another than the last one from here: what a loop is fed with. What
    /// cannot be answered is waited out. Dropping the future loses nothing.
    pub async fn next_wish(&mut self) -> Arc<P::Wish> {
        loop {
            if let Standing::Fresh(wish) = self.ask().await
                && self.handed.as_ref() != Some(&wish)
            {
                self.handed = Some(Arc::clone(&wish));
                return wish;
            }
            self.changed().await;
        }
    }
}
