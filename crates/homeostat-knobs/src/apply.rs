//! The only writer: writes, reads back in the same step, and returns the outcome.

use std::io;

use homeostat_core::{Failure, Outcome, Outcomes, Retry, Snapshot, Work};
use rustix::io::Errno;

use crate::absence::Absence;
use crate::coupled::{Coupled, caused, coupled_with};
use crate::coupling::rewrites;
use crate::key::Key;
use crate::knob_file::KnobFile;
use crate::model::Value;
use crate::observe::{Look, find_file, look};
use crate::plan::Step;
use crate::source::Knobs;
use crate::sysfs;

#[derive(Debug)]
pub struct Writer {
    pub(crate) knobs: Knobs,
}

impl Writer {
    /// Runs all steps, then looks once more at each: a later step may have undone an earlier one.
    fn run(&self, work: &Work<'_, Knobs>) -> Vec<Outcome<Value>> {
        let outcomes: Vec<_> = work.steps.iter().map(|step| self.step(work, step)).collect();
        let again = work.steps.iter().zip(outcomes).map(|(step, outcome)| match step {
            Step::Set { slot, .. }
                if outcome.is_good()
                    && let Look::Holds { value: now, .. } =
                        look(&self.knobs, work.desired.at(*slot).0) =>
            {
                match outcome {
                    Outcome::Settled { held } if held == now => Outcome::Settled { held },
                    _ => Outcome::Applied { now: Some(now) },
                }
            }
            _ => outcome,
        });
        again.collect()
    }

    fn step(&self, work: &Work<'_, Knobs>, step: &Step) -> Outcome<Value> {
        match step {
            Step::Set { slot, before, .. } => {
                let (key, wanted) = work.desired.at(*slot);
                self.write_until_settled(work, key, before, &wanted.value)
            }
            Step::Release { key, before, coupled, .. } => match step.restores() {
                Some(value) => {
                    let held = coupled_with(&self.knobs, key);
                    let outcome = self.write_until_settled(work, key, before, &value);
                    self.put_back(work, key, before, coupled, &held);
                    outcome
                }
                // Nothing is written: it keeps what it holds, whatever its original was.
                None => Outcome::Settled { held: before.clone() },
            },
        }
    }

    /// Puts back what the kernel rewrites along with a released knob: what it held before the knob was claimed or, if
    /// another program has written it since, what it held just now.
    fn put_back(
        &self,
        work: &Work<'_, Knobs>,
        general: &Key,
        before: &Value,
        recorded: &Coupled,
        held: &Coupled,
    ) {
        for (key, held) in &held.values {
            let original = recorded.values.get(key);
            let is_caused = caused(general, before, key).agrees(key, held);
            let value = original.filter(|_| is_caused).unwrap_or(held);
            let is_declared = work.desired.wanted(key).is_some();
            let is_there = || matches!(look(&self.knobs, key), Look::Holds { value: now, .. } if now == *value);
            // A value that cannot be restored stays as the kernel left it.
            if !is_declared && !is_there() {
                let _ = self.write_and_read(key, value);
            }
        }
    }

    /// Puts back what the kernel has rewritten in a trial, also where a link has another name by now.
    fn put_back_all(&self, coupled: &Coupled) -> Outcome<Value> {
        let mut outcome = Outcome::Applied { now: None };
        for (key, value) in coupled.by_present_names() {
            let differs =
                matches!(look(&self.knobs, &key), Look::Holds { value: now, .. } if now != value);
            if differs && let Err(refused) = self.write_and_read(&key, &value) {
                outcome = refused;
            }
        }
        outcome
    }

    fn write_until_settled(
        &self,
        work: &Work<'_, Knobs>,
        key: &Key,
        before: &Value,
        value: &Value,
    ) -> Outcome<Value> {
        let first = match self.write_and_read(key, value) {
            Ok(held) if value.agrees(key, &held) => return Outcome::Applied { now: Some(held) },
            Ok(held) => held,
            Err(outcome) => return outcome,
        };
        match self.write_and_read(key, value) {
            Ok(second) => {
                let may_be_others =
                    is_coupled(work, key) || may_be_rewritten_by_others(before, value, &second);
                judge(key, value, &first, second, may_be_others)
            }
            // The first write went through: the record of it must stand.
            Err(Outcome::Failed(failure)) => Outcome::Unknown { why: failure.error },
            Err(outcome) => outcome,
        }
    }

