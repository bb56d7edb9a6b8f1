//! As much of HTTP/1.1 as the service needs: one request, one answer, then the end.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

/// What a client asked.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// GET, POST and so on.
    pub(super) method: String,
    pub(super) path: String,
    /// The JSON body, null if there is none.
    pub(super) body: Value,
    /// The label that the object must have.
    pub(super) if_label: Option<(String, String)>,
    /// The version that the object must have.
    pub(super) if_match: Option<String>,
}

impl Request {
    pub(super) fn read(stream: &TcpStream) -> io::Result<Self> {
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
            if_label: label.map(|(name, value)| (name.to_owned(), value.to_owned())),
            if_match: headers.get("if-match").cloned(),
        })
    }

    /// Whether anything could be written.
    pub(super) fn writes(&self) -> bool {
        self.method != "GET"
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
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Answer {
    /// An answer with a body.
    pub(super) fn of(status: u16, body: impl serde::Serialize) -> Self {
        Answer { status, body: json!(body) }
    }

    /// A refusal in words.
    pub(super) fn error(status: u16, text: &str) -> Self {
        Answer { status, body: json!({ "error": text }) }
    }

    /// Sends the answer and ends the connection.
    pub(super) fn write(&self, mut stream: &TcpStream) -> io::Result<()> {
        let body = self.body.to_string();
        let (status, length) = (self.status, body.len());
        let head = format!("HTTP/1.1 {status} -\r\nContent-Length: {length}\r\nConnection: close");
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes())
    }
}
