//! Adds lines up and writes them off the caller's thread, so that many callers share one wait for the disk.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::Clock;
use super::file::{JournalFile, Renewed};
use super::flat::{Flat, Text};
use super::known::Illegal;
use super::line::write;
use super::record::{Fact, Record, StepId};
use super::steps::Steps;

/// How a line went. An error is shared by all lines of one write.
pub(super) type Written = Result<(), Arc<io::Error>>;

/// A line on its way to the disk.
pub(super) type Pending = (StepId, oneshot::Receiver<Written>);

/// Takes lines. Dropped, it waits until everything is written.
pub(super) struct Scribe {
    work: Arc<Work>,
}

struct Work {
    tray: Mutex<Tray>,
    emptied: Condvar,
    /// Nothing, once the journal is closed.
    desk: Mutex<Option<Desk>>,
    clock: Clock,
}

/// The sum of all lines, with those that wait to be written, and whether somebody sees to these.
struct Tray {
    steps: Steps,
    /// The last id that was given out.
    newest: StepId,
    handed: Handed,
    is_attended: bool,
    writes: u64,
}

/// Lines, and who waits for them.
#[derive(Default)]
struct Handed {
    lines: Vec<u8>,
    waiting: Vec<oneshot::Sender<Written>>,
    /// Steps that the lines begin.
    begun: Vec<StepId>,
}

impl Scribe {
    pub(super) fn new(file: JournalFile, steps: Steps, clock: Clock) -> Self {
        let newest = StepId { epoch: file.epoch(), sequence: 0 };
        let handed = Handed::default();
        let tray = Mutex::new(Tray { steps, newest, handed, is_attended: false, writes: 0 });
        let desk = Mutex::new(Some(Desk { file, broken: None }));
        let work = Work { tray, emptied: Condvar::new(), desk, clock };
        Scribe { work: Arc::new(work) }
    }

    /// Hands a line over, in order; the answer comes when it is durable. Whoever finds nobody at work sends
    /// somebody, and does not wait for them here; what comes meanwhile goes into the next write.
    pub(super) fn hand(&self, id: Option<StepId>, fact: Fact) -> Result<Pending, Illegal> {
        let mut tray = self.work.tray();
        // Told under the lock, so that the order of lines is that of their times.
        let at = (self.work.clock)();
        let next = StepId { sequence: tray.newest.sequence + 1, ..tray.newest };
        let record = Record { id: id.unwrap_or(next), at, fact };
        let answered = tray.put(&record)?;
        tray.newest = if id.is_none() { next } else { tray.newest };
        let is_attended = std::mem::replace(&mut tray.is_attended, true);
        drop(tray);
        if !is_attended {
            let shift = Shift(Arc::clone(&self.work));
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(move || drop(shift))),
                Err(_) => drop(shift),
            }
        }
        Ok((record.id, answered))
    }

    /// The sum of all lines, also of those on their way.
    pub(super) fn with_steps<T>(&self, what: impl FnOnce(&Steps) -> T) -> T {
        what(&self.work.tray().steps)
    }

    /// How many waits for the disk there were.
    pub(super) fn writes(&self) -> u64 {
        self.work.tray().writes
    }
}

impl Tray {
    /// Adds a line to the sum and to what is to be written, or to neither.
    fn put(&mut self, record: &Record) -> Result<oneshot::Receiver<Written>, Illegal> {
        let (answer, answered) = oneshot::channel();
        let after = match &record.fact {
            Fact::Intent(intent) => self.steps.last_task(&intent.subject).map(str::to_owned),
            Fact::Dispatched { .. } | Fact::Ended(_) => None,
        };
        let lines = &mut self.handed.lines;
        let start = lines.len();
        let mut flat = Flat::from(record);
        flat.after = after.as_deref().map(Text::of);
        if let Err(error) = write(&flat, lines) {
            lines.truncate(start);
            // Who asked waits for it below.
            let _ = answer.send(Err(Arc::new(error.into())));
            return Ok(answered);
        }
        if let Err(illegal) = self.steps.add(&flat, lines.get(start..).unwrap_or_default()) {
            lines.truncate(start);
            return Err(illegal);
        }
        self.handed.waiting.push(answer);
        if matches!(record.fact, Fact::Intent(_)) {
            self.handed.begun.push(record.id);
        }
        Ok(answered)
    }
}