    fn write_and_read(&self, key: &Key, value: &Value) -> Result<Value, Outcome<Value>> {
        let file = self.find(key)?;
        for (at, line) in value.writes(key).into_iter().enumerate() {
            file.write(line).map_err(|error| match self.refusal(key, line, &error) {
                Outcome::Failed(failure) if at > 0 => {
                    Outcome::Unknown { why: format!("written in part: {failure}") }
                }
                outcome => outcome,
            })?;
        }
        match look(&self.knobs, key) {
            Look::Holds { value, .. } => Ok(value),
            Look::Absent(absence) => Err(gone(key, &absence)),
            Look::Unknown(why) => Err(Outcome::Unknown { why }),
        }
    }

    fn find(&self, key: &Key) -> Result<KnobFile, Outcome<Value>> {
        let found = find_file(&self.knobs, key).map_err(|error| {
            let error = format!("it could not be opened: {error}");
            Outcome::Failed(Failure::new(error, Retry::Soon))
        })?;
        found.map_err(|absence| gone(key, &absence))
    }

    /// What a failed write means. A knob may have gone with its link or group since it was found.
    fn refusal(&self, key: &Key, value: &str, error: &io::Error) -> Outcome<Value> {
        match (errno(error), self.find(key)) {
            (Some(Errno::NOENT | Errno::NODEV), Err(gone)) => gone,
            (_, file) => {
                let refused = refused(key, value, error);
                let text = file.ok().filter(|_| matches!(key, Key::Sysfs(_)));
                let text = text.and_then(|file| file.read().ok()).unwrap_or_default();
                Outcome::Failed(match sysfs::choices(&text) {
                    Some(choices) if !choices.contains(&value) => {
                        refused.with_help(format!("the kernel offers {}", choices.join(", ")))
                    }
                    _ => refused,
                })
            }
        }
    }
}

impl homeostat_core::Writer<Knobs> for Writer {
    async fn apply(&self, work: Work<'_, Knobs>, out: &dyn Outcomes<Value>) {
        match self.knobs.run(|| self.run(&work)) {
            Ok(outcomes) => {
                for (at, outcome) in (work.first..).zip(outcomes) {
                    out.put(at..at + 1, outcome);
                }
            }
            Err(failure) => {
                out.put(work.first..work.first + work.steps.len(), Outcome::Failed(failure));
            }
        }
    }

    async fn restore(&self, _key: &Key, snapshot: &Snapshot) -> Outcome<Value> {
        let coupled = Coupled::parse(snapshot);
        let restored = self.knobs.run(|| self.put_back_all(&coupled));
        restored.unwrap_or_else(Outcome::Failed)
    }
}

fn gone(key: &Key, absence: &Absence) -> Outcome<Value> {
    match absence.waits_on() {
        Some(on) => Outcome::Pending { on },
        None => Outcome::Failed(absence.failure(key)),
    }
}

/// Judges what a knob held after each of two equal writes. The same other value twice is how the kernel rounds or
/// rewrites the declared one, unless something else may have written it. The engine looks at everything else again.
fn judge(
    key: &Key,
    value: &Value,
    first: &Value,
    second: Value,
    may_be_others: bool,
) -> Outcome<Value> {
    if !value.agrees(key, &second) && *first == second && !may_be_others {
        return Outcome::Settled { held: second };
    }
    Outcome::Applied { now: Some(second) }
}

/// Whether another declared knob that exists may be what keeps this one from its value.
fn is_coupled(work: &Work<'_, Knobs>, key: &Key) -> bool {
    work.desired.iter().any(|(other, _)| {
        !work.moment.absent.contains_key(other) && (rewrites(other, key) || rewrites(key, other))
    })
}

/// Whether a third writer may have put back what was there. A value that is far from the declared one is
/// no rounding of it; one that is cut or filled up is.
fn may_be_rewritten_by_others(before: &Value, wanted: &Value, held: &Value) -> bool {
    held == before && !is_rewriting(wanted.as_str(), held.as_str())
}

