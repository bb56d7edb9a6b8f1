//! The only writer: unit files first within a phase, then jobs side by side.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use homeostat_core::{Failure, Outcome, Outcomes, Retry, Step as _, Work};
use homeostat_systemd::{Error, Job, JobKind, Systemd, UnitName, follow_links};
use tokio::time::Instant;

use crate::key::{Aspect, Key};
use crate::model::State;
use crate::source::Services;
use crate::step::Step;

/// How long a pass waits for jobs. A unit that takes longer to start is followed by its signals.
const JOBS: Duration = Duration::from_secs(5);

/// Writes values of units.
#[derive(Debug)]
pub struct Writer {
    pub(crate) root: PathBuf,
}

impl homeostat_core::Writer<Services> for Writer {
    async fn apply(&self, work: Work<'_, Services>, out: &dyn Outcomes<State>) {
        let systemd = match Systemd::connect(&self.root).await {
            Ok(systemd) => systemd,
            Err(error) => {
                let failure = Failure::soon(&error);
                out.put(work.first..work.first + work.steps.len(), Outcome::Failed(failure));
                return;
            }
        };
        // During a boot a unit may wait for one that waits for us: its job is queued, and not waited for.
        let is_booting = systemd.is_booting().await.unwrap_or(false);
        let jobs_get = if is_booting { Duration::ZERO } else { JOBS };
        let steps: Vec<(usize, &Step)> = work.iter().collect();
        for phase in steps.chunk_by(|(_, a), (_, b)| a.phase() == b.phase()) {
            let deadline = Instant::now() + jobs_get;
            let (mut files, mut changed) = (Vec::new(), BTreeSet::new());
            let mut jobs = Vec::new();
            for &(at, step) in phase {
                match step.write(work.desired) {
                    // Nothing is written: it keeps what it is.
                    None => out.put(at..at + 1, Outcome::Settled { held: step.before().clone() }),
                    Some((key, value)) if key.aspect == Aspect::Active => {
                        let systemd = &systemd;
                        jobs.push(async move { (at, job(systemd, key, value, deadline).await) });
                    }
                    Some((key, value)) => match file(&systemd, key, value).await {
                        Ok(units) => {
                            changed.extend(units);
                            files.push(at);
                        }
                        Err(error) => out.put(at..at + 1, failed(&error)),
                    },
                }
            }
            for (at, outcome) in join_all(jobs).await {
                out.put(at..at + 1, outcome);
            }
            if files.is_empty() {
                continue;
            }
            let read = read_links(&systemd, &changed, is_booting).await;
            for at in files {
                let outcome = match &read {
                    Ok(()) => Outcome::Applied { now: None },
                    Err(error) => failed(error),
                };
                out.put(at..at + 1, outcome);
            }
        }
    }
}

/// Links count only once systemd has read them. The second look shows whether it has.
async fn read_links(
    systemd: &Systemd,
    changed: &BTreeSet<UnitName>,
    is_booting: bool,
) -> Result<(), Error> {
    let _ = systemd.reload().await;
    if is_booting { follow_links(systemd, changed).await } else { Ok(()) }
}

fn failed(error: &Error) -> Outcome<State> {
    match error {
        Error::Silent { .. } | Error::Connection { .. } => {
            Outcome::Unknown { why: error.to_string() }
        }
        error => Outcome::Failed(Failure::soon(error)),
    }
}

/// Enables, disables, masks or unmasks, and returns the units whose links have changed. What was enabled or masked until the
/// next boot only is undone, too.
async fn file(systemd: &Systemd, key: &Key, value: bool) -> Result<BTreeSet<UnitName>, Error> {
    let unit = &key.unit;
    match (key.aspect, value) {
        (Aspect::Enabled, true) => systemd.enable(unit).await,
        (Aspect::Enabled, false) => {
            let changed = systemd.disable(unit, false).await?;
            Ok(&changed | &systemd.disable(unit, true).await?)
        }
        (Aspect::Masked, true) => systemd.mask(unit).await,
        (Aspect::Masked, false) => {
            let changed = systemd.unmask(unit, false).await?;
            Ok(&changed | &systemd.unmask(unit, true).await?)
        }
        (Aspect::Active, _) => Ok(BTreeSet::new()),
    }
}

/// Starts or stops a unit.
async fn job(systemd: &Systemd, key: &Key, value: bool, deadline: Instant) -> Outcome<State> {
    let (kind, word) = if value { (JobKind::Start, "start") } else { (JobKind::Stop, "stop") };
    match systemd.job(kind, &key.unit, deadline).await {
        Ok(Job::Ended(result)) if result == "done" => Outcome::Applied { now: None },
        Ok(Job::Ended(result)) => {
            let error = format!("systemd could not {word} {}: {result}", key.unit);
            let help = format!("`journalctl -u {}` says why", key.unit);
            Outcome::Failed(Failure::new(error, Retry::Soon).with_help(help))
        }
        Ok(Job::Running(number)) => {
            Outcome::Waiting { task: format!("{number} of systemd: {word} {}", key.unit) }
        }
        Err(error) => failed(&error),
    }
}
