//! How far a long apply has come: a bar on standard error, if that is a terminal.

use homeostat_engine::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Fewer steps than this are over before anybody could read a bar.
const MANY: usize = 10_000;
const TEMPLATE: &str = "{msg} {bar:30} {human_pos} of {human_len}, {eta} left";

/// A bar that shows itself for long lists of steps only, and is wiped away at their end.
#[derive(Debug)]
pub(crate) struct Bar(ProgressBar);

impl Default for Bar {
    fn default() -> Self {
        Bar(ProgressBar::hidden())
    }
}

impl Progress for Bar {
    fn begin(&self, source: &str, steps: usize) {
        if steps < MANY {
            return;
        }
        self.0.set_draw_target(ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            self.0.set_style(style);
        }
        self.0.set_message(source.to_owned());
        self.0.set_length(steps.try_into().unwrap_or(u64::MAX));
        self.0.reset();
        self.0.tick();
    }

    fn advance(&self, steps: usize) {
        self.0.inc(steps.try_into().unwrap_or(u64::MAX));
    }

    fn end(&self) {
        self.0.finish_and_clear();
        self.0.set_draw_target(ProgressDrawTarget::hidden());
    }
}