fn is_rewriting(wanted: &str, held: &str) -> bool {
    let (wanted, held): (Vec<_>, Vec<_>) = (wanted.split(' ').collect(), held.split(' ').collect());
    if wanted.len() != held.len() {
        return wanted.starts_with(&held) || held.starts_with(&wanted);
    }
    wanted.iter().zip(&held).all(|(one, other)| one == other || is_rounding(one, other))
}

/// Jiffies and pages: ten at least, a twentieth at most. Switches are never rounded.
fn is_rounding(one: &str, other: &str) -> bool {
    let (Ok(one), Ok(other)) = (one.parse::<i64>(), other.parse::<i64>()) else { return false };
    let largest = one.unsigned_abs().max(other.unsigned_abs());
    largest > 2 && one.abs_diff(other) <= (largest / 20).max(10)
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

/// The kernel's refusal in words, with the way out.
fn refused(key: &Key, value: &str, error: &io::Error) -> Failure {
    let refused_write = |help| {
        let text = format!("the kernel refused the write: {error}");
        Failure::new(text, Retry::Never).with_help(help)
    };
    match errno(error) {
        Some(Errno::ACCESS | Errno::PERM) if key.is_host_wide() => refused_write("run it as root"),
        Some(Errno::ACCESS | Errno::PERM) => {
            refused_write("run it as root or with CAP_NET_ADMIN, or try it in a sandbox")
        }
        Some(Errno::ROFS) => refused_write("it is mounted read-only here, as in most containers"),
        Some(Errno::INVAL | Errno::RANGE | Errno::DOM | Errno::NOENT | Errno::OPNOTSUPP) => {
            let text = format!("the kernel refused the value `{value}`: {error}");
            Failure::new(text, Retry::OnChange)
        }
        _ => Failure::new(format!("`{value}` could not be written: {error}"), Retry::Soon),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forward() -> Key {
        Key::sysctl("net.ipv4.ip_forward").unwrap()
    }

    #[test]
    fn only_the_same_other_value_twice_is_settled() {
        let key = forward();
        let value = |text: &str| Value::of(&key, text);
        let judged = |first: &str, second: &str, may_be_others: bool| {
            judge(&key, &value("7"), &value(first), value(second), may_be_others)
        };
        assert_eq!(judged("8", "8", false), Outcome::Settled { held: value("8") });
        assert_eq!(judged("8", "9", false), Outcome::Applied { now: Some(value("9")) });
        assert_eq!(judged("8", "7", false), Outcome::Applied { now: Some(value("7")) });
        assert_eq!(judged("8", "8", true), Outcome::Applied { now: Some(value("8")) });
    }

    #[test]
    fn what_was_there_before_is_settled_only_if_it_may_be_the_desired_state_rewritten() {
        for (before, wanted, held, is_rivals) in [
            ("0", "1", "0", true),
            ("5", "60", "5", true),
            ("cubic", "reno", "cubic", true),
            ("8", "7", "8", false),
            ("1236", "1234", "1236", false),
            ("1", "1 9 9", "1", false),
            ("8192 32768 4", "8192 32768", "8192 32768 4", false),
            ("0", "7", "8", false),
        ] {
            let value = |text: &str| Value::of(&forward(), text);
            let verdict = may_be_rewritten_by_others(&value(before), &value(wanted), &value(held));
            assert_eq!(verdict, is_rivals, "{before}: {wanted} -> {held}");
        }
    }

    #[test]
    fn a_refusal_says_when_another_try_makes_sense() {
        for (errno, retry, has_help) in [
            (Errno::ACCESS, Retry::Never, true),
            (Errno::PERM, Retry::Never, true),
            (Errno::ROFS, Retry::Never, true),
            (Errno::INVAL, Retry::OnChange, false),
            (Errno::NOENT, Retry::OnChange, false),
            (Errno::BUSY, Retry::Soon, false),
            (Errno::NOMEM, Retry::Soon, false),
        ] {
            let failure = refused(&forward(), "300", &errno.into());
            assert_eq!((failure.retry, failure.help.is_some()), (retry, has_help), "{errno:?}");
        }
        let host = Key::sysctl("vm.swappiness").unwrap();
        let help = refused(&host, "1", &Errno::ACCESS.into()).help.unwrap();
        assert!(!help.contains("sandbox"), "a sandbox has no host-wide knobs");
    }
}
