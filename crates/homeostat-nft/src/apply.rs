//! The only writer: all steps as one transaction, under the generation that was observed.

mod whole;

use std::sync::{Arc, Mutex, PoisonError};

use homeostat_core::{Failure, Outcome, Outcomes, Retry, Work};
use homeostat_netlink::uapi::NLM_F_ECHO;
use homeostat_netlink::{Batch, Connection, Errno, Family, Refusal, Transacted};

use crate::echo::{self, Echoes};
use crate::encode::Encoder;
use crate::error::Error;
use crate::object::Object;
use crate::source::Nft;
use crate::step::Step;

/// The hands of the source.
pub struct Writer {
    source: Nft,
    hands: Mutex<Hands>,
}

struct Hands {
    connection: Connection,
    /// How often in a row somebody was quicker.
    stale: u32,
}

/// After so many stale generations a transaction goes without: it names only our own handles, and fails
/// whole if one of them is gone.
const PATIENCE: u32 = 3;

/// Which act of which step each message belongs to.
type Places = Vec<(usize, usize)>;

impl Writer {
    pub(crate) fn open(source: Nft) -> Result<Self, Error> {
        let connection = source.connect(Family::Netfilter)?;
        source.ours.add(connection.socket().port());
        Ok(Writer { source, hands: Mutex::new(Hands { connection, stale: 0 }) })
    }

    fn write(&self, steps: &[Step]) -> Result<(Batch, Places), (usize, Failure)> {
        let (mut batch, mut places, mut last_id) = (Batch::new(), Places::new(), 0);
        let carried = |(_, step): &(usize, &Step)| step.script().is_none();
        for (at, step) in steps.iter().enumerate().filter(carried) {
            let mut encoder = Encoder {
                batch: &mut batch,
                last_id: &mut last_id,
                key: &step.key,
                mark: &self.source.mark,
                desired: step.desired.as_deref(),
                seen: step.seen.as_deref(),
                flags: if echo::is_small(step) { NLM_F_ECHO } else { 0 },
            };
            for (op_at, op) in step.ops.iter().enumerate() {
                let written = encoder.op(op);
                written.map_err(|error| (at, Failure::from_error(&error, Retry::OnChange)))?;
                places.resize(encoder.batch.count(), (at, op_at));
            }
        }
        Ok((batch, places))
    }

    /// Commits, and tells for each step whether the kernel's own words show that it is done.
    fn commit(
        &self,
        work: &Work<'_, Nft>,
        (batch, places): (&Batch, &Places),
    ) -> Result<(Transacted, Vec<bool>), Error> {
        let mut hands = self.hands.lock().unwrap_or_else(PoisonError::into_inner);
        let guarded = hands.stale < PATIENCE;
        let generation = guarded.then_some(work.moment.generation);
        let mut echoes: Vec<Echoes> = work.steps.iter().map(|_| Echoes::default()).collect();
        let transacted =
            hands.connection.transact_with_echo(batch, generation, &mut |at, message| {
                let place = at.and_then(|at| places.get(at).copied());
                let place = place.or_else(|| echo::about(work.steps, &message));
                if let Some((step, op)) = place
                    && let Some(echoes) = echoes.get_mut(step)
                {
                    echoes.hear(op, &message);
                }
            });
        if !matches!(transacted, Ok(Transacted::Done)) {
            self.source.refusals.add();
        }
        match &transacted {
            Ok(Transacted::Refused { refusal, .. }) if refusal.errno == STALE => hands.stale += 1,
            _ => hands.stale = 0,
        }
        // Without the generation, somebody may have changed what the step did not touch.
        let shown = echoes.into_iter().zip(work.steps);
        let shown = shown.map(|(echoes, step)| guarded && echoes.show(step)).collect();
        Ok((transacted?, shown))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let hands = self.hands.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.source.ours.remove(hands.connection.socket().port());
    }
}

