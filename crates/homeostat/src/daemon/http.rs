//! Read-only HTTP on loopback: how the daemon stands, for probes, scrapers and people.
//!
//! GET and HEAD of a handful of pages, one request a connection. Whatever a client could use up is bounded: the head
//! of its request, the time it takes, the number of its connections. Start at [`serve`].

mod page;
mod site;
mod stream;

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http_body_util::Either;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

pub(super) use self::page::{About, PageSource};
use self::site::Answer;
pub(super) use self::site::Site;
#[cfg(test)]
pub(super) use self::site::tests::site_of;
use super::clients::{self, Asked};
use super::metrics::Exposition;

/// Followers of events keep their connections; other requests must still find room.
const FOLLOWERS: usize = 100;
const CONNECTIONS: usize = FOLLOWERS + 32;

/// How long the head of a request may be, in bytes.
const LONGEST_HEAD: usize = 8 * 1024;

/// How long a request and its answer may take together, unless events are followed.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a client may read nothing of what was sent to it, in milliseconds.
const STALLED: u32 = 10_000;

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
            return Err(
                "not a loopback address: anyone who can reach it could read everything, so \
                        put a proxy that checks who asks in front of 127.0.0.1"
                    .to_owned(),
            );
        }
        Ok(Listen(address))
    }
}

/// Listens, and answers for ever as a task of its own.
pub(super) async fn serve(Listen(address): Listen, site: Site) -> Result<()> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
    tracing::info!(address = %listener.local_addr()?, "listening on HTTP");
    let followers = Arc::new(Semaphore::new(FOLLOWERS));
    tokio::spawn(clients::serve(
        CONNECTIONS,
        async move || Ok(listener.accept().await?.0),
        move |stream, asked| {
            let (site, followers) = (site.clone(), Arc::clone(&followers));
            // The client may be gone.
            async move { drop(converse(stream, &asked, &site, &followers).await) }
        },
    ));
    Ok(())
}

async fn converse(
    stream: TcpStream,
    asked: &Asked,
    site: &Site,
    followers: &Arc<Semaphore>,
) -> Result<()> {
    set_tcp_user_timeout(&stream, STALLED)?;
    let is_following = AtomicBool::new(false);
    let is_follower = &is_following;
    let service = service_fn(move |request| {
        asked.mark();
        Box::pin(async move {
            let answer = answer(&request, site, followers).await;
            is_follower.store(matches!(answer.body(), Either::Right(_)), Ordering::Relaxed);
            Ok::<_, Infallible>(answer)
        })
    });
    let mut builder = http1::Builder::new();
    // A client may close its side once it has asked.
    builder.half_close(true).keep_alive(false).max_buf_size(LONGEST_HEAD).auto_date_header(false);
    let mut connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut served = poll_fn(|cx| connection.poll_without_shutdown(cx));
    if timeout(PATIENCE, &mut served).await.is_err() {
        ensure!(is_following.load(Ordering::Relaxed), "the client took too long");
        served.await?;
    }
    let mut stream = connection.into_parts().io.into_inner();
    stream.shutdown().await?;
    // If the kernel still has unread input, closing the connection would discard the answer.
    let mut rest = stream.take(1 << 20);
    timeout(Duration::from_secs(1), tokio::io::copy(&mut rest, &mut tokio::io::sink())).await??;
    Ok(())
}

async fn answer<B>(request: &Request<B>, site: &Site, followers: &Arc<Semaphore>) -> Answer {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let why = "only GET and HEAD are answered: HTTP only reads";
        let mut refusal = site::text(StatusCode::METHOD_NOT_ALLOWED, why);
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    let (uri, headers) = (request.uri(), request.headers());
    if uri.authority().is_some() {
        return site::text(StatusCode::BAD_REQUEST, "the path does not begin with a slash");
    }
    if let Err((status, why)) = check_host(headers) {
        return site::text(status, why);
    }
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|one| one.to_str().ok());
    let accepted: Vec<&str> = accepted.collect();
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    if path == "/metrics" {
        return site.metrics(Exposition::for_client(&accepted));
    }
    let is_stream = accepted.iter().any(|kinds| kinds.contains(stream::KIND));
    if !is_stream || !["/api/v1/events", "/live"].contains(&path) {
        return site.answer(path, query).await;
    }
    match Arc::clone(followers).try_acquire_owned() {
        Ok(seat) if path == "/live" => stream::live(&site.page, query, headers, seat),
        Ok(seat) => stream::events(&site.recent, seat),
        Err(_) => site::text(StatusCode::SERVICE_UNAVAILABLE, "too many follow the events already"),
    }
}

/// A page in a browser can have any name of its own lead to this machine, but it cannot change the
/// name that the browser then sends.
fn check_host(headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    let mut hosts = headers.get_all(header::HOST).iter().map(|host| host.to_str());
    let (Some(Ok(host)), None) = (hosts.next(), hosts.next()) else {
        return Err((StatusCode::BAD_REQUEST, "there is not exactly one Host header"));
    };
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    };
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    let is_here = ["127.0.0.1", "[::1]"].contains(&name) || name.eq_ignore_ascii_case("localhost");
    if is_port && is_here {
        return Ok(());
    }
    let why = "this host is not called so: ask localhost, 127.0.0.1 or [::1]";
    Err((StatusCode::FORBIDDEN, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::loops_snapshot::LoopsSnapshot;

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

    async fn status(method: &str, uri: &str, hosts: &[&str]) -> u16 {
        let mut request = Request::builder().method(method).uri(uri);
        for host in hosts {
            request = request.header("Host", *host);
        }
        let site = site::tests::site(LoopsSnapshot::default());
        let followers = Arc::new(Semaphore::new(1));
        answer(&request.body(()).unwrap(), &site, &followers).await.status().as_u16()
    }

    #[tokio::test]
    async fn only_names_of_this_machine_are_answered() {
        let check = async |hosts: &[&str], expected| {
            assert_eq!(status("GET", "/api/v1/events", hosts).await, expected, "{hosts:?}");
        };
        for host in ["localhost", "LocalHost:1", "127.0.0.1:9876", "[::1]", "[::1]:80"] {
            check(&[host], 200).await;
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "",
            "localhost:http",
            "::1",
            "localhost@evil.example",
            "10.0.0.1",
            "evil:127.0.0.1",
        ] {
            check(&[host], 403).await;
        }
        check(&["localhost", "evil.example"], 400).await;
        check(&[], 400).await;
    }

    #[tokio::test]
    async fn what_does_not_only_read_is_refused() {
        let host = ["localhost"];
        for (method, uri, expected) in [
            ("HEAD", "/api/v1/events", 200),
            ("POST", "/", 405),
            ("DELETE", "/api/v1/status", 405),
            ("get", "/", 405),
            ("GET", "http://localhost/", 400),
            ("GET", "/etc/passwd", 404),
        ] {
            assert_eq!(status(method, uri, &host).await, expected, "{method} {uri}");
        }
    }
}
