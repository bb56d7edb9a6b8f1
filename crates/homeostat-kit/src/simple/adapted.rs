//! Makes a whole source of an [`Api`].

use std::sync::Arc;

use homeostat_engine::{
    Change, ChangeList, Coverage, Desired, Draft, Fails, Failure, Focus, Hint, Outcome, Outcomes,
    Reader, ScopeLock, See, Seen, Source, View, Work, Writer,
};

use super::{Api, Listed, Refusal, Watch, Wishes, Write, Written};

/// An API as a source.
pub struct Adapted<A> {
    api: Arc<A>,
}

impl<A: Api> Adapted<A> {
    /// Adapts an API.
    pub fn new(api: A) -> Self {
        Self::shared(Arc::new(api))
    }

    /// Adapts an API that others use too.
    pub fn shared(api: Arc<A>) -> Self {
        Adapted { api }
    }
}

impl<A: Api> Source for Adapted<A> {
    const NAME: &'static str = A::NAME;
    const FAILS: Fails = Fails::Lanes;
    const COVERAGE: Coverage = A::COVERAGE;

    type Key = A::Key;
    type Object = A::Object;
    type Desired = Wishes<A>;
    type Step = Write<A::Key, A::Object>;
    type Moment = ();
    type Reader = Eyes<A>;
    type Writer = Hands<A>;

    fn reader(&self) -> Result<Eyes<A>, Failure> {
        Ok(Eyes { api: self.api.clone(), watch: None })
    }

    fn writer(&self, _: &ScopeLock) -> Result<Hands<A>, Failure> {
        Ok(Hands { api: self.api.clone() })
    }

    fn plan(&self, _: &Wishes<A>, (): &(), changes: ChangeList<A::Key, A::Object>) -> Draft<Self> {
        Draft { steps: changes.into_iter().map(Write).collect(), ..Draft::default() }
    }
}

/// Lists, looks and watches.
pub struct Eyes<A: Api> {
    api: Arc<A>,
    watch: Option<Box<dyn Watch<A::Key>>>,
}

impl<A: Api> Eyes<A> {
    async fn watching(&mut self) -> Result<&mut Box<dyn Watch<A::Key>>, Failure> {
        match &mut self.watch {
            Some(watch) => Ok(watch),
            unopened => Ok(unopened.insert(self.api.watch().await?)),
        }
    }
}

impl<A: Api> Reader<Adapted<A>> for Eyes<A> {
    async fn observe(
        &mut self,
        view: &View<'_, Adapted<A>>,
        see: &mut See<'_, A::Key, A::Object>,
    ) -> Result<(), Failure> {
        self.watching().await?;
        let listed = list(&*self.api, view.focus).await?;
        listed.into_iter().filter(|seen| view.focus.covers(key_of(seen))).for_each(see);
        Ok(())
    }

    async fn hint(&mut self) -> Result<Hint<A::Key>, Failure> {
        self.watching().await?.next().await
    }
}

async fn list<A: Api>(api: &A, focus: &Focus<A::Key>) -> Result<Listed<A>, Failure> {
    match focus {
        Focus::All => api.list().await,
        Focus::Keys(keys) => api.look(keys).await,
    }
}

fn key_of<K, O>(seen: &Seen<K, O>) -> &K {
    match seen {
        Seen::Present { key, .. } | Seen::Unknown { key, .. } => key,
    }
}

/// Creates, updates and deletes.
pub struct Hands<A> {
    api: Arc<A>,
}

impl<A: Api> Hands<A> {
    async fn write(&self, wish: &Wishes<A>, write: &Write<A::Key, A::Object>) -> Written<A> {
        match &write.0 {
            Change::Create { slot } => self.api.create(&wish.key(*slot), &wish.object(*slot)).await,
            Change::Update { slot, before, adopts: None } => {
                self.api.update(&wish.key(*slot), before, &wish.object(*slot)).await
            }
            Change::Update { slot, before, adopts: Some(_) } => {
                self.api.adopt(&wish.key(*slot), before, &wish.object(*slot)).await
            }
            Change::Delete { key, before } => match self.api.delete(key, before).await {
                Ok(()) | Err(Refusal::Gone) => Ok(None),
                Err(refusal) => Err(refusal),
            },
            Change::Release { key, before, restore: Some(original) } => {
                self.api.update(key, before, original).await
            }
            Change::Release { before, restore: None, .. } => Ok(Some(before.clone())),
        }
    }
}

impl<A: Api> Writer<Adapted<A>> for Hands<A> {
    async fn apply(&self, work: Work<'_, Adapted<A>>, out: &dyn Outcomes<A::Object>) {
        for (at, write) in work.iter() {
            let outcome = match self.write(work.wish, write).await {
                Ok(now) => Outcome::Applied { now },
                Err(refusal) => refusal.outcome(),
            };
            out.put(at..at + 1, outcome);
        }
    }
}
