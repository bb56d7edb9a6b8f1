//! As much of HTTP/1.1 as the service needs: one request, one answer, then the end.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

/// What a client asked.
pub(crate) struct Request {
    /// GET, POST and so on.
    pub(crate) method: String,
    /// Which resource.
    pub(crate) path: String,
    /// The JSON body, null if there is none.
    pub(crate) body: Value,
    condition: Option<(String, String)>,
}

impl Request {
    /// Reads one request.
    pub(crate) fn read(stream: &TcpStream) -> io::Result<Self> {
        let mut reader = BufReader::new(stream);
        let first = line(&mut reader)?;
        let mut words = first.split(' ').map(str::to_owned);
        let (method, path) = (words.next(), words.next());
        let headers = headers(&mut reader)?;
        let length = headers.get("content-length").and_then(|text| text.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let label = headers.get("if-label").and_then(|text| text.split_once('='));
        Ok(Request {
            method: method.unwrap_or_default(),
            path: plain(&path.unwrap_or_default()),
            body: serde_json::from_slice(&body).unwrap_or_default(),
            condition: label.map(|(name, value)| (name.to_owned(), value.to_owned())),
        })
    }

    /// Whether the request's condition holds for a shape with these labels.
    pub(crate) fn allows(&self, labels: &BTreeMap<String, String>) -> bool {
        self.condition.as_ref().is_none_or(|(name, value)| labels.get(name) == Some(value))
    }
}

/// The path with its `%20` and the like put back.
fn plain(path: &str) -> String {
    let mut parts = path.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        bytes.extend(u8::from_str_radix(code, 16));
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn headers(reader: &mut impl BufRead) -> io::Result<BTreeMap<String, String>> {
    let mut headers = BTreeMap::new();
    loop {
        let header = line(reader)?;
        let Some((name, value)) = header.split_once(':') else { return Ok(headers) };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
}

fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// What the service replies.
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The JSON body.
    pub(crate) body: Value,
}

impl Answer {
    /// A refusal in words.
    pub(crate) fn error(status: u16, text: &str) -> Self {
        Answer { status, body: json!({ "error": text }) }
    }

    /// Sends the answer and ends the connection.
    pub(crate) fn write(&self, mut stream: &TcpStream) -> io::Result<()> {
        let body = self.body.to_string();
        write!(
            stream,
            "HTTP/1.1 {} -\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.status,
            body.len()
        )
    }
}
