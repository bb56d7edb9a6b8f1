//! Read-only HTTP on loopback: how the daemon stands, for probes, scrapers and people.
//!
//! GET and HEAD of a handful of pages, one request a connection, no bodies to read: that is small
//! enough to be our own. Whatever a client could use up is bounded: the head of its request, the
//! time it takes, the number of its connections. Start at [`Server::bind`].

mod answer;
mod request;
mod site;
mod stream;

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::answer::Answer;
use self::request::{MOST, Method, Refusal, Request, TOO_LONG, TOO_SLOW, Wants};
pub(super) use self::site::Site;

/// Who follows events stays; others must still find room.
const FOLLOWERS: usize = 8;
const CONNECTIONS: usize = 32;

/// What a request, and what an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// An address of this machine that only this machine can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen(SocketAddr);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text
            .strip_prefix("localhost:")
            .map(|port| format!("127.0.0.1:{port}"))
            .unwrap_or(text.to_owned());
        let address: SocketAddr =
            text.parse().map_err(|_| "not an address and a port, such as 127.0.0.1:9876")?;
        if !address.ip().is_loopback() {
            return Err("not a loopback address: whoever can reach it could read everything, so \
                        put a proxy that checks who asks in front of 127.0.0.1"
                .to_owned());
        }
        Ok(Listen(address))
    }
}

/// A socket that listens, and what it serves.
pub(super) struct Server {
    listener: TcpListener,
    site: Site,
    seats: Arc<Semaphore>,
    followers: Arc<Semaphore>,
}

impl Server {
    /// Listens; nobody is answered before [`serve`](Self::serve).
    pub(super) async fn bind(Listen(address): Listen, site: Site) -> Result<Self> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
        let [seats, followers] =
            [CONNECTIONS, FOLLOWERS].map(|most| Arc::new(Semaphore::new(most)));
        Ok(Server { listener, site, seats, followers })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Answers for ever.
    pub(super) async fn serve(self) {
        loop {
            let Ok(seat) = Arc::clone(&self.seats).acquire_owned().await else { return };
            let Ok((stream, _)) = self.listener.accept().await else {
                // Too many open files, most likely; trying again at once would not help.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let (site, followers) = (self.site.clone(), Arc::clone(&self.followers));
            tokio::spawn(async move {
                let _seat = seat;
                // Whoever asked may be gone.
                let _ = converse(stream, &site, &followers).await;
            });
        }
    }
}

async fn converse(stream: TcpStream, site: &Site, followers: &Semaphore) -> std::io::Result<()> {
    let (mut from, mut to) = tokio::io::split(stream);
    let asked = timeout(PATIENCE, read(&mut from)).await.unwrap_or(Err(TOO_SLOW));
    if let Ok(Request { method: Method::Get, path, wants: Wants::Stream, .. }) = &asked
        && path == "/api/v1/events"
        && let Ok(_seat) = followers.try_acquire()
    {
        return stream::send(&mut to, &site.recent).await;
    }
    let (method, answer) = match asked {
        Ok(Request { wants: Wants::Stream, path, method, .. }) if path == "/api/v1/events" => {
            (method, Answer::text(503, "too many follow the events already"))
        }
        Ok(Request { method, path, query, .. }) => (method, site.answer(&path, &query)),
        Err(refusal) => (Method::Get, refusal.into()),
    };
    timeout(PATIENCE, to.write_all(&answer.into_bytes(method))).await??;
    timeout(PATIENCE, to.shutdown()).await??;
    drain(&mut from).await;
    Ok(())
}

/// The head of a request, whatever comes after it.
async fn read(from: &mut ReadHalf<TcpStream>) -> Result<Request, Refusal> {
    let mut head = Vec::new();
    loop {
        if let Some(end) = request::end(&head) {
            return request::parse(head.get(..end).unwrap_or(&head));
        }
        if head.len() >= MOST {
            return Err(TOO_LONG);
        }
        let mut chunk = [0; 1024];
        match from.read(&mut chunk).await {
            Ok(count) if count > 0 => head.extend(chunk.get(..count).unwrap_or_default()),
            // Whoever closes in the middle of a head asks for nothing.
            _ => return request::parse(&head),
        }
    }
}

/// What was sent and not read would make the kernel throw the answer away with the connection.
async fn drain(from: &mut ReadHalf<TcpStream>) {
    let mut rest = tokio::io::AsyncReadExt::take(from, 1 << 20);
    let _ =
        timeout(Duration::from_secs(1), tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_listened_on() {
        let check = |text: &str, expected: Result<&str, &str>| match text.parse::<Listen>() {
            Ok(Listen(address)) => assert_eq!(Ok(address.to_string().as_str()), expected, "{text}"),
            Err(error) => assert!(expected.is_err_and(|words| error.contains(words)), "{error}"),
        };
        check("127.0.0.1:9876", Ok("127.0.0.1:9876"));
        check("localhost:9876", Ok("127.0.0.1:9876"));
        check("[::1]:9876", Ok("[::1]:9876"));
        check("0.0.0.0:80", Err("not a loopback address"));
        check("[::]:80", Err("not a loopback address"));
        check("192.0.2.1:80", Err("not a loopback address"));
        check("[::ffff:127.0.0.1]:80", Err("not a loopback address"));
        check("9876", Err("not an address and a port"));
        check("localhost", Err("not an address and a port"));
    }
}
