//! To be alone must be said in words.

use homeostat_engine::Alone;

fn main() {
    let _ = Alone(());
}
