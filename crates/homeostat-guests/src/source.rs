//! The source: a client of one cluster, an owner, and timeouts.

use std::time::Duration;

use homeostat_core::{ChangeList, Coverage, Draft, Fails, Failure, ScopeLock, Source};

use crate::apply::Writer;
use crate::client::Client;
use crate::desired::DesiredState;
use crate::endpoint::Endpoint;
use crate::model::{Guest, Key};
use crate::observe::{Moment, Reader};
use crate::plan;
use crate::step::Step;

/// Timeouts and intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The timeout of a request.
    pub answer: Duration,
    /// How long to wait for the end of a task.
    pub task: Duration,
    /// The interval at which the cluster is polled for hints.
    pub poll: Duration,
    /// For the task of a request whose answer was lost: it may still begin until then, and nothing is sent again.
    pub doubt: Duration,
}

impl Patience {
    /// How long after the longest wait for an answer an overloaded cluster may still begin a task.
    pub const TASK_DELAY: Duration = Duration::from_secs(20);
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            answer: Duration::from_secs(10),
            task: Duration::from_mins(15),
            poll: Duration::from_secs(5),
            doubt: Duration::from_secs(10) + Patience::TASK_DELAY,
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
    /// The guests that a client reaches. `owner` is the name in our marks.
    #[must_use]
    pub fn new(client: &Client, owner: impl Into<String>, patience: Patience) -> Self {
        Guests { client: client.within(patience.answer), owner: owner.into(), patience }
    }

    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.client.endpoint()
    }

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
    type Desired = DesiredState;
    type Step = Step;
    type Moment = Moment;
    type Reader = Reader;
    type Writer = Writer;

    fn reader(&self) -> Result<Reader, Failure> {
        Ok(Reader::with_hints(self.clone()))
    }

    fn reader_without_hints(&self) -> Result<Reader, Failure> {
        Ok(Reader::without_hints(self.clone()))
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Writer, Failure> {
        Ok(Writer::new(self.clone()))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.client.is_same(&other.client)
            && self.owner == other.owner
            && self.patience == other.patience
    }

    fn plan(
        &self,
        desired: &DesiredState,
        moment: &Moment,
        changes: ChangeList<Key, Guest>,
    ) -> Draft<Self> {
        plan::draft(self, desired, moment, changes)
    }
}
