//! There is no default for what is ours.

use std::sync::Arc;

use homeostat_engine::{Config, Focus, Ownership, PassInput, Source};

fn leave_it_out<'a, S: Source>(
    source: &'a S,
    desired: Arc<S::Desired>,
    config: &'a Config<S::Key>,
) {
    let _ = PassInput { source, desired, focus: Focus::All, config };
}

fn main() {
    let _ = Ownership::default();
}
