//! The writing side of an adapted API: one call a change, no faster than allowed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use homeostat_engine::{Change, Desired as _, Outcome, Outcomes, Step as _, Work, Writer};
use tokio::time::Instant;

use super::adapted::Adapted;
use super::errands::{Errand, Errands};
use super::limit::Bucket;
use super::listing::Listing;
use super::{Api, DesiredObjects, Refusal, Write, Written};

/// How long a write waits for its turn within a pass. Beyond that it is left for a later one, so that
/// a pass with many writes comes to its end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Lets writes through at the rate of a bucket.
#[derive(Clone, Debug)]
pub(super) struct Tap {
    bucket: Arc<Mutex<Bucket>>,
    since: Instant,
}

impl Tap {
    pub(super) fn new(bucket: Arc<Mutex<Bucket>>) -> Self {
        Tap { bucket, since: Instant::now() }
    }

    async fn pass(&self) -> Result<(), Refusal> {
        loop {
            let now = self.since.elapsed();
            let taken = self.bucket.lock().unwrap_or_else(PoisonError::into_inner).take(now);
            match taken {
                Ok(()) => return Ok(()),
                Err(after) if after <= PATIENCE => tokio::time::sleep(after).await,
                Err(after) => {
                    return Err(Refusal::NotNow { after, on: "the rate limit".to_owned() });
                }
            }
        }
    }
}

/// Creates, updates and deletes.
pub struct Hands<A: Api> {
    api: Arc<A>,
    errands: Arc<Errands<A::Key>>,
    tap: Option<Tap>,
}

impl<A: Api> Hands<A> {
    pub(super) fn new(api: Arc<A>, errands: Arc<Errands<A::Key>>, tap: Option<Tap>) -> Self {
        Hands { api, errands, tap }
    }

    async fn write(
        &self,
        desired: &DesiredObjects<A>,
        write: &Write<A::Key, A::Object>,
    ) -> Written<A> {
        if let Some(failure) = self.errands.take_failure(&write.key(desired)) {
            return Err(Refusal::Failed(failure));
        }
        if let Some(tap) = &self.tap {
            tap.pass().await?;
        }
        self.call(desired, write).await
    }

    async fn call(
        &self,
        desired: &DesiredObjects<A>,
        write: &Write<A::Key, A::Object>,
    ) -> Written<A> {
        match &write.change {
            Change::Create { slot } => {
                self.api.create(&desired.key(*slot), &desired.object(*slot)).await
            }
            Change::Update { slot, before, adopts: None } => {
                self.api.update(&desired.key(*slot), before, &desired.object(*slot)).await
            }
            Change::Update { slot, before, adopts: Some(_) } => {
                self.api.adopt(&desired.key(*slot), before, &desired.object(*slot)).await
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

    /// Notes what has to be looked at again, and when.
    fn note(&self, key: A::Key, refusal: &Refusal) {
        let (errand, after) = match refusal {
            Refusal::Task { id } => (Errand::Task(id.clone()), Duration::ZERO),
            Refusal::Recheck { after } => (Errand::Recheck, *after),
            Refusal::NotNow { after, .. } => (Errand::Retry, *after),
            _ => return,
        };
        self.errands.note(key, errand, after);
    }

    fn outcome(&self, key: A::Key, written: Written<A>) -> Outcome<A::Object> {
        match written {
            // Which object it is, is learned by a look: the record is about that very one.
            Ok(Some(now)) if A::identity(&now).is_some() => Outcome::Applied { now: None },
            Ok(now) => Outcome::Applied { now },
            Err(refusal) => {
                self.note(key, &refusal);
                refusal.outcome()
            }
        }
    }
}

impl<A: Api> Writer<Adapted<A>> for Hands<A> {
    async fn apply(&self, work: Work<'_, Adapted<A>>, out: &dyn Outcomes<A::Object>) {
        for (at, write) in work.iter() {
            if matches!(A::LISTING, Listing::Shards(_)) {
                self.errands.wrote([write.key(work.desired)]);
            }
            let written = self.write(work.desired, write).await;
            out.put(at..at + 1, self.outcome(write.key(work.desired), written));
        }
    }
}