/// ERESTART: the ruleset has another generation than the one that was observed.
const STALE: Errno = Errno::from_raw_os_error(85);

impl homeostat_core::Writer<Nft> for Writer {
    async fn apply(&self, work: Work<'_, Nft>, out: &dyn Outcomes<Object>) {
        let (batch, places) = match self.write(work.steps) {
            Ok(written) => written,
            Err((at, failure)) => return refuse(&work, Some(at), &failure, out),
        };
        let committed = if places.is_empty() {
            Ok((Transacted::Done, Vec::new()))
        } else {
            self.commit(&work, (&batch, &places))
        };
        match committed {
            Ok((Transacted::Done, shown)) => {
                let done = |at| Outcome::Applied { now: now(&work, &shown, at) };
                self.finish(&work, done, out).await;
            }
            Ok((Transacted::Unknown, _)) => {
                let why = "the kernel's answer was lost".to_owned();
                self.finish(&work, |_| Outcome::Unknown { why: why.clone() }, out).await;
            }
            Ok((Transacted::Refused { place, refusal }, _)) => {
                let place = place.and_then(|place| places.get(place)).copied();
                let failure = refused(work.steps, place, &refusal);
                refuse(&work, place.map(|(step, _)| step), &failure, out);
            }
            Err(error) => refuse(&work, None, &error.failure(), out),
        }
    }
}

impl Writer {
    /// Answers for what was committed, and loads what could not be a part of it.
    async fn finish(
        &self,
        work: &Work<'_, Nft>,
        committed: impl Fn(usize) -> Outcome<Object>,
        out: &dyn Outcomes<Object>,
    ) {
        for (at, step) in work.iter() {
            let outcome = match step.script() {
                Some(script) => whole::load(&self.source, step, script).await,
                None => committed(at - work.first),
            };
            out.put(at..at + 1, outcome);
        }
    }
}

/// What the kernel has shown by its own words; all else is looked at again.
fn now(work: &Work<'_, Nft>, shown: &[bool], at: usize) -> Option<Object> {
    let is_shown = shown.get(at).copied().unwrap_or_default();
    let desired = work.steps.get(at).and_then(|step| step.desired.as_ref()).filter(|_| is_shown);
    desired.map(|desired| Object::seen(Arc::clone(desired)))
}

/// Nothing was done: one step is the cause, the others wait for it.
fn refuse(
    work: &Work<'_, Nft>,
    cause: Option<usize>,
    failure: &Failure,
    out: &dyn Outcomes<Object>,
) {
    let key = cause.and_then(|at| work.steps.get(at)).map(|step| step.key.to_string());
    for at in 0..work.steps.len() {
        let failure = match &key {
            Some(key) if cause != Some(at) => Failure {
                error: format!("nothing was changed, because `{key}` was refused"),
                ..failure.clone()
            },
            _ => failure.clone(),
        };
        out.put(work.first + at..work.first + at + 1, Outcome::Failed(failure));
    }
}

fn refused(steps: &[Step], place: Option<(usize, usize)>, refusal: &Refusal) -> Failure {
    let retry = match refusal.errno {
        Errno::PERM | Errno::ACCESS => Retry::Never,
        // Something that was seen is gone, or something is there that was not.
        STALE | Errno::NOENT | Errno::EXIST | Errno::BUSY => Retry::Now,
        _ => Retry::Soon,
    };
    let mut failure = Failure::from_error(refusal, retry);
    if let Some((step, op)) = place
        && let Some(step) = steps.get(step)
    {
        failure.error = format!("{}: {}", step.describe(op), failure.error);
    }
    match refusal.errno {
        STALE => "the ruleset changed since it was observed".clone_into(&mut failure.error),
        Errno::PERM | Errno::ACCESS => {
            failure =
                failure.with_help("run it as root or with CAP_NET_ADMIN, or try it with --sandbox");
        }
        _ => {}
    }
    failure
}
