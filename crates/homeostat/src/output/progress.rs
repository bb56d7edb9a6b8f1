//! How far a long apply has come: a bar on standard error, if that is a terminal.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use homeostat_engine::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::Color;
use crate::output::stream;

/// Fewer steps than this are over before a bar could be read.
const MANY: usize = 10_000;
const TEMPLATE: &str = "{msg} {bar:30} {human_pos} of {human_len}, {eta} left";

/// A bar that shows itself for long lists of steps only, and is wiped away at their end.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
    /// The tasks that were named already.
    tasks: Mutex<BTreeSet<String>>,
}

impl Default for Bar {
    fn default() -> Self {
        Bar { bar: ProgressBar::hidden(), tasks: Mutex::default() }
    }
}

impl Progress for Bar {
    fn begin(&self, source: &str, steps: usize) {
        if steps < MANY {
            return;
        }
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            self.bar.set_style(style);
        }
        self.bar.set_message(source.to_owned());
        self.bar.set_length(steps.try_into().unwrap_or(u64::MAX));
        self.bar.reset();
        self.bar.tick();
    }

    fn advance(&self, steps: usize) {
        self.bar.inc(steps.try_into().unwrap_or(u64::MAX));
    }

    fn end(&self) {
        self.bar.finish_and_clear();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
    }

    fn waits(&self, key: &str, task: &str) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.insert(task.to_owned()) {
            // An error means that standard error is closed.
            let _ = writeln!(stream::stderr(Color::Auto), "Waiting for {key}: task {task}");
        }
    }
}
