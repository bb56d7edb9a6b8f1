//! Wraps a source and removes its hints, so that it finds changes by a resync only.

use homeostat_engine::{
    ChangeList, Coverage, Draft, Fails, Failure, Outcomes, Reader, ScopeLock, See, Source, View,
    Work, Writer,
};

/// How hints are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ears {
    /// There is no subscription.
    None,
    /// There is one, but no hint arrives.
    Stopped,
}

/// A source whose hints never arrive.
#[derive(Debug)]
pub struct Deaf<S> {
    source: S,
    ears: Ears,
}

impl<S: Source> Deaf<S> {
    pub fn new(source: S, ears: Ears) -> Self {
        Deaf { source, ears }
    }
}

/// The reader of [`Deaf`].
#[derive(Debug)]
pub struct ReaderWithoutHints<R>(R);

/// The writer of [`Deaf`].
#[derive(Debug)]
pub struct PlainWriter<W>(W);

impl<S: Source> Source for Deaf<S> {
    const NAME: &'static str = S::NAME;
    const FAILS: Fails = S::FAILS;
    const COVERAGE: Coverage = Coverage::None;

    type Key = S::Key;
    type Object = S::Object;
    type Desired = S::Desired;
    type Step = S::Step;
    type Moment = S::Moment;
    type Reader = ReaderWithoutHints<S::Reader>;
    type Writer = PlainWriter<S::Writer>;

    fn reader(&self) -> Result<ReaderWithoutHints<S::Reader>, Failure> {
        let reader = match self.ears {
            Ears::None => self.source.reader_without_hints(),
            Ears::Stopped => self.source.reader(),
        };
        reader.map(ReaderWithoutHints)
    }

    fn writer(&self, lock: &ScopeLock) -> Result<PlainWriter<S::Writer>, Failure> {
        self.source.writer(lock).map(PlainWriter)
    }

    fn plan(
        &self,
        desired: &S::Desired,
        moment: &S::Moment,
        changes: ChangeList<S::Key, S::Object>,
    ) -> Draft<Self> {
        let Draft { steps, pending, refused, conflicts } =
            self.source.plan(desired, moment, changes);
        Draft { steps, pending, refused, conflicts }
    }
}

impl<S: Source> Reader<Deaf<S>> for ReaderWithoutHints<S::Reader> {
    async fn observe(
        &mut self,
        view: &View<'_, Deaf<S>>,
        see: &mut See<'_, S::Key, S::Object>,
    ) -> Result<S::Moment, Failure> {
        let View { focus, desired, records } = *view;
        self.0.observe(&View { focus, desired, records }, see).await
    }
}

impl<S: Source> Writer<Deaf<S>> for PlainWriter<S::Writer> {
    async fn apply(&self, work: Work<'_, Deaf<S>>, out: &dyn Outcomes<S::Object>) {
        let Work { desired, moment, first, steps } = work;
        self.0.apply(Work { desired, moment, first, steps }, out).await;
    }
}
