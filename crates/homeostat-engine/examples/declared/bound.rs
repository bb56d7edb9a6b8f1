//! A target in memory, and what is declared of it. In its place comes your own source.

use homeostat_engine::{Bound, DuplicateKey, LedgerKey, Ownership, Table};
use homeostat_testkit::memory::{Independent, Memory, Target};

pub(crate) type Source = Memory<Independent>;

pub(crate) fn bound(target: &Target) -> Result<Bound<Source>, DuplicateKey> {
    let squares = [("door", "green"), ("window", "blue")];
    let desired = Table::new(squares.map(|(key, value)| (key.to_owned(), value.to_owned())))?;
    let ledger_key = LedgerKey::new("me", "squares", "here");
    Ok(Bound::new(Memory::marked(target.clone()), desired, Ownership::Marked, ledger_key))
}
