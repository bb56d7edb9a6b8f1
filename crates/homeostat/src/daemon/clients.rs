//! Accepts the clients of a socket, at most so many at once. Who has asked is answered; who only holds a connection makes
//! room for others.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// Whether a client has asked for something. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Asked(Arc<AtomicBool>);

impl Asked {
    pub(super) fn mark(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_marked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Serves every client as a task of its own, for ever. If there are too many, the first one that has not asked yet is
/// let go; if all have, others wait in the kernel's queue.
pub(super) async fn serve<S, C>(
    most: usize,
    accept: impl AsyncFn() -> io::Result<S>,
    converse: impl Fn(S, Asked) -> C,
) where
    C: Future<Output = ()> + Send + 'static,
{
    let mut conversations = JoinSet::new();
    let mut clients: VecDeque<Client> = VecDeque::new();
    loop {
        let Ok(stream) = accept().await else {
            // Out of descriptors, most likely; trying again at once would not help.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        loop {
            while conversations.try_join_next().is_some() {}
            clients.retain(|client| !client.conversation.is_finished());
            if clients.len() < most {
                break;
            }
            let mut idle = clients.iter().enumerate().filter(|(_, one)| !one.asked.is_marked());
            match idle.next().map(|(at, one)| (at, one.since + GRACE)) {
                Some((at, due)) if due <= Instant::now() => {
                    clients.remove(at).into_iter().for_each(|idle| idle.conversation.abort());
                    break;
                }
                Some((_, due)) => tokio::time::sleep_until(due).await,
                None => drop(conversations.join_next().await),
            }
        }
        let (asked, since) = (Asked::default(), Instant::now());
        let conversation = conversations.spawn(converse(stream, asked.clone()));
        clients.push_back(Client { asked, since, conversation });
    }
}

/// How long a client is left alone before it has asked.
const GRACE: Duration = Duration::from_millis(100);

/// One that is connected.
struct Client {
    asked: Asked,
    since: Instant,
    conversation: AbortHandle,
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_mins(10);

    /// Lets virtual time pass.
    async fn pass(time: Duration) {
        let _ = timeout(time, std::future::pending::<()>()).await;
    }

    /// Clients with a number send it and get it back; the others only keep their connection open.
    async fn served(clients: impl Iterator<Item = Option<u32>>) -> (Vec<u32>, Duration) {
        let (connect, accepted) = mpsc::unbounded_channel();
        let (answer, mut answers) = mpsc::unbounded_channel();
        let accepted = tokio::sync::Mutex::new(accepted);
        clients.for_each(|client| connect.send(client).unwrap());
        let serving = serve(
            4,
            async || Ok(accepted.lock().await.recv().await.unwrap()),
            |client: Option<u32>, asked| {
                let answer = answer.clone();
                async move {
                    match client {
                        None => pass(LONG).await,
                        Some(number) => {
                            asked.mark();
                            pass(GRACE / 10).await;
                            answer.send(number).unwrap();
                        }
                    }
                }
            },
        );
        let began = Instant::now();
        let mut all = Vec::new();
        tokio::select! {
            () = serving => {}
            () = async {
                while all.len() < 3 {
                    all.push(answers.recv().await.unwrap());
                }
            } => {}
        }
        (all, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_send_no_request_block_no_other() {
        let idle = || std::iter::repeat_n(None, 50);
        let clients = idle().chain([Some(1)]).chain(idle()).chain([Some(2), Some(3)]).chain(idle());
        let (answers, took) = served(clients).await;
        assert_eq!(answers, [1, 2, 3]);
        // Idle ones leave in groups of four, each group after its grace.
        assert!(took < GRACE * 40, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_asked_is_answered_however_many_come() {
        let (answers, _) = served((0..6).map(Some)).await;
        assert_eq!(answers, [0, 1, 2]);
    }
}
