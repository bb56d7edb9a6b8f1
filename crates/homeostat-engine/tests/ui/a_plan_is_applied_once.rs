//! A plan is used up by its apply.

use homeostat_engine::{Book, Observer, Order, Plan, Source, apply};

async fn apply_twice<S: Source>(
    order: &Order<'_, S>,
    observer: &mut Observer<S>,
    writer: &S::Writer,
    book: &mut Book<S>,
    plan: Plan<S>,
) {
    let _ = apply(order, observer, writer, book, plan).await;
    let _ = plan.steps.len();
}

fn main() {}
