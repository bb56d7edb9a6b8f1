//! The few lines of HTTP client that the source stands on; any other client would do.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::outcome::Later;
use homeostat_engine::{Failure, Retry};
use homeostat_kit::simple::{Notice, Notices};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::shape::Shape;

/// Called before and after each request to write: tests let the process die there.
pub type Tap = Arc<dyn Fn(&str) + Send + Sync>;

/// Where the service is.
#[derive(Clone)]
pub struct Client {
    addr: SocketAddr,
    tap: Option<Tap>,
}

/// The first line of an HTTP request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    method: &'a str,
    path: &'a str,
}

impl<'a> Request<'a> {
    #[must_use]
    pub fn new(method: &'a str, path: &'a str) -> Self {
        Request { method, path }
    }
}

/// The service writes only to a shape that has this label and this version, where they are given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions<'a> {
    pub label: Option<(&'a str, &'a str)>,
    pub version: Option<&'a str>,
}

/// A shape as the service returns it.
#[derive(Clone, Debug, Deserialize)]
pub struct Remote {
    pub name: String,
    /// Differs from that of a later shape of the same name.
    pub uid: u64,
    pub version: u64,
    #[serde(flatten)]
    pub shape: Shape,
}

/// What the service replied to a write.
pub enum Answered {
    /// Done; this is what it holds now.
    Holds(Remote),
    /// Done; it holds nothing now.
    Removed,
    /// Accepted, as a task.
    Accepted(String),
    /// There is no such shape.
    Missing,
    /// There is one already.
    Exists(Remote),
    /// A condition does not hold for the one that is there.
    Unmet(Remote),
    /// There were too many requests; the next one may be sent after this time.
    Busy(Duration),
    Refused(Failure),
}

/// What the service replied.
pub struct Reply {
    pub status: u16,
    /// The JSON body, null if there was none.
    pub body: Value,
}

impl Client {
    /// A client of the service at `addr`.
    #[must_use]
    pub fn new(addr: SocketAddr) -> Self {
        Client { addr, tap: None }
    }

    /// Calls `tap` before and after each request to write.
    #[must_use]
    pub fn tapped(self, tap: Tap) -> Self {
        Client { tap: Some(tap), ..self }
    }

    /// Reads one resource.
    pub async fn read(&self, path: &str) -> Result<Reply, Failure> {
        let request = Request { method: "GET", path };
        self.request(request, Conditions::default(), &Value::Null).await.map_err(broken)
    }

    /// Sends one request to write.
    pub async fn send(
        &self,
        request: Request<'_>,
        conditions: Conditions<'_>,
        body: &Value,
    ) -> io::Result<Reply> {
        let tap = |when: &str| self.tap.iter().for_each(|tap| tap(when));
        tap("before");
        let reply = self.request(request, conditions, body).await;
        tap("after");
        reply
    }

