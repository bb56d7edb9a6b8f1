//! Wraps a source and removes its hints, so that it finds changes by a resync only.

use homeostat_engine::{
    ChangeList, Coverage, Draft, Fails, Failure, Outcomes, Reader, ScopeLock, See, Source, View,
    Work, Writer,
};

/// How hints are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subscription {
    /// There is no subscription.
    None,
    /// There is one, but no hint arrives.
    Silent,
}

/// A source whose hints never arrive.
#[derive(Debug)]
pub struct WithoutHints<S> {
    source: S,
    subscription: Subscription,
}

impl<S: Source> WithoutHints<S> {
    pub fn new(source: S, subscription: Subscription) -> Self {
        WithoutHints { source, subscription }
    }
}

/// The reader of [`WithoutHints`].
#[derive(Debug)]
pub struct ReaderWithoutHints<R>(R);

/// The writer of [`WithoutHints`].
#[derive(Debug)]
pub struct PlainWriter<W>(W);

impl<S: Source> Source for WithoutHints<S> {
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
        let reader = match self.subscription {
            Subscription::None => self.source.reader_without_hints(),
            Subscription::Silent => self.source.reader(),
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
        let Draft { steps, findings } = self.source.plan(desired, moment, changes);
        Draft { steps, findings }
    }
}

impl<S: Source> Reader<WithoutHints<S>> for ReaderWithoutHints<S::Reader> {
    async fn observe(
        &mut self,
        view: &View<'_, WithoutHints<S>>,
        see: &mut See<'_, S::Key, S::Object>,
    ) -> Result<S::Moment, Failure> {
        let View { focus, desired, records } = *view;
        self.0.observe(&View { focus, desired, records }, see).await
    }
}

impl<S: Source> Writer<WithoutHints<S>> for PlainWriter<S::Writer> {
    async fn apply(&self, work: Work<'_, WithoutHints<S>>, out: &dyn Outcomes<S::Object>) {
        let Work { desired, moment, first, steps } = work;
        self.0.apply(Work { desired, moment, first, steps }, out).await;
    }
}
