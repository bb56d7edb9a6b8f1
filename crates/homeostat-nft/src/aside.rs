//! Work that takes long, beside whoever waits for it: everything else of a daemon runs on one thread.

use std::io;

use tokio::sync::oneshot;

/// Does work on a thread of its own. Nobody waits for it any more than its caller does.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = oneshot::channel();
    let thread = std::thread::Builder::new().name("nft".to_owned());
    thread.spawn(move || {
        // Who asked may be gone.
        let _ = tell.send(work());
    })?;
    told.await.map_err(|_| io::Error::other("it ended without an answer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn others_go_on_while_work_is_done() {
        let (go, wait) = std::sync::mpsc::channel();
        let work = aside(move || wait.recv().is_ok());
        // The work ends only because somebody else on the waiting thread goes on.
        let other = async move { go.send(()).is_ok() };
        let (worked, went_on) = done(async { tokio::join!(work, other) });
        assert!(worked.unwrap() && went_on);
    }

    #[test]
    fn work_that_panics_is_an_error() {
        let worked: io::Result<()> = done(aside(|| panic!("a bug")));
        assert_eq!(worked.unwrap_err().to_string(), "it ended without an answer");
    }
}
