//! Who only reads the ledger cannot write it.

use homeostat_engine::{Pages, LedgerKey};

fn write_as_a_reader(pages: &dyn Pages, place: &LedgerKey) {
    let _ = pages.write(place, &[]);
}

fn main() {}