    async fn request(
        &self,
        request: Request<'_>,
        conditions: Conditions<'_>,
        body: &Value,
    ) -> io::Result<Reply> {
        let mut stream = TcpStream::connect(self.addr).await?;
        stream.write_all(self.text(request, conditions, body).as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        parse(&text).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Sends one request and waits for the reply, for callers that cannot be asynchronous.
    pub fn blocking(&self, method: &str, path: &str, body: &Value) -> io::Result<Reply> {
        let tap =
            |when: &str| self.tap.iter().filter(|_| method != "GET").for_each(|tap| tap(when));
        tap("before");
        let mut stream = std::net::TcpStream::connect(self.addr)?;
        let text = self.text(Request { method, path }, Conditions::default(), body);
        stream.write_all(text.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        tap("after");
        parse(&text).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn text(&self, request: Request<'_>, conditions: Conditions<'_>, body: &Value) -> String {
        let Request { method, path } = request;
        let mut head = format!("{method} {} HTTP/1.1\r\nHost: {}\r\n", escaped(path), self.addr);
        if let Some((name, value)) = conditions.label {
            let _ = write!(head, "If-Label: {name}={value}\r\n");
        }
        if let Some(version) = conditions.version {
            let _ = write!(head, "If-Match: {version}\r\n");
        }
        let body = body.to_string();
        let _ = write!(head, "Content-Length: {}\r\n\r\n{body}", body.len());
        head
    }

    /// Subscribes to changes of shapes.
    pub async fn watch(&self) -> Result<Changes, Failure> {
        Ok(Changes(self.stream("/watch").await?))
    }

    /// Reads a resource that is sent line by line, without an end.
    pub async fn stream(&self, path: &str) -> Result<Lines, Failure> {
        let mut stream = TcpStream::connect(self.addr).await.map_err(broken)?;
        let request = format!("GET {path} HTTP/1.1\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(broken)?;
        let mut lines = BufReader::new(stream).lines();
        // The head ends with an empty line.
        while lines.next_line().await.map_err(broken)?.is_some_and(|line| !line.is_empty()) {}
        Ok(Lines(lines))
    }
}

/// The lines of a watch.
pub struct Lines(tokio::io::Lines<BufReader<TcpStream>>);

impl Lines {
    /// The next line. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<String, Failure> {
        let line = self.0.next_line().await.map_err(broken)?;
        line.ok_or_else(|| Failure::new("the service hung up", Retry::Soon))
    }
}

/// The notices of a service, one a line.
pub struct Changes(Lines);

impl Notices<String> for Changes {
    fn next(&mut self) -> Later<'_, Result<Notice<String>, Failure>> {
        Box::pin(async move {
            let notice: Value = serde_json::from_str(&self.0.next().await?).unwrap_or_default();
            let key = notice["name"].as_str().map(str::to_owned);
            Ok(Notice::new(notice["number"].as_u64().unwrap_or_default(), key))
        })
    }
}

impl Reply {
    /// What the reply to a write means.
    pub fn answered(self) -> Result<Answered, Failure> {
        Ok(match self.status {
            200 => Answered::Holds(self.remote()?),
            202 => Answered::Accepted(self.body["task"].as_str().unwrap_or_default().to_owned()),
            204 => Answered::Removed,
            404 => Answered::Missing,
            409 => Answered::Exists(self.remote()?),
            412 => Answered::Unmet(self.remote()?),
            429 => {
                let after = self.body["after_ms"].as_u64().unwrap_or(1000);
                Answered::Busy(Duration::from_millis(after))
            }
            _ => Answered::Refused(self.failure()),
        })
    }

    /// The shape in the body.
    pub fn remote(self) -> Result<Remote, Failure> {
        serde_json::from_value(self.body).map_err(|error| Failure::from_error(&error, Retry::Soon))
    }

    /// The shapes in the body, and how many the service says that there are.
    pub fn remotes(mut self) -> Result<(Vec<Remote>, usize), Failure> {
        let (shapes, total) = (self.body["shapes"].take(), self.body["total"].as_u64());
        let Some(total) = total else { return Err(self.failure()) };
        let shapes = serde_json::from_value(shapes);
        let shapes = shapes.map_err(|error| Failure::from_error(&error, Retry::Soon))?;
        Ok((shapes, usize::try_from(total).unwrap_or(usize::MAX)))
    }

    /// The reply as a refusal, in the service's own words.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let text = format!("the service answered {}: {}", self.status, self.body["error"]);
        let is_our_fault = matches!(self.status, 400 | 401 | 403 | 405);
        Failure::new(text, if is_our_fault { Retry::Never } else { Retry::Soon })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands where errors are mapped")]
fn broken(error: io::Error) -> Failure {
    Failure::from_error(&error, Retry::Soon)
}

/// Percent-encodes every byte that could end the path or the line.
fn escaped(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
    let letter = |byte| if plain(byte) { char::from(byte).into() } else { format!("%{byte:02x}") };
    path.bytes().map(letter).collect()
}

fn parse(text: &str) -> Option<Reply> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Reply { status, body: serde_json::from_str(body).unwrap_or_default() })
}
