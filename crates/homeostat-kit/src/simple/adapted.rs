//! Makes a whole source of an [`Api`].

use std::sync::{Arc, Mutex};

use homeostat_engine::{ChangeList, Coverage, Draft, Fails, Failure, ScopeLock, Source};

use super::errands::Errands;
use super::eyes::Eyes;
use super::hands::{Hands, Tap};
use super::limit::{Bucket, Limit};
use super::{Api, DesiredObjects, Write};

/// An API as a source. Clones share the API, its limit and what is under way: a loop that is given
/// another desired state keeps waiting for the tasks of the last one.
pub struct Adapted<A: Api> {
    api: Arc<A>,
    errands: Arc<Errands<A::Key>>,
    tap: Option<Tap>,
    witness: Witness,
}

/// Whether the ledger keeps a record of what the target's own marks tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Witness {
    /// No: the mark alone tells.
    #[default]
    None,
    /// Yes: a mark that somebody takes off is noticed.
    Ledger,
}

impl<A: Api> Clone for Adapted<A> {
    fn clone(&self) -> Self {
        let (api, errands) = (Arc::clone(&self.api), Arc::clone(&self.errands));
        Adapted { api, errands, tap: self.tap.clone(), witness: self.witness }
    }
}

impl<A: Api> Adapted<A> {
    /// Adapts an API.
    pub fn new(api: A) -> Self {
        Self::shared(Arc::new(api))
    }

    /// Adapts an API that others use too.
    pub fn shared(api: Arc<A>) -> Self {
        Adapted { api, errands: Arc::default(), tap: None, witness: Witness::None }
    }

    /// Writes no more often than this.
    #[must_use]
    pub fn limited(mut self, limit: Limit) -> Self {
        self.tap = Some(Tap::new(Arc::new(Mutex::new(Bucket::new(limit)))));
        self
    }

    /// Has the ledger witness what is marked in the target.
    #[must_use]
    pub fn witnessed(mut self) -> Self {
        self.witness = Witness::Ledger;
        self
    }

    /// Whether the ledger keeps a record beside the target's marks.
    #[must_use]
    pub fn witness(&self) -> Witness {
        self.witness
    }
}

impl<A: Api> Source for Adapted<A> {
    const NAME: &'static str = A::NAME;
    const FAILS: Fails = Fails::Lanes;
    const COVERAGE: Coverage = A::COVERAGE;

    type Key = A::Key;
    type Object = A::Object;
    type Desired = DesiredObjects<A>;
    type Step = Write<A::Key, A::Object>;
    type Moment = ();
    type Reader = Eyes<A>;
    type Writer = Hands<A>;

    fn reader(&self) -> Result<Eyes<A>, Failure> {
        Ok(Eyes::new(Arc::clone(&self.api), Arc::clone(&self.errands)))
    }

    fn writer(&self, _: &ScopeLock) -> Result<Hands<A>, Failure> {
        Ok(Hands::new(Arc::clone(&self.api), Arc::clone(&self.errands), self.tap.clone()))
    }

    fn plan(
        &self,
        _: &DesiredObjects<A>,
        (): &(),
        changes: ChangeList<A::Key, A::Object>,
    ) -> Draft<Self> {
        let write = |change| Write { change, witness: self.witness };
        Draft { steps: changes.into_iter().map(write).collect(), ..Draft::default() }
    }
}
