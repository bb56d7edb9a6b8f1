//! The few lines of HTTP client that the source stands on; any other client would do.

use std::io;
use std::net::SocketAddr;

use homeostat_engine::{Failure, Retry};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Where the service is.
pub(crate) struct Client {
    addr: SocketAddr,
}

/// The label that a shape must have for a write to take place.
pub(crate) type Label<'a> = Option<(&'a str, &'a str)>;

/// What the service replied.
pub(crate) struct Reply {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The JSON body, null if there was none.
    pub(crate) body: Value,
}

impl Client {
    /// A client of the service at `addr`.
    pub(crate) fn new(addr: SocketAddr) -> Self {
        Client { addr }
    }

    /// Reads one resource.
    pub(crate) async fn read(&self, path: &str) -> Result<Reply, Failure> {
        let reply = self.send(("GET", path), None, &Value::Null).await;
        reply.map_err(|error| Failure::from_error(&error, Retry::Soon))
    }

    /// Sends one request.
    pub(crate) async fn send(
        &self,
        (method, path): (&str, &str),
        condition: Label<'_>,
        body: &Value,
    ) -> io::Result<Reply> {
        let mut stream = TcpStream::connect(self.addr).await?;
        let header = condition.map(|(name, value)| format!("If-Label: {name}={value}\r\n"));
        let header = header.unwrap_or_default();
        let (path, body) = (escaped(path), body.to_string());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n{header}\r\n{body}",
            self.addr,
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        parse(&text).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Reply {
    /// The reply as a refusal, in the service's own words.
    pub(crate) fn failure(&self) -> Failure {
        let text = format!("the service answered {}: {}", self.status, self.body["error"]);
        Failure::new(text, Retry::Soon)
    }
}

/// Whatever could end the path or the line becomes a number.
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
