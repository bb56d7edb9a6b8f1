//! The source: which cluster, whose mark, and how patient.

use std::time::Duration;

use homeostat_core::{ChangeList, Coverage, Draft, Fails, Failure, ScopeLock, Source};

use crate::apply::Writer;
use crate::client::Client;
use crate::endpoint::Endpoint;
use crate::model::{Guest, Key, Wish};
use crate::observe::{Moment, Reader};
use crate::plan;
use crate::step::Step;

/// How long is waited for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For an answer.
    pub answer: Duration,
    /// For the end of a task.
    pub task: Duration,
    /// Between two questions whether any guest has changed.
    pub poll: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            answer: Duration::from_secs(10),
            task: Duration::from_mins(15),
            poll: Duration::from_secs(5),
        }
    }
}

/// The declared guests of one cluster.
#[derive(Clone, Debug)]
pub struct Guests {
    pub(crate) client: Client,
    pub(crate) owner: String,
    pub(crate) patience: Patience,
}

impl Guests {
    /// The guests that a client reaches, marked as this owner's.
    #[must_use]
    pub fn new(client: &Client, owner: impl Into<String>, patience: Patience) -> Self {
        Guests { client: client.within(patience.answer), owner: owner.into(), patience }
    }

    /// Which cluster they are on.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.client.endpoint()
    }

    /// Whose mark is put on guests.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }
}

impl Source for Guests {
    const NAME: &'static str = "guests";
    const FAILS: Fails = Fails::Lanes;
    const COVERAGE: Coverage = Coverage::Some;

    type Key = Key;
    type Object = Guest;
    type Desired = Wish;
    type Step = Step;
    type Moment = Moment;
    type Reader = Reader;
    type Writer = Writer;

    fn reader(&self) -> Result<Reader, Failure> {
        Ok(Reader::listening(self.clone()))
    }

    fn reader_without_hints(&self) -> Result<Reader, Failure> {
        Ok(Reader::deaf(self.clone()))
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Writer, Failure> {
        Ok(Writer::new(self.clone()))
    }

    fn plan(&self, wish: &Wish, moment: &Moment, changes: ChangeList<Key, Guest>) -> Draft<Self> {
        plan::draft(self, (wish, moment), changes)
    }
}
