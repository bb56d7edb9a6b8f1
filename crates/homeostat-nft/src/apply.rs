//! The only writer: all steps as one transaction, under the generation that was observed. A table that the kernel
//! refuses to change is deleted and created in that transaction; if that is refused, too, the transaction goes without
//! it. Tables that cannot be carried as bytes are loaded whole afterwards, each by one transaction of `nft` itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use homeostat_core::{Action, Failure, Outcome, Outcomes, Retry, Snapshot, Work};
use homeostat_netlink::uapi::NLM_F_ECHO;
use homeostat_netlink::{Batch, Connection, Errno, Family, Port, Refusal, Transacted};

use crate::dump::{self, Generation, Head};
use crate::echo::{self, Echoes};
use crate::encode::Encoder;
use crate::error::{Error, NO_PERMISSION};
use crate::key::Key;
use crate::model::Script;
use crate::object::Object;
use crate::program::{NftProcess, not_started, run_on_thread};
use crate::source::Nft;
use crate::step::{GiveBack, Step};

pub struct Writer {
    source: Nft,
    connection: Mutex<Connection>,
}

/// How often a transaction is sent again because another program has committed since the look. The last time it is
/// sent without a generation.
const TRIES: u32 = 4;

/// Which op of which step each message belongs to.
type Places = Vec<(usize, usize)>;

impl Writer {
    pub(crate) fn open(source: Nft) -> Result<Self, Error> {
        let connection = source.connect(Family::Netfilter)?;
        source.own_ports.add(connection.socket().port());
        Ok(Writer { source, connection: Mutex::new(connection) })
    }

    fn write(&self, steps: &[Step], failed: &Failed) -> Result<(Batch, Places), (usize, Failure)> {
        let (mut batch, mut places, mut last_id) = (Batch::new(), Places::new(), 0);
        let is_carried =
            |(at, step): &(usize, &Step)| step.script().is_none() && !failed.contains_key(at);
        for (at, step) in steps.iter().enumerate().filter(is_carried) {
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

    /// Commits, and says for each step whether the kernel's echo shows that it is done.
    fn commit(
        &self,
        generation: Generation,
        steps: &[Step],
        batch: &Batch,
        places: &Places,
    ) -> Result<(Transacted, Vec<bool>), Error> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let mut echoes: Vec<Echoes> = steps.iter().map(|_| Echoes::default()).collect();
        let mut send = |connection: &mut Connection, generation| {
            connection.transact_with_echo(batch, generation, &mut |at, message| {
                let place = at.and_then(|at| places.get(at).copied());
                let place = place.or_else(|| echo::about(steps, &message));
                if let Some((step, op)) = place
                    && let Some(echoes) = echoes.get_mut(step)
                {
                    echoes.record(op, &message);
                }
            })
        };
        let mut transacted = send(&mut connection, Some(generation))?;
        let is_as_observed = !is_stale(&transacted);
        for nth in 1..=TRIES {
            if !is_stale(&transacted) {
                break;
            }
            let generation = dump::generation(&mut connection)?;
            if !are_there(&dump::heads(&mut connection)?, steps) {
                break;
            }
            transacted = send(&mut connection, (nth < TRIES).then_some(generation))?;
        }
        if transacted != Transacted::Done {
            self.source.refused.fetch_add(1, Ordering::Relaxed);
        }
        // Under another generation another program may have changed what the step did not touch.
        let shown = echoes.iter().zip(steps);
        let shown = shown.map(|(echoes, step)| is_as_observed && echoes.confirm(step)).collect();
        Ok((transacted, shown))
    }
}

fn is_stale(transacted: &Transacted) -> bool {
    matches!(transacted, Transacted::Refused { refusal, .. } if refusal.errno == STALE)
}

/// Whether the tables of the steps are still those that were seen. If so, a commit since then does no harm: a
/// transaction names rules by their handles and creates only what is not there, so that it is refused as a whole where
/// it does not fit, and what it did not touch is seen by the second look.
fn are_there(heads: &[Head], steps: &[Step]) -> bool {
    steps.iter().all(|step| {
        let head = heads.iter().find(|head| head.key == step.key);
        head.map(|head| head.handle) == step.seen.as_ref().map(|seen| seen.handle)
    })
}

impl Drop for Writer {
    fn drop(&mut self) {
        let connection = self.connection.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.source.own_ports.remove(connection.socket().port());
    }
}

/// ERESTART: the ruleset has another generation than the one that was observed.
const STALE: Errno = Errno::from_raw_os_error(85);

/// Why steps were left out of a transaction, by their places.
type Failed = BTreeMap<usize, Failure>;

impl homeostat_core::Writer<Nft> for Writer {
    async fn apply(&self, work: Work<'_, Nft>, out: &dyn Outcomes<Object>) {
        let mut steps = Cow::Borrowed(work.steps);
        let mut failed = Failed::new();
        let committed = loop {
            let (batch, places) = match self.write(&steps, &failed) {
                Ok(written) => written,
                Err((at, failure)) => {
                    failed.insert(at, failure);
                    continue;
                }
            };
            if places.is_empty() {
                break Ok(Vec::new());
            }
            let generation = work.moment.generation;
            let (place, refusal) = match self.commit(generation, &steps, &batch, &places) {
                Ok((Transacted::Done, confirmed)) => break Ok(confirmed),
                Ok((Transacted::Unknown, _)) => {
                    let why = "the kernel's answer was lost".to_owned();
                    break Err(Outcome::Unknown { why });
                }
                Ok((Transacted::Refused { place, refusal }, _)) => (place, refusal),
                Err(error) => break Err(Outcome::Failed(error.into())),
            };
            let place = place.and_then(|place| places.get(place)).copied();
            let failure = refused(&steps, place, &refusal);
            // Only what one table is refused for says nothing about the others.
            let Some((at, _)) = place.filter(|_| refusal.errno != Errno::PERM) else {
                break Err(Outcome::Failed(failure));
            };
            let is_moved = [Errno::NOENT, Errno::EXIST].contains(&refusal.errno);
            match steps.get(at).and_then(Step::recreated).filter(|_| !is_moved) {
                Some(step) => {
                    if let Some(refused) = steps.to_mut().get_mut(at) {
                        *refused = step;
                    }
                }
                None => _ = failed.insert(at, failure),
            }
        };
        for (at, step) in steps.iter().enumerate() {
            let outcome = match (failed.remove(&at), step.script(), &committed) {
                (Some(failure), ..) => Outcome::Failed(failure),
                // It stays as it was seen, and only the ledger forgets it.
                (None, None, Ok(_)) if matches!(step.gives_back, Some(GiveBack::AsItIs)) => {
                    match step.seen.clone().map(Object::seen) {
                        Some(held) => Outcome::Settled { held },
                        None => Outcome::Applied { now: None },
                    }
                }
                (None, Some(script), Ok(_)) => load_whole(&self.source, step, script).await,
                // What the kernel's echo has not confirmed is looked at again.
                (None, None, Ok(confirmed)) => {
                    let is_confirmed = confirmed.get(at).copied().unwrap_or_default();
                    let desired = step.desired.as_ref().filter(|_| is_confirmed);
                    Outcome::Applied { now: desired.map(|table| Object::seen(Arc::clone(table))) }
                }
                (None, _, Err(outcome)) => outcome.clone(),
            };
            out.put(work.first + at..work.first + at + 1, outcome);
        }
    }

