//! Writes a journal's file off the caller's thread, so that many callers share one wait for the disk.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::file::JournalFile;
use super::record::Line;
use super::steps::Steps;
use super::{Clock, Millis};

/// No write is made larger than this many lines, so that no caller waits for a very long one.
const MOST: usize = 4096;

/// How a line went. An error is shared: it stands for every line after it, too.
pub(super) type Written = Result<(), Arc<io::Error>>;

/// A line, and who waits for it.
type Handed = (Line, oneshot::Sender<Written>);

/// Takes lines. Dropped, it waits until everything is written.
pub(super) struct Scribe {
    work: Arc<Work>,
}

struct Work {
    tray: Mutex<Tray>,
    emptied: Condvar,
    /// Nothing, once the journal is closed.
    desk: Mutex<Option<Desk>>,
}

/// What waits to be written, and whether somebody sees to it.
#[derive(Default)]
struct Tray {
    lines: Vec<Handed>,
    is_attended: bool,
}

impl Scribe {
    pub(super) fn new(file: JournalFile, steps: Steps, clock: Clock) -> Self {
        let desk = Mutex::new(Some(Desk { file, steps, clock, broken: None }));
        let work = Work { tray: Mutex::default(), emptied: Condvar::new(), desk };
        Scribe { work: Arc::new(work) }
    }

    /// Hands a line over, in order; the answer comes when it is durable. Whoever finds nobody at work sends
    /// somebody, and does not wait for them here; what comes meanwhile goes into the next write.
    pub(super) fn hand(&self, line: Line) -> oneshot::Receiver<Written> {
        let (answer, answered) = oneshot::channel();
        let mut tray = self.work.tray();
        tray.lines.push((line, answer));
        let is_attended = std::mem::replace(&mut tray.is_attended, true);
        drop(tray);
        if !is_attended {
            let shift = Shift(Arc::clone(&self.work));
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(move || drop(shift))),
                Err(_) => drop(shift),
            }
        }
        answered
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
            let (lines, waiting): (Vec<_>, Vec<_>) = handed.into_iter().unzip();
            let closed = || Err(Arc::new(io::Error::other("it is closed")));
            let written = desk.as_mut().map_or_else(closed, |desk| desk.write(&lines));
            for one in waiting {
                // Whoever stopped waiting does not care.
                let _ = one.send(written.clone());
            }
        }
        drop(desk);
        self.emptied.notify_all();
    }

    /// The next lines; nothing, if the tray is empty: then somebody else is sent for the next one.
    fn take(&self) -> Option<Vec<Handed>> {
        let mut tray = self.tray();
        let count = tray.lines.len().min(MOST);
        tray.is_attended = count > 0;
        (count > 0).then(|| tray.lines.drain(..count).collect())
    }
}

struct Desk {
    file: JournalFile,
    /// The sum of what is durable. Callers see a newer one, with lines that are still on their way.
    steps: Steps,
    clock: Clock,
    /// After a failed write nobody knows what the file holds: nothing is written before it is opened anew.
    broken: Option<Arc<io::Error>>,
}

impl Desk {
    fn write(&mut self, lines: &[Line]) -> Written {
        if let Some(broken) = &self.broken {
            return Err(Arc::clone(broken));
        }
        self.file.append(lines).map_err(|error| self.give_up(error))?;
        for line in lines {
            if let Line::Record(record) = line {
                // Whoever handed it over has checked it.
                let _ = self.steps.add(record);
            }
        }
        self.tidy((self.clock)());
        Ok(())
    }

    /// A file that cannot be made smaller may be half put in place: nothing more is written to it.
    fn tidy(&mut self, now: Millis) {
        if let Err(error) = self.file.compact(&mut self.steps, now) {
            self.give_up(error);
        }
    }

    fn give_up(&mut self, error: io::Error) -> Arc<io::Error> {
        let error = Arc::new(error);
        self.broken = Some(Arc::clone(&error));
        error
    }
}
