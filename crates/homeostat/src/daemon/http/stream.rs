//! Events as they happen: server-sent events, for as long as the client takes them.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncWriteExt as _, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::answer;
use crate::daemon::recent::{Line, Recent};

/// Longer than this a client may not let us wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client that is gone is noticed when something is written to it.
const ALIVE: Duration = Duration::from_secs(15);

/// Sends what happened lately, then what happens.
pub(super) async fn send(to: &mut WriteHalf<TcpStream>, recent: &Recent) -> io::Result<()> {
    let (before, mut next) = recent.follow();
    write(to, &answer::head(200, "text/event-stream", "")).await?;
    write(to, &before.iter().map(told).collect::<String>()).await?;
    loop {
        let text = match timeout(ALIVE, next.recv()).await {
            Ok(Ok(line)) => told(&line),
            Ok(Err(RecvError::Lagged(missed))) => format!("event: missed\ndata: {missed}\n\n"),
            Ok(Err(RecvError::Closed)) => return Ok(()),
            Err(_) => ":\n\n".to_owned(),
        };
        write(to, &text).await?;
    }
}

fn told(line: &Line) -> String {
    format!("id: {}\ndata: {}\n\n", line.id, line.text)
}

async fn write(to: &mut WriteHalf<TcpStream>, text: &str) -> io::Result<()> {
    timeout(PATIENCE, to.write_all(text.as_bytes())).await?
}
