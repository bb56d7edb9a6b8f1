//! Any source, with nobody to tell it of changes: what it finds, it finds by looking.

use homeostat_engine::{
    ChangeList, Coverage, Draft, Fails, Failure, Outcomes, Reader, ScopeLock, See, Source, View,
    Work, Writer,
};

/// What became of the hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ears {
    /// There is no subscription.
    None,
    /// There is one, and nothing of it comes through.
    Stopped,
}

/// A source whose hints never arrive.
#[derive(Debug)]
pub struct Deaf<S> {
    source: S,
    ears: Ears,
}

impl<S: Source> Deaf<S> {
    /// Makes a source deaf.
    pub fn new(source: S, ears: Ears) -> Self {
        Deaf { source, ears }
    }
}

/// The eyes of a source, without its ears.
#[derive(Debug)]
pub struct Eyes<R>(R);

/// The hands of a source.
#[derive(Debug)]
pub struct Hands<W>(W);

impl<S: Source> Source for Deaf<S> {
    const NAME: &'static str = S::NAME;
    const FAILS: Fails = S::FAILS;
    const COVERAGE: Coverage = Coverage::None;

    type Key = S::Key;
    type Object = S::Object;
    type Desired = S::Desired;
    type Step = S::Step;
    type Moment = S::Moment;
    type Reader = Eyes<S::Reader>;
    type Writer = Hands<S::Writer>;

    fn reader(&self) -> Result<Eyes<S::Reader>, Failure> {
        let reader = match self.ears {
            Ears::None => self.source.reader_without_hints(),
            Ears::Stopped => self.source.reader(),
        };
        reader.map(Eyes)
    }

    fn writer(&self, lock: &ScopeLock) -> Result<Hands<S::Writer>, Failure> {
        self.source.writer(lock).map(Hands)
    }

    fn plan(
        &self,
        wish: &S::Desired,
        moment: &S::Moment,
        changes: ChangeList<S::Key, S::Object>,
    ) -> Draft<Self> {
        let Draft { steps, pending, refused, conflicts } = self.source.plan(wish, moment, changes);
        Draft { steps, pending, refused, conflicts }
    }
}

impl<S: Source> Reader<Deaf<S>> for Eyes<S::Reader> {
    async fn observe(
        &mut self,
        view: &View<'_, Deaf<S>>,
        see: &mut See<'_, S::Key, S::Object>,
    ) -> Result<S::Moment, Failure> {
        let View { focus, wish, records } = *view;
        self.0.observe(&View { focus, wish, records }, see).await
    }
}

impl<S: Source> Writer<Deaf<S>> for Hands<S::Writer> {
    async fn apply(&self, work: Work<'_, Deaf<S>>, out: &dyn Outcomes<S::Object>) {
        let Work { wish, moment, first, steps } = work;
        self.0.apply(Work { wish, moment, first, steps }, out).await;
    }
}