    async fn restore(&self, key: &Key, listing: &Snapshot) -> Outcome<Object> {
        self.load_listed(key, &listing.0).await
    }
}

impl Writer {
    /// Loads a table of ours as it was listed, in the place of the one that a pass has made again.
    async fn load_listed(&self, key: &Key, listing: &str) -> Outcome<Object> {
        let heads = {
            let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
            dump::heads(&mut connection)
        };
        let heads = match heads {
            Ok(heads) => heads,
            Err(error) => return Outcome::Failed(error.into()),
        };
        let is_ours = |head: &&Head| {
            head.key == *key && head.comment.mark.as_ref() == Some(&self.source.mark)
        };
        let Some(head) = heads.iter().find(is_ours) else {
            return Outcome::Failed(Failure::new("no table of ours is there", Retry::Soon));
        };
        let text = format!("delete table {} handle {}\n{listing}", key.family, head.handle.0);
        load(&self.source, key, "nft".into(), text).await
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
        Errno::PERM | Errno::ACCESS => failure = failure.with_help(NO_PERMISSION),
        _ => {}
    }
    failure
}

async fn load_whole(source: &Nft, step: &Step, script: &Script) -> Outcome<Object> {
    let text = format!("{}{}", delete_or_create(step, script), script.text);
    load(source, &step.key, script.program.clone(), text).await
}

async fn load(source: &Nft, key: &Key, program: OsString, text: String) -> Outcome<Object> {
    let source = source.clone();
    match run_on_thread(move || source.run(|| run(&source, &program, &text))).await {
        Ok(Ok(ran)) => outcome(key, ran),
        Ok(Err(error)) => Outcome::Failed(not_started(&error)),
        Err(error) => Outcome::Failed(not_started(&error)),
    }
}

fn outcome(key: &Key, ran: io::Result<Output>) -> Outcome<Object> {
    let ran = match ran {
        Ok(ran) => ran,
        // The next look shows whether it had committed by then.
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            return Outcome::Unknown { why: format!("`nft` was stopped: {error}") };
        }
        Err(error) => return Outcome::Failed(not_started(&error)),
    };
    if ran.status.success() {
        return Outcome::Applied { now: None };
    }
    let words = String::from_utf8_lossy(&ran.stderr);
    let words = words.lines().next().unwrap_or("refused without a word");
    Outcome::Failed(Failure::new(format!("{key}: {words}"), Retry::Soon))
}

fn run(source: &Nft, program: &OsStr, text: &str) -> io::Result<Output> {
    let running = NftProcess::start(program, Path::new("/"), &["-f", "-"])?;
    // The port of a program's first socket is its process id, and its commit is ours.
    source.own_ports.add_child(Port(running.id()));
    running.finish(text)
}

/// Deletes the former table, by its handle: one that took its name meanwhile is not ours. Where there was none,
/// `create table` is refused if there is one now.
///
/// Quirk `create-makes-only-the-table` (nft 1.0.6): of a block after `create table` only flags and comment
/// are made, and the comment cannot be added later.
fn delete_or_create(step: &Step, script: &Script) -> String {
    match &step.seen {
        Some(seen) if step.action != Action::Create => {
            format!("delete table {} handle {}\n", step.key.family, seen.handle.0)
        }
        _ => {
            let head: Vec<&str> = script.text.lines().take(2).collect();
            format!("create {}\n}}\n", head.join("\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_stopped_may_have_done_it() {
        let key: Key = "table ip a".parse().unwrap();
        let late = io::Error::new(ErrorKind::TimedOut, "it did not end within 60s");
        let Outcome::Unknown { why } = outcome(&key, Err(late)) else { panic!("unknown") };
        assert_eq!(why, "`nft` was stopped: it did not end within 60s");
        let gone = outcome(&key, Err(io::Error::from(ErrorKind::NotFound)));
        let Outcome::Failed(failure) = gone else { panic!("failed") };
        assert!(failure.error.starts_with("`nft` cannot be started: "), "{}", failure.error);
    }
}
