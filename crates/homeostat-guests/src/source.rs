//! The source: a client of one cluster, an owner, and timeouts.

use std::time::Duration;

use homeostat_core::{ChangeList, Coverage, Draft, Fails, Failure, ScopeLock, Source};

use crate::api::Api;
use crate::apply::Writer;
use crate::client::Client;
use crate::desired::DesiredState;
use crate::endpoint::Endpoint;
use crate::mark::Claimant;
use crate::model::{Guest, Vmid};
use crate::nodes::Wait;
use crate::observe::{Moment, Reader};
use crate::plan;
use crate::step::Step;

/// Timeouts and intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The timeout of a request.
    pub answer: Duration,
    /// How long to wait for the end of a task.
    pub task: Duration,
    /// The interval at which the cluster is polled for hints.
    pub poll: Duration,
    /// How long after a lost answer the task of its request may still begin; nothing is sent again until then.
    pub late_task: Duration,
}

impl Timeouts {
    /// How long after the longest wait for an answer an overloaded cluster may still begin a task.
    pub const TASK_DELAY: Duration = Duration::from_secs(20);
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            answer: Duration::from_secs(10),
            task: Duration::from_mins(15),
            poll: Duration::from_secs(5),
            late_task: Duration::from_secs(10) + Timeouts::TASK_DELAY,
        }
    }
}

/// The declared guests of one cluster.
#[derive(Clone, Debug)]
pub struct Guests {
    pub(crate) api: Api,
    /// The name in our marks.
    pub owner: String,
    pub(crate) timeouts: Timeouts,
    /// Who puts the marks, if machines are told apart.
    pub(crate) claimant: Option<Claimant>,
}

impl Guests {
    /// The guests that a client reaches.
    #[must_use]
    pub fn new(client: &Client, owner: impl Into<String>, timeouts: Timeouts) -> Self {
        let api = Api { client: client.within(timeouts.answer) };
        Guests { api, owner: owner.into(), timeouts, claimant: None }
    }

    /// The same, with marks that say who claimed a guest: those of another claimant are a conflict.
    #[must_use]
    pub fn with_claimant(self, claimant: Claimant) -> Self {
        Guests { claimant: Some(claimant), ..self }
    }

    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.api.client.endpoint()
    }
}

impl Source for Guests {
    const NAME: &'static str = "guests";
    const FAILS: Fails = Fails::Lanes;
    const COVERAGE: Coverage = Coverage::Some;

    type Key = Vmid;
    type Object = Guest;
    type Desired = DesiredState;
    type Step = Step;
    type Moment = Moment;
    type Reader = Reader;
    type Writer = Writer;

    fn reader(&self) -> Result<Reader, Failure> {
        Ok(Reader::new(self.clone(), Wait::Usual))
    }

    fn reader_without_hints(&self) -> Result<Reader, Failure> {
        Ok(Reader::new(self.clone(), Wait::Longest))
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Writer, Failure> {
        Ok(Writer { source: self.clone() })
    }

    fn is_same(&self, other: &Self) -> bool {
        self.api.client.is_same(&other.api.client)
            && self.owner == other.owner
            && self.timeouts == other.timeouts
            && self.claimant == other.claimant
    }

    fn plan(
        &self,
        desired: &DesiredState,
        moment: &Moment,
        changes: ChangeList<Vmid, Guest>,
    ) -> Draft<Self> {
        plan::draft(self, desired, moment, changes)
    }
}
