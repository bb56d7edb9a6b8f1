//! A lock is held by something.

use homeostat_engine::ScopeLock;

fn main() {
    let _: ScopeLock = Default::default();
}
