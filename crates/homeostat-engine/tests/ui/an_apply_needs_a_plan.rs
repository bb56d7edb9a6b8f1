//! What was not planned cannot be applied.

use homeostat_engine::{Book, Observer, Order, Source, apply};

async fn apply_nothing<S: Source>(
    order: &Order<'_, S>,
    observer: &mut Observer<S>,
    writer: &S::Writer,
    book: &mut Book<S>,
) {
    let _ = apply(order, observer, writer, book).await;
}

fn main() {}
