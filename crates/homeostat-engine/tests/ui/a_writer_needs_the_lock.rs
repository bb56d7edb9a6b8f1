//! Who has no lock has no writer.

use homeostat_engine::Source;

fn write_without_a_lock<S: Source>(source: &S) {
    let _ = source.writer();
}

fn main() {}
