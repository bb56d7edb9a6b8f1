//! The source: whose namespaces, and what ties its parts to the contract.

use homeostat_core::{ChangeList, Coverage, Draft, Fails, Failure, ScopeLock, Source};

use crate::apply::Writer;
use crate::key::Key;
use crate::mark::Mark;
use crate::model::{Namespace, Wish};
use crate::observe::{Moment, Reader};
use crate::plan;
use crate::step::Step;

/// The named network namespaces of the caller's `/run/netns`.
#[derive(Clone, Debug)]
pub struct Namespaces {
    pub(crate) mark: Mark,
}

impl Namespaces {
    /// The namespaces of one owner, who marks what is inside with this.
    #[must_use]
    pub fn new(mark: Mark) -> Self {
        Namespaces { mark }
    }
}

impl Source for Namespaces {
    const NAME: &'static str = "namespaces";
    const FAILS: Fails = Fails::Independent;
    const COVERAGE: Coverage = Coverage::None;

    type Key = Key;
    type Object = Namespace;
    type Desired = Wish;
    type Step = Step;
    type Moment = Moment;
    type Reader = Reader;
    type Writer = Writer;

    fn reader(&self) -> Result<Reader, Failure> {
        Ok(Reader::new(self.clone()))
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Writer, Failure> {
        Ok(Writer::new(self.clone()))
    }

    fn plan(
        &self,
        wish: &Wish,
        moment: &Moment,
        changes: ChangeList<Key, Namespace>,
    ) -> Draft<Self> {
        plan::draft(wish, moment, changes)
    }
}