/// Whoever was sent to write. A runtime that shuts down drops what it has not begun: the lines are written
/// then, too, or nobody would ever be sent again.
struct Shift(Arc<Work>);

impl Drop for Shift {
    fn drop(&mut self) {
        self.0.attend();
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        let mut tray = self.work.tray();
        while tray.is_attended {
            tray = self.work.emptied.wait(tray).unwrap_or_else(PoisonError::into_inner);
        }
        drop(tray);
        // The last one who attended may still hold the work, but no longer the file.
        drop(self.work.desk().take());
    }
}

impl Work {
    fn tray(&self) -> MutexGuard<'_, Tray> {
        self.tray.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn desk(&self) -> MutexGuard<'_, Option<Desk>> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attend(&self) {
        let mut desk = self.desk();
        while let Some(handed) = self.take() {
            let closed = || Err(Arc::new(io::Error::other("it is closed")));
            let written = desk.as_mut().map_or_else(closed, |desk| match desk.broken {
                Some(_) => self.mend(desk),
                None => desk.write(&handed.lines),
            });
            self.answer(handed, &written);
            if let Some(desk) = desk.as_mut().filter(|desk| desk.is_outgrown()) {
                self.renew(desk);
            }
        }
        drop(desk);
        self.emptied.notify_all();
    }

    /// The next lines; nothing, if the tray is empty: then somebody else is sent for the next one.
    fn take(&self) -> Option<Handed> {
        let mut tray = self.tray();
        tray.is_attended = !tray.handed.waiting.is_empty();
        tray.writes += u64::from(tray.is_attended);
        tray.is_attended.then(|| std::mem::take(&mut tray.handed))
    }

    /// Makes the file anew. The sum has the lines in the tray too, so they are written with it.
    fn renew(&self, desk: &mut Desk) {
        let mut tray = self.tray();
        let needed = tray.steps.needed((self.clock)());
        let handed = std::mem::take(&mut tray.handed);
        drop(tray);
        let written = match desk.file.renew(&needed) {
            Ok(Renewed::Yes) => {
                self.tray().steps.forget(needed);
                Ok(())
            }
            Ok(Renewed::No(_)) => desk.write(&handed.lines),
            Err(error) => Err(desk.give_up(error)),
        };
        self.answer(handed, &written);
    }

    /// Nobody sends a step whose first line was not written: it is as if it had never been begun.
    fn answer(&self, handed: Handed, written: &Written) {
        if written.is_err() {
            let mut tray = self.tray();
            handed.begun.iter().for_each(|id| tray.steps.retract(*id));
        }
        for one in handed.waiting {
            // Whoever stopped waiting does not care.
            let _ = one.send(written.clone());
        }
    }

    /// After a failed write nobody knows what the file holds, but what it should hold is known: the sum, in
    /// which the lines that are to be written are, too, and those that told of steps and failed.
    fn mend(&self, desk: &mut Desk) -> Written {
        let needed = self.tray().steps.needed((self.clock)());
        match desk.file.renew(&needed) {
            Ok(Renewed::Yes) => {
                desk.broken = None;
                self.tray().steps.forget(needed);
                Ok(())
            }
            Ok(Renewed::No(error)) | Err(error) => Err(desk.give_up(error)),
        }
    }
}

struct Desk {
    file: JournalFile,
    /// After a failed write nobody knows what the file holds: nothing is added to it before it was made anew.
    broken: Option<Arc<io::Error>>,
}

impl Desk {
    fn write(&mut self, lines: &[u8]) -> Written {
        self.file.append(lines).map_err(|error| self.give_up(error))
    }

    fn is_outgrown(&self) -> bool {
        self.broken.is_none() && self.file.is_outgrown()
    }

    fn give_up(&mut self, error: io::Error) -> Arc<io::Error> {
        let error = Arc::new(error);
        self.broken = Some(Arc::clone(&error));
        error
    }
}
