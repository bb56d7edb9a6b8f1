//! Who only reads the ledger cannot write it.

use homeostat_engine::{LedgerKey, Pages};

fn write_as_a_reader(pages: &dyn Pages, place: &LedgerKey) {
    let _ = pages.write(place, &[]);
}

fn main() {}
