//! What plans and reports contain, as lines that a test compares.

use homeostat_engine::{Entry, Explain, Kind};

/// Every entry of a plan or a report in the words of a test, changes first.
pub fn entry_lines(explain: &dyn Explain, mut line: impl FnMut(Entry) -> String) -> Vec<String> {
    let kinds = [
        Kind::Change,
        Kind::Applied,
        Kind::Failed,
        Kind::Pending,
        Kind::Conflict,
        Kind::Settled,
        Kind::Matched,
        Kind::Unknown,
        Kind::Held,
    ];
    let mut lines = Vec::new();
    for kind in kinds {
        explain.explain(kind, &mut |entry| lines.push(line(entry)));
    }
    lines
}
