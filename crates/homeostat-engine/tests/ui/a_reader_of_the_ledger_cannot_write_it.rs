//! Who only reads the ledger cannot write it.

use homeostat_engine::{Pages, Place};

fn write_as_a_reader(pages: &dyn Pages, place: &Place) {
    let _ = pages.write(place, &[]);
}

fn main() {}
