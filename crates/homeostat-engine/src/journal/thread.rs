//! The one thread that writes a journal's file, so that many callers share one wait for the disk.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, spawn};

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

/// Hands lines to the thread. Dropped, it waits until everything is written.
pub(super) struct Scribe {
    lines: Option<Sender<Handed>>,
    thread: Option<JoinHandle<()>>,
}

impl Scribe {
    pub(super) fn start(file: JournalFile, steps: Steps, clock: Clock) -> Self {
        let (lines, handed) = channel();
        let thread = spawn(move || Desk { file, steps, clock, broken: None }.work(&handed));
        Scribe { lines: Some(lines), thread: Some(thread) }
    }

    /// Hands a line over, in order; the answer comes when it is durable.
    pub(super) fn hand(&self, line: Line) -> oneshot::Receiver<Written> {
        let (answer, answered) = oneshot::channel();
        if let Some(lines) = &self.lines {
            // A thread that is gone drops the line, and with it the one who would answer.
            let _ = lines.send((line, answer));
        }
        answered
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
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
    fn work(mut self, handed: &Receiver<Handed>) {
        while let Ok(first) = handed.recv() {
            let more = handed.try_iter().take(MOST - 1);
            let (lines, waiting): (Vec<_>, Vec<_>) = std::iter::once(first).chain(more).unzip();
            let written = self.write(&lines);
            for one in waiting {
                // Whoever stopped waiting does not care.
                let _ = one.send(written.clone());
            }
            if written.is_ok() {
                self.tidy((self.clock)());
            }
        }
    }

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
