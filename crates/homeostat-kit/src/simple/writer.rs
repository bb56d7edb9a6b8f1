//! The writing side of an adapted API: one call a change, no faster than allowed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use homeostat_engine::{Change, Desired as _, Outcome, Outcomes, Step as _, Work, Writer};
use tokio::time::Instant;

use super::follow_up::{FollowUp, FollowUps};
use super::reader::Listing;
use super::source::{Adapted, DesiredObjects, Write};
use super::{Api, Refusal, Written};

/// Creates, updates and deletes.
pub struct ApiWriter<A: Api> {
    pub(super) api: Arc<A>,
    pub(super) follow_ups: Arc<FollowUps<A::Key>>,
    pub(super) limiter: Option<Limiter>,
}

impl<A: Api> ApiWriter<A> {
    async fn write(
        &self,
        desired: &DesiredObjects<A>,
        write: &Write<A::Key, A::Object>,
    ) -> Written<A> {
        if let Some(failure) = self.follow_ups.take_failure(&write.key(desired)) {
            return Err(Refusal::Failed(failure));
        }
        if let Some(limiter) = &self.limiter {
            limiter.wait().await?;
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
            // Without a snapshot nothing is given back.
            Change::Delete { key, before } | Change::GiveBack { key, before, .. } => {
                match self.api.delete(key, before).await {
                    Ok(()) | Err(Refusal::Gone) => Ok(None),
                    Err(refusal) => Err(refusal),
                }
            }
            Change::Release { key, before, restore: Some(original), .. } => {
                self.api.update(key, before, original).await
            }
            Change::Release { before, restore: None, .. } => Ok(Some(before.clone())),
        }
    }

    fn outcome(&self, key: A::Key, written: Written<A>) -> Outcome<A::Object> {
        match written {
            Ok(now) => {
                self.follow_ups.written(&key);
                // Which object it is, is learned by a look: the record is about that very one.
                let now = now.filter(|now| A::identity(now).is_none());
                Outcome::Applied { now }
            }
            Err(Refusal::WaitsOn(need)) => {
                if let Ok(need) = need.parse() {
                    self.follow_ups.waits_on(key, need);
                }
                Refusal::WaitsOn(need).outcome()
            }
            Err(refusal) => {
                let follow_up = match &refusal {
                    Refusal::Task { id } => Some((FollowUp::Task(id.clone()), Duration::ZERO)),
                    Refusal::Recheck { after } => Some((FollowUp::Recheck, *after)),
                    Refusal::NotNow { after, .. } => Some((FollowUp::Retry, *after)),
                    _ => None,
                };
                if let Some((follow_up, after)) = follow_up {
                    self.follow_ups.note(key, follow_up, after);
                }
                refusal.outcome()
            }
        }
    }
}

impl<A: Api> Writer<Adapted<A>> for ApiWriter<A> {
    async fn apply(&self, work: Work<'_, Adapted<A>>, out: &dyn Outcomes<A::Object>) {
        for (at, write) in work.iter() {
            if matches!(A::LISTING, Listing::Shards(_)) {
                self.follow_ups.wrote([write.key(work.desired)]);
            }
            let written = self.write(work.desired, write).await;
            out.put(at..at + 1, self.outcome(write.key(work.desired), written));
        }
    }
}

/// So many writes at once, and so many a second after that.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Limit {
    /// How many writes may come at once.
    pub burst: u32,
    /// How many a second are allowed in the long run.
    pub per_second: f64,
}

impl Limit {
    /// So many writes at once, and so many a second after that.
    #[must_use]
    pub fn new(burst: u32, per_second: f64) -> Self {
        Limit { burst, per_second }
    }
}

/// The tokens that are left of a limit.
#[derive(Clone, Debug)]
pub struct Bucket {
    limit: Limit,
    tokens: f64,
    filled: Duration,
}

impl Bucket {
    /// Full at the time zero.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        Bucket { limit, tokens: f64::from(limit.burst), filled: Duration::ZERO }
    }

    /// Takes a token, or returns how long to wait for one. `now` counts from the time zero; a clock that
    /// goes back fills nothing.
    pub fn take(&mut self, now: Duration) -> Result<(), Duration> {
        let passed = now.saturating_sub(self.filled).as_secs_f64();
        self.filled = self.filled.max(now);
        let full = f64::from(self.limit.burst).max(1.0);
        self.tokens = (self.tokens + passed * self.limit.per_second).min(full);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        let missing = (1.0 - self.tokens) / self.limit.per_second;
        // A rate of nothing would be an endless wait: an hour is as good as one.
        Err(Duration::try_from_secs_f64(missing).unwrap_or(Duration::from_hours(1)))
    }
}

/// How long a write waits for its turn within a pass. Beyond that it is left for a later one, so that
/// a pass with many writes comes to its end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Lets writes through at the rate of a bucket, which clones share.
#[derive(Clone, Debug)]
pub(super) struct Limiter {
    bucket: Arc<Mutex<Bucket>>,
    since: Instant,
}

impl Limiter {
    pub(super) fn new(limit: Limit) -> Self {
        Limiter { bucket: Arc::new(Mutex::new(Bucket::new(limit))), since: Instant::now() }
    }

    async fn wait(&self) -> Result<(), Refusal> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn near(wait: Duration, expected: Duration) -> bool {
        wait.abs_diff(expected) < MILLI
    }

    #[test]
    fn a_burst_goes_through_and_then_the_rate_holds() {
        let mut bucket = Bucket::new(Limit { burst: 2, per_second: 10.0 });
        assert_eq!(bucket.take(Duration::ZERO), Ok(()));
        assert_eq!(bucket.take(Duration::ZERO), Ok(()));
        let wait = bucket.take(Duration::ZERO).unwrap_err();
        assert!(near(wait, 100 * MILLI), "{wait:?}");
        assert!(bucket.take(60 * MILLI).is_err());
        assert_eq!(bucket.take(101 * MILLI), Ok(()));
    }

    #[test]
    fn idle_time_fills_no_more_than_the_burst() {
        let mut bucket = Bucket::new(Limit { burst: 2, per_second: 10.0 });
        let later = Duration::from_hours(1);
        assert_eq!((bucket.take(later), bucket.take(later)), (Ok(()), Ok(())));
        assert!(bucket.take(later).is_err());
    }

    #[test]
    fn a_clock_that_goes_back_fills_nothing_and_a_rate_of_nothing_waits_long() {
        let mut bucket = Bucket::new(Limit { burst: 1, per_second: 0.0 });
        assert_eq!(bucket.take(Duration::from_secs(9)), Ok(()));
        assert_eq!(bucket.take(Duration::from_secs(1)), Err(Duration::from_hours(1)));
    }
}
