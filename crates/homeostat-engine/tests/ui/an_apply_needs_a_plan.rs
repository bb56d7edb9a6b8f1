//! What was not planned cannot be applied.

use homeostat_engine::{LedgerPage, Observer, PassInput, Source, apply};

async fn apply_nothing<S: Source>(
    input: &PassInput<'_, S>,
    observer: &mut Observer<S>,
    writer: &S::Writer,
    ledger_page: &mut LedgerPage<S>,
) {
    let _ = apply(input, observer, writer, ledger_page).await;
}

fn main() {}
