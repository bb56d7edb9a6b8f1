//! A small declare a target in memory. In its place comes your own source.

use std::sync::Arc;

use homeostat_engine::{Bound, Config, DuplicateKey, LedgerKey, Ownership, Table};
use homeostat_testkit::memory::{Independent, Memory, Target};

pub(crate) type Source = Memory<Independent>;

pub(crate) fn bound(target: &Target) -> Result<Bound<Source>, DuplicateKey> {
    let squares = [("door", "green"), ("window", "blue")];
    let desired = Table::new(squares.map(|(key, value)| (key.to_owned(), value.to_owned())))?;
    Ok(Bound {
        source: Memory::marked(target.clone()),
        desired: Arc::new(desired),
        ownership: Ownership::Marked,
        config: Config::default(),
        ledger_key: LedgerKey {
            owner: "me".into(),
            source: "squares".into(),
            scope: "here".into(),
            identity: String::new(),
        },
        nothing: None,
    })
}
