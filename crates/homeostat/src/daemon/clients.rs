//! Accepts the clients of a socket, at most so many at once; others wait in the kernel's queue.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

/// Serves every client as a task of its own, for ever.
pub(super) async fn serve<S, C>(
    most: usize,
    accept: impl AsyncFn() -> io::Result<S>,
    converse: impl Fn(S) -> C,
) where
    C: Future<Output = ()> + Send + 'static,
{
    let seats = Arc::new(Semaphore::new(most));
    while let Ok(seat) = Arc::clone(&seats).acquire_owned().await {
        match accept().await {
            Ok(stream) => {
                let conversation = converse(stream);
                tokio::spawn(async move {
                    conversation.await;
                    drop(seat);
                });
            }
            // Out of descriptors, most likely; trying again at once would not help.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
