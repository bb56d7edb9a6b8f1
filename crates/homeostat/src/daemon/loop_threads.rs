//! The threads on which the loops run. A write is a system call that returns when the kernel is done, which can take
//! seconds; on a thread of its own, a loop delays no other loop, nor the control socket, nor HTTP.
//!
//! Each thread has a runtime of its own: on one runtime with several threads, netlink requests one by one were 18
//! times slower.

use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// More loops than this share threads: a thousand namespaces must not cost a thousand threads.
const MOST_THREADS: usize = 64;

/// The threads that were started. They end with this.
#[derive(Default)]
pub(super) struct LoopThreads(Vec<LoopThread>);

struct LoopThread {
    runtime: Handle,
    /// Each loop on this thread holds a clone.
    loops: Arc<()>,
    /// The thread ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl LoopThreads {
    /// Runs a loop on a thread without one, else on a new thread, else on the one with the fewest loops.
    pub(super) fn spawn(
        &mut self,
        run: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        if self.0.len() < MOST_THREADS && self.0.iter().all(|thread| thread.count() > 0) {
            self.0.push(LoopThread::start()?);
        }
        let least = self.0.iter().min_by_key(|thread| thread.count());
        let least = least.ok_or_else(|| io::Error::other("no thread for loops"))?;
        let counted = Arc::clone(&least.loops);
        Ok(least.runtime.spawn(async move {
            run.await;
            drop(counted);
        }))
    }
}

impl LoopThreads {
    /// Runs something on the first thread, whatever runs there already.
    pub(super) fn spawn_on_first(
        &mut self,
        run: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        if self.0.is_empty() {
            self.0.push(LoopThread::start()?);
        }
        let first = self.0.first().ok_or_else(|| io::Error::other("no thread for checks"))?;
        Ok(first.runtime.spawn(run))
    }
}

impl LoopThread {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, (stop, stopped)) = (runtime.handle().clone(), oneshot::channel());
        std::thread::Builder::new().name("loop".to_owned()).spawn(move || {
            // An error, when the other end is dropped.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(LoopThread { runtime: handle, loops: Arc::default(), _stop: stop })
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.loops) - 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Far longer than a thread may need on a busy machine; only a failing test waits for it.
    const GUARD: Duration = Duration::from_mins(1);

    #[test]
    fn a_loop_that_blocks_its_thread_delays_no_other() {
        let mut threads = LoopThreads::default();
        let (go_on, blocked) = mpsc::channel();
        let (report, reports) = mpsc::channel();
        let blocking = report.clone();
        let work = async move { _ = blocking.send(blocked.recv_timeout(GUARD).is_ok()) };
        threads.spawn(work).unwrap();
        threads.spawn(async move { _ = go_on.send(()) }).unwrap();
        assert!(reports.recv().unwrap(), "the second loop ran while the first one blocked");
    }

    #[test]
    fn threads_are_used_again_and_then_shared() {
        let mut threads = LoopThreads::default();
        let (report, reports) = mpsc::channel();
        let start = |threads: &mut LoopThreads| {
            let report = report.clone();
            let run = async move {
                let _ = report.send(std::thread::current().id());
                std::future::pending::<()>().await;
            };
            let task = threads.spawn(run).unwrap();
            (task, reports.recv_timeout(GUARD).unwrap())
        };
        let (first, thread) = start(&mut threads);
        first.abort();
        let ended = Builder::new_current_thread().build().unwrap().block_on(first);
        assert!(ended.unwrap_err().is_cancelled());
        let again: Vec<_> = (0..2 * MOST_THREADS).map(|_| start(&mut threads)).collect();
        assert_eq!(again[0].1, thread, "a thread without a loop is used first");
        let different: HashSet<_> = again.iter().map(|(_, thread)| *thread).collect();
        assert_eq!(different.len(), MOST_THREADS);
        assert!(threads.0.iter().all(|thread| thread.count() == 2), "loops are shared out evenly");
    }
}
