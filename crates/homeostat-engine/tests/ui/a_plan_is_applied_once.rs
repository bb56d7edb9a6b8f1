//! A plan is used up by its apply.

use homeostat_engine::{LedgerPage, Observer, PassInput, Plan, Source, apply};

async fn apply_twice<S: Source>(
    input: &PassInput<'_, S>,
    observer: &mut Observer<S>,
    writer: &S::Writer,
    ledger_page: &mut LedgerPage<S>,
    plan: Plan<S>,
) {
    let _ = apply(input, observer, writer, ledger_page, plan).await;
    let _ = plan.steps.len();
}

fn main() {}
