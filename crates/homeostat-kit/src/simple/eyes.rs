//! The reading side of an adapted API: lists, looks, watches, and remembers what is under way.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_engine::{Desired as _, Failure, Focus, Hint, Reader, See, Seen, Slot, View};
use tokio::time::Instant;

use super::adapted::Adapted;
use super::errands::{Errand, Errands};
use super::listing::{Listing, known};
use super::shadow::{Shadow, covered, key_of};
use super::task::Progress;
use super::{Api, Listed, Watch};

/// Lists, looks and watches.
pub struct Eyes<A: Api> {
    api: Arc<A>,
    errands: Arc<Errands<A::Key>>,
    watch: Option<Box<dyn Watch<A::Key>>>,
    shadow: Option<Shadow<A>>,
}

impl<A: Api> Eyes<A> {
    pub(super) fn new(api: Arc<A>, errands: Arc<Errands<A::Key>>) -> Self {
        let shadow = match A::LISTING {
            Listing::Shards(shards) => Some(Shadow::new(shards)),
            Listing::Whole | Listing::KnownNames => None,
        };
        Eyes { api, errands, watch: None, shadow }
    }

    async fn watching(&mut self) -> Result<&mut Box<dyn Watch<A::Key>>, Failure> {
        match &mut self.watch {
            Some(watch) => Ok(watch),
            unopened => Ok(unopened.insert(self.api.watch().await?)),
        }
    }

    async fn read(&mut self, view: &View<'_, Adapted<A>>) -> Result<Listed<A>, Failure> {
        match (view.focus, A::LISTING) {
            (Focus::All, Listing::Whole) => self.api.list().await,
            (Focus::All, Listing::Shards(_)) => self.list_some(view).await,
            (focus, _) => {
                let declared =
                    (0..view.desired.len()).map(|index| view.desired.key(Slot::at(index)));
                let keys = known(focus, declared, view.records.keys().cloned());
                self.look(&keys).await
            }
        }
    }

    async fn look(&mut self, keys: &BTreeSet<A::Key>) -> Result<Listed<A>, Failure> {
        let found = self.api.look(keys).await?;
        if let Some(shadow) = &mut self.shadow {
            shadow.looked(keys, &found);
        }
        Ok(found)
    }

    /// Lists the parts that are due, recalls the others, and looks at whatever differs from the desired state.
    async fn list_some(&mut self, view: &View<'_, Adapted<A>>) -> Result<Listed<A>, Failure> {
        let Some(shadow) = &mut self.shadow else { return self.api.list().await };
        let due = shadow.due(Instant::now());
        let mut all = Vec::new();
        for shard in due.iter().copied() {
            let began = Instant::now();
            match self.api.list_shard(shard).await {
                Ok(listed) => {
                    shadow.listed(shard, &listed, began);
                    all.extend(listed);
                }
                Err(failure) => {
                    shadow.forget(shard);
                    return Err(failure);
                }
            }
        }
        let mut written = self.errands.take_written();
        written.retain(|key| !due.contains(&A::shard(key)));
        let (told, mut doubts) = shadow.recall(&due, (view.desired, view.records));
        all.extend(told.into_iter().filter(|seen| !written.contains(key_of(seen))));
        doubts.extend(written.iter().cloned());
        if doubts.is_empty() {
            return Ok(all);
        }
        let found = self.api.look(&doubts).await.inspect_err(|_| self.errands.wrote(written))?;
        shadow.looked(&doubts, &found);
        all.extend(found.into_iter().filter(|seen| doubts.contains(key_of(seen))));
        Ok(all)
    }

    /// Asks for the tasks of the keys in focus, and names those keys on which the target still works.
    async fn under_way(&mut self, focus: &Focus<A::Key>) -> Vec<(A::Key, String)> {
        let mut busy = Vec::new();
        for (key, errand) in self.errands.accepted(|key| focus.covers(key)) {
            match errand {
                Errand::Task(id) => {
                    let why = self.ask(&key, &id).await;
                    busy.extend(why.map(|why| (key, why)));
                }
                Errand::Recheck => busy.push((key, "the target works on it".to_owned())),
                Errand::Retry => {}
            }
        }
        busy
    }

    /// Why nothing can be said about the key of a task, if it is not over.
    async fn ask(&mut self, key: &A::Key, id: &str) -> Option<String> {
        match self.api.task(id).await {
            Ok(Progress::Over | Progress::Lost) => self.errands.over(key, None),
            Ok(Progress::Failed(failure)) => self.errands.over(key, Some(failure)),
            Ok(Progress::Running) => {
                self.errands.goes_on(key);
                return Some(format!("task {id} is running"));
            }
            Err(failure) => {
                self.errands.goes_on(key);
                return Some(format!("task {id} cannot be asked for: {failure}"));
            }
        }
        None
    }
}

impl<A: Api> Reader<Adapted<A>> for Eyes<A> {
    async fn observe(
        &mut self,
        view: &View<'_, Adapted<A>>,
        see: &mut See<'_, A::Key, A::Object>,
    ) -> Result<(), Failure> {
        self.watching().await?;
        // A task that is over by now is seen in the look that follows.
        let busy = self.under_way(view.focus).await;
        let listed = covered::<A>(self.read(view).await?, view.focus);
        listed.into_iter().for_each(&mut *see);
        for (key, why) in busy {
            see(Seen::Unknown { key, why });
        }
        Ok(())
    }

    async fn hint(&mut self) -> Result<Hint<A::Key>, Failure> {
        let errands = Arc::clone(&self.errands);
        let watch = self.watching().await?;
        tokio::select! {
            biased;
            keys = errands.due() => Ok(Hint::Keys(keys)),
            hint = watch.next() => hint,
        }
    }
}
